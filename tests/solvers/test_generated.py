"""Networks of everything that the constructors accept, judged by counting all states and by the Markov chain."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import queuemodel as qm

times = st.sampled_from([0.05, 0.1, 0.2, 0.5, 1.0])
few = settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


@st.composite
def stations(draw, name, names, product_form):
    """A station of any kind; without product form also those that have none."""
    kinds = ["queue", "servers", "delay", "rates", "fcfs", "stack", "stacks"]
    kind = draw(st.sampled_from(kinds if product_form else [*kinds, "varied", "unlike stacks"]))
    unlike = {c: draw(st.sampled_from([0.0, 0.1, 0.3])) for c in names} if names else draw(times)
    visits = {c: draw(st.sampled_from([0.0, 1.0, 1.0, 2.0])) for c in names} if names and draw(st.booleans()) else 1.0
    scv = draw(st.sampled_from([1.0, 0.5, 4.0]))
    says = {
        "queue": {"service_time": unlike, "scv": scv},
        "servers": {"service_time": unlike, "servers": draw(st.integers(2, 3))},
        "delay": {"service_time": unlike, "servers": math.inf, "scv": scv},
        "rates": {"service_time": unlike, "rates": [draw(st.sampled_from([0.5, 1.0, 1.5, 4.0])) for _ in range(5)]},
        "fcfs": {"service_time": draw(times), "servers": draw(st.integers(1, 2)), "discipline": "fcfs"},
        "stack": {"service_time": unlike, "discipline": "lifo-pr"},
        "stacks": {"service_time": draw(times), "servers": 2, "discipline": "lifo-pr"},
        "varied": {"service_time": unlike, "discipline": "fcfs", "scv": scv},
        "unlike stacks": {"service_time": unlike, "servers": 2, "discipline": "lifo-pr", "scv": scv},
    }[kind]
    return qm.Station(name, visit_ratio=visits, **says)


@st.composite
def networks(draw, product_form=True):
    """A network and populations, class switching and classes that nobody is of included."""
    names = draw(st.sampled_from([[], [], ["a"], ["a", "b"], ["a", "b"]]))
    K, C = draw(st.integers(1, 3 - len(names) // 2)), len(names)
    routing = None
    places = [draw(stations(f"s{k}", names, product_form)) for k in range(K)]
    if names and draw(st.booleans()) and all(s.visit_ratio == 1.0 for s in places):
        weights = np.array([draw(st.sampled_from([0.0, 1.0, 3.0])) for _ in range((C * K) ** 2)])
        P = weights.reshape(C * K, C * K) + (weights.sum() == 0)
        P[P.sum(axis=1) == 0] = 1.0
        P = (P / P.sum(axis=1, keepdims=True)).reshape(C, K, C, K)
        routing = {(names[c], names[d]): P[c, :, d, :] for c in range(C) for d in range(C)}
    Z = draw(st.sampled_from([0.3, 1.0]))  # without thinking, stacks may keep their order for ever
    counts = tuple(draw(st.integers(0, 2)) for _ in names) or draw(st.integers(1, 4))
    assume(counts if isinstance(counts, int) else sum(counts))
    try:
        return qm.Network(places, classes=[qm.JobClass(n) for n in names], think_time=Z, routing=routing), counts
    except qm.ModelError:  # a class that goes nowhere, a routing without return
        assume(False)


def visits(network):
    """Visits per cycle, (K, C), by walking the routing for a long time; each chain is at its reference once."""
    K, C = len(network.stations), max(1, len(network.classes))
    V = np.reshape(network.visit_ratios, (K, C)).copy()
    if network.routing is None:
        return V
    names = network.class_names
    P = np.zeros((C, K, C, K))
    for (c, d), matrix in network.routing.items():
        P[names.index(c), :, names.index(d), :] = matrix
    for chain in network.chains:
        v = np.zeros(C * K)
        v[next(c * K for c in chain if V[0, c] > 0)] = 1.0
        step = 0.5 * (P.reshape(C * K, C * K) + np.eye(C * K))  # lazily, so that no period remains
        v = v @ np.linalg.matrix_power(step, 2**16)
        V[:, list(chain)] = (v / v.reshape(C, K)[list(chain), 0].sum()).reshape(C, K)[list(chain)].T
    return V


def by_counting(network, counts):
    """X (C,) and Q (K, C) from the product form of every single state (Baskett, Chandy, Muntz and Palacios, 1975)."""
    K, C = len(network.stations), max(1, len(network.classes))
    counts = (counts,) if isinstance(counts, int) else counts
    V, S = visits(network), np.reshape(network.service_times, (K, C))
    cells, chains = [], network.chains
    for chain in chains:
        at = [(k, c) for k in range(K) for c in chain if V[k, c] * S[k, c] > 0]
        cells.append(at + [(K, c) for c in chain])  # place K: thinking, on the way to the reference
    work = np.vstack([V * S, (V[0] if network.routing is not None else np.ones(C)) * network.think_times])

    def total(population):
        G, lengths = 0.0, np.zeros((K + 1, C))
        for placed in itertools.product(*[compositions(n, len(at)) for n, at in zip(population, cells, strict=True)]):
            n = np.zeros((K + 1, C), dtype=int)
            for at, numbers in zip(cells, placed, strict=True):
                for cell, number in zip(at, numbers, strict=True):
                    n[cell] += number
            weight = 1.0
            for k in range(K + 1):
                for c in range(C):
                    weight *= work[k, c] ** n[k, c] / math.factorial(n[k, c])
                if k < K and not network.stations[k].is_delay:
                    for i in range(1, n[k].sum() + 1):
                        weight *= i / network.stations[k].rate(i)
            G += weight
            lengths += weight * n
        return G, lengths / G

    N = [sum(counts[c] for c in chain) for chain in chains]
    G, lengths = total(N)
    X = np.zeros(C)
    for i, chain in enumerate(chains):
        if N[i]:
            X[list(chain)] = total([n - (j == i) for j, n in enumerate(N)])[0] / G
    return X, lengths[:K]


def compositions(n, cells):
    if cells == 1:
        yield (n,)
        return
    for first in range(n + 1):
        for rest in compositions(n - first, cells - 1):
            yield first, *rest


@few
@given(drawn=networks())
def test_exact_answers_are_those_of_counting_all_states(drawn):
    network, counts = drawn
    X, Q = by_counting(network, counts)
    s = qm.solve(network, population=counts)
    assert s.exact
    np.testing.assert_allclose(s.class_throughput, X, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(s.class_queue_length, Q, rtol=1e-8, atol=1e-10)
    assert np.all(s.utilization[~network.is_delay] <= 1 + 1e-12)


def test_two_percent_more_service_would_be_noticed():
    network = qm.Network([qm.Station("a", service_time=0.2), qm.Station("b", service_time=0.102)], think_time=1.0)
    other = qm.Network([qm.Station("a", service_time=0.2), qm.Station("b", service_time=0.1)], think_time=1.0)
    assert by_counting(network, 3)[0] != pytest.approx(qm.solve(other, population=3).throughput, rel=1e-4)


def test_classes_without_customers_disturb_nobody():
    station = qm.Station("q", service_time={"a": 0.1, "b": 0.3}, discipline="fcfs")
    network = qm.Network([station], classes=[qm.JobClass("a"), qm.JobClass("b")], think_time=1.0)
    alone = qm.Network([qm.Station("q", service_time=0.3)], think_time=1.0)
    s = qm.solve(network, population={"a": 0, "b": 3}, solver=qm.ExactMVA())
    assert s.exact
    assert s.class_throughput == pytest.approx([0.0, qm.solve(alone, population=3).throughput])
    with pytest.raises(qm.ModelError, match="differ by class"):
        qm.solve(network, population={"a": 1, "b": 3}, solver=qm.ExactMVA())


@pytest.mark.parametrize(("population", "X"), [((2, 2), (3.1808, 5.6613)), ((2, 3), None)])
def test_several_preempted_servers_are_not_called_exact(population, X):
    """Who is preempted depends on the order: service that differs by class has no product form then."""
    station = qm.Station("q", service_time={"a": 0.3, "b": 0.05}, servers=2, discipline="lifo-pr")
    network = qm.Network([station], classes=[qm.JobClass("a"), qm.JobClass("b")], think_time=0.3)
    truth = qm.solve(network, population=population, solver=qm.MarkovChain())
    assert not qm.solve(network, population=population).exact
    assert X is None or truth.class_throughput == pytest.approx(X, rel=1e-4)
    with pytest.raises(qm.ModelError, match="last come first served by several servers"):
        qm.solve(network, population=population, solver=qm.ExactMVA())
    varied = qm.Station("q", service_time=0.3, servers=2, discipline="lifo-pr", scv=4.0)
    assert not qm.solve(qm.Network([varied], think_time=0.3), population=4).exact


@few
@given(drawn=networks(product_form=False))
def test_answers_are_possible_and_the_chain_agrees_where_they_are_exact(drawn):
    network, counts = drawn
    try:
        truth = qm.solve(network, population=counts, solver=qm.MarkovChain(most_states=3000))
    except qm.ModelError as error:
        assume("states" not in str(error))
        raise
    for solver in (None, qm.ApproximateMVA("bard-schweitzer"), qm.ApproximateMVA("linearizer")):
        s = qm.solve(network, population=counts, solver=solver)
        assert np.all(s.utilization[~network.is_delay] <= 1 + 1e-6), s
        assert np.all(s.class_queue_length >= 0)
        held = (s.class_queue_length.sum(axis=0) + s.class_throughput * network.think_times).sum()
        if network.routing is None:
            assert held == pytest.approx(s.population, rel=1e-5)
        if not network.classes:
            bounds = qm.bounds(network, counts)
            assert bounds.lower * (1 - 1e-9) <= truth.throughput <= bounds.upper * (1 + 1e-9)
            assert bounds.lower * (1 - 1e-6) <= s.throughput <= bounds.upper * (1 + 1e-6)
        if s.exact:
            np.testing.assert_allclose(s.class_throughput, truth.class_throughput, rtol=1e-7, atol=1e-10)
            np.testing.assert_allclose(s.class_queue_length, truth.class_queue_length, rtol=1e-6, atol=1e-9)
        elif all(station.rates is None for station in network.stations):  # any jump of speed may be drawn
            np.testing.assert_allclose(s.throughput, truth.throughput, rtol=0.6)
