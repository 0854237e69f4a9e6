"""Derivatives with several classes: closed forms, laws and slopes, with a control."""

import numpy as np
import pytest

import queuemodel as qm

D = np.array([[0.5, 0.2], [0.1, 0.4], [0.3, 0.7]])
Z = np.array([1.0, 0.3])


def network(demands=D, think=Z, population=(3, 2)):
    return qm.Network.from_demands(demands, servers=[1, 1, float("inf")], think_time=think, population=population)


def _Q(population):
    s = qm.sensitivity(network(), population=population)
    return s.throughput * s.residence_time


def test_throughputs_have_the_closed_form():
    s, now = qm.sensitivity(network(), population=(3, 2)), _Q((3, 2))
    for c, before in enumerate([(2, 2), (3, 1)]):
        truth = s.throughput[c] * (_Q(before) - now) / D
        np.testing.assert_allclose(s.dX_dD[c], truth, rtol=1e-11)
        assert not np.allclose(s.dX_dD[c] * 1.02, truth, rtol=1e-3)  # control


def test_scaling_all_times():
    s = qm.sensitivity(network(), population=(3, 2))
    np.testing.assert_allclose((s.dX_dD * D).sum(axis=(1, 2)) + s.dX_dZ @ Z, -s.throughput, rtol=1e-12)
    np.testing.assert_allclose((s.dR_dD * D).sum(axis=(2, 3)) + s.dR_dZ @ Z, s.residence_time, rtol=1e-12)
    np.testing.assert_allclose((s.dQ_dD * D).sum(axis=(2, 3)) + s.dQ_dZ @ Z, 0, atol=1e-12)


def _measures(demands=D, think=Z):
    solved = qm.solve(network(demands, think))
    return {
        "X": solved.class_throughput,
        "R": solved.class_residence_times,
        "Q": solved.class_queue_length,
        "U": solved.class_utilization,
    }


def _slope(move, h=1e-5):
    up, down = _measures(*move(h)), _measures(*move(-h))
    return {name: (up[name] - down[name]) / (2 * h) for name in up}


def test_slopes_by_central_differences():
    s = qm.sensitivity(network(), population=(3, 2))
    for k, d in np.ndindex(D.shape):
        step = np.zeros(D.shape)
        step[k, d] = 1.0
        slope = _slope(lambda h, step=step: (D + h * step, Z))
        for name, got in (("X", s.dX_dD), ("R", s.dR_dD), ("Q", s.dQ_dD), ("U", s.dU_dD)):
            np.testing.assert_allclose(got[..., k, d], slope[name], rtol=1e-6, atol=1e-8, err_msg=name)


def test_slopes_by_think_times():
    s = qm.sensitivity(network(), population=(3, 2))
    for d in range(2):
        slope = _slope(lambda h, d=d: (D, Z + h * np.eye(2)[d]))
        for name, got in (("X", s.dX_dZ), ("R", s.dR_dZ), ("Q", s.dQ_dZ)):
            np.testing.assert_allclose(got[..., d], slope[name], rtol=1e-6, atol=1e-8, err_msg=name)


def test_identical_classes_are_one():
    one = qm.sensitivity(qm.Network.from_demands([0.3, 0.2], think_time=1.0), population=5)
    two = qm.sensitivity(
        qm.Network.from_demands([[0.3, 0.3], [0.2, 0.2]], think_time=[1, 1], population=[2, 3]), population=None
    )
    np.testing.assert_allclose(two.dX_dD.sum(axis=(0, 2)), one.dX_dD, rtol=1e-12)


def test_refusals_say_why():
    with pytest.raises(qm.ModelError, match="lattice points"):
        qm.sensitivity(network(), population=(50_000, 50_000))
    several = qm.Network.from_demands(D, servers=[1, 2, 1], population=[1, 1])
    with pytest.raises(qm.ModelError, match="2 servers"):
        qm.sensitivity(several, population=None)
    assert "dX[class 1]" in repr(qm.sensitivity(network(), population=None))


def _textbook(demands, think, population):
    """X of each class by the recursion as in the textbook, in the arithmetic of its arguments."""

    def state(n):
        if n not in known:
            total, X = [0, 0, 0], [0, 0]
            for c in (c for c in range(2) if n[c]):
                met = state(tuple(m - (i == c) for i, m in enumerate(n)))[1]
                R = [demands[k][c] * (1 + met[k] * (k < 2)) for k in range(3)]
                X[c] = n[c] / (think[c] + sum(R))
                total = [q + X[c] * r for q, r in zip(total, R, strict=True)]
            known[n] = X, total
        return known[n]

    known = {}
    return state(population)[0]


def test_slopes_in_fifty_digits():
    mp = pytest.importorskip("mpmath")
    with mp.workdps(50):
        h, s = mp.mpf(10) ** -15, qm.sensitivity(network(), population=(3, 2))
        for k, d in np.ndindex(D.shape):
            ends = []
            for sign in (1, -1):
                moved = [[mp.mpf(float(v)) for v in row] for row in D]
                moved[k][d] += sign * h
                ends.append(_textbook(moved, [mp.mpf(float(z)) for z in Z], (3, 2)))
            for c in range(2):
                assert s.dX_dD[c, k, d] == pytest.approx(float((ends[0][c] - ends[1][c]) / (2 * h)), rel=1e-12)


def test_networks_that_it_cannot_treat_are_refused():
    two = [qm.JobClass("c"), qm.JobClass("d")]
    dependent = qm.Network([qm.Station("a", service_time=0.2, rates=[1.0, 1.5])], classes=two)
    with pytest.raises(qm.ModelError, match="a"):
        qm.sensitivity(dependent)
    fcfs = qm.Network(
        [qm.Station("a", service_time={"c": 0.2, "d": 0.3}, discipline="fcfs")],
        classes=two,
        think_time=1.0,
    )
    with pytest.raises(qm.ModelError, match="product form"):
        qm.sensitivity(fcfs)
    with pytest.raises(qm.ModelError, match="population"):
        qm.sensitivity(qm.Network([qm.Station("a", service_time=0.2)]))
