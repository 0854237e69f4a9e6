"""The closed network's rules against simulations of the same network: several servers, and workers who keep apart.

`ParallelServers` is internal to `queuemodel.training`; these tests are removed together with it.
"""

import numpy as np
import pytest
from by_hand import IDEAL, RATE, profile_of, serial

import queuemodel as qm
from queuemodel.traces import simulate
from queuemodel.training import Operation
from queuemodel.training.rules import ParallelServers

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


def runs_of(steps, workers, times=8):
    """Mean simulated throughput of one worker and of so many, and the network's by chance."""
    profile = profile_of(*steps)
    one, more = (
        np.mean([simulate(profile, workers=n, steps=400 // n, seed=s, **IDEAL).throughput for s in range(times)])
        for n in (1, workers)
    )
    D = np.array([FETCH, PUSH])
    return one, more, by_chance(D, 1 / one - D.sum(), workers)


def test_overlap_drives_workers_apart_as_far_as_links_are_free():
    rng = np.random.default_rng(1)
    one, two, chance = runs_of([layered(rng) for _ in range(40)], 2)
    assert two > 0.9 * 2 * one > 1.1 * chance
    one, four, chance = runs_of([layered(rng, compute=4 * COMPUTE) for _ in range(40)], 4)
    think_time = np.array(1 / one - FETCH - PUSH)
    settled = float(ParallelServers(settled=0.8).solve(np.array([FETCH, PUSH]), think_time, np.array([4])).X[0])
    assert settled / four == pytest.approx(1, abs=0.07)
    assert chance / four < 0.91
    steps = [serial(fetch=FETCH, compute=COMPUTE * rng.gamma(4, 1 / 4), push=PUSH) for _ in range(40)]
    _, two, chance = runs_of(steps, 2)  # without overlap they meet by chance
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


@pytest.mark.parametrize(
    ("shares", "most"),
    [([1.0], 0.04), ([0.5] * 2, 0.04), ([0.25] * 4, 0.04), ([0.3, 0.7], 0.13), ([0.28, 0.08, 0.64], 0.13)],
)
def test_several_servers_are_right_and_uneven_ones_a_little_too_fast(shares, most):
    for phases in (HEAVY, LIGHT):
        off = errors(shares, phases, [1, 4, 24])
        assert off.min() > (-0.04 if len(set(shares)) == 1 else -0.02)
        assert off.max() < most
        assert abs(off[0]) < 0.01
        assert abs(off[-1]) < 0.02
