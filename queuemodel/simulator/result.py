"""The result of a simulation: throughput with its interval, utilizations, staleness, and a trace of operations."""

from __future__ import annotations

import json
import os
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.drawing import PLACES, finish_axes, new_axes, require_style
from ..base.errors import DataError
from ..base.files import write_json
from ..base.results import Result, counted, percent
from ..profile.profile import Profile
from .graph import arrival_order
from .kernel import loop as kernel
from .links import estimate_links

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Lanes of a worker in a Chrome trace, by kind of operation.
LANES = {"fetch": "receive link", "compute": "processor", "push": "transmit link", "update": "server"}


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedRun(Result):
    """Steady state of a simulated cluster, and the transient before it."""

    #: throughput, lower, upper: Steps of all workers per second, with an interval of probability `confidence`
    throughput: float
    _: KW_ONLY
    workers: int
    parameter_servers: int
    #: Policy, strategy, seed, and the kind of network (``(assumed)`` where unknown; none where numbers specify it)
    settings: dict[str, Any]
    steps: int  # Simulated steps of all workers, transient included
    duration: float  # duration, warmup: Simulated seconds, and how many of them belong to the transient
    warmup: float
    #: Share of its capacity that each server's link (``"transmit[0]"``, ``"receive[0]"``) and processor
    #: (``"update[0]"``) used in the steady state; ``"compute"``: operations that a worker had running on average
    utilization: dict[str, float]
    #: Mean seconds of a step: ``"step"``, ``"fetch"`` (start to last parameter), ``"compute"`` (all computations),
    #: ``"push"`` (first gradient ready to the end), which overlap
    breakdown: dict[str, float]
    #: Share of steps by the number of other steps that ended between their start and end (the last entry: or more)
    staleness: np.ndarray
    dropped_share: float  # Share of steps whose gradients came too late for their round, or that its end cut short
    #: times, throughputs: (bins,): End of each bin (seconds), and throughput within it, transient included
    times: np.ndarray
    throughputs: np.ndarray
    confidence: float
    profile: Profile  # What was simulated
    #: (operations, 4): Worker, its step, recorded step and operation of what was kept (``trace_steps``), by end
    log: np.ndarray
    log_times: np.ndarray  # (operations, 3): Seconds when each was ready, began and ended
    #: (operations,): Which of all results its step gave, from 1; 0: none, for it was dropped or had not ended
    log_results: np.ndarray
    _digits = 3

    @classmethod
    def from_state(
        cls, state: kernel.State, *, profile: Profile, settings: dict[str, Any], warmup: int, confidence: float
    ) -> SimulatedRun:
        """Read the kernel's arrays after a run, of which at least ``warmup`` steps of each worker are transient."""
        totals, stride = state.snapshots[: state.count[kernel.SNAPSHOTS]], int(state.count[kernel.STRIDE])
        durations = np.diff(totals[:, kernel.TIME], prepend=0.0)
        cut = max(mser5(durations), warmup)
        steady = durations[cut:]
        w, slot, i = np.nonzero(state.log_times[..., kernel.END] >= 0)
        log = np.stack([w, state.log_step[w, slot], state.log_record[w, slot], i], axis=1)
        log_times = state.log_times[w, slot, i]
        by_end = np.argsort(log_times[:, kernel.END], kind="stable")
        first = totals[cut - 1] if cut else np.zeros(totals.shape[1])
        change = totals[-1] - first
        seconds, steps = change[kernel.TIME], change[kernel.STEPS]
        spans = {"step": kernel.STEP_TIME, "fetch": kernel.FETCH_SPAN, "compute": kernel.BUSY, "push": kernel.PUSH_SPAN}
        utilization = {"compute": float(change[kernel.BUSY] / seconds / len(state.step))}
        for k, (sent, received, updating) in enumerate(change[kernel.PER_SERVER :].reshape(-1, 3)):
            utilization[f"transmit[{k}]"] = float(sent / seconds / state.links[0, k])
            utilization[f"receive[{k}]"] = float(received / seconds / state.links[1, k])
            utilization[f"update[{k}]"] = float(updating / seconds)
        return cls(
            float(stride * (len(steady) / steady.sum())), workers=len(state.step),
            parameter_servers=len(state.server_free), settings=settings, steps=int(totals[-1, kernel.STEPS]),
            duration=float(totals[-1, kernel.TIME]), warmup=float(first[kernel.TIME]), utilization=utilization,
            breakdown={name: float(change[column] / steps) for name, column in spans.items()},
            staleness=np.trim_zeros(state.lags, "b") / max(1, state.lags.sum()),
            dropped_share=float(change[kernel.DROPPED] / (steps + change[kernel.DROPPED])),
            times=totals[:, kernel.TIME], throughputs=stride / durations, confidence=confidence, profile=profile,
            log=log[by_end], log_times=log_times[by_end], log_results=state.log_result[w, slot][by_end],
        )  # fmt: skip

    @property
    def lower(self) -> float:
        """Lower end of the throughput's interval."""
        return self._interval()[0]

    @property
    def upper(self) -> float:
        """Upper end of the throughput's interval."""
        return self._interval()[1]

    def _interval(self) -> tuple[float, float]:
        steady = np.diff(self.times, prepend=0.0)[self.times > self.warmup]
        rate, lower, upper = batch_means(steady, confidence=self.confidence)
        stride = self.throughput / rate
        return stride * lower, stride * upper

    @property
    def mean_staleness(self) -> float:
        """Steps of others that end during a step, on average."""
        return float(self.staleness @ np.arange(len(self.staleness)))

    @property
    def bottleneck(self) -> str:
        """The server's station of the largest utilization."""
        shares = {name: share for name, share in self.utilization.items() if name != "compute"}
        return max(shares, key=lambda name: shares[name])

    def to_rows(self) -> list[dict[str, Any]]:
        """One row with all settings and measures."""
        return [{
            "workers": self.workers, "parameter_servers": self.parameter_servers, **self.settings,
            "throughput": self.throughput, "lower": self.lower, "upper": self.upper,
            **{f"{name}_time": value for name, value in self.breakdown.items()},
            **{f"utilization_{name}": value for name, value in self.utilization.items()},
            "staleness": self.mean_staleness, "dropped_share": self.dropped_share,
            "warmup": self.warmup, "duration": self.duration, "steps": self.steps,
        }]  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the staleness distribution and the throughput over time included."""
        return {
            **self.to_rows()[0], "confidence": self.confidence, "staleness_distribution": self.staleness.tolist(),
            "times": self.times.tolist(), "throughputs": self.throughputs.tolist(),
        }  # fmt: skip

    def chrome_trace(self, path: str | os.PathLike[str] | None = None) -> str:
        """The kept steps as a Chrome trace, for Perfetto's viewer (ui.perfetto.dev) and chrome://tracing."""
        text = json.dumps(chrome_trace(self.profile, self.workers, self.log, self.log_times))
        write_json(path, text)
        return text

    def caption(self) -> str:
        """The settings, and the results."""
        return (
            f"{counted(self.workers, 'worker')}, {counted(self.parameter_servers, 'parameter server')}, "
            f"{', '.join(str(v) for k, v in self.settings.items() if k != 'seed')}: {self.throughput:.4g} steps/s "
            f"({percent(self.confidence)} interval {self.lower:.4g} to {self.upper:.4g}), "
            f"step {self.breakdown['step']:.4g} s, staleness {self.mean_staleness:.3g}; "
            f"{self.steps} steps in {self.duration:.4g} s, the first {self.warmup:.4g} s left out"
        )

    def _shown_rows(self) -> list[dict[str, Any]]:
        """One row per station."""
        return [{"station": name, "utilization": value} for name, value in self.utilization.items()]


def chrome_trace(profile: Profile, workers: int, log: np.ndarray, log_times: np.ndarray) -> dict[str, Any]:
    """A run's log as Chrome trace events: a process per worker, and lanes in which nothing overlaps."""
    order = [arrival_order(step.operations) for step in profile.steps]
    lanes: dict[tuple[int, str], list[int]] = {}  # per worker and kind, when each lane falls free (nanoseconds)
    events: list[dict[str, Any]] = []
    for row in np.lexsort((log_times[:, kernel.END], log_times[:, kernel.BEGIN])).tolist():
        w, number, record, i = log[row].tolist()
        times = log_times[row].tolist()
        operation = profile.steps[record].operations[order[record][i]]
        begin, end = round(1e9 * times[kernel.BEGIN]), round(1e9 * times[kernel.END])
        free = lanes.setdefault((w, operation.kind), [])
        lane = next((lane for lane, until in enumerate(free) if until <= begin), len(free))
        free[lane : lane + 1] = [end]
        waited = times[kernel.BEGIN] - times[kernel.READY]
        events.append({
            "ph": "X", "pid": w, "tid": _lane(operation.kind, lane), "name": operation.name, "cat": operation.kind,
            "ts": begin / 1000, "dur": (end - begin) / 1000,
            "args": {"step": number, "bytes": operation.bytes, "server": operation.server, "waited": waited},
        })  # fmt: skip
    names: list[dict[str, Any]] = [
        *({"ph": "M", "pid": w, "name": "process_name", "args": {"name": f"worker {w}"}} for w in range(workers)),
        *({"ph": "M", "pid": w, "tid": _lane(kind, lane), "name": "thread_name",
           "args": {"name": LANES[kind] + (f" ({lane + 1})" if lane else "")}}
          for (w, kind), free in sorted(lanes.items()) for lane in range(len(free))),
    ]  # fmt: skip
    return {"traceEvents": names + events, "displayTimeUnit": "ms"}


def _lane(kind: str, lane: int) -> int:
    return 1000 * list(LANES).index(kind) + lane


#: MSER-5 leaves shorter series as they are.
FEWEST_FOR_MSER = 20


def mser5(values: np.ndarray) -> int:
    """How many of the first values belong to the transient, by MSER-5 (White, Cobb and Spratt, 2000).

    >>> import numpy as np
    >>> mser5(np.tile([1.0, 1.1, 0.9, 1.0, 1.0], 40) + 3.0 * (np.arange(200) < 30))
    30
    """
    fives = values[: len(values) // 5 * 5].reshape(-1, 5).mean(axis=1)
    n = len(fives)
    if len(values) < FEWEST_FOR_MSER:
        return 0
    remaining = np.arange(n, 0, -1)
    mean = np.cumsum(fives[::-1])[::-1] / remaining
    square = np.cumsum(fives[::-1] ** 2)[::-1] / remaining
    score = (square - mean**2) / remaining  # squared standard error of the mean after a cut
    return 5 * int(np.argmin(score[: n // 2 + 1]))


def batch_means(durations: np.ndarray, *, confidence: float, batches: int = 20) -> tuple[float, float, float]:
    """Rate at which intervals of these durations follow each other, with an interval from batch means."""
    from scipy.special import stdtrit

    rate = len(durations) / durations.sum()  # renewal theorem: 1 / mean interval
    batches = min(batches, len(durations))
    if batches < 2:
        return rate, 0.0, np.inf
    length = len(durations) // batches
    means = durations[len(durations) - batches * length :].reshape(batches, length).mean(axis=1)
    half = stdtrit(batches - 1, (1 + confidence) / 2) * means.std(ddof=1) / batches**0.5  # t s / sqrt(b)
    return rate, 1 / (1 / rate + half), 1 / (1 / rate - half) if half * rate < 1 else np.inf


#: Kind of operation and what does it, named as the fitted network's stations: lanes from top to bottom.
TIMELINE_LANES = {"fetch": "transmit link", "compute": "worker", "push": "receive link", "update": "server update"}


def plot_timeline(profile: Profile, *, step: int = 0, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Draw one recorded step; the links are the servers': they transmit parameters and receive gradients.

    A recorded transfer's thin line begins with its request; its thick bar is the transmission itself, as long as its
    bytes take at the estimated rate, ending at its arrival. Further arguments are those of ``ax.barh``.
    """
    if not -len(profile.steps) <= step < len(profile.steps):
        raise DataError(f"plot_timeline: step must be 0 to {len(profile.steps) - 1}, got {step!r}")
    kwargs = require_style(kwargs, "patches.Rectangle", "ax", "step")
    ax = ax or new_axes((8, 2.6))
    links = estimate_links(profile)
    seconds = {"fetch": 1 / links.transmit.rate, "push": 1 / links.receive.rate}
    style: dict[str, Any] = {"height": 0.6, "edgecolor": "white", "linewidth": 0.5, **kwargs}
    for lane, (kind, place) in enumerate(TIMELINE_LANES.items()):
        color = PLACES[place]
        times = [(o.start, o.end, o.bytes) for o in profile.steps[step].operations if o.kind == kind]
        starts, ends, sizes = np.array(times).reshape(-1, 3).T
        sent = np.minimum(ends - starts, sizes * seconds[kind]) if kind in seconds else ends - starts
        drawn = style | ({} if kind != "update" else {"edgecolor": color})  # too short to be seen inside a white edge
        ax.barh(np.full(len(ends), lane), sent, left=ends - sent, color=color, **drawn)
        if kind in seconds:
            ax.hlines(np.full(len(ends), lane + 0.4), starts, ends, color=color, linewidth=0.8, alpha=0.5)
    ax.set_yticks(range(len(TIMELINE_LANES)), TIMELINE_LANES.values())
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.set_xlabel("time since the step began (s)")
    finish_axes(ax, legend=None)
    return ax
