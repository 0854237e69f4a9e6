"""Each rule against exact networks, closed forms and what every rule must keep."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel.solvers import knee_throughput
from queuemodel.training.flights import FLIGHT, Flights
from queuemodel.training.rules import ClosedNetwork, Knee, ParallelServers, UnequalWorkers, rule_for

DEMANDS = st.lists(st.floats(0.01, 2.0), min_size=1, max_size=3).map(np.array)
OWN = st.floats(0.0, 5.0)


@given(D=DEMANDS, Z=OWN, population=st.integers(1, 40))
def test_the_closed_network_is_solved_exactly(D, Z, population):
    network = qm.Network([qm.Station(str(k), service_time=d) for k, d in enumerate(D.tolist())], think_time=Z)
    exact = qm.solve(network, population=population)
    pace = ClosedNetwork().solve(D, np.array(Z), np.array([population]))
    assert pace.X[0] == pytest.approx(exact.throughput, rel=1e-9)
    np.testing.assert_allclose(pace.R[0], exact.residence_time, rtol=1e-9)


@settings(max_examples=50)
@given(D=DEMANDS, Z=st.lists(st.sampled_from([0.0, 0.01, 0.3, 1.0, 7.0, 40.0]), min_size=1, max_size=6))
def test_unequal_workers_are_job_classes(D, Z):
    classes = [qm.JobClass(str(i), population=1, think_time=z) for i, z in enumerate(Z)]
    network = qm.Network([qm.Station(str(k), service_time=d) for k, d in enumerate(D.tolist())], classes=classes)
    exact = qm.solve(network)
    pace = UnequalWorkers().solve(D, np.array(Z), np.array([len(Z)]))
    assert pace.X[0] == pytest.approx(exact.throughput, rel=1e-9)
    np.testing.assert_allclose(pace.X[0] * pace.R[0], exact.queue_length, rtol=1e-8)


@given(D=DEMANDS, Z=OWN, population=st.integers(1, 60))
def test_unequal_workers_that_are_equal(D, Z, population):
    populations = np.unique([1, (population + 1) // 2, population])
    unequal = UnequalWorkers().solve(D, np.full(population, Z), populations)
    equal = ClosedNetwork().solve(D, np.array(Z), populations)
    for one, other in zip(unequal, equal, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)


def test_rules_take_many_demands_at_once():
    rng = np.random.default_rng(1)
    D, Z = rng.uniform(0.01, 1.0, (5, 4)), rng.uniform(0.0, 2.0, (5, 7))
    populations = np.array([1, 3, 7])
    for rule, own in (
        (ClosedNetwork(), Z[:, 0]),
        (ParallelServers(2), Z[:, 0]),
        (Knee(0.3, ClosedNetwork()), Z[:, 0]),
        (UnequalWorkers(), Z),
    ):
        together = rule.solve(D, own, populations)
        for b in range(5):
            for one, all_of_them in zip(rule.solve(D[b], own[b], populations), together, strict=True):
                np.testing.assert_allclose(one, all_of_them[:, b], rtol=1e-12)


def test_servers_without_demand_hold_nobody_up():
    pace = UnequalWorkers().solve(np.zeros(2), np.array([1.0, 2.0, 4.0]), np.array([1, 3]))
    np.testing.assert_allclose(pace.X, [1.0, 1.75], rtol=1e-9)


@given(D=DEMANDS, Z=OWN, population=st.integers(1, 40))
def test_one_of_several_servers_is_exact_mva(D, Z, population):
    populations = np.arange(1, population + 1)
    parallel = ParallelServers(1).solve(D, np.array(Z), populations)
    np.testing.assert_allclose(parallel.X, ClosedNetwork().solve(D, np.array(Z), populations).X, rtol=1e-12)


def keeps_bounds_and_littles_law(pace, D, Z, populations):
    assert pace.X[0] == pytest.approx(1 / (D.sum() + Z))  # of one worker, whatever others would do
    assert np.all(np.diff(pace.X) >= 0)
    assert np.all(np.minimum(populations / (D.sum() + Z), 1 / D.max()) * (1 + 1e-12) >= pace.X)
    np.testing.assert_allclose(pace.R.sum(axis=-1) + pace.Z, populations / pace.X, rtol=1e-9)


@given(D=st.lists(st.floats(0.01, 2.0), min_size=6, max_size=6).map(np.array), Z=OWN)
def test_several_servers_keep_bounds_and_littles_law(D, Z):
    populations = np.array([1, 2, 5, 30])
    keeps_bounds_and_littles_law(ParallelServers(2).solve(D, np.array(Z), populations), D, Z, populations)


@settings(max_examples=60)
@given(
    servers=st.integers(1, 5),
    Z=st.floats(0.05, 5.0),
    fetch=st.floats(0.01, 2.0),
    push=st.floats(0.01, 2.0),
    shares=st.lists(st.floats(0.1, 1.0), min_size=5, max_size=5),
)
def test_servers_in_parallel_are_stations_that_more_workers_use_better(servers, Z, fetch, push, shares):
    """Against normalizing constants: of j workers each has a j-th of the busiest server, and hides the j - 1 next."""
    split = np.array(shares[:servers]) / sum(shares[:servers])
    largest = np.sort(split)[::-1]
    rates = [j * largest[0] / (j * largest[0] + largest[j:].sum()) for j in range(1, 13)]
    stations = [qm.Station(name, service_time=D * largest[0], rates=rates) for name, D in (("f", fetch), ("p", push))]
    exact = qm.solve(qm.Network(stations, think_time=Z), population=12)
    pace = ParallelServers(servers).solve(np.outer(split, [fetch, push]).ravel(), np.array(Z), np.array([12]))
    assert pace.X[0] == pytest.approx(exact.throughput, rel=1e-6)


@settings(max_examples=60)
@given(
    D=st.lists(st.floats(0.01, 2.0), min_size=6, max_size=6).map(np.array),
    Z=OWN,
    servers=st.sampled_from([1, 2, 3]),
    settled=st.floats(0.1, 1.0),
)
def test_settled_workers_meet_less(D, Z, servers, settled):
    populations = np.array([1, 2, 3, 7, 30])
    chance, apart = (ParallelServers(servers, how).solve(D, np.array(Z), populations) for how in (0.0, settled))
    for pace in (chance, apart):
        keeps_bounds_and_littles_law(pace, D, Z, populations)
    assert np.all(apart.X >= chance.X * (1 - 1e-4))  # when saturated both are at the limit


def test_two_settled_workers_meet_where_both_times_are_taken():
    """One link: the second finds the first there with probability U, and at the time that it is driven to as well."""
    D, Z, U = 0.4, 0.6, 0.4
    X = ParallelServers(settled=1.0).solve(np.array([D]), np.array(Z), np.array([2])).X[0]
    assert pytest.approx(2 / (Z + D * (1 + U**2))) == X


def test_two_settled_workers_meet_half_as_much_under_bbr():
    """Windows that fill their links leave but the phases."""
    D, Z = 0.4, 0.2
    windows = Flights((FLIGHT, FLIGHT), buffer=D)
    X = ParallelServers(settled=1.0, flights=windows).solve(np.array([D, D]), np.array(Z), np.array([2])).X[0]
    assert pytest.approx(2 / (Z + 2 * D * (1 + 0.4 / 2))) == X


@given(D=DEMANDS, Z=OWN, width=st.floats(0.05, 0.65), servers=st.sampled_from([1, 2]))
def test_the_knee_is_the_formula_and_keeps_littles_law(D, Z, width, servers):
    D = np.tile(D, servers)
    populations = np.array([1, 2, 8, 40])
    pace = rule_for(servers=servers, unequal=False, width=width).solve(D, np.array(Z), populations)
    formula = knee_throughput(populations, cycle=D.sum() + Z, demand=D.max(), width=width)
    np.testing.assert_allclose(pace.X, formula, rtol=1e-12)
    total = pace.R.sum(axis=-1) + pace.Z
    np.testing.assert_allclose(total, populations / pace.X, rtol=1e-6)


def test_waiting_at_the_knee_is_divided_as_sharing_divides_it():
    D, Z, populations = np.array([0.3, 0.2, 0.05]), np.array(0.5), np.array([2, 6])
    waiting = [rule.solve(D, Z, populations).R - D for rule in (Knee(0.25, ClosedNetwork()), ClosedNetwork())]
    knee, sharing = (part / part.sum(axis=-1, keepdims=True) for part in waiting)
    np.testing.assert_allclose(knee, sharing, rtol=1e-6)
    assert np.all(waiting[0] < waiting[1])


def test_what_no_rule_covers_is_refused():
    for servers, width in ((2, None), (1, 0.3), (2, 0.3)):
        with pytest.raises(qm.ModelError, match="no rule"):
            rule_for(servers=servers, unequal=True, width=width)
