"""Percentiles of response times: closed forms, laws, and the simulation's intervals against both."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

import queuemodel as qm
from queuemodel import queueing as qn

FCFS = {"discipline": "fcfs"}
SHARES = (0.5, 0.9, 0.99)


def central_server(servers):
    q, other = qn.Station("q", service_time=0.5, servers=servers, **FCFS), qn.Station("other", service_time=0.3)
    return qn.Network([q, other], think_time=1.0)


@pytest.mark.parametrize("servers", [1, 2, 3, math.inf])
@pytest.mark.parametrize("population", [1, 2, 7, 40])
def test_percentiles_agree_with_means(servers, population):
    """The mean of the distribution, the integral of its percentiles, is the residence time."""
    network = central_server(servers)

    def percentile(u):  # share = 1 - u**4 spreads the tail
        return qn.response_percentile(network, "q", 1 - u**4, population=population) * 4 * u**3

    mean = quad(percentile, 1e-3, 1 - 1e-4, epsrel=1e-5)[0]
    expected = qn.solve(network, population=population).residence_time[0]
    assert mean == pytest.approx(expected, rel=1e-3)


def test_two_customers_by_hand():
    """One of two finds the other in service with 1/3: P(T > t) = exp(-2 t) (1 + 2 t / 3)."""
    network = qn.Network([qn.Station("q", service_time=0.5, **FCFS)], think_time=1.0)
    for share in SHARES:
        t = qn.response_percentile(network, "q", share, population=2)
        assert math.exp(-2 * t) * (1 + 2 * t / 3) == pytest.approx(1 - share, rel=1e-9)
    one_class = qn.Network(network.stations, classes=[qn.JobClass("c", population=2, think_time=1.0)])
    assert qn.response_percentile(one_class, "q", SHARES[-1]) == pytest.approx(t)


def open_queue(servers, rate):
    station = qn.Station("q", service_time=0.5, servers=servers, **FCFS)
    return qn.Network([station], classes=[qn.JobClass("c", arrival_rate=rate)])


CASES = [*zip(map(central_server, (1, 3, math.inf)), (6, 9, 4), strict=True),
         (open_queue(1, 1.0), None), (open_queue(2, 2.5), None)]  # fmt: skip


def test_intervals_hold_closed_forms():
    """Of 5 networks, 3 shares and 12 seeds about 95 in 100 intervals, and few of a truth 5 % away."""
    inside, wrong = [], []
    for network, population in CASES:
        for seed in range(12):
            run = qn.Simulation(seed=seed, departures=20_000).run(network, population)
            for share in SHARES:
                truth = qn.response_percentile(network, "q", share, population=population)
                found = run.response_percentile("q", share)
                inside.append(found.lower <= truth <= found.upper)
                assert found.lower <= found.value <= found.upper
                wrong.append(found.lower <= 1.05 * truth <= found.upper)  # the control
    assert 0.88 <= np.mean(inside) <= 0.99, np.mean(inside)
    assert np.mean(wrong) < 0.4, np.mean(wrong)


def test_open_queues_in_closed_form():
    """M/M/1 and a delay; with three servers where both exponential phases have one rate."""
    for share in SHARES:
        rest = -math.log(1 - share)
        assert qn.response_percentile(open_queue(1, 1.2), "q", share) == pytest.approx(rest / (1 / 0.5 - 1.2))
        assert qn.response_percentile(open_queue(math.inf, 1.2), "q", share) == pytest.approx(0.5 * rest)
    same, near = (qn.response_percentile(open_queue(3, rate), "q", 0.9) for rate in (4.0, 4.0 + 1e-5))
    assert same == pytest.approx(near, rel=1e-4)


def test_cycles_through_tandem_queues():
    """Sojourns in M/M/1 queues in tandem are independent and exponential (Reich, 1957)."""
    queues = [qn.Station("a", service_time=0.5, **FCFS), qn.Station("b", service_time=0.25, **FCFS)]
    run = qn.Simulation(seed=2).run(qn.Network(queues, classes=[qn.JobClass("c", arrival_rate=1.0)]), None)
    a, b = 2.0 - 1.0, 4.0 - 1.0
    longer = lambda t: (b * math.exp(-a * t) - a * math.exp(-b * t)) / (b - a)  # noqa: E731
    for share in SHARES:
        truth = brentq(lambda t, rest=1 - share: longer(t) - rest, 0, 50)
        assert run.response_percentile(None, share).value == pytest.approx(truth, rel=0.04)


def test_constant_service_has_one_response_time():
    """At a delay, whose visit is the whole cycle."""
    network = qn.Network([qn.Station("d", service_time=0.7, scv=0.0, servers=math.inf)], think_time=1.0)
    run = qn.Simulation(departures=10_000).run(network, 3)
    for place, share in itertools.product(("d", None), (0.01, 0.99)):
        assert run.response_percentile(place, share).value == pytest.approx(0.7)


def test_classes_have_their_percentiles():
    """At a delay each class has its own exponential time; together they are its mixture."""
    station = qn.Station("d", service_time={"u": 1.0, "v": 0.1}, servers=math.inf)
    classes = [qn.JobClass("u", population=3), qn.JobClass("v", population=3)]
    run = qn.Simulation(seed=4, departures=50_000).run(qn.Network([station], think_time=0.5, classes=classes), None)
    u, v, both = (run.response_percentile("d", 0.9, job_class=name).value for name in ("u", "v", None))
    assert [u, v] == pytest.approx([-math.log(0.1), -0.1 * math.log(0.1)], rel=0.03)
    assert v < both < u


@pytest.mark.parametrize(("ask", "expected"), [
    (lambda run: run.response_percentile("q", 1.0), "share"),
    (lambda run: run.response_percentile("r", 0.9), "station must be one of q"),
    (lambda run: run.response_percentile("q", 0.9, job_class="c"), "class"),
    (lambda run: run.response_percentile(None, 0.9), "no cycles, which begin with a think time"),
])  # fmt: skip
def test_impossible_percentiles_are_refused(ask, expected):
    network = qn.Network([qn.Station("q", service_time=0.2), qn.Station("r r", service_time=0.1)])
    with pytest.raises(qm.ModelError, match=expected):
        ask(qn.Simulation(departures=1000).run(network, 2))


def test_rare_responses_have_no_interval():
    network = qn.Network([qn.Station("q", service_time=0.5, **FCFS)], think_time=1.0)
    run = qn.Simulation(seed=1, departures=2000).run(network, 3)
    few, many = run.response_percentile("q", 0.9999), run.response_percentile("q", 0.9)
    assert np.isnan([few.lower, few.upper]).all()
    assert few.value > many.upper > many.lower
