"""Slopes against differences of exact solutions, at every kind of station and by class; closed forms in symbols."""

import math

import numpy as np
import pytest

from queuemodel import queueing as qn


def differences(throughput, at, step=1e-5):
    """Slopes of throughputs (C,) by every number of an array, central and of fourth order: shape (C, *at.shape)."""
    slopes = []
    for place in np.ndindex(at.shape):
        h = step * max(at[place], 0.01)
        unit = np.zeros(at.shape)
        unit[place] = h
        near, far = (throughput(at + n * unit) - throughput(at - n * unit) for n in (1, 2))
        slopes.append((8 * near - far) / (12 * h))
    return np.moveaxis(np.array(slopes).reshape(*at.shape, -1), -1, 0)


def made(kind, D, Z, population=None):
    names = [] if population is None else [f"c{c}" for c in range(len(population))]
    stations = [
        qn.Station(f"s{k}", service_time=dict(zip(names, d, strict=True)) if names else float(d), **kind[k])
        for k, d in enumerate(D)
    ]
    classes = [qn.JobClass(c, population=n, think_time=z) for c, n, z in zip(names, population or [], Z, strict=False)]
    return qn.Network(stations, classes=classes, think_time=0.0 if names else float(Z[0]))


KINDS = [[{}, {}, {"servers": math.inf}], [{"servers": 2}, {}, {"rates": [1.0, 1.4, 2.0] * 2}]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("population", [(3, 2), (1, 0), (1, 1), (4, 1, 1)])
def test_slopes_of_classes(kind, population):
    C = len(population)
    D = np.array([[0.5, 0.2, 0.35], [0.1, 0.4, 0.2], [0.3, 0.7, 0.6]])[:, :C]
    Z = np.array([1.0, 0.3, 0.6])[:C]

    def throughput(D, Z):
        return qn.solve(made(kind, D, Z, population)).class_throughput

    slopes = qn.sensitivity(made(kind, D, Z, population))
    np.testing.assert_allclose(slopes.throughput, throughput(D, Z), rtol=1e-12)
    np.testing.assert_allclose(slopes.dX_dD, differences(lambda d: throughput(d, Z), D), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(slopes.dX_dZ, differences(lambda z: throughput(D, z), Z), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose((slopes.dX_dD * D).sum(axis=(1, 2)) + slopes.dX_dZ @ Z, -slopes.throughput, rtol=1e-9)
    if all(population):
        np.testing.assert_allclose(slopes.elasticity, -slopes.dX_dD * D / slopes.throughput[:, None, None])
    row = slopes.to_rows()[C]  # of the second station and the first class
    assert (row["station"], row["class"], row["service_demand"]) == ("s1", "c0", 0.1)
    assert [row[f"dX[c{c}]_dD"] for c in range(C)] == slopes.dX_dD[:, 1, 0].tolist()


@pytest.mark.parametrize("servers", [1, 2, math.inf])
def test_slopes_at_a_demand_of_nothing(servers):
    def network(d):
        new = qn.Station("new", service_time=d, servers=servers)
        return qn.Network([new, qn.Station("q", service_time=0.3, rates=[1.0, 1.5, 2.0, 2.0])], think_time=0.5)

    here, later = (qn.solve(network(d), population=4).throughput for d in (0.0, 1e-7))
    assert qn.sensitivity(network(0.0), population=4).dX_dD[0] == pytest.approx((later - here) / 1e-7, rel=1e-5)


def test_symbols_give_the_numbers():
    pytest.importorskip("sympy")
    D, kinds = [0.5, 0.25, 0.2, 0.7], [{}, {"servers": 2}, {"rates": [1.0, 0.5, 3.0, 3.0]}, {"servers": math.inf}]
    network = made(kinds, D, [1.5])
    closed, s = qn.solve_symbolic(network, population=3), qn.solve(network, population=3)
    values = dict(zip([*closed.demands, *closed.think_times], [*D, 1.5], strict=True))
    assert float(closed.throughput.subs(values)) == pytest.approx(s.throughput, rel=1e-12)
    assert [float(q.subs(values)) for q in closed.queue_length] == pytest.approx(s.queue_length.tolist(), rel=1e-12)
    slopes = qn.sensitivity(network, population=3).dX_dD
    found = [float(closed.throughput.diff(d).subs(values)) for d in closed.demands]
    assert found == pytest.approx(slopes.tolist(), rel=1e-9)
    assert closed._repr_latex_().startswith("$X(3) = ")
    two = qn.Network.from_demands([[0.5, 0.2], [0.1, 0.0]], population=[2, 1], think_time=[1.0, 0.0])
    many, s = qn.solve_symbolic(two), qn.solve(two)
    values = {str(name): name for row in many.demands for name in row} | {str(name): name for name in many.think_times}
    values = {values[name]: x for name, x in (("D_1_1", 0.5), ("D_1_2", 0.2), ("D_2_1", 0.1), ("Z_1", 1.0))}
    np.testing.assert_allclose([float(x.subs(values)) for x in many.throughput], s.class_throughput, rtol=1e-12)
    lengths = [[float(q.subs(values)) for q in row] for row in many.queue_length]
    np.testing.assert_allclose(lengths, s.class_queue_length, rtol=1e-12)
