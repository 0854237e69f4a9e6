"""A curve of data-parallel training on 1 to 1,024 nodes and 160 buckets; its rounds beside the same model in SimPy.

python -m benchmarks.rounds
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import simpy

from queuemodel import example_profile
from queuemodel.models import AllReduceModel, fit_rounds, round_time
from queuemodel.models.rounds.times import NodeLink, message_costs
from queuemodel.transport.collectives import Ring

BUCKETS, NODES, ROUNDS = 160, 64, 200


def in_simpy(ready: np.ndarray, work: np.ndarray, latency: np.ndarray) -> list[float]:
    """Ends of rounds, each bucket a process: it waits for the slowest rank, then for the network."""
    ends = []
    for slowest in ready.max(axis=1):
        env = simpy.Environment()
        network = simpy.Resource(env)

        def bucket(at: float, seconds: float, env=env, network=network) -> Iterator[simpy.Event]:
            yield env.timeout(at)
            with network.request() as turn:
                yield turn
                yield env.timeout(seconds)

        for at, seconds in zip(slowest.tolist(), (work + latency).tolist(), strict=True):
            env.process(bucket(at, seconds))
        env.run()
        ends.append(env.now)
    return ends


def seconds(run: object, times: int = 5) -> float:
    """Median processor time."""
    found = []
    for _ in range(times):
        begun = time.process_time()
        run()  # type: ignore[operator]
        found.append(time.process_time() - begun)
    return statistics.median(found)


def main() -> None:
    """Print both figures."""
    rng, fitted = np.random.default_rng(0), fit_rounds(example_profile("ddp-alexnet-40"))
    recorded = np.sort(rng.uniform(0.2, 0.45, (24, BUCKETS)), axis=1)
    sizes = rng.uniform(1e4, 5e4, BUCKETS)
    model = AllReduceModel(replace(fitted, ready=recorded, bucket_bytes=sizes))
    print(f"1 to 1,024 nodes, {BUCKETS} buckets: {seconds(lambda: model.throughput(range(1, 1025))):.2f} s")
    ready = recorded[rng.integers(24, size=(ROUNDS, NODES))]
    link = NodeLink(fitted.bandwidth, fitted.latency, fitted.buffer)
    work, latency = message_costs(sizes, Ring(), NODES, link)
    computed = np.zeros(ROUNDS)
    np.testing.assert_allclose(
        round_time(ready.max(axis=1), computed, work, latency), in_simpy(ready, work, latency), rtol=1e-9
    )
    ours = seconds(lambda: round_time(ready.max(axis=1), computed, work, latency))
    theirs = seconds(lambda: in_simpy(ready, work, latency))
    print(f"{ROUNDS} rounds of {NODES} nodes: {1e3 * ours:.1f} ms, SimPy {theirs:.2f} s, {theirs / ours:,.0f} times")


if __name__ == "__main__":
    main()
