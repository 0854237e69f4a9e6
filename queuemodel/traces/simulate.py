"""Trace-driven simulation: many workers, each of which draws its steps from one worker's recorded ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..errors import ModelError
from ..training.profile import Profile
from .graph import pack
from .links import Links, estimate_links
from .policies import Policy, check_policy, chunk_bytes, ranks
from .result import SimulatedRun
from .sharding import Sharding, shard
from .state import ASYNC, BOUNDED, SYNC, UPDATE, Rules, Steps, new_state

Synchronization = Literal["async", "sync", "bounded"]
MODES = {"async": ASYNC, "sync": SYNC, "bounded": BOUNDED}

#: Share of a link's nominal rate that is payload: 1448 of the 1538 bytes that a full TCP segment takes on Ethernet.
PAYLOAD_SHARE = 1448 / 1538

#: Seconds that a packet waits at a full link: what the buffers of the testbed's links hold.
LOADED_TRIP = 0.012

#: How unequal the shares of two or three connections are there.
UNFAIRNESS = 0.4


def simulate(
    profile: Profile | Graphs,
    *,
    workers: int,
    parameter_servers: int | None = None,
    bandwidth: float | None = None,
    policy: Policy = "tensorflow",
    synchronization: Synchronization = "async",
    steps: int = 200,
    seed: int = 0,
    sharding: Sharding = "round-robin",
    links: Links | None = None,
    worker_bandwidth: Sequence[float] | None = None,
    slowdown: Sequence[float] | None = None,
    straggler_probability: float = 0.0,
    straggler_slowdown: float = 1.0,
    backup_workers: int = 0,
    staleness_bound: int = 0,
    loaded_trip: float = LOADED_TRIP,
    unfairness: float = UNFAIRNESS,
    in_phase: bool = False,
    trace_steps: int = 0,
    confidence: float = 0.9,
) -> SimulatedRun:
    """
    Simulate distributed training operation by operation.

    Parameters
    ----------
    profile : Profile
        With operations in its steps; they say how long computations and updates take and what waits for what.
    workers : int
    parameter_servers : int, optional
        As profiled, unless given; tensors are then dealt anew (`sharding`).
    bandwidth : float, optional
        Nominal bytes per second of every host's link, each direction, for what-ifs; without, what the links carried
        in the profile.
    policy : {"tensorflow", "random", "multiplexed", "in-order", "reverse", "tic", "tac"}
        Order in which a connection sends queued tensors: one after the other as recorded (TensorFlow's own order is
        another one every step); in a uniformly random order; in turns of 64 KB, as HTTP/2 may; by first use; by last
        use; TicTac's two orders.
    synchronization : {"async", "sync", "bounded"}
        Every worker on its own; a barrier every step; a worker at most `staleness_bound` steps ahead of the slowest.
    steps : int
        Of each worker on average.
    seed : int
        The same seed gives the same run.
    sharding : {"round-robin", "greedy"}
        How tensors are dealt to a number of servers other than the profiled one: in turn, or largest first, each to
        the server with the fewest bytes.
    links : Links, optional
        What the links carry, instead of `estimate_links(profile)`.
    worker_bandwidth : sequence of float, optional
        Payload bytes per second of each worker's link, when they differ.
    slowdown : sequence of float, optional
        Factor on each worker's computations.
    straggler_probability, straggler_slowdown : float
        A step's computations take `straggler_slowdown` times as long with this probability.
    backup_workers : int
        Synchronous only: a step ends without the slowest so many gradients, which are dropped.
    staleness_bound : int
    loaded_trip : float
        Seconds that a packet waits at a full link (12 ms, as the buffers of the testbed's links hold). It says how
        slowly a connection that has shared a link takes the whole of it again (docs/explanation/trace-simulation);
        0: at once.
    unfairness : float
        How unequally connections share a full link: standard deviation of the logarithm of their weights, drawn anew
        every step (0.4, as measured on the testbed); 0: equally.
    in_phase : bool
        All workers start at once; otherwise each waits for a random time of up to two steps.
    trace_steps : int
        How many steps of each worker to keep operation by operation, for `SimulatedRun.chrome_trace`: the last ones.
    confidence : float
        Of the interval around the throughput.

    Returns
    -------
    SimulatedRun

    Raises
    ------
    DataError
        When the profile's steps have no operations.
    ModelError
        When an argument makes no sense.

    Notes
    -----
    The idea is that of Li, Yan, Paolieri and Golubchik (ICPE 2020). Links are shared max-min fairly among connections.
    The estimate is that of the steady state: what comes before is cut off by MSER-5, and the interval comes from batch
    means.

    Examples
    --------
    >>> from queuemodel.traces import simulate
    >>> from queuemodel.training import Operation, Job, Profile, Source, Step
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
    >>> round(simulate(profile, workers=1, steps=100).throughput, 3)
    1.429
    """
    from . import kernel  # compiled by numba, which takes long to import

    _check(workers, steps, synchronization, backup_workers, staleness_bound, confidence)
    graphs = profile if isinstance(profile, Graphs) else prepare(profile, parameter_servers, policy, sharding, links)
    profile, packed, K = graphs.profile, graphs.steps, graphs.parameter_servers
    rng = np.random.default_rng(seed)
    state = new_state(
        packed,
        links=_capacities(profile, graphs.links, bandwidth, workers, K, worker_bandwidth),
        workers=workers,
        starts=np.zeros(workers) if in_phase else rng.uniform(0, 2 * profile.values("step_time").mean(), workers),
        memory=loaded_trip > 0,
        logged=trace_steps * workers * int(np.diff(packed.first).max()),
    )
    kept_from = max(0, steps - 2 * trace_steps)  # not the very last ones, which not every worker completes
    rules = Rules(
        slowdown=np.ones(workers) if slowdown is None else _per_worker("slowdown", slowdown, workers),
        chunk=float(chunk_bytes(graphs.policy)),
        shuffle=graphs.policy == "random",
        mode=MODES[synchronization],
        backup=backup_workers,
        bound=staleness_bound,
        apply=_apply_time(packed, K),
        straggler_probability=float(straggler_probability),
        straggler_slowdown=float(straggler_slowdown),
        loaded_trip=float(loaded_trip),
        unfairness=float(unfairness),
        log_from=kept_from,
        log_to=kept_from + trace_steps,
    )
    if not kernel.run(packed, state, rules, rng, steps * workers):
        raise ModelError("simulate: the operations never end, because some of them wait for each other; check `after`")
    settings = {"policy": graphs.policy, "synchronization": synchronization, "seed": seed}
    return SimulatedRun.from_state(state, profile=profile, settings=settings, confidence=confidence)


@dataclass(frozen=True, eq=False)
class Graphs:
    """A profile made ready to be simulated many times; takes its place in `simulate`."""

    profile: Profile
    steps: Steps
    links: Links
    parameter_servers: int
    policy: Policy


def prepare(
    profile: Profile,
    parameter_servers: int | None = None,
    policy: Policy = "tensorflow",
    sharding: Sharding = "round-robin",
    links: Links | None = None,
) -> Graphs:
    """Do once what `simulate` needs of a profile, whatever the number of workers."""
    check_policy(policy)
    K = parameter_servers or profile.cluster.parameter_servers
    links = links or estimate_links(profile)
    extra = [link.tensor_time * link.rate for link in (links.transmit, links.receive)]
    dealt = None if profile.cluster.parameter_servers == K else shard(profile, K, sharding)
    steps = pack(profile, tensor_bytes=(extra[0], extra[1]), ranks=ranks(profile, policy, links), servers=dealt)
    return Graphs(profile, steps, links, K, policy)


def _check(
    workers: int, steps: int, synchronization: str, backup_workers: int, staleness_bound: int, confidence: float
) -> None:
    if workers < 1 or steps < 1:
        raise ModelError(f"simulate: workers and steps must be at least 1, got {workers!r} and {steps!r}")
    if synchronization not in MODES:
        raise ModelError(f"simulate: synchronization must be one of {', '.join(MODES)}, got {synchronization!r}")
    if not 0 <= backup_workers < workers:
        raise ModelError(f"simulate: backup_workers must be 0 to {workers - 1}, got {backup_workers!r}")
    if staleness_bound < 0:
        raise ModelError(f"simulate: staleness_bound must be >= 0 steps, got {staleness_bound!r}")
    if not 0 < confidence < 1:
        raise ModelError(f"simulate: confidence must be between 0 and 1, got {confidence!r}")


def _per_worker(name: str, values: Sequence[float], workers: int) -> np.ndarray:
    array = np.array(values, float)
    if array.shape != (workers,) or not (array > 0).all():
        raise ModelError(f"simulate: {name} must be {workers} numbers > 0, one per worker, got {values!r}")
    return array


def _capacities(
    profile: Profile,
    links: Links,
    bandwidth: float | None,
    workers: int,
    servers: int,
    worker_bandwidth: Sequence[float] | None,
) -> np.ndarray:
    """Payload bytes per second of the servers' and the workers' links, for `new_state`."""
    rates = np.array([links.transmit.rate, links.receive.rate])
    if bandwidth is not None:
        if not bandwidth > 0:
            raise ModelError(f"simulate: bandwidth must be > 0 bytes per second, got {bandwidth!r}")
        nominal = profile.cluster.bandwidth
        rates = rates * bandwidth / nominal if nominal else np.full(2, PAYLOAD_SHARE * bandwidth)
    capacities = np.repeat(rates[:, None], servers + workers, axis=1)
    if worker_bandwidth is not None:
        capacities[:, servers:] = _per_worker("worker_bandwidth", worker_bandwidth, workers)
    return capacities


def _apply_time(packed: Steps, servers: int) -> float:
    """Seconds in which the servers apply one synchronous step's gradients once they are all there."""
    updates = packed.kind == UPDATE
    seconds = np.bincount(packed.server[updates], weights=packed.duration[updates], minlength=servers)
    return float(seconds.max() / len(packed.pause))
