"""All states of a network that customers can reach, and the rates between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from ...errors import ModelError
from ...network import Network, PhaseType
from ..routes import routes_of
from .states import Counted, state_of

State = tuple[int, ...]  # for each place the number of the state that it is in


class Numbered:
    """A station's states, numbered as they are met, so that what follows from each is worked out once."""

    def __init__(self, kind: Any) -> None:
        self.kind, self.states, self.number = kind, [kind.empty], {kind.empty: 0}
        self._moves: dict[int, list[tuple[float, int, int]]] = {}
        self._arrivals: dict[tuple[int, int], list[tuple[float, int]]] = {}

    def _numbered(self, state: Any) -> int:
        i = self.number.setdefault(state, len(self.states))
        if i == len(self.states):
            self.states.append(state)
        return i

    def moves(self, i: int) -> list[tuple[float, int, int]]:
        """Rate, next state, and the class that leaves (-1: nobody)."""
        if i not in self._moves:
            found = self.kind.moves(self.states[i])
            self._moves[i] = [(float(rate), self._numbered(state), c) for rate, state, c in found]
        return self._moves[i]

    def arrivals(self, i: int, c: int) -> list[tuple[float, int]]:
        """Probability and state after a customer of class ``c`` came."""
        if (i, c) not in self._arrivals:
            found = self.kind.arrive(self.states[i], c)
            self._arrivals[i, c] = [(float(p), self._numbered(state)) for p, state in found]
        return self._arrivals[i, c]


class Transitions:
    """The network's chain: `states`, shape (n, K+1), each place's state by number, and `rates`, sparse (n, n).

    Raises
    ------
    ModelError
        When there are more than ``most`` states.
    """

    def __init__(self, network: Network, counts: tuple[int, ...], most: int) -> None:
        self.network, self.counts, self.most = network, counts, most
        self.routes = routes_of(network)
        total = sum(counts)
        active = [c for chain in network.chains if sum(counts[c] for c in chain) for c in chain]
        self.places = [Numbered(state_of(network, k, active, total)) for k in range(len(network.stations))]
        think = [PhaseType.exponential(z) if z > 0 else None for z in self.routes.service_times[-1]]
        self.places.append(Numbered(Counted(think, range(total + 1))))
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
        visits = (self.routes.visits * (self.routes.P.sum(axis=(2, 3)).T > 0)).sum(axis=0)
        X = np.zeros(C)
        for chain in self.network.chains:
            members = list(chain)
            X[members] = departures[members].sum() / visits[members].sum()
        return np.array(Q[:-1]), X, 1.0 - np.array(empty[:-1])
