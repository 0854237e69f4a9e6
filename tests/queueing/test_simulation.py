"""The simulation against the Markov chain: how often its intervals hold the truth, and what it says when it cannot."""

import json
import signal
import subprocess
import sys
from subprocess import PIPE

import numpy as np
import pytest

import queuemodel as qm
from queuemodel import queueing as qn
from queuemodel.queueing.kernels.replication import BATCHES, Replication, model_of
from queuemodel.queueing.lowered import routes_of

FCFS = {"discipline": "fcfs"}
UNLIKE = {"u": 0.3, "v": 0.1}
ON, BACK = [[0, 1], [0, 0]], [[0, 0], [1, 0]]
#: Customers alternate between a short and a long service, and wait alike in both.
ROUTING = {("u", "u"): ON, ("u", "v"): BACK, ("v", "v"): ON, ("v", "u"): BACK}
KINDS = {
    "fcfs": [qn.Station("q", service_time=0.2, scv=4.0, **FCFS)],
    "servers": [qn.Station("a", service_time=0.5, scv=0.5, servers=2, **FCFS), qn.Station("b", service_time=0.2)],
    "lifo": [qn.Station("a", service_time=0.3, discipline="lifo-pr", scv=4.0), qn.Station("b", service_time=0.2)],
    "rates": [qn.Station("a", service_time=0.3, rates=[1, 1.5, 1.8, 1.9], scv=0.25, **FCFS)],
    "phases": [qn.Station("a", distribution=qn.PhaseType((0.3, 0.7), ((-3.0, 1.0), (0.5, -9.0))), **FCFS)],
    "classes": [
        qn.Station("a", service_time=UNLIKE, servers=2, **FCFS),
        qn.Station("b", service_time=0.2, visit_ratio={"u": 1, "v": 2}),
    ],
    "stack of classes": [
        qn.Station("a", service_time=UNLIKE, discipline="lifo-pr", rates=[1.0, 1.2, 1.2, 0.8]),
        qn.Station("b", service_time={"u": 0.1, "v": 0.4}, scv={"u": 1.0, "v": 3.0}, **FCFS),
    ],
    "alternating classes": [
        qn.Station("a", service_time={"u": 0.02, "v": 0.5}, **FCFS),
        qn.Station("b", service_time=0.1),
    ],
}


def case(kind):
    if "classes" in kind:
        classes = [qn.JobClass("u", population=3), qn.JobClass("v", population=1, think_time=0.2)]
        routing = ROUTING if "alternating" in kind else None
        return qn.Network(KINDS[kind], think_time=0.5, classes=classes, routing=routing), (3, 1)
    return qn.Network(KINDS[kind], think_time=0.5), 4


@pytest.mark.slow
def test_interval_coverage_is_nominal():
    """Counted over every kind of station: 95 in 100, where intervals 20 % too narrow hold 90."""
    inside, seeds = [], range(100)
    for kind in KINDS:
        network, population = case(kind)
        truth = qn.solve(network, population=population, solver=qn.MarkovChain())
        for seed in seeds:
            result = qn.Simulation(seed=seed, departures=2000).run(network, population)
            low, high = result.throughput_interval
            below, above = result.queue_length_interval
            inside += [low <= truth.throughput <= high, below[0] <= truth.queue_length[0] <= above[0]]
            assert not low <= 1.2 * truth.throughput <= high  # the control
    share = np.mean(inside)
    assert 0.935 <= share <= 0.97, share  # 1,400 intervals, standard error 0.006 if all were apart


@pytest.mark.parametrize("kind", KINDS)
def test_long_runs_come_close(kind):
    network, population = case(kind)
    truth = qn.solve(network, population=population, solver=qn.MarkovChain())
    found = qn.Simulation(seed=3, departures=100_000).run(network, population)
    np.testing.assert_allclose(found.solution.class_throughput, truth.class_throughput, rtol=0.01)
    np.testing.assert_allclose(found.solution.class_queue_length, truth.class_queue_length, rtol=0.03)
    np.testing.assert_allclose(found.solution.utilization, truth.utilization, rtol=0.01)
    again, other = (qn.Simulation(seed=seed, departures=100_000).run(network, population) for seed in (3, 4))
    assert found.solution.throughput == again.solution.throughput != other.solution.throughput  # a seed repeats it


def test_run_length_adapts():
    stations = [qn.Station("fast", service_time=0.005), qn.Station("slow", service_time=1.0, visit_ratio=0.02)]
    network = qn.Network(stations, think_time=0.5)
    truth = qn.solve(network, population=12)
    result = qn.Simulation(seed=1, departures=2000).run(network, 12)
    assert result.events > 8 * 2000
    low, high = qn.Simulation(seed=1, departures=2000, confidence=0.99).run(network, 12).throughput_interval
    assert low <= truth.throughput <= high < 1.2 * truth.throughput
    below, above = result.queue_length_interval
    assert np.all((below < result.solution.queue_length) & (result.solution.queue_length < above))
    row = result.to_rows()[1]
    assert (row["lower"], row["upper"]) == (below[1], above[1])


def test_intervals_are_students():
    """Of two replications the interval tells how far they are apart, with the mean of three which the third is."""
    network, runs = qn.Network([qn.Station("q", service_time=0.2)], think_time=1.0), []
    for n, t in ((2, 6.313752), (3, 2.919986)):
        low, high = qn.Simulation(5, 20_000, n, confidence=0.9).run(network, 5).throughput_interval
        runs.append(((low + high) / 2, (high - low) / 2 / t * n**0.5))
    (two, spread), (three, wanted) = runs
    every = [two - spread / 2**0.5, two + spread / 2**0.5, 3 * three - 2 * two]
    assert np.std(every, ddof=1) == pytest.approx(wanted, rel=1e-5)


BALANCED = [qn.Station(f"s{k}", service_time=1.0) for k in range(5)]
SLOW = qn.Station("slow", service_time=10.0, visit_ratio=0.001)
VARIED = qn.Station("q", service_time=1.0, scv=1000.0, **FCFS)


@pytest.mark.parametrize(("stations", "population", "why"), [
    (BALANCED, 2000, r"the queue at station 's0' still depends on the start"),
    ([qn.Station("fast", service_time=0.005), SLOW], 32, r"too few visits to station 'slow'"),
    ([VARIED, qn.Station("other", service_time=0.5)], 3, r"too few visits to station 'q'"),
])  # fmt: skip
def test_short_runs_give_no_interval(stations, population, why):
    with pytest.warns(qm.QueueModelWarning, match=rf"40,000 departures in each replication are not enough: {why}"):
        result = qn.Simulation(departures=20_000, most_departures=40_000).run(qn.Network(stations), population)
    assert np.isnan([*result.throughput_interval, *result.queue_length_interval.flat]).all()
    assert "no interval" in repr(result)
    assert json.loads(result.to_json())["throughput_interval"] == [None, None]


def test_transient_is_excluded():
    """What is written over the transient changes nothing, over the batch behind it everything."""
    network = qn.Network([qn.Station("a", service_time=0.3), qn.Station("b", service_time=0.2)], think_time=0.5)
    routes, starts = routes_of(network), []
    for number in range(3):
        run = Replication(routes, model_of(routes, 4), (4,), np.random.default_rng(1), number, 10)
        starts += set(run.run.place.tolist())
        run.fill()
        before = [*run.measures(), run.series()]
        fifth = BATCHES // 5
        for written in (run.run.durations, run.run.areas, run.run.departures, run.run.busy):
            written[:fifth] = 1000
        for value, same in zip([*run.measures(), run.series()], before, strict=True):
            np.testing.assert_array_equal(value, same)
        run.run.durations[fifth] *= 1000
        assert run.measures()[0] < 0.5 * before[0]
    assert sorted(starts) == [0, 1, 2]


def test_interrupt_ends_a_long_simulation():
    """In a process of its own: an interruption that comes late would end the tests instead."""
    program = """
import signal
from queuemodel import queueing as qn
signal.signal(signal.SIGINT, signal.default_int_handler)
network = qn.Network([qn.Station("q", service_time=0.2)], think_time=1.0)
print("begins", flush=True)
qn.solve(network, population=5, solver=qn.Simulation(departures=10**10))  # an hour
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stdout.readline() == "begins\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGINT
    assert err.rstrip().endswith("KeyboardInterrupt")
