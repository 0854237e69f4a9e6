"""Failures of nodes, and what they cost the job that held the node."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..errors import ModelError
from . import state as s
from .cluster import Cluster
from .jobs import Job

#: A job that has failed so often without keeping progress is given up where it would have to fail so often on average.
_STUCK, _HOPELESS = 100, 10_000.0


class Failures:
    """The next failure, as the exposure in nodes and mean times to failure that is left until it strikes."""

    def __init__(self, cluster: Cluster, jobs: Sequence[Job], seed: int) -> None:
        self.jobs = jobs
        self.mean_time = cluster.mean_time_to_failure
        self.checkpoint, self.restart = float(cluster.checkpoint_seconds), float(cluster.restart_seconds)
        self.rng = np.random.default_rng([seed, 0x6661696C])
        self.left = self.rng.exponential() if self.mean_time < math.inf else math.inf

    def next_time(self, now: float, nodes: float) -> float:
        """When the next node fails, if so many stay in use."""
        return now + self.left * self.mean_time / nodes if nodes else math.inf

    def pass_time(self, seconds: float, nodes: float) -> None:
        """So many nodes have been in use for so long."""
        self.left = max(self.left - seconds * nodes / self.mean_time, 0.0)

    def strike(self, state: np.ndarray, running: np.ndarray, now: float) -> None:
        """One node fails: its job goes back to the last checkpoint and restarts on as many nodes.

        Raises
        ------
        ModelError
            When the job needs so long from a restart to a checkpoint that it would practically never end.
        """
        self.left = self.rng.exponential()
        held = np.cumsum(state[s.NODES, running])
        place = int(np.searchsorted(held, self.rng.random() * held[-1], side="right"))
        j = int(running[place])
        s.settle(state, running[place : place + 1], now)
        job = state[:, j]
        ran = max(now - job[s.RESUME], 0.0)
        lost = ran if self.checkpoint == math.inf else math.fmod(ran, self.checkpoint)
        job[s.DONE] = max(job[s.DONE] - lost * job[s.SPEED], 0.0)
        job[s.USEFUL] -= lost * job[s.SPEED] / job[s.ALONE]
        rest = (job[s.TRUE] - job[s.DONE]) / job[s.SPEED]
        job[s.RESUME] = now + self.restart
        job[s.FINISH] = job[s.RESUME] + rest
        job[s.RESTARTS] += 1
        job[s.FAILURES] += 1
        job[s.STUCK] = job[s.STUCK] + 1 if ran < self.checkpoint else 0
        need, rate = self.restart + min(self.checkpoint, rest), job[s.NODES] / self.mean_time
        if job[s.STUCK] > _STUCK and rate * need > math.log(_HOPELESS):
            raise ModelError(
                f"job {self.jobs[j].name!r}: fails every {1 / rate:.3g} s on {job[s.NODES]:g} nodes, but needs "
                f"{need:.3g} s until progress is kept, so it would practically never end; lower checkpoint_seconds or "
                "restart_seconds"
            )
