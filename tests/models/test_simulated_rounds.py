"""Simulated rounds: the curve's own mean, a network that can be fitted again, and what viewers are shown."""

import json
from itertools import pairwise

import numpy as np
import pytest

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.models import AllReduceModel, fit_rounds, plot_round, simulate, simulate_rounds
from queuemodel.profile import Round


@pytest.fixture(scope="module")
def model():
    return AllReduceModel(fit_rounds(example_profile("ddp-alexnet-40")))


@pytest.mark.parametrize("changes", [{}, {"scheme": "p3"}, {"scheme": "horovod"}, {"accumulation": 3}])
@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_rounds_are_on_average_the_curves(model, ranks, changes):
    changed = model.what_if(**changes)
    run = simulate_rounds(changed, ranks=ranks, rounds=400, seed=3)
    said = changed.throughput([ranks]).steps_per_second[0]
    error = 4 * run.times.std() / run.times.mean() / 200**0.5  # of both samples
    assert run.throughput == pytest.approx(said, rel=max(error, 4e-3))  # accumulated rows are drawn too
    if ranks == 8:
        assert abs(run.throughput / (1.02 * said) - 1) > error  # the control
    low, high = run.interval
    assert low <= run.throughput <= high
    assert np.log(high / low) / 2 == pytest.approx(1.6449 * run.times.std(ddof=1) / run.times.mean() / 20, rel=1e-3)


def test_a_simulated_profile_is_fitted_again(model):
    run = simulate_rounds(model, ranks=2, rounds=30, seed=1)
    rounds = [
        Round(rank=one.rank, ranks=2, number=number, round_time=one.round_time, computed=one.computed,
              buckets=one.buckets)
        for number in range(30) for one in (run.round(number, rank=0), run.round(number, rank=1))
    ]  # fmt: skip
    profile = qm.Profile(source=qm.Source(framework="simulated"), job=model.job, rounds=rounds)
    again = fit_rounds(profile)
    assert again.bandwidth == pytest.approx(model.link_at(2).bandwidth, rel=0.02)
    assert again.computed.mean() == pytest.approx(model.fitted.computed.mean(), rel=0.02)


def test_what_perfetto_is_shown(model, tmp_path):
    """Nothing overlaps in a lane, and the lanes hold all of it."""
    run = simulate_rounds(model, ranks=3, rounds=20)
    run.chrome_trace(tmp_path / "t.json", rounds=2)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    lanes = {(event["pid"], event["tid"]) for event in spans}
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert lanes == named
    for lane in lanes:
        inside = sorted((e["ts"], e["ts"] + e["dur"]) for e in spans if (e["pid"], e["tid"]) == lane)
        assert all(end <= begin + 1e-6 for (_, end), (begin, _) in pairwise(inside))
    sent = sum(event["args"]["bytes"] for event in spans if event["cat"] == "in transit")
    assert sent == 2 * 3 * run.drawn.sizes.sum()
    assert max(event["ts"] + event["dur"] for event in spans) == pytest.approx(1e6 * run.times[:2].sum(), rel=0.05)


def test_recorded_round_is_drawn():
    one = next(r for r in example_profile("ddp-alexnet-40").rounds if r.ranks == 2)
    computed, waiting, sent = (container.patches for container in plot_round(one).containers)
    for bucket, *bars in zip(one.buckets, computed, waiting, sent, strict=True):
        ends = [bars[k].get_x() + bars[k].get_width() for k in (0, 2)]
        assert ends == pytest.approx([bucket.ready, bucket.end])
        assert bars[1].get_width() == pytest.approx(max(bucket.begin - bucket.ready, 0))


def test_simulate_answers_every_strategy():
    rounds = simulate(example_profile("ddp-alexnet-40"), workers=2, steps=20, accelerator_speed=2.0)
    assert rounds.computed.mean() < 0.3
    steps = example_profile("alexnet-60")
    about = {"workers": 3, "steps": 100, "seed": 1}
    free, late = simulate(steps, **about), simulate(steps, strategy="sync-ps", **about)
    assert free.throughput > 1.1 * late.throughput
    counted = simulate(steps, strategy="k-batch-async", k=2, **about)
    assert counted.throughput == pytest.approx(free.throughput)
    for wrong, match in (
        ({"strategy": "k-batch-sync"}, "'k-batch-sync' needs k"),
        ({"strategy": "k-sync", "k": 4}, "workers must be at least 4"),
        ({"k": 3}, "k applies to strategy"),
        ({"latency": 1e-3}, "latency applies to strategy 'all-reduce'"),
    ):
        with pytest.raises(qm.ModelError, match=match):
            simulate(steps, workers=3, **wrong)
    with pytest.raises(qm.ModelError, match="round: number"):
        rounds.round(20)
