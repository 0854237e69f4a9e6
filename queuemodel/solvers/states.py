"""What a station of each kind has to remember, and how it changes.

Each kind has an ``empty`` state, ``arrive`` (probabilities and states after a customer of a class comes), ``moves``
(rates, states, and the class that leaves, or -1 for nobody) and ``customers`` (how many of a class are here).
"""

from __future__ import annotations

from typing import Any

from ..network import Network, PhaseType

State = tuple[Any, ...]
Moves = list[tuple[float, State, int]]
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
        self.empty: State = (0,) * len(self.slots)

    def arrive(self, state: State, c: int) -> list[tuple[float, State]]:
        return [(p, _changed(state, self.at[c, i], 1)) for p, i in _starts(self.shapes[c])]

    def moves(self, state: State) -> Moves:
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

    def customers(self, state: State, c: int) -> int:
        return sum(count for (d, _), count in zip(self.slots, state, strict=True) if d == c)


class Ordered:
    """First come first served, or last come first served preempting: customers in order, each (class, phase).

    Under FCFS the first ``servers`` are served (their order among each other does not matter and is sorted away), the
    others wait without a phase; under LIFO the last ones are, and the others keep their phase.
    """

    def __init__(self, shapes: list[PhaseType | None], speeds: list[float], servers: int, lifo: bool) -> None:
        self.shapes, self.speeds, self.servers, self.lifo = shapes, speeds, servers, lifo
        self.exits = [[] if s is None else s.exit_rates.tolist() for s in shapes]
        self.empty: State = ()

    def _tidy(self, state: list[Any]) -> State:
        if self.lifo or self.servers == 1:
            return tuple(state)
        return (*sorted(state[: self.servers]), *state[self.servers :])

    def arrive(self, state: State, c: int) -> list[tuple[float, State]]:
        if not self.lifo and len(state) >= self.servers:
            return [(1.0, (*state, (c, WAITING)))]
        return [(p, self._tidy([*state, (c, i)])) for p, i in _starts(self.shapes[c])]

    def moves(self, state: State) -> Moves:
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

    def _without(self, state: State, at: int) -> list[tuple[float, State]]:
        rest = [*state[:at], *state[at + 1 :]]
        m = self.servers
        if self.lifo or len(rest) < m:
            return [(1.0, self._tidy(rest))]
        c, _ = rest[m - 1]  # the first who waits starts
        return [(p, self._tidy([*rest[: m - 1], (c, i), *rest[m:]])) for p, i in _starts(self.shapes[c])]

    def customers(self, state: State, c: int) -> int:
        return sum(d == c for d, _ in state)


def _starts(shape: PhaseType | None) -> list[tuple[float, int]]:
    """Probable first phases."""
    assert shape is not None  # routes lead nobody where he has no service
    return [(a, i) for i, a in enumerate(shape.alpha) if a > 0]


def _steps(shape: PhaseType | None, phase: int) -> list[tuple[float, int]]:
    """Rates to the other phases."""
    assert shape is not None
    return [(rate, j) for j, rate in enumerate(shape.T[phase]) if j != phase and rate > 0]


def _changed(state: State, at: int, by: int) -> State:
    return (*state[:at], state[at] + by, *state[at + 1 :])
