"""The network's Markov chain: states and transitions of each station and of the network, and the steady state."""

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

#: Phase of a customer whose service has not begun.
WAITING_STATE = -1
#: Relative difference of measures from two starts that is taken for rounding.
SAME = 1e-6
#: Most states for elimination at once, fast whatever the network.
FEW = 1_500
#: Steps, each a transition or none, after which a likely state is known.
STEPS = 100
#: Largest sum of violated balances, in units of all transitions, that iteration may leave.
BALANCED = 1e-14
#: Iteration ends when this number of steps between restarts no longer leaves less than this share of the violation.
KRYLOV, SLOW, RESTARTS = 50, 0.3, 30

#: Customers at a station in order: class and phase of service.
Customers = tuple[tuple[int, int], ...]
#: For each place the number of the state that it is in.
State = tuple[int, ...]


class _States:
    """States of a station, numbered as met: the first ``servers`` customers (``lifo``: the last) are served, sorted."""

    def __init__(
        self,
        types: list[PhaseType | None],
        speeds: Sequence[float],
        servers: int,
        lifo: bool,
        sources: Collection[int] = (),
    ) -> None:
        self.speeds, self.servers, self.lifo, self.sources = speeds, servers, lifo, sources
        shapes = [shape or PhaseType.exponential(1.0) for shape in types]
        self.starts = [[(a, i) for i, a in enumerate(shape.alpha) if a > 0] for shape in shapes]
        self.phases, self.exits = [shape.T for shape in shapes], [shape.exit_rates.tolist() for shape in shapes]
        self.states: list[Customers] = [()]
        self.number: dict[Customers, int] = {(): 0}
        self.moves, self.arrivals = cache(self._moves), cache(self._arrivals)
        self.keeps_order = lifo or servers < len(speeds) - 1

    def _numbered(self, customers: list[tuple[int, int]]) -> int:
        served = 0 if self.lifo else self.servers
        state = (*sorted(customers[:served]), *customers[served:])
        i = self.number.setdefault(state, len(self.states))
        if i == len(self.states):
            self.states.append(state)
        return i

    def _arrivals(self, number: int, c: int) -> list[tuple[float, int]]:
        """Probabilities and states after the arrival of a customer of class ``c``."""
        state = self.states[number]
        if not self.lifo and len(state) >= self.servers:
            return [(1.0, self._numbered([*state, (c, WAITING_STATE)]))]
        return [(p, self._numbered([*state, (c, i)])) for p, i in self.starts[c]]

    def _moves(self, number: int) -> list[tuple[float, int, int]]:
        """Transitions: rate, next state, and the class that leaves (-1: none)."""
        state, moves = self.states[number], []
        n, m = len(state), min(len(state), self.servers)
        for at in range(n - m, n) if self.lifo else range(m):
            if not self.lifo and at > 0 and state[at] == state[at - 1]:
                continue  # sorted: counted with the one before
            c, i = state[at]
            # each of m in service has speed mu(n) / m; equal customers are one transition
            rate = self.speeds[n] / m * (1 if self.lifo or c in self.sources else state[:m].count(state[at]))
            before, after = state[:at], state[at + 1 :]
            if self.exits[c][i] > 0:
                moves += [(rate * self.exits[c][i] * p, j, c) for p, j in self._starts_next([*before, *after])]
            for j, r in enumerate(self.phases[c][i]):
                if j != i and r > 0:
                    moves.append((rate * r, self._numbered([*before, (c, j), *after]), -1))
        return moves

    def _starts_next(self, customers: list[tuple[int, int]]) -> list[tuple[float, int]]:
        """Probabilities and states when the first waiting customer starts."""
        m = self.servers
        if self.lifo or len(customers) < m:
            return [(1.0, self._numbered(customers))]
        c, _ = customers[m - 1]
        return [(p, self._numbered([*customers[: m - 1], (c, i), *customers[m:]])) for p, i in self.starts[c]]


def _states_of(network: Network, k: int, active: list[int], total: int) -> _States:
    """The states of station ``k`` when classes ``active`` have customers, ``total`` in all."""
    station = network.stations[k]
    speeds = [0.0, *station.speeds(total).tolist()]
    shapes = [station.shape_of(label) for label in network.labels]
    visiting = [shape for c in active if network.class_visit_ratios[k, c] > 0 and (shape := shapes[c])]
    exponential = len(visiting) == 1 and len(visiting[0].alpha) == 1  # of one class: the order cannot matter
    if station.is_delay or station.discipline == "ps" or exponential:
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
        measures = []
        for members in _closed_classes(chain.rates):
            pi = np.zeros(len(chain.states))
            pi[members] = _steady_state(chain.rates[members][:, members])
            measures.append(chain.measures(pi))
        Q, X, busy = measures[0]
        if any(not np.allclose(q, Q, rtol=SAME, atol=SAME) or not np.allclose(x, X, rtol=SAME) for q, x, _ in measures):
            rates = [x[[members[0] for members in network.chains]].sum() for _, x, _ in measures]
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
        """Every initial state; a single one where places or equal customers forget the order in time."""
        chains = [chain for chain in self.network.chains if sum(self.counts[c] for c in chain)]
        homes = [[(c, k) for c in chain for k in range(len(self.places)) if self.next[c][k]] for chain in chains]
        unordered = [[(c, k) for c, k in home if not self.places[k].keeps_order] for home in homes]
        population = [sum(self.counts[c] for c in chain) for chain in chains]
        forgotten = all(unordered) or sum(map(len, chains)) == 1
        if forgotten:
            homes = [(places or home)[:1] for places, home in zip(unordered, homes, strict=True)]
        level = {((0,) * len(self.places), tuple(population))}  # states, and customers to come
        for _ in range(sum(population)):
            level = {
                (after, (*waiting[:i], waiting[i] - 1, *waiting[i + 1 :]))
                for state, waiting in level
                for i, left in enumerate(waiting)
                if left
                for c, k in homes[i]
                for _, after in self._arrivals(state, k, c)
            }
            if len(level) > self.most:
                raise self._too_many()
            if forgotten:
                level = {min(level, key=lambda entry: entry[1])}
        return [state for state, _ in level]

    def _arrivals(self, state: State, k: int, c: int) -> Iterator[tuple[float, State]]:
        for p, after in self.places[k].arrivals(state[k], c):
            yield p, (*state[:k], after, *state[k + 1 :])

    def _moves(self, state: State) -> Iterator[tuple[float, State]]:
        for k, place in enumerate(self.places):
            for rate, after, leaving in place.moves(state[k]):
                base = (*state[:k], after, *state[k + 1 :])
                if leaving < 0:
                    yield rate, base
                    continue
                for p, d, j in self.next[leaving][k]:
                    for q, full in self._arrivals(base, j, d):
                        yield rate * p * q, full  # departure, routing and first phase are independent

    def _explore(self) -> None:
        number = {state: i for i, state in enumerate(self._starts())}
        stack, rows, columns, rates = list(number), [], [], []
        while stack:
            state = stack.pop()
            i = number[state]
            for rate, after in self._moves(state):
                j = number.get(after)
                if j is None:
                    j = number[after] = len(number)
                    if j >= self.most:
                        raise self._too_many()
                    stack.append(after)
                if i != j:
                    rows.append(i)
                    columns.append(j)
                    rates.append(rate)  # of parallel transitions csr_matrix takes the sum
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
            positive = np.flatnonzero(weight)
            Q.append(weight[positive] @ [[sum(d == c for d, _ in place.states[i]) for c in range(C)] for i in positive])
            for i in positive:
                for rate, _, c in place.moves(int(i)):
                    if c >= 0:
                        departures[c] += weight[i] * rate
            empty.append(weight[0])
        return np.array(Q[:-1]), self.routes.cycles(departures), 1.0 - np.array(empty[:-1])


def _closed_classes(rates: csr_matrix) -> list[np.ndarray]:
    """The sets of states that lead to each other and nowhere else, from rates (n, n) of row to column."""
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(rates, directed=True, connection="strong")
    if count == 1:
        return [np.arange(rates.shape[0])]
    start, end = rates.nonzero()
    transient = np.unique(label[start[label[start] != label[end]]])
    return [np.flatnonzero(label == c) for c in range(count) if c not in transient]


def _steady_state(rates: csr_matrix) -> np.ndarray:
    """Probabilities of a closed class's states, by iteration (many neighbours) or else elimination (slow mixing)."""
    from scipy.sparse import diags_array

    n = rates.shape[0]
    if n == 1:
        return np.ones(1)
    out = np.asarray(rates.sum(axis=1)).ravel()
    # global balance of the embedded chain, (I - P^T) y = 0 with P = rates / out and y = pi out: the diagonal is 1
    balance = (diags_array(np.ones(n)) - (diags_array(1 / out) @ rates).T).tocsc()
    y = _by_iteration(balance) if n > FEW else None
    pi = (_by_elimination(balance) if y is None else y) / out
    return pi / pi.sum()


def _by_iteration(balance: csc_matrix) -> np.ndarray | None:
    """GMRES (Saad, 2003), as Stewart (1994) has it for Markov chains; None when it is slow or fails."""
    from scipy.sparse import tril, triu
    from scipy.sparse.linalg import LinearOperator, gmres, splu

    unpermuted = {"permc_spec": "NATURAL", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    below, above = splu(tril(balance).tocsc(), **unpermuted), splu(triu(balance).tocsc(), **unpermuted)
    gauss_seidel = LinearOperator(balance.shape, lambda v: above.solve(below.solve(v)))  # (L + I) (I + U) ~ balance
    n, violation = balance.shape[0], 1.0
    x = np.full(n, 1.0 / n)
    for _ in range(RESTARTS):
        step, _ = gmres(balance, -(balance @ x), rtol=1e-12, M=gauss_seidel, restart=KRYLOV, maxiter=1)
        x = np.maximum(x + step, 0.0)
        if not 0 < x.sum() < np.inf:
            break
        x /= x.sum()
        violation, before = np.abs(balance @ x).sum(), violation
        if violation <= BALANCED:
            return x
        if not violation <= SLOW * before:
            break
    return None


def _by_elimination(balance: csc_matrix) -> np.ndarray:
    """LU with a likely state's weight 1 and without its balance: a nonsingular M-matrix remains (Stewart, 1994)."""
    from scipy.sparse.linalg import splu

    n = balance.shape[0]
    x, likely = np.full(n, 1.0 / n), 0
    for _ in range(STEPS):
        x = x - 0.5 * (balance @ x)  # power method of the lazy chain, (I + P^T) / 2
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
