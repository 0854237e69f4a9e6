"""Batch sizes chosen with the nodes: brute force, limits of the law, and what must stay as it was."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuemodel.convergence import NoiseScale
from queuemodel.errors import ModelError
from queuemodel.scheduling import (
    FIFO,
    BatchSizes,
    Cluster,
    Goodput,
    Job,
    RankPriced,
    Workload,
    policy_named,
    simulate,
    statistical_efficiency,
)
from queuemodel.scheduling.workloads import read_pollux
from queuemodel.scheduling.workloads.pollux import packed, shared_application
from validation.pollux import read_jobs, replay
from validation.pollux.batch_sizes import application_batch_sizes
from validation.pollux.state import epoch_rates

SIZES = BatchSizes(
    {32: {1: 4.0, 2: 6.0, 3: 7.0}, 64: {1: 2.2, 2: 4.0, 3: 5.5}, 256: {2: 1.2, 3: 1.7, 4: 2.2}},
    [(500, 32.0), (300, 1000.0), (200, math.inf)],
)


def alone(sizes, *, nodes=4, batch_size=None, policy=None, **rest):
    job = Job.adaptive("a", arrival_time=0, batch_sizes=sizes, batch_size=batch_size or sizes.first, **rest)
    return simulate([job], policy or Goodput(), nodes=nodes)


@st.composite
def batch_sizes(draw, most_stretches=4):
    """Random tables on 1 to 5 nodes, the smallest batch size on all of them."""
    speed = st.floats(0.1, 10)
    curves = {}
    for size in sorted(draw(st.sets(st.integers(1, 2000), min_size=1, max_size=5))):
        most = draw(st.integers(1, 5)) if curves else 5
        curves[size] = dict(enumerate(draw(st.lists(speed, min_size=most, max_size=most)), start=1))
    scales = st.one_of(st.floats(0, 5000), st.just(math.inf))
    pairs = st.tuples(st.floats(1, 1000), scales)
    return BatchSizes(curves, draw(st.lists(pairs, min_size=1, max_size=most_stretches))), curves


def rate(curves, size, nodes, scale):
    """Progress per second, by McCandlish's law written out; 0 where nothing runs."""
    first = min(curves)
    gain = size / first if scale == math.inf else (1 + scale / first) / (1 + scale / size) if scale else 1.0
    return gain * curves[size].get(nodes, 0.0)


def by_brute_force(curves, pairs):
    """Seconds of a job alone that takes the best nodes of its first stretch, and the best batch size in each."""
    scale = pairs[0][1]
    nodes = max((max(rate(curves, size, n, scale) for size in curves), -n) for n in range(1, 6))[1] * -1
    return sum(steps / max(rate(curves, size, nodes, scale) for size in curves) for steps, scale in pairs)


@settings(deadline=None, max_examples=60)
@given(batch_sizes())
def test_a_job_alone_runs_at_what_brute_force_finds(drawn):
    sizes, curves = drawn
    pairs = [(steps, scales[sizes.first]) for steps, scales in sizes.noise_scales]
    schedule = alone(sizes, nodes=5)
    assert schedule.end[0] == pytest.approx(by_brute_force(curves, pairs), rel=1e-9)
    scale = pairs[0][1]
    nodes = 3
    chosen = sizes.chosen(nodes=nodes, done=0)
    assert rate(curves, chosen, nodes, scale) == pytest.approx(max(rate(curves, s, nodes, scale) for s in curves))


def test_brute_force_notices_a_noise_scale_that_is_two_per_cent_off():
    curves = {size: dict(curve.points) for size, curve in SIZES.curves.items()}
    right = [(500, 500.0), (500, 1000.0)]
    wrong = [(steps, 1.02 * scale) for steps, scale in right]
    assert alone(BatchSizes(curves, right), nodes=5).end[0] == pytest.approx(by_brute_force(curves, right), rel=1e-9)
    assert alone(BatchSizes(curves, wrong), nodes=5).end[0] != pytest.approx(by_brute_force(curves, right), rel=1e-3)


@given(st.floats(1, 1e5), st.floats(1, 1e5))
def test_efficiency_is_one_without_bounds_on_the_noise_and_the_ratio_of_batches_without_noise(first, size):
    assert statistical_efficiency(size, math.inf, first=first) == pytest.approx(1)
    assert statistical_efficiency(size, 0.0, first=first) == pytest.approx(first / size)
    assert statistical_efficiency(first, 123.0, first=first) == pytest.approx(1)
    both = sorted([statistical_efficiency(size, scale, first=first) for scale in (10.0, 1000.0)], reverse=size < first)
    assert both == [statistical_efficiency(size, scale, first=first) for scale in (10.0, 1000.0)]


def test_with_infinite_noise_examples_count_and_without_noise_steps():
    curves = {10: {1: 1.0}, 40: {1: 0.5}}
    noisy, clean = BatchSizes(curves, [(100, math.inf)]), BatchSizes(curves, [(100, 0.0)])
    assert alone(noisy).end[0] == pytest.approx(100 * 10 / (40 * 0.5))
    assert alone(clean).end[0] == pytest.approx(100)
    assert (noisy.steps(40), clean.steps(40)) == (25, 100)
    assert (noisy.chosen(nodes=1, done=0), clean.chosen(nodes=1, done=0)) == (40, 10)


@settings(deadline=None, max_examples=30)
@given(batch_sizes(most_stretches=1), st.data())
def test_no_batch_size_of_the_user_is_better_for_a_job_alone(drawn, data):
    sizes, curves = drawn
    size = data.draw(st.sampled_from(sorted(curves)))
    fixed = alone(sizes, nodes=5, batch_size=size, policy=RankPriced(), most_nodes=max(curves[size]))
    assert alone(sizes, nodes=5).end[0] <= fixed.end[0] * (1 + 1e-9)


def stream(batch_sizes_of):
    rng = np.random.default_rng(5)
    jobs, time = [], 0.0
    for number in range(60):
        time += rng.exponential(20)
        steps = float(rng.lognormal(6, 1))
        curve = {n: n ** rng.uniform(0.4, 1) for n in range(1, 9)}
        sizes = batch_sizes_of(curve, steps)
        jobs.append(
            Job(
                f"{number}",
                arrival_time=time,
                steps=steps,
                curve=curve,
                batch_sizes=sizes,
                end_probability=0.3,
                most_nodes=8,
            )
        )
    return jobs


CLUSTER = Cluster(16, restart_seconds=5, start_seconds=3, nodes_per_machine=4, spread_speed=0.7)


@pytest.mark.parametrize("parts", [1, 3])
def test_a_single_batch_size_leaves_everything_as_it_was(parts):
    """Also in stretches: on any curve, with restarts, early ends and placements."""
    kept = stream(lambda curve, steps: None)
    adaptive = stream(lambda curve, steps: BatchSizes({64: curve}, [(steps / parts, 100.0)] * parts))
    schedules = [
        simulate(Workload(jobs), policy, cluster=CLUSTER, seed=2)
        for jobs, policy in ((kept, RankPriced()), (kept, Goodput()), (adaptive, RankPriced()), (adaptive, Goodput()))
    ]
    first, *others = schedules
    for other in others:
        for name in ("end", "attained_service", "useful_service", "best_time", "shared_time"):
            assert getattr(other, name) == pytest.approx(getattr(first, name), rel=1e-9 if parts == 1 else 1e-6)
        assert other.restarts.tolist() == first.restarts.tolist()


def test_a_policy_that_does_not_choose_keeps_the_users_batch_size():
    """500 steps of noise scale 32: at 64 a step is worth 4/3; then 31.25 + 1 over 15.6 + 1; then 2."""
    schedule = alone(SIZES, batch_size=64, policy=FIFO(), requested_nodes=2, most_nodes=3)
    worth = [4 / 3, (1 + 1000 / 32) / (1 + 1000 / 64), 2]
    assert schedule.end[0] == pytest.approx(sum(n / w for n, w in zip((500, 300, 200), worth, strict=True)) / 4.0)


def test_noise_scales_may_differ_by_batch_size():
    curves = {10: {1: 1.0}, 40: {1: 0.5}}
    same = alone(BatchSizes(curves, [(100, NoiseScale(100.0, np.array([90.0, 110.0])))])).end[0]
    assert alone(BatchSizes(curves, [(100, 100.0)])).end[0] == pytest.approx(same)
    assert alone(BatchSizes(curves, [(100, {10: 3.0, 40: 100.0})])).end[0] == pytest.approx(same)
    assert alone(BatchSizes(curves, [(100, {10: 3.0, 40: 0.0})])).end[0] == pytest.approx(100)


def test_the_choice_follows_predictions_and_the_truth_runs():
    true = {10: {1: 1.0}, 40: {1: 0.5}}
    believed = BatchSizes(true, [(100, math.inf)], predicted={10: {1: 1.0}, 40: {1: 0.2}})
    assert believed.chosen(nodes=1, done=0) == 10
    assert alone(believed).end[0] == pytest.approx(100)
    workload = Workload([Job.adaptive("a", arrival_time=0, batch_sizes=SIZES, batch_size=32)])
    wrong = workload.with_prediction_error(level=1.0, seed=3)  # the same factor for every batch size
    assert simulate(wrong, Goodput(), nodes=4).end == pytest.approx(simulate(workload, Goodput(), nodes=4).end)


def test_a_stretch_ends_without_a_restart_or_a_question():
    schedule = alone(SIZES, nodes=3)
    assert schedule.restarts.tolist() == [0]
    assert (schedule.events, schedule.decisions) == (4, 1)  # arrival, two ends of stretches, end
    assert [SIZES.chosen(nodes=3, done=done) for done in (0, 499, 500, 800, 5000)] == [64, 64, 256, 256, 256]
    assert SIZES.limit(64) == 4
    assert replace(SIZES, most_nodes=2).limit(64) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"curves": {}}, "curves must map batch sizes to curves"),
        ({"curves": {0: {1: 1.0}}}, "batch size must be"),
        ({"curves": {32: 4.0}}, "at 32: curve: expected a callable"),
        ({"noise_scales": []}, "at least one pair"),
        ({"noise_scales": [5]}, "pairs"),
        ({"noise_scales": [(0, 5.0)]}, "steps of a stretch"),
        ({"noise_scales": [(5, -1.0)]}, "noise scale"),
        ({"noise_scales": [(5, math.nan)]}, "noise scale"),
        ({"noise_scales": [(5, {32: 1.0})]}, "noise scales must be of the batch sizes"),
        ({"predicted": {32: {1: 1.0}}}, "predicted must have the batch sizes of curves"),
        ({"most_nodes": 0}, "most_nodes"),
    ],
)
def test_what_makes_no_sense_is_refused(change, message):
    with pytest.raises(ModelError, match=message) as caught:
        replace(SIZES, **change)
    assert "\n" not in str(caught.value)


def test_what_cannot_run_is_refused():
    gap = BatchSizes({32: {1: 4.0}, 64: {3: 5.5}}, [(500, 32.0)])
    with pytest.raises(ModelError, match=r"no batch size of .* has a speed on 2 nodes"):
        alone(gap)
    with pytest.raises(ModelError, match="must be one of 32, 64, 256, got 48"):
        alone(SIZES, batch_size=48)
    job = Job.adaptive("a", arrival_time=0, batch_sizes=SIZES, batch_size=32)
    with pytest.raises(ModelError, match="nodes cannot fail yet"):
        simulate([job], Goodput(), cluster=Cluster(4, mean_time_to_failure=100))
    with pytest.raises(ModelError, match="batch_sizes must be a BatchSizes, got 3"):
        replace(job, batch_sizes=3)
    with pytest.raises(ModelError, match="noise_scale must be finite and >= 0 examples, got -3"):
        statistical_efficiency(64, -3, first=32)
    assert policy_named("goodput:exponent=0.25") == Goodput(0.25)


@pytest.mark.parametrize("gpus", [1, 4, 16])
def test_each_epoch_of_the_replay_runs_at_the_best_of_the_tried_batch_sizes(pollux, gpus):
    """Up to the rounding of the local batch size, which the choice leaves out."""
    for name in ("cifar10", "bert"):
        application = shared_application(pollux / "traces", name)
        sizes = application_batch_sizes(application)
        chosen = tuple(int(phase.batch_size[gpus]) for phase in sizes.phases(1, 16, name))
        tried = [size for size, curve in sizes.curves.items() if curve(gpus) > 0]  # not NaN
        rates = np.array([epoch_rates(application, (size,), packed(gpus)) for size in tried])
        best = np.array(epoch_rates(application, chosen, packed(gpus))) / rates.max(axis=0)
        assert best.min() > 0.95
        assert best.mean() > 0.99
        assert (rates / rates.max(axis=0)).min() < 0.9  # what another batch size may cost


@pytest.mark.parametrize(("curves", "bound"), [("true", 2600), ("predicted", 2700)])
def test_goodput_reaches_the_target_on_the_public_workloads(pollux, curves, bound):
    means = [
        replay(read_jobs(path, pollux / "traces"), Goodput(), gpus=64, curves=curves).mean_response_time
        for path in sorted((pollux / "workloads").glob("workload-*.csv"))
    ]
    assert len(means) == 8
    assert np.mean(means) < bound


def test_the_exact_simulation_chooses_batch_sizes_as_well(pollux):
    path = pollux / "workloads" / "workload-6.csv"
    jobs = [
        replace(job, batch_sizes=application_batch_sizes(shared_application(pollux / "traces", job.kind)))
        for job in read_pollux(path, pollux / "traces")
    ]
    cluster = Cluster(64, restart_seconds=30, start_seconds=30)
    exact, fixed = (simulate(jobs, policy, cluster=cluster).mean_response_time for policy in (Goodput(), RankPriced()))
    assert exact < 0.9 * fixed
    replayed = replay(read_jobs(path, pollux / "traces"), Goodput(), gpus=64).mean_response_time
    assert replayed == pytest.approx(exact, rel=0.2)
