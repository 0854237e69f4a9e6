"""The closed network of steps on several servers against simulations of the same steps."""

import msgspec
import numpy as np
import pytest

import queuemodel as qm
from queuemodel.profile import Operation
from queuemodel.simulator import simulate_operations
from tests.oracles.by_hand import IDEAL, RATE, profile_of

HEAVY, LIGHT = (0.45, 0.1, 0.45), (0.3, 0.4, 0.3)  # seconds of fetching, computing and pushing


def profile_with(shares, phases, count=300):
    """Steps that vary, of one tensor on each server: where everything repeats, phases never mix."""
    drawn = np.random.default_rng(1).gamma([11, 4, 11], 1 / np.array([11, 4, 11]), (count, 3))
    times, every, servers = drawn / drawn.mean(axis=0) * phases, [], range(len(shares))
    for fetch, compute, push in times:
        a, b = fetch, fetch + compute
        fetches = [Operation("fetch", f"w{i}", 0.0, a, round(fetch * shares[i] * RATE), server=i) for i in servers]
        pushes = [
            Operation("push", f"g{i}", b, b + push, round(push * shares[i] * RATE), server=i, after=[len(shares)])
            for i in servers
        ]
        every.append([*fetches, Operation("compute", "step", a, b, after=list(servers)), *pushes])
    profile = profile_of(*every, servers=len(shares))
    steps = [
        msgspec.structs.replace(one, fetch=fetch, compute=compute, push=push)
        for one, (fetch, compute, push) in zip(profile.steps, times.tolist(), strict=True)
    ]
    sizes = [round(1000 * share) for share in shares]
    job = qm.Job(batch_size=1, parameter_bytes=sum(sizes), tensors=len(shares), shard_bytes=sizes)
    cluster = qm.Cluster(parameter_servers=len(shares), congestion_control="cubic")
    return msgspec.structs.replace(profile, steps=steps, job=job, cluster=cluster)


@pytest.mark.parametrize(
    ("shares", "most"),
    [([1.0], 0.04), ([0.5] * 2, 0.04), ([0.25] * 4, 0.04), ([0.3, 0.7], 0.13), ([0.28, 0.08, 0.64], 0.13)],
)
@pytest.mark.parametrize("phases", [HEAVY, LIGHT])
def test_several_servers_agree_with_simulation(shares, most, phases):
    """But for the simulation's own error of about 1 %."""
    profile, workers = profile_with(shares, phases), [1, 4, 24]
    runs = [simulate_operations(profile, workers=n, steps=6_000 // n, **IDEAL).throughput for n in workers]
    off = qm.fit(profile).throughput(workers).steps_per_second / runs - 1
    assert off.min() > (-0.04 if len(set(shares)) == 1 else -0.02)
    assert off.max() < most
    assert abs(off[0]) < 0.01
    assert abs(off[-1]) < 0.02
