"""What a profile says of the time of each strategy: seconds of computation, of a transfer, of a gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import numpy as np

from ..base.errors import ModelError
from ..base.estimates import normal_quantile
from ..base.results import Result
from ..models.all_reduce import AllReduceModel
from ..models.predict import predict
from ..models.round_fit import fit_rounds
from ..profile.bandwidth import nominal_bandwidth
from ..profile.profile import Profile
from ..transport.collectives import Link
from .compression import Compressor, SquarmSGD
from .loop import Clock, Transfer
from .strategy import WORD, SynchronousSGD

#: Shares of all parameters' bytes between which the time of a transfer is interpolated; bytes per second beyond which
#: nobody asks.
SHARES, FASTEST = (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0), 1e15

#: Groups drawn for the mean of the slowest.
DRAWS = 20_000


class Speed(NamedTuple):
    """Steps of all workers per second, the standard error of its logarithm, machines, and the model that says so."""

    steps_per_second: float
    spread: float
    nodes: int
    model: Result | None


@dataclass(frozen=True, eq=False)
class Timing:
    """Times of a profiled job on so many workers."""

    profile: Profile
    workers: int
    dimension: int  #: parameters of the problem that stands for the job: bits are shares of its 32 bits each
    asked: dict[str, Any]  #: further arguments of `predict`

    @property
    def on_servers(self) -> bool:
        """Whether the job was profiled on a parameter server."""
        return bool(self.profile.steps)

    @property
    def batch_size(self) -> int:
        """Examples of a worker's step."""
        return int(self.asked.get("batch_size") or self.profile.job.batch_size)

    def speed(self, **asked: Any) -> Speed:
        """What `predict` says."""
        curve = predict(self.profile, workers=[self.workers], confidence=0.9, **(self.asked | asked))
        spread = math.log(curve.upper[0] / curve.lower[0]) / 2 / normal_quantile(0.9)
        return Speed(float(curve.steps_per_second[0]), float(spread), int(curve.nodes[0]), curve.model)

    @cached_property
    def synchronous(self) -> Speed:
        """Of rounds in which all exchange everything."""
        return self.speed(strategy="sync-ps" if self.on_servers else "all-reduce")

    @property
    def rounds(self) -> AllReduceModel:
        """The model of the profiled rounds."""
        return cast("AllReduceModel", self.synchronous.model)

    @cached_property
    def computation(self) -> tuple[float, float]:
        """Mean seconds of a typical worker's step without transfers or stragglers, and their variation coefficient."""
        if self.on_servers:
            values = self.profile.values("compute")
            slowness = self.batch_size / self.profile.job.batch_size / self.asked.get("accelerator_speed", 1.0)
            mean = float(values.mean()) * slowness
        else:
            fitted, loading = self.rounds.fitted, self.rounds.input / self.rounds.steps_per_round
            values = fitted.computed
            mean = max(float(values.mean()) * self.rounds.slowness + fitted.tail, loading)
        if not mean > 0:
            raise ModelError("compare: the profile has no computation; profile a model that computes")
        return mean, float(values.std(ddof=1) / values.mean()) if len(values) > 1 else 0.05

    @cached_property
    def computing(self) -> Clock:
        """Steps of every worker without transfers: at its own speed, and now and then as a straggler."""
        if not self.on_servers:
            return Clock(*self.computation, slowness=self.rounds.fitted.paces)
        slowness = tuple(1 / speed for speed in self.asked.get("worker_speeds", ()))
        law = {name: self.asked[name] for name in ("straggler_probability", "straggler_slowdown") if name in self.asked}
        return Clock(*self.computation, slowness=slowness, **law)

    @cached_property
    def slowest(self) -> float:
        """Mean seconds of the slowest worker's step."""
        each = self.computing.steps(np.random.default_rng(0), (DRAWS, self.workers))
        return float(each.max(axis=1).mean())

    @property
    def overlapped(self) -> float:
        """Seconds that a round of all takes beyond the slowest worker's computation."""
        return max(self.workers / self.synchronous.steps_per_second - self.slowest, 0.0)

    @cached_property
    def on_server(self) -> np.ndarray:
        """Seconds that a round on servers takes beyond the slowest worker's computation, by `SHARES` of the bytes."""
        seconds = np.full(len(SHARES), self.overlapped)
        for i, share in enumerate(SHARES[:-1] if self.links else ()):
            faster = {name: np.minimum(np.divide(rate, share), FASTEST) for name, rate in self.links.items()}
            speed = self.speed(strategy="sync-ps", **faster)
            seconds[i] = max(self.workers / speed.steps_per_second - self.slowest, 0.0)
        return np.minimum.accumulate(seconds[::-1])[::-1]

    @property
    def nominal(self) -> float | None:
        """Bytes per second of each host's link; None where nobody knows."""
        return self.asked.get("bandwidth", nominal_bandwidth(self.profile))

    @property
    def links(self) -> dict[str, Any]:
        """Rates of links over which known bytes go, as far as they are known and finite, by arguments of `predict`."""
        if not any(step.fetched_bytes or step.pushed_bytes for step in self.profile.steps):
            return {}
        rates = {"bandwidth": self.nominal, "worker_bandwidth": self.asked.get("worker_bandwidth")}
        return {name: rate for name, rate in rates.items() if rate is not None and np.isfinite(rate).all()}

    @property
    def sized(self) -> bool:
        """Whether the profile says what fewer bytes would save on servers: links that are known and finite."""
        return not self.on_servers or (self.nominal is not None and bool(self.links))

    def sizing(self, strategy: object) -> float:
        """Bits of a compressed message per parameter at the job's size, over those at the problem's."""
        compressor = getattr(strategy, "compressor", None)
        if not isinstance(compressor, Compressor):
            return 1.0
        job = round(self.scale * self.dimension)
        return (compressor.bits(job) / job) / (compressor.bits(self.dimension) / self.dimension)

    def clock(self, strategy: object, compression: float = 0.0) -> Clock:
        """What a step of synchronized workers costs, each transfer with so many seconds of computation before it."""
        transfer = (self._to_servers if self.on_servers else self._between_ranks)(strategy)
        return replace(self.computing, transfer=lambda up, down: compression + transfer(up, down))

    def _to_servers(self, strategy: object) -> Transfer:
        """In proportion to what a synchronous step takes by so many bytes."""
        whole = 2 * WORD * self.dimension / self.sizing(strategy)

        def seconds(up: np.ndarray, down: np.ndarray) -> np.ndarray:
            share = (up + down) / whole
            return np.interp(share, SHARES, self.on_server) * np.maximum(share, 1.0)  # more than all: in proportion

        return seconds

    def _between_ranks(self, strategy: object) -> Transfer:
        """
        Of synchronous SGD what its round takes; others start when they have computed, and nothing hides the transfer.

        They reduce in the job's own collective: dense values in parts, each summed, or decompressed and compressed
        anew, by a rank of its own. Messages that name coordinates (`Compressor.names`) are no sums: everyone's go to
        everyone, which takes half of what reducing n times as much does (exact for a ring, n - 1 messages), and every
        rank then knows the answer.
        """
        model, n, compressor = self.rounds, self.workers, getattr(strategy, "compressor", None)
        byte = self.sizing(strategy) * self.scale / 8
        bandwidth, latency, _ = model.among(n)
        link = Link(bandwidth, latency=latency)
        reduced = partial(model.collective.time, nodes=n, link=link)
        if isinstance(strategy, SynchronousSGD):
            return lambda up, down: np.full(up.shape, self.overlapped)
        if isinstance(strategy, SquarmSGD):
            return lambda up, down: 2 * link.latency + up * byte / link.bandwidth
        if isinstance(compressor, Compressor) and compressor.names:
            return lambda up, down: reduced(n * up * byte) / 2
        return lambda up, down: reduced((up + down) / 2 * byte)

    @property
    def scale(self) -> float:
        """Parameters of the job for each of the problem."""
        return self.parameter_bytes / (WORD / 8 * self.dimension)

    @cached_property
    def parameter_bytes(self) -> float:
        """Bytes of all parameters of the job."""
        if self.profile.job.parameter_bytes:
            return float(self.profile.job.parameter_bytes)
        return float(sum(fit_rounds(self.profile).bucket_bytes))
