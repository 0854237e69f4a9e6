"""The accuracy that the project claims, held against every measured series, and controls that it could fail."""

import dataclasses
from pathlib import Path

import msgspec
import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="reading the testbed's traces needs TensorFlow")

from queuemodel.adapters.tensorflow import read_traces
from queuemodel.traces import estimate_links, simulate
from queuemodel.traces.curve import trace_throughput
from queuemodel.training.bandwidth import best_rates
from queuemodel.training.model_error import REGIONS, model_error, profiled_error
from validation.blind import predicted_now, predicted_then
from validation.model_errors import calibrated, errors_of, leave_kind_out
from validation.published import compare_cloud
from validation.series import compare_testbed, compare_unusual, kind_of, read_testbed, series_folders


@pytest.fixture(scope="module")
def profiles():
    return [(folder, read_testbed(folder)) for folder in series_folders()]


@pytest.fixture(scope="module")
def mva(profiles):
    return [compare_testbed(folder, profile, "mva") for folder, profile in profiles]


@pytest.fixture(scope="module")
def traced(profiles):
    return [compare_testbed(folder, profile, "trace") for folder, profile in profiles]


@pytest.fixture(scope="module")
def others():
    return [(folder, read_testbed(folder)) for folder in series_folders(usual=False)]


@pytest.fixture(scope="module")
def unusual(others):
    return [compare_unusual(folder, profile) for folder, profile in others]


@pytest.fixture(scope="module")
def cloud():
    return compare_cloud()


def mean_error(comparisons):
    return np.mean([c.error for c in comparisons])


def silences(profile):
    """Seconds by which phases ended later than their kind's usual ones, where that is more than scatter."""
    late = 0.0
    for kind in ("fetch", "push"):
        steps = [[o for o in step.operations if o.kind == kind and o.bytes > 0] for step in profile.steps]
        took = np.array([max(o.end for o in own) - min(o.start for o in own) for own in steps])
        late += np.where(took > np.median(took) + 0.1, took - np.median(took), 0.0).sum()
    return late


def replayed(profile, links=None):
    """Seconds of a simulated step of one worker over those recorded, without what came late."""
    recorded = profile.values("step_time").mean() - silences(profile) / len(profile.steps)
    return 1 / simulate(profile, workers=1, steps=2000, loaded_trip=0.0, links=links).throughput / recorded


def test_one_worker_makes_the_very_steps_that_were_recorded(profiles, others):
    stalled = "resnet50-60-bbr-12ms-ordered"  # half of its fetches stood still in the middle, for 40 to 120 ms
    every = [profile for folder, profile in [*profiles, *others] if folder.name != stalled]
    alone = [replayed(profile) for profile in every if profile.cluster.parameter_servers == 1]
    several = [replayed(profile) for profile in every if profile.cluster.parameter_servers > 1]
    assert alone == pytest.approx([1.0] * len(alone), abs=0.008)
    assert several == pytest.approx([1.0] * len(several), abs=0.025)
    links = estimate_links(every[0])
    slower = dataclasses.replace(links, transmit=dataclasses.replace(links.transmit, rate=links.transmit.rate / 1.03))
    assert abs(replayed(every[0], slower) - 1) > 0.008


@pytest.mark.parametrize(
    ("trace", "told", "within"),
    [
        ("alexnet-60/trace", {"batch_size": 1}, 0.008),
        ("resnet50-60/trace", {"batch_size": 1}, 0.008),
        ("layer-order", {"batch_size": 1}, 0.05),  # one step
        ("xplane-1ps", {"batch_size": 32, "parameter_bytes": 788_992}, 0.07),  # on loopback, where nothing takes turns
        ("xplane-2ps", {"batch_size": 32, "parameter_bytes": 788_992}, 0.05),
    ],
)
def test_one_worker_makes_recorded_steps_of_which_nothing_is_told(trace, told, within):
    profile = read_traces(Path(__file__).parents[1] / "data" / trace, **told)
    assert replayed(profile) == pytest.approx(1.0, abs=within)
    X, lower, upper = trace_throughput(profile, workers=[1])[0]
    steps = profile.values("step_time")
    assert X * steps.mean() == pytest.approx(1.0, abs=0.08)
    assert lower < 1 / steps.mean() < upper
    assert upper < 1.7 * lower


def test_testbed_from_one_workers_traces(mva):
    assert len(mva) >= 2
    assert mean_error(mva) <= 0.08
    assert max(c.error for c in mva) <= 0.15


def test_testbed_by_simulation(traced):
    assert mean_error(traced) <= 0.05
    assert max(c.error for c in traced) <= 0.10


def test_one_worker_of_several_servers_is_simulated_as_it_was_measured(traced):
    """Under BBR connections take over from each other at the end of a transfer, which is not simulated."""
    alone = [comparison.errors[0] for comparison in traced if "ps" in comparison.name]
    assert len(alone) == 5
    assert np.abs(alone).max() < 0.06


def test_cubic_is_right_as_what_it_is_and_wrong_as_bbr(profiles):
    ((folder, cubic),) = [pair for pair in profiles if pair[0].name == "alexnet-60-cubic-25ms"]
    right = compare_testbed(folder, cubic, "trace")
    assert right.error <= 0.03
    assert right.coverage == 1.0
    wrong, unknown = (compare_testbed(folder, told(cubic, name), "trace") for name in ("bbr", "unknown"))
    assert wrong.errors[2:].max() < -0.03
    assert wrong.error > right.error
    assert unknown.coverage == 1.0
    np.testing.assert_array_equal(unknown.predicted, right.predicted)


def told(profile, name):
    """The profile on a network of another kind."""
    cluster = msgspec.structs.replace(profile.cluster, congestion_control=name)
    return msgspec.structs.replace(profile, cluster=cluster)


def test_series_know_their_network(profiles):
    kinds = {folder.name: (p.cluster.congestion_control, p.cluster.buffer) for folder, p in profiles}
    assert kinds["alexnet-60"] == kinds["resnet50-60"] == ("bbr", 0.012)
    assert kinds["alexnet-60-cubic-25ms"] == kinds["resnet50-60-2ps-cubic-25ms"] == ("cubic", 0.025)
    assert kinds["vgg16-60-reno-4ms"] == ("reno", 0.004)


def test_barrier_and_unequal_machines(unusual):
    assert len(unusual) >= 4
    assert mean_error(unusual) <= 0.07
    assert max(c.error for c in unusual) <= 0.12


def test_cloud_beyond_the_fitted_workers(cloud):
    assert len(cloud) == 6
    assert mean_error(cloud) <= 0.1


def test_intervals_cover_most_measurements(mva, cloud):
    assert np.mean([c.coverage for c in mva]) >= 0.85
    assert np.mean([c.coverage for c in cloud]) >= 0.85


def test_intervals_hold_on_kinds_of_network_left_out(mva, traced, unusual):
    kinds = [kind_of(folder) for folder in [*series_folders(), *series_folders(usual=False)]]
    for comparisons in (mva, [*traced, *unusual]):
        found = [errors_of(c, kind) for c, kind in zip(comparisons, kinds, strict=False)]
        ends = leave_kind_out(found, calibrated)
        value, lower, upper = (
            np.concatenate(rows) for rows in zip(*[(np.exp(one.off), lo, hi) for one, lo, hi in ends], strict=True)
        )
        assert ((lower <= value) & (value <= upper)).mean() >= 0.85
        assert ((lower**0.4 <= value) & (value <= upper**0.4)).mean() < 0.85, "far too narrow ones go unnoticed"
        assert (upper - lower).mean() < 0.35
        method = comparisons[0].method
        packaged = [profiled_error(method), *model_error(method, np.array(list(REGIONS.values())))]
        assert np.allclose(packaged, calibrated(found), atol=0.02), "run python -m validation.model_errors"


@pytest.mark.parametrize("factor", [0.85, 1.15])
def test_a_model_that_is_wrong_would_be_noticed(mva, cloud, factor):
    for comparisons in (mva, cloud):
        wrong = [
            dataclasses.replace(
                c, curve=dataclasses.replace(c.curve, steps_per_second=factor * c.curve.steps_per_second)
            )
            for c in comparisons
        ]
        assert mean_error(wrong) > 0.08


def test_better_than_a_straight_line(cloud):
    line = [np.abs(c.workers * c.curve.measured[0][1] / c.measured - 1).mean() for c in cloud]
    assert np.mean(line) > 3 * mean_error(cloud)


def test_networks_that_nobody_had_measured_are_predicted_about_as_well_as_those_learnt_from():
    then, *_ = predicted_then()
    for method, most in (("trace", 0.05), ("mva", 0.07), ("all-reduce", 0.02)):
        some = [c for c in then if c.method == method]
        assert np.mean([np.abs(c.errors[c.counts > 1]).mean() for c in some]) < most
        assert np.mean([c.coverage for c in some]) >= 0.85
    line = np.mean([c.counts[-1] * c.first[0] / c.first[-1] - 1 for c in then if c.method == "trace"])
    assert line > 1.0, "eight workers, were they eight times as fast as one"


def test_strategies_that_were_predicted_before_they_were_measured_are_as_the_pages_say():
    *_, waiting = predicted_then()
    assert np.mean([c.coverage for c in waiting]) >= 0.85
    assert np.mean([c.error for c in waiting]) < 0.1


def test_queues_that_no_series_had_before_are_told_or_seen(profiles, others):
    assert all(best_rates(profile) is None for _, profile in [*profiles, *others]), "one worker fills these links"
    then, now = ({(c.name.split()[0], c.method): c for c in found} for found in (predicted_then()[1], predicted_now()))
    for method in ("trace", "mva"):
        policed = "alexnet-60-cubic-policed", method
        assert np.abs(now[policed].errors[1:]).max() < 0.3
        assert now[policed].coverage >= 0.75
        assert then[policed].errors[2:].max() < -0.5, "as if the link carried what one worker gets"
    own_queues = "resnet50-60-bbr-fq-codel", "trace"
    assert abs(now[own_queues].errors[2]) < 0.08
    assert then[own_queues].errors[2] < -0.15, "as if in one queue, where connections fall silent"
    assert np.mean([c.coverage for c in now.values() if c.method == "trace"]) >= 0.85
