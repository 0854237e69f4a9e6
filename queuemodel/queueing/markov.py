"""The network's Markov chain: states of stations of each kind, their changes, and the steady state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ..base.checks import require_count
from ..base.errors import ModelError
from .lowered import lower, require_populations, routes_of
from .network import Network
from .solution import Solution, solution_of
from .stations import PhaseType

if TYPE_CHECKING:
    from scipy.sparse import csc_matrix, csr_matrix

#: Customers at a station in order, each its class and the phase that its service is in.
Customers = tuple[tuple[int, int], ...]
WAITING_STATE = -1


class _States:
    """States of a station, numbered as met: ``servers`` customers first (with ``lifo``: last) are served, sorted."""

    def __init__(
        self,
        shapes: list[PhaseType | None],
        speeds: Sequence[float],
        servers: int,
        lifo: bool,
        sources: Collection[int] = (),
    ) -> None:
        self.speeds, self.servers, self.lifo, self.sources = speeds, servers, lifo, sources
        known = [shape or PhaseType.exponential(1.0) for shape in shapes]
        self.starts = [[(a, i) for i, a in enumerate(shape.alpha) if a > 0] for shape in known]
        self.phases, self.exits = [shape.T for shape in known], [shape.exit_rates.tolist() for shape in known]
        self.states: list[Customers] = [()]
        self.number: dict[Customers, int] = {(): 0}
        self.moves, self.arrivals = cache(self._moves), cache(self._arrivals)

    @property
    def keeps_order(self) -> bool:
        return self.lifo or self.servers < len(self.speeds) - 1

    def _numbered(self, customers: list[tuple[int, int]]) -> int:
        served = 0 if self.lifo else self.servers
        state = (*sorted(customers[:served]), *customers[served:])
        i = self.number.setdefault(state, len(self.states))
        if i == len(self.states):
            self.states.append(state)
        return i

    def _arrivals(self, number: int, c: int) -> list[tuple[float, int]]:
        """Probability and state after a customer of class ``c`` came."""
        state = self.states[number]
        if not self.lifo and len(state) >= self.servers:
            return [(1.0, self._numbered([*state, (c, WAITING_STATE)]))]
        return [(p, self._numbered([*state, (c, i)])) for p, i in self.starts[c]]

    def _moves(self, number: int) -> list[tuple[float, int, int]]:
        """Rate, next state, and the class that leaves (-1: none)."""
        state, moves = self.states[number], []
        n, m = len(state), min(len(state), self.servers)
        for at in range(n - m, n) if self.lifo else range(m):
            if not self.lifo and at > 0 and state[at] == state[at - 1]:
                continue  # sorted: counted with the one before
            c, i = state[at]
            rate = self.speeds[n] / m * (1 if self.lifo or c in self.sources else state[:m].count(state[at]))
            rest = [*state[:at], *state[at + 1 :]]
            if self.exits[c][i] > 0:
                moves += [(rate * self.exits[c][i] * p, after, c) for p, after in self._started(rest)]
            for j, r in enumerate(self.phases[c][i]):
                if j != i and r > 0:
                    moves.append((rate * r, self._numbered([*state[:at], (c, j), *state[at + 1 :]]), -1))
        return moves

    def _started(self, rest: list[tuple[int, int]]) -> list[tuple[float, int]]:
        """Probabilities and states when the first waiting customer starts."""
        m = self.servers
        if self.lifo or len(rest) < m:
            return [(1.0, self._numbered(rest))]
        c, _ = rest[m - 1]
        return [(p, self._numbered([*rest[: m - 1], (c, i), *rest[m:]])) for p, i in self.starts[c]]


def _states_of(network: Network, k: int, active: list[int], total: int) -> _States:
    """The states of station ``k`` when classes ``active`` have customers, ``total`` in all."""
    station = network.stations[k]
    speeds = [0.0, *station.speeds(total).tolist()]
    shapes = [station.shape_of(label) for label in network.labels]
    visiting = [shape for c in active if network.class_visit_ratios[k, c] > 0 and (shape := shapes[c])]
    alike = len(visiting) == 1 and len(visiting[0].alpha) == 1  # their order cannot matter
    if station.is_delay or station.discipline == "ps" or alike:
        return _States(shapes, speeds, total, False)
    servers = station.servers if station.rates is None else 1
    return _States(shapes, speeds, int(min(servers, total)), station.discipline == "lifo-pr")


@dataclass(frozen=True, slots=True)
class MarkovChain:
    """Steady state of the network's continuous-time Markov chain (Stewart, 1994), built state by state and sparse.

    Exact (to about 1e-9) for every discipline, several servers, load-dependent rates and phase-type service. A squared
    coefficient of variation without a distribution stands for the two-moment phase-type of `PhaseType.from_moments`;
    think times are exponential. States grow fast with population, stations and classes; a chain as large as the limit
    takes seconds.

    Without think time or processor sharing, stations may keep the customers' order for ever. When the measures depend
    on the order at the start, the network has no steady state of its own, and is refused.

    Open classes make the chain infinite. It is cut off, which is not exact: who would be the customer number
    ``most_open + 1`` of an open class is lost. The solution's reason has the share of customers lost.

    Parameters
    ----------
    most_states : int, default 60,000
        More are refused.
    most_open : int, default 20
        Customers of each open class that can be there at once.
    """

    most_states: int = 60_000
    most_open: int = 20

    def __post_init__(self) -> None:
        require_count(self.most_states, "Markov chain: most_states", most=10_000_000)
        require_count(self.most_open, "Markov chain: most_open", most=10_000_000)

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures at ``population``.

        Raises
        ------
        ModelError
            When there are more than `most_states` states, or the steady state depends on the start.
        """
        population = require_populations(network, population)
        low = lower(network, population)
        chain = _Transitions(network, low.counts_with(self.most_open), self.most_states)
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
                f"{min(rates):.6g} to {max(rates):.6g} /s), without think time or processor sharing; give a think "
                "time, or a station discipline='ps'"
            )
        why = "the steady state of every state of the network: exact for any discipline"
        if network.open_classes:
            lost = float((1.0 - X / np.where(network.arrival_rates > 0, network.arrival_rates, X)).max())
            why = f"cut off at {self.most_open} customers of each open class, of whom {lost:.2g} are lost"
        name = f"Markov chain, {len(chain.states):,} states"
        return solution_of(low, X, Q, busy=busy, solver=name, exact=not network.open_classes, reason=why)


State = tuple[int, ...]  # for each place the number of the state that it is in


class _Transitions:
    """The network's chain: `states`, shape (n, K+1), each place's state by number, and `rates`, sparse (n, n)."""

    def __init__(self, network: Network, counts: tuple[int, ...], most: int) -> None:
        self.network, self.counts, self.most = network, counts, most
        self.routes = routes_of(network)
        total = sum(counts)
        active = [c for chain in network.chains if sum(counts[c] for c in chain) for c in chain]
        self.places = [_states_of(network, k, active, total) for k in range(len(network.stations))]
        think = [PhaseType.exponential(z) if z > 0 else None for z in self.routes.service_times[-1]]
        sources = np.flatnonzero(network.arrival_rates).tolist()  # one customer at a time arrives from there
        self.places.append(_States(think, range(total + 1), total, False, sources))
        self.next = [
            [[(float(row[d, j]), int(d), int(j)) for d, j in np.argwhere(row)] for row in self.routes.P[c]]
            for c in range(len(counts))
        ]
        self._explore()

    def _starts(self) -> Iterable[State]:
        """One start where places or equal customers make their order be forgotten in time; else every start."""
        chains = [chain for chain in self.network.chains if sum(self.counts[c] for c in chain)]
        homes = [[(c, k) for c in chain for k in range(len(self.places)) if self.next[c][k]] for chain in chains]
        counted = [[(c, k) for c, k in home if not self.places[k].keeps_order] for home in homes]
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
        """Q (K, C), X (C,) and the probability that a customer is there (K,), from the states' probabilities."""
        C = len(self.counts)
        Q, departures, empty = [], np.zeros(C), []
        for k, place in enumerate(self.places):
            weight = np.bincount(self.states[:, k], pi, len(place.states))
            seen = np.flatnonzero(weight)
            Q.append(weight[seen] @ [[sum(d == c for d, _ in place.states[i]) for c in range(C)] for i in seen])
            for i in seen:
                for rate, _, c in place.moves(int(i)):
                    if c >= 0:
                        departures[c] += weight[i] * rate
            empty.append(weight[0])
        return np.array(Q[:-1]), self.routes.cycles(departures), 1.0 - np.array(empty[:-1])


#: Measures of two starts that differ by more are not rounding.
SAME = 1e-6
#: Up to so many states elimination is fast, whatever the network.
FEW = 1_500
#: Steps, each a jump or none, after which a likely state is known.
STEPS = 100
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
    """Probabilities of a closed class's states, by iteration (many neighbours) or else elimination (slow mixing)."""
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
    """GMRES (Saad, 2003), as Stewart (1994) has it for Markov chains; None when it is slow or fails."""
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
    """One state has weight 1 and its balance is left out: the rest is a nonsingular M-matrix."""
    from scipy.sparse.linalg import splu

    n = balance.shape[0]
    x, likely = np.full(n, 1.0 / n), 0
    for _ in range(STEPS):
        x = x - 0.5 * (balance @ x)
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
