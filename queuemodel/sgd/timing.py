"""The time of each strategy by a profile: seconds of computation, of a transfer, of a gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import numpy as np

from ..base.errors import ModelError
from ..base.estimates import normal_quantile
from ..base.results import Result
from ..models.predict import predict
from ..models.rounds.fit import fit_rounds
from ..models.rounds.model import AllReduceModel
from ..models.rounds.ranks import Ranks
from ..profile.bandwidth import nominal_bandwidth
from ..profile.profile import Profile
from ..profile.scenario import Scenario
from ..transport.collectives import Link, exchange_time
from .compression import WORD, Compressor
from .loop import Clock, Running
from .strategy import Sent

#: Shares of all parameters' bytes between which the time of a transfer is interpolated; fastest links (bytes/s).
SHARES, FASTEST = (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0), 1e15


class Speed(NamedTuple):
    """Steps of all workers per second, the standard error of its logarithm, machines, and the model."""

    steps_per_second: float
    spread: float
    nodes: int
    model: Result | None


@dataclass(frozen=True, eq=False)
class Timing:
    """Times of a profiled job on ``workers`` workers."""

    profile: Profile
    workers: int
    dimension: int  #: parameters of the problem that stands for the job: bits are shares of its 32 bits each
    settings: dict[str, Any]  #: further arguments of `predict`
    drawn: float = 1.0  #: predicted over drawn synchronous steps per second of ranks: all strategies have these draws

    @property
    def on_servers(self) -> bool:
        """Whether the job was profiled on a parameter server."""
        return bool(self.profile.steps)

    @property
    def batch_size(self) -> int:
        """Examples of a worker's step."""
        return int(self.settings.get("batch_size") or self.profile.job.batch_size)

    def speed(self, **settings: Any) -> Speed:
        """As of `predict`."""
        curve = predict(self.profile, workers=[self.workers], confidence=0.9, **(self.settings | settings))
        spread = math.log(curve.upper[0] / curve.lower[0]) / 2 / normal_quantile(0.9)
        return Speed(float(curve.steps_per_second[0]), float(spread), int(curve.nodes[0]), curve.model)

    @cached_property
    def synchronous(self) -> Speed:
        """Of synchronous SGD."""
        return self.speed(strategy="sync-ps" if self.on_servers else "all-reduce")

    @property
    def rounds(self) -> AllReduceModel:
        """The model of the profiled rounds."""
        return cast("AllReduceModel", self.synchronous.model)

    @cached_property
    def computing(self) -> Clock:
        """Steps of every worker on servers without transfers: at its own speed, and at times as a straggler."""
        values, names = self.profile.values("compute"), ("straggler_probability", "straggler_slowdown")
        slowness = self.batch_size / self.profile.job.batch_size / self.settings.get("accelerator_speed", 1.0)
        mean = float(values.mean()) * slowness
        if not mean > 0:
            raise ModelError("compare: the profile has no computation; profile a model that computes")
        return Clock(
            mean,
            float(values.std(ddof=1) / values.mean()) if len(values) > 1 else 0.05,
            slowness=tuple(1 / speed for speed in self.settings.get("worker_speeds", ())),
            **{name: self.settings[name] for name in names if name in self.settings},
        )

    @cached_property
    def on_server(self) -> np.ndarray:
        """Seconds of a round on servers after the slowest worker's computation, by `SHARES` of the bytes."""
        computing = self.computing.steps(np.random.default_rng(0), (20_000, self.workers)).max(axis=1).mean()

        def beyond(speed: Speed) -> float:
            return max(self.workers / speed.steps_per_second - float(computing), 0.0)

        seconds = np.full(len(SHARES), beyond(self.synchronous))
        for i, share in enumerate(SHARES[:-1] if self.links else ()):
            faster = {name: np.minimum(np.divide(rate, share), FASTEST) for name, rate in self.links.items()}
            seconds[i] = beyond(self.speed(strategy="sync-ps", **faster))
        return np.minimum.accumulate(seconds[::-1])[::-1]

    @property
    def nominal(self) -> float | None:
        """Bytes per second of each host's link; None where unknown."""
        return self.settings.get("bandwidth", nominal_bandwidth(self.profile))

    @property
    def links(self) -> dict[str, Any]:
        """Known, finite rates of links that carry known bytes, as arguments of `predict`."""
        if not any(step.fetched_bytes or step.pushed_bytes for step in self.profile.steps):
            return {}
        rates = {"bandwidth": self.nominal, "worker_bandwidth": self.settings.get("worker_bandwidth")}
        other = Scenario(other_traffic=self.settings.get("other_traffic")).other_traffic
        if other and other >= 1.0:  # a rate; a share of a link stays one
            rates["other_traffic"] = other
        return {name: rate for name, rate in rates.items() if rate is not None and np.isfinite(rate).all()}

    @property
    def sized(self) -> bool:
        """Whether the time that fewer bytes save is known."""
        return not self.on_servers or (self.nominal is not None and bool(self.links))

    def sizing(self, strategy: object) -> float:
        """Bits of a compressed message per parameter at the job's size, over those at the problem's."""
        compressor = getattr(strategy, "compressor", None)
        if not isinstance(compressor, Compressor):
            return 1.0 if self.on_servers else self.rounds.precision
        job = round(self.scale * self.dimension)
        return (compressor.bits(job) / job) / (compressor.bits(self.dimension) / self.dimension)

    def clock(self, strategy: object, compression: float = 0.0) -> Clock:
        """Of synchronized workers; ``compression``: seconds of computation before each transfer."""
        if not self.on_servers:
            return Clock(running=partial(RunningRanks, timing=self, strategy=strategy, later=compression))
        whole = 2 * WORD * self.dimension / self.sizing(strategy)

        def transfer(up: np.ndarray, down: np.ndarray) -> np.ndarray:
            share = (up + down) / whole  # of a synchronous step's bytes; above 1 in proportion
            return compression + np.interp(share, SHARES, self.on_server) * np.maximum(share, 1.0)

        return replace(self.computing, transfer=transfer)

    @cached_property
    def scale(self) -> float:
        """Parameters of the job for each of the problem."""
        size = self.profile.job.parameter_bytes or sum(fit_rounds(self.profile).bucket_bytes)
        return float(size) / (WORD / 8 * self.dimension)


@dataclass(kw_only=True)
class RunningRanks(Running):
    """Ranks that wait for their input, compute and meet as in the rounds of a model.

    Parameters that are averaged, and what is compressed, follow the computation in one message.
    """

    timing: Timing
    strategy: object
    later: float  #: seconds of computation before each transfer

    def __post_init__(self) -> None:
        self.ranks = Ranks(self.timing.rounds, self.timing.workers, self.rngs)

    def compute(self, batches: float | np.ndarray) -> None:
        self.ranks.at = self.at
        self.ranks.compute(batches)
        self.at = self.ranks.at + self.ranks.tail

    def transfer(self, sent: Sent) -> np.ndarray:
        timing, ranks = self.timing, self.ranks
        byte = timing.sizing(self.strategy) * timing.scale / 8
        size = np.broadcast_to(np.add(sent.up, sent.down) / 2 * byte, len(self.at))
        if len(sent.partners) == 1:
            named = getattr(getattr(self.strategy, "compressor", None), "names", False)
            return self.later + ranks.message_time(size, gathered=named)[:, None]
        messages = max(np.count_nonzero(sent.partners, axis=1).max() - 1, 1)
        link = Link(ranks.link.bandwidth, latency=ranks.link.latency)
        seconds = exchange_time(ranks.model.collective, sent.partners, size / messages, link)
        return np.asarray(self.later + np.where(size > 0, seconds, 0.0))[:, None]

    def meet(self, sent: Sent) -> np.ndarray:
        return self.ranks.reduce(later=self.later)[1] if sent.pieces else super().meet(sent)
