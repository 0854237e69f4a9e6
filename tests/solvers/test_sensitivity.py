"""Slopes against finite differences of exact solutions, at every kind of station; and closed forms in symbols."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import queuemodel as qm

demand = st.floats(0.05, 5.0)
kinds = st.sampled_from(
    [{}, {}, {"servers": 2}, {"servers": math.inf}, {"rates": [1.0, 1.6, 2.5, *[2.5] * 9]}, {"rates": [1.0, 0.7] * 6}]
)


def made(kind, D, Z):
    return qm.Network([qm.Station(f"s{k}", service_time=d, **kind[k]) for k, d in enumerate(D)], think_time=Z)


@settings(max_examples=80)
@given(
    drawn=st.lists(st.tuples(kinds, demand), min_size=1, max_size=3),
    Z=st.sampled_from([0.0, 0.3, 7.0]),
    N=st.integers(1, 9),
)
@example(drawn=[({}, 0.0546875)], Z=0.0, N=2)  # curves most where think time is 0
def test_sensitivities_are_slopes(drawn, Z, N):
    kind, D = [k for k, _ in drawn], np.array([d for _, d in drawn])
    slopes, here = (f(made(kind, D, Z), population=N) for f in (qm.sensitivity, qm.solve))
    near = {"rtol": 1e-3, "atol": 1e-5 * N}
    for k in range(len(D)):
        h = 1e-5 * D[k]
        up, down = (qm.solve(made(kind, D + s * h * (np.arange(len(D)) == k), Z), population=N) for s in (1, -1))
        assert slopes.dX_dD[k] == pytest.approx((up.throughput - down.throughput) / (2 * h), rel=1e-3, abs=1e-5)
        np.testing.assert_allclose(slopes.dR_dD[:, k], (up.residence_time - down.residence_time) / (2 * h), **near)
        np.testing.assert_allclose(slopes.dQ_dD[:, k], (up.queue_length - down.queue_length) / (2 * h), **near)
        np.testing.assert_allclose(slopes.dU_dD[:, k], (up.utilization - down.utilization) / (2 * h), **near)
    h = 1e-5 * D.max()
    later, last = (qm.solve(made(kind, D, Z + n * h), population=N) for n in (1, 2))

    def slope(of):
        """One-sided, since think time may be 0, and of second order, since it may curve there."""
        return (4 * of(later) - 3 * of(here) - of(last)) / (2 * h)

    assert slopes.dX_dZ == pytest.approx(slope(lambda s: s.throughput), rel=1e-3, abs=1e-5)
    np.testing.assert_allclose(slopes.dR_dZ, slope(lambda s: s.residence_time), rtol=1e-3, atol=1e-5 * N)
    np.testing.assert_allclose(slopes.dQ_dZ, slope(lambda s: s.queue_length), rtol=1e-3, atol=1e-5 * N)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("Z", [0.0, 1.0])
def test_a_delay_takes_as_long_however_long_one_thinks(servers, Z):
    stations = [qm.Station("d", service_time=1.0, servers=math.inf), qm.Station("q", service_time=0.1, servers=servers)]
    slopes = qm.sensitivity(qm.Network(stations, think_time=Z), population=5)
    assert slopes.dR_dZ[0] == pytest.approx(0.0, abs=1e-12)
    assert slopes.dR_dZ[1] < 0
    assert slopes.dR_dD[0] == pytest.approx([1.0, 0.0], abs=1e-12)


@pytest.mark.parametrize("servers", [1, 2, math.inf])
def test_slopes_at_a_demand_of_nothing(servers):
    def network(d):
        stations = [
            qm.Station("new", service_time=d, servers=servers),
            qm.Station("q", service_time=0.3, rates=[1.0, 1.5, 2.0, 2.0]),
        ]
        return qm.Network(stations, think_time=0.5)

    slopes, h = qm.sensitivity(network(0.0), population=4), 1e-6
    assert slopes.dQ_dD[0, 0] == pytest.approx(slopes.throughput)
    here, later = (qm.solve(network(d), population=4) for d in (0.0, h))
    assert slopes.dX_dD[0] == pytest.approx((later.throughput - here.throughput) / h, rel=1e-3)
    np.testing.assert_allclose(slopes.dR_dD[:, 0], (later.residence_time - here.residence_time) / h, rtol=1e-3)
    np.testing.assert_allclose(slopes.dU_dD[:, 0], (later.utilization - here.utilization) / h, rtol=1e-3)


def test_sensitivity_to_rates():
    rates, h = [1.0, 1.6, 1.9, 2.0, 2.0, 2.0], 1e-6

    def throughput(r):
        stations = [qm.Station("a", service_time=0.3, rates=r), qm.Station("b", service_time=0.2, servers=2)]
        network = qm.Network(stations, think_time=0.4)
        return network, qm.solve(network, population=6).throughput

    slopes = qm.sensitivity(throughput(rates)[0], population=6).dX_drate["a"]
    for i in range(3):
        up, down = rates.copy(), rates.copy()
        up[i] += h
        down[i] -= h
        assert slopes[i] == pytest.approx((throughput(up)[1] - throughput(down)[1]) / (2 * h), rel=1e-6)


def test_symbols_give_the_numbers():
    sympy = pytest.importorskip("sympy")
    stations = [qm.Station("a", service_time=0.5), qm.Station("b", service_time=0.25, servers=2)]
    network = qm.Network(stations, think_time=1.5)
    closed = qm.solve_symbolic(network, population=4)
    values = dict(zip([*closed.demands, *closed.think_times], [0.5, 0.25, 1.5], strict=True))
    s = qm.solve(network, population=4)
    assert float(closed.throughput.subs(values)) == pytest.approx(s.throughput, rel=1e-12)
    assert [float(q.subs(values)) for q in closed.queue_length] == pytest.approx(s.queue_length.tolist(), rel=1e-12)
    assert float(closed.response_time.subs(values)) == pytest.approx(s.response_time, rel=1e-12)
    slope = qm.sensitivity(network, population=4).dX_dD[0]
    assert float(closed.derivative(closed.demands[0]).subs(values)) == pytest.approx(slope, rel=1e-10)
    assert closed._repr_latex_().startswith("$X(4) = ")
    assert (
        sympy.simplify(
            qm.solve_symbolic(network, population=1).throughput * (sum(closed.demands) + closed.think_times[0])
        )
        == 1
    )
    two = qm.Network.from_demands([[0.5, 0.2], [0.1, 0.3]], population=[2, 1], think_time=[1.0, 0.0])
    many = qm.solve_symbolic(two, demands=[["1/2", "1/5"], ["1/10", "3/10"]], think_times=[1, 0])
    np.testing.assert_allclose([float(x) for x in many.throughput], qm.solve(two).class_throughput, rtol=1e-12)


@pytest.mark.parametrize("demands", [["a"], ["a", ["b", "b"]], "ab", 3, [["a", "b"]], ["a", None], ["a", "b +"]])
def test_symbols_must_fit_the_network(demands):
    pytest.importorskip("sympy")
    with pytest.raises(qm.ModelError, match="symbolic"):
        qm.solve_symbolic(qm.Network.from_demands([0.5, 0.2]), population=2, demands=demands)


def test_symbols_as_a_column_or_a_list_are_the_same():
    pytest.importorskip("sympy")
    network = qm.Network.from_demands([0.5, 0.2])
    for demands in (["a", "b"], [["a"], ["b"]]):
        assert str(qm.solve_symbolic(network, population=1, demands=demands).throughput) == "1/(a + b)"
