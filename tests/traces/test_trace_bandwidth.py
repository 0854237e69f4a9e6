"""One rule for other bandwidths: the closed network and the simulation answer alike."""

import itertools
import math

import msgspec
import numpy as np
import pytest
from by_hand import IDEAL, profile_of
from hypothesis import given
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel.traces import simulate, trace_throughput
from queuemodel.training import Operation
from queuemodel.training.bandwidth import LINK_EFFICIENCY, nominal_bandwidth, transfer_time

SIZES = [1_000_000, 4_000_000, 20_000_000, 10_000_000]
FAIR = {"loaded_trip": 0.0, "unfairness": 0.0}


def profile_at(nominal: float | None, rate: float, tensor_time: float = 0.0, compute: float = 0.05) -> qm.Profile:
    """Four tensors each way, one after the other; nothing overlaps."""
    operations, at = [], 0.0
    for i, size in enumerate(SIZES):
        at += size / rate + tensor_time
        operations.append(Operation("fetch", f"w{i}", 0.0, at, size))
    operations.append(Operation("compute", "step", at, at + compute, after=[0, 1, 2, 3]))
    fetch, at = at, at + compute
    for i, size in enumerate(SIZES):
        begun, at = at, at + size / rate + tensor_time
        operations.append(Operation("push", f"g{i}", begun, at, size, after=[4] if i == 0 else [4 + i]))
    profile = profile_of(operations)
    step = msgspec.structs.replace(profile.steps[0], fetch=fetch, compute=compute, push=fetch)
    cluster = qm.Cluster(bandwidth=nominal)
    return msgspec.structs.replace(profile, steps=[step] * 3, cluster=cluster)


def both(profile, bandwidth, workers):
    """Steps per second at ``workers``, by the closed network and by simulation."""
    network = qm.fit(profile).what_if(bandwidth=bandwidth).throughput([workers]).at(workers)
    settings = {"bandwidth": bandwidth, "workers": [workers], "steps": 200, "replications": 1}
    return network, float(trace_throughput(profile, **settings, **FAIR)[0, 0])


@pytest.mark.parametrize("nominal", [None, 1.25e8, 1.25e9])
def test_the_closed_network_and_the_simulation_agree_at_one_worker(nominal):
    for rate, bandwidth, tensor_time in itertools.product(
        [5e7, 1e8, 1.18e8], [1.25e7, 1.25e8, 1.25e9, 1.25e10], [0.0, 5e-3]
    ):
        network, simulated = both(profile_at(nominal, rate, tensor_time), bandwidth, 1)
        assert simulated == pytest.approx(network, rel=0.01), (rate, bandwidth, tensor_time)


def test_what_the_link_does_not_explain_limits_eight_workers_too():
    # 10 Gbit/s nominal, 0.1 GB/s observed: serialization is the bottleneck, and a faster link hardly helps
    profile = profile_at(1.25e9, 1e8)
    network, simulated = both(profile, 1.25e10, 8)
    assert simulated == pytest.approx(network, rel=0.15)
    assert simulated <= 1 / (sum(SIZES) * (1e-8 - 1 / (LINK_EFFICIENCY * 1.25e9)))


@given(
    seconds=st.floats(0, 1e3),
    size=st.floats(0, 1e12),
    nominal=st.none() | st.floats(1e3, 1e11),
    bandwidth=st.floats(1e3, 1e11),
)
def test_transfers_are_never_faster_than_the_link_nor_than_what_it_does_not_explain(seconds, size, nominal, bandwidth):
    if bandwidth == nominal:
        return
    link = size / (LINK_EFFICIENCY * bandwidth)
    took = float(transfer_time(seconds, size, nominal=nominal, bandwidth=bandwidth))
    host = 0.0 if nominal is None else max(seconds - size / (LINK_EFFICIENCY * nominal), 0.0)
    assert took == pytest.approx(host + link)


def test_the_profiled_bandwidth_changes_nothing():
    assert transfer_time(3.0, 1.0, nominal=1e6, bandwidth=1e6) == pytest.approx(3.0)
    assert transfer_time(np.array([1.0, 2.0]), 5.0, nominal=1e6, bandwidth=1e6) == pytest.approx([1.0, 2.0])
    profile = profile_at(1.25e8, 1.1e8, 1e-3)
    same, plain = ({"bandwidth": b, **IDEAL} for b in (1.25e8, None))
    runs = [simulate(profile, workers=2, steps=20, **settings).throughput for settings in (same, plain)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("hosts", "bandwidth", "nominal"),
    [
        ({"worker:0": "10.0.0.1"}, None, None),
        ({}, None, None),
        ({"worker:0": "localhost:1", "ps:0": "127.0.0.1:2"}, None, math.inf),
        ({"worker:0": "localhost:1", "ps:0": "10.0.0.1"}, None, None),
        ({"worker:0": "gpu-1", "ps:0": "gpu-1"}, None, math.inf),
        ({"worker:0": "[fe80::1]:1", "ps:0": "[fe80::1]:2"}, None, math.inf),
        ({"worker:0": "gpu-1:2222", "ps:0": "gpu-2:2222"}, None, None),
        ({"worker:0": "fe80::1", "ps:0": "fe80::2"}, None, None),
        ({"worker:0": "localhost:1"}, 1e9, 1e9),
    ],
)
def test_loopback_has_no_link(hosts, bandwidth, nominal):
    source = qm.Source(framework="by hand", hosts=hosts)
    profile = msgspec.structs.replace(profile_at(bandwidth, 1e8), source=source)
    assert nominal_bandwidth(profile) == nominal
