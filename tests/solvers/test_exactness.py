"""Exact solvers against 50-digit arithmetic, each other and the Markov chain; nothing may lose its digits."""

import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm


def fifty_digits(demands, servers, think, N):
    """Throughputs 1..N by convolution in 50 digits: a station of m servers is a polynomial and a geometric series."""
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 50, 10**9, -(10**9)
        G = [Decimal(1)]
        for n in range(1, N + 1):
            G.append(G[-1] * Decimal(think) / n)
        for d, m in zip(map(Decimal, demands), servers, strict=True):
            f = [Decimal(1)]
            for n in range(1, min(m, N + 1)):
                f.append(f[-1] * d / n)
            g = [f[0]] + [f[n] - f[n - 1] * d / m for n in range(1, len(f))]
            G = [sum((g[i] * G[n - i] for i in range(min(len(g), n + 1))), Decimal(0)) for n in range(N + 1)]
            for n in range(1, N + 1):
                G[n] += G[n - 1] * d / m
        return np.array([float(G[n - 1] / G[n]) for n in range(1, N + 1)])


@pytest.mark.parametrize(
    ("demands", "servers", "think", "N"),
    [
        ([0.05], [10], 1.0, 200),
        ([0.4, 3.2], [4, 32], 2.0, 200),
        ([0.8, 0.81, 0.3, 1.5], [8, 8, 1, 16], 1.0, 1500),
        ([1.0, 1.0, 1.0, 1.0, 1.0], [3, 5, 7, 2, 1], 10.0, 400),
        ([4.0, 0.1], [20, 2], 500.0, 10_000),
        ([1e-6, 5.0, 0.2], [2, 16, 1], 0.0, 3000),
    ],
)
def test_multi_server_stations_keep_nine_digits_at_any_population(demands, servers, think, N):
    solution = qm.solve(qm.Network.from_demands(demands, servers=servers, think_time=think), population=N)
    np.testing.assert_allclose(solution.throughputs, fifty_digits(demands, servers, think, N), rtol=1e-11)
    total = solution.queue_length.sum() + solution.throughput * think
    assert total == pytest.approx(N, rel=1e-10)


def test_an_error_of_1e9_would_be_noticed():
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(
            qm.solve(
                qm.Network.from_demands([0.05 * (1 + 1e-8)], servers=10, think_time=1.0), population=200
            ).throughputs,
            fifty_digits([0.05], [10], 1.0, 200),
            rtol=1e-9,
        )


@pytest.mark.parametrize("rates", [lambda n: 20 * n / (1 + 0.1 * (n - 1) + 0.01 * n * (n - 1)), lambda n: n**0.5])
def test_rates_that_never_settle_keep_their_digits(rates):
    N, Z = 400, 2.0
    network = qm.Network(
        [qm.Station("ld", rates=rates), qm.Station("again", rates=rates), qm.Station("q", service_time=0.1)],
        think_time=Z,
    )
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 50, 10**9, -(10**9)
        f, think, queue = [Decimal(1)], [Decimal(1)], [Decimal(1)]
        for n in range(1, N + 1):
            f.append(f[-1] / Decimal(rates(n)))
            think.append(think[-1] * Decimal(Z) / n)
            queue.append(queue[-1] * Decimal("0.1"))
        G = think
        for factor in (f, f, queue):
            G = [sum((factor[i] * G[n - i] for i in range(n + 1)), Decimal(0)) for n in range(N + 1)]
        exact = np.array([float(G[n - 1] / G[n]) for n in range(1, N + 1)])
    solution = qm.solve(network, population=N)
    np.testing.assert_allclose(solution.throughputs, exact, rtol=1e-11)
    assert solution.queue_length.sum() + Z * solution.throughput == pytest.approx(N, rel=1e-10)
    assert solution.queue_length[0] == pytest.approx(solution.queue_length[1], rel=1e-12)


small = st.floats(0.01, 2.0)


def random_network(draw, *, classes, dependent):
    K = draw(st.integers(1, 3))
    names = [f"c{c}" for c in range(classes)]
    # Without thinking, last-come stations may keep the customers' order for ever: no steady state of their own.
    thinks = draw(st.booleans()) or not classes
    stations = []
    for k in range(K):
        time = {c: draw(small) for c in names} if classes else draw(small)
        visits = (
            {c: draw(st.sampled_from([0.5, 1.0, 2.0])) for c in names}
            if classes
            else draw(st.sampled_from([0.5, 1, 3]))
        )
        kind = draw(st.sampled_from(["queue", "delay", "servers", "rates"] if dependent else ["queue", "delay"]))
        discipline = draw(st.sampled_from(["ps", "lifo-pr"] if thinks else ["ps"]))
        extra = {
            "delay": {"servers": math.inf},
            "servers": {"servers": draw(st.integers(2, 3)), "discipline": "ps"},
        }.get(kind, {})
        if kind == "rates":
            extra = {"rates": [draw(st.floats(0.5, 3.0)) for _ in range(7)]}
        stations.append(
            qm.Station(f"s{k}", service_time=time, visit_ratio=visits, **{"discipline": discipline} | extra)
        )
    if not classes:
        return qm.Network(stations, think_time=draw(st.sampled_from([0.0, 0.7])))
    populations = [draw(st.integers(1, 2)) for _ in names]
    return qm.Network(
        stations,
        classes=[
            qm.JobClass(name, population=n, think_time=0.7 if thinks else 0.0)
            for name, n in zip(names, populations, strict=True)
        ],
    )


@settings(max_examples=100)
@given(data=st.data(), classes=st.sampled_from([0, 0, 1, 2, 3]), N=st.integers(1, 5))
def test_exact_solvers_agree_with_the_markov_chain(data, classes, N):
    network = random_network(data.draw, classes=classes, dependent=True)
    population = None if classes else N
    exact = qm.solve(network, population=population)
    chain = qm.solve(network, population=population, solver=qm.MarkovChain())
    assert exact.exact
    # the chain's linear system is solved to about 1e-9
    np.testing.assert_allclose(exact.class_throughput, chain.class_throughput, rtol=1e-8)
    np.testing.assert_allclose(exact.class_queue_length, chain.class_queue_length, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(exact.class_utilization, chain.class_utilization, rtol=1e-8, atol=1e-10)


def test_two_hundred_workers_that_all_differ():
    rng, workers = np.random.default_rng(5), 200
    D, Z = rng.uniform(0.001, 0.02, workers), rng.uniform(0.5, 2.0, workers)
    solution = qm.solve(qm.Network.from_demands([D], population=[1] * workers, think_time=Z))
    assert solution.exact
    # G = integral of exp(-t) times the product of (Z_r + D_r t): coefficients of the polynomial times factorials
    with localcontext() as context:
        context.prec = 60

        def constant(customers):
            poly = [Decimal(1)]
            for r in customers:
                z, d = Decimal(Z[r]), Decimal(D[r])
                poly = [
                    (poly[i] * z if i < len(poly) else 0) + (poly[i - 1] * d if i else 0) for i in range(len(poly) + 1)
                ]
            return sum(a * math.factorial(i) for i, a in enumerate(poly))

        everyone = range(workers)
        G = constant(everyone)
        for r in (0, 17, 199):
            exact = float(constant([i for i in everyone if i != r]) / G)
            assert solution.class_throughput[r] == pytest.approx(exact, rel=1e-11)


def test_identical_classes_are_one():
    D = np.array([[0.3, 0.3, 0.1], [0.2, 0.2, 0.5]])
    apart = qm.solve(qm.Network.from_demands(D, population=[2, 3, 2], think_time=[1, 1, 0.5]))
    together = qm.solve(qm.Network.from_demands(D[:, [0, 2]], population=[5, 2], think_time=[1, 0.5]))
    np.testing.assert_allclose(apart.class_throughput[:2].sum(), together.class_throughput[0], rtol=1e-12)
    np.testing.assert_allclose(
        apart.class_queue_length[:, :2].sum(axis=1), together.class_queue_length[:, 0], rtol=1e-12
    )


def test_all_orders_of_classes_and_stations_are_the_same_network():
    D, N, Z = np.array([[0.3, 0.2, 0.1], [0.2, 0.6, 0.5]]), np.array([2, 4, 3]), np.array([1.0, 0.0, 0.5])
    first = qm.solve(qm.Network.from_demands(D, population=N, think_time=Z, servers=[2, 1]))
    for order in itertools.permutations(range(3)):
        o = list(order)
        other = qm.solve(qm.Network.from_demands(D[::-1, o], population=N[o], think_time=Z[o], servers=[1, 2]))
        np.testing.assert_allclose(other.class_throughput, first.class_throughput[o], rtol=1e-11)


def test_what_cannot_fit_is_refused_with_the_numbers_and_a_way_out():
    rng = np.random.default_rng(0)
    network = qm.Network.from_demands(rng.uniform(0.1, 1, (6, 12)), population=[50] * 12)
    with pytest.raises(qm.ModelError, match=r"12 different classes with 600 customers need .* bytes .* take an approx"):
        qm.solve(network)
    assert not qm.solve(network, solver=qm.ApproximateMVA("bard-schweitzer")).exact
    with pytest.raises(qm.ModelError, match=r"bytes, more than"):
        qm.solve(qm.Network.from_demands([1.0] * 100), population=10_000_000)
