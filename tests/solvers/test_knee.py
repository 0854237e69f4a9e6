"""The knee of low variability: exact at its ends, the mean of a maximum between."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import queuemodel as qm

R, D = 0.8, 0.1
N = np.arange(1, 41)


def test_one_customer_and_very_many_are_exact():
    for width in (0.0, 0.2, 0.6):
        assert qm.knee_throughput(1, cycle=R, demand=D, width=width) == pytest.approx(1 / R, rel=1e-6)
        assert qm.knee_throughput(500, cycle=R, demand=D, width=width) == pytest.approx(1 / D, rel=1e-6)


def test_without_width_it_is_the_asymptotes():
    X = qm.knee_throughput(N, cycle=R, demand=D, width=0.0)
    np.testing.assert_allclose(X, np.minimum(N / R, 1 / D), rtol=1e-6)


@pytest.mark.parametrize("width", [0.1, 0.3, 0.65])
@pytest.mark.parametrize("n", [2, 7, 8, 9, 20])
def test_a_round_is_the_mean_of_the_larger_of_cycle_and_queue(width, n):
    """E max(T, N D) of a normal cycle T, integrated instead of by Clark's formula."""
    spread = width * np.sqrt(1 - 1 / n) * R
    mean, _ = quad(lambda t: max(t, n * D) * norm.pdf(t, R, spread), R - 9 * spread, R + 9 * spread, points=[n * D])
    X = float(qm.knee_throughput(n, cycle=R, demand=D, width=width))
    assert pytest.approx(n / mean, rel=1e-6) == X
    assert pytest.approx(1.02 * n / mean, rel=1e-3) != X


def test_the_width_is_the_line_through_the_simulations():
    assert qm.knee_width([0.1, 0.3, 0.5, 1.0]) == pytest.approx([0.15, 0.25, 0.40, 0.65])
    assert np.all(np.diff(qm.knee_width(np.linspace(0, 1, 50))) > 0)


@pytest.mark.parametrize("cv", [0.3, 0.5])
def test_it_is_near_simulated_networks(cv):
    """One first-come-first-served queue and constant-like thinking, against the package's own simulation."""
    stations = [
        qm.Station("q", service_time=D, discipline="fcfs", scv=cv**2),
        qm.Station("work", service_time=R - D, servers=float("inf"), scv=cv**2),
    ]
    network = qm.Network(stations)
    for n in (4, 8, 16):
        simulated = qm.solve(network, population=n, solver=qm.Simulation(departures=20_000, replications=3))
        X = float(qm.knee_throughput(n, cycle=R, demand=D, width=qm.knee_width(cv)))
        assert pytest.approx(simulated.throughput, rel=0.06) == X
