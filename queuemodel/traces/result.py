"""What a simulation yields: an estimate with its interval, and what the cluster was doing meanwhile."""

from __future__ import annotations

import json
import os
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files import write_atomically
from ..tables import html_table, text_table
from ..training.profile import Profile
from .state import (
    BUSY,
    DROPPED,
    FETCH_SPAN,
    LOGGED,
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

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class SimulatedRun:
    """Steady state of a simulated cluster, and the transient before it.

    Attributes
    ----------
    throughput, lower, upper : float
        Steps of all workers per second, with an interval of probability `confidence`.
    workers, parameter_servers : int
    settings : dict
        Policy, synchronization, seed, and what else was asked for.
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
        Share of gradients that came too late for their synchronous step.
    times, throughputs : ndarray, shape (bins,)
        End of each bin (seconds), and throughput within it, transient included.
    """

    throughput: float
    lower: float
    upper: float
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
    profile: Profile = field(repr=False)
    log: np.ndarray = field(repr=False)
    log_times: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @classmethod
    def from_state(cls, state: State, *, profile: Profile, settings: dict[str, Any], confidence: float) -> SimulatedRun:
        """Read the kernel's arrays after a run."""
        totals = state.snapshots[: state.count[SNAPSHOTS]]
        W, K = len(state.step), len(state.server_free)
        durations = np.diff(totals[:, TIME], prepend=0.0)
        cut = mser5(durations)
        rate, lower, upper = batch_means(durations[cut:], confidence=confidence)
        stride = int(state.count[STRIDE])
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
            float(stride * rate),
            float(stride * lower),
            float(stride * upper),
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
            log=state.log[: state.count[LOGGED]],
            log_times=state.log_times[: state.count[LOGGED]],
        )

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

    def to_frame(self) -> pandas.DataFrame:
        """One row; concatenate several runs."""
        import pandas

        return pandas.DataFrame(self.to_rows())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the staleness distribution and the throughput over time included."""
        return {
            **self.to_rows()[0],
            "confidence": self.confidence,
            "staleness_distribution": self.staleness.tolist(),
            "times": self.times.tolist(),
            "throughputs": self.throughputs.tolist(),
        }

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """JSON of `to_dict`; also written to ``path`` when one is given."""
        text = json.dumps(self.to_dict(), indent=1)
        if path is not None:
            write_atomically(path, text + "\n")
        return text

    def chrome_trace(self, path: str | os.PathLike[str] | None = None) -> str:
        """The kept steps as a Chrome trace, for Perfetto's viewer (see `queuemodel.traces.chrome`)."""
        from .chrome import chrome_trace

        text = json.dumps(chrome_trace(self))
        if path is not None:
            write_atomically(path, text + "\n")
        return text

    def _caption(self) -> str:
        return (
            f"{self.workers} worker(s), {self.parameter_servers} parameter server(s), "
            f"{', '.join(str(v) for k, v in self.settings.items() if k != 'seed')}: {self.throughput:.4g} steps/s "
            f"({self.confidence:.0%} interval {self.lower:.4g} to {self.upper:.4g}), "
            f"step {self.breakdown['step']:.4g} s, staleness {self.mean_staleness:.3g}; "
            f"{self.steps} steps in {self.duration:.4g} s, the first {self.warmup:.4g} s left out"
        )

    def _rows(self) -> list[dict[str, Any]]:
        return [{"station": name, "utilization": value} for name, value in self.utilization.items()]

    def __repr__(self) -> str:
        return f"{self._caption()}\n{text_table(self._rows())}"

    def _repr_html_(self) -> str:
        return html_table(self._rows(), caption=self._caption())
