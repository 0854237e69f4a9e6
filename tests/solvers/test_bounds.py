"""Bounds and bottlenecks against exact answers: where they hold, how near they are, and what they say of themselves."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm

demand = st.floats(0.01, 5.0)
rate = st.floats(0.3, 4.0)


@settings(max_examples=80)
@given(rates=st.lists(rate, min_size=6, max_size=6), D=demand, Z=st.sampled_from([0.0, 2.0]))
def test_load_dependent_rates_stay_within_their_bounds(rates, D, Z):
    network = qm.Network([qm.Station("ld", rates=rates), qm.Station("q", service_time=D, servers=2)], think_time=Z)
    X, bounds = qm.solve(network, population=6).throughputs, qm.bounds(network, np.arange(1, 7))
    assert np.all(bounds.lower <= X * (1 + 1e-9))
    assert np.all(bounds.upper * (1 + 1e-9) >= X)


@settings(max_examples=150)
@given(D=st.lists(demand, min_size=1, max_size=5), Z=st.floats(0.0, 20.0), N=st.integers(1, 40))
def test_proportional_bounds_hold_with_thinking(D, Z, N):
    network, n = qm.Network.from_demands(D, think_time=Z), np.arange(1, N + 1)
    X, bounds = qm.solve(network, population=N).throughputs, qm.bounds(network, n, kind="proportional")
    assert np.all(bounds.lower <= X * (1 + 1e-9))
    assert np.all(bounds.upper * (1 + 1e-9) >= X)


def test_proportional_bounds_are_the_published_ones():
    # Hsieh and Lam (1987), table IV; and by hand with a think time
    network = qm.Network.from_demands([0.1, 0.1, 0.09, 0.08])
    bounds = qm.bounds(network, [2, 5, 10, 20, 80], kind="proportional")
    np.testing.assert_allclose(bounds.lower, [4.3174, 6.6600, 8.0219, 8.8672, 9.6736], rtol=2e-5)
    np.testing.assert_allclose(bounds.upper, [4.3174, 6.7297, 8.2700, 9.3387, 10.0], rtol=2e-5)
    thinking = qm.bounds(qm.Network.from_demands([0.5, 0.25], think_time=2.0), 3, kind="proportional")
    slow, fast = (0.5**3 + 0.25**3) / (0.5**2 + 0.25**2), (0.5**2 + 0.25**2) / 0.75
    assert float(thinking.lower) == pytest.approx(3 / (2.75 + 2 * slow))
    assert float(thinking.upper) == pytest.approx(3 / (2.75 + (2 - 2.0 / 0.5) * fast))


PRODUCT_FORM = ["balanced-job", "proportional", "geometric"]


@pytest.mark.parametrize("kind", ["asymptotic", *PRODUCT_FORM])
def test_where_nobody_queues_they_meet(kind):
    found = qm.bounds(
        qm.Network([qm.Station("d", service_time=0.5, servers=math.inf)], think_time=1.5), [1, 7], kind=kind
    )
    np.testing.assert_allclose([found.lower, found.upper], [[0.5, 3.5]] * 2)


@pytest.mark.parametrize("kind", PRODUCT_FORM)
@pytest.mark.parametrize("other", [{"servers": 2}, {"scv": 0.0, "discipline": "fcfs"}], ids=str)
def test_bounds_of_product_form_refuse_other_networks(kind, other):
    with pytest.raises(qm.ModelError, match="use kind='asymptotic'"):
        qm.bounds(qm.Network([qm.Station("q", service_time=0.5, **other)], think_time=1.0), 3, kind=kind)


def test_the_bottleneck_counts_servers_and_speeds():
    def bottleneck(*stations, population=8, **more):
        return qm.solve(qm.Network(stations, think_time=0.1, **more), population=population).bottleneck

    S = qm.Station
    assert bottleneck(S("a", service_time=0.3, servers=4), S("b", service_time=0.1)) == "b"
    assert bottleneck(S("a", service_time=0.3, servers=2), S("b", service_time=0.1)) == "a"
    fast, slow = [1.0, 2.0, 4.0, *[4.0] * 5], [1.0, 1.1, 1.2, *[1.2] * 5]
    assert bottleneck(S("a", service_time=0.3, rates=fast), S("b", service_time=0.1)) == "b"
    assert bottleneck(S("a", service_time=0.3, rates=slow), S("b", service_time=0.1)) == "a"
    assert bottleneck(S("d", service_time=9.0, servers=math.inf), S("b", service_time=0.1)) == "b"
    assert bottleneck(S("d", service_time=9.0, servers=math.inf)) is None
    two = [qm.JobClass("u"), qm.JobClass("v")]
    crowd = {"classes": two, "population": (4, 4)}
    assert bottleneck(S("a", service_time=0.3, rates=fast), S("b", service_time=0.1), **crowd) == "b"
    assert bottleneck(S("a", service_time={"u": 0.3, "v": 0.2}, servers=4), S("b", service_time=0.1), **crowd) == "b"


def test_saturation_with_rates():
    listed = qm.Network([qm.Station("a", service_time=0.4, rates=[1.0, 2.0, 2.0])], think_time=3.0)
    assert qm.saturation_population(listed) == pytest.approx(3.4 / 0.2)
    with pytest.raises(qm.ModelError, match="rates is a function"):
        qm.saturation_population(qm.Network([qm.Station("a", rates=lambda n: n)]))
    with pytest.raises(qm.ModelError, match="classes"):
        qm.saturation_population(qm.Network([qm.Station("a", service_time=1.0)], classes=[qm.JobClass("u")]))


def test_bounds_and_batches_show_themselves():
    network = qm.Network.from_demands([0.5, 0.25], think_time=2.0)
    bounds = qm.bounds(network, [1, 4])
    assert [row["population"] for row in bounds.to_rows()] == [1, 4]
    assert bounds.to_rows()[1]["throughput_upper"] == pytest.approx(4 / 2.75)
    assert repr(bounds).startswith("asymptotic bounds on throughput")
    assert "<table" in bounds._repr_html_()
    assert qm.bounds(network, 3, kind="geometric").to_rows()[0]["response_lower"] > 0
    batch = qm.solve_batch(np.full((4, 10, 2), 0.5), think_time=1.0, population=3)
    assert len(batch.to_rows()) == 40
    assert "40 networks of up to 2 queues, the first 20" in repr(batch)
    assert batch.to_frame()["throughput"].tolist() == batch.throughput.ravel().tolist()
