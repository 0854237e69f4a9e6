"""Schedules of collectives as data, proven on numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from ..errors import ModelError
from .link import Link, Size


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

    @property
    def back(self) -> Transfer:
        """The same pieces the other way, where they replace what is there."""
        return Transfer(self.destination, self.source, self.pieces, False)


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "result", self.result or len(self.sizes))
        if abs(sum(self.sizes[: self.result]) - 1.0) > 1e-9:
            raise ModelError(f"schedule: sizes must add up to 1, got {sum(self.sizes[: self.result])!r}")
        for transfer in self.transfers:
            ends = (transfer.source, transfer.destination)
            if not all(0 <= node < self.nodes for node in ends) or ends[0] == ends[1]:
                raise ModelError(f"schedule: a transfer must join two of {self.nodes} nodes, got {ends}")
            pieces = (*transfer.pieces, *transfer.into)
            if not transfer.pieces or not all(0 <= piece < len(self.sizes) for piece in pieces):
                raise ModelError(f"schedule: pieces must be some of {len(self.sizes)}, got {pieces}")

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

    @cached_property
    def after(self) -> tuple[tuple[int, ...], ...]:
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

    def time(self, message_bytes: Size, nodes: int, link: Link) -> Size:
        """Seconds until every one of ``nodes`` nodes has the sum of all their ``message_bytes`` bytes (arrays too)."""

    def schedule(self, nodes: int) -> Schedule:
        """Who sends what to whom."""
