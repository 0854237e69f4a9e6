"""The Markov chain: starts, orders that are kept, and chains of every size; its truth is in test_exact."""

import numpy as np
import pytest

import queuemodel as qm
from queuemodel import queueing as qn


def chain(network, population=None, **options):
    return qn.solve(network, population=population, solver=qn.MarkovChain(**options))


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
    with pytest.raises(qm.ModelError, match="more than 100 states at population 20; take fewer customers"):
        chain(qn.Network.from_demands([1.0] * 5), 20, most_states=100)


def test_nearly_full_station_keeps_digits():
    """Removing an unlikely state left a singular matrix: throughput grows to 1 over its service time."""
    line = qn.Station("line", service_time=0.22743311258738, servers=3, discipline="fcfs", scv=4.783221786180229)
    full = qn.Station("full", service_time=3.8049226791253137, discipline="fcfs", scv=0.052358411774594694)
    X = [chain(qn.Network([line, full]), n).throughput for n in range(1, 7)]
    assert X[0] == pytest.approx(1 / (0.22743311258738 + 3.8049226791253137))
    assert np.all(np.diff(X) > -1e-12)
    assert X[-1] == pytest.approx(1 / 3.8049226791253137, rel=1e-9)


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
