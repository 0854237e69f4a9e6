"""What a profile says of the time of each strategy: seconds of computation, of a transfer, of a gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..descent import Clock
from ..descent.compressors import WORD, Compressor
from ..descent.gossip import SquarmSGD
from ..errors import ModelError
from ..prediction import predict
from ..strategies import AllReduceModel, fit_rounds
from ..training import Profile
from ..training.bandwidth import nominal_bandwidth
from ..training.parameters import normal_quantile

#: Shares of all parameters' bytes between which the time of a transfer is interpolated.
SHARES = (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0)

#: Bytes per second beyond which nobody asks.
FASTEST = 1e15

#: Groups drawn for the mean of the slowest.
DRAWS = 20_000


class Pace(NamedTuple):
    """Steps of all workers per second, and the standard error of its logarithm."""

    steps_per_second: float
    spread: float


@dataclass(frozen=True, eq=False)
class Timing:
    """Times of a profiled job on so many workers.

    Attributes
    ----------
    profile : Profile
    workers : int
    dimension : int
        Parameters of the problem that stands for the job: bits are told as shares of its 32 bits each.
    asked : dict
        Further arguments of `predict`.
    """

    profile: Profile
    workers: int
    dimension: int
    asked: dict[str, Any]

    @property
    def on_servers(self) -> bool:
        """Whether the job was profiled on a parameter server."""
        return bool(self.profile.steps)

    def pace(self, **asked: Any) -> Pace:
        """What `predict` says."""
        method = {"method": "mva"} if self.on_servers else {}
        curve = predict(self.profile, workers=[self.workers], confidence=0.9, **(method | self.asked | asked))
        spread = math.log(curve.upper[0] / curve.lower[0]) / 2 / normal_quantile(0.9)
        return Pace(float(curve.steps_per_second[0]), float(spread))

    @cached_property
    def together(self) -> Pace:
        """Of rounds in which all exchange everything."""
        return self.pace(strategy="sync-ps" if self.on_servers else "all-reduce")

    @cached_property
    def computation(self) -> tuple[float, float]:
        """Mean seconds of a worker's step without transfers, and their coefficient of variation."""
        if self.on_servers:
            values = self.profile.values("compute")
        else:
            values = np.array([one.computed for one in self.profile.rounds])
        mean = float(values.mean()) / self.asked.get("accelerator_speed", 1.0)
        if not mean > 0:
            raise ModelError("compare: the profile has no computation; profile a model that computes")
        return mean, float(values.std(ddof=1) / values.mean()) if len(values) > 1 else 0.05

    @cached_property
    def meetings(self) -> np.ndarray:
        """Seconds that a round takes beyond the slowest worker's computation, by `SHARES` of the bytes."""
        nominal = nominal_bandwidth(self.profile)
        clock = Clock(*self.computation)
        slowest = clock.durations(np.random.default_rng(0), (DRAWS, self.workers)).max(axis=1).mean()
        whole = self.workers / self.together.steps_per_second
        seconds = np.full(len(SHARES), whole)
        bandwidth = self.asked.get("bandwidth", nominal)
        if self.sized and bandwidth is not None:
            strategy = "sync-ps" if self.on_servers else "all-reduce"
            for i, share in enumerate(SHARES[:-1]):
                pace = self.pace(strategy=strategy, bandwidth=min(bandwidth / share, FASTEST))
                seconds[i] = self.workers / pace.steps_per_second
        return np.maximum(np.minimum.accumulate(seconds[::-1])[::-1] - slowest, 0.0)

    @property
    def sized(self) -> bool:
        """Whether the profile says what fewer bytes would save: its links' bandwidth is known, and not infinite."""
        nominal = self.asked.get("bandwidth", nominal_bandwidth(self.profile))
        return nominal is not None and math.isfinite(nominal)

    def sizing(self, strategy: object) -> float:
        """Bits of a compressed message per parameter at the job's size, over those at the problem's."""
        compressor = getattr(strategy, "compressor", None)
        if not isinstance(compressor, Compressor):
            return 1.0
        job = round(self.scale * self.dimension)
        return (compressor.bits(job) / job) / (compressor.bits(self.dimension) / self.dimension)

    def clock(self, strategy: object) -> Clock:
        """What a step of workers that meet costs."""
        size = self.sizing(strategy)
        if isinstance(strategy, SquarmSGD):
            network = AllReduceModel(fit_rounds(self.profile)).what_if(**self.asked).network
            byte = size * self.scale / network.bandwidth
            return Clock(*self.computation, lambda up, down: 2 * network.latency + up / 8 * byte)
        return Clock(*self.computation, lambda up, down: self.transfer(size * up, size * down))

    def transfer(self, up: np.ndarray, down: np.ndarray) -> np.ndarray:
        """Seconds of a meeting that sends so many bits each way."""
        share = (up + down) / (2 * WORD * self.dimension)
        inside = np.interp(share, SHARES, self.meetings)
        return inside * np.maximum(share, 1.0)  # more than all of it: in proportion

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
