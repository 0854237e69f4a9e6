"""The comparison against the models that it is made of, and its plans against brute force over what was compared."""

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel import ModelError, example_profile
from queuemodel import sgd as qd
from queuemodel.curves import fit_convergence
from queuemodel.models import predict
from queuemodel.scheduling import FIFO, Workload, schedule
from queuemodel.sgd import NAMES, Candidate, Compared, Comparison, Descent, compare, job_of, plan_strategies
from tests.oracles.by_hand import profile_of, serial

SERVERS, RANKS = example_profile("alexnet-60"), example_profile("ddp-alexnet-40")
#: Steps told by their phases alone.
UNTRACED = msgspec.structs.replace(SERVERS, steps=[msgspec.structs.replace(s, operations=[]) for s in SERVERS.steps])
#: Steps of half a second, all alike, that fetch and push 100 kB over links of 1 MB/s.
BY_HAND = profile_of(*[serial(0.1, 0.5, 0.1)] * 10)
BY_HAND = msgspec.structs.replace(
    BY_HAND, cluster=qm.Cluster(bandwidth=1e6 / 0.95, congestion_control="cubic", buffer=0.0),
    steps=[msgspec.structs.replace(s, fetch=0.1, compute=0.5, push=0.1) for s in BY_HAND.steps],
)  # fmt: skip
PROBLEM = qd.make_problem("least-squares", examples=200, features=10)
FEW = {"problem": PROBLEM, "seeds": 3, "learning_rates": (0.05,), "steps": 300}


def only(result, name):
    return next(one for one in result.rows if one.name == name)


@pytest.mark.parametrize(("profile", "strategy"), [(SERVERS, "sync-ps"), (UNTRACED, "sync-ps"), (RANKS, "all-reduce")])
def test_synchronous_steps_take_what_is_predicted(profile, strategy):
    predicted = predict(profile, workers=[4], strategy=strategy)
    found = only(compare(profile, workers=4, strategies=["sync"], **FEW), "sync")
    assert found.steps_per_second == pytest.approx(predicted.steps_per_second[0], rel=0.01)
    assert found.spread == pytest.approx(np.log(predicted.upper[0] / predicted.lower[0]) / 2 / 1.645, rel=1e-3)


ON_SERVERS = {
    "async-ps": {"strategy": "async-ps"}, "backup-worker": {"strategy": "sync-ps", "backup_workers": 1},
    "bounded-staleness": {"strategy": "bounded-staleness", "staleness_bound": 2},
    **{name: {"strategy": name, "k": 2} for name in ("k-sync", "k-batch-sync", "k-async", "k-batch-async")},
}  # fmt: skip


def test_server_steps_take_predicted_seconds():
    found = compare(SERVERS, workers=4, strategies=list(ON_SERVERS))
    expected = [predict(SERVERS, workers=[4], **asked).steps_per_second[0] for asked in ON_SERVERS.values()]
    np.testing.assert_allclose([only(found, name).steps_per_second for name in ON_SERVERS], expected, rtol=1e-9)
    trained = compare(SERVERS, workers=4, strategies=["async-ps", "k-batch-async"], **FEW)
    for one in trained.rows:  # K-batch-async applies fewer updates of as many gradients
        assert one.steps_per_second == pytest.approx(expected[0], rel=1e-6)
    assert only(trained, "async-ps").descent.staleness.mean() == pytest.approx(3, rel=0.1)
    found = only(compare(SERVERS, workers=4, strategies=["local-sgd"], target=0.5, **FEW), "local-sgd")
    looks = found.descent.steps.tolist()
    alone = qd.descend(PROBLEM, qd.LocalSGD(8), workers=4, steps=looks, learning_rate=0.05, seeds=3)
    np.testing.assert_array_equal(found.steps_to, 4 * alone.steps_to(0.5))


@pytest.mark.parametrize(("profile", "changes"), [(UNTRACED, {}), (SERVERS, {"batch_size": 64})])
def test_comparison_leaves_out_unpredictable_strategies(profile, changes):
    found = compare(profile, workers=4, **changes)
    assert "half-synchronous strategies are left out: their simulation" in found.caption()
    assert {"sync", "async-ps", "k-batch-async"} < {one.name for one in found.rows}
    assert not {"k-sync", "bounded-staleness", "backup-worker"} & {one.name for one in found.rows}
    with pytest.raises(ModelError, match="strategy 'k-sync'"):
        compare(profile, workers=4, strategies=["k-sync"], **changes)


STRAGGLING = {"straggler_probability": 1.0, "straggler_slowdown": 10.0}


@pytest.mark.parametrize(("strategies", "changes", "seconds"), [
    (["sync", "local-sgd", "top-k"], {"batch_size": 3, "accelerator_speed": 2.0}, 0.75),
    (["sync", "local-sgd", "top-k"], {"worker_speeds": [1.0, 1.0, 1.0, 0.1, 1.0]}, 5.0),  # the fifth does not work
    (["local-sgd"], {"accelerator_speed": 0.2, "worker_speeds": [1.0, 2.0, 0.5, 4.0]}, 5.0),
    (["local-sgd"], STRAGGLING, 5.0), (["ordered-gradient"], {}, 0.5),
    (["ordered-gradient"], FEW, 25.0),  # an exact gradient is of all 50 examples of a worker
])  # fmt: skip
def test_steps_last_as_the_slowest_computes(strategies, changes, seconds):
    """Half a second for one example, and nothing to transfer."""
    for one in compare(BY_HAND, workers=4, strategies=strategies, bandwidth=1e14, **changes).rows:
        assert 4 / one.steps_per_second == pytest.approx(seconds, rel=1e-3)


def test_bytes_on_links_of_workers():
    """Four links of 100 kB/s to a server with 1 MB/s; nearly all coordinates with indices are 1.8 times all."""
    more = Candidate("more", qd.DoubleCompression(qd.TopK(0.9, index_bits=32)))
    result = compare(BY_HAND, workers=4, strategies=["sync", "block-sign", "top-k", more], worker_bandwidth=[1e5] * 4)
    for one in result.rows:
        assert one.steps_per_second == pytest.approx(4 / (0.5 + one.bytes_per_step / 1e5), rel=0.02)
    assert "save no time" not in result.caption()


def compared(workers, seconds, spread=0.0, **more):
    """Strategies whose seconds to the target are known, on as many nodes and two servers."""
    rows = tuple(Compared(name, 1.0, 1.0, np.array(s), np.array(s), spread) for name, s in seconds.items())
    return Comparison(rows, workers, workers + 2, **more)


@pytest.mark.parametrize(("seconds", "spread", "best"), [
    ({"a": [1.0, 1.1], "b": [2.0, 2.1]}, 0.0, [1, 0]), ({"a": [1.0, 3.0, 1.0, 3.0], "b": [2.0] * 4}, 0.0, [0.5, 0.5]),
    ({"a": [np.inf, 1.0, 1.0], "b": [np.inf, 2.0, 2.0]}, 0.0, [2 / 3, 0]),
    ({"a": [1.0], "b": [1.01]}, 0.5, [1, 0]),  # both err together
])  # fmt: skip
def test_probability_of_being_the_best(seconds, spread, best):
    np.testing.assert_allclose(compared(4, seconds, spread).probability_best, best, atol=0.03)


def test_unreached_target_is_never_best():
    half = {"a": [1.0] * 4 + [np.inf] * 4}
    result = compared(4, half | {"b": [2.0] * 8})
    assert result.best.name == "b"
    first, last = result.to_rows()
    assert (first["strategy"], first["seconds"]) == ("b", 2.0)
    assert (last["seconds"], last["seconds_low"], last["seconds_high"]) == (None, 1.0, None)
    never = compare(RANKS, workers=2, strategies=["sync"], **(FEW | {"steps": 5, "learning_rates": (1e-6,)}))
    assert np.isinf(never.rows[0].seconds_to).all()
    assert never.best is compared(4, half).best is None
    assert "sync did not reach it in 5 steps of each worker" in never.caption()
    row = compared(4, {"a": [1.0]}, 0.1, price_per_node_hour=7.2).to_rows()[0]
    assert (row["seconds_high"], row["cost"]) == pytest.approx((np.exp(0.1645), 6 * 7.2 / 3600), rel=0.02)


def test_convergence_law_for_synchronous_steps():
    sizes = [RANKS.job.batch_size * n for n in (1, 2, 4, 8)]
    law = fit_convergence([(size, [1000.0 + 50 * size] * 3) for size in sizes])
    result = compare(RANKS, workers=4, convergence=law, strategies=["sync", "local-sgd"])
    expected = 1000 / RANKS.job.batch_size + 50 * 4
    assert np.median(only(result, "sync").steps_to) == pytest.approx(expected, rel=0.05)
    row = next(row for row in result.to_rows() if row["strategy"] == "sync")
    assert row["seconds"] == pytest.approx(expected / row["steps_per_second"], rel=0.06)
    assert row["seconds_low"] < row["seconds"] < row["seconds_high"]
    assert np.isnan(only(result, "local-sgd").steps_to).all()
    larger = compare(RANKS, workers=4, convergence=law, strategies="sync", batch_size=64).rows[0]  # more to a step
    assert np.median(larger.steps_to) == pytest.approx(1000 / 64 + 50 * 4, rel=0.05)


def noisy(profile, scale, *, steps=400):
    """The profile with gradients around a true one of norm 1 whose noise scale, in examples, this is."""
    noise = np.random.default_rng(0).normal(size=(steps, 2, 500)) * (scale / 500 / profile.job.batch_size) ** 0.5
    gradients = 500**-0.5 + noise
    own, mean = (gradients**2).sum(axis=2), (gradients.mean(axis=1) ** 2).sum(axis=1)
    norms = [{"workers": one, "mean": both} for one, both in zip(own.tolist(), mean.tolist(), strict=True)]
    return msgspec.convert(msgspec.to_builtins(profile) | {"gradient_norms": norms}, qm.Profile)


def test_comparison_by_gradient_noise():
    result = compare(noisy(RANKS, 500.0), workers=8, strategies=["sync", "local-sgd"])
    sync, local = result.to_rows()
    alone = predict(RANKS, workers=[1], strategy="all-reduce").steps_per_second[0]
    assert sync["time_vs_one"] == pytest.approx(sync["steps_vs_one"] / sync["steps_per_second"] * alone, rel=0.01)
    assert sync["time_vs_one_low"] < sync["time_vs_one"] < sync["time_vs_one_high"]
    assert sync["steps_vs_one"] == pytest.approx((500 + 8 * 32) / (500 + 32), rel=0.3)  # nearly by the noise scale
    assert [(one["strategy"], one["probability_best"]) for one in (sync, local)] == [("sync", 1.0), ("local-sgd", None)]
    assert result.to_text().startswith(result.answer())
    for text, said in (
        (result.report(), "Most probably first: sync."), (result.caption(), "no law gives the steps of local-sgd"),
        (result.answer(), "sync is first with 100 % probability, after "),
        (result.answer(), " times as long as one worker ("), (str(result.notes()), "gradient noise scale"),
    ):  # fmt: skip
        assert said in text
    louder = compare(noisy(RANKS, 5000.0), workers=8, strategies=["sync"]).to_rows()[0]
    assert louder["steps_vs_one"] < 0.9 * sync["steps_vs_one"]
    assert np.ptp(compare(noisy(RANKS, 500.0), workers=1, strategies=["sync"]).rows[0].steps_to) < 1e-3


def test_k_sync_uses_k_batches():
    found = compare(noisy(SERVERS, 200.0), workers=8, strategies=["sync", "k-sync", "backup-worker", "async-ps"])
    steps = {one.name: float(np.median(one.steps_to)) for one in found.rows}
    assert 1 < steps["k-sync"] < steps["backup-worker"] < steps["sync"]
    four = compare(noisy(SERVERS, 200.0), workers=4, strategies=["sync"]).rows[0]
    np.testing.assert_allclose(only(found, "k-sync").steps_to, four.steps_to)
    assert np.isnan(steps["async-ps"])


def test_answer_without_law_is_per_step():
    result, size = compare(RANKS, workers=4), RANKS.job.parameter_bytes
    assert result.best is None
    assert "per step" in result.caption()
    assert only(result, "local-sgd").steps_per_second > only(result, "sync").steps_per_second
    assert all(row["seconds"] is None for row in result.to_rows())
    assert len(result.plot().patches) == len(result.rows) == len({one.name for one in result.rows} & set(NAMES))
    bits = {"sync": 8 * size, "local-sgd": size, **{name: way.bits(size // 4) for name, way in
            (("top-k", qd.TopK(0.01)), ("block-sign", qd.BlockSign(8)))}}  # fmt: skip
    for name, sent in bits.items():
        assert only(result, name).bytes_per_step / 2 == pytest.approx(sent / 8, rel=1e-3)
    (served,) = compare(SERVERS, workers=4, strategies=["async-ps"]).rows
    assert served.bytes_per_step == pytest.approx(2 * SERVERS.job.parameter_bytes)


# Plans of comparisons, and jobs of them


SECONDS = st.lists(st.sampled_from([np.inf, 1.0, 2.0, 3.0, 5.0, 8.0]), min_size=3, max_size=3)


@given(st.lists(SECONDS, min_size=4, max_size=4), st.sampled_from([0.5, 2.5, 6.0]), st.sampled_from([0.3, 0.5, 0.9]))
def test_no_other_meets_the_goal_better(seconds, deadline, chance):
    table = {(n, name): s for (n, name), s in zip(itertools.product((2, 4), "ab"), seconds, strict=True)}
    comparisons = [compared(n, {name: table[n, name] for name in "ab"}) for n in (2, 4)]
    found = plan_strategies(comparisons, deadline=deadline, price_per_node_hour=3600.0, chance=chance)
    middle = {way: sorted(s)[1] for way, s in table.items() if sorted(s)[1] < np.inf}
    cost = {way: (way[0] + 2) * s for way, s in middle.items()}
    in_time = {way for way in middle if np.mean(np.array(table[way]) <= deadline) > chance}
    fastest, fewest, cheapest, cheapest_in_time = found.choices
    assert fastest.seconds == min(middle.values()) if middle else fastest.strategy is None
    assert fewest.workers == (min(n for n, _ in in_time) if in_time else None)
    assert cheapest.cost == pytest.approx(min(cost.values())) if middle else cheapest.strategy is None
    if in_time:
        assert cheapest_in_time.cost == pytest.approx(min(cost[way] for way in in_time))
        share = np.mean(np.array(table[cheapest_in_time.workers, cheapest_in_time.strategy]) <= deadline)
        assert cheapest_in_time.probability == pytest.approx(share, abs=0.03)
    else:
        assert cheapest_in_time.strategy is None


def test_probabilities_name_their_goal():
    """The cheapest takes longer than the deadline, which the others meet."""
    curve = [compared(n, {"sync": [12.0 + 6 / n]}) for n in (1, 2)]
    found = plan_strategies(curve, deadline=16.0, price_per_node_hour=1.0)
    assert {row["goal"]: row["probability within 16 s"] for row in found._shown_rows()} == {
        "fastest": 1.0, "fewest nodes within 16 s": 1.0, "cheapest": 0.0, "cheapest within 16 s": 1.0,
    }  # fmt: skip
    assert found.to_dict()["deadline"] == 16.0
    assert found.answer().startswith("cheapest within 16 s: sync on 2 workers, 15 s (")
    assert repr(plan_strategies(curve, deadline="16s", price_per_node_hour=1.0)) == repr(found)
    assert "probability of arrival" in plan_strategies(curve)._shown_rows()[0]


@pytest.mark.parametrize("strategy", ["adacomm", "sync"])
def test_lone_job_takes_compared_time(strategy):
    few = FEW | {"steps": 600, "target": 0.5, "strategies": [strategy], "bandwidth": 2e6}
    trained = [compare(RANKS, workers=n, **few) for n in (2, 4, 8)]
    for comparison in trained:
        job = job_of(trained, strategy, name="a", arrival_time=5.0, requested_nodes=comparison.workers)
        ended = schedule(Workload([job]), FIFO(), nodes=8)
        assert ended.end[0] - 5 == pytest.approx(np.median(comparison.rows[0].seconds_to), rel=1e-6)
    assert job.steps == pytest.approx(np.median(trained[0].rows[0].steps_to))
    assert (job.least_nodes, job.most_nodes) == (2, 8)


def way(workers, *seconds):
    """A comparison of one run, whose loss is 1 at first, then a half, then none."""
    times, nothing = np.array([[0.0, *seconds]]), np.zeros((1, 3))
    losses, steps = np.array([[1.0, 0.5, 0.0]]), np.array([0, 50, 100])
    run = Descent("a", (0,), workers, steps, times, losses, nothing, nothing, nothing[:, :1], nothing[0])
    one = Compared("a", 1.0, 1.0, np.array([100.0]), times[:, -1], 0.0, descent=run)
    return Comparison((one,), workers, workers)


def test_stretches_between_equal_losses():
    """Also where a stretch took no time: it has a speed, and the whole takes as long; by a law one speed."""
    job = job_of([way(2, 5.0, 10.0), way(4, 2.0, 6.0)], "a", name="a", arrival_time=0.0, stretches=2)
    found = [(part, curve(2), curve(4)) for part, curve in job.curve.stretches]
    np.testing.assert_allclose(found, [(0.5, 50 / 5, 50 / 2), (0.5, 50 / 5, 50 / 4)])
    job = job_of([way(2, 5.0, 10.0), way(4, 0.0, 6.0)], "a", name="a", arrival_time=0.0, stretches=2)
    jump, rest = (50 / curve(4) for _, curve in job.curve.stretches)
    assert 0 < jump < 0.001 * rest
    assert jump + rest == pytest.approx(6.0)
    job = job_of([compared(n, {"sync": [300 / n]}) for n in (1, 3)], "sync", name="a", arrival_time=0.0)
    ((_, curve),) = job.curve.stretches
    assert (job.steps, curve(1), curve(3), curve(2)) == pytest.approx((300, 1.0, 3.0, 2.0))


def job(name="a", seconds=np.inf, **more):
    return job_of(compared(2, {"a": [seconds]}, **more), name, name="j", arrival_time=0)


@pytest.mark.parametrize(("make", "words"), [
    *((lambda profile=profile, options=options: compare(profile, **options), words) for profile, options, words in (
        (RANKS, {"strategies": ["async-ps"]}, "parameter server"),
        (SERVERS, {"strategies": ["sync", "sync"]}, "different"),
        (SERVERS, {"problem": PROBLEM, "target": 0.0}, "above the least loss"),
        (SERVERS, {"target": 0.5}, "target is a loss of a problem"),
        (SERVERS, {"problem": PROBLEM, "convergence": fit_convergence([(32, [100.0])])}, "not both"),
        (SERVERS, {"problem": PROBLEM, "batch_size": 64}, "batch_size of a problem"),
        (RANKS, {"accumulation": 4}, "accumulation would change"), (b"profile.json", {}, "needs a profile"))),
    *((lambda comparisons=comparisons: plan_strategies(comparisons), words) for comparisons, words in (
        ([], "needs comparisons in seconds, to one target, got none"),
        ([compared(2, {"a": [1.0]}, relative=True)], "one worker alone"),
        ([compared(2, {"a": [np.nan]})], "no time to a loss is known"),
        ([compared(2, {"a": [1.0]}, target=0.1), compared(4, {"a": [1.0]}, target=0.2)], "to one target"))),
    (lambda: plan_strategies([compared(2, {"a": [1.0]})], deadline=-1), "deadline"),
    (lambda: job("fastest"), "one that was compared, got 'fastest'"), (job, "not known to reach the target"),
    (lambda: job(relative=True), "needs comparisons in seconds"),
    *((lambda more=more: job_of(way(2, 5.0, 10.0), "a", name="a", **more),
       r"argument.*; write (job_of|ClusterJob)\(.*arrival_time=")
      for more in ({"arrival": 1.0}, {"arrival_time": 1.0, "nodes": 4}, {"arrival_time": 1.0, "steps": 9.0})),
])  # fmt: skip
def test_senseless_questions_are_refused(make, words):
    with pytest.raises(ModelError, match=words):
        make()
