"""The closed network's rules against simulations of the same network: several servers, and workers who keep apart.

`ParallelServers` is internal to `queuemodel.training`; these tests are removed together with it.
"""

import numpy as np
import pytest
from by_hand import IDEAL, RATE, profile_of, serial

import queuemodel as qm
from queuemodel.traces import simulate
from queuemodel.training import Operation
from queuemodel.training.parallel_servers import ParallelServers

FETCH, COMPUTE, PUSH = 0.42, 0.45, 0.42


def layered(rng, layers=8, compute=COMPUTE):
    """A step that computes with what has arrived, in random order, and sends gradients as they are made."""
    operations, arrived = [], {}
    for i, layer in enumerate(rng.permutation(layers), 1):
        arrived[layer] = len(operations)
        operations.append(Operation("fetch", f"w{layer}", 0.0, i * FETCH / layers, round(FETCH / layers * RATE)))
    now, before = FETCH, []
    for layer in range(layers):
        end = now + compute / 3 / layers * rng.gamma(25, 1 / 25)
        operations.append(Operation("compute", f"f{layer}", now, end, after=[arrived[layer], *before]))
        now, before = end, [len(operations) - 1]
    for layer in reversed(range(layers)):
        end = now + 2 * compute / 3 / layers * rng.gamma(25, 1 / 25)
        operations.append(Operation("compute", f"b{layer}", now, end, after=before))
        now, before = end, [len(operations) - 1]
        sent = now + PUSH / layers
        operations.append(Operation("push", f"g{layer}", now, sent, round(PUSH / layers * RATE), after=before))
    return operations


def by_chance(D, think_time, population):
    """Throughput by exact mean-value analysis, which knows no phases."""
    stations = [qm.Station(name, service_time=d) for name, d in zip(("transmit", "receive"), D, strict=True)]
    return qm.solve(qm.Network(stations, think_time=think_time), population=population).throughput


def two_workers(steps):
    """Simulated throughput of two workers, of one twice, and by exact mean-value analysis, which knows no phases."""
    profile = profile_of(*steps)
    runs = [[simulate(profile, workers=n, steps=200, seed=s, **IDEAL).throughput for s in range(8)] for n in (1, 2)]
    one, two = np.mean(runs, axis=1)
    D = np.array([FETCH, PUSH])
    return two, 2 * one, by_chance(D, 1 / one - D.sum(), 2)


def test_overlap_drives_two_workers_apart():
    rng = np.random.default_rng(1)
    two, undisturbed, chance = two_workers([layered(rng) for _ in range(40)])
    assert two > 0.9 * undisturbed > 1.1 * chance


def test_four_workers_keep_apart_as_far_as_links_are_free():
    """Links that one worker uses for a fifth of its step: the rule, and as a control chance."""
    rng = np.random.default_rng(1)
    profile = profile_of(*[layered(rng, compute=4 * COMPUTE) for _ in range(40)])
    one, four = (simulate(profile, workers=n, steps=1600 // n, **IDEAL).throughput for n in (1, 4))
    D = np.array([FETCH, PUSH])
    settled = float(ParallelServers(settled=0.8).solve(D, np.array(1 / one - D.sum()), np.array([4])).X[0])
    assert settled / four == pytest.approx(1, abs=0.07)
    assert by_chance(D, 1 / one - D.sum(), 4) / four < 0.91


def test_steps_without_overlap_meet_by_chance():
    rng = np.random.default_rng(1)
    steps = [serial(fetch=FETCH, compute=COMPUTE * rng.gamma(4, 1 / 4), push=PUSH) for _ in range(40)]
    two, _, chance = two_workers(steps)
    assert two == pytest.approx(chance, rel=0.03)


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
