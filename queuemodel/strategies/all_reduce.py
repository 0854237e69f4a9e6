"""Data-parallel training: every round ends in an all-reduce of all gradients, bucket by bucket."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..checks import require_count, require_number, require_share
from ..collectives import Algorithm, Link, Ring
from ..errors import ModelError
from ..results import Result
from ..training.bandwidth import transfer_time
from ..training.curve import ThroughputCurve, require_workers
from ..training.job import Job
from ..training.parameters import Parameter, normal_quantile
from .round_fit import FittedRounds
from .rounds import round_time, slowest_of

#: Relative error beyond the recorded ranks, where links of their own are all there is of the network (root mean square
#: over docs/validation's series: 1 %), and more for what two nodes do not show; and of tracing, at those ranks.
MODEL_ERROR, TRACING_ERROR = 0.03, 0.01

#: Groups drawn for a prediction.
SAMPLES = 200

#: Where a round's time goes beside the computation of a mean rank.
PLACES = ("network", "latency", "stragglers")


@dataclass(frozen=True, eq=False, repr=False)
class AllReduceModel(Result):
    """Synchronous data-parallel training with one all-reduce for each bucket of gradients.

    Made by `fit` with ``strategy="all-reduce"``; changed by `what_if`; asked by `throughput`.

    Attributes
    ----------
    fitted : FittedRounds
    collective : Algorithm
    changes : dict
        What differs from the profiled machines, as given to `what_if`.
    """

    fitted: FittedRounds
    collective: Algorithm = field(default_factory=Ring)
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def job(self) -> Job:
        """The job, with the batch size that it has here."""
        job = self.fitted.job
        fields = {name: getattr(job, name) for name in Job.__struct_fields__}
        return Job(**fields | {"batch_size": self.changes.get("batch_size", job.batch_size)})

    @cached_property
    def bandwidth(self) -> float:
        """Bytes per second that a node's link carries."""
        fitted, asked = self.fitted, self.changes.get("bandwidth")
        if asked is None or asked == fitted.nominal:
            return fitted.bandwidth
        seconds = np.array(1.0 / fitted.bandwidth)
        return float(1.0 / transfer_time(seconds, 1.0, nominal=fitted.nominal, bandwidth=asked))

    @property
    def latency(self) -> float:
        """Seconds per message."""
        return float(self.changes.get("latency", self.fitted.latency))

    @property
    def slowness(self) -> float:
        """How much longer computation takes than when profiled."""
        batch = self.changes.get("batch_size", self.fitted.job.batch_size) / self.fitted.job.batch_size
        return float(batch / self.changes.get("accelerator_speed", 1.0))

    @cached_property
    def buckets(self) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of each bucket (b,) and when one rank had it (m, b), in seconds."""
        fitted, cap = self.fitted, self.changes.get("bucket_bytes")
        if cap is None:
            return fitted.bucket_bytes, fitted.ready
        sizes, moments = fitted.gradients
        last = bucket_ends(sizes, cap)
        spread = (fitted.computed / fitted.computed.mean())[:, None]
        return np.add.reduceat(sizes, [0, *(last[:-1] + 1)]), moments[last] * spread

    def throughput(
        self, workers: int | Iterable[int] = range(1, 33), *, confidence: float = 0.9, seed: int = 0
    ) -> ThroughputCurve:
        """Predict throughput against the number of ranks.

        Groups are drawn from the recorded ranks and their rounds timed by `round_time`; the same draws serve every
        number of ranks. The interval covers the sampling of rounds, the fit of bandwidth and latency and, beyond the
        recorded ranks, the model's own error.

        Parameters
        ----------
        workers : iterable of int
            Increasing numbers of ranks, one on each node.
        confidence : float
        seed : int

        Raises
        ------
        ModelError
            When workers are not whole, increasing and at least 1.
        """
        counts = require_workers(workers)
        require_share(confidence, "throughput: confidence", open_ended=True)
        every = np.union1d(counts, 1)
        T, parts, low, high = self._rounds(every, confidence, seed)
        beyond = (every > self.fitted.ranks) | bool(self.changes)
        error = normal_quantile(confidence) * np.where(beyond, MODEL_ERROR, TRACING_ERROR)
        X, at = every / T, np.searchsorted(every, counts)
        compute = float(self.fitted.computed.mean() * self.slowness)
        wire = parts["network"]
        names = PLACES
        main = max(names, key=lambda name: float(parts[name][-1])) if len(every) > 1 else ""
        exposed = {name: np.maximum(parts[name], 0.0) for name in names}
        bound = np.minimum(every / compute, every / np.maximum(self._least(every), 1e-300))
        worst = every / (T[0] + wire + parts["latency alone"] + exposed["stragglers"])
        return ThroughputCurve(
            workers=counts,
            steps_per_second=X[at],
            lower=(X * np.exp(-np.hypot(low, error)))[at],
            upper=(X * np.exp(np.hypot(high, error)))[at],
            single=float(X[0]),
            batch_size=self.job.batch_size,
            parameter_servers=0,
            dataset_size=self.job.dataset_size,
            confidence=confidence,
            stations=names,
            utilization=np.stack([np.minimum(parts[f"{name} busy"] / T, 1.0) for name in names], axis=-1)[at],
            residence_time=np.stack([exposed[name] for name in names], axis=-1)[at],
            think_time=(T - sum(exposed.values()))[at],
            bound_lower=np.minimum(worst, X)[at],
            bound_upper=np.maximum(bound, X)[at],
            saturation_workers=math.inf,
            bottleneck=main if main and parts[main][-1] > compute else "compute",
            profiled_workers=0 if self.changes else self.fitted.ranks,
            method=f"all-reduce ({type(self.collective).__name__.lower()}, max-plus recursion over recorded rounds)",
            note=self.note,
            synchronous=True,
        )

    def _rounds(
        self, ranks: np.ndarray, confidence: float, seed: int
    ) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Mean round time, its parts, and log widths of the interval below and above, for each number of ranks."""
        fitted = self.fitted
        sizes, ready = self.buckets
        rows = np.column_stack([ready, fitted.computed]) * self.slowness
        compute = float(rows[:, -1].mean())
        error = fitted.computed.std(ddof=1) / fitted.computed.mean() / len(rows) ** 0.5 if len(rows) > 1 else 0.05
        z = normal_quantile(confidence)
        _, vectors = np.linalg.eigh(fitted.covariance)
        steps = [z * np.sqrt(max(float(v @ fitted.covariance @ v), 0.0)) * v for v in vectors.T]
        T, parts = np.empty(len(ranks)), {name: np.zeros(len(ranks)) for name in (*PLACES, *_BUSY, "latency alone")}
        low, high = np.zeros(len(ranks)), np.zeros(len(ranks))
        for i, slowest in enumerate(slowest_of(rows, ranks.tolist(), samples=SAMPLES, seed=seed)):
            n, moments, computed = int(ranks[i]), slowest[:, :-1], slowest[:, -1]
            if n == 1:
                T[i] = fitted.alone + compute - float(fitted.computed.mean())
                low[i] = high[i] = z * error
                continue

            def mean(
                bandwidth: float = self.bandwidth, latency: float = self.latency, slower: float = 1.0,
                n: int = n, moments: np.ndarray = moments, computed: np.ndarray = computed,
            ) -> float:  # fmt: skip
                work, wait = self._costs(sizes, n, bandwidth, latency)
                ends = round_time(slower * moments, slower * computed, work, wait, at_once=fitted.at_once)
                return float(ends.mean()) + fitted.tail

            T[i] = mean()
            without_latency, free = mean(latency=0.0), float(computed.mean()) + fitted.tail
            work, wait = self._costs(sizes, n, self.bandwidth, self.latency)
            parts["network"][i], parts["latency"][i] = without_latency - free, T[i] - without_latency
            parts["stragglers"][i] = float(computed.mean()) - compute
            parts["network busy"][i], parts["latency busy"][i] = work.sum(), min(wait.sum(), T[i])
            parts["stragglers busy"][i] = parts["stragglers"][i]
            parts["latency alone"][i] = wait.sum()
            changes = [(mean(slower=1 + z * error), mean(slower=1 - z * error))]
            for step in steps:
                b, a = np.exp(step)
                changes.append((mean(self.bandwidth * b, self.latency * a), mean(self.bandwidth / b, self.latency / a)))
            logs = np.log(np.array(changes) / T[i])
            low[i] = np.linalg.norm(np.maximum(logs.max(axis=1), 0.0))
            high[i] = np.linalg.norm(np.maximum(-logs.min(axis=1), 0.0))
        return T, parts, low, high

    def _costs(self, sizes: np.ndarray, n: int, bandwidth: float, latency: float) -> tuple[np.ndarray, np.ndarray]:
        """Seconds of each bucket that need bandwidth, and that do not; per micro-batch where they are accumulated."""
        wire, slow = Link(bandwidth), Link(bandwidth, latency=latency)
        work = np.array([self.collective.time(float(size), n, wire) for size in sizes])
        both = np.array([self.collective.time(float(size), n, slow) for size in sizes])
        return work, np.maximum(both - work, 0.0)

    def _least(self, ranks: np.ndarray) -> np.ndarray:
        """Seconds of a round that no overlap can take away: the network is not needed before the first bucket is."""
        sizes, ready = self.buckets
        first = float(ready[:, 0].mean()) * self.slowness if ready.size else 0.0
        busy = [self._costs(sizes, int(n), self.bandwidth, 0.0)[0].sum() for n in ranks]
        return np.where(ranks > 1, first + np.array(busy), 0.0)

    def what_if(
        self,
        *,
        bandwidth: float | None = None,
        latency: float | None = None,
        batch_size: int | None = None,
        accelerator_speed: float | None = None,
        bucket_bytes: float | None = None,
        collective: Algorithm | None = None,
    ) -> AllReduceModel:
        """The model of the same job on other machines, or with other buckets; told against the profile.

        Parameters
        ----------
        bandwidth : float
            Bytes per second of each node's link, nominal.
        latency : float
            Seconds per message.
        batch_size : int
            Examples per step and rank; computation is taken as proportional to it.
        accelerator_speed : float
            2 halves the computation's time.
        bucket_bytes : float
            Cap of a bucket, filled in the order in which gradients are ready; the first has 1 MiB at most.
        collective : Algorithm
            Instead of the ring.

        Raises
        ------
        ModelError
            When a value is not finite and > 0, or the profile has no gradients to fill buckets with.
        """
        asked = {
            "bandwidth": bandwidth,
            "latency": latency,
            "accelerator_speed": accelerator_speed,
            "bucket_bytes": bucket_bytes,
        }
        checked: dict[str, Any] = {
            name: require_number(value, f"what_if: {name}", positive=name != "latency", largest=1e15)
            for name, value in asked.items()
            if value is not None
        }
        if batch_size is not None:
            checked["batch_size"] = require_count(batch_size, "what_if: batch_size", most=2**62)
        if bucket_bytes is not None and not self.fitted.gradients[0].size:
            raise ModelError("what_if: bucket_bytes needs recorded gradients; record with record_shapes=True")
        return replace(self, collective=collective or self.collective, changes=self.changes | checked)

    @property
    def note(self) -> str:
        """What the profile cannot know."""
        known = "" if self.fitted.latency_known else "latency is assumed: two nodes hardly tell it from bandwidth; "
        return f"{known}{self.fitted.ranks} nodes do not show a network's core (oversubscription)"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What was fitted, and how far to trust it."""
        fitted, slower = self.fitted, self.slowness
        spread = np.sqrt(np.diag(fitted.covariance))
        computed = fitted.computed * slower
        few = len(computed) < 2
        return (
            Parameter(
                "computation", float(computed.mean()), "s",
                standard_error=math.nan if few else float(computed.std(ddof=1) / len(computed) ** 0.5),
            ),
            Parameter(
                "straggler spread", 0.0 if few else float(computed.std(ddof=1) / computed.mean()), "-",
                identified=not few, note="standard deviation of a rank's computation over its mean",
            ),
            Parameter("effective bandwidth", self.bandwidth, "B/s", standard_error=self.bandwidth * float(spread[0])),
            Parameter(
                "latency", self.latency, "s/message", standard_error=self.latency * float(spread[1]),
                origin="measured" if fitted.latency_known else "assumed", identified=fitted.latency_known,
                note="" if fitted.latency_known else "two nodes hardly tell it from bandwidth",
            ),
            Parameter("oversubscription", 1.0, "-", origin="assumed", identified=False, note="needs several racks"),
        )  # fmt: skip

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per parameter."""
        return [parameter.to_row() for parameter in self.parameters]

    def caption(self) -> str:
        """Job, buckets, and what the fit cannot know."""
        sizes, _ = self.buckets
        return (
            f"{self.job.name or 'job'}, all-reduce of {sizes.sum() / 1e6:.3g} MB in {len(sizes)} bucket(s), "
            f"{self.fitted.at_once} at once; {self.note}"
        )


_BUSY = tuple(f"{name} busy" for name in PLACES)


def bucket_ends(sizes: np.ndarray, cap: float, *, first: float = 2.0**20) -> np.ndarray:
    """Index of the last gradient of each bucket, as DistributedDataParallel fills them: closed when the cap is reached.

    Parameters
    ----------
    sizes : ndarray
        Bytes of the gradients in the order in which they are ready.
    cap : float
        Bytes.
    first : float
        The first bucket's cap, where it is smaller.
    """
    ends, filled, limit = [], 0.0, min(cap, first)
    for index, size in enumerate(sizes):
        filled += size
        if filled >= limit:
            ends.append(index)
            filled, limit = 0.0, cap
    if not ends or ends[-1] != len(sizes) - 1:
        ends.append(len(sizes) - 1)
    return np.array(ends)
