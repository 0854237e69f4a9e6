"""One simulation under a cluster's rules (how workers synchronize, which are slow, how connections share), and many."""

from __future__ import annotations

import math
import operator
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from ..base.checks import FASTEST_LINK, nearest, require_count, require_number, require_seed, require_share
from ..base.errors import ModelError
from ..base.files import constants
from ..base.parallel import run_tasks
from ..curves.curve import require_workers
from ..profile.bandwidth import transports_of
from ..profile.job import MOST_WORKERS
from ..profile.profile import Profile
from ..profile.synchronization import Synchronization
from ..transport.sharing import NETWORK, Transport
from .graph import MACHINES, Graphs, prepare
from .kernel.loop import DONE, Rules, State, new_state, run
from .result import FEWEST_FOR_MSER, SimulatedRun

#: HTTP/2's initial flow-control window, bytes that a stream sends before the next one's turn (RFC 9113, 6.9.2).
WINDOW = 65_535.0
#: Largest standard deviation of the logarithm of weights; larger ones leave most connections nothing.
LARGEST_UNFAIRNESS = 5.0
RESUMED = constants(__package__)["simulate"]["resumed"]
#: Arguments of `cluster_rules` that `simulate_operations` has, too.
RULES = ("synchronization", "slowdown", "straggler_probability", "straggler_slowdown")
#: Events between two checks for an interruption, times the number of connections.
EVENTS = 2_000_000
SETTINGS = (*MACHINES, *NETWORK, *RULES, "worker_bandwidth")
#: Ends runs in other threads than the one that an interruption reaches.
INTERRUPTED = threading.Event()
#: Connections, and operations of all workers times servers, that a run may hold: 4 GB of memory.
MOST_CONNECTIONS, MOST_OPERATIONS = 100_000, 50_000_000
#: Operations simulated per number of workers; smallest and largest number of steps of all workers.
OPERATIONS, LEAST_STEPS, MOST_STEPS = 300_000, 600, 6000


def cluster_rules(
    network: Transport,
    *,
    workers: int,
    transfer_order: str,
    synchronization: Synchronization | str | None = None,
    slowdown: Sequence[float] | None = None,
    straggler_probability: float = 0.0,
    straggler_slowdown: float = 1.0,
) -> Rules:
    """Settings of `simulate_operations` as the compiled loop takes them, or a `ModelError`."""
    waiting = Synchronization.read(synchronization)
    waiting.require_workers(workers)
    weights = require_number(network.unfairness, "simulate: unfairness", largest=LARGEST_UNFAIRNESS)
    return Rules(
        slowdown=per_worker("slowdown", [1.0] * workers if slowdown is None else slowdown, workers),
        chunk=WINDOW if transfer_order == "multiplexed" else math.inf,
        shuffle=transfer_order == "random",
        **{name: getattr(waiting.row, name) for name in ("gathers", "drops", "cuts", "repeats", "bounded")},
        awaited=waiting.awaited(workers),
        bound=waiting.number,
        stride=waiting.awaited(workers) if waiting.row.gathers else workers,
        straggler_probability=require_share(straggler_probability, "simulate: straggler_probability"),
        straggler_slowdown=require_number(straggler_slowdown, "simulate: straggler_slowdown", positive=True),
        loaded_trip=require_number(network.loaded_trip, "simulate: loaded_trip", unit="seconds"),
        unfairness=0.0 if network.window_kept else weights,  # windows are unequal by themselves
        kept=require_share(network.window_kept, "simulate: window_kept"),
        resumed=RESUMED if network.window_kept <= 0.5 else 1.0,
    )


def per_worker(name: str, values: Sequence[float], workers: int, *, largest: float = 1e9) -> np.ndarray:
    numbers = list(values)
    if len(numbers) != workers:
        raise ModelError(f"simulate: {name} must be {workers} numbers > 0, one per worker, got {values!r}")
    return np.array([require_number(v, f"simulate: {name}", positive=True, largest=largest) for v in numbers])


def simulate_operations(
    profile: Profile | Graphs,
    *,
    workers: int,
    steps: int = 200,
    seed: int = 0,
    in_phase: bool = False,
    trace_steps: int = 0,
    confidence: float = 0.9,
    progress: bool = False,
    **settings: Any,
) -> SimulatedRun:
    """
    Simulate distributed training operation by operation.

    Parameters
    ----------
    profile : Profile
        With operations in its steps; for durations of computations and updates, and dependencies.
    workers : int
    steps : int
        Of each worker on average; of a synchronous run, rounds.
    seed : int
        The same seed gives the same run.
    in_phase : bool
        All workers start at once; otherwise each waits for a random time of up to two steps.
    trace_steps : int
        How many of each worker's last steps to keep operation by operation, for `SimulatedRun.chrome_trace`, besides
        the one that it is in at the end.
    confidence : float
        Of the interval around the throughput.
    progress : bool
        Show a progress bar on standard error.
    **settings
        What follows, of the cluster and its machines.

    parameter_servers : int, optional
        As profiled, unless given; tensors are then dealt anew (`sharding`).
    bandwidth : float, optional
        Nominal bytes per second of every host's link, each direction, for what-ifs, by the rule of
        `queuemodel.profile.bandwidth`; without, what the links carried in the profile.
    transfer_order : {"tensorflow", "random", "multiplexed", "in-order", "reverse", "tic", "tac"}
        Order in which a connection sends queued tensors: as recorded (TensorFlow's own changes every step); at random;
        in turns of 64 KB, as HTTP/2 may; by first use; by last use; TicTac's two orders.
    synchronization : Synchronization or str
        What workers wait for; a name where there is no number. By default every worker is on its own.
    sharding : {"round-robin", "greedy"}
        How tensors are dealt to another number of servers: in turn, or largest first to the server with fewest bytes.
    links : LinkRates, optional
        What the links carry, instead of `estimate_links(profile)`.
    worker_bandwidth : sequence of float, optional
        Payload bytes per second of each worker's link, when they differ.
    slowdown : sequence of float, optional
        Factor on each worker's computations.
    straggler_probability, straggler_slowdown : float
        A step's computations take `straggler_slowdown` times as long with this probability.
    congestion_control : {"unknown", "cubic", "reno", "bbr"}, optional
        TCP's in the hosts, by default the profile's. Unknown: the likeliest, loss-based, marked in the result.
    buffer : float, optional
        Seconds that a packet waits at a full link, by default the profile's. 0: each connection has a queue of its
        own there (fq_codel), so that shares are equal.
    loaded_trip : float, optional
        Seconds of a round trip over a full link, instead of these two: how slowly a connection takes the whole of a
        link again that it has shared, and how often one falls silent (docs/explanation/time); 0: at once, and
        never.
    unfairness : float, optional
        Standard deviation of the logarithm of connections' weights at a full link, drawn anew every step (by default
        0.4, and 0.2 under BBR, beside its accidents); 0: equal shares. Windows have no other weights.
    window_kept : float, optional
        Beside a `loaded_trip`: share of its congestion window that a connection keeps at a loss (0.7 with cubic, 0.5
        with Reno), so that windows share links; 0: no windows, but BBR's memory.

    Raises
    ------
    DataError
        When the profile's steps have no operations, take no time, or name servers that are not there.
    ModelError
        When an argument makes no sense or does not apply, or the run would not fit into memory.

    Notes
    -----
    The idea is that of Li, Yan, Paolieri and Golubchik (ICPE 2020). Links are shared max-min fairly. The transient is
    cut off by MSER-5, and the interval comes from batch means. Fewer than 20 steps have one more of each worker before
    them, which is left out.

    Examples
    --------
    >>> from queuemodel.simulator import simulate_operations
    >>> from queuemodel import Job, Operation, Profile, Source, Step
    >>> operations = [
    ...     Operation("fetch", "w", 0.0, 0.1, 1_000_000),
    ...     Operation("compute", "forward_backward", 0.1, 0.6, after=[0]),
    ...     Operation("push", "g", 0.6, 0.7, 1_000_000, after=[1]),
    ...     Operation("update", "sgd", 0.7, 0.7, after=[2]),
    ... ]
    >>> step = Step(step_time=0.7, fetch=0.1, compute=0.5, push=0.1, update=0.0,
    ...             fetched_bytes=1_000_000, pushed_bytes=1_000_000, operations=operations)
    >>> profile = Profile(source=Source(framework="by hand"), job=Job(batch_size=1, parameter_bytes=1_000_000,
    ...                   tensors=1), steps=[step])
    >>> round(simulate_operations(profile, workers=1, steps=100).throughput, 3)
    1.429
    """
    from tqdm import tqdm

    require_count(workers, "simulate: workers", most=MOST_WORKERS)
    require_count(steps, "simulate: steps")
    require_count(trace_steps, "simulate: trace_steps", least=0, most=steps)
    require_seed(seed, "simulate: seed")
    require_share(confidence, "simulate: confidence", open_ended=True)
    if unknown := next((name for name in settings if name not in SETTINGS), None):
        raise ModelError(f"simulate: {unknown} is no setting of a simulation{nearest(unknown, SETTINGS)}")
    machines, network, rules_of = ({name: settings[name] for name in names if name in settings}
                                   for names in (MACHINES, NETWORK, RULES))  # fmt: skip
    graphs = profile if isinstance(profile, Graphs) else prepare(profile, **machines)
    kind, *others = transports_of(graphs.profile, bandwidth=graphs.bandwidth, **network)
    rules = cluster_rules(kind, workers=workers, transfer_order=graphs.transfer_order, **rules_of)
    rng = np.random.default_rng(seed)
    latest = 2 * graphs.profile.values("step_time").mean()
    starts = np.zeros(workers) if in_phase else rng.uniform(0, latest, workers)
    own_links = settings.get("worker_bandwidth")
    state = _at_start(graphs, rules, starts=starts, worker_bandwidth=own_links, kept_steps=trace_steps)
    warmup = int(steps < FEWEST_FOR_MSER and not in_phase)
    target = (steps + warmup) * rules.stride
    events = max(100, EVENTS // state.queued.size)
    with tqdm(total=target, desc="simulating", unit="step", disable=not progress, leave=False) as bar:
        while state.count[DONE] < target:
            if INTERRUPTED.is_set():
                raise KeyboardInterrupt
            if not run(graphs.steps, state, rules, rng, target, events):
                raise ModelError("simulate: the operations never end; some of them wait for each other, check `after`")
            bar.update(int(state.count[DONE]) - bar.n)
    strategy = Synchronization.read(settings.get("synchronization")).name
    about = {"transfer_order": graphs.transfer_order, "strategy": strategy, "seed": seed}
    if kind.name:
        about["network"] = f"{kind.name} (assumed)" if others else kind.name
    return SimulatedRun.from_state(state, profile=graphs.profile, settings=about, warmup=warmup, confidence=confidence)


def _at_start(
    graphs: Graphs, rules: Rules, *, starts: np.ndarray, worker_bandwidth: Sequence[float] | None, kept_steps: int
) -> State:
    W, K = len(starts), graphs.parameter_servers
    operations = W * int(np.diff(graphs.steps.first).max()) * (K + kept_steps)
    for what, number, most in (
        ("workers times parameter_servers", W * K, MOST_CONNECTIONS),
        ("operations of all workers, times servers and kept steps,", operations, MOST_OPERATIONS),
    ):
        if number > most:
            raise ModelError(f"simulate: {what} must be at most {most:,}, got {number:,}; simulate fewer workers")
    links = np.repeat([[graphs.links.transmit.rate], [graphs.links.receive.rate]], K + W, axis=1)
    if graphs.carried is not None:
        links[:, :K] = np.reshape(graphs.carried, (2, 1))
    if worker_bandwidth is not None:
        links[:, K:] = per_worker("worker_bandwidth", worker_bandwidth, W, largest=FASTEST_LINK)
    return new_state(graphs.steps, links=links, starts=starts, rules=rules, kept_steps=kept_steps)


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
