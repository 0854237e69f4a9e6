"""How much of a link few workers use under BBR: by counting, at its ends, and against measurements."""

import itertools
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel.data import example_profile
from queuemodel.training.flights import Flights
from queuemodel.training.rules import ParallelServers
from validation.testbed.recordings import unpacked

SERIES = Path(__file__).parents[2] / "validation" / "testbed" / "series"
SIZES = (3.05e6, 3.05e6)


def counted(least, here, others, p):
    """Mean share of a link that ``here`` workers use, counting for each of the others whether it sends against them."""
    used = 0.0
    for against in itertools.product((0, 1), repeat=others):
        K = sum(against)
        share = max(1 / K, least) if K > 1 else 1.0
        used += p**K * (1 - p) ** (others - K) * min(1.0, here * share)
    return used


@given(least=st.floats(0.12, 1.0), Q=st.floats(0.1, 3.9), workers=st.integers(2, 9))
def test_rates_are_means_over_who_sends_the_other_way(least, Q, workers):
    both = np.array([min(Q, 0.45 * (workers - 1)), 0.3 * (workers - 1)])
    rates = Flights(SIZES, 0.01).rates(np.full(2, least), both, workers=workers, levels=8)
    for way in (0, 1):
        p = both[1 - way] / (workers - 1 - both[way])
        expected = [counted(least, here, workers - here, p) for here in range(1, workers + 1)]
        np.testing.assert_allclose(rates[:workers, way], expected[:8], rtol=1e-6)


@pytest.mark.parametrize(("seconds", "buffer", "least"), [(0.42, 0.012, 0.40), (0.42, 0.04, 0.12), (0.42, 0.004, 1.0)])
def test_a_window_of_24_packets_on_60_mbit(seconds, buffer, least):
    assert Flights(SIZES, buffer).least_share(np.full(2, seconds)) == pytest.approx(np.full(2, least), rel=0.05)


def test_a_fast_link_has_five_milliseconds_under_way():
    assert Flights(SIZES, 0.025).least_share(np.full(2, 0.17)) == pytest.approx([0.2, 0.2], rel=0.01)


DEMANDS, OWN = np.array([0.423, 0.423, 0.001]), np.array(0.12)  # of alexnet-60 at 60 Mbit/s, from its traces


def measured(name):
    rows = json.loads((unpacked(SERIES) / name / "measured.json").read_text())
    return np.array([(row["workers"], row["steps_per_s"]) for row in rows if row["workers"] >= 4]).T


@pytest.mark.parametrize(("name", "buffer"), [("alexnet-60", 0.012), ("alexnet-60-bbr-40ms", 0.04)])
def test_long_buffers_cost_what_was_measured(name, buffer):
    """Control: links that are always used in full are too fast by what the buffer costs."""
    workers, steps = measured(name)
    held, full = (
        ParallelServers(settled=0.88, flights=flights).solve(DEMANDS, OWN, workers.astype(int)).X / steps - 1
        for flights in (Flights(SIZES, buffer), None)
    )
    assert np.abs(held).max() < 0.07
    assert full.max() > (0.15 if buffer > 0.02 else 0.07)


@given(
    D=st.lists(st.floats(0.01, 2.0), min_size=3, max_size=3).map(np.array),
    Z=st.floats(0.0, 5.0),
    buffer=st.floats(0.001, 0.2),
)
def test_longer_buffers_never_help_and_cost_no_more_than_everyones_turn(D, Z, buffer):
    populations = np.array([1, 2, 5, 30])
    free, short, longer = (
        ParallelServers(flights=flights).solve(D, np.array(Z), populations).X
        for flights in (None, Flights(SIZES, buffer), Flights(SIZES, 2 * buffer))
    )
    assert short[0] == pytest.approx(free[0])
    assert np.all(short <= free * 1.01)  # waiting moves between the directions
    assert np.all(longer <= short * 1.01)
    assert np.all(longer * (Z + populations * D.sum()) >= populations * (1 - 1e-9))


def test_where_nobody_told_who_controls_congestion_intervals_reach_down_to_bbr():
    """The point is fair sharing's, as under control by losses; the lower end the lower one's of both, not below."""
    workers, profile = [1, 2, 4, 8], example_profile("alexnet-60")
    untold, fair, bbr = (qm.fit(profile.told(control)).throughput(workers) for control in ("unknown", "cubic", "bbr"))
    np.testing.assert_allclose(untold.steps_per_second, fair.steps_per_second)
    np.testing.assert_allclose(untold.upper, fair.upper)
    np.testing.assert_allclose(untold.lower, np.minimum(fair.lower, bbr.lower))
    assert untold.lower[2] < 0.95 * fair.lower[2]
    assert "--congestion-control" in untold.note
    assert "--congestion-control" not in fair.note + bbr.note


@pytest.mark.parametrize("known", ["queues", "measured", "one machine", "one station", "fast links"])
def test_nothing_is_in_doubt_where_bbr_makes_no_difference_or_was_measured(known):
    profile, settings = example_profile("alexnet-60").told("unknown"), {}
    if known == "queues":
        profile = profile.told(buffer=0.0)
    elif known == "measured":
        settings["throughputs"] = [qm.Throughput(workers=4, steps_per_second=1.74)]
    elif known == "one machine":
        hosts = {"worker:0": "localhost:1", "ps:0": "localhost:2"}
        source = msgspec.structs.replace(profile.source, hosts=hosts)
        cluster = msgspec.structs.replace(profile.cluster, bandwidth=None)
        profile = msgspec.structs.replace(profile, source=source, cluster=cluster)
    elif known == "one station":
        settings["form"] = "single"
    model = qm.fit(profile, **settings).what_if(bandwidth=1e9 if known == "fast links" else None)
    assert "congestion" not in model.throughput([4]).note
