"""What is measured besides conditions what is predicted: the law by draws, and what holds for every model."""

import msgspec
import numpy as np
import pytest
from scipy import stats

import queuemodel as qm
from queuemodel.curves.prediction import Prediction
from queuemodel.models import trace_curve
from queuemodel.profile import Measurement, example_profile
from queuemodel.simulator import simulate_operations
from tests.oracles.by_hand import LINKS, profile_of, two_layers

FAST = {"steps": 600, "links": LINKS}


def of(workers, speed, **more):
    return Measurement(workers=workers, steps_per_second=speed, **more)


def some_prediction():
    """Four places, the last on other machines, two kinds of network, and errors that differ."""
    workers = np.array([1, 2, 8, 4])
    return Prediction(
        workers=workers, machines=np.array([0, 0, 0, 1]), mean=np.log(np.outer(workers, [1.0, 0.6])) - 0.1,
        weights=np.array([0.7, 0.3]), kind=np.array([0, 1]), error=np.array([[0.02], [0.05], [0.1], [0.08]]),
        noise=np.array([0.01, 0.03, 0.02, 0.02]), correlation=0.6,
        spread=np.array([[0.03, 0.0], [0.02, 0.01], [0.0, 0.04], [0.0, 0.02]]),
    )  # fmt: skip


def test_conditioning_is_bayes_rule_by_draws():
    """Against draws of kinds, sizes of errors and noise, weighed by likelihood, each moved by Matheron's rule."""
    rng, count, at, noise = np.random.default_rng(1), 200_000, [1, 3], np.array([0.03, 0.02])
    prior, log_x = some_prediction(), np.log([1.75, 3.5])
    kind = rng.choice(2, count, p=[0.7, 0.3])
    size = stats.norm.ppf(0.95) / stats.t.ppf(0.95, 4) * np.sqrt(4 / rng.chisquare(4, count))
    scale = rng.choice([1.0, 2.0, 4.0, 10.0], count, p=[0.985, 0.01, 0.004, 0.001])
    octaves = np.log2([1, 2, 8, 4])
    alike = 0.6 ** np.abs(np.subtract.outer(octaves, octaves)) * np.where(
        np.eye(4)[3] == np.eye(4)[3][:, None], 1, 0.75
    )
    own = size[:, None] * (rng.standard_normal((count, 4)) @ np.linalg.cholesky(alike).T) * [0.02, 0.05, 0.1, 0.08]
    fixed = rng.standard_normal((count, 2)) @ prior.spread.T
    truth = prior.mean[:, kind].T + own + fixed
    off = (log_x - truth[:, at]) / (scale[:, None] * noise)
    weight = np.exp(-0.5 * (off**2).sum(axis=1)) / scale**2
    seen = truth + scale[:, None] * prior.noise * rng.standard_normal((count, 4))
    posterior, outliers = prior.condition(at, log_x, noise)
    found = np.log(posterior.interval(0.9))
    for k in range(4):
        order = np.argsort(seen[:, k])
        ends = np.interp([0.5, 0.05, 0.95], np.cumsum(weight[order]) / weight.sum(), seen[order, k])
        np.testing.assert_allclose(found[:, k], ends, atol=0.012)
    assert posterior.kinds(2)[1] == pytest.approx(np.average(kind, weights=weight), abs=0.02)
    assert not outliers.any()


def test_few_explaining_draws_never_narrow():
    workers, rng = np.array([1, 4]), np.random.default_rng(2)
    draws = np.log(workers)[:, None] + 0.2 * rng.standard_normal(400)
    prior = Prediction.drawn(workers, draws, error=0.001, noise=0.001)
    posterior, _ = prior.condition([0], np.array([0.5]), np.array([0.001]))  # beyond almost all draws
    assert np.ptp(np.log(posterior.interval(0.9)[1:, 1])) > 0.05
    assert len(np.unique(posterior.mean[1].round(12))) > 50


WAYS = [
    ("alexnet-60", {"method": "mva"}), ("resnet50-60", {"method": "mva", "strategy": "sync-ps"}),
    ("resnet50-60", {"method": "mva", "strategy": "k-batch-async", "k": 2}), ("alexnet-60", {"method": "trace"}),
    ("resnet50-60", {"strategy": "k-sync", "k": 2}), ("resnet50-60", {"method": "trace", "strategy": "sync-ps"}),
    ("alexnet-60", {"method": "mva", "parameter_servers": 2}), ("alexnet-60", {"strategy": "all-reduce"}),
    ("ddp-alexnet-40", {}), ("ddp-alexnet-40", {"bandwidth": 10e6}), ("fsdp-gpt8-60", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "asked"), WAYS, ids=lambda one: one if isinstance(one, str) else "-".join(one))
def test_predicted_measurement_only_narrows(name, asked):
    """Of workers who wait for each other as in the scenario: nothing else is known of it."""
    profile, workers = example_profile(name), [2, 4, 8]
    before = qm.predict(profile, workers=workers, **asked)
    here = {key: asked[key] for key in ("bandwidth", "parameter_servers") if key in asked}
    after = qm.predict(profile, workers=workers, throughputs=[of(8, before.at(8), **here)], **asked)
    np.testing.assert_allclose(after.steps_per_second, before.steps_per_second, rtol=0.004)
    widths = np.log([one.upper / one.lower for one in (before, after)])
    assert widths[1, 2] < 0.97 * widths[0, 2]
    assert np.all(widths[1] < 1.02 * widths[0])
    assert "calibrated by 1 measurement" in after.note
    assert (8, pytest.approx(before.at(8))) in after.measured


@pytest.mark.parametrize("strategy", [{"strategy": "sync-ps"}, {"strategy": "k-sync", "k": 2}], ids=str)
def test_lower_measurement_lowers_its_curve(strategy):
    profile = example_profile("resnet50-60")
    before = qm.predict(profile, workers=[4, 8], **strategy)
    points = [of(8, 0.9 * before.at(8)), of(4, 0.9 * before.at(4))]
    after = qm.predict(profile, workers=[4, 8], throughputs=points, **strategy)
    assert np.all(after.steps_per_second < 0.97 * before.steps_per_second)
    assert np.all(after.steps_per_second > 0.88 * before.steps_per_second)


def test_more_nodes_inform_their_network():
    profile = example_profile("ddp-alexnet-40")
    before = qm.predict(profile, workers=[4, 8, 16])
    after = qm.predict(profile, workers=[4, 8, 16], throughputs=[of(4, 0.95 * before.at(4))])
    ratio = after.steps_per_second / before.steps_per_second
    assert 0.94 < ratio[0] < ratio[1] < ratio[2] < 0.99  # what three doublings more may change is not known
    widths = np.log([one.upper / one.lower for one in (before, after)])
    assert np.all(widths[1] < widths[0])


@pytest.mark.parametrize(("truth", "trip"), [("loss-based", 0.0), ("bbr", 0.012)])
def test_true_network_is_identified(truth, trip):
    profile = profile_of(two_layers())
    speeds = [
        simulate_operations(profile, workers=n, loaded_trip=trip, links=LINKS, steps=4000 // n).throughput
        for n in (3, 5)
    ]
    points = [of(n, speed, standard_error=0.005 * speed) for n, speed in zip((3, 5), speeds, strict=True)]
    found = trace_curve(profile, workers=[4], measured=points, congestion_control="unknown", **FAST)
    assert found.note.startswith(f"calibrated by 2 measurements: {truth} ")
    assert "does not fit" not in found.note


def test_contradictions_widen_and_are_noted():
    profile = profile_of(two_layers())
    settings = {"workers": [4, 8], "replications": 1, **FAST}
    before = trace_curve(profile, **settings)
    x = before.at(4)
    agree, differ = (trace_curve(profile, measured=[of(4, x), of(4, y * x)], **settings) for y in (1.02, 1.5))
    wide, narrow, wider = (one.upper / one.lower for one in (before, agree, differ))
    assert narrow[0] < wide[0] < wider[0]
    assert narrow[1] < min(wide[1], wider[1])
    assert "does not fit" in differ.note
    assert "does not fit" not in agree.note


def test_tracing_slows_machines_not_links():
    profile = example_profile("alexnet-60")
    settings = {"workers": [1, 2, 8], "steps": 400, "replications": 1}
    traced, faster = (trace_curve(profile, measured=points, **settings) for points in ([], [of(1, 1.5)]))
    assert faster.single == pytest.approx(1.5, rel=1e-3)
    gain = faster.steps_per_second / traced.steps_per_second
    assert gain[0] == pytest.approx(1.5 / traced.single, rel=1e-3)
    assert 1.02 < gain[2] < gain[1] < gain[0]
    hosts = {"ps:0": "localhost:1", "worker:0": "localhost:2"}
    here = msgspec.structs.replace(
        profile, source=msgspec.structs.replace(profile.source, hosts=hosts), cluster=qm.Cluster()
    )
    traced, faster = (trace_curve(here, measured=points, **settings) for points in ([], [of(1, 1.5)]))
    for name in ("steps_per_second", "bound_lower", "bound_upper"):
        assert getattr(faster, name) == pytest.approx(1.5 / traced.single * getattr(traced, name), rel=1e-3)


def test_measurements_on_other_machines_count_less():
    """Errors there are those here to three quarters."""
    profile = profile_of(two_layers())
    settings = {"workers": [4], "congestion_control": "cubic", **FAST}
    before = trace_curve(profile, bandwidth=0.5e6, **settings)
    points = [of(4, 1.1 * before.at(4), bandwidth=0.5e6, standard_error=0.001 * before.at(4))]
    machines: list[dict] = [{"bandwidth": 0.5e6}, {}]
    here, there = (trace_curve(profile, measured=points, **settings, **one) for one in machines)
    moved = [np.log(here.at(4) / before.at(4)), np.log(there.at(4) / trace_curve(profile, **settings).at(4))]
    assert 0.3 * moved[0] < moved[1] < 0.95 * moved[0]
