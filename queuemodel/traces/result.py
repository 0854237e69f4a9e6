"""What a simulation yields: an estimate with its interval, and what the cluster was doing meanwhile."""

from __future__ import annotations

import json
import os
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ..files import write_json
from ..results import Result
from ..training.profile import Profile
from .chrome import chrome_trace
from .kernel.state import (
    BUSY,
    DROPPED,
    END,
    FETCH_SPAN,
    PER_SERVER,
    PUSH_SPAN,
    SNAPSHOTS,
    STEP_TIME,
    STEPS,
    STRIDE,
    TIME,
    State,
)
from .statistics import batch_means, mser5


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedRun(Result):
    """Steady state of a simulated cluster, and the transient before it.

    Attributes
    ----------
    throughput, lower, upper : float
        Steps of all workers per second, with an interval of probability `confidence`.
    workers, parameter_servers : int
    settings : dict
        Policy, synchronization, seed, and the kind of network, with ``(assumed)`` where nobody told it (without one
        where numbers say what it does).
    steps : int
        Simulated steps of all workers, transient included.
    duration, warmup : float
        Simulated seconds, and how many of them belong to the transient.
    utilization : dict of str to float
        Share of its capacity that each server's link (``"transmit[0]"``, ``"receive[0]"``) and processor
        (``"update[0]"``) used in the steady state; ``"compute"``: operations that a worker had running on average.
    breakdown : dict of str to float
        Mean seconds of a step: ``"step"``, ``"fetch"`` (start to last parameter), ``"compute"`` (all computations),
        ``"push"`` (first gradient ready to the end), which overlap.
    staleness : ndarray
        Share of steps by the number of other steps that ended between their start and end (the last entry: or more).
    dropped_share : float
        Share of steps whose gradients came too late for their round, or that its end cut short.
    times, throughputs : ndarray, shape (bins,)
        End of each bin (seconds), and throughput within it, transient included.
    confidence : float
    profile : Profile
        What was simulated.
    log : ndarray, shape (operations, 4)
        Worker, its step, recorded step and operation of what was kept (``trace_steps``), by end.
    log_times : ndarray, shape (operations, 3)
        Seconds when each was ready, began and ended.
    log_results : ndarray, shape (operations,)
        Which of all results its step gave, from 1; 0: none, for it was dropped or had not ended.
    """

    throughput: float
    _: KW_ONLY
    workers: int
    parameter_servers: int
    settings: dict[str, Any]
    steps: int
    duration: float
    warmup: float
    utilization: dict[str, float]
    breakdown: dict[str, float]
    staleness: np.ndarray
    dropped_share: float
    times: np.ndarray
    throughputs: np.ndarray
    confidence: float
    profile: Profile
    log: np.ndarray
    log_times: np.ndarray
    log_results: np.ndarray
    digits = 3

    @classmethod
    def from_state(cls, state: State, *, profile: Profile, settings: dict[str, Any], confidence: float) -> SimulatedRun:
        """Read the kernel's arrays after a run."""
        totals = state.snapshots[: state.count[SNAPSHOTS]]
        W, K = len(state.step), len(state.server_free)
        durations = np.diff(totals[:, TIME], prepend=0.0)
        cut = mser5(durations)
        steady = durations[cut:]
        stride = int(state.count[STRIDE])
        w, slot, i = np.nonzero(state.log_times[..., END] >= 0)
        log = np.stack([w, state.log_step[w, slot], state.log_record[w, slot], i], axis=1)
        log_times = state.log_times[w, slot, i]
        by_end = np.argsort(log_times[:, END], kind="stable")
        first = totals[cut - 1] if cut else np.zeros(totals.shape[1])
        change = totals[-1] - first
        seconds, steps = change[TIME], change[STEPS]
        utilization = {"compute": float(change[BUSY] / seconds / W)}
        for k in range(K):
            sent, received, updating = change[PER_SERVER + 3 * k : PER_SERVER + 3 * k + 3]
            utilization[f"transmit[{k}]"] = float(sent / seconds / state.links[0, k])
            utilization[f"receive[{k}]"] = float(received / seconds / state.links[1, k])
            utilization[f"update[{k}]"] = float(updating / seconds)
        return cls(
            float(stride * (len(steady) / steady.sum())),
            workers=W,
            parameter_servers=K,
            settings=settings,
            steps=int(totals[-1, STEPS]),
            duration=float(totals[-1, TIME]),
            warmup=float(first[TIME]),
            utilization=utilization,
            breakdown={
                name: float(change[column] / steps)
                for name, column in (("step", STEP_TIME), ("fetch", FETCH_SPAN), ("compute", BUSY), ("push", PUSH_SPAN))
            },
            staleness=np.trim_zeros(state.lags, "b") / max(1, state.lags.sum()),
            dropped_share=float(change[DROPPED] / (steps + change[DROPPED])),
            times=totals[:, TIME],
            throughputs=stride / durations,
            confidence=confidence,
            profile=profile,
            log=log[by_end],
            log_times=log_times[by_end],
            log_results=state.log_result[w, slot][by_end],
        )

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
        """What the servers used most of."""
        shares = {name: share for name, share in self.utilization.items() if name != "compute"}
        return max(shares, key=lambda name: shares[name])

    def to_rows(self) -> list[dict[str, Any]]:
        """One row with everything that is a number."""
        return [
            {
                "workers": self.workers,
                "parameter_servers": self.parameter_servers,
                **self.settings,
                "throughput": self.throughput,
                "lower": self.lower,
                "upper": self.upper,
                **{f"{name}_time": value for name, value in self.breakdown.items()},
                **{f"utilization_{name}": value for name, value in self.utilization.items()},
                "staleness": self.mean_staleness,
                "dropped_share": self.dropped_share,
                "warmup": self.warmup,
                "duration": self.duration,
                "steps": self.steps,
            }
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the staleness distribution and the throughput over time included."""
        return {
            **self.to_rows()[0],
            "confidence": self.confidence,
            "staleness_distribution": self.staleness.tolist(),
            "times": self.times.tolist(),
            "throughputs": self.throughputs.tolist(),
        }

    def chrome_trace(self, path: str | os.PathLike[str] | None = None) -> str:
        """The kept steps as a Chrome trace, for Perfetto's viewer (see `queuemodel.traces.chrome`)."""
        text = json.dumps(chrome_trace(self.profile, self.workers, self.log, self.log_times))
        write_json(path, text)
        return text

    def caption(self) -> str:
        """What ran, and what came of it."""
        return (
            f"{self.workers} worker(s), {self.parameter_servers} parameter server(s), "
            f"{', '.join(str(v) for k, v in self.settings.items() if k != 'seed')}: {self.throughput:.4g} steps/s "
            f"({self.confidence:.0%} interval {self.lower:.4g} to {self.upper:.4g}), "
            f"step {self.breakdown['step']:.4g} s, staleness {self.mean_staleness:.3g}; "
            f"{self.steps} steps in {self.duration:.4g} s, the first {self.warmup:.4g} s left out"
        )

    def shown_rows(self) -> list[dict[str, Any]]:
        """A row per station."""
        return [{"station": name, "utilization": value} for name, value in self.utilization.items()]
