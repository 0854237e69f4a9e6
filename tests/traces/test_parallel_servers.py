"""The closed network of several servers against the simulation of the same network: links that are shared fairly."""

import numpy as np
import pytest
from by_hand import IDEAL, RATE, profile_of

from queuemodel.traces import simulate
from queuemodel.training import Operation
from queuemodel.training.rules import ParallelServers

HEAVY, LIGHT = (0.45, 0.1, 0.45), (0.3, 0.4, 0.3)  # seconds of fetching, computing and pushing


def steps_of(shares, phases, count=300):
    """Steps that vary, of one tensor on each server: where everything repeats, phases never mix."""
    rng = np.random.default_rng(1)
    drawn = rng.gamma([11, 4, 11], 1 / np.array([11, 4, 11]), (count, 3))
    every, servers = [], range(len(shares))
    for fetch, compute, push in drawn / drawn.mean(axis=0) * phases:
        a, b = fetch, fetch + compute
        fetches = [Operation("fetch", f"w{i}", 0.0, a, round(fetch * shares[i] * RATE), server=i) for i in servers]
        step = Operation("compute", "step", a, b, after=list(servers))
        pushes = [
            Operation("push", f"g{i}", b, b + push, round(push * shares[i] * RATE), server=i, after=[len(shares)])
            for i in servers
        ]
        every.append([*fetches, step, *pushes])
    return every


def errors(shares, phases, workers):
    """Relative errors of the rule's throughput; the simulation's own error is about 1 %."""
    fetch, compute, push = phases
    D = np.outer(shares, [fetch, push]).ravel()
    X = ParallelServers(len(shares)).solve(D, np.array(compute), np.array(workers)).X
    profile = profile_of(*steps_of(shares, phases), servers=len(shares))
    runs = [simulate(profile, workers=n, steps=6_000 // n, **IDEAL).throughput for n in workers]
    return X / runs - 1


@pytest.mark.parametrize("servers", [1, 2, 3, 4])
@pytest.mark.parametrize("phases", [HEAVY, LIGHT])
def test_servers_alike(servers, phases):
    workers = [1, 4, 12]
    assert np.abs(errors([1 / servers] * servers, phases, workers)).max() < 0.04


@pytest.mark.parametrize("shares", [[0.3, 0.7], [0.28, 0.08, 0.64], [0.2, 0.3, 0.5]])
def test_uneven_servers_are_taken_for_a_little_too_fast(shares):
    for phases, most in ((HEAVY, 0.13), (LIGHT, 0.07)):
        off = errors(shares, phases, [1, 4, 24])
        assert off.min() > -0.02
        assert off.max() < most
        assert abs(off[0]) < 0.01
        assert abs(off[-1]) < 0.02
