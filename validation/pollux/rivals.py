"""The artifact's two rivals as it simulates them: Tiresias (with state) and Optimus with oracle.

They answer with GPUs per job; the simulation places them. The package's own `LeastAttainedService` and `Optimus` are
the same ideas as pure policies; these keep the artifact's conventions, so that its published results are reproduced.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from .artifact import packed
from .state import RunningJob

#: GPU-seconds after which Tiresias demotes a job to its second queue (16 GPU-hours).
DEMOTION = 3600 * 16


class Tiresias:
    """Two queues, first come first served in each, the requested GPUs, preemption at demotion (Gu et al., NSDI 2019).

    Every job that fits runs, in order of queue and place; a job that does not fit is passed over.
    """

    def __init__(self) -> None:
        self.first: list[RunningJob] = []
        self.second: list[RunningJob] = []
        self.running: set[str] = set()
        self.executed: dict[str, int] = {}
        self.last: int = 0

    def allocate(self, jobs: Sequence[RunningJob], gpus: int, now: int, changed: bool) -> dict[str, int] | None:
        """GPUs per job, or None when nothing can have changed."""
        elapsed, self.last = now - self.last, now
        demoted = [job for job in self.first if self._runs(job, elapsed)]
        for job in self.second:
            self._runs(job, elapsed)
        if not (changed or demoted):
            return None
        active = {job.name for job in jobs}
        self.first = [job for job in self.first if job.name in active and job not in demoted]
        self.second = [job for job in self.second if job.name in active]
        known = {job.name for job in self.first} | {job.name for job in self.second}
        self.second += [job for job in jobs if job in demoted]
        demoted_names = {job.name for job in demoted}
        self.first += [job for job in jobs if job.name not in known and job.name not in demoted_names]
        grants: dict[str, int] = {}
        for job in self.first + self.second:
            if job.requested <= gpus:
                grants[job.name] = job.requested
                gpus -= job.requested
        self.running = set(grants)
        return grants

    def _runs(self, job: RunningJob, elapsed: int) -> bool:
        """Count the time of a running job; True when it is to be demoted."""
        if job.name not in self.running or job.completed is not None:
            return False
        self.executed[job.name] = executed = self.executed.get(job.name, 0) + elapsed
        return executed * job.requested >= DEMOTION


class Optimus:
    """One GPU each, then one more wherever it shortens the rest most (Peng et al., EuroSys 2018), with measured times.

    The rest is counted in updates at the end of epochs, as the artifact does, so the answer changes only when a job
    arrives, ends or passes an epoch.
    """

    def __init__(self) -> None:
        self.epochs: tuple[int, ...] = ()
        self.savings: dict[tuple[str, int], list[float]] = {}

    def allocate(self, jobs: Sequence[RunningJob], gpus: int, now: int, changed: bool) -> dict[str, int] | None:
        """GPUs per job, or None when nothing can have changed."""
        epochs = tuple(job.epoch for job in jobs)
        if not changed and epochs == self.epochs:
            return None
        self.epochs = epochs
        grants = {job.name: int(place < gpus) for place, job in enumerate(jobs)}
        left = gpus - sum(grants.values())
        heap: list[tuple[float, int, RunningJob, float]] = []
        for place, job in enumerate(jobs[:gpus]):
            rest = job.updates_left()
            gain = self._saving(job, 1) * rest
            if gain > 0:
                heap.append((-gain, place, job, rest))
        heapq.heapify(heap)
        while left > 0 and heap:
            _, place, job, rest = heap[0]
            grants[job.name] = n = grants[job.name] + 1
            left -= 1
            gain = self._saving(job, n) * rest
            if gain > 0:
                heapq.heapreplace(heap, (-gain, place, job, rest))
            else:
                heapq.heappop(heap)
        return dict(sorted(grants.items(), key=lambda item: item[1]))  # the smallest is placed first

    def _saving(self, job: RunningJob, gpus: int) -> float:
        """Seconds per update saved by one GPU more than ``gpus``; 0 where the batch cannot be cut further."""
        key = (job.application.name, job.batch_size)
        known = self.savings.get(key)
        if known is None:
            known = self.savings[key] = [math.nan]
        while len(known) <= gpus:
            n = len(known)
            if n >= job.application.most_gpus(job.batch_size):
                known.append(0.0)
                continue
            seconds = [self._seconds(job, k) for k in (n, n + 1)]
            known.append(seconds[0] - seconds[1])
        return known[gpus]

    @staticmethod
    def _seconds(job: RunningJob, gpus: int) -> float:
        """Seconds per update on packed GPUs; one GPU always makes two passes."""
        batch = job.application.cut(job.batch_size, gpus, accumulate_alone=True)
        return job.application.step_seconds(packed(gpus), batch) if batch.local > 0 else math.nan
