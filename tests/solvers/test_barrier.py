"""Synchronous rounds against closed forms, a simulation of its own, and the network without barrier."""

import math

import numpy as np
import pytest

import queuemodel as qm


@pytest.mark.parametrize("workers", [1, 2, 5, 30])
def test_workers_alone_wait_for_the_slowest(workers):
    network = qm.Network([qm.Station("worker", service_time=2.0, servers=math.inf)])
    harmonic = sum(1 / n for n in range(1, workers + 1))
    assert qm.barrier_time(network, population=workers) == pytest.approx(2.0 * harmonic, rel=1e-12)


def test_one_queue_alone_serves_them_all():
    network = qm.Network([qm.Station("server", service_time=0.3)])
    assert qm.barrier_time(network, population=7) == pytest.approx(7 * 0.3, rel=1e-12)
    two = qm.Network([qm.Station("server", service_time=0.3, servers=2)])
    assert qm.barrier_time(two, population=3) == pytest.approx(0.3 / 2 * 2 + 0.3, rel=1e-12)


def simulated_round(rng, think, services, workers):
    """First come first served, station after station; exponential."""
    ready = np.sort(rng.exponential(think, workers))
    for service in services:
        free, out = 0.0, []
        for time in np.sort(ready):
            free = max(free, time) + rng.exponential(service)
            out.append(free)
        ready = np.array(out)
    return ready.max()


def test_rounds_are_what_a_simulation_of_rounds_gives():
    rng = np.random.default_rng(3)
    network = qm.Network([qm.Station("a", service_time=0.2), qm.Station("b", service_time=0.1)], think_time=1.0)
    rounds = np.array([simulated_round(rng, 1.0, [0.2, 0.1], 6) for _ in range(20_000)])
    exact = qm.barrier_time(network, population=6)
    assert abs(rounds.mean() - exact) < 4 * rounds.std() / math.sqrt(len(rounds))
    assert abs(rounds.mean() - 1.02 * exact) > 4 * rounds.std() / math.sqrt(len(rounds))  # 2 % off is noticed


def test_a_barrier_never_helps():
    network = qm.Network([qm.Station("a", service_time=0.2, servers=2)], think_time=1.0)
    for n in (1, 4, 12):
        assert n / qm.barrier_time(network, population=n) <= qm.solve(network, population=n).throughput * (1 + 1e-12)


def test_what_it_cannot_do_is_refused():
    with pytest.raises(qm.ModelError, match=r"barrier: .* classes and routing"):
        qm.barrier_time(qm.Network([qm.Station("q", service_time=1.0)], routing=[[1.0]]), population=2)
    with pytest.raises(qm.ModelError, match="states for 300 customers"):
        qm.barrier_time(qm.Network.from_demands([1.0, 1.0, 1.0]), population=300)
