"""Many simulations at once: several runs of each number of workers."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from ..base.checks import require_count, require_number, require_seed
from ..base.errors import ModelError
from ..base.parallel import run_tasks
from ..curves.curve import require_workers
from ..profile.bandwidth import transports_of
from ..profile.profile import Profile
from ..profile.synchronization import Synchronization
from ..transport.sharing import NETWORK
from .graph import MACHINES, prepare
from .result import SimulatedRun
from .simulate import INTERRUPTED, MOST_OPERATIONS, simulate_operations

#: Operations simulated per number of workers; smallest and largest number of steps of all workers.
OPERATIONS, LEAST_STEPS, MOST_STEPS = 300_000, 600, 6000


def trace_runs(
    profile: Profile,
    *,
    workers: int | Iterable[int] = range(1, 33),
    replications: int = 4,
    steps: int | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool = False,
    **settings: Any,
) -> list[list[SimulatedRun]]:
    """Simulate every number of workers several times, each time with other start times and steps.

    Under control by losses every second run shares links at once instead of by windows, except at a barrier
    (`Transport.mechanisms`). Without ``n_jobs`` in threads of this process, else in so many processes (joblib, on the
    engine of ``joblib.parallel_config``); without ``steps`` as many as keep a curve to seconds. Settings are those of
    `simulate_operations`, with ``worker_speeds`` and ``accelerator_speed``, relative to the profile, for ``slowdown``.
    """
    from tqdm import tqdm

    counts = require_workers(workers).tolist()
    require_count(replications, "trace_runs: replications", most=10_000)
    if steps is not None:
        require_count(steps, "trace_runs: steps")
    if n_jobs not in (None, -1):
        require_count(n_jobs, "trace_runs: n_jobs")
    require_seed(seed, "trace_runs: seed")
    speeds = settings.pop("worker_speeds", None), settings.pop("accelerator_speed", 1.0)
    slowdown = slowdowns(counts[-1], *speeds)
    graphs = prepare(profile, **{name: settings.pop(name) for name in MACHINES if name in settings})
    operations = len(graphs.steps.kind) / len(profile.steps)
    total = steps or int(np.clip(OPERATIONS / operations, LEAST_STEPS, MOST_STEPS))
    seeds = [np.random.SeedSequence(seed, spawn_key=(n,)).generate_state(replications) for n in counts]
    links_of = settings.pop("worker_bandwidth", None)
    if links_of is not None and len(links_of) < counts[-1]:
        raise ModelError(f"trace_runs: worker_bandwidth must be {counts[-1]} or more numbers > 0, got {links_of!r}")
    known = {name: settings.pop(name, None) for name in NETWORK}
    kind, *_ = transports_of(profile, bandwidth=graphs.bandwidth, **known)
    waiting = Synchronization.read(settings.pop("synchronization", None))
    networks = [each.settings for each in kind.mechanisms(barrier=waiting.together)]
    tasks = [
        partial(simulate_operations, graphs, workers=n, steps=max(20, -(-total // (n * replications))), seed=int(s),
                slowdown=slowdown[:n], worker_bandwidth=None if links_of is None else links_of[:n],
                synchronization=waiting.of(n), **settings, **networks[i % len(networks)])
        for n, row in zip(counts, seeds, strict=True) for i, s in enumerate(row)
    ]  # fmt: skip
    size = counts[-1] * graphs.parameter_servers * int(np.diff(graphs.steps.first).max())  # operations in memory
    threads = enumerate(_in_threads(tasks, MOST_OPERATIONS // size))
    results = threads if n_jobs is None else run_tasks(tasks, n_jobs=n_jobs, what="simulation")
    runs = dict(tqdm(results, total=len(tasks), desc="simulating", unit="run", disable=not progress, leave=False))
    return [[runs[i + r] for r in range(replications)] for i in range(0, len(tasks), replications)]


def _in_threads(tasks: Sequence[Callable[[], SimulatedRun]], fitting: int) -> Iterator[SimulatedRun]:
    """Results in order, from as many threads as fit into memory; the loop releases Python's lock."""
    with ThreadPoolExecutor(max(1, min(fitting, os.cpu_count() or 1))) as pool:
        try:
            yield from pool.map(operator.call, tasks)
        except BaseException:  # an error, or an interruption
            INTERRUPTED.set()
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            INTERRUPTED.clear()


def slowdowns(workers: int, worker_speeds: Iterable[float] | None, accelerator_speed: float) -> list[float]:
    """Factors on each worker's computations, from speeds relative to the profiled one's."""
    require_number(accelerator_speed, "trace_runs: accelerator_speed", positive=True)
    speeds = [1.0] * workers if worker_speeds is None else list(worker_speeds)
    if len(speeds) < workers:
        raise ModelError(f"trace_runs: worker_speeds must be {workers} or more numbers > 0, got {speeds!r}")
    return [
        1 / (accelerator_speed * require_number(speed, "trace_runs: worker_speeds", positive=True)) for speed in speeds
    ]
