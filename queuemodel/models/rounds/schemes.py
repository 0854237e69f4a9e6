"""How gradients travel: rules by which frameworks put them together, cut them and order them, each a value.

All of them get what one rank computed when, and what a message of so many bytes costs; they return when each piece is
under way and when the round is over. Presets are named after the frameworks (`SCHEMES`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from ...base.checks import require_count, require_number
from ...base.errors import ModelError
from ...profile.records import MOST_BYTES
from .sending import by_priority, in_cycles
from .times import round_time

#: Seconds of messages of these bytes (u,) that need bandwidth, and that do not.
Cost = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

#: More slices than this take minutes.
MOST_SLICES = 100_000


class Scheme(Protocol):
    """A way to send pieces (buckets as recorded, or gradients) that are ready one after the other."""

    @property
    def overlaps_next_round(self) -> bool:
        """Whether the next round computes before all is through."""

    def units(self, sizes: np.ndarray) -> np.ndarray:
        """Bytes of the messages, as small as they may become."""

    def schedule(self, sizes: np.ndarray, ready: np.ndarray, cost: Cost) -> tuple[np.ndarray, np.ndarray]:
        """When the message of each piece begins and ends, (S, p), where the group has them at ``ready`` (S, p)."""

    def time(self, sizes: np.ndarray, rows: np.ndarray, cost: Cost) -> np.ndarray:
        """Seconds of each round (S,).

        ``rows`` (S, p + 2): how long a forward pass takes, when the group has each piece, and when all have computed.
        """


@dataclass(frozen=True, slots=True)
class Buckets:
    """Buckets that are closed when full and sent in their order, as DistributedDataParallel does."""

    cap: float = 25 * 2.0**20  # Bytes at which a bucket is closed; 0: each piece is one
    first: float = 2.0**20  # The same of the first bucket, where it is smaller
    at_once: int | None = None  # Messages under way together; as recorded unless given

    overlaps_next_round: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("cap", "first"):
            require_number(getattr(self, name), f"buckets: {name}", unit="bytes", largest=MOST_BYTES)
        if self.at_once is not None:
            require_count(self.at_once, "buckets: at_once")

    def ends(self, sizes: np.ndarray) -> np.ndarray:
        """Index of the last piece of each bucket."""
        if self.cap == 0:
            return np.arange(len(sizes))
        ends, filled, limit = [], 0.0, min(self.cap, self.first)
        for index, size in enumerate(sizes):
            filled += size
            if filled >= limit:
                ends.append(index)
                filled, limit = 0.0, self.cap
        if len(sizes) and (not ends or ends[-1] != len(sizes) - 1):
            ends.append(len(sizes) - 1)
        return np.array(ends, dtype=int)

    def units(self, sizes: np.ndarray) -> np.ndarray:
        """See `Scheme`."""
        ends = self.ends(sizes)
        return np.add.reduceat(sizes, [0, *(ends[:-1] + 1)]) if len(ends) else sizes

    def schedule(self, sizes: np.ndarray, ready: np.ndarray, cost: Cost) -> tuple[np.ndarray, np.ndarray]:
        """See `Scheme`."""
        ends, (work, wait) = self.ends(sizes), cost(self.units(sizes))
        at, k = ready[:, ends], self.at_once or 1
        nothing = np.full(len(ready), -np.inf)
        done = [round_time(at[:, :b], nothing, work[:b], wait[:b], at_once=k) for b in range(1, len(ends) + 1)]
        over = np.maximum.accumulate(np.array(done).reshape(len(ends), -1).T, axis=1)
        # bucket i begins when it is ready and bucket i - k has ended
        begin = np.maximum(at, np.pad(over, ((0, 0), (k, 0)), constant_values=-np.inf)[:, : len(ends)])
        bucket = np.searchsorted(ends, np.arange(len(sizes)))
        return begin[:, bucket], over[:, bucket]

    def time(self, sizes: np.ndarray, rows: np.ndarray, cost: Cost) -> np.ndarray:
        """See `Scheme`; the max-plus recursion of `round_time`."""
        work, wait = cost(self.units(sizes))
        at = rows[:, 1:-1] if self.cap == 0 else rows[:, 1 + self.ends(sizes)]
        return round_time(at, rows[:, -1], work, wait, at_once=self.at_once or 1)


@dataclass(frozen=True, slots=True)
class Fusion:
    """Tensors that are ready when a cycle begins are fused, and sent one message after the other, as Horovod does."""

    cap: float = 128 * 2.0**20  # Most bytes of a fused message (128 MiB; older versions 64 MiB)
    #: Seconds between beginnings of cycles (1 ms; older versions 5 ms), if the one before is through
    cycle: float = 1e-3

    overlaps_next_round: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_number(self.cap, "fusion: cap", unit="bytes", largest=MOST_BYTES)
        require_number(self.cycle, "fusion: cycle", unit="seconds", largest=3600.0)

    def units(self, sizes: np.ndarray) -> np.ndarray:
        """See `Scheme`."""
        return sizes

    def schedule(self, sizes: np.ndarray, ready: np.ndarray, cost: Cost) -> tuple[np.ndarray, np.ndarray]:
        """See `Scheme`; cycles of different rounds begin at all phases."""
        if not len(sizes):
            return ready, ready
        volumes = np.append(0.0, np.geomspace(max(sizes.min(), 1.0), max(sizes.sum(), 2.0), 200))
        # a round meets the cycle at any phase: a stratified sample of it
        phase = (np.arange(len(ready)) + 0.5) / len(ready) * self.cycle
        return in_cycles(ready, phase, sizes.astype(float), self.cap, self.cycle, volumes, np.add(*cost(volumes)))

    def time(self, sizes: np.ndarray, rows: np.ndarray, cost: Cost) -> np.ndarray:
        """See `Scheme`."""
        _, ends = self.schedule(sizes, rows[:, 1:-1], cost)
        return np.maximum(ends.max(axis=1, initial=-np.inf), rows[:, -1])


@dataclass(frozen=True, slots=True)
class Slices:
    """Gradients are cut into slices, sent in the order in which the next forward pass needs them.

    As P3 (Jayarajan et al., MLSys 2019) and ByteScheduler (Peng et al., SOSP 2019) do. The next forward pass goes
    through a layer as soon as its gradient is reduced; gradients are taken to be ready from the last layer to the
    first, and the forward pass to take its time over the layers in the proportions of the backward pass.
    """

    cap: float  # Most bytes of a slice
    credit: float  # Most bytes handed over to the network, which nothing overtakes any more

    overlaps_next_round: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_number(self.cap, "slices: cap", unit="bytes", positive=True, largest=MOST_BYTES)
        require_number(self.credit, "slices: credit", unit="bytes", positive=True, largest=MOST_BYTES)

    def counts(self, sizes: np.ndarray) -> np.ndarray:
        """How many slices each gradient has."""
        counts = np.maximum(np.ceil(sizes / self.cap), 1.0)
        if counts.sum() > MOST_SLICES:
            raise ModelError(
                f"slices: {counts.sum():,.0f} slices of {self.cap:g} bytes are more than {MOST_SLICES:,}; "
                "specify larger ones"
            )
        return counts.astype(int)

    def units(self, sizes: np.ndarray) -> np.ndarray:
        """See `Scheme`."""
        counts = self.counts(sizes)
        return np.repeat(sizes / counts, counts)

    def schedule(self, sizes: np.ndarray, ready: np.ndarray, cost: Cost) -> tuple[np.ndarray, np.ndarray]:
        """See `Scheme`."""
        if not len(sizes):
            return ready, ready
        units, first = self.units(sizes), np.append(0, np.cumsum(self.counts(sizes)))
        return by_priority(np.ascontiguousarray(ready), first, *cost(units), units, self.credit)

    def time(self, sizes: np.ndarray, rows: np.ndarray, cost: Cost) -> np.ndarray:
        """See `Scheme`: from the end of one round's first forward pass to that of the next."""
        forward, ready, computed = rows[:, :1], rows[:, 1:-1], rows[:, -1]
        if not len(sizes):
            return computed
        _, ends = self.schedule(sizes, ready, cost)
        gaps = np.diff(ready.mean(axis=0), prepend=ready[:, 0].mean())
        # layer j of the next forward pass begins after its share of that pass and its own gradient
        share = np.cumsum(gaps) / gaps.sum() if gaps.sum() > 0 else np.ones(len(sizes))
        return np.maximum((ends + forward * share).max(axis=1) - forward[:, 0], computed)


#: Presets, by the framework's name. P3 hands one slice over while another is under way (our reading).
SCHEMES: dict[str, Scheme] = {
    "ddp": Buckets(),
    "horovod": Fusion(),
    "tf-ring": Buckets(cap=MOST_BYTES, first=MOST_BYTES, at_once=1),
    "p3": Slices(cap=160_000, credit=320_000),
    "bytescheduler": Slices(cap=4e6, credit=16e6),
}
