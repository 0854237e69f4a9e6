"""The comparison against the models that it is made of, and against runs in which the answer is known."""

import msgspec
import numpy as np
import pytest

import queuemodel as qm
from queuemodel import ModelError, example_profile
from queuemodel import sgd as qd
from queuemodel.curves import fit_convergence
from queuemodel.models import predict
from queuemodel.sgd import NAMES, Candidate, Compared, Comparison, compare
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


def only(result: Comparison, name: str) -> Compared:
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
    with pytest.raises(qm.ModelError, match="strategy 'k-sync'"):
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


def known(name: str, seconds: list[float], spread: float = 0.0) -> Compared:
    return Compared(name, 1.0, 1.0, np.array(seconds), np.array(seconds), spread)


def test_probability_of_being_the_best():
    certain = Comparison((known("a", [1.0, 1.1]), known("b", [2.0, 2.1])), 4, 5)
    np.testing.assert_array_equal(certain.probability_best, [1, 0])
    mixed = Comparison((known("a", [1.0, 3.0, 1.0, 3.0]), known("b", [2.0] * 4)), 4, 5)
    np.testing.assert_allclose(mixed.probability_best, 0.5, atol=0.03)
    mostly = Comparison((known("a", [np.inf, 1.0, 1.0]), known("b", [np.inf, 2.0, 2.0])), 4, 5)
    np.testing.assert_allclose(mostly.probability_best, [2 / 3, 0], atol=0.03)
    common = Comparison((known("a", [1.0], 0.5), known("b", [1.01], 0.5)), 4, 5)
    assert common.probability_best[0] == 1  # both err together
    row = Comparison((known("a", [1.0], 0.1),), 4, 5, price_per_node_hour=7.2).to_rows()[0]
    assert row["seconds_high"] == pytest.approx(np.exp(0.1645), rel=0.02)
    assert row["cost"] == pytest.approx(5 * 7.2 / 3600, rel=0.02)


def test_unreached_target_is_never_best():
    half = known("a", [1.0] * 4 + [np.inf] * 4)
    result = Comparison((half, known("b", [2.0] * 8)), 4, 5)
    assert result.best.name == "b"
    first, last = result.to_rows()
    assert (first["strategy"], first["seconds"]) == ("b", 2.0)
    assert (last["seconds"], last["seconds_low"], last["seconds_high"]) == (None, 1.0, None)
    never = compare(RANKS, workers=2, strategies=["sync"], **(FEW | {"steps": 5, "learning_rates": (1e-6,)}))
    assert np.isinf(never.rows[0].seconds_to).all()
    assert never.best is Comparison((half,), 4, 5).best is None
    assert "sync did not reach it in 5 steps of each worker" in never.caption()


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
    assert result.best.name == "sync"
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
    sync = next(row for row in result.to_rows() if row["strategy"] == "sync")
    alone = predict(RANKS, workers=[1], strategy="all-reduce").steps_per_second[0]
    assert sync["time_vs_one"] == pytest.approx(sync["steps_vs_one"] / sync["steps_per_second"] * alone, rel=0.01)
    assert sync["time_vs_one_low"] < sync["time_vs_one"] < sync["time_vs_one_high"]
    assert sync["steps_vs_one"] == pytest.approx((500 + 8 * 32) / (500 + 32), rel=0.3)  # nearly by the noise scale
    assert np.isnan(only(result, "local-sgd").steps_to).all()
    assert result.best.name == "sync"
    assert result.to_text().startswith(result.answer())
    assert "Most probably first: sync." in result.report()
    assert "sync is first with 100 % probability, after " in result.answer()
    assert " times as long as one worker (" in result.answer()
    assert any("gradient noise scale" in note for note in result.notes())
    assert "no law gives the steps of local-sgd" in result.caption()
    assert {row["strategy"]: row["probability_best"] for row in result.to_rows()} == {"sync": 1.0, "local-sgd": None}
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


@pytest.mark.parametrize(("profile", "options", "words"), [
    (RANKS, {"strategies": ["async-ps"]}, "parameter server"),
    (SERVERS, {"strategies": ["sync", "sync"]}, "different"),
    (SERVERS, {"problem": PROBLEM, "target": 0.0}, "above the least loss"),
    (SERVERS, {"target": 0.5}, "target is a loss of a problem"),
    (SERVERS, {"problem": PROBLEM, "convergence": fit_convergence([(32, [100.0])])}, "not both"),
    (SERVERS, {"problem": PROBLEM, "batch_size": 64}, "batch_size of a problem"),
    (RANKS, {"accumulation": 4}, "accumulation would change"), (b"profile.json", {}, "needs a profile"),
])  # fmt: skip
def test_senseless_questions_are_refused(profile, options, words):
    with pytest.raises(ModelError, match=words):
        compare(profile, **options)
