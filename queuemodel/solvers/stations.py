"""States of stations that keep an order (FCFS, LIFO) and of fork-joins, for the Markov chain."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..network import PhaseType

State = tuple[Any, ...]
Moves = list[tuple[float, State, int]]
WAITING = -1


class Ordered:
    """First come first served, or last come first served preempting: customers in order, each (class, phase).

    Under FCFS the first ``servers`` are served (their order among each other does not matter and is sorted away), the
    others wait without a phase; under LIFO the last ones are, and the others keep their phase.
    """

    def __init__(self, shapes: list[PhaseType | None], speeds: list[float], servers: float, lifo: bool) -> None:
        self.shapes, self.speeds, self.servers, self.lifo = shapes, speeds, servers, lifo
        self.exits: list[list[float]] = [[] if s is None else s.exit_rates.tolist() for s in shapes]
        self.empty: State = ()

    def _served(self, n: int) -> range:
        m = int(min(n, self.servers))
        return range(n - m, n) if self.lifo else range(m)

    def _tidy(self, state: list[Any]) -> State:
        if self.lifo or self.servers == 1:
            return tuple(state)
        m = int(min(len(state), self.servers))
        return (*sorted(state[:m]), *state[m:])

    def arrive(self, state: State, c: int) -> list[tuple[float, State]]:
        shape = self.shapes[c]
        assert shape is not None
        if not self.lifo and len(state) >= self.servers:
            return [(1.0, (*state, (c, WAITING)))]
        return [(p, self._tidy([*state, (c, i)])) for i, p in enumerate(shape.alpha) if p > 0]

    def moves(self, state: State) -> Moves:
        moves: Moves = []
        n = len(state)
        if n == 0:
            return moves
        served = self._served(n)
        speed = self.speeds[n] / len(served)
        for at in served:
            c, i = state[at]
            if self.exits[c][i] > 0:
                rate = speed * self.exits[c][i]
                moves += [(rate * p, after, c) for p, after in self._without(state, at)]
            for j, rate in enumerate(self.shapes[c].T[i]):
                if j != i and rate > 0:
                    moves.append((speed * rate, self._tidy([*state[:at], (c, j), *state[at + 1 :]]), -1))
        return moves

    def _without(self, state: State, at: int) -> list[tuple[float, State]]:
        rest = [*state[:at], *state[at + 1 :]]
        m = int(self.servers)
        if self.lifo or len(rest) < m:
            return [(1.0, self._tidy(rest))]
        c, _ = rest[m - 1]  # the first who waits starts
        shape = self.shapes[c]
        assert shape is not None
        return [(p, self._tidy([*rest[: m - 1], (c, i), *rest[m:]])) for i, p in enumerate(shape.alpha) if p > 0]

    def customers(self, state: State, classes: int) -> np.ndarray:
        n = np.zeros(classes)
        for c, _ in state:
            n[c] += 1
        return n


class Branches:
    """A fork-join: who is here, in order, and for each branch how many it still has to serve and its phase.

    Branches serve in the same order, so that the customer ahead is the first to be ready with all of them.
    """

    def __init__(self, shapes: list[PhaseType]) -> None:
        self.shapes = shapes
        self.exits = [s.exit_rates.tolist() for s in shapes]
        self.alike = len(set(shapes)) == 1
        self.empty: State = ((), ((0, 0),) * len(shapes))

    def _tidy(self, queue: Any, work: list[tuple[int, int]]) -> State:
        return (queue, tuple(sorted(work)) if self.alike else tuple(work))

    def arrive(self, state: State, c: int) -> list[tuple[float, State]]:
        queue, work = state
        options: list[tuple[float, list[tuple[int, int]]]] = [(1.0, [])]
        for b, (left, phase) in enumerate(work):
            if left > 0:
                options = [(p, [*w, (left + 1, phase)]) for p, w in options]
            else:
                starts = [(a, i) for i, a in enumerate(self.shapes[b].alpha) if a > 0]
                options = [(p * a, [*w, (1, i)]) for p, w in options for a, i in starts]
        return [(p, self._tidy((*queue, c), w)) for p, w in options]

    def moves(self, state: State) -> Moves:
        queue, work = state
        moves: Moves = []
        for b, (left, phase) in enumerate(work):
            if left == 0:
                continue
            shape, exit_rate = self.shapes[b], self.exits[b][phase]
            if exit_rate > 0:
                starts = [(1.0, 0)] if left == 1 else [(a, i) for i, a in enumerate(shape.alpha) if a > 0]
                for a, i in starts:
                    after = [*work[:b], (left - 1, i), *work[b + 1 :]]
                    if max(n for n, _ in after) < len(queue):
                        moves.append((exit_rate * a, self._tidy(queue[1:], after), queue[0]))
                    else:
                        moves.append((exit_rate * a, self._tidy(queue, after), -1))
            for j, rate in enumerate(shape.T[phase]):
                if j != phase and rate > 0:
                    moves.append((rate, self._tidy(queue, [*work[:b], (left, j), *work[b + 1 :]]), -1))
        return moves

    def customers(self, state: State, classes: int) -> np.ndarray:
        n = np.zeros(classes)
        for c in state[0]:
            n[c] += 1
        return n
