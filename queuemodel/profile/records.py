"""Recorded operations of a step, rounds of ranks, and gradients' norms."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from ..base.checks import MOST_EXAMPLES, require_choice, require_count, require_number, require_share
from ..base.errors import DataError, ModelError

Collective = Literal["all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast"]
Kind = Literal["fetch", "compute", "push", "update", Collective]
OPERATION_KINDS = get_args(Kind)
#: Of steps on parameter servers.
STEP_KINDS: tuple[Kind, ...] = ("fetch", "compute", "push", "update")
#: A step longer than this (an hour) is taken for microseconds.
LONGEST_STEP = 3600.0
#: More bytes than this are taken for a mistake; all below are exact as floating point numbers.
MOST_BYTES = 10**15
MOST_SERVERS, MOST_RANKS = 1000, 100_000


def require_seconds(where: str, *, positive: bool = False, **times: float) -> None:
    """Refuse times that are not within a step (raises DataError, which the decoder places in its file)."""
    for field, seconds in times.items():
        what = f"{where}{field}"
        require_number(seconds, what, unit="seconds", positive=positive, largest=LONGEST_STEP, error=DataError)


class Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One operation of a step (times in seconds from the start of its step)."""

    #: A parameter transfer, a computation on the worker, a gradient transfer, or an update on the server; or what ranks
    #: do together
    kind: Kind
    name: str  # Of the tensor or of the operation, unique within its step and kind
    #: start, end: As recorded. A transfer's interval starts with its request, so it contains waiting for other
    #: transfers, and a collective's when this rank comes to it, so it contains waiting for other ranks
    start: float
    end: float
    bytes: int = 0  # Payload of a transfer; of a collective the whole data, gathered or before it is scattered
    server: int = 0  # Index of the parameter server that a transfer or update belongs to
    after: list[int] = []  # Indices, in the step's list, of the operations that must end before this one can start
    group: str = ""  # Process group of a collective

    def __post_init__(self) -> None:
        where = f"operation {self.name!r}: "
        require_choice(self.kind, f"{where}kind", OPERATION_KINDS, error=DataError)
        require_seconds(where, start=self.start, end=self.end)
        if self.start > self.end:
            raise DataError(f"{where}end must not be before its start, {self.start!r} s, got {self.end!r} s")
        require_count(self.bytes, f"{where}bytes", least=0, most=MOST_BYTES, error=DataError)
        require_count(self.server, f"{where}server", least=0, most=MOST_SERVERS - 1, error=DataError)


class Gradient(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A parameter's gradient."""

    bytes: int
    ready: float  # Seconds from the start of the round until it was computed

    def __post_init__(self) -> None:
        require_count(self.bytes, "gradient: bytes", most=MOST_BYTES, error=DataError)
        require_seconds("gradient: ", ready=self.ready)


class Bucket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Gradients that are reduced together."""

    bytes: int
    #: ready, begin, end: Seconds from the start of the round until this rank handed it over, until its all-reduce
    #: began here, and until that had ended
    ready: float
    begin: float
    end: float

    def __post_init__(self) -> None:
        require_count(self.bytes, "bucket: bytes", most=MOST_BYTES, error=DataError)
        require_seconds("bucket: ", ready=self.ready, begin=self.begin, end=self.end)
        if not self.ready <= self.end or not self.begin <= self.end:
            raise DataError(f"bucket: end must not be before it was ready and began, got {self.end!r} s")


class Round(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
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
    #: Of sharded training, in place of gradients and buckets: computations and collectives, as they were handed over.
    #: Those of one process group follow each other, and so do computations
    operations: list[Operation] = []
    #: Ranks of each process group, whose name begins with how it grows: "all ranks", "inside a node", "across nodes"
    groups: dict[str, int] = {}

    def __post_init__(self) -> None:
        require_count(self.ranks, "round: ranks", most=MOST_RANKS, error=DataError)
        require_count(self.rank, "round: rank", least=0, most=self.ranks - 1, error=DataError)
        require_count(self.number, "round: number", least=0, most=10**12, error=DataError)
        where = f"round {self.number} of rank {self.rank}"
        require_seconds(f"{where}: ", positive=True, round_time=self.round_time)
        latest = 1.001 * self.round_time + 1e-3
        ends = (*(g.ready for g in self.gradients), *(b.end for b in self.buckets))
        for seconds in (self.waited, self.computed, *ends):
            require_seconds(f"{where}: ", times=seconds)
            if seconds > latest:
                raise DataError(f"{where}: times must be within round_time, {self.round_time!r} s, got {seconds!r} s")
        for index, one in enumerate(self.operations):
            if one.kind != "compute" and (one.kind in STEP_KINDS or one.group not in self.groups):
                raise DataError(f"{where}: operation {one.name!r}: expected a computation or a collective of a group")
            if any(type(earlier) is not int or not 0 <= earlier < index for earlier in one.after):
                raise DataError(f"{where}: operation {one.name!r}: after must name operations before it in the list")
        if any(one.ready > other.ready for one, other in itertools.pairwise(self.buckets)):
            raise DataError(f"{where}: buckets must be in the order in which they were ready")


#: Squared norms of single-precision gradients end here.
LARGEST_NORM = 1e80
#: By how much rounding may make a mean longer than what it is the mean of.
ROUNDING = 1e-3


class GradientNorms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Squared norms of one step's gradients, all parameters together."""

    workers: list[float]  # Of each worker's own gradient on its own batch, before they are reduced; two or more
    mean: float  # Of the mean of the workers' gradients

    def __post_init__(self) -> None:
        if len(self.workers) < 2:
            raise DataError(f"workers must be squared norms of two workers or more, got {len(self.workers)}")
        for value in (*self.workers, self.mean):
            require_number(value, "squared norm of a gradient", largest=LARGEST_NORM, error=DataError)
        most = sum(self.workers) / len(self.workers)
        if self.mean > (1 + ROUNDING) * most:
            raise DataError(
                f"mean must be the squared norm of the mean gradient, at most the workers' mean, {most!r}, "
                f"got {self.mean!r}"
            )

    @property
    def alike(self) -> bool:
        """Whether all workers had the same gradient, from the same examples, which shows no noise."""
        return self.mean > (1 - ROUNDING) * sum(self.workers) / len(self.workers)


@dataclass(frozen=True, eq=False)
class NoiseScale:
    """Where the noise of a batch's gradient is as large as the gradient itself, in examples; of `noise_scale`.

    ``value`` is infinite when the steps show no gradient beside the noise; ``draws`` are the same of resampled steps.
    """

    value: float
    draws: np.ndarray

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.value:.3g} examples ({low:.3g} to {high:.3g}, 90 %)"

    def interval(self, confidence: float = 0.9) -> tuple[float, float]:
        """Between which the scale lies with this probability, as far as the steps differ; the end may be infinite."""
        low, high = np.quantile(self.draws, tails(confidence), method="nearest").tolist()
        return low, high


def noise_scale(worker_norms: npt.ArrayLike, mean_norms: npt.ArrayLike, *, batch_size: int) -> NoiseScale:
    """Estimate the noise scale from gradient norms of data-parallel steps (McCandlish et al., appendix A).

    The squared norm of one worker's gradient, of b examples, is ``|G|² + tr Σ / b`` on average, that of all
    workers' mean, of B examples, ``|G|² + tr Σ / B``: two equations for both, unbiased; the scale is the ratio of
    their means over the steps. It changes as training goes on, so take steps that lie close together. ``worker_norms``
    are squared norms of each worker's gradient of ``batch_size`` examples before it is reduced, shape (steps, workers),
    two of each at least; ``mean_norms``, shape (steps,), those of the mean of the workers' gradients.

    Examples
    --------
    >>> scale = noise_scale([[5.0, 5.2], [4.9, 5.1], [5.1, 4.8]], [3.0, 2.9, 3.1], batch_size=32)
    >>> round(scale.value)  # |G|² = 0.983, tr Σ / 32 = 4.03
    131
    """
    b = require_count(batch_size, "noise_scale: batch_size", most=MOST_EXAMPLES)
    own, mean = np.asarray(worker_norms, dtype=float), np.asarray(mean_norms, dtype=float)
    if own.ndim != 2 or own.shape[1] < 2 or mean.shape != own.shape[:1] or len(mean) < 2:
        raise ModelError(
            "noise_scale: worker_norms must be of shape (steps, workers) with two or more of each and mean_norms of "
            f"shape (steps,), got {own.shape} and {mean.shape}"
        )
    if not (np.isfinite(own).all() and np.isfinite(mean).all() and own.min() >= 0 and mean.min() >= 0):
        raise ModelError("noise_scale: squared norms must be finite and >= 0")
    B = b * own.shape[1]
    gradient = (B * mean - b * own.mean(axis=1)) / (B - b)
    noise = (own.mean(axis=1) - mean) / (1 / b - 1 / B)
    resampled = np.random.default_rng(0).integers(len(mean), size=(2000, len(mean)))
    rows = np.vstack([np.arange(len(mean)), resampled])  # the steps themselves first
    top, below = np.maximum(noise[rows].mean(axis=1), 0.0), gradient[rows].mean(axis=1)
    scales = np.divide(top, below, out=np.full(top.shape, np.inf), where=below > 0)
    return NoiseScale(float(scales[0]), scales[1:])


def tails(confidence: float) -> np.ndarray:
    """Shares of the draws below the ends of an interval."""
    tail = (1.0 - require_share(confidence, "interval: confidence", open_ended=True)) / 2
    return np.array([tail, 1.0 - tail])
