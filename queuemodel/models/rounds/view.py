"""The figure of one rank's round: when its buckets were computed, waited and were in transit."""

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
from ...base.results import Result, percent
from ...profile.records import MOST_RANKS, Bucket, Round
from .model import AllReduceModel
from .ranks import Ranks
from .times import sampler

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: More buckets than this are not distinguishable.
MOST_BUCKETS = 400


def plot_round(one: Round | RankRound, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Draw one rank's round, a row for each bucket: computed (grey), waiting (light), on the network (solid).

    A bucket is computed from when the one before it was ready. It waits for slower ranks and for buckets before it; in
    a recorded round, what it waits for after its all-reduce began on this rank counts as transit.

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
        For a round without buckets.
    """
    count = len(one.buckets)
    if not 0 < count <= MOST_BUCKETS:
        raise ModelError(f"plot_round: a round of 1 to {MOST_BUCKETS} buckets can be drawn, got {count}")
    kwargs = require_style(kwargs, "patches.Rectangle", "ax")
    ax = ax or new_axes((7.6, min(1.4 + 0.3 * count, 5.0)))
    ready = np.array([bucket.ready for bucket in one.buckets])
    begin = np.maximum([bucket.begin for bucket in one.buckets], ready)
    end = np.array([bucket.end for bucket in one.buckets])
    rows, before = np.arange(count), np.append(0.0, ready[:-1])
    style: dict[str, Any] = {"height": 0.8, "linewidth": 0, **kwargs}
    ax.barh(rows, ready - before, left=before, color=PLACES["worker"], label="worker", **style)
    ax.barh(rows, begin - ready, left=ready, color=PLACES["network"], alpha=WAITING, label="network, waiting", **style)
    ax.barh(rows, end - begin, left=begin, color=PLACES["network"], label="network", **style)
    if count <= 20:
        ax.set_yticks(rows, [_size(bucket.bytes) for bucket in one.buckets])
        ax.set_ylabel("bucket (size)")
    else:
        ax.set_ylabel("buckets, as they were ready")
        ax.set_yticks([])
    ax.invert_yaxis()
    ax.set_xlim(0, 1.02 * max(float(end.max()), one.round_time))
    ax.set_xlabel("time since the round began (s)")
    mark_at(ax, one.computed, "computation over", ha="right")
    mark_at(ax, one.round_time, "round over", ha="left")
    finish_axes(ax, legend="right")
    return ax


def _size(size: int) -> str:
    unit, name = next(((unit, name) for unit, name in ((1e6, "MB"), (1e3, "kB")) if size >= 0.1 * unit), (1, "B"))
    return f"{size / unit:.3g} {name}"


#: Lanes of a rank, and the number of the first of each kind: overlapping events have lanes of their own.
LANES = {"computation": 0, "waiting": 1000, "in transit": 2000}


def round_events(views: Sequence[Sequence[RankRound]], starts: Sequence[float]) -> list[dict[str, Any]]:
    """Events of rounds that begin at these seconds, for each rank its view of each round."""
    events: list[dict[str, Any]] = []
    for rank, rounds in enumerate(views):
        free: dict[str, list[float]] = {name: [] for name in LANES}
        for one, start in zip(rounds, starts, strict=True):
            spans = [("computation", f"round {one.number}", 0.0, one.computed, 0)]
            for b, bucket in enumerate(one.buckets):
                spans += [
                    ("waiting", f"bucket {b}", bucket.ready, bucket.begin, bucket.bytes),
                    ("in transit", f"bucket {b}", max(bucket.begin, bucket.ready), bucket.end, bucket.bytes),
                ]
            for kind, name, begin, end, size in spans:
                if end <= begin:
                    continue
                lanes = free[kind]
                lane = next((i for i, until in enumerate(lanes) if until <= start + begin), len(lanes))
                lanes[lane : lane + 1] = [start + end]
                events.append(
                    {"ph": "X", "pid": rank, "tid": LANES[kind] + lane, "name": name, "cat": kind}
                    | {"ts": 1e6 * (start + begin), "dur": 1e6 * (end - begin)}
                    | {"args": {"round": one.number, "bytes": size}}
                )
        names = [{"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}}]
        for kind, lanes in free.items():
            names += [
                {"ph": "M", "pid": rank, "tid": LANES[kind] + lane, "name": "thread_name"}
                | {"args": {"name": kind + (f" ({lane + 1})" if lane else "")}}
                for lane in range(len(lanes))
            ]
        events += names
    return events


class RankRound(NamedTuple):
    """One rank's view of a round: seconds since it began, as in `queuemodel.profile.records.Round`."""

    rank: int
    number: int
    round_time: float
    computed: float
    buckets: list[Bucket]


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedRounds(Result):
    """Rounds of a group of ranks, by `simulate_rounds`; independent but for their input, where ranks wait for that."""

    model: AllReduceModel
    ranks: int
    _: KW_ONLY
    seed: int
    sizes: np.ndarray  # (p,): Bytes of what is sent: recorded buckets, or gradients
    #: ready, computed: (rounds, ranks, p) and (rounds, ranks): When each rank had each piece, and had computed, since
    #: the round began, its waits for input included (s)
    ready: np.ndarray
    computed: np.ndarray
    begin: np.ndarray  # begin, end: (rounds, p): When the message of each piece was under way
    end: np.ndarray
    times: np.ndarray  # (rounds,): Seconds of each round
    waits: np.ndarray  # (rounds, ranks): Seconds of it for which each rank waited for its input
    confidence: float  # Of the interval around the throughput
    _digits = 3

    @property
    def waited(self) -> np.ndarray:
        """Seconds by which the last rank had computed later for waits for input, (rounds,)."""
        return np.asarray(self.computed.max(axis=1) - (self.computed - self.waits).max(axis=1))

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
        """What one rank saw of one round; pieces that travel together are one bucket.

        Raises
        ------
        ModelError
            For a round or a rank that is not there.
        """
        require_count(number, "round: number", least=0, most=len(self.times) - 1)
        require_count(rank, "round: rank", least=0, most=self.ranks - 1)
        ready, buckets = self.ready[number, rank], []
        spans = list(zip(self.begin[number].tolist(), self.end[number].tolist(), strict=True))
        for (begin, end), pieces in groupby(range(len(spans)), key=spans.__getitem__):
            together = list(pieces)
            buckets.append(Bucket(int(self.sizes[together].sum()), float(ready[together[-1]]), begin, end))
        return RankRound(rank, number, float(self.times[number]), float(self.computed[number, rank]), buckets)

    def chrome_trace(self, path: str | os.PathLike[str] | None = None, *, rounds: int = 3) -> str:
        """The first rounds as Chrome trace events, which ui.perfetto.dev opens; also written to ``path``.

        A process per rank, with lanes for its computation, for buckets that wait and for those under way.
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
        lower, upper = self.interval
        mean, slowest = float((self.computed - self.waits).mean()), self.computed.max(axis=1)
        return [
            {
                "ranks": self.ranks,
                "steps_per_second": self.throughput,
                "lower": lower,
                "upper": upper,
                "round_time": float(self.times.mean()),
                "computation": mean,
                "stragglers": float((slowest - self.waited).mean() - mean),
                "communication": float(np.maximum(self.times - slowest, 0.0).mean()),
                **({"input": float(self.waited.mean())} if self.waited.any() else {}),
            }
        ]

    def caption(self) -> str:
        """How many rounds, and what the interval covers."""
        sampling = f"intervals of {percent(self.confidence)} for sampling"
        return f"{len(self.times)} simulated rounds, seed {self.seed}; {sampling}"


def simulate_rounds(
    model: AllReduceModel, *, ranks: int, rounds: int = 200, seed: int = 0, confidence: float = 0.9
) -> SimulatedRounds:
    """Draw rounds of every rank and send their gradients as the model's scheme does.

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
    sizes, own = model.pieces(model.steps_per_round, seed)
    rng, link = np.random.default_rng(seed), model.among(ranks)
    if model.loading:
        running = Ranks(model, ranks, [rng])
        rows, waits, times = map(np.concatenate, zip(*(running.round() for _ in range(rounds)), strict=True))
    else:
        rows = sampler(own)(rng, rounds * ranks).reshape(rounds, ranks, -1) * model.paces(ranks)[:, None]
        rows, waits = np.maximum.accumulate(rows, axis=-1), np.zeros((rounds, ranks))
    group = model.group(ranks, sizes, rows.max(axis=1))
    begin = end = group.rows[:, 1:-1]
    if ranks > 1:
        begin, end = model.scheme.transit(sizes, begin, group.cost(link))
    if not model.loading:
        times = group.times(link) if ranks > 1 else group.rows[:, -1] + model.beyond
    return SimulatedRounds(
        model, ranks, seed=seed, sizes=sizes, ready=rows[..., 1:-1], computed=rows[..., -1], begin=begin, end=end,
        times=times, waits=waits, confidence=confidence,
    )  # fmt: skip
