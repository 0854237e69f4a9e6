"""Schedules of collectives as data: proven on numbers, timed on the links of a topology."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ..errors import ModelError
from .link import Link
from .topology import Topology


@dataclass(frozen=True, slots=True)
class Transfer:
    """A piece of the data on its way from one node to another.

    Attributes
    ----------
    source, destination : int
    pieces : range
        Which of the schedule's equal pieces (or ``sizes``) travel together in one message.
    reduce : bool
        Whether the destination adds them to what it has, or replaces what it has.
    into : tuple of int
        Where a single piece goes at the destination, when not to its own place.
    """

    source: int
    destination: int
    pieces: range
    reduce: bool
    into: tuple[int, ...] = ()

    @property
    def places(self) -> Sequence[int]:
        """Pieces that change at the destination."""
        return self.into or self.pieces


@dataclass(frozen=True)
class Schedule:
    """Rounds of transfers; those of one round read what was there before it.

    A node does not wait for a round to end: a transfer starts as soon as what it carries has arrived at its source and
    the transfer before it between the same two nodes has ended.

    Attributes
    ----------
    nodes : int
        All that take part, servers too.
    workers : int
        The first so many nodes have data at the start and want the sum at the end.
    sizes : tuple of float
        Share of the data in each piece.
    rounds : tuple of tuple of Transfer
    result : int
        The first so many pieces are the data, which they make up together; others are for sums on the way.
    blocking : bool
        Whether a node ends each round before it begins its next, as with MPI's sends and receives.

    Raises
    ------
    ModelError
        When a transfer names a node or a piece that is not there, or the pieces are not the whole.
    """

    nodes: int
    workers: int
    sizes: tuple[float, ...]
    rounds: tuple[tuple[Transfer, ...], ...]
    result: int = 0
    blocking: bool = False
    after: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "result", self.result or len(self.sizes))
        if abs(sum(self.sizes[: self.result]) - 1.0) > 1e-9:
            raise ModelError(f"schedule: sizes must add up to 1, got {sum(self.sizes[: self.result])!r}")
        for transfer in self.transfers:
            ends = (transfer.source, transfer.destination)
            if not all(0 <= node < self.nodes for node in ends) or ends[0] == ends[1]:
                raise ModelError(f"schedule: a transfer must join two of {self.nodes} nodes, got {ends}")
            pieces = (*transfer.pieces, *transfer.into)
            if not transfer.pieces or not all(0 <= piece < len(self.sizes) for piece in pieces):
                raise ModelError(f"schedule: pieces must be some of {len(self.sizes)}, got {pieces}")
        put(self, "after", self._dependencies())

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """All of them, in the order of rounds."""
        return tuple(transfer for one in self.rounds for transfer in one)

    def share(self, transfer: Transfer) -> float:
        """Share of the data that a transfer carries."""
        return sum(self.sizes[piece] for piece in transfer.pieces)

    def combine(self, values: np.ndarray) -> np.ndarray:
        """What the workers have at the end, shape (workers, result), when each starts with its row of ``values``."""
        held = np.zeros((self.nodes, len(self.sizes)), dtype=np.asarray(values).dtype)
        held[: self.workers, : self.result] = values
        for one in self.rounds:
            sent = [held[t.source, list(t.pieces)] for t in one]
            for t, value in zip(one, sent, strict=True):
                held[t.destination, list(t.places)] = value + (held[t.destination, list(t.places)] if t.reduce else 0)
        return held[: self.workers, : self.result]

    def _dependencies(self) -> tuple[tuple[int, ...], ...]:
        """For each transfer, the transfers whose end it waits for."""
        brought: dict[tuple[int, int], list[int]] = {}
        before: dict[tuple[int, int], int] = {}
        round_before: dict[int, list[int]] = {}
        after, first = [], 0
        for one in self.rounds:
            for index, t in enumerate(one, first):
                needs = {i for piece in t.pieces for i in brought.get((t.source, piece), ())}
                pair = (t.source, t.destination)
                needs |= {before[pair]} if pair in before else set()
                needs |= {i for node in pair for i in round_before.get(node, ())}
                after.append(tuple(sorted(needs)))
                before[pair] = index
            for index, t in enumerate(one, first):
                for piece in t.places:
                    here = brought.setdefault((t.destination, piece), [])
                    if not t.reduce:
                        here.clear()
                    here.append(index)
            if self.blocking:
                mine: dict[int, list[int]] = {}
                for index, t in enumerate(one, first):
                    for node in (t.source, t.destination):
                        mine.setdefault(node, []).append(index)
                round_before |= mine
            first += len(one)
        return tuple(after)


class Algorithm(Protocol):
    """An all-reduce algorithm."""

    def time(self, message_bytes: float, nodes: int, link: Link) -> float:
        """Seconds until every one of ``nodes`` nodes has the sum of all their ``message_bytes`` bytes."""

    def schedule(self, nodes: int) -> Schedule:
        """Who sends what to whom."""


def execute(schedule: Schedule, message_bytes: float, link: Link, topology: Topology) -> float:
    """Seconds that a schedule takes on a topology whose links share their bandwidth max-min fairly.

    A message travels after ``latency``; adding it takes ``reduction_time`` per byte, one message after the other at
    each node.

    Raises
    ------
    ModelError
        When the topology has other nodes than the schedule.
    """
    if topology.nodes != schedule.nodes:
        raise ModelError(f"execute: the schedule needs {schedule.nodes} nodes, the topology has {topology.nodes}")
    transfers, after = schedule.transfers, schedule.after
    left = np.array([message_bytes * schedule.share(t) for t in transfers])
    routes = [topology.route(t.source, t.destination) for t in transfers]
    waiting = [len(needs) for needs in after]
    followers: list[list[int]] = [[] for _ in transfers]
    for i, needs in enumerate(after):
        for j in needs:
            followers[j].append(i)
    starts = sorted(((link.latency, i) for i, count in enumerate(waiting) if count == 0), reverse=True)
    free = np.zeros(schedule.nodes)  # until when a node adds
    flowing: list[int] = []
    now, done = 0.0, [0.0] * len(transfers)
    while starts or flowing:
        rates = link.bandwidth * max_min_rates([routes[i] for i in flowing], topology.capacities)
        needed = left[flowing] / rates
        passed = min([*needed, *(max(0.0, time - now) for time, _ in starts[-1:])])
        left[flowing] -= rates * passed
        now += passed
        ended = needed <= passed * (1 + 1e-12)
        arrived = [i for i, here in zip(flowing, ended, strict=True) if here]
        flowing = [i for i, here in zip(flowing, ended, strict=True) if not here]
        for i in arrived:
            t = transfers[i]
            done[i] = now
            if t.reduce and link.reduction_time > 0:
                free[t.destination] = max(free[t.destination], now)
                free[t.destination] += link.reduction_time * message_bytes * schedule.share(t)
                done[i] = free[t.destination]
            for j in followers[i]:
                waiting[j] -= 1
                if waiting[j] == 0:
                    starts.append((max(done[k] for k in after[j]) + link.latency, j))
        starts.sort(reverse=True)
        while starts and starts[-1][0] <= now:
            flowing.append(starts.pop()[1])
    return max(done, default=0.0)


def max_min_rates(routes: Sequence[tuple[int, ...]], capacities: np.ndarray) -> np.ndarray:
    """Max-min fair rates of flows over links, by progressive filling (Bertsekas and Gallager, 1992).

    Parameters
    ----------
    routes : sequence of tuple of int
        The links that each flow crosses.
    capacities : ndarray
        Of each link.

    Returns
    -------
    ndarray
        The rate of each flow.
    """
    on = np.zeros((len(capacities), len(routes)), dtype=bool)
    for flow, route in enumerate(routes):
        on[list(route), flow] = True
    rates, left = np.zeros(len(routes)), np.array(capacities, dtype=float)
    growing = np.ones(len(routes), dtype=bool)
    while growing.any():
        count = (on & growing).sum(axis=1)
        room = np.divide(left, count, out=np.full(len(left), np.inf), where=count > 0)
        least = max(room.min(), 0.0)
        rates[growing] += least
        left -= least * count
        full = (count > 0) & (room <= least * (1 + 1e-12))
        growing &= ~on[full].any(axis=0)
    return rates
