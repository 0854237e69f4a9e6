"""What models of recorded rounds have in common: ranks whose machines and training a scenario changes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from ...base.errors import ModelError
from ...profile.job import Job
from ...profile.measurements import Measurement
from ...transport.trees import algorithm_of
from ..model import Model


@dataclass(frozen=True, eq=False, repr=False)
class RankModel(Model):
    """A model of what was ``fitted`` to rounds of ranks, given throughputs ``measured`` of them.

    Computation is proportional to the batch size.
    """

    fitted: Any
    measured: tuple[Measurement, ...] = ()

    @property
    def job(self) -> Job:
        """The job, with the batch size that it has here."""
        job: Job = self.fitted.job
        return msgspec.structs.replace(job, batch_size=self.scenario.batch_size or job.batch_size)

    @property
    def conditions(self) -> tuple[Measurement, ...]:
        """See `Model`."""
        return self.measured

    @property
    def bandwidth(self) -> float | None:
        """See `Model`."""
        nominal: float | None = self.fitted.nominal
        return self.scenario.bandwidth or nominal

    @property
    def recorded(self) -> dict[str, Any]:
        """Fields of a scenario that have the value with which the rounds were recorded, besides the common ones."""
        raise NotImplementedError

    @property
    def other_machines(self) -> bool:
        """Whether anything differs from what was profiled: naming its own machines requests no others."""
        wanted = self.scenario.specified
        own = self.recorded | {
            "bandwidth": self.fitted.nominal, "batch_size": self.fitted.job.batch_size, "accelerator_speed": 1.0,
            "accumulation": 1, "inside_bandwidth": self.scenario.inside_bandwidth,
            "worker_speeds": (1.0,) * len(self.scenario.worker_speeds or ()),
        }  # fmt: skip
        if self.scenario.collective:
            wanted = wanted | {"collective": algorithm_of(self.scenario.collective)}
        return any(value != own.get(name) for name, value in wanted.items())

    def is_here(self, point: Measurement) -> bool:
        """See `Model`."""
        wanted = self.scenario.bandwidth
        same = point.bandwidth == (None if wanted == self.fitted.nominal else wanted)
        return same and not replace(self, scenario=replace(self.scenario, bandwidth=None)).other_machines

    @property
    def slowness(self) -> float:
        """How much longer computation takes than when profiled."""
        recorded: int = self.fitted.job.batch_size
        return self.job.batch_size / recorded / (self.scenario.accelerator_speed or 1.0)

    def slower(self, ranks: int) -> np.ndarray:
        """How many times as long as recorded each rank computes, by ``worker_speeds``, (ranks,)."""
        speeds = self.scenario.worker_speeds or (1.0,) * ranks
        if len(speeds) < ranks:
            raise ModelError(f"workers must be at most {len(speeds)}, the number of worker_speeds, got {ranks}")
        return 1 / np.array(speeds[:ranks])

    @property
    def steps_per_round(self) -> int:
        """Of each rank, between two reductions."""
        return self.scenario.accumulation or 1

    def require_inside(self) -> None:
        """Refuse ranks that share a node where nothing tells how fast they are there."""
        if (self.scenario.gpus_per_node or 1) > 1 and self.scenario.inside_bandwidth is None:
            raise ModelError(
                "gpus_per_node needs inside_bandwidth, that between two ranks of a node, like 300GB/s of NVLink or "
                "25GB/s of PCIe: ranks on nodes of their own do not show it"
            )

    def _doublings(self, ranks: int) -> float:
        """By how many doublings so many ranks are beyond the recorded ones."""
        return math.log2(max(ranks / max(self.fitted.ranks, 1), 1.0))
