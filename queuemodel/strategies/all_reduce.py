"""Data-parallel training: every round ends in an all-reduce of all gradients, bucket by bucket."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..checks import require_count, require_number, require_share
from ..collectives import Algorithm, Ring
from ..errors import ModelError
from ..results import Result
from ..training.bandwidth import transfer_time
from ..training.curve import ThroughputCurve, require_workers
from ..training.job import Job
from ..training.parameters import Parameter, normal_quantile
from .buckets import bucket_ends
from .group import Group, Network, Parts
from .round_fit import FittedRounds
from .rounds import slowest_of

#: Relative error beyond the recorded ranks: 1 % root mean square over docs/validation's two series, taken as more for
#: what two nodes do not show of a network; and of tracing, at those ranks.
MODEL_ERROR, TRACING_ERROR = 0.03, 0.01

#: Relative error of computation known from one round only (assumed).
ONE_ROUND = 0.05

#: Groups drawn for a prediction.
SAMPLES = 200

#: Where a round's time goes beside the computation of a mean rank.
PLACES = ("network", "latency", "stragglers")


@dataclass(frozen=True, eq=False, repr=False)
class AllReduceModel(Result):
    """Synchronous data-parallel training with one all-reduce for each bucket of gradients.

    Made of what `fit_rounds` found; changed by `what_if`; asked by `throughput`.

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
        at, z = np.searchsorted(every, counts), normal_quantile(confidence)
        fitted, compute = self.fitted, float(self.fitted.computed.mean() * self.slowness)
        parts, low, high = self._rounds(every, compute, seed)
        T, network, latency, stragglers, wire, messages = parts
        beyond = (every > fitted.ranks) | bool(self.changes)
        error = np.where(beyond, MODEL_ERROR, TRACING_ERROR)
        X = every / T
        added = np.stack([network, latency, stragglers], axis=-1)
        busy = np.stack([wire, np.minimum(messages, T), stragglers], axis=-1)
        first = float(self.buckets[1][:, 0].mean()) * self.slowness if self.buckets[1].size else 0.0
        least = np.where(every > 1, np.maximum(first + wire, compute), T)
        most = T[0] + wire + messages + stragglers
        main = int(added[-1].argmax())
        return ThroughputCurve(
            workers=counts,
            steps_per_second=X[at],
            lower=(X * np.exp(-z * np.hypot(low, error)))[at],
            upper=(X * np.exp(z * np.hypot(high, error)))[at],
            single=float(X[0]),
            batch_size=self.job.batch_size,
            parameter_servers=0,
            dataset_size=self.job.dataset_size,
            confidence=confidence,
            stations=PLACES,
            utilization=np.minimum(busy / T[:, None], 1.0)[at],
            residence_time=added[at],
            think_time=(T - added.sum(axis=-1))[at],
            bound_lower=np.minimum(every / most, X)[at],
            bound_upper=np.maximum(every / least, X)[at],
            saturation_workers=math.inf,
            bottleneck=PLACES[main] if added[-1, main] > compute else "compute",
            profiled_workers=0 if self.changes else fitted.ranks,
            method=f"all-reduce ({type(self.collective).__name__.lower()}, max-plus recursion over recorded rounds)",
            note=self.note,
            synchronous=True,
        )

    def _rounds(self, ranks: np.ndarray, compute: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`Parts` of a round, each an array over numbers of ranks, and the logarithms of their errors up and down."""
        fitted, network = self.fitted, Network(self.bandwidth, self.latency)
        sizes, ready = self.buckets
        rows = np.column_stack([ready, fitted.computed]) * self.slowness
        sampling = ONE_ROUND
        if len(rows) > 1:
            sampling = float(fitted.computed.std(ddof=1) / fitted.computed.mean() / len(rows) ** 0.5)
        sure = ranks[np.unique(np.geomspace(1, len(ranks), 40).astype(int) - 1)].tolist()  # smooth between these
        found, errors = [], []
        drawn = slowest_of(rows, ranks.tolist(), samples=SAMPLES, seed=seed)
        for slowest, n in zip(drawn, ranks.tolist(), strict=True):
            group = Group(n, sizes, slowest[:, :-1], slowest[:, -1], self.collective, fitted.at_once, fitted.tail)
            if n == 1:
                alone = fitted.alone + compute - float(fitted.computed.mean())
                found.append(Parts(alone, 0.0, 0.0, 0.0, 0.0, 0.0))
            else:
                found.append(group.parts(network, compute))
            if n in sure:
                errors.append(group.spread(network, fitted.covariance, sampling))
        low, high = (np.interp(np.log(ranks), np.log(sure), one) for one in zip(*errors, strict=True))
        return np.transpose(found), low, high

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
