"""Open and mixed networks: published numbers, closed forms, and networks solved in another way."""

import math
from dataclasses import replace

import numpy as np
import pytest

from queuemodel import queueing as qn


def network_of(times, classes, *, visits=None, servers=(1, 1, 1), **options):
    """Stations from service times (K, C) and visits (K, C); a class is a population, or its arrival rate."""
    names = [f"c{c}" for c in range(len(classes))]
    kinds = ({"arrival_rate" if isinstance(n, float) else "population": n} for n in classes)
    tables = times, visits or np.ones(np.shape(times)).tolist()
    times, visits = ([dict(zip(names, row, strict=True)) for row in table] for table in tables)
    columns = enumerate(zip(times, visits, servers, strict=False))
    stations = [qn.Station(f"s{k}", service_time=t, visit_ratio=v, servers=m) for k, (t, v, m) in columns]
    classes = [qn.JobClass(name, **kind) for name, kind in zip(names, kinds, strict=True)]
    return qn.Network(stations, classes=classes, **options)


@pytest.mark.parametrize(("network", "expected", "tolerance"), [
    # Zahorjan (1984), p. 148
    (network_of([[1 / 4, 1 / 2, 1 / 2, 1], [1 / 6, 1, 1, 4 / 3]], [1.0, 0.5, 1, 1]),
     {"class_queue_length": [[14 / 19, 14 / 19, 4 / 19, 5 / 19], [24 / 19, 72 / 19, 15 / 19, 14 / 19]]}, 1e-9),
    # pfqn_mvams of LINE
    (network_of([[0.2, 0.5], [0.3, 0.4], [0.0, 1.0]], [0.5, 3], servers=[2, 1, math.inf]),
     {"class_throughput": [0.5, 1.32644908070282],
      "class_queue_length": [[0.111838089262978, 0.701244092052267], [0.348054145984397, 0.972306827244915],
                             [0.0, 1.32644908070282]]}, 1e-12),
])  # fmt: skip
def test_published_open_and_mixed_networks(network, expected, tolerance):
    s = qn.solve(network)
    assert s.exact
    for measure, value in expected.items():
        np.testing.assert_allclose(getattr(s, measure), value, rtol=tolerance, atol=1e-12, err_msg=measure)


def random_mixed(rng):
    """One to three stations of every kind with product form, one or two closed classes and one or two open ones."""
    K, closed, opened = rng.integers(1, 4), rng.integers(0, 3), rng.integers(1, 3)
    populations, C = rng.integers(1, 4, closed).tolist(), closed + opened
    times, stations = rng.uniform(0.1, 1.0, (K, C)), []
    kinds = [{}, {"servers": 2}, {"servers": 3}, {"rates": [1.0, 0.7, 1.5, ...]}, {"servers": math.inf}]
    for k in range(K):
        options, alike = kinds[rng.integers(len(kinds))], rng.random() < 0.3
        service = float(times[k, 0]) if alike else {f"c{c}": float(t) for c, t in enumerate(times[k])}
        discipline = {"discipline": "fcfs"} if alike else {}
        stations.append(qn.Station(f"s{k}", service_time=service, **options, **discipline))
    thinks = rng.choice([0.0, 1.0], closed).tolist()
    classes = [qn.JobClass(f"c{c}", population=n, think_time=thinks[c]) for c, n in enumerate(populations)]
    rates = rng.uniform(0.2, 1, opened) / sum(0.6 / times.sum(axis=0)) / opened / 2
    classes += [qn.JobClass(f"c{closed + c}", arrival_rate=rate) for c, rate in enumerate(rates.tolist())]
    return qn.Network(stations, classes=classes)


def with_source(network, customers):
    """A closed network: open classes have ``customers``, who arrive one after the other from a station of their own."""
    shared = [replace(station, discipline="ps") for station in network.stations]
    sources = [
        qn.Station(f"source {c.name}", service_time=1 / c.arrival_rate, visit_ratio={c.name: 1.0})
        for c in network.classes if c.is_open
    ]  # fmt: skip
    classes = [qn.JobClass(c.name, population=customers) if c.is_open else c for c in network.classes]
    return qn.Network([*shared, *sources], classes=classes)


@pytest.mark.parametrize("seed", range(25))
def test_open_classes_as_limits(seed):
    """A closed class of 30 customers behind a source is open but for 1e-5; the chain is cut off, and no recursion."""
    network = random_mixed(np.random.default_rng(seed))
    s, limit = qn.solve(network), qn.solve(with_source(network, 30))
    K = len(network.stations)
    np.testing.assert_allclose(s.class_throughput, limit.class_throughput, rtol=1e-5)
    np.testing.assert_allclose(s.class_queue_length, limit.class_queue_length[:K], rtol=2e-4)
    np.testing.assert_allclose(s.utilization, limit.utilization[:K], rtol=1e-4)
    small = len(network.classes) == 1 or not any(station.discipline == "fcfs" for station in network.stations)
    if small and sum(c.is_open for c in network.classes) == 1 and K + len(network.classes) < 5:
        chain = qn.solve(network, solver=qn.MarkovChain(most_open=30))
        np.testing.assert_allclose(s.class_queue_length, chain.class_queue_length, rtol=2e-3)
        assert not chain.exact
        assert "lost" in chain.reason


def test_many_servers_keep_their_digits():
    """Erlang's C formula for 60 servers, nearly idle and nearly full, where sums of differences lose every digit."""
    for load in (1e-3, 5.0, 59.9):  # P(nobody) is 1e-26 at the last
        queue = qn.Station("q", service_time=1.0, servers=60)
        weights = [load**n / math.factorial(n) for n in range(60)]
        last = load**60 / math.factorial(60) / (1 - load / 60)
        waiting = last / (sum(weights) + last)
        s = qn.solve(qn.Network([queue], classes=[qn.JobClass("c", arrival_rate=load)]))
        assert s.response_time == pytest.approx(1 + waiting / (60 - load), rel=1e-12)


def test_switching_classes_beside_open_ones():
    """Routings of all, two servers and rates, against the chain."""
    stations = [
        qn.Station("x", service_time={"a": 0.2, "b": 0.3, "o": 0.1}, servers=2),
        qn.Station("y", service_time={"a": 0.1, "b": 0.25, "o": 0.2}),
        qn.Station("z", service_time=0.4, rates=[1, 1.7, ...]),
    ]
    routing = {
        ("a", "a"): [[0, 0.5, 0], [0, 0, 0.5], [1, 0, 0]], ("a", "b"): [[0, 0.5, 0], [0, 0, 0.5], [0, 0, 0]],
        ("b", "a"): [[0, 0, 0.5], [1, 0, 0], [0, 0, 0]], ("b", "b"): [[0, 0, 0.5], [0, 0, 0], [1, 0, 0]],
        ("o", "o"): [[0, 0.5, 0], [0, 0, 0.3], [0, 0, 0]],
    }  # fmt: skip
    classes = [qn.JobClass("a", population=2, think_time=0.5), qn.JobClass("b"), qn.JobClass("o", arrival_rate=1.0)]
    network = qn.Network(stations, classes=classes, routing=routing)
    s, chain = qn.solve(network), qn.solve(network, solver=qn.MarkovChain(most_open=8))
    np.testing.assert_allclose(s.class_queue_length, chain.class_queue_length, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(s.utilization, chain.utilization, rtol=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_slopes_are_those_of_differences(seed):
    """By demands of closed and of open classes."""
    rng = np.random.default_rng(100 + seed)
    network = random_mixed(rng)
    while not network.populations.any():
        network = random_mixed(rng)
    slopes = qn.sensitivity(network)
    k, d, step = int(rng.integers(len(network.stations))), int(rng.integers(len(network.classes))), 1e-6

    def X(change):
        times = dict(zip(network.class_names, network.class_service_times[k].tolist(), strict=True))
        stations, times[network.class_names[d]] = list(network.stations), times[network.class_names[d]] + change
        stations[k] = replace(stations[k], service_time=times, discipline="ps")
        return qn.solve(qn.Network(stations, classes=network.classes)).class_throughput

    np.testing.assert_allclose(slopes.dX_dD[:, k, d], (X(step) - X(-step)) / (2 * step), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("seed", range(12))
def test_marginals_agree_with_means(seed):
    network = random_mixed(np.random.default_rng(200 + seed))
    s = qn.solve(network)
    for k, station in enumerate(network.stations):
        p = qn.marginal_distribution(network, station.name)
        assert p.sum() == pytest.approx(1.0, abs=1e-9)
        assert p @ np.arange(len(p)) == pytest.approx(s.queue_length[k], rel=1e-8)
        if station.rates:
            assert 1 - p[0] == pytest.approx(s.utilization[k], rel=1e-9)


def test_routing_of_an_open_class():
    """A Jackson network: of those at the cpu 0.2 leave, others go to a disk and come back."""
    stations = [qn.Station(name, service_time=t) for name, t in (("cpu", 0.05), ("a", 0.1), ("b", 0.2))]
    routing = [[0.0, 0.5, 0.3], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    network = qn.Network(stations, classes=[qn.JobClass("jobs", arrival_rate=1.0)], routing={"jobs": routing})
    np.testing.assert_allclose(network.visit_ratios[:, 0], [5.0, 2.5, 1.5])
    rho = np.array([0.25, 0.25, 0.3])
    np.testing.assert_allclose(qn.solve(network).queue_length, rho / (1 - rho))
    simulated = qn.Simulation(departures=50_000).run(network, (0,))
    low, high = simulated.queue_length_interval
    assert np.all((low < 1.02 * rho / (1 - rho)) & (high > 0.98 * rho / (1 - rho)))


@pytest.mark.parametrize("seed", [1, 3, 6])
def test_the_simulation_of_mixed_networks(seed):
    network = random_mixed(np.random.default_rng(seed))
    truth = qn.solve(network)
    result = qn.Simulation(seed=5, confidence=0.999).run(network, tuple(network.populations.tolist()))
    low, high = result.queue_length_interval
    assert np.all((low <= truth.queue_length) & (truth.queue_length <= high))
    assert np.all(high - low < 0.2 * truth.queue_length)


def test_the_simulation_of_general_service():
    """M/G/1 by Pollaczek and Khinchine, which no product form has."""
    station = qn.Station("q", service_time=0.5, scv=4.0, discipline="fcfs")
    network = qn.Network([station], classes=[qn.JobClass("c", arrival_rate=1.2)])
    rho = 0.6
    low, high = qn.Simulation(seed=1).run(network, (0,)).queue_length_interval[:, 0]
    assert low < rho + rho**2 * (1 + 4.0) / 2 / (1 - rho) < high


@pytest.mark.parametrize("kind", ["asymptotic", "balanced-job", "proportional", "geometric"])
def test_bounds_beside_open_classes(kind):
    rng = np.random.default_rng(3)
    for _ in range(20):
        K, N = int(rng.integers(1, 4)), int(rng.integers(1, 20))
        network = network_of(rng.uniform(0.1, 1, (K, 2)), [N, float(rng.uniform(0.1, 0.9))], think_time=1.0)
        X, found = qn.solve(network).class_throughput[0], qn.bounds(network, N, kind=kind)
        assert found.lower * (1 - 1e-9) <= X <= found.upper * (1 + 1e-9)
    alone = network_of(network.class_service_times[:, :1].tolist(), [N], think_time=1.0)
    assert qn.bounds(network, N, kind=kind).upper < qn.bounds(alone, N, kind=kind).upper
    assert qn.saturation_population(network) > 1


@pytest.mark.parametrize("seed", range(6))
def test_approximations_of_mixed_networks(seed):
    network = random_mixed(np.random.default_rng(300 + seed))
    truth, near = qn.solve(network), qn.solve(network, solver=qn.ApproximateMVA("linearizer"))
    np.testing.assert_allclose(near.class_throughput, truth.class_throughput, rtol=0.12)
    np.testing.assert_allclose(near.class_queue_length, truth.class_queue_length, rtol=0.4, atol=0.05)


def test_rates_that_repeat_their_last():
    listed = qn.Station("disk", service_time=0.3, rates=[1.0, 1.5, *[1.8] * 18])
    repeated = qn.Station("disk", service_time=0.3, rates=[1.0, 1.5, 1.8, ...])
    X = [qn.solve(qn.Network([s], think_time=1.0), population=20).throughputs for s in (listed, repeated)]
    np.testing.assert_array_equal(*X)
    assert qn.solve(qn.Network([repeated], classes=[qn.JobClass("c", arrival_rate=1.0)])).exact


def test_the_tables_of_open_classes():
    network = network_of([[0.2, 0.5], [0.3, 0.4]], [0.5, 3], servers=[2, 1])
    s = qn.solve(network)
    rows = {row["class"]: row for row in s.class_rows()}
    Q = s.class_queue_length.sum(axis=0)
    assert rows["c0"]["population"] == pytest.approx(Q[0])
    assert rows["c0"]["cycle_time"] == pytest.approx(s.class_residence_time[:, 0].sum())
    assert rows["c1"] == {"class": "c1", "population": 3, "throughput": s.throughput - 0.5,
                          "cycle_time": 3 / (s.throughput - 0.5)}  # fmt: skip
    assert "0.5 arrivals/s" in repr(s)
    assert "2 classes (1 open)" in repr(network)
    frame = s.to_frame()
    assert [*frame["class"], *frame["station"]] == ["c0", "c0", "c1", "c1", "s0", "s1", "s0", "s1"]
    np.testing.assert_allclose(frame["queue_length"], s.class_queue_length.T.ravel())
    assert qn.plot_network_solution(s).get_xlabel() == "population (customers)"
    several = network_of([[0.2, 0.5, 0.1], [0.3, 0.4, 0.1]], [0.5, 3, 2])
    ax = qn.plot_network_solution(qn.solve(several))
    assert sum(bar.get_height() for bar in ax.patches) == pytest.approx(qn.solve(several).utilization.sum())
