"""What one worker's trace says of the kind of network, by what came late in it."""

import msgspec
import numpy as np
import pytest
from by_hand import LINKS, profile_of, serial

import queuemodel as qm
from queuemodel.traces import trace_curve
from queuemodel.traces.contention import contentions
from queuemodel.traces.evidence import NEGLIGIBLE, likely, weighed

FETCH, STEPS, BUFFER = 0.4, 12, 0.05
HERE = {"worker:0": "127.0.0.1:1", "ps:0": "127.0.0.1:2"}


def held_up(seconds, fetch=FETCH, push=None):
    """A step whose parameter came so much later than its bytes."""
    on_time = serial(fetch=fetch, compute=0.2, push=fetch if push is None else push)
    shifted = [msgspec.structs.replace(o, start=o.start + seconds, end=o.end + seconds) for o in on_time]
    return [msgspec.structs.replace(shifted[0], start=0.0), *shifted[1:]]


def profile_with(*late, steps=STEPS, cluster=None, **source):
    steps = [held_up(seconds) for seconds in (*late, *[0.0] * (steps - len(late)))]
    profile = profile_of(*steps)
    source = qm.Source(framework="by hand", **source)
    return msgspec.structs.replace(profile, cluster=cluster or qm.Cluster(buffer=BUFFER), source=source)


def shares(profile, **told):
    return {kind.name: kind.share for kind in weighed(contentions(profile, **told), profile, links=LINKS, **told)}


def test_what_came_late_speaks_for_bbr_and_little_against_it_if_nothing_did():
    none, one, three = (shares(profile_with(*[0.25] * n))["bbr"] for n in (0, 1, 3))
    assert 0.15 < none < 1 / 3
    assert 0.5 < one < three
    assert three > 0.9


def test_by_how_much_follows_from_how_often_a_lone_connection_falls_silent():
    found = shares(profile_with(), buffer=10.0)  # so many packets that it hardly ever does
    assert found["bbr"] == pytest.approx(1 / 3, abs=0.02)
    often = 0.25 * 12 / (1e6 * BUFFER / 1448)  # a second, of fetching and pushing
    rate = [0.7 * often, often, often, often, often / 1.0]
    spared = np.mean([np.exp(-FETCH * r / f) for r, f in zip(rate, (0.7, 1.0, 1.0, 1.0, 1.4), strict=True)])
    ratio = spared ** (2 * STEPS)
    expected = ratio / (2 + ratio)
    assert shares(profile_with())["bbr"] == pytest.approx(expected, abs=0.06)


def test_a_buffer_that_nobody_tells_may_be_one_in_which_little_comes_late():
    untold = profile_with(cluster=qm.Cluster())
    assumed = contentions(untold)[0].loaded_trip
    as_assumed, larger = (shares(untold, buffer=buffer)["bbr"] for buffer in (assumed, 4 * assumed))
    assert 1.3 * as_assumed < shares(untold)["bbr"] < larger


def test_fetches_are_held_against_fetches():
    """A push takes longer than even a late fetch."""
    steps = [held_up(seconds, fetch=0.1, push=0.5) for seconds in (0.25, 0.25, 0.25, *[0.0] * (STEPS - 3))]
    profile = msgspec.structs.replace(profile_of(*steps), cluster=qm.Cluster(buffer=BUFFER))
    assert shares(profile)["bbr"] > 0.5


def test_what_is_always_late_says_nothing():
    late = profile_with(*[0.25] * STEPS)
    assert shares(late)["bbr"] == pytest.approx(1 / 3, abs=0.15)


@pytest.mark.parametrize("late", [0.05, 0.09])
def test_scatter_is_no_silence(late):
    assert shares(profile_with(late, late, late)) == pytest.approx(shares(profile_with()))


def test_a_long_transfer_may_scatter_by_a_tenth():
    steps = [held_up(late, fetch=40.0) for late in (3.0, 3.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0)]
    profile = msgspec.structs.replace(profile_of(*steps), cluster=qm.Cluster(buffer=BUFFER))
    assert shares(profile)["loss-based"] > 0.5


@pytest.mark.parametrize(
    ("profile", "told"),
    [
        (profile_with(0.25, 0.25, 0.25), {"congestion_control": "cubic"}),
        (profile_with(0.25, 0.25, 0.25), {"loaded_trip": 0.0}),
        (profile_with(0.25, 0.25, 0.25, cluster=qm.Cluster(workers=2)), {}),  # they wait for each other
        (profile_with(0.25, 0.25, 0.25, hosts=HERE, cluster=qm.Cluster()), {}),  # no network
    ],
)
def test_where_there_is_nothing_to_tell_apart_kinds_stay_as_they_are(profile, told):
    kinds = contentions(profile, **told)
    assert weighed(kinds, profile, links=LINKS, **told) == kinds


def test_a_trace_from_loopback_says_nothing_of_another_network():
    profile = profile_with(0.25, 0.25, 0.25, hosts=HERE, cluster=qm.Cluster())
    kinds = contentions(profile, bandwidth=1e6)
    assert weighed(kinds, profile, links=LINKS) == kinds
    assert len(kinds) == 2


RUN = {"workers": [4], "steps": 400, "replications": 2, "links": LINKS}


def test_a_curve_is_that_of_the_likeliest_kind_and_its_interval_that_of_all():
    silent, none = profile_with(*[0.25] * 3), profile_with()
    late, bbr = (trace_curve(silent, **told, **RUN) for told in ({}, {"congestion_control": "bbr"}))
    assert late.at(4) == bbr.at(4)
    assert late.method.endswith("bbr)")
    assert late.upper > bbr.upper
    assert "3 of 24 recorded phases came late" in late.note
    assert "--congestion-control" in late.note
    quiet, cubic = (trace_curve(none, **told, **RUN) for told in ({}, {"congestion_control": "cubic"}))
    assert quiet.at(4) == cubic.at(4)
    assert quiet.lower < cubic.lower


def test_an_interval_leaves_out_a_kind_that_is_negligible():
    silent = profile_with(*[0.25] * 4, steps=24)
    kinds = weighed(contentions(silent), silent, links=LINKS)
    assert [kind.name for kind in kinds] == ["bbr", "loss-based"]
    assert sum(kind.share for kind in kinds) == pytest.approx(1.0)
    assert kinds[1].share < NEGLIGIBLE
    assert likely(kinds) == kinds[:1]
    late, bbr = (trace_curve(silent, **told, **RUN) for told in ({}, {"congestion_control": "bbr"}))
    assert (late.lower, late.upper) == (bbr.lower, bbr.upper)
