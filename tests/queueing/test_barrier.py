"""Rounds that end with the slowest, and the knee of low variability: closed forms, and simulations of their own."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import queuemodel as qm
from queuemodel import queueing as qn

R, D = 0.8, 0.1


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
    with pytest.raises(qm.ModelError, match=r"barrier: .* classes and routing"):
        qn.barrier_time(qn.Network([qn.Station("q", service_time=1.0)], routing=[[1.0]]), population=2)
    with pytest.raises(qm.ModelError, match="states for 300 customers"):
        qn.barrier_time(qn.Network.from_demands([1.0, 1.0, 1.0]), population=300)


@pytest.mark.parametrize("width", [0.0, 0.1, 0.3, 0.65])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 20, 500])
def test_knee_is_a_clark_maximum(width, n):
    """E max(T, N D) of a normal cycle T, integrated instead of by Clark's formula; asymptotes at the ends."""
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
