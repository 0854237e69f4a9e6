"""Rounds of synchronous training: what one rank recorded of one step of the whole group."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from ..checks import require_count, require_number
from ..errors import DataError
from .operations import LONGEST_STEP, MOST_BYTES

#: How many ranks a job can have.
MOST_RANKS = 100_000


class Gradient(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A parameter's gradient."""

    bytes: int
    ready: float  # Seconds from the start of the round until it was computed

    def __post_init__(self) -> None:
        _require_bytes_and_times(self, "gradient", ("ready",))


class Bucket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Gradients that are reduced together."""

    bytes: int
    #: ready, begin, end: Seconds from the start of the round until this rank handed it over, until its all-reduce
    #: began here, and until that had ended
    ready: float
    begin: float
    end: float

    def __post_init__(self) -> None:
        _require_bytes_and_times(self, "bucket", ("ready", "begin", "end"))
        if not self.ready <= self.end or not self.begin <= self.end:
            raise DataError(f"bucket: end must not be before it was ready and began, got {self.end!r} s")


class Round(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One round as one rank saw it."""

    rank: int = 0  # rank, ranks: This one of so many; ``ranks`` 1 for a round without communication
    ranks: int = 1
    number: int  # The same for all ranks of the group's round
    round_time: float  # Seconds from its start to the next one's, or to its own end for a round that none follows
    #: Seconds of it for which the rank waited for input that is loaded while it computes; all other times are without
    waited: float = 0.0
    computed: float  # Seconds from its start to the end of the backward pass
    gradients: list[Gradient] = []  # In the order in which they were ready
    buckets: list[Bucket] = []  # In the order in which they were handed over

    def __post_init__(self) -> None:
        require_count(self.ranks, "round: ranks", most=MOST_RANKS, error=DataError)
        require_count(self.rank, "round: rank", least=0, most=self.ranks - 1, error=DataError)
        require_count(self.number, "round: number", least=0, most=10**12, error=DataError)
        where = f"round {self.number} of rank {self.rank}"
        limits: dict[str, Any] = {"unit": "seconds", "largest": LONGEST_STEP, "error": DataError}
        require_number(self.round_time, f"{where}: round_time", positive=True, **limits)
        latest = 1.001 * self.round_time + 1e-3
        times = [self.waited, self.computed, *(g.ready for g in self.gradients), *(b.end for b in self.buckets)]
        for seconds in times:
            require_number(seconds, f"{where}: times", **limits)
            if seconds > latest:
                raise DataError(f"{where}: times must be within round_time, {self.round_time!r} s, got {seconds!r} s")
        if any(one.ready > other.ready for one, other in itertools.pairwise(self.buckets)):
            raise DataError(f"{where}: buckets must be in the order in which they were ready")


def _require_bytes_and_times(value: Gradient | Bucket, what: str, times: tuple[str, ...]) -> None:
    require_count(value.bytes, f"{what}: bytes", most=MOST_BYTES, error=DataError)
    for field in times:
        require_number(getattr(value, field), f"{what}: {field}", unit="seconds", largest=LONGEST_STEP, error=DataError)
