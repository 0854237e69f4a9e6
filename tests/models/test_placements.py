"""Steps by placement: the law against its parts, fits against what made the data, forecasts against measurements."""

import msgspec
import numpy as np
import pytest
from scipy import stats

import queuemodel as qm
from queuemodel.models import predict
from validation.placements import far_of, fit_near, jobs, judge, learn

#: Forward share a third, no straggling, 0.4 s between two nodes, 0.05 s in one, a third node, shared link, growth.
TRUE = np.array([np.log(0.5), -20.0, np.log(0.4), np.log(0.05), -0.1, 0.2, 0.3])

#: Mean and spread over clusters of what a third node makes of the all-reduce (logarithm), and of the growth, as learnt.
THIRD, GROWTH = (-0.072, 0.288), (0.139, 0.132)
SIZES = {8: 0.1, 16: 0.2, 64: 0.8, 256: 3.2}
NEAR = [(1, 1, 1), (1, 2, 2), (1, 4, 4), (2, 2, 1), (2, 4, 2), (2, 8, 4), (2, 5, 4)]


def largest(n):
    """Mean of the largest of n standard normal numbers."""
    x = np.linspace(-9, 9, 20_001)
    return np.trapezoid(x * n * stats.norm.cdf(x) ** (n - 1) * stats.norm.pdf(x), x)


def seconds(placements, compute, parameters=TRUE):
    """The law of validation/notes/placements, one placement at a time."""
    f, straggling, W, L, third, a, p = parameters
    f, straggling, W, L = 1 / (1 + np.exp(-f)), np.exp(straggling), np.exp(W), np.exp(L)

    def ring(n):
        return 2 * (n - 1) / n

    found = []
    for k, n, g in placements:
        c = compute * (1 + straggling * largest(n))
        m = L * ring(n) if k == 1 else W * g**a * ring(n) * (np.exp(third) * (k / 3) ** p if k > 2 else 1)
        found.append(f * c + (((1 - f) * c) ** 4 + m**4) ** 0.25)
    return np.array(found)


def table(parameters=TRUE, *, placements=NEAR, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    return [
        qm.PlacedStep(nodes=k, gpus=n, gpus_per_node=g, batch_size=size, step_time=t * np.exp(noise * rng.normal()))
        for size, compute in SIZES.items()
        for (k, n, g), t in zip(placements, seconds(placements, compute, parameters), strict=True)
    ]


def test_what_made_the_data_is_found():
    points = table(placements=[*NEAR, (4, 4, 1), (8, 8, 1), (8, 32, 4)])
    model = qm.fit_placements(points)
    found = [p.value for p in model.parameters if p.name != "straggling"]
    truth = [1 / 3, 0.4, 0.05, np.exp(-0.1), 0.2, 0.3]
    np.testing.assert_array_less(np.abs(np.subtract(found, truth)), [0.05, 0.012, 0.01, 0.03, 0.03, 0.03])
    assert all(p.identified for p in model.parameters if p.name != "straggling")
    for k, n, g, size in [(3, 12, 4, 16), (16, 16, 1, 8), (16, 64, 4, 32), (2, 5, 3, 24), (5, 9, 3, 8)]:
        truth = seconds([(k, n, g)], 0.0125 * size)[0]
        assert model.step_time(nodes=k, gpus=n, gpus_per_node=g, batch_size=size) == pytest.approx(truth, rel=0.02)


def test_two_nodes_do_not_tell_growth_and_the_fit_says_so():
    model = qm.fit_placements(table())
    for growth in [p for p in model.parameters if p.name in ("third node", "growth with nodes")]:
        assert not growth.identified
        assert growth.origin == "assumed"
    assert "beyond two nodes" in model.note
    curve = model.throughput([2, 16, 64], gpus_per_node=1, batch_size=8)
    width = np.log(curve.upper / curve.lower)
    assert (np.diff(width) > 0).all()
    more = qm.fit_placements(table(placements=[*NEAR, (8, 8, 1)]))
    assert "beyond two nodes" not in more.note
    later = more.throughput([64], gpus_per_node=1, batch_size=8)
    assert np.log(later.upper / later.lower)[0] < 0.7 * width[-1]


def drawn_from_the_prior(rng):
    across = np.log(0.1) + rng.normal(0, 1)
    return np.array([
        rng.normal(np.log(0.5), 1.0), rng.normal(np.log(0.03), 0.7), across, np.log(0.01) + rng.normal(0, 1.5),
        rng.normal(*THIRD), rng.normal(0.1, 0.15), rng.normal(*GROWTH),
    ])  # fmt: skip


@pytest.mark.parametrize("noise", [0.05, 0.08])
def test_intervals_cover_what_the_prior_draws(noise):
    """A new measurement on four GPUs of one node by the normal law of its noise; on 8 and 16 nodes, one as it comes."""
    rng, below = np.random.default_rng(2), stats.norm.cdf
    near, far = [], []
    for seed in range(40):
        parameters = drawn_from_the_prior(rng)
        model = qm.fit_placements(table(parameters, noise=noise, seed=seed))
        for size, compute in SIZES.items():
            curve = model.throughput([4], gpus_per_node=4, batch_size=size)
            truth = 4 / seconds([(1, 4, 4)], compute, parameters)[0]
            ends = np.log([curve.lower[0] / truth, curve.upper[0] / truth]) / noise
            near.append(below(ends[1]) - below(ends[0]))
        curve = model.throughput([8, 16], gpus_per_node=1, batch_size=16)
        x = curve.workers / seconds([(8, 8, 1), (16, 16, 1)], 0.2, parameters) * np.exp(noise * rng.normal(size=2))
        far += [(curve.lower <= x) & (x <= curve.upper)]
    assert 0.8 <= np.mean(near) <= 0.97
    assert 0.8 <= np.mean(far) <= 0.98


def t_log(x):
    """Log density of Student's law of six degrees of freedom, up to a constant."""
    return -3.5 * np.log1p(x**2 / 6)


def test_the_posterior_is_bayes_rule():
    """Draws from the prior of the law, of a measurement's error (of 5 %, worth three) and of the step on one GPU."""
    rng, count, placements = np.random.default_rng(4), 400_000, [(1, 1, 1), (1, 1, 1), (2, 2, 1)]
    truth = np.array([np.log(0.6), np.log(0.05), np.log(0.13), np.log(0.02), 0.0, 0.2, 0.4])
    times = seconds(placements, 0.1, truth) * [1.0, 1.06, 1.1]
    points = [qm.PlacedStep(nodes=k, gpus=n, gpus_per_node=g, batch_size=8, step_time=t)
              for (k, n, g), t in zip(placements, times, strict=True)]  # fmt: skip
    once = np.log([p.step_time for p in points if p.gpus == 1]).mean()
    error = 0.05 * np.sqrt(3 / rng.chisquare(3, count))
    level = once + rng.uniform(-0.5, 0.5, count)
    across = once + rng.normal(0, 3, count)
    law = np.column_stack([
        rng.normal(np.log(0.5), 1, count), rng.normal(np.log(0.03), 0.7, count), across,
        once + np.log(0.1) + rng.normal(0, 1.5, count), rng.normal(*THIRD, count), rng.normal(0.1, 0.15, count),
        rng.normal(*GROWTH, count),
    ])  # fmt: skip
    logs = np.log([seconds([place], np.exp(level), law.T)[0] for place in [*placements, (8, 8, 1)]])
    weight = np.exp((t_log((np.log(times)[:, None] - logs[:3]) / error) - np.log(error)).sum(axis=0))

    def quantiles(values, at):
        order = np.argsort(values)
        return np.interp(at, np.cumsum(weight[order]) / weight.sum(), values[order])

    model, at = qm.fit_placements(points), [0.16, 0.5, 0.84]
    for own, drawn in zip([*model.draws.T, np.log(model.error)], [level, *law.T, np.log(error)], strict=True):
        expected = quantiles(drawn, at)
        assert np.quantile(own, at) == pytest.approx(expected, abs=0.16 * (expected[2] - expected[0]))
    curve = model.throughput([8], gpus_per_node=1, confidence=0.8)
    ends = quantiles(np.log(8) - logs[3] - error * rng.standard_t(6, count), [0.1, 0.9])
    assert np.log([curve.lower[0], curve.upper[0]]) == pytest.approx(ends, abs=0.12 * np.ptp(ends))


def test_clusters_that_the_prior_was_not_learnt_from():
    """From one and two nodes to more, each cluster with a prior of the others (docs/validation)."""
    found = {}
    for key, points in jobs().items():
        errors, inside = judge(fit_near(key), far_of(points))
        found.setdefault(key[0], []).append((np.abs(errors).mean(), inside.mean()))
    error, covered = np.mean([np.mean(own, axis=0) for own in found.values()], axis=0)
    assert (len(found), error < 0.1, covered > 0.8) == (11, True, True)
    error, covered = np.mean(found["Sia, RTX"], axis=0)
    assert (error < 0.08, covered > 0.85) == (True, True)


def test_the_prior_is_what_is_learnt():
    assert [learn()[4][1:3], learn()[6][1:3]] == [pytest.approx(THIRD, abs=0.02), pytest.approx(GROWTH, abs=0.02)]
    fixed = [one._replace(mean=-1.0, spread=0.01) if one.name == "third node" else one for one in learn()]
    wrong, far = [], jobs()["Sia, RTX", "imagenet"]
    for law in (learn("Sia, RTX"), fixed):
        errors, _ = judge(qm.fit_placements([p for p in far if p.nodes < 3], law=law), far_of(far))
        wrong.append(np.abs(errors).mean())
    assert wrong[1] > 2 * wrong[0]


def test_steps_as_short_as_the_jitter_have_wide_intervals_beyond_what_was_measured():
    """Of 0.2 ms instead of 0.1 s; two nodes were measured, and so was their jitter."""
    long = table(noise=0.05)
    short = [msgspec.structs.replace(p, step_time=p.step_time / 500) for p in long]
    curves = [qm.fit_placements(own).throughput([2, 8], gpus_per_node=1, batch_size=8) for own in (short, long)]
    (two, eight), (usual_two, usual_eight) = (np.log(curve.upper / curve.lower) for curve in curves)
    assert two == pytest.approx(usual_two, rel=0.02)
    assert eight > 2 * usual_eight
    assert "between runs" in curves[0].note
    assert "between runs" not in curves[1].note


def test_a_measurement_that_does_not_fit_is_named_and_counts_little():
    points = table(noise=0.02)
    assert "does not fit" not in qm.fit_placements(points).note
    wrong = qm.PlacedStep(nodes=2, gpus=4, batch_size=16, step_time=3.0)
    model = qm.fit_placements([*points, wrong])
    assert model.note.startswith("3 s with 4 GPUs on 2 nodes, batch 16: does not fit the other measurements")
    before = qm.fit_placements(points).step_time(nodes=8, gpus=8, batch_size=16)
    assert model.step_time(nodes=8, gpus=8, batch_size=16) == pytest.approx(before, rel=0.05)


def test_a_curve_says_what_it_is_of():
    model = qm.fit_placements(table())
    curve = model.throughput([1, 2, 4, 8], batch_size=8)
    assert curve.single == pytest.approx(10.0, rel=0.01)
    assert list(curve.measured) == sorted(
        (p.gpus, p.gpus / p.step_time)
        for p in table()
        if (p.batch_size, p.nodes, p.gpus) in [(8, 1, 1), (8, 1, 2), (8, 1, 4), (8, 2, 5), (8, 2, 8)]
    )
    assert curve.rounds_per_second[-1] == pytest.approx(1 / model.step_time(nodes=2, gpus=8, batch_size=8), rel=1e-12)
    assert curve.to_json() == predict(table(), workers=[1, 2, 4, 8], batch_size=8).to_json()
    several = model.throughput([1, 4, 5, 8], batch_size=8, gpus_per_node=4)
    assert several.nodes.tolist() == [1, 1, 2, 2]  # a node costs as much with one GPU as with all
    (cheapest,) = qm.plan(several, epochs=1, dataset_size=8000, price_per_node_hour=3600.0).choices
    assert cheapest.cost == pytest.approx(min(several.nodes * 1000 / several.steps_per_second))


def test_a_table_is_read_or_refused_in_one_line(tmp_path):
    path = tmp_path / "placements.csv"
    path.write_text("nodes,gpus,batch_size,step_time,gpus_per_node\n1,1,8,0.1,\n2,5,8,0.4,4\n")
    assert [p.gpus_per_node for p in qm.read_placements(path)] == [1, 4]
    for row, said in {
        "2,1,8,0.1,": "line 2: gpus must be a whole number of at least 2, got 1",
        "2,4,8,0.1,1": "line 2: gpus_per_node must be a whole number of at least 2, got 1",
        "2,4,8,0.1,4": "line 2: gpus_per_node must be at most 3, got 4",
        "1,1,8,0,": "line 2: step_time must be finite and > 0 seconds, got 0.0",
        "1,1,0,1,": "line 2: batch_size must be a whole number of at least 1, got 0",
    }.items():
        path.write_text(f"nodes,gpus,batch_size,step_time,gpus_per_node\n{row}\n")
        with pytest.raises(qm.DataError, match=said):
            qm.read_placements(path)


def test_questions_without_an_answer_are_refused():
    points = table()
    model, one_node = qm.fit_placements(points), qm.fit_placements([p for p in points if p.nodes == 1])
    assert one_node.throughput([4], batch_size=8).at(4) == pytest.approx(4 / seconds([(1, 4, 4)], 0.1)[0], rel=0.05)
    for ask, words in [
        (lambda: qm.fit_placements([p for p in points if p.gpus > 1]), "at least one step on one GPU"),
        (lambda: qm.fit_placements([p for p in points if p.gpus > 1 or p.batch_size < 256]), "one GPU with 8 to 64"),
        (lambda: qm.fit_placements([{}]), "expected PlacedSteps, got dict"),
        (lambda: model.throughput([1]), r"batch_size must be given, since 4 were measured \(8 to 256\)"),
        (lambda: model.throughput([1], batch_size=257), "one GPU was measured with 8 to 256 examples, got 257"),
        (lambda: one_node.throughput([8], batch_size=8), "nodes: 2 were requested, but only one was measured"),
        (lambda: predict(points, bandwidth=1e9), "bandwidth does not apply to a job measured by placement"),
        (
            lambda: predict([qm.Measurement(workers=1, steps_per_second=1.0)], gpus_per_node=4),
            "gpus_per_node applies to jobs measured by placement",
        ),
    ]:
        with pytest.raises((qm.ModelError, qm.FitError), match=words):
            ask()
