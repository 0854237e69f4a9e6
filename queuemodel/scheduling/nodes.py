"""The nodes that jobs run on: what a change of an allocation costs, where jobs stand on them, and when they fail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from ..base.checks import require_count, require_number
from ..base.errors import ModelError
from . import state as s
from .curves import MOST_NODES
from .jobs import ClusterJob


@dataclass(frozen=True, slots=True)
class Nodes:
    """So many nodes, and what the simulation charges (times in seconds)."""

    count: int
    _: KW_ONLY
    restart_seconds: float = 0.0  #: Without progress after each change of a job that has run.
    start_seconds: float = 0.0  #: Without progress at the first start.
    #: Of one node, exponential; a failed node is replaced at once, its job goes back to the last checkpoint.
    mean_time_to_failure: float = math.inf
    #: Running time between checkpoints, which cost nothing; a change of allocation is one too.
    checkpoint_seconds: float = math.inf
    nodes_per_machine: int | None = None  #: Nodes stand in machines of so many.
    spread_speed: float = 1.0  #: Speed of a job, relative to its curve, on more machines than it needs.

    def __post_init__(self) -> None:
        require_count(self.count, "cluster: nodes", most=MOST_NODES)
        for field in ("restart_seconds", "start_seconds", "mean_time_to_failure", "checkpoint_seconds"):
            value, positive = getattr(self, field), field in ("mean_time_to_failure", "checkpoint_seconds")
            if not (positive and value == math.inf):
                require_number(value, f"cluster: {field}", unit="seconds", positive=positive)
        if self.nodes_per_machine is not None:
            require_count(self.nodes_per_machine, "cluster: nodes_per_machine", most=self.count)
        require_number(self.spread_speed, "cluster: spread_speed", positive=True, largest=1)

    @property
    def placed(self) -> bool:
        """Whether it matters where a job's nodes stand."""
        return self.nodes_per_machine is not None and self.spread_speed < 1


class Placement:
    """On which machines each job's nodes stand; a job whose number does not change stays where it is."""

    def __init__(self, nodes: Nodes) -> None:
        self.spread_speed = nodes.spread_speed
        size = self.size = nodes.nodes_per_machine or nodes.count
        full, rest = divmod(nodes.count, size)
        self.free = np.array([size] * full + ([rest] if rest else []))
        self.stands: dict[int, list[tuple[int, int]]] = {}

    def move(self, jobs: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Place these jobs anew, the largest first; speeds relative to their curves, shape (jobs,)."""
        for j in jobs.tolist():
            self.leave(j)
        factor = np.ones(len(jobs))
        for k in np.argsort(-nodes, kind="stable").tolist():
            if nodes[k] > 0 and not self._enter(int(jobs[k]), int(nodes[k])):
                factor[k] = self.spread_speed
        return factor

    def leave(self, job: int) -> None:
        """Give a job's nodes back."""
        for machine, count in self.stands.pop(job, ()):
            self.free[machine] += count

    def _enter(self, job: int, nodes: int) -> bool:
        """Place a job: into the fullest machine that takes it whole, else over the emptiest; True when packed."""
        taken = self.stands[job] = []
        left = nodes
        while left:
            fits = np.flatnonzero(self.free >= nodes)
            machine = int(fits[np.argmin(self.free[fits])] if fits.size else np.argmax(self.free))
            count = min(left, int(self.free[machine]))
            taken.append((machine, count))
            self.free[machine] -= count
            left -= count
        return len(taken) <= -(-nodes // self.size)


#: A job that has failed so often without keeping progress is given up where it would have to fail so often on average.
_STUCK, _HOPELESS = 100, 10_000.0


class Failures:
    """The next failure, as the exposure in nodes and mean times to failure that is left until it strikes."""

    def __init__(self, nodes: Nodes, jobs: Sequence[ClusterJob], seed: int) -> None:
        self.jobs = jobs
        self.mean_time = nodes.mean_time_to_failure
        self.checkpoint, self.restart = float(nodes.checkpoint_seconds), float(nodes.restart_seconds)
        self.rng = np.random.default_rng([seed, 0x6661696C])
        self.left = self.rng.exponential() if self.mean_time < math.inf else math.inf

    def next_time(self, now: float, nodes: float) -> float:
        """When the next node fails, if so many stay in use."""
        return now + self.left * self.mean_time / nodes if nodes else math.inf

    def pass_time(self, seconds: float, nodes: float) -> None:
        """So many nodes have been in use for so long."""
        self.left = max(self.left - seconds * nodes / self.mean_time, 0.0)

    def strike(self, state: np.ndarray, running: np.ndarray, now: float) -> None:
        """One node fails: its job goes back to the last checkpoint and restarts on as many nodes, unless for ever."""
        self.left = self.rng.exponential()
        ends = np.cumsum(state[s.NODES, running])
        place = int(np.searchsorted(ends, self.rng.random() * ends[-1], side="right"))
        j = int(running[place])
        s.accrue(state, running[place : place + 1], now)
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
