"""Why two workers meet less than by chance: computation that overlaps transfers drives them apart."""

import numpy as np
import pytest
from by_hand import IDEAL, RATE, profile_of, serial

import queuemodel as qm
from queuemodel.data import example_profile, example_throughputs
from queuemodel.traces import simulate
from queuemodel.training import Operation
from queuemodel.training.rules import ClosedNetwork, ParallelServers

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


def two_workers(steps):
    """Simulated throughput of two workers, of one twice, and by exact mean-value analysis, which knows no phases."""
    profile = profile_of(*steps)
    runs = [[simulate(profile, workers=n, steps=200, seed=s, **IDEAL).throughput for s in range(8)] for n in (1, 2)]
    one, two = np.mean(runs, axis=1)
    D = np.array([FETCH, PUSH])
    chance = ClosedNetwork().solve(D, np.array(1 / one - D.sum()), np.array([2])).X[0]
    return two, 2 * one, chance


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
    settled, chance = (
        rule.solve(D, np.array(1 / one - D.sum()), np.array([4])).X[0] / four - 1
        for rule in (ParallelServers(settled=0.8), ClosedNetwork())
    )
    assert abs(settled) < 0.07
    assert chance < -0.09


def test_steps_without_overlap_meet_by_chance():
    rng = np.random.default_rng(1)
    steps = [serial(fetch=FETCH, compute=COMPUTE * rng.gamma(4, 1 / 4), push=PUSH) for _ in range(40)]
    two, _, chance = two_workers(steps)
    assert two == pytest.approx(chance, rel=0.03)


@pytest.mark.parametrize("name", ["alexnet-60", "resnet50-60"])
def test_the_model_is_nearer_to_what_was_measured_than_chance_is(name):
    model = qm.fit(example_profile(name))
    assert 0.5 < model.fitted.settled < 1.0
    points = [point for point in example_throughputs(name) if point.workers > 1]
    workers, measured = np.array([(p.workers, p.steps_per_second) for p in points]).T
    settled = model.throughput(workers.astype(int)).steps_per_second
    chance = ClosedNetwork().solve(model.service_demand, model.demands.worker, workers.astype(int)).X
    off, before = (np.abs(X / measured - 1).mean() for X in (settled, chance))
    assert off < 0.07
    assert off < before
