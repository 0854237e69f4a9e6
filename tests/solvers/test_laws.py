"""Laws that hold for every network, on random ones; approximations and simulation against the truth, with controls."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm

demand = st.floats(1e-3, 10.0)
think = st.sampled_from([0.0, 0.3, 7.0])


@st.composite
def networks(draw):
    """Single class, queues, several servers, delays."""
    K = draw(st.integers(1, 4))
    servers = [draw(st.sampled_from([1, 1, 2, 5, math.inf])) for _ in range(K)]
    return qm.Network.from_demands([draw(demand) for _ in range(K)], servers=servers, think_time=draw(think))


@st.composite
def class_networks(draw):
    C, K = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    D = [[draw(demand) for _ in range(C)] for _ in range(K)]
    return qm.Network.from_demands(
        D,
        servers=[draw(st.sampled_from([1, 1, 3])) for _ in range(K)],
        population=[draw(st.integers(1, 5)) for _ in range(C)],
        think_time=[draw(think) for _ in range(C)],
    )


@settings(max_examples=200)
@given(network=networks(), N=st.integers(1, 30))
def test_single_class_laws(network, N):
    s = qm.solve(network, population=N)
    X, D = s.throughputs, network.service_demand
    n = np.arange(1, N + 1)
    m = np.array([1.0 if k.is_delay else k.servers for k in network.stations])
    np.testing.assert_allclose((X[:, None] * s.residence_times).sum(axis=1) + X * network.think_time, n, rtol=1e-10)
    np.testing.assert_allclose(s.utilization, s.throughput * D / m, rtol=1e-12)
    assert np.all(s.utilization[~network.is_delay] <= 1 + 1e-12)
    assert np.all(np.diff(X) >= 0)  # more customers never do less
    bounds = qm.bounds(network, n)
    assert np.all(bounds.lower <= X * (1 + 1e-12))
    assert np.all(bounds.upper >= X * (1 - 1e-12))
    assert s.at(1).throughput == pytest.approx(1 / (D.sum() + network.think_time), rel=1e-12)


@settings(max_examples=200)
@given(network=networks(), N=st.integers(1, 20), factor=st.sampled_from([1e-3, 60.0, 1e3]))
def test_units_and_order_do_not_matter(network, N, factor):
    D, m = network.service_demand, [s.servers for s in network.stations]
    other = qm.Network.from_demands(D[::-1] * factor, servers=m[::-1], think_time=network.think_time * factor)
    first, second = qm.solve(network, population=N), qm.solve(other, population=N)
    assert second.throughput * factor == pytest.approx(first.throughput, rel=1e-11)
    np.testing.assert_allclose(second.queue_length[::-1], first.queue_length, rtol=1e-9)


@settings(max_examples=200)
@given(D=st.lists(demand, min_size=1, max_size=5), Z=think, N=st.integers(1, 40))
def test_bounds_hold(D, Z, N):
    network, n = qm.Network.from_demands(D, think_time=Z), np.arange(1, N + 1)
    X = qm.solve(network, population=N).throughputs
    for kind in ["asymptotic", "balanced-job", "geometric", *(["proportional"] if Z == 0 else [])]:
        bounds = qm.bounds(network, n, kind=kind)
        assert np.all(bounds.lower <= X * (1 + 1e-9)), kind
        assert np.all(bounds.upper >= X * (1 - 1e-9)), kind


@settings(max_examples=150)
@given(network=class_networks())
def test_multi_class_laws(network):
    s = qm.solve(network)
    np.testing.assert_allclose(
        s.class_queue_length.sum(axis=0) + s.class_throughput * network.think_times, s.class_populations, rtol=1e-9
    )
    assert np.all(s.utilization <= 1 + 1e-12)
    first = list(s.class_populations)
    first[0] += 1
    assert qm.solve(network, population=first).class_throughput[0] >= s.class_throughput[0] * (1 - 1e-12)


@settings(max_examples=60)
@given(network=class_networks())
def test_approximations_keep_the_laws_and_stay_near(network):
    exact = qm.solve(network)
    for solver, near in (
        (qm.ApproximateMVA("bard-schweitzer"), 0.6),
        (qm.ApproximateMVA("linearizer"), 0.5),
        (qm.ApproximateMVA("aql"), 0.5),
    ):
        s = qm.solve(network, solver=solver)
        assert not s.exact
        np.testing.assert_allclose(
            s.class_queue_length.sum(axis=0) + s.class_throughput * network.think_times, s.class_populations, rtol=1e-6
        )
        np.testing.assert_allclose(s.class_throughput, exact.class_throughput, rtol=near)


@settings(max_examples=100)
@given(network=networks(), N=st.integers(1, 12))
def test_marginals_are_distributions_with_the_right_means(network, N):
    s = qm.solve(network, population=N)
    for k in range(len(network.stations)):
        p = qm.marginal_distribution(network, k, population=N)
        assert p.min() >= 0
        assert p.sum() == pytest.approx(1, rel=1e-10)
        assert p @ np.arange(N + 1) == pytest.approx(s.queue_length[k], rel=1e-9)


@settings(max_examples=40)
@given(K=st.integers(1, 3), shape=st.sampled_from([(), (4,), (2, 3)]), data=st.data())
def test_a_batch_is_its_networks_one_by_one(K, shape, data):
    size = int(np.prod(shape))
    D = np.array([data.draw(demand) for _ in range(size * K)]).reshape(*shape, K)
    Z = data.draw(think)
    N = np.array([data.draw(st.integers(1, 9)) for _ in range(size)]).reshape(shape)
    batch = qm.solve_batch(D, think_time=Z, population=N)
    assert batch.throughputs.shape == (N.max(), *shape)
    for i in np.ndindex(*shape):
        s = qm.solve(qm.Network.from_demands(D[i], think_time=Z), population=int(N[i]))
        np.testing.assert_allclose(batch.throughputs[(slice(0, N[i]), *i)], s.throughputs, rtol=1e-12)
        assert np.all(np.isnan(batch.throughputs[(slice(N[i], None), *i)]))
        np.testing.assert_allclose(batch.residence_time[i], s.residence_time, rtol=1e-11)
    last = qm.solve_batch(D, think_time=Z, population=N, curves=False)
    np.testing.assert_allclose(last.throughput, batch.throughput, rtol=1e-12)


def test_class_switching_by_routing():
    routing = {
        ("u", "v"): [[0, 0.3], [0.5, 0]],
        ("u", "u"): [[0.1, 0.6], [0.5, 0]],
        ("v", "v"): [[0.2, 0.5], [0.4, 0.1]],
        ("v", "u"): [[0, 0.3], [0.5, 0]],
    }
    network = qm.Network(
        [qm.Station("a", service_time={"u": 0.3, "v": 0.1}), qm.Station("b", service_time=0.2)],
        classes=[qm.JobClass("u", population=2, think_time=1.0), qm.JobClass("v", population=1)],
        routing=routing,
    )
    assert network.chains == ((0, 1),)
    assert network.visit_ratios[0].sum() == pytest.approx(1)
    exact, chain = qm.solve(network), qm.solve(network, solver=qm.MarkovChain())
    np.testing.assert_allclose(exact.class_queue_length, chain.class_queue_length, rtol=1e-9)
    np.testing.assert_allclose(exact.class_throughput, chain.class_throughput, rtol=1e-9)


def test_the_choice_says_which_and_why():
    product = qm.solve(qm.Network.from_demands([0.1], servers=3), population=5)
    assert product.exact
    assert "exact" in product.reason
    fcfs = qm.solve(
        qm.Network([qm.Station("q", service_time=0.1, discipline="fcfs", scv=3.0)], think_time=1), population=5
    )
    assert not fcfs.exact
    assert "station 'q' is first come first served" in fcfs.reason
    assert "approximate" in repr(fcfs)
    with pytest.raises(qm.ModelError, match=r"exact MVA: station 'q'.* MarkovChain"):
        qm.solve(fcfs.network, population=5, solver=qm.ExactMVA())


def test_more_customers_with_variability():
    for stations in (
        [qm.Station("q", service_time=0.2, scv=0.25, discipline="fcfs")],
        [qm.Station("q", service_time=0.2, scv=4, discipline="fcfs")],
    ):
        network = qm.Network(stations, think_time=0.5)
        X = qm.solve(network, population=12).throughputs
        assert np.all(np.diff(X) >= -1e-9)
        assert np.all(X <= 5 * (1 + 1e-12))
        for n in (1, 6):
            truth = qm.solve(network, population=n, solver=qm.MarkovChain()).throughput
            assert X[n - 1] == pytest.approx(truth, rel=0.12)
