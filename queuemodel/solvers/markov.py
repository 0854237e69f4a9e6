"""The Markov chain of a small network: the truth for any discipline and phase-type service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ModelError
from ..network import Network, PhaseType, Solution
from .lowering import chains_of
from .routes import Routes, routes_of

State = tuple[Any, ...]
Moves = list[tuple[float, State, int]]  # rate, new state of the station, class that leaves (-1: nobody)


@dataclass(frozen=True, slots=True)
class MarkovChain:
    """Steady state of the network's continuous-time Markov chain (Stewart, 1994), built state by state and sparse.

    Exact for every discipline, several servers, load-dependent rates, fork-joins (with classes served alike) and
    phase-type service. A squared coefficient of variation without a distribution stands for the two-moment phase-type
    of `PhaseType.from_moments`; think times are exponential. Without thinking, last-come-first-served stations may keep
    the customers' order for ever: the answer is then that of one start, not of a unique steady state. States grow fast
    with population, stations and classes.

    Parameters
    ----------
    most_states : int, default 60,000
        More are refused.
    """

    most_states: int = 60_000

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures at ``population``."""
        counts = (population,) if isinstance(population, int) else population
        chain = _Chain(network, counts, self.most_states)
        Q, X = chain.measures()
        about: dict[str, Any] = {
            "solver": f"Markov chain, {len(chain.states):,} states",
            "exact": True,
            "reason": "the steady state of every state of the network: exact for any discipline",
        }
        K = len(network.stations)
        busy = chain.busy()
        if isinstance(population, int):
            R = (Q[:, 0] / X[0])[None, :]
            return Solution(network, population, X, R, busy=None if busy is None else busy[None, :], **about)
        chains = chains_of(network, counts)
        x, q = np.zeros(len(chains.N)), np.zeros((K, len(chains.N)))
        for c, members in enumerate(network.chains):
            x[c], q[:, c] = X[members[0]], Q[:, list(members)].sum(axis=1)
        solution = chains.solution(x, q, busy=busy, **about)
        from dataclasses import replace

        with np.errstate(invalid="ignore", divide="ignore"):
            per_class = np.where(X > 0, Q / X, 0.0)
        return replace(solution, class_residence_times=per_class)


class _Chain:
    """States, transitions and steady state."""

    def __init__(self, network: Network, counts: tuple[int, ...], most: int) -> None:
        self.network, self.counts, self.most = network, counts, most
        self.routes: Routes = routes_of(network)
        labels = network.class_names or [None]  # type: ignore[list-item]
        total = sum(counts)
        self.places = [_place(s, labels, total) for s in network.stations]
        Z = self.routes.service_times[-1]
        self.places.append(_Sharing([PhaseType.exponential(z) if z > 0 else None for z in Z], range(total + 1)))
        self.next = [
            [
                [(float(p), int(d), int(j)) for d, j, p in zip(*np.nonzero(row), row[np.nonzero(row)], strict=True)]
                for row in self.routes.P[c]
            ]
            for c in range(len(counts))
        ]
        self.states: dict[State, int] = {}
        self._explore()
        self.pi = self._steady()

    def _start(self) -> State:
        state = [place.empty for place in self.places]
        for c, n in enumerate(self.counts):
            if n == 0:
                continue
            chain = next(members for members in self.network.chains if c in members)
            where = [(d, k) for d in chain for k in range(len(self.places)) if self.next[d][k]]
            d, k = (c, where[0][1]) if not self.next[c][where[0][1]] else where[0]
            for _ in range(n):
                state[k] = self.places[k].arrive(state[k], d)[0][1]
        return tuple(state)

    def _moves(self, state: State) -> Iterator[tuple[float, State]]:
        for k, place in enumerate(self.places):
            for rate, after, leaving in place.moves(state[k]):
                base = [*state]
                base[k] = after
                if leaving < 0:
                    yield rate, tuple(base)
                    continue
                for p, d, j in self.next[leaving][k]:
                    for q, there in self.places[j].arrive(base[j], d):
                        full = [*base]
                        full[j] = there
                        yield rate * p * q, tuple(full)

    def _explore(self) -> None:
        start = self._start()
        self.states[start] = 0
        todo, rows, columns, rates = [start], [], [], []
        while todo:
            state = todo.pop()
            i = self.states[state]
            for rate, after in self._moves(state):
                j = self.states.get(after)
                if j is None:
                    j = self.states[after] = len(self.states)
                    if j >= self.most:
                        raise ModelError(
                            f"Markov chain: more than {self.most:,} states at population {sum(self.counts)}; take "
                            "fewer customers, most_states=..., ApproximateMVA or Simulation"
                        )
                    todo.append(after)
                if i != j:
                    rows.append(i)
                    columns.append(j)
                    rates.append(rate)
        self.rows, self.columns, self.rates = rows, columns, rates

    def _steady(self) -> np.ndarray:
        from scipy.sparse import coo_matrix
        from scipy.sparse.linalg import splu

        n = len(self.states)
        if n == 1:
            return np.ones(1)
        rates = np.array(self.rates)
        out = np.bincount(self.rows, rates, n)
        scale = out.max()
        A = coo_matrix(
            (
                np.concatenate([rates, -out]) / scale,
                (np.concatenate([self.columns, np.arange(n)]), np.concatenate([self.rows, np.arange(n)])),
            ),
            shape=(n, n),
        ).tocsc()
        pi, likely = np.empty(n), 0
        for _ in range(2):
            # One state is given weight 1 and its balance equation left out: the rest is a nonsingular M-matrix. The
            # second time that is the likeliest state, since an unlikely one costs digits.
            others = np.delete(np.arange(n), likely)
            inner = splu(A[others][:, others], permc_spec="COLAMD").solve(-A[others][:, [likely]].toarray().ravel())
            pi[likely], pi[others] = 1.0, np.maximum(inner, 0.0)
            pi /= pi.sum()
            likely = int(pi.argmax())
        return pi

    def measures(self) -> tuple[np.ndarray, np.ndarray]:
        """Q (K, C) and X (C,)."""
        K, C = len(self.network.stations), len(self.counts)
        Q, out = np.zeros((K + 1, C)), np.zeros(C)
        seen: list[dict[State, tuple[np.ndarray, np.ndarray]]] = [{} for _ in self.places]
        weights: list[dict[State, float]] = [{} for _ in self.places]
        for state, i in self.states.items():
            for k, part in enumerate(state):
                weights[k][part] = weights[k].get(part, 0.0) + float(self.pi[i])
        for k, place in enumerate(self.places):
            for part, p in weights[k].items():
                if part not in seen[k]:
                    leave = np.zeros(C)
                    for rate, _, c in place.moves(part):
                        if c >= 0:
                            leave[c] += rate
                    seen[k][part] = place.customers(part, C), leave
                Q[k] += p * seen[k][part][0]
                out += p * seen[k][part][1]
        self.weights = weights
        stay = np.zeros((K + 1, C), dtype=bool)
        for c in range(C):
            for k in range(K + 1):
                stay[k, c] = bool(self.next[c][k])
        visits = (self.routes.visits * stay).sum(axis=0)
        X = np.zeros(C)
        for chain in self.network.chains:
            members = list(chain)
            X[members] = out[members].sum() / visits[members].sum()
        return Q[:K], X

    def busy(self) -> np.ndarray | None:
        """1 - P(nobody there) at stations with rates; after `measures`."""
        U = np.full(len(self.network.stations), np.nan)
        for k, station in enumerate(self.network.stations):
            if station.rates is not None:
                U[k] = 1.0 - self.weights[k].get(self.places[k].empty, 0.0)
        return U if np.isfinite(U).any() else None


def _place(station: Any, labels: list[Any], total: int) -> Any:
    from .stations import Branches, Ordered

    speeds = [0.0] + [float(n) if station.is_delay else station.rate(n) for n in range(1, total + 1)]
    if station.branches:
        tasks = [
            PhaseType.exponential(t) if station.scv == 1 else PhaseType.from_moments(mean=t, scv=station.scv_of(None))
            for t in station.branches
            if t > 0
        ]
        return Branches(tasks)
    shapes: list[PhaseType | None] = []
    for label in labels:
        mean = station.service_time
        mean = mean.get(label, 0.0) if not isinstance(mean, float) else mean
        shape, scv = station.distribution_of(label), station.scv_of(label)
        if shape is None and mean > 0:
            shape = PhaseType.exponential(mean) if scv == 1 else PhaseType.from_moments(mean=mean, scv=scv)
        shapes.append(shape)
    if station.is_delay or station.discipline == "ps":
        return _Sharing(shapes, speeds)
    return Ordered(shapes, speeds, station.servers if station.rates is None else 1, station.discipline == "lifo-pr")


class _Sharing:
    """Processor sharing and delays: how many customers are in each phase of each class."""

    def __init__(self, shapes: list[PhaseType | None], speeds: Any) -> None:
        self.speeds = speeds
        self.slots = [(c, i) for c, s in enumerate(shapes) if s is not None for i in range(len(s.alpha))]
        self.at = {slot: n for n, slot in enumerate(self.slots)}
        self.shapes = shapes
        self.exits = [None if s is None else s.exit_rates for s in shapes]
        self.empty: State = (0,) * len(self.slots)

    def arrive(self, state: State, c: int) -> list[tuple[float, State]]:
        shape = self.shapes[c]
        assert shape is not None
        return [(p, _changed(state, self.at[c, i], 1)) for i, p in enumerate(shape.alpha) if p > 0]

    def moves(self, state: State) -> Moves:
        n = sum(state)
        moves: Moves = []
        if n == 0:
            return moves
        speed = self.speeds[n] / n
        for slot, count in enumerate(state):
            if count == 0:
                continue
            c, i = self.slots[slot]
            less = _changed(state, slot, -1)
            exits = self.exits[c]
            if exits[i] > 0:  # type: ignore[index]
                moves.append((count * speed * float(exits[i]), less, c))  # type: ignore[index]
            for j, rate in enumerate(self.shapes[c].T[i]):  # type: ignore[union-attr]
                if j != i and rate > 0:
                    moves.append((count * speed * rate, _changed(less, self.at[c, j], 1), -1))
        return moves

    def customers(self, state: State, classes: int) -> np.ndarray:
        n = np.zeros(classes)
        for slot, count in enumerate(state):
            n[self.slots[slot][0]] += count
        return n


def _changed(state: State, at: int, by: int) -> State:
    return (*state[:at], state[at] + by, *state[at + 1 :])
