"""Simulated rounds, and the figure of one rank's round: when it computed, and its collectives waited and were sent."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...base.checks import require_count, require_seed, require_share
from ...base.drawing import PLACES, WAITING, finish_axes, mark_at, new_axes, require_style
from ...base.errors import ModelError
from ...base.estimates import normal_quantile
from ...base.files import write_json
from ...base.results import Result, counted, percent
from ...profile.records import MOST_RANKS, Bucket, Round
from .base import DrawnRounds, RoundModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: More buckets than this are not distinguishable.
MOST_BUCKETS = 400


class RankRound(NamedTuple):
    """One rank's view of a round: seconds since it began, as in `queuemodel.profile.records.Round`."""

    rank: int
    number: int
    round_time: float
    computed: float
    buckets: list[Bucket]  # One for each collective
    kinds: Sequence[str]  # Of these
    computing: list[tuple[float, float]]

    @classmethod
    def of(cls, one: Round) -> RankRound:
        """What was recorded; what a collective waited for after it began on this rank counts as transit."""
        sent = [o for o in one.operations if o.kind != "compute"]
        buckets = [Bucket(o.bytes, o.start, o.start, o.end) for o in sent] or one.buckets
        kinds = [o.kind for o in sent] or ["all-reduce"] * len(buckets)
        computing = [(o.start, o.end) for o in one.operations if o.kind == "compute"] or [(0.0, one.computed)]
        computed = max(end for _, end in computing)
        return cls(one.rank, one.number, one.round_time, computed, buckets, kinds, computing)


def plot_round(one: Round | RankRound, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Draw one rank's round: computation (grey), and collectives waiting (light) and on the network (solid).

    A round of all-reduces has a row for each bucket, which is computed from when the one before it was ready. Other
    rounds have a row for computation and for each kind of collective. A collective waits for slower ranks, and for
    those before it; in a recorded round, what it waits for after it began on this rank counts as transit.

    Parameters
    ----------
    one : Round, or what `SimulatedRounds.round` gives
    ax : Axes, optional
        Where to draw; a new figure unless given.
    **kwargs
        Passed to `Axes.barh`.

    Raises
    ------
    ModelError
        For a round without collectives.
    """
    view = one if isinstance(one, RankRound) else RankRound.of(one)
    count = len(view.buckets)
    if not 0 < count <= MOST_BUCKETS:
        raise ModelError(f"plot_round: a round of 1 to {MOST_BUCKETS} buckets can be drawn, got {count}")
    kwargs = require_style(kwargs, "patches.Rectangle", "ax")
    by_kind = set(view.kinds) != {"all-reduce"}
    ax = ax or new_axes((7.6, 2.6 if by_kind else min(1.4 + 0.3 * count, 5.0)))
    ready = np.array([bucket.ready for bucket in view.buckets])
    begin = np.maximum([bucket.begin for bucket in view.buckets], ready)
    end = np.array([bucket.end for bucket in view.buckets])
    rows, busy = np.arange(count), np.column_stack([np.append(0.0, ready[:-1]), ready])
    if by_kind:
        names = ["computation", *dict.fromkeys(view.kinds)]
        rows, busy = np.array([names.index(kind) for kind in view.kinds]), np.array(view.computing)
    style: dict[str, Any] = {"height": 0.8, "linewidth": 0, **kwargs}
    own = np.zeros(len(busy)) if by_kind else rows
    ax.barh(own, busy[:, 1] - busy[:, 0], left=busy[:, 0], color=PLACES["worker"], label="worker", **style)
    ax.barh(rows, begin - ready, left=ready, color=PLACES["network"], alpha=WAITING, label="network, waiting", **style)
    ax.barh(rows, end - begin, left=begin, color=PLACES["network"], label="network", **style)
    if by_kind:
        ax.set_yticks(range(len(names)), names)
        ax.set_ylabel("stream")
    elif count <= 20:
        ax.set_yticks(rows, [_size(bucket.bytes) for bucket in view.buckets])
        ax.set_ylabel("bucket (size)")
    else:
        ax.set_ylabel("buckets, as they were ready")
        ax.set_yticks([])
    ax.invert_yaxis()
    ax.set_xlim(0, 1.02 * max(float(end.max()), view.round_time))
    ax.set_xlabel("time since the round began (s)")
    if not by_kind:
        mark_at(ax, view.computed, "computation over", ha="right")
    mark_at(ax, view.round_time, "round over", ha="left")
    finish_axes(ax, legend="right")
    return ax


def _size(size: int) -> str:
    unit, name = next(((unit, name) for unit, name in ((1e6, "MB"), (1e3, "kB")) if size >= 0.1 * unit), (1, "B"))
    return f"{size / unit:.3g} {name}"


#: Lanes of a rank, and the number of the first of each kind: overlapping events have lanes of their own.
ROUND_LANES = {"computation": 0, "waiting": 1000, "in transit": 2000}


def round_events(views: Sequence[Sequence[RankRound]], starts: Sequence[float]) -> list[dict[str, Any]]:
    """Events of rounds that begin at these seconds, for each rank its view of each round."""
    events: list[dict[str, Any]] = []
    for rank, rounds in enumerate(views):
        free: dict[str, list[float]] = {name: [] for name in ROUND_LANES}
        for one, start in zip(rounds, starts, strict=True):
            spans = [("computation", f"round {one.number}", begin, end, 0) for begin, end in one.computing]
            for b, (bucket, kind) in enumerate(zip(one.buckets, one.kinds, strict=True)):
                spans += [
                    ("waiting", f"{kind} {b}", bucket.ready, bucket.begin, bucket.bytes),
                    ("in transit", f"{kind} {b}", max(bucket.begin, bucket.ready), bucket.end, bucket.bytes),
                ]
            for kind, name, begin, end, size in spans:
                if end <= begin:
                    continue
                lanes = free[kind]
                lane = next((i for i, until in enumerate(lanes) if until <= start + begin), len(lanes))
                lanes[lane : lane + 1] = [start + end]
                events.append(
                    {"ph": "X", "pid": rank, "tid": ROUND_LANES[kind] + lane, "name": name, "cat": kind}
                    | {"ts": 1e6 * (start + begin), "dur": 1e6 * (end - begin)}
                    | {"args": {"round": one.number, "bytes": size}}
                )
        names = [{"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}}]
        for kind, lanes in free.items():
            names += [
                {"ph": "M", "pid": rank, "tid": ROUND_LANES[kind] + lane, "name": "thread_name"}
                | {"args": {"name": kind + (f" ({lane + 1})" if lane else "")}}
                for lane in range(len(lanes))
            ]
        events += names
    return events


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedRounds(Result):
    """Rounds of a group of ranks, by `simulate_rounds`; independent but for their input, where ranks wait for that."""

    model: RoundModel
    ranks: int
    _: KW_ONLY
    seed: int
    drawn: DrawnRounds
    confidence: float  # Of the interval around the throughput
    _digits = 3

    @property
    def times(self) -> np.ndarray:
        """Seconds of each round, (rounds,)."""
        return self.drawn.times

    @property
    def computed(self) -> np.ndarray:
        """Seconds for which each rank computed, (rounds, ranks)."""
        return np.asarray(np.diff(self.drawn.computing, axis=-1).sum(axis=(2, 3)))

    @property
    def waited(self) -> np.ndarray:
        """Seconds by which the last rank had computed later for waits for input, (rounds,)."""
        return np.asarray((self.computed + self.drawn.waits).max(axis=1) - self.computed.max(axis=1))

    @property
    def throughput(self) -> float:
        """Steps of all ranks per second."""
        return self.ranks * self.model.steps_per_round / float(self.times.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Around the throughput: the sampling of rounds alone."""
        error = self.times.std(ddof=1) / self.times.mean() / len(self.times) ** 0.5 if len(self.times) > 1 else np.inf
        z = normal_quantile(self.confidence)
        return self.throughput * float(np.exp(-z * error)), self.throughput * float(np.exp(z * error))

    def round(self, number: int = 0, *, rank: int = 0) -> RankRound:
        """One round of one rank; pieces that travel together are one bucket.

        Raises
        ------
        ModelError
            For a round or a rank that is not there.
        """
        require_count(number, "round: number", least=0, most=len(self.times) - 1)
        require_count(rank, "round: rank", least=0, most=self.ranks - 1)
        drawn, buckets, kinds = self.drawn, [], []
        ready, computing = drawn.ready[number, rank], drawn.computing[number, rank]
        spans = list(zip(drawn.kinds, *drawn.sent[number, rank].T.tolist(), strict=True))
        for (kind, begin, end), pieces in groupby(range(len(spans)), key=spans.__getitem__):
            together = list(pieces)
            buckets.append(Bucket(int(drawn.sizes[together].sum()), float(ready[together[-1]]), begin, end))
            kinds.append(kind)
        times = float(self.times[number]), float(computing.max())
        return RankRound(rank, number, *times, buckets, kinds, [(begin, end) for begin, end in computing.tolist()])

    def chrome_trace(self, path: str | os.PathLike[str] | None = None, *, rounds: int = 3) -> str:
        """The first rounds as Chrome trace events, which ui.perfetto.dev opens; also written to ``path``.

        A process per rank, with lanes for its computation, for collectives that wait and for those under way.
        """
        rounds = min(require_count(rounds, "chrome_trace: rounds"), len(self.times))
        views = [[self.round(number, rank=rank) for number in range(rounds)] for rank in range(self.ranks)]
        starts = np.append(0.0, np.cumsum(self.times))[:rounds].tolist()
        text = json.dumps({"traceEvents": round_events(views, starts), "displayTimeUnit": "ms"})
        write_json(path, text)
        return text

    def plot(self, *, number: int = 0, rank: int = 0, ax: Axes | None = None) -> Axes:
        """Draw one rank's round (`plot_round`)."""
        return plot_round(self.round(number, rank=rank), ax=ax)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row: throughput, its interval, and mean seconds of a round and its parts."""
        steps = self.ranks * self.model.steps_per_round
        lower, upper = (end / steps for end in self.interval)
        mean, slowest = float(self.computed.mean()), self.computed.max(axis=1)
        return [
            {
                "ranks": self.ranks,
                "iterations_per_second": self.throughput / steps,
                "lower": lower,
                "upper": upper,
                "round_time": float(self.times.mean()),
                "computation": mean,
                "stragglers": float(slowest.mean() - mean),
                "communication": float(np.maximum(self.times - self.waited - slowest, 0.0).mean()),
                **({"input": float(self.waited.mean())} if self.waited.any() else {}),
            }
        ]

    def caption(self) -> str:
        """Number of rounds, and the errors in the interval."""
        sampling = f"intervals of {percent(self.confidence)} for sampling"
        return f"{counted(len(self.times), 'simulated round')}, seed {self.seed}; {sampling}"


def simulate_rounds(
    model: RoundModel, *, ranks: int, rounds: int = 200, seed: int = 0, confidence: float = 0.9
) -> SimulatedRounds:
    """Draw rounds of every rank, with all their computations and collectives.

    Raises
    ------
    ModelError
        When a number makes no sense, or ranks times rounds would not fit into memory.

    Examples
    --------
    >>> from queuemodel import example_profile
    >>> from queuemodel.models import fit, simulate_rounds
    >>> model = fit(example_profile("ddp-alexnet-40"), strategy="all-reduce")
    >>> run = simulate_rounds(model, ranks=4, rounds=100)
    >>> [len(run.round().buckets), run.times.shape]
    [3, (100,)]
    """
    require_count(ranks, "simulate_rounds: ranks", most=MOST_RANKS)
    require_count(rounds, "simulate_rounds: rounds", most=10_000_000 // ranks)
    require_seed(seed, "simulate_rounds: seed")
    require_share(confidence, "simulate_rounds: confidence", open_ended=True)
    drawn = model.simulated(ranks, rounds, seed)
    return SimulatedRounds(model, ranks, seed=seed, drawn=drawn, confidence=confidence)
