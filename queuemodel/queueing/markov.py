"""What a station of each kind has to remember, and how it changes.

Each kind has an ``empty`` state, ``arrive`` (probabilities and states after a customer of a class comes), ``moves``
(rates, states, and the class that leaves, or -1 for nobody) and ``customers`` (how many of a class are here).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.checks import require_count
from ..base.errors import ModelError
from .lowered import lower, require_populations, routes_of
from .network import Network
from .solution import Solution, solution_of
from .stations import PhaseType

if TYPE_CHECKING:
    from scipy.sparse import csc_matrix, csr_matrix

StationState = tuple[Any, ...]
Moves = list[tuple[float, StationState, int]]
WAITING = -1


def state_of(network: Network, k: int, active: list[int], total: int) -> Counted | Ordered:
    """The kind of state that station ``k`` needs when classes ``active`` have customers, ``total`` in all."""
    station = network.stations[k]
    speeds = [0.0, *station.speeds(total).tolist()]
    shapes: list[PhaseType | None] = []
    for label in network.labels:
        shape, mean = station.distribution_of(label), station.time_of(label)
        if shape is None and mean > 0:
            shape = PhaseType.from_moments(mean=mean, scv=station.scv_of(label))
        shapes.append(shape)
    visiting = [shape for c in active if network.class_visit_ratios[k, c] > 0 and (shape := shapes[c])]
    alike = len(visiting) == 1 and len(visiting[0].alpha) == 1  # their order cannot matter
    if station.is_delay or station.discipline == "ps" or alike:
        return Counted(shapes, speeds)
    servers = station.servers if station.rates is None else 1
    return Ordered(shapes, speeds, int(min(servers, total)), station.discipline == "lifo-pr")


class Counted:
    """Processor sharing, delays, customers who are all alike: how many are in each phase of each class."""

    def __init__(self, shapes: list[PhaseType | None], speeds: Any) -> None:
        self.speeds = speeds
        self.slots = [(c, i) for c, s in enumerate(shapes) if s is not None for i in range(len(s.alpha))]
        self.at = {slot: n for n, slot in enumerate(self.slots)}
        self.shapes = shapes
        self.exits = [[] if s is None else s.exit_rates.tolist() for s in shapes]
        self.empty: StationState = (0,) * len(self.slots)

    def arrive(self, state: StationState, c: int) -> list[tuple[float, StationState]]:
        return [(p, _changed(state, self.at[c, i], 1)) for p, i in _starts(self.shapes[c])]

    def moves(self, state: StationState) -> Moves:
        moves: Moves = []
        n = sum(state)
        for slot, count in enumerate(state):
            if count == 0:
                continue
            c, i = self.slots[slot]
            rate = count * self.speeds[n] / n
            less = _changed(state, slot, -1)
            if self.exits[c][i] > 0:
                moves.append((rate * self.exits[c][i], less, c))
            moves += [(rate * r, _changed(less, self.at[c, j], 1), -1) for r, j in _steps(self.shapes[c], i)]
        return moves

    def customers(self, state: StationState, c: int) -> int:
        return sum(count for (d, _), count in zip(self.slots, state, strict=True) if d == c)


class Ordered:
    """First come first served, or last come first served preempting: customers in order, each (class, phase).

    Under FCFS the first ``servers`` are served (their order among each other does not matter and is sorted away), the
    others wait without a phase; under LIFO the last ones are, and the others keep their phase.
    """

    def __init__(self, shapes: list[PhaseType | None], speeds: list[float], servers: int, lifo: bool) -> None:
        self.shapes, self.speeds, self.servers, self.lifo = shapes, speeds, servers, lifo
        self.exits = [[] if s is None else s.exit_rates.tolist() for s in shapes]
        self.empty: StationState = ()

    def _tidy(self, state: list[Any]) -> StationState:
        if self.lifo or self.servers == 1:
            return tuple(state)
        return (*sorted(state[: self.servers]), *state[self.servers :])

    def arrive(self, state: StationState, c: int) -> list[tuple[float, StationState]]:
        if not self.lifo and len(state) >= self.servers:
            return [(1.0, (*state, (c, WAITING)))]
        return [(p, self._tidy([*state, (c, i)])) for p, i in _starts(self.shapes[c])]

    def moves(self, state: StationState) -> Moves:
        moves: Moves = []
        n = len(state)
        m = min(n, self.servers)
        for at in range(n - m, n) if self.lifo else range(m):
            c, i = state[at]
            speed = self.speeds[n] / m
            if self.exits[c][i] > 0:
                rate = speed * self.exits[c][i]
                moves += [(rate * p, after, c) for p, after in self._without(state, at)]
            for r, j in _steps(self.shapes[c], i):
                moves.append((speed * r, self._tidy([*state[:at], (c, j), *state[at + 1 :]]), -1))
        return moves

    def _without(self, state: StationState, at: int) -> list[tuple[float, StationState]]:
        rest = [*state[:at], *state[at + 1 :]]
        m = self.servers
        if self.lifo or len(rest) < m:
            return [(1.0, self._tidy(rest))]
        c, _ = rest[m - 1]  # the first who waits starts
        return [(p, self._tidy([*rest[: m - 1], (c, i), *rest[m:]])) for p, i in _starts(self.shapes[c])]

    def customers(self, state: StationState, c: int) -> int:
        return sum(d == c for d, _ in state)


def _starts(shape: PhaseType | None) -> list[tuple[float, int]]:
    """Probable first phases."""
    assert shape is not None  # routes lead nobody where he has no service
    return [(a, i) for i, a in enumerate(shape.alpha) if a > 0]


def _steps(shape: PhaseType | None, phase: int) -> list[tuple[float, int]]:
    """Rates to the other phases."""
    assert shape is not None
    return [(rate, j) for j, rate in enumerate(shape.T[phase]) if j != phase and rate > 0]


def _changed(state: StationState, at: int, by: int) -> StationState:
    return (*state[:at], state[at] + by, *state[at + 1 :])


#: Measures of two starts that differ by more are not rounding.
SAME = 1e-6


@dataclass(frozen=True, slots=True)
class MarkovChain:
    """Steady state of the network's continuous-time Markov chain (Stewart, 1994), built state by state and sparse.

    Exact (to about 1e-9) for every discipline, several servers, load-dependent rates and phase-type service. A squared
    coefficient of variation without a distribution stands for the two-moment phase-type of `PhaseType.from_moments`;
    think times are exponential. States grow fast with population, stations and classes; a chain as large as the limit
    takes seconds.

    Where nobody thinks or shares a processor, stations may keep the customers' order for ever. When the measures depend
    on the order at the start, the network has no steady state of its own, and is refused.

    Parameters
    ----------
    most_states : int, default 60,000
        More are refused.
    """

    most_states: int = 60_000

    def __post_init__(self) -> None:
        require_count(self.most_states, "Markov chain: most_states", most=10_000_000)

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures at ``population``.

        Raises
        ------
        ModelError
            When there are more than `most_states` states, or the steady state depends on the start.
        """
        population = require_populations(network, population)
        counts = (population,) if isinstance(population, int) else population
        chain = _Transitions(network, counts, self.most_states)
        answers = []
        for members in _closed_classes(chain.rates):
            pi = np.zeros(len(chain.states))
            pi[members] = _steady_state(chain.rates[members][:, members])
            answers.append(chain.measures(pi))
        Q, X, busy = answers[0]
        if any(not np.allclose(q, Q, rtol=SAME, atol=SAME) or not np.allclose(x, X, rtol=SAME) for q, x, _ in answers):
            rates = [x[[members[0] for members in network.chains]].sum() for _, x, _ in answers]
            raise ModelError(
                "Markov chain: the steady state depends on the order in which customers start (throughput "
                f"{min(rates):.6g} to {max(rates):.6g} /s), since nobody thinks or shares a processor; give a think "
                "time, or a station discipline='ps'"
            )
        return solution_of(
            lower(network, population),
            X,
            Q,
            busy=busy,
            solver=f"Markov chain, {len(chain.states):,} states",
            exact=True,
            reason="the steady state of every state of the network: exact for any discipline",
        )


State = tuple[int, ...]  # for each place the number of the state that it is in


class _Numbered:
    """A station's states, numbered as they are met, so that what follows from each is worked out once."""

    def __init__(self, kind: Any) -> None:
        self.kind, self.states, self.number = kind, [kind.empty], {kind.empty: 0}
        self.moves, self.arrivals = cache(self._moves), cache(self._arrivals)

    def _numbered(self, state: Any) -> int:
        i = self.number.setdefault(state, len(self.states))
        if i == len(self.states):
            self.states.append(state)
        return i

    def _moves(self, i: int) -> list[tuple[float, int, int]]:
        """Rate, next state, and the class that leaves (-1: nobody)."""
        return [(float(rate), self._numbered(state), c) for rate, state, c in self.kind.moves(self.states[i])]

    def _arrivals(self, i: int, c: int) -> list[tuple[float, int]]:
        """Probability and state after a customer of class ``c`` came."""
        return [(float(p), self._numbered(state)) for p, state in self.kind.arrive(self.states[i], c)]


class _Transitions:
    """The network's chain: `states`, shape (n, K+1), each place's state by number, and `rates`, sparse (n, n)."""

    def __init__(self, network: Network, counts: tuple[int, ...], most: int) -> None:
        self.network, self.counts, self.most = network, counts, most
        self.routes = routes_of(network)
        total = sum(counts)
        active = [c for chain in network.chains if sum(counts[c] for c in chain) for c in chain]
        self.places = [_Numbered(state_of(network, k, active, total)) for k in range(len(network.stations))]
        think = [PhaseType.exponential(z) if z > 0 else None for z in self.routes.service_times[-1]]
        self.places.append(_Numbered(Counted(think, range(total + 1))))
        self.next = [
            [[(float(row[d, j]), int(d), int(j)) for d, j in np.argwhere(row)] for row in self.routes.P[c]]
            for c in range(len(counts))
        ]
        self._explore()

    def _starts(self) -> Iterable[State]:
        """One start where the order of customers is forgotten in time; every start where it may be kept for ever.

        Where everybody comes to a place that serves any of its customers next, all can be gathered there from any
        state; customers of one kind have no order.
        """
        chains = [chain for chain in self.network.chains if sum(self.counts[c] for c in chain)]
        homes = [[(c, k) for c in chain for k in range(len(self.places)) if self.next[c][k]] for chain in chains]
        counted = [[(c, k) for c, k in home if isinstance(self.places[k].kind, Counted)] for home in homes]
        crowd = [sum(self.counts[c] for c in chain) for chain in chains]
        empty = (0,) * len(self.places)
        forgotten = all(counted) or sum(map(len, chains)) == 1
        if forgotten:
            homes = [(some or home)[:1] for some, home in zip(counted, homes, strict=True)]
        level = {(empty, tuple(crowd))}
        for _ in range(sum(crowd)):
            level = {
                (after, (*waiting[:i], waiting[i] - 1, *waiting[i + 1 :]))
                for state, waiting in level
                for i, left in enumerate(waiting)
                if left
                for c, k in homes[i]
                for _, after in self._arrived(state, k, c)
            }
            if len(level) > self.most:
                raise self._too_many()
            if forgotten:
                level = {min(level, key=lambda entry: entry[1])}
        return [state for state, _ in level]

    def _arrived(self, state: State, k: int, c: int) -> Iterator[tuple[float, State]]:
        for p, there in self.places[k].arrivals(state[k], c):
            yield p, (*state[:k], there, *state[k + 1 :])

    def _moves(self, state: State) -> Iterator[tuple[float, State]]:
        for k, place in enumerate(self.places):
            for rate, after, leaving in place.moves(state[k]):
                base = (*state[:k], after, *state[k + 1 :])
                if leaving < 0:
                    yield rate, base
                    continue
                for p, d, j in self.next[leaving][k]:
                    for q, full in self._arrived(base, j, d):
                        yield rate * p * q, full

    def _explore(self) -> None:
        number = {state: i for i, state in enumerate(self._starts())}
        todo, rows, columns, rates = list(number), [], [], []
        while todo:
            state = todo.pop()
            i = number[state]
            for rate, after in self._moves(state):
                j = number.get(after)
                if j is None:
                    j = number[after] = len(number)
                    if j >= self.most:
                        raise self._too_many()
                    todo.append(after)
                if i != j:
                    rows.append(i)
                    columns.append(j)
                    rates.append(rate)
        self.states = np.array(list(number))
        from scipy.sparse import csr_matrix  # takes a tenth of a second to load

        self.rates = csr_matrix((rates, (rows, columns)), shape=(len(number), len(number)))

    def _too_many(self) -> ModelError:
        return ModelError(
            f"Markov chain: more than {self.most:,} states at population {sum(self.counts)}; take "
            "fewer customers, most_states=..., ApproximateMVA or Simulation"
        )

    def measures(self, pi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Q (K, C), X (C,) and the probability that somebody is there (K,), with states of probabilities ``pi``."""
        C = len(self.counts)
        Q, departures, empty = [], np.zeros(C), []
        for k, place in enumerate(self.places):
            weight = np.bincount(self.states[:, k], pi, len(place.states))
            Q.append(weight @ [[place.kind.customers(state, c) for c in range(C)] for state in place.states])
            for i in np.flatnonzero(weight):
                for rate, _, c in place.moves(int(i)):
                    if c >= 0:
                        departures[c] += weight[i] * rate
            empty.append(weight[0])
        return np.array(Q[:-1]), self.routes.cycles(departures), 1.0 - np.array(empty[:-1])


#: Up to so many states elimination is fast, whatever the network.
FEW = 1_500
#: Largest sum of violated balances, in units of all jumps, that iteration may leave.
BALANCED = 1e-14
#: Iteration ends when so many steps between restarts no longer leave less than this part of it.
KRYLOV, SLOW, RESTARTS = 50, 0.3, 30


def _closed_classes(rates: csr_matrix) -> list[np.ndarray]:
    """The sets of states that lead to each other and nowhere else, from rates (n, n) of row to column."""
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(rates, directed=True, connection="strong")
    if count == 1:
        return [np.arange(rates.shape[0])]
    start, end = rates.nonzero()
    left = np.unique(label[start[label[start] != label[end]]])
    return [np.flatnonzero(label == c) for c in range(count) if c not in left]


def _steady_state(rates: csr_matrix) -> np.ndarray:
    """Probabilities of the states of a closed class, from its rates.

    Iteration is fast where states have many neighbours, elimination where they have few and customers take long to
    mix: iteration is tried first, and judged by how well its probabilities are in balance.
    """
    from scipy.sparse import diags_array

    n = rates.shape[0]
    if n == 1:
        return np.ones(1)
    out = np.asarray(rates.sum(axis=1)).ravel()
    # jumps into a state less jumps out of it; unknown is how often it is left, so that the diagonal is 1
    balance = (diags_array(np.ones(n)) - (diags_array(1 / out) @ rates).T).tocsc()
    jumps = _by_iteration(balance) if n > FEW else None
    pi = (_by_elimination(balance) if jumps is None else jumps) / out
    return pi / pi.sum()


def _by_iteration(balance: csc_matrix) -> np.ndarray | None:
    """GMRES (Saad, 2003), as Stewart (1994) has it for Markov chains, or None when it is slow or does not get there."""
    from scipy.sparse import tril, triu
    from scipy.sparse.linalg import LinearOperator, gmres, splu

    as_it_stands = {"permc_spec": "NATURAL", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    below, above = splu(tril(balance).tocsc(), **as_it_stands), splu(triu(balance).tocsc(), **as_it_stands)
    gauss_seidel = LinearOperator(balance.shape, lambda v: above.solve(below.solve(v)))  # the diagonal between is 1
    n, left = balance.shape[0], 1.0
    x = np.full(n, 1.0 / n)
    for _ in range(RESTARTS):
        step, _ = gmres(balance, -(balance @ x), rtol=1e-12, M=gauss_seidel, restart=KRYLOV, maxiter=1)
        x = np.maximum(x + step, 0.0)
        if not 0 < x.sum() < np.inf:
            break
        x /= x.sum()
        left, before = np.abs(balance @ x).sum(), left
        if left <= BALANCED:
            return x
        if not left <= SLOW * before:
            break
    return None


def _by_elimination(balance: csc_matrix) -> np.ndarray:
    """One state is given weight 1 and its balance left out: the rest is a nonsingular M-matrix."""
    from scipy.sparse.linalg import splu

    n = balance.shape[0]
    x, likely = np.zeros(n), 0
    for _ in range(4):  # an unlikely state costs digits, and the sign where the rest is singular but for rounding
        likely = int(x.argmax())
        others = np.delete(np.arange(n), likely)
        inner = splu(balance[:, others][others], permc_spec="COLAMD").solve(
            -balance[others][:, [likely]].toarray()[:, 0]
        )
        x[likely], x[others] = 1.0, np.abs(inner)
        x /= x.sum()
        if x[likely] > 0.5 * x.max():
            break
    return x
