"""Bounds and bottlenecks against exact answers; barriers and the knee against closed forms and a simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_networks import random_network
from scipy.integrate import quad
from scipy.stats import norm

import queuemodel as qm
from queuemodel import queueing as qn

PRODUCT_FORM = ["balanced-job", "proportional", "geometric"]


@settings(max_examples=150)
@given(
    D=st.lists(st.floats(1e-3, 100.0), min_size=1, max_size=5), delay=st.sampled_from([0.0, 0.5, 40.0]),
    Z=st.sampled_from([0.0, 0.3, 7.0, 1000.0]), N=st.integers(1, 40),
)  # fmt: skip
def test_bounds_hold_and_tighten(D, delay, Z, N):
    """Long think times and few customers included, where published ones leave the range of response times."""
    network, n = qn.Network.from_demands([*D, delay], servers=[1] * len(D) + [math.inf], think_time=Z), range(1, N + 1)
    solved = qn.solve(network, population=N)
    X, R = solved.throughputs, solved.residence_times[:, : len(D)].sum(axis=1)
    found = {kind: qn.bounds(network, n, kind=kind) for kind in ["asymptotic", *PRODUCT_FORM]}
    loose, tight, tightest = (found[kind] for kind in ("asymptotic", "balanced-job", "geometric"))
    for kind, bounds in found.items():
        assert np.all((bounds.lower <= X * (1 + 1e-9)) & (bounds.upper >= X * (1 - 1e-9))), kind
        assert np.all((bounds.lower >= loose.lower) & (bounds.upper <= loose.upper)), kind
        assert np.all((bounds.response_lower >= 0) & (bounds.response_lower <= R + 1e-9 * (R + delay + Z))), kind
        assert np.all(bounds.response_upper >= R - 1e-9 * (R + delay + Z)), kind
    if Z == delay == 0:
        assert np.all(tightest.lower >= tight.lower * (1 - 1e-9))
        assert np.all(tightest.upper <= tight.upper * 1.005)  # two stations nearly alike: 0.1 % above


def test_asymptotic_bounds_hold_for_chains():
    for seed in range(150):
        network, N = random_network(np.random.default_rng(seed))
        if network.classes:
            continue
        try:
            X = qn.solve(network, population=N, solver=qn.MarkovChain(most_states=2000)).throughput
        except qm.ModelError:
            continue
        bounds = qn.bounds(network, N)
        assert bounds.lower * (1 - 1e-7) <= X <= bounds.upper * (1 + 1e-7), seed
        assert 0 <= bounds.response_lower <= bounds.response_upper * (1 + 1e-9), seed


def test_bounds_are_the_published_ones():
    """Hsieh and Lam (1987), table IV; Casale, Muntz and Serazzi (2008), tables IV and V; by hand with a delay."""
    D = [0.1, 0.1, 0.09, 0.08]
    for Z, N, lower, upper in (
        (0, 5, 6.6859, 6.7524), (0, 80, 9.8233, 9.8765), (1, 5, 3.3432, 3.5582), (1, 20, 8.0856, 8.6467),
        (1, 80, 9.7147, 9.8594),
    ):  # fmt: skip
        found = qn.bounds(qn.Network.from_demands(D, think_time=Z), N, kind="geometric")
        assert (float(found.lower), float(found.upper)) == pytest.approx((lower, upper), rel=2e-5)
    found = qn.bounds(qn.Network.from_demands([0.05, 0.04]), 300, kind="proportional")  # whose powers underflow
    assert (float(found.lower), float(found.upper)) == pytest.approx((19.9468085106, 20.0))
    bounds = qn.bounds(qn.Network.from_demands(D), [2, 5, 10, 20, 80], kind="proportional")
    np.testing.assert_allclose(bounds.lower, [4.3174, 6.6600, 8.0219, 8.8672, 9.6736], rtol=2e-5)
    np.testing.assert_allclose(bounds.upper, [4.3174, 6.7297, 8.2700, 9.3387, 10.0], rtol=2e-5)
    thinking = qn.Network.from_demands([0.5, 0.25, 0.5], servers=[1, 1, math.inf], think_time=1.5)
    found = qn.bounds(thinking, 3, kind="proportional")
    slow, fast = (0.5**3 + 0.25**3) / (0.5**2 + 0.25**2), (0.5**2 + 0.25**2) / 0.75
    assert float(found.lower) == pytest.approx(3 / (2.75 + 2 * slow))
    assert float(found.upper) == pytest.approx(3 / 2.75)  # published: 2 - Z / D_max = -2 customers would be met
    assert float(qn.bounds(thinking, 7, kind="proportional").upper) == pytest.approx(min(2.0, 7 / (2.75 + 2 * fast)))
    found = qn.bounds(thinking, 4, kind="balanced-job")
    assert float(found.lower) == pytest.approx(4 / (2.75 + 3 * 0.5 / (1 + 2 / (4 * 0.75))))
    assert float(found.upper) == pytest.approx(min(2.0, 4 / (2.75 + 3 * 0.375 / (1 + 2 / 0.75))))
    found = qn.bounds(thinking, [1, 4])
    np.testing.assert_allclose(found.lower, [1 / 2.75, 4 / (4 * 0.75 + 2.0)])
    np.testing.assert_allclose(found.upper, [1 / 2.75, 4 / 2.75])
    rows = found.to_rows()
    assert [row["population"] for row in rows] == [1, 4]
    assert rows[1]["response_upper"] == pytest.approx(4 / rows[1]["throughput_lower"] - 2.0)
    assert repr(found).startswith("asymptotic bounds on throughput")
    stations = [qn.Station("ld", service_time=0.4, rates=[0.8, 2.0, 1.6]), qn.Station("m", service_time=0.6, servers=2)]
    found = qn.bounds(qn.Network(stations, think_time=1.0), 3)
    assert float(found.lower) == pytest.approx(3 / (3 * (0.4 / 0.8 + 0.6) + 1.0))
    assert float(found.upper) == pytest.approx(min(3 / (0.4 / (2.0 / 2) + 0.6 + 1.0), 1 / 0.3, 1 / 0.2))


@pytest.mark.parametrize("kind", ["asymptotic", *PRODUCT_FORM])
def test_bounds_need_product_form(kind):
    """Where nobody queues they meet."""
    network = qn.Network([qn.Station("d", service_time=0.5, servers=math.inf)], think_time=1.5)
    found = qn.bounds(network, [1, 7], kind=kind)
    np.testing.assert_allclose([found.lower, found.upper], [[0.5, 3.5]] * 2)
    for other in ({"servers": 2}, {"scv": 0.0, "discipline": "fcfs"}) if kind in PRODUCT_FORM else ():
        with pytest.raises(qm.ModelError, match="use kind='asymptotic'"):
            qn.bounds(qn.Network([qn.Station("q", service_time=0.5, **other)], think_time=1.0), 3, kind=kind)


def test_the_bottleneck_counts_servers_and_speeds():
    def bottleneck(*stations, population=8, **more):
        return qn.solve(qn.Network(stations, think_time=0.1, **more), population=population).bottleneck

    S = qn.Station
    fast, slow = [1.0, 2.0, 4.0, *[4.0] * 5], [1.0, 1.1, 1.2, *[1.2] * 5]
    for kind, name in (({"servers": 4}, "b"), ({"servers": 2}, "a"), ({"rates": fast}, "b"), ({"rates": slow}, "a")):
        assert bottleneck(S("a", service_time=0.3, **kind), S("b", service_time=0.1)) == name
    assert bottleneck(S("d", service_time=9.0, servers=math.inf), S("b", service_time=0.1)) == "b"
    assert bottleneck(S("d", service_time=9.0, servers=math.inf)) is None
    crowd = {"classes": [qn.JobClass("u"), qn.JobClass("v")], "population": (4, 4)}
    assert bottleneck(S("a", service_time=0.3, rates=fast), S("b", service_time=0.1), **crowd) == "b"
    assert bottleneck(S("a", service_time={"u": 0.3, "v": 0.2}, servers=4), S("b", service_time=0.1), **crowd) == "b"


def test_saturation_is_where_the_asymptotes_cross():
    network = qn.Network.from_demands([0.2, 0.5, 0.6], servers=[1, 1, 2], think_time=3.0)
    N = qn.saturation_population(network)
    assert pytest.approx((0.2 + 0.5 + 0.6 + 3.0) / 0.5) == N
    assert float(qn.bounds(network, 1).upper) * N == pytest.approx(1 / 0.5)
    assert qn.saturation_population(qn.Network([qn.Station("d", service_time=1.0, servers=math.inf)])) == math.inf
    listed = qn.Network([qn.Station("a", service_time=0.4, rates=[1.0, 2.0, 2.0])], think_time=3.0)
    assert qn.saturation_population(listed) == pytest.approx(3.4 / 0.2)
    one = qn.Network([qn.Station("a", service_time=1.0)], classes=[qn.JobClass("u", think_time=3.0)])
    assert qn.saturation_population(one) == 4.0
    assert float(qn.bounds(one, 2, kind="balanced-job").upper) == pytest.approx(2 / (4 + 1 / 4))


def test_saturation_of_several_classes():
    """Without waiting the bottleneck is in use all the time at N*; with one class it is that of the asymptotes."""
    stations = [qn.Station("a", service_time={"u": 0.3, "v": 0.1}), qn.Station("b", service_time=0.2, servers=2)]

    def network(u, v):
        classes = [qn.JobClass("u", population=u, think_time=2.0), qn.JobClass("v", population=v, think_time=1.0)]
        return qn.Network(stations, classes=classes)

    N = qn.saturation_population(network(2, 6))
    load = 0.25 * 0.3 / (2.0 + 0.5) + 0.75 * 0.1 / (1.0 + 0.3)
    assert pytest.approx(1 / load) == N
    alone = qn.Network([qn.Station("a", service_time=0.3), stations[1]], think_time=2.0)
    assert qn.saturation_population(network(5, 0)) == pytest.approx(qn.saturation_population(alone))
    for n in (1, 3, 10):  # waiting only lowers the load of 4 n customers
        assert min(0.75 * 4 * n / N, 0.97) < qn.solve(network(n, 3 * n)).utilization[0] < min(4 * n / N, 1.0)
    with pytest.raises(qm.ModelError, match="at least 1"):
        qn.saturation_population(network(0, 0))


# Rounds that end with the slowest, and the knee of low variability


@pytest.mark.parametrize("workers", [1, 2, 5, 30])
def test_workers_alone_wait_for_the_slowest(workers):
    harmonic = sum(1 / n for n in range(1, workers + 1))
    network = qn.Network([qn.Station("w", service_time=2.0, servers=math.inf)])
    assert qn.barrier_time(network, population=workers) == pytest.approx(2.0 * harmonic, rel=1e-12)
    rates = [1.0, 1.5, 1.2, *[2.0] * 27]
    dependent = qn.Network([qn.Station("ld", service_time=0.3, rates=rates)])
    assert qn.barrier_time(dependent, population=workers) == pytest.approx(sum(0.3 / r for r in rates[:workers]))


def simulated_round(rng, think, services, servers, workers):
    """First come first served, station after station; exponential."""
    ready = rng.exponential(think, workers)
    for service, m in zip(services, servers, strict=True):
        free, out = np.zeros(m), []
        for time in np.sort(ready):
            k = int(free.argmin())
            free[k] = max(free[k], time) + rng.exponential(service)
            out.append(free[k])
        ready = np.array(out)
    return ready.max()


@pytest.mark.parametrize("servers", [(1, 1), (2, 1), (1, 3)])
def test_rounds_agree_with_simulation(servers):
    rng = np.random.default_rng(3)
    network = qn.Network.from_demands([0.3, 0.1], servers=servers, think_time=0.5)
    rounds = np.array([simulated_round(rng, 0.5, [0.3, 0.1], servers, 6) for _ in range(10_000)])
    exact, error = qn.barrier_time(network, population=6), rounds.std() / math.sqrt(len(rounds))
    assert abs(rounds.mean() - exact) < 4 * error
    assert abs(rounds.mean() - 1.03 * exact) > 4 * error  # 3 % off is noticed
    assert 6 / exact <= qn.solve(network, population=6).throughput  # a barrier never helps


@pytest.mark.parametrize("width", [0.0, 0.1, 0.3, 0.65])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 20, 500])
def test_knee_is_a_clark_maximum(width, n):
    """E max(T, N D) of a normal cycle T, integrated instead of by Clark's formula; asymptotes at the ends."""
    R, D = 0.8, 0.1
    spread = width * np.sqrt(1 - 1 / n) * R
    mean = max(R, n * D)
    if spread > 0 and n < 500:
        ends = R - 9 * spread, R + 9 * spread
        mean, _ = quad(lambda t: max(t, n * D) * norm.pdf(t, R, spread), *ends, points=[n * D])
    X = float(qn.knee_throughput(n, cycle=R, demand=D, width=width))
    assert pytest.approx(n / mean, rel=1e-6) == X
    assert pytest.approx(1.02 * n / mean, rel=1e-3) != X


def test_knee_width_is_interpolated():
    assert qn.knee_width([0.0, 0.05, 0.2, 0.5, 0.75]) == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.525])
