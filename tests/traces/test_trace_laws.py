"""What holds for any graph, and for any seed; and queueing theory where its assumptions are met."""

import numpy as np
import pytest
from by_hand import IDEAL, RATE, graphs, profile_of, serial, two_layers
from hypothesis import given
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel.traces import simulate, trace_throughput
from queuemodel.traces.graph import arrival_order
from queuemodel.traces.result import batch_means, mser5


@given(
    operations=graphs(),
    workers=st.integers(1, 5),
    policy=st.sampled_from(["tensorflow", "random", "multiplexed", "in-order", "reverse", "tic", "tac"]),
    memory=st.sampled_from([0.0, 0.012]),
    seed=st.integers(0, 100),
)
def test_invariants(operations, workers, policy, memory, seed):
    profile = profile_of(operations, servers=2)
    settings = {**IDEAL, "loaded_trip": memory, "unfairness": 0.4 if memory else 0.0}
    run = simulate(profile, workers=workers, policy=policy, seed=seed, steps=12, trace_steps=6, **settings)
    assert all(share <= 1 + 1e-6 for name, share in run.utilization.items() if name != "compute")
    order = arrival_order(operations)
    steps: dict[tuple[int, int], dict[int, np.ndarray]] = {}
    for (w, number, _, i), times in zip(run.log.tolist(), run.log_times, strict=True):
        steps.setdefault((w, number), {})[order[i]] = times
    for done in steps.values():
        for i, (ready, begin, end) in done.items():
            operation = operations[i]
            assert ready <= begin <= end
            assert all(done[j][2] <= ready + 1e-9 for j in operation.after if j in done)
            if operation.bytes:  # bytes take time: no transfer is faster than its link
                assert end - begin >= operation.bytes / RATE * (1 - 1e-6)
    sent = [(t[1], t[2], operations[order[i]]) for (_, _, _, i), t in zip(run.log.tolist(), run.log_times, strict=True)]
    for kind in ("fetch", "push"):
        for server in (0, 1):
            own = [(b, e, o.bytes) for b, e, o in sent if o.kind == kind and o.server == server]
            if own:  # all bytes went through the link between the first's beginning and the last's end
                span = max(e for _, e, _ in own) - min(b for b, _, _ in own)
                assert sum(size for *_, size in own) <= RATE * span * (1 + 1e-6) + 1


@pytest.mark.parametrize(
    ("steps", "settings"),
    [
        ([serial(), serial(compute=0.7)], {}),  # which recorded steps are drawn
        ([two_layers()], {"policy": "random"}),
        ([serial()], {"straggler_probability": 0.2, "straggler_slowdown": 2.0}),
        ([serial()], {"unfairness": 0.4}),
        ([serial()], {"in_phase": False}),
    ],
)
def test_what_is_drawn_follows_the_seed_alone(steps, settings):
    def times(seed):
        run = simulate(profile_of(*steps), workers=3, seed=seed, **{"in_phase": True, **IDEAL, **settings})
        return run.times.tolist()

    assert times(5) == times(5) != times(6)


def exponential_steps(n=400, seed=3):
    """Think times are exponential, and so is the one parameter's size: a closed network of one queue."""
    rng = np.random.default_rng(seed)
    return [serial(fetch=rng.exponential(0.3), compute=rng.exponential(1.0), push=0.0) for _ in range(n)]


@pytest.mark.parametrize("workers", [1, 3, 6])
def test_exponential_steps_behave_as_exact_mean_value_analysis_says(workers):
    # processor sharing at the link: product form, so mean-value analysis is exact
    steps = exponential_steps()
    D = np.mean([s[0].bytes for s in steps]) / RATE
    Z = np.mean([s[1].end - s[1].start for s in steps])
    network = qm.Network([qm.Station("transmit", service_time=D)], think_time=Z)
    X = qm.solve(network, population=workers).throughput
    run = simulate(profile_of(*steps), workers=workers, steps=20_000 // workers, confidence=0.99, **IDEAL)
    assert run.lower <= X <= run.upper
    assert run.upper / run.lower < 1.06
    wrong = qm.solve(qm.Network([qm.Station("transmit", service_time=1.3 * D)], think_time=Z), population=workers)
    assert not run.lower <= wrong.throughput <= run.upper


def test_a_saturated_link_carries_its_rate():
    run = simulate(profile_of(serial(compute=0.01, push=0.0)), workers=12, **IDEAL)
    assert run.throughput == pytest.approx(1 / 0.2, rel=0.01)
    assert run.bottleneck == "transmit[0]"
    assert run.mean_staleness == pytest.approx(11, rel=0.05)


def test_a_connection_that_shared_a_link_takes_it_again_slowly():
    profile = profile_of(serial(fetch=0.4, compute=0.2, push=0.4))
    remembering = simulate(profile, workers=4, **IDEAL | {"loaded_trip": 0.012, "unfairness": 0.4}).throughput
    assert remembering < simulate(profile, workers=4, **IDEAL).throughput
    assert simulate(profile, workers=1, **IDEAL | {"loaded_trip": 9.0}).throughput == pytest.approx(1.0, rel=1e-3)


def test_the_curve_covers_its_runs():
    curve = trace_throughput(profile_of(serial()), workers=[1, 2, 8], replications=2, **IDEAL)
    assert curve.shape == (3, 3)
    assert (curve[:, 1] < curve[:, 0]).all()
    assert (curve[:, 0] < curve[:, 2]).all()
    assert (np.diff(curve[:, 0]) > 0).all()


def test_memory_does_not_grow_with_the_run():
    run = simulate(profile_of(serial()), workers=2, steps=20_000, **IDEAL)
    assert len(run.times) <= 4096
    assert run.steps > 39_000


def test_batch_means_cover_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(300):
        noise = rng.normal(0, 0.1, 2000)
        durations = 1 + np.convolve(noise, np.ones(5) / 5, "same")  # autocorrelated
        _, lower, upper = batch_means(durations, confidence=0.9)
        covered += lower <= 1 <= upper
    assert 0.85 < covered / 300 < 0.95


def test_the_transient_is_cut_off():
    rng = np.random.default_rng(4)
    durations = rng.normal(1, 0.1, 500)
    durations[:60] += 2
    assert mser5(durations) == 60
