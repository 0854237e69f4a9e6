"""Measured throughputs tell the simulation on which network it is, and how far it errs there."""

import msgspec
import numpy as np
import pytest
from by_hand import LINKS, profile_of, two_layers

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.models import calibrate, trace_curve
from queuemodel.profile import Throughput
from queuemodel.simulator import simulate_operations

FAST = {"steps": 600, "links": LINKS}


def of(workers, speed, **more):
    return Throughput(workers=workers, steps_per_second=speed, **more)


def share(found, kind):
    return next(p.value for p in found.parameters if p.name == f"probability of {kind}")


@pytest.mark.parametrize(("truth", "trip"), [("loss-based", 0.0), ("bbr", 0.012)])
def test_the_network_that_made_the_throughputs_is_found(truth, trip):
    profile = profile_of(two_layers())
    speeds = [
        simulate_operations(profile, workers=n, loaded_trip=trip, links=LINKS, steps=4000 // n).throughput
        for n in (3, 5)
    ]
    points = [of(n, speed, standard_error=0.005 * speed) for n, speed in zip((3, 5), speeds, strict=True)]
    found = calibrate(profile, points, **FAST)
    before = {"loss-based": 2 / 3, "bbr": 1 / 3}[truth]
    assert share(found, truth) > 0.5 * (1 + before)
    assert found.likeliest.name == truth
    assert not found.doubtful
    assert truth in found.note


@pytest.mark.parametrize(("told", "trips"), [({}, (0.25, 4.0)), ({"buffer": 0.02}, (0.7, 1.4))], ids=["not", "told"])
def test_networks_that_may_be_are_as_likely_as_is_said(told, trips):
    """Each kind as it is assumed, or with one factor, on unfairness or on the loaded trip, 15 % each."""
    settings = {"workers": [3], "steps": 60, "replications": 1, "links": LINKS, **told}
    found = calibrate(profile_of(two_layers()), [of(2, 0.5)], congestion_control="unknown", **settings)
    factors = [(1.0, 1.0), (1.0, 0.5), (1.0, 2.0), *((trip, 1.0) for trip in trips)]
    each = [(kind, share * (0.4 if i == 0 else 0.15), *one)
            for kind, share in enumerate((2 / 3, 1 / 3)) for i, one in enumerate(factors)]  # fmt: skip
    assert [(v.kind, v.weight, v.trip, v.unfairness) for v in found.variants] == [pytest.approx(one) for one in each]
    np.testing.assert_allclose(found.prior.models, [one[1] for one in each])
    before = {p.name: p.note for p in found.parameters}
    assert before["probability of bbr"] == "prior 0.33"
    trip = told.get("buffer", 0.012)
    mean = trip * (0.7 + 0.15 * sum(trips))
    spread = np.sqrt(0.7 * (trip - mean) ** 2 + 0.15 * sum((f * trip - mean) ** 2 for f in trips))
    assert before["loaded trip (bbr)"] == f"prior +- {spread:.2g}"
    place = found.places[0]  # nobody shares a link: what one worker's steps leave open does not grow with errors
    assert np.ptp(found.prior.covariance[:, place, place]) < 1e-12 < np.ptp(found.prior.covariance[:, -1, -1])


def test_what_contradicts_itself_widens_the_interval_and_is_said():
    profile = profile_of(two_layers())
    settings = {"workers": [4, 8], "replications": 1, **FAST}
    before = trace_curve(profile, **settings)
    x = before.at(4)
    agree, differ = (trace_curve(profile, measured=[of(4, x), of(4, y * x)], **settings) for y in (1.02, 1.5))
    wide, narrow, wider = (one.upper / one.lower for one in (before, agree, differ))
    assert (
        narrow[0] < wide[0] < wider[0]
    )  # with so many as were measured; of others they tell at least on which network
    assert narrow[1] < min(wide[1], wider[1])
    assert "unlikely" in differ.note
    assert "unlikely" not in agree.note


def test_tracing_costs_time_on_machines_and_not_on_links():
    profile = example_profile("alexnet-60")
    settings = {"workers": [1, 2, 8], "steps": 400, "replications": 1}
    traced, faster = (trace_curve(profile, measured=points, **settings) for points in ([], [of(1, 1.5)]))
    assert faster.single == pytest.approx(1.5)
    gain = faster.steps_per_second / traced.steps_per_second
    assert gain[0] == pytest.approx(1.5 / traced.single)
    assert 1.02 < gain[2] < gain[1] < gain[0]
    hosts = {"ps:0": "localhost:1", "worker:0": "localhost:2"}
    here = msgspec.structs.replace(
        profile, source=msgspec.structs.replace(profile.source, hosts=hosts), cluster=qm.Cluster()
    )
    traced, faster = (trace_curve(here, measured=points, **settings) for points in ([], [of(1, 1.5)]))
    for name in ("steps_per_second", "lower", "upper", "bound_lower", "bound_upper"):
        assert getattr(faster, name) == pytest.approx(1.5 / traced.single * getattr(traced, name))


def test_other_machines_are_simulated_as_what_they_were():
    profile = profile_of(two_layers())
    speed = simulate_operations(
        profile, workers=4, bandwidth=0.5e6, loaded_trip=0.0, links=LINKS, steps=1000
    ).throughput
    points = [of(4, speed, bandwidth=0.5e6), of(2, 0.55, parameter_servers=2)]
    found = calibrate(profile, points, workers=[4], parameter_servers=3, congestion_control="cubic", **FAST)
    assert [site.settings for site in found.sites] == [
        {}, {"bandwidth": 0.5e6}, {"parameter_servers": 2}, {"parameter_servers": 3}
    ]  # fmt: skip
    assert [site.workers for site in found.sites] == [(1,), (1, 4), (1, 2), (1, 4)]
    place = 2  # four workers on half the bandwidth
    assert np.exp(found.prior.logs[0, 0, place]) == pytest.approx(speed, rel=0.08)
    one, two, four, eight = np.log(found.discrepancy.factors(np.array([1, 2, 4, 8]), 0.9)).T
    assert (two, eight) == (pytest.approx((one + four) / 2), pytest.approx(four))  # straight in the workers' logarithm
