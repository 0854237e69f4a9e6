"""The Pollux artifact's simulator, step by step and rounding by rounding.

Conventions (A. Qiao et al., OSDI 2021, artifact): time advances in steps of 60 s and jobs are looked at only then; a
new allocation, the first one included, costs 30 s without progress; GPUs are placed on the emptiest machine first, in
the order in which the policy names the jobs, and a job whose number does not change stays where it is; the end of each
epoch is rounded to a second. Nothing else in the package works like this: `queuemodel.scheduling.engine` is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queuemodel.base.errors import ModelError

from .artifact import GPUS_PER_MACHINE
from .rule import Rule
from .state import STEP, RunningJob


def advance_all(jobs: Sequence[RunningJob], rule: Rule, *, gpus: int) -> list[RunningJob]:
    """Simulate until every job is done; the jobs come back with their times filled in."""
    if gpus < GPUS_PER_MACHINE or gpus % GPUS_PER_MACHINE:
        raise ModelError(
            f"nodes: the Pollux cluster has {GPUS_PER_MACHINE} GPUs per machine, so nodes (GPUs) must be a multiple of "
            f"{GPUS_PER_MACHINE}, got {gpus}"
        )
    waiting = sorted(jobs, key=lambda job: job.submitted)[::-1]
    place = {id(job): number for number, job in enumerate(jobs)}
    active: list[RunningJob] = []
    now = 0
    idle = 0
    while waiting or active:
        for job in active:
            if job.machines:
                job.advance(now)
        now += STEP
        before = len(active)
        active = [job for job in active if job.completed is None]
        changed = len(active) != before
        while waiting and waiting[-1].submitted <= now:
            active.append(waiting.pop())
            changed = True
        if not active:
            continue
        if changed:
            active.sort(key=lambda job: place[id(job)])
        grants = rule.allocate(active, gpus, now, changed)
        if grants is not None:
            _place(active, grants, gpus // GPUS_PER_MACHINE, now)
        idle = 0 if any(job.machines for job in active) else idle + 1
        if idle > 10_000 and not waiting:
            raise ModelError(
                f"policy: no GPU granted for a week although {len(active)} jobs wait (first: {active[0].name!r}); "
                "a policy must run somebody"
            )
    return list(jobs)


def _place(active: Iterable[RunningJob], grants: dict[str, int], machines: int, now: int) -> None:
    free = [GPUS_PER_MACHINE] * machines
    moving: dict[str, RunningJob] = {}
    for job in active:
        wanted = grants.get(job.name, 0)
        if wanted and wanted == len(job.machines):
            for machine in job.machines:
                free[machine] -= 1
        elif wanted:
            moving[job.name] = job
        elif job.machines:
            job.move((), now)
    for name in [name for name in grants if name in moving]:
        taken: list[int] = []
        while len(taken) < grants[name]:
            most = max(free)
            machine = free.index(most)
            count = min(most, grants[name] - len(taken))
            taken += [machine] * count
            free[machine] -= count
        moving[name].move(tuple(taken), now)
