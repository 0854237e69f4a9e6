"""Approximations: as near as measured, never impossible, waiting where it is, and their published formulas."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuemodel import queueing as qn

METHODS = ["recursion", "bard-schweitzer", "linearizer"]
RNG = np.random.default_rng(0)
TWO_CLASSES = [
    qn.Network.from_demands(
        RNG.uniform(0.1, 1, (3, 2)), population=RNG.integers(1, 8, 2).tolist(), think_time=RNG.choice([0, 1.0], 2)
    )
    for _ in range(25)
]


NEAR = [("bard-schweitzer", 0.045, 0.13, 0.2), ("linearizer", 0.0024, 0.009, 0.016)]


@pytest.mark.parametrize(("method", "mean", "largest", "queues"), NEAR)
def test_errors_are_as_documented(method, mean, largest, queues):
    """Two rounds of corrections fewer would leave queue lengths as wrong as these bounds say."""
    errors, lengths = [], []
    for network in TWO_CLASSES:
        exact, s = qn.solve(network), qn.solve(network, solver=qn.ApproximateMVA(method))
        errors.append(np.abs(s.class_throughput / exact.class_throughput - 1).max())
        lengths.append(np.abs(s.class_queue_length - exact.class_queue_length).max())
    assert 0 < np.mean(errors) <= mean
    assert np.max(errors) <= largest
    assert np.mean(lengths) < queues


def test_schweitzer_fixed_point_by_hand():
    """A customer meets (N-1)/N of its own class's queue, and all of the others'."""
    for network in TWO_CLASSES[:5]:
        s, N = qn.solve(network, solver=qn.ApproximateMVA("bard-schweitzer")), network.populations
        Q = s.class_queue_length
        met = Q.sum(axis=1, keepdims=True) - Q / N
        np.testing.assert_allclose(s.class_residence_time, network.service_demand * (1 + met), rtol=1e-9)
        np.testing.assert_allclose(s.class_throughput * (network.think_times + s.class_residence_time.sum(axis=0)), N)


@pytest.mark.parametrize("m", [2, 3, 8])
def test_several_servers_wait_as_published(m):
    """Suri, Sahu and Vernon (2007): D + D/m A rho**(4.464 (m**0.676 - 1)), by the fixed point and by the recursion."""
    D, Z, power = 0.6, 1.0, 4.464 * (m**0.676 - 1)
    network = qn.Network([qn.Station("q", service_time=D, servers=m)], think_time=Z)
    s = qn.solve(network, population=9, solver=qn.ApproximateMVA("bard-schweitzer"))
    met, rho = s.queue_length[0] * 8 / 9, s.throughput * D / m * 8 / 9  # of the others
    assert s.residence_time[0] == pytest.approx(D + D / m * met * rho**power, rel=1e-9)
    s = qn.solve(network, population=2, solver=qn.ApproximateMVA())
    R = D + D / m * D / (D + Z) * (s.throughput * D / m) ** power  # the other is there D / (D + Z) of the time
    assert s.throughputs[0] == pytest.approx(1 / (D + Z))
    assert (s.residence_time[0], s.throughput) == pytest.approx((R, 2 / (R + Z)), rel=1e-9)


@pytest.mark.parametrize(("slow", "N", "service"), [(2, 7, 1.5), (2, 7, 1.7), (8, 38, 0.5)])
def test_oscillating_iteration_settles(slow, N, service):
    """Full steps go to and fro between an empty and a crowded station, for ever: a warning is an error here."""
    speed = [1.0] * slow + [50.0] * N
    network = qn.Network([qn.Station("q", service_time=service, rates=speed)], think_time=1.0)
    s = qn.solve(network, population=N, solver=qn.ApproximateMVA("bard-schweitzer"))
    there = 1 + s.queue_length[0] * (N - 1) / N
    assert s.residence_time[0] == pytest.approx(service * there / np.interp(there, range(1, len(speed) + 1), speed))
    assert s.throughput * (1.0 + s.residence_time[0]) == pytest.approx(N)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scv", [(0.0, 4.0), (3.0, 0.25), (1.0, 1.0)])
def test_fcfs_waits_for_residual_service(scv, method):
    """Reiser (1979): at a station hardly busy whoever is in service needs S (1 + scv) / 2 more."""
    S, N, Z = np.array([0.2, 0.5]), np.array([6, 15]), 500.0
    times, spread = dict(zip("ab", S.tolist(), strict=True)), dict(zip("ab", scv, strict=True))
    classes = [qn.JobClass(c, population=n) for c, n in zip("ab", N.tolist(), strict=True)]
    line = qn.Station("q", service_time=times, discipline="fcfs", scv=spread)
    s = qn.solve(qn.Network([line], classes=classes, think_time=Z), solver=qn.ApproximateMVA(method))
    left = S * (1 + np.array(scv)) / 2
    waits = [((N - (np.arange(2) == c)) * S / Z * left).sum() for c in range(2)]  # others in service, and how long
    assert s.class_residence_time[0] - S == pytest.approx(waits, rel=0.05)
    alone = qn.Network([qn.Station("q", service_time=0.5, discipline="fcfs", scv=scv[1])], think_time=Z)
    R = qn.solve(alone, population=15, solver=qn.ApproximateMVA(method)).residence_time[0]
    assert pytest.approx(14 * 0.5 / Z * left[1], rel=0.05) == R - 0.5


@pytest.mark.parametrize("method", ["recursion", "bard-schweitzer"])
def test_infeasible_throughput_is_raised(method):
    varied = {"service_time": 0.3, "discipline": "fcfs", "scv": 25.0}
    network = qn.Network([qn.Station("a", **varied), qn.Station("b", **varied)])
    s, truth = (qn.solve(network, population=4, solver=one) for one in (qn.ApproximateMVA(method), qn.MarkovChain()))
    assert s.throughput == pytest.approx(float(qn.bounds(network, 4).lower))
    assert s.throughput < truth.throughput
    assert "held to the asymptotic bounds" in s.reason
    assert s.queue_length == pytest.approx([2, 2])


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_excess_waits_at_the_bottleneck(order):
    """Three servers, for whom the approximation has too little waiting: other queues stay those of one throughput."""
    demands = {"x": 0.15, "b": 1.5, "y": 0.25}
    stations = [qn.Station(name, service_time=d, servers=3 if name == "b" else 1) for name, d in demands.items()]
    network = qn.Network([stations[k] for k in order])
    s = qn.solve(network, population=8, solver=qn.ApproximateMVA("bard-schweitzer"))
    R = dict(zip(network.names, s.residence_time, strict=True))
    before = [(R[k] / demands[k] - 1) / (R[k] * 7 / 8) for k in "xy"]  # R = D (1 + 7/8 X R)
    assert s.throughput == pytest.approx(2.0)
    assert before[0] == pytest.approx(before[1], rel=1e-6)
    assert before[0] > 2.0
    assert R["b"] == pytest.approx(4.0 - R["x"] - R["y"])


kinds = st.sampled_from([
    {"discipline": "fcfs", "scv": 0.0}, {"discipline": "fcfs", "scv": 25.0}, {"discipline": "fcfs", "servers": 2},
    {"servers": 3}, {"discipline": "lifo-pr", "servers": 2, "scv": 4.0}, {"rates": [1.0, 3.0, 3.5, *[4.0] * 20]},
    {"servers": math.inf},
])  # fmt: skip


made_of = st.lists(st.tuples(kinds, st.floats(0.05, 2.0), st.floats(0.05, 2.0)), min_size=1, max_size=3)


@settings(max_examples=25)
@given(made_of, st.sampled_from([0.0, 0.5]), st.tuples(st.integers(1, 10), st.integers(0, 10)))
def test_no_approximation_is_impossible(made, Z, counts):
    def network(*names):
        times = [dict(zip(names, two, strict=True)) if names else two[0] for _, *two in made]
        kinds = enumerate(zip(times, (kind for kind, *_ in made), strict=True))
        stations = [qn.Station(f"s{k}", service_time=time, **kind) for k, (time, kind) in kinds]
        return qn.Network(stations, classes=[*map(qn.JobClass, names)], think_time=Z)

    alone, both, N = network(), network("u", "v"), sum(counts)
    for method in METHODS:
        solver = qn.ApproximateMVA(method)
        s, bounds = qn.solve(alone, population=N, solver=solver), qn.bounds(alone, N)
        assert bounds.lower * (1 - 1e-6) <= s.throughput <= bounds.upper * (1 + 1e-6)
        c = qn.solve(both, population=counts, solver=solver)
        for solution in (s, c):
            assert not solution.exact
            assert np.all(solution.utilization[~alone.is_delay] <= 1 + 1e-6), solution
            assert np.all(solution.class_queue_length >= 0)
        np.testing.assert_allclose(c.class_queue_length.sum(axis=0) + c.class_throughput * Z, counts, rtol=1e-5)
        assert s.queue_length.sum() + s.throughput * Z == pytest.approx(N, rel=1e-5)
        if counts[1] == 0:
            several = method == "recursion" and any(kind.get("servers") in (2, 3) for kind, _, _ in made)
            assert c.class_throughput[0] == pytest.approx(s.throughput, rel=0.25 if several else 0.05)
