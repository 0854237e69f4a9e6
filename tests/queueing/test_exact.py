"""Exact solvers and the Markov chain: closed forms, 50 digits, every state counted, laws on random networks."""

import itertools
import json
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_networks import random_network

import queuemodel as qm
from queuemodel import queueing as qn

demand = st.floats(1e-3, 10.0)
think = st.sampled_from([0.0, 0.3, 7.0])
rates = st.lists(st.sampled_from([0.5, 1.0, 1.5, 4.0]), min_size=30, max_size=30)
kinds = st.sampled_from([{}, {}, {"servers": 2}, {"servers": 5}, {"servers": math.inf}]) | st.builds(dict, rates=rates)


@st.composite
def networks(draw):
    """One class, stations of every kind that has product form."""
    stations = [
        qn.Station(f"s{k}", service_time=draw(demand), visit_ratio=draw(st.sampled_from([1.0, 0.5])), **draw(kinds))
        for k in range(draw(st.integers(1, 4)))
    ]
    return qn.Network(stations, think_time=draw(think))


def series(factors, N):
    """Throughputs 1..N from what stations contribute for 0, 1, ... customers, in 50 digits."""
    G = [Decimal(1)] + [Decimal(0)] * N
    for f in factors:
        G = [sum((f[i] * G[n - i] for i in range(min(len(f), n + 1))), Decimal(0)) for n in range(N + 1)]
    return np.array([float(G[n - 1] / G[n]) for n in range(1, N + 1)])


@pytest.mark.parametrize(("demands", "servers", "Z", "N"), [
    ([0.05], [10], 1.0, 200), ([0.4, 3.2], [4, 32], 2.0, 200), ([0.8, 0.81, 0.3, 1.5], [8, 8, 1, 16], 1.0, 300),
    ([1.0, 1.0, 1.0, 1.0, 1.0], [3, 5, 7, 2, 1], 10.0, 200), ([1e-6, 5.0, 0.2], [2, 16, 1], 0.0, 300),
    ([0.1, 0.2, 0.15], ["root", "peak", 1], 2.0, 200),
])  # fmt: skip
def test_every_digit_is_kept(demands, servers, Z, N):
    laws = {"root": lambda n: n**0.5, "peak": lambda n: 20 * n / (1 + 0.1 * (n - 1) + 0.01 * n * (n - 1))}
    kinds = [{"rates": [laws[m](n) for n in range(1, N + 1)]} if m in laws else {"servers": m} for m in servers]
    pairs = enumerate(zip(demands, kinds, strict=True))
    stations = [qn.Station(f"s{k}", service_time=d, **kind) for k, (d, kind) in pairs]
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 50, 10**9, -(10**9)
        factors = [[Decimal(1), *(Decimal(Z) ** n / math.factorial(n) for n in range(1, N + 1))]]
        for d, m in zip(demands, servers, strict=True):
            f = [Decimal(1)]
            for n in range(1, N + 1):
                f.append(f[-1] * Decimal(d) / Decimal(laws[m](n) if m in laws else min(n, m)))
            factors.append(f)
        exact = series(factors, N)
    solved = qn.solve(qn.Network(stations, think_time=Z), population=N)
    np.testing.assert_allclose(solved.throughputs, exact, rtol=1e-11)
    customers = solved.throughputs * (solved.residence_times.sum(axis=1) + Z)
    np.testing.assert_allclose(customers, np.arange(1, N + 1), rtol=1e-10)


def said(network, name):
    """What stations say of each class, (K, C)."""
    values = [getattr(station, name) for station in network.stations]
    return np.array([[v[c.name] if isinstance(v, dict) else v for c in network.classes] or [v] for v in values])


def visits(network):
    """Visits per cycle, (K, C), by walking the routing for a long time; each chain is at its reference once."""
    if network.routing is None:
        return said(network, "visit_ratio")
    V, at = network.class_visit_ratios.copy(), network.reference_index
    K, C = V.shape
    P = network.transitions.reshape(C * K, C * K)
    for chain in network.chains:
        v = np.zeros(C * K)
        v[next(c * K + at for c in chain if V[at, c] > 0)] = 1.0
        v = v @ np.linalg.matrix_power(0.5 * (P + np.eye(C * K)), 2**16)  # lazily: no period
        V[:, list(chain)] = (v / v.reshape(C, K)[list(chain), at].sum()).reshape(C, K)[list(chain)].T
    return V


def compositions(n, cells):
    for cuts in itertools.combinations(range(n + cells - 1), cells - 1):
        yield np.diff([-1, *cuts, n + cells - 1]) - 1


def by_counting(network, counts):
    """X (C,) and Q (K, C) from the product form of every single state (Baskett, Chandy, Muntz and Palacios, 1975)."""
    K, C = len(network.stations), max(1, len(network.classes))
    V, S = visits(network), said(network, "service_time")
    think = [network.think_time if c.think_time is None else c.think_time for c in network.classes]
    thought = V[network.reference_index] if network.routing is not None else np.ones(C)
    # the last place: thinking, on the way to the reference
    work = np.vstack([V * S, thought * (think or network.think_time)])
    cells = [[(k, c) for k in range(K + 1) for c in chain if work[k, c] > 0] for chain in network.chains]

    def total(population):
        G, lengths = 0.0, np.zeros((K + 1, C))
        for placed in itertools.product(*[compositions(n, len(at)) for n, at in zip(population, cells, strict=True)]):
            n, weight = np.zeros((K + 1, C), dtype=int), 1.0
            for at, numbers in zip(cells, placed, strict=True):
                for cell, number in zip(at, numbers, strict=True):
                    n[cell] += number
                    weight *= work[cell] ** number / math.factorial(number)
            for k, station in enumerate(network.stations):
                if not station.is_delay:
                    weight *= math.prod(i / mu for i, mu in enumerate(station.speeds(n[k].sum()), start=1))
            G += weight
            lengths += weight * n
        return G, lengths / G

    N = [sum(counts[c] for c in chain) for chain in network.chains]
    G, lengths = total(N)
    X = np.zeros(C)
    for i, chain in enumerate(network.chains):
        if N[i]:
            X[list(chain)] = total([n - (j == i) for j, n in enumerate(N)])[0] / G
    return X, lengths[:K]


def test_random_networks_by_counting_states():
    """Classes that switch, think times of their own, a reference station, several servers and rates, all together."""
    judged, switching, chains = 0, 0, 0
    for seed in range(500):
        network, population = random_network(np.random.default_rng(seed), most=4)
        try:
            s = qn.solve(network, population=population, solver=qn.ExactMVA())
        except qm.ModelError:  # no product form
            continue
        X, Q = by_counting(network, (population,) if isinstance(population, int) else population)
        np.testing.assert_allclose(s.class_throughput, X, rtol=1e-9, atol=1e-12, err_msg=str(seed))
        np.testing.assert_allclose(s.class_queue_length, Q, rtol=1e-8, atol=1e-10, err_msg=str(seed))
        assert np.all(s.utilization[~network.is_delay] <= 1 + 1e-12)
        assert s.exact
        judged += 1
        switching += any(len(chain) > 1 for chain in network.chains) and network.think_times.any()
        try:
            chain = qn.solve(network, population=population, solver=qn.MarkovChain(most_states=2000))
        except qm.ModelError:  # preempted customers keep their order for ever
            continue
        chains += 1
        np.testing.assert_allclose(chain.class_throughput, X, rtol=1e-8, atol=1e-12, err_msg=str(seed))
        np.testing.assert_allclose(chain.class_queue_length, Q, rtol=1e-7, atol=1e-9, err_msg=str(seed))
        np.testing.assert_allclose(chain.utilization, s.utilization, rtol=1e-7, atol=1e-9, err_msg=str(seed))
    assert judged > 100
    assert switching > 10
    assert chains > 0.8 * judged


@pytest.mark.parametrize(("name", "N", "servers"), [
    ("exact MVA", [2, 3, 1], [1, 1, 1]), ("exact recursion by customer", [1, 2, 1, 1, 1, 1, 1], [1, 2]),
    ("exact recursion by customer", [1, 2, 1, 1, 1, 1, 1], [1]), ("multi-class convolution", [2, 3], [2, 1, 3]),
    ("merged into 2 that differ", [2, 3, 1], [1, 2]),
])  # fmt: skip
def test_each_recursion_by_counting_states(name, N, servers):
    rng = np.random.default_rng(2)
    D, Z = rng.uniform(0.1, 1, (len(servers), len(N))), rng.uniform(0, 1, len(N))
    if "merged" in name:  # classes that are alike are one, each with its part
        D[:, 1], Z[1] = D[:, 0], Z[0]
    network = qn.Network.from_demands(D, population=N, think_time=Z, servers=servers)
    s, (X, Q) = qn.solve(network), by_counting(network, N)
    assert name in s.reason
    np.testing.assert_allclose(s.class_throughput, X, rtol=1e-10)
    np.testing.assert_allclose(s.class_queue_length, Q, rtol=1e-10)


@settings(max_examples=100)
@given(network=networks(), N=st.integers(1, 30))
def test_single_class_laws(network, N):
    s, n = qn.solve(network, population=N), np.arange(1, N + 1)
    X, D = s.throughputs, network.service_demand
    np.testing.assert_allclose((X[:, None] * s.residence_times).sum(axis=1) + X * network.think_time, n, rtol=1e-10)
    queues = ~network.is_delay
    rated = np.array([station.rates is not None for station in network.stations])
    m = np.array([1 if station.is_delay else station.servers for station in network.stations])
    np.testing.assert_allclose(s.utilization[~rated], (s.throughput * D / m)[~rated], rtol=1e-12)
    assert np.all(s.utilization[queues] <= 1 + 1e-12)
    if not rated.any():
        assert np.all(np.diff(X) >= 0)  # more customers never do less
    assert s.cycle_time * s.throughput == pytest.approx(N, rel=1e-10)
    for k, station in enumerate(network.stations):
        p = qn.marginal_distribution(network, k, population=N)
        assert p.min() >= 0
        assert p.sum() == pytest.approx(1, rel=1e-10)
        assert p @ np.arange(N + 1) == pytest.approx(s.queue_length[k], rel=1e-9)
        assert p @ np.append(0.0, station.speeds(N)) == pytest.approx(s.throughput * D[k], rel=1e-9)  # work done


@settings(max_examples=30)
@given(K=st.integers(1, 3), shape=st.sampled_from([(), (4,), (2, 3)]), data=st.data())
def test_batch_equals_single_networks(K, shape, data):
    size = math.prod(shape)
    D = np.array([data.draw(demand) for _ in range(size * K)]).reshape(*shape, K)
    Z, N = data.draw(think), np.array([data.draw(st.integers(1, 9)) for _ in range(size)]).reshape(shape)
    batch = qn.solve_batch(D, think_time=Z, population=N)
    assert batch.throughputs.shape == (N.max(), *shape)
    for i in np.ndindex(*shape):
        s = qn.solve(qn.Network.from_demands(D[i], think_time=Z), population=int(N[i]))
        np.testing.assert_allclose(batch.throughputs[(slice(0, N[i]), *i)], s.throughputs, rtol=1e-12)
        assert np.all(np.isnan(batch.throughputs[(slice(N[i], None), *i)]))
        for name in ("residence_time", "queue_length", "utilization", "cycle_time"):
            np.testing.assert_allclose(getattr(batch, name)[i], getattr(s, name), rtol=1e-11, err_msg=name)
    last = qn.solve_batch(D, think_time=Z, population=N, curves=False)
    np.testing.assert_allclose(last.throughput, batch.throughput, rtol=1e-12)
    assert len(batch.to_rows()) == size
    assert batch.to_frame()["throughput"].tolist() == batch.throughput.ravel().tolist()


def test_switching_classes_share_their_chain():
    on, back, own = [[0, 1], [0, 0]], [[0, 0], [1, 0]], [[0.5, 0.5], [1, 0]]
    stations = [qn.Station("a", service_time=0.2), qn.Station("b", service_time=0.5)]
    classes = [qn.JobClass(name, population=n) for name, n in (("u", 2), ("v", 1), ("w", 4))]
    routing = {("u", "v"): on, ("v", "u"): back, ("w", "w"): own}
    s = qn.solve(qn.Network(stations, classes=classes, routing=routing))
    X, document = s.class_throughput, json.loads(s.to_json())
    rows = [(row["class"], row["population"], row["throughput"], row["cycle_time"]) for row in document["classes"]]
    assert rows == [("u, v", 3, X[0], 3 / X[0]), ("w", 4, X[2], 4 / X[2])]
    assert sum(row[2] for row in rows) == pytest.approx(s.throughput)


def test_solution_prints_and_keeps_curve():
    rated = qn.Station("b", service_time=0.5, rates=[1, 2, 2, 2])
    network = qn.Network([qn.Station("a", service_time=0.4, servers=2), rated], think_time=3.0)
    solved = qn.solve(network, population=4)
    assert "b" in repr(solved)
    assert "<table" in solved._repr_html_()
    for n, (_, row) in enumerate(solved.to_frame().iterrows(), start=1):
        at, fresh = solved.at(n), qn.solve(network, population=n)
        assert at.utilization == pytest.approx(fresh.utilization)
        expected = [n, fresh.throughput, fresh.cycle_time, *fresh.queue_length, *fresh.utilization]
        names = [f"{what}[{k}]" for what in ("queue_length", "utilization") for k in "ab"]
        assert [*row[["population", "throughput", "cycle_time", *names]]] == pytest.approx(expected)
    with pytest.raises(ValueError, match="read-only"):
        solved.throughputs[0] = 1.0
    with pytest.raises(qm.ModelError, match="population must be 1 to 4"):
        solved.at(5)


def test_the_choice_says_which_and_why():
    product = qn.solve(qn.Network.from_demands([0.1], servers=3), population=5)
    assert (product.exact, product.solver) == (True, "convolution")
    line = qn.Station("q", service_time={"a": 0.1, "b": 0.3}, discipline="fcfs")
    network = qn.Network([line], classes=[qn.JobClass("a"), qn.JobClass("b")], think_time=1.0)
    for counts, solver in (((1, 3), "Markov chain, 14 states"), ((300, 300), "approximate MVA (Linearizer)")):
        other = qn.solve(network, population=counts)
        assert (other.solver, other.exact) == (solver, "Markov" in solver)
        assert "station 'q' is first come first served" in other.reason
    with pytest.raises(qm.ModelError, match=r"exact MVA: station 'q'.* differ by class.* MarkovChain"):
        qn.solve(network, population=(1, 3), solver=qn.ExactMVA())
    one = qn.solve(network, population={"a": 0, "b": 3}, solver=qn.ExactMVA())  # who is not there disturbs nobody
    alone = qn.solve(qn.Network.from_demands([0.3], think_time=1.0), population=3)
    assert one.class_throughput == pytest.approx([0.0, alone.throughput])


def test_excessive_size_is_refused():
    network = qn.Network.from_demands(np.random.default_rng(0).uniform(0.1, 1, (6, 12)), population=[50] * 12)
    with pytest.raises(qm.ModelError, match=r"12 different classes with 600 customers need .* bytes .* take an approx"):
        qn.solve(network)
    assert not qn.solve(network, solver=qn.ApproximateMVA("bard-schweitzer")).exact
    with pytest.raises(qm.ModelError, match=r"exact MVA: 10,000,000 customers need .* bytes"):
        qn.solve(qn.Network.from_demands([1.0] * 100), population=10_000_000)


def test_small_chain_or_approximation():
    """Two queues, one of scv 16: the answer of the chain, at each population; constant service has no phases."""
    line = {"service_time": 1.0, "discipline": "fcfs"}
    network = qn.Network([qn.Station("a", scv=16.0, **line), qn.Station("b", service_time=1.0)])
    s = qn.solve(network, population=4)
    chains = [qn.solve(network, population=n, solver=qn.MarkovChain()) for n in range(1, 5)]
    assert s.exact
    assert s.throughputs == pytest.approx([chain.throughput for chain in chains])
    assert s.at(3).queue_length == pytest.approx(chains[2].queue_length)
    assert "no product form, but a small Markov chain: exact" in s.reason
    assert "phase-type" in s.reason
    constant = qn.Network([qn.Station("a", scv=0.0, **line)], think_time=10.0)
    many = qn.Network([qn.Station(f"s{k}", scv=4.0, **line) for k in range(4)])
    for large, N, why in ((constant, 3, "to have phases"), (many, 30, "states"), (many, 10_000, "500 customers")):
        s = qn.solve(large, population=N)
        assert not s.exact
        assert why in s.reason
        assert "within 9 % of the exact throughput on 90 % of 62" in s.reason


IDLE = {
    "servers": {"servers": 2}, "rates": {"rates": [1.0, 2.0]}, "delay": {"servers": math.inf}, "queue": {},
    "line": {"discipline": "fcfs", "scv": 4.0}, "stack": {"discipline": "lifo-pr", "servers": 3},
}  # fmt: skip
SOLVERS = [
    None, qn.ExactMVA(), *map(qn.ApproximateMVA, ("recursion", "bard-schweitzer", "linearizer")), qn.MarkovChain(),
]  # fmt: skip


@pytest.mark.parametrize("kind", IDLE)
def test_a_class_without_customers_changes_nothing(kind):
    """It alone visits a station of every kind, and shares others with one or two classes; by every solver."""
    own = qn.Station("own", service_time=2.0, visit_ratio={"idle": 1}, **IDLE[kind])
    rng, idle = np.random.default_rng(len(kind)), qn.JobClass("idle", population=0)
    for names in ("a", "ab") * 2:
        classes = [qn.JobClass(c, population=int(rng.integers(1, 4)), think_time=0.5) for c in names]
        rates, shared = rng.uniform(1, 3, sum(c.population for c in classes)), []
        for k, more in enumerate(rng.permutation([{}, {"servers": 2}, {"rates": rates}, {"servers": math.inf}])):
            shared.append(qn.Station(f"s{k}", service_time=float(rng.uniform(0.1, 1)), **more))
        without, network = qn.Network(shared, classes=classes), qn.Network([*shared, own], classes=[*classes, idle])
        for solver in SOLVERS:
            s, truth = qn.solve(network, solver=solver), qn.solve(without, solver=solver)
            np.testing.assert_allclose(s.class_throughput, [*truth.class_throughput, 0.0], rtol=1e-9)
            np.testing.assert_allclose(s.class_queue_length[:-1, :-1], truth.class_queue_length, rtol=1e-9)
            np.testing.assert_allclose(s.utilization, [*truth.utilization, 0.0], rtol=1e-9)
            assert s.bottleneck == truth.bottleneck
        slopes, truth = qn.sensitivity(network), qn.sensitivity(without)
        np.testing.assert_allclose(slopes.dX_dD[:-1, :-1, :-1], truth.dX_dD, rtol=1e-9, atol=1e-12)
        assert not slopes.elasticity[-1].any()
    if kind != "stack":  # the simulation has no such station
        found = qn.solve(network, solver=qn.Simulation(departures=20_000))
        assert found.class_throughput == pytest.approx([*qn.solve(without).class_throughput, 0.0], rel=0.03)


def test_rates_up_to_the_population():
    """Of five customers two visit the disk: its two rates do, as do five."""
    cpu = qn.Station("cpu", service_time=0.3)
    classes = [qn.JobClass("a", population=3), qn.JobClass("b", population=2)]

    def solved(rates, solver):
        disk = qn.Station("disk", service_time=0.5, rates=rates, visit_ratio={"b": 1})
        return qn.solve(qn.Network([cpu, disk], classes=classes, think_time=1.0), solver=solver)

    for solver in SOLVERS:
        two, five = solved([1.0, 1.5], solver), solved([1.0, 1.5, 9.0, 9.0, 9.0], solver)
        near = 0.05 if isinstance(solver, qn.ApproximateMVA) else 1e-9
        np.testing.assert_allclose(two.class_queue_length, five.class_queue_length, rtol=near)
        with pytest.raises(qm.ModelError, match="rates has 1 values, but 2 customers can be here"):
            solved([1.0], solver)
    listed = [qn.Station(f"s{n}", service_time=1.0, rates=[1.0] * n) for n in (2, 3)]
    assert qn.saturation_population(qn.Network(listed)) == 2


# The chain: orders that are kept, and sizes


def chain(network, population=None):
    return qn.solve(network, population=population, solver=qn.MarkovChain())


@pytest.mark.parametrize("discipline", ["fcfs", "lifo-pr"])
def test_persistent_order_is_refused(discipline):
    def network(think, second):
        a = qn.Station("a", service_time={"A": 0.1, "B": 0.3}, discipline=discipline)
        b = qn.Station("b", service_time={"A": 0.2, "B": 0.5}, discipline=second)
        return qn.Network([a, b], classes=[qn.JobClass(c, population=2, think_time=think) for c in "AB"])

    with pytest.raises(qm.ModelError, match=r"depends on the order in which customers start \(throughput 2\.6.* to "):
        chain(network(0.0, discipline))
    for answered in (network(1.0, discipline), network(0.0, "ps")):
        simulated = qn.solve(answered, solver=qn.Simulation(departures=10_000, replications=4))
        np.testing.assert_allclose(simulated.class_throughput, chain(answered).class_throughput, rtol=0.02)
    erlang = qn.PhaseType.from_moments(mean=0.2, scv=1 / 3)
    alike = qn.Network([qn.Station("a", distribution=erlang, discipline=discipline)])
    assert chain(alike, 4).throughput == pytest.approx(5.0, rel=1e-9)


def test_nearly_full_station_keeps_digits():
    """Removing an unlikely state left a singular matrix: throughput grows to 1 over its service time."""
    line = qn.Station("line", service_time=0.22743311258738, servers=3, discipline="fcfs", scv=4.783221786180229)
    full = qn.Station("full", service_time=3.8049226791253137, discipline="fcfs", scv=0.052358411774594694)
    X = [chain(qn.Network([line, full]), n).throughput for n in range(1, 7)]
    assert X[0] == pytest.approx(1 / (0.22743311258738 + 3.8049226791253137))
    assert np.all(np.diff(X) > -1e-12)
    assert X[-1] == pytest.approx(1 / 3.8049226791253137, rel=1e-9)


@pytest.mark.parametrize(("alpha", "T", "population", "X"), [
    ([1, 0, 0, 0], 80.0 * (np.eye(4, k=1) - np.eye(4)), 20, 17.266741382591697),
    ([0.99, 0.01], np.diag([-22.80739643, -1.51675357]), 5, 4.675181442913066),
    ([0.8872983346, 0.1127016654], np.diag([-35.491933384, -4.508066616]), 20, 15.929943461427786),
])  # fmt: skip
def test_chains_of_phases(alpha, T, population, X):
    """M/PH/1 with so many customers, as the chain and the matrix-analytic method of LINE give it."""
    queue = qn.Station("q", distribution=qn.PhaseType(alpha, T.tolist()), discipline="fcfs")
    s = chain(qn.Network([queue], think_time=1.0), population)
    assert (s.throughput, s.queue_length[0]) == pytest.approx((X, population - X), rel=1e-7)


LARGE = {
    "many neighbours, iterated": ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 12, 6188),
    "far apart in speed": ([0.001, 0.03, 0.06, 1.0], 25, 3276), "slow to mix, eliminated": ([0.2, 0.201], 1600, 1601),
    "a likeliest state far from the start": ([0.1, 1.0], 1600, 1601),
}  # fmt: skip


@pytest.mark.parametrize("case", LARGE)
def test_large_chains_keep_nine_digits(case):
    demands, population, states = LARGE[case]
    visits = np.linspace(0.5, 2, len(demands))
    pairs = enumerate(zip(demands, visits, strict=True))
    network = qn.Network([qn.Station(f"s{k}", service_time=d / v, visit_ratio=v) for k, (d, v) in pairs])
    found = chain(network, population)
    assert found.solver == f"Markov chain, {states:,} states"
    exact = qn.solve(network, population=population)
    assert found.throughput == pytest.approx(exact.throughput, rel=1e-9)
    np.testing.assert_allclose(found.queue_length, exact.queue_length, rtol=1e-9)
