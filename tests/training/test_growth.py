"""Throughputs alone: the posterior is Bayes' rule, intervals hold what they promise, and what is told counts."""

import tomllib
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs_by_hand import parameter

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.queueing import knee_throughput

#: Some jobs here gain nothing from a second node.
pytestmark = pytest.mark.filterwarnings("ignore:.*call the column rounds_per_second:queuemodel.QueueModelWarning")

TOLD = tomllib.loads((resources.files("queuemodel.models") / "growth.toml").read_text())
KINDS = ("async-ps", "sync-ps", "all-reduce")
ROUNDS = KINDS[1:]
#: The laws, as textbooks have them: what a round of r times the smallest group takes longer, up to a factor.
LAWS = {
    "1": lambda r: 0.0 * r,
    "n": lambda r: r - 1.0,
    "sqrt n": lambda r: np.sqrt(r) - 1.0,
    "log n": np.log2,
    "1 - 1/sqrt n": lambda r: 1.0 - 1.0 / np.sqrt(r),
    "1 - 1/n": lambda r: 1.0 - 1.0 / r,
    "1 - 1/n^2": lambda r: 1.0 - 1.0 / r**2,
    "1 - 1/n^6": lambda r: 1.0 - 1.0 / r**6,
}
#: Of a measured logarithm, at a group as large as the largest, and more for each doubling to it.
ERROR, DRIFT = 0.02, 0.03


def points(workers, throughput, **others):
    return [
        qm.Throughput(workers=int(n), steps_per_second=float(x), **others)
        for n, x in zip(workers, throughput, strict=True)
    ]


def curve_of(nodes, *, cost, law):
    """Throughput relative to the smallest of the nodes, whose first doubling costs that share of a round."""
    n = np.asarray(nodes, dtype=float)
    return n / (1.0 + cost * LAWS[law](n / n.min()) / max(LAWS[law](np.array(2.0)), 1e-9))


def jobs_of(kind, nodes, rng, count):
    """Log throughputs (count, n) of jobs as the prior has them, up to a level, and which have a knee."""
    shares, n = TOLD["shares"][kind]["value"], np.asarray(nodes, dtype=float)
    chosen = rng.choice(len(shares), size=count, p=np.array(list(shares.values())) / sum(shares.values()))
    log_x = np.empty((count, len(n)))
    for k, law in enumerate(shares):
        own = np.flatnonzero(chosen == k)[:, None]
        if law == "knee":
            knee = np.exp(rng.uniform(0.0, np.log(max(200.0, 10.0 * n.max())), (8 * len(own) + 8, 1)))
            knee = rng.choice(knee, len(own), p=(1.0 / knee / (1.0 / knee).sum()).ravel())
            width = rng.choice([0.15, 0.25, 0.4, 0.65, 1.0], (len(own), 1))
            log_x[own[:, 0]] = np.log(knee_throughput(n, cycle=1.0, demand=1.0 / knee, width=width))
        else:
            far = rng.gamma(0.5, TOLD["growth"]["value"][kind], (len(own), 1))
            g = LAWS[law](n / n.min()) / max(LAWS[law](np.array(64.0)), 1e-9)
            log_x[own[:, 0]] = np.log(n) - np.log1p(np.expm1(far) * g)
    return log_x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("nodes", "x"), [([1, 2], [1.0, 1.7]), ([2, 4, 16], [2.0, 3.1, 11.0]), ([1, 2, 4, 8], [1.0, 1.9, 2.6, 2.8])]
)
def test_the_posterior_is_bayes_rule(kind, nodes, x):
    """A million jobs drawn from the prior, at any level, weighed by the likelihood of the measurements."""
    rng, ahead = np.random.default_rng(3), [32, 64]
    log_x = jobs_of(kind, [*nodes, *ahead], rng, 1_000_000)
    centre = (np.log(x) - log_x[:, : len(x)]).mean(axis=1)
    level = centre + rng.uniform(-0.4, 0.4, len(centre))
    scale = np.hypot(ERROR, DRIFT * np.sqrt(np.log2(max(nodes) / np.array(nodes))))
    z = (np.log(x) - log_x[:, : len(x)] - level[:, None]) / scale
    weight = np.prod((1.0 + z**2 / 2.0) ** -1.5, axis=1)
    curve = qm.fit(points(nodes, x), strategy=kind).throughput(ahead)
    for k, n in enumerate(ahead):
        predicted = log_x[:, len(x) + k] + level
        order = np.argsort(predicted)
        reached = np.cumsum(weight[order]) / weight.sum()
        low, middle, high = np.exp(np.interp([0.05, 0.5, 0.95], reached, predicted[order]))
        if kind == "async-ps":  # the least relative error, to which the unlikeliest are no smaller than half the median
            cost = weight[order] / np.exp(np.maximum(predicted[order], np.log(middle / 2)))
            expected = np.exp(np.interp(0.5, np.cumsum(cost) / cost.sum(), predicted[order]))
            assert curve.at(n) == pytest.approx(expected, rel=0.08)
        else:
            noise = 1.645 * np.hypot(ERROR, DRIFT * np.sqrt(np.log2(n / max(nodes))))
            expected = [middle * np.exp(-np.hypot(np.log(middle / low), noise)), middle]
            expected.append(middle * np.exp(np.hypot(np.log(high / middle), noise)))
            assert [curve.lower[k], curve.at(n), curve.upper[k]] == pytest.approx(expected, rel=0.08)


@pytest.mark.parametrize("kind", KINDS)
def test_nine_of_ten_intervals_hold_what_comes(kind):
    """Of jobs as the prior has them, fitted to two noisy measurements and to four; narrower ones do not."""
    rng, nodes, held = np.random.default_rng(5), np.array([1, 2, 4, 8, 16, 32]), {1.0: [], 0.6: []}
    for log_x in jobs_of(kind, nodes, rng, 120):
        noisy = log_x + ERROR * rng.standard_normal(len(nodes)) + DRIFT * rng.standard_normal(len(nodes)).cumsum()
        for k in (2, 4):
            curve = qm.fit(points(nodes[:k], np.exp(noisy[:k])), strategy=kind).throughput(nodes[k:].tolist())
            low, off, high = np.log([curve.lower, np.exp(noisy[k:]), curve.upper] / curve.steps_per_second)
            for scale, inside in held.items():
                inside.append(np.mean((scale * low <= off) & (off <= scale * high)))
    assert 0.84 < np.mean(held[1.0]) < 0.97
    assert np.mean(held[0.6]) < 0.84


@pytest.mark.parametrize("kind", ROUNDS)
@pytest.mark.parametrize(
    ("cost", "law"), [(0.0, "1"), (0.3, "n"), (0.3, "sqrt n"), (0.3, "log n"), (0.4, "1 - 1/n"), (0.8, "1 - 1/n^6")]
)
def test_enough_points_recover_the_law(kind, cost, law):
    nodes = [1, 2, 4, 8, 16, 32]
    model = qm.fit(points(nodes, curve_of(nodes, cost=cost, law=law)), strategy=kind)
    truth = curve_of([1, 64], cost=cost, law=law)[1]
    curve = model.throughput([64])
    assert curve.at(64) == pytest.approx(truth, rel=0.06)
    assert curve.lower[0] < truth < curve.upper[0]
    found = parameter(model, "cost of doubling")
    assert found.value == pytest.approx(cost, abs=0.03 + found.standard_error)
    if law in ("n", "sqrt n", "log n"):
        words = {"n": "the group", "sqrt n": "its square root", "log n": "its logarithm"}
        assert parameter(model, "likeliest law").note.startswith(f"grows with {words[law]} (")


@pytest.mark.parametrize("kind", ["async-ps", "sync-ps"])
@pytest.mark.parametrize("knee", [2.5, 3.5, 6.0])
@pytest.mark.parametrize("servers", [1, 3])
def test_servers_that_saturate_are_recognised(kind, knee, servers):
    N = np.arange(1, 11)
    x = knee_throughput(N, cycle=0.5, demand=0.5 / knee, width=0.25)
    model = qm.fit(points(N, x, parameter_servers=servers), strategy=kind)
    assert model.throughput([20]).at(20) == pytest.approx(knee / 0.5, rel=0.06)
    if kind == "async-ps":
        demand = parameter(model, "server demand")
        assert demand.value == pytest.approx(0.5 / knee * servers**0.8, rel=0.05)  # the largest of uneven shares
        assert demand.identified
        assert parameter(model, "no saturation").value < 0.05
        curve = model.throughput(N)
        total = curve.residence_time.sum(axis=1) + curve.think_time
        assert total == pytest.approx(N / curve.steps_per_second, rel=0.02)  # Little's law, of the mean of draws
        cycle, most = parameter(model, "undisturbed cycle").value, servers**0.8 / demand.value
        np.testing.assert_allclose(curve.bound_lower, N / (cycle + (N - 1) * demand.value))
        np.testing.assert_allclose(curve.bound_upper, np.minimum(N / cycle, most))
        assert curve.saturation_workers == pytest.approx(cycle * most)


def test_what_does_not_saturate_stays_open():
    """Of what is linear up to four workers much is linear up to eight; what loses a little need not saturate."""
    line, losing = (qm.fit(points([1, 2, 4], x)) for x in ([3.0, 6.0, 12.0], [10.0, 18.5, 34.0]))
    assert line.throughput([8]).at(8) > 0.8 * 24
    few, many = np.log(line.throughput([4, 64]).upper / line.throughput([4, 64]).lower)
    assert many > 3 * few
    assert "no saturation up to 4 worker(s)" in line.note
    assert not parameter(line, "server demand").identified
    np.testing.assert_allclose(losing.throughput([1, 2, 4]).steps_per_second, [10.0, 18.5, 34.0], rtol=0.04)
    assert parameter(losing, "no saturation").value > 0.3
    one = qm.fit(points([4], [4.0]), strategy="all-reduce").throughput([1, 4, 64])
    assert one.at(4) == pytest.approx(4.0, rel=1e-3)
    assert 0.5 < one.at(1) <= 2.0
    assert one.lower[2] < 25 < one.at(64) < 64.1


@settings(max_examples=10)
@given(
    st.lists(st.floats(0.6, 1.1), min_size=1, max_size=3),
    st.lists(st.integers(1, 200), min_size=1, max_size=6, unique=True).map(sorted),
)
def test_asynchronous_curves_do_not_fall_and_do_not_depend_on_what_else_is_asked(efficiencies, asked):
    nodes = [1, 2, 4][: len(efficiencies)]
    model = qm.fit(points(nodes, np.array(nodes) * efficiencies))
    curve, some = model.throughput(range(1, 201)), model.throughput(asked)
    assert np.all(np.diff(curve.steps_per_second) >= 0)
    for name in ("steps_per_second", "lower", "upper"):  # whatever else is asked
        np.testing.assert_allclose(getattr(some, name), getattr(curve, name)[np.array(asked) - 1], rtol=1e-9)


@settings(max_examples=20)
@given(
    devices=st.integers(2, 16), unit=st.floats(0.01, 1e8), cost=st.floats(0.0, 2.0), law=st.sampled_from(list(LAWS)),
    kind=st.sampled_from(["async-ps", "all-reduce"]),
)  # fmt: skip
def test_units_do_not_matter(devices, unit, cost, law, kind):
    """Of throughput; and of nodes, where these share no servers."""
    nodes, devices = np.array([1, 2, 4]), devices if kind == "all-reduce" else 1
    x = curve_of(nodes, cost=cost, law=law)
    one = qm.fit(points(nodes, x), strategy=kind).throughput([8, 32])
    other = qm.fit(points(devices * nodes, unit * x), strategy=kind).throughput([8 * devices, 32 * devices])
    for name in ("steps_per_second", "lower", "upper"):
        np.testing.assert_allclose(getattr(other, name), unit * getattr(one, name), rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [1, 2, 3])
@pytest.mark.parametrize("factor", [0.01, 0.5, 2.0, 1e4])
def test_one_wrong_point_is_named_and_changes_little(kind, wrong, factor):
    nodes = [1, 2, 4, 8, 16]
    x = curve_of(nodes, cost=0.1, law="log n")
    bad = x.copy()
    bad[wrong] *= factor
    sound, typo = (qm.fit(points(nodes, values), strategy=kind) for values in (x, bad))
    without = qm.fit(points(np.delete(nodes, wrong), np.delete(x, wrong)), strategy=kind)
    assert "does not fit" not in sound.note
    assert f"{bad[wrong]:.4g} steps/s with {nodes[wrong]} worker(s): does not fit" in typo.note
    assert typo.note.count("does not fit") == 1
    seen = [n for n in nodes[:-1] if n != nodes[wrong]]
    expected = without.throughput(seen).steps_per_second
    np.testing.assert_allclose(typo.throughput(seen).steps_per_second, expected, rtol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_points_that_contradict_each_other_both_are_named_and_the_interval_holds_either(kind):
    model = qm.fit(points([4, 4], [1.0, 9.0]), strategy=kind)
    assert "1 steps/s with 4 worker(s), 9 steps/s with 4 worker(s): does not fit" in model.note
    curve = model.throughput([4])
    assert curve.lower[0] < 1.0 < 9.0 < curve.upper[0]


@pytest.mark.parametrize("kind", ROUNDS)
def test_groups_smaller_than_measured_save_at_most_a_power_law_and_are_less_certain(kind):
    few = qm.fit(points([4, 8], [4.0, 8.0 / 1.5]), strategy=kind).throughput([1])
    assert few.at(1) < 1.03 * 1.5**2  # T(4) / T(1), of T(8) / T(4) = 1.5
    many = qm.fit(points([8, 16, 32, 64], [8.0, 16.0, 32.0, 64.0]), strategy=kind).throughput([1, 8])
    one, eight = np.log(many.upper / many.lower)
    assert one > max(1.5 * eight, 2 * 1.645 * np.hypot(ERROR, DRIFT * np.sqrt(3)))


def test_what_the_points_are_off_widens_what_was_not_measured():
    off = {1: 1.12, 2: 1.77, 3: 3.2, 4: 3.3, 5: 4.6, 6: 4.4}
    smooth = curve_of([*off], cost=0.0, law="1")
    typo = smooth * [1, 1, 10, 1, 1, 1]  # the others fit
    curves = [qm.fit(points(off, x)).throughput(range(1, 9)) for x in (off.values(), smooth, typo)]
    misfit = np.sqrt(np.mean(np.log(np.array(list(off.values())) / curves[0].steps_per_second[:6]) ** 2))
    rough, fine, one_off = (np.log(curve.upper / curve.lower)[6] for curve in curves)
    assert rough > 2 * 1.645 * 0.8 * misfit
    assert fine < one_off < 0.6 * rough


def test_what_costs_whole_nodes_much_at_once_costs_little_more():
    """Eight GPUs on each node: a ring of all of them sends 2 (1 - 1/ranks) of its bytes between nodes."""
    x = [8.0, 8.0]
    one, eight, untold = (
        qm.fit(points([8, 16], x), strategy="all-reduce", ranks_per_node=ranks) for ranks in (1, 8, None)
    )
    curves = [model.throughput([32, 64]) for model in (one, eight, untold)]
    ring = np.array([n / (1 + (1 - 1 / n) / (1 - 1 / 16)) for n in (32, 64)])
    np.testing.assert_allclose(curves[1].steps_per_second, ring, rtol=0.15)
    for other in curves[::2]:
        assert np.all(other.steps_per_second < 0.95 * curves[1].steps_per_second)
    np.testing.assert_allclose(curves[0].steps_per_second, curves[2].steps_per_second)
    assert curves[1].nodes.tolist() == [4, 8]  # no servers among them
    several = [qm.fit(points([16, 32], [8.0, 9.0]), strategy="all-reduce", ranks_per_node=m) for m in (1, 8)]
    several = [model.throughput([128]).at(128) for model in several]
    assert several[0] == pytest.approx(several[1]), "two nodes use the network as four do"
    for law in ("n", "log n"):  # what does not end grows with the nodes, however many GPUs they have
        nodes, x = np.array([1, 2, 4, 8, 16]), curve_of([1, 2, 4, 8, 16, 64], cost=0.3, law=law)
        model = qm.fit(points(8 * nodes, x[:5]), strategy="all-reduce", ranks_per_node=8)
        assert model.throughput([512]).at(512) == pytest.approx(x[5], rel=0.05)


@pytest.mark.parametrize("kind", ROUNDS)
@pytest.mark.parametrize("cost", [0.2, 0.5, 1.5])
def test_rows_that_are_gathered_grow_with_the_group(kind, cost):
    """An all-gather of n nodes' rows takes n - 1 times as long as that of two; untold, few jobs are like that."""
    x = curve_of([1, 2, 4, 8, 16], cost=cost, law="n")
    told, untold = (
        qm.fit(points([1, 2], x[:2]), strategy=kind, sparse_gradients=sparse).throughput([4, 8, 16])
        for sparse in (True, False)
    )
    np.testing.assert_allclose(told.steps_per_second, x[2:], rtol=0.2)
    assert np.all((told.lower < x[2:]) & (x[2:] < told.upper))
    assert untold.at(16) > 1.15 * told.at(16)
    assert "sparse gradients" in told.note
    assert "sparse gradients" not in untold.note


def of_job(pairs, size, bandwidth=None):
    return qm.fit(points(*zip(*pairs, strict=True), bandwidth=bandwidth), parameter_bytes=size)


def test_known_parameter_bytes_say_where_a_server_that_nobody_saturated_yet_ends():
    """More bytes saturate sooner; where the points leave it open, the server carries what servers do."""
    two, sizes = ((1, 1.0), (2, 1.98)), [1e6, 1e8, 1e9]
    X = [of_job(two, size).throughput([32]).at(32) for size in sizes]
    assert X[0] > 1.5 * X[1] > 1.6 * X[2]
    assert X[1] * sizes[1] == pytest.approx(TOLD["server_rate"]["value"], rel=0.7)
    assert of_job(two, 1e6, bandwidth=1.25e9).throughput([32]).at(32) > 28


@settings(max_examples=8)
@given(st.floats(3.0, 12.0), st.sampled_from([1.0, 0.95]))
def test_a_link_that_is_told_is_where_the_curve_ends(knee, efficiency):
    """Two workers far below saturation; servers of published jobs do fifty times as much as this link."""
    size, link, two = 1e6, 1e6 * knee / 0.95, ((1, 1.0), (2, 2.0 * efficiency))  # 0.95 of a link carry tensors
    curve = of_job(two, size, bandwidth=link).throughput([2, 64])
    assert 0.9 * knee < curve.at(64) < 0.98 * knee  # the least relative error is below the median
    assert curve.lower[1] < knee < curve.upper[1] < 2 * knee
    assert of_job(two, size).throughput([64]).upper[0] > 2 * curve.upper[1]


@settings(max_examples=12)
@given(st.floats(3.0, 13.0), st.none() | st.floats(4.0, 11.0))
def test_what_is_told_of_a_server_gives_way_to_what_is_measured(size, bandwidth):
    """Four measurements show a knee: wherever else bytes and links put it, they decide."""
    truth = ((1, 1.0), (2, 1.9), (4, 2.6), (8, 2.7))
    told, untold = of_job(truth, 10**size, bandwidth and 10**bandwidth), of_job(truth, None)
    X, expected = (model.throughput([2, 8, 16]).steps_per_second for model in (told, untold))
    np.testing.assert_allclose(X, expected, rtol=0.15)
    assert ("is the bandwidth right" in told.note) == bool(bandwidth and 2.7 * 10 ** (size - bandwidth) > 1.5)


TWO, EIGHT = points([1, 2], [1.0, 1.9]), points([8, 16], [1.0, 1.9])
SLOW, FAST = (points([2], [1.9], bandwidth=b) for b in (1e7, 1e8))
PROFILE, RANKS = example_profile("alexnet-60"), example_profile("ddp-alexnet-40")
SPARSE = "sparse_gradients is for throughputs of sync-ps or all-reduce alone; leave it out"
NODES = "ranks_per_node (is a question for strategy 'all-reduce'|needs inside_bandwidth)"
REFUSED = [
    (qm.fit, TWO, {"sparse_gradients": True}, SPARSE), (qm.predict, TWO, {"sparse_gradients": True}, SPARSE),
    (qm.fit, TWO, {"strategy": "k-sync", "k": 1, "sparse_gradients": True}, SPARSE),
    (qm.fit, PROFILE, {"strategy": "sync-ps", "sparse_gradients": True}, SPARSE),
    (qm.predict, RANKS, {"sparse_gradients": True}, SPARSE),
    (qm.fit, TWO, {"strategy": "sync-ps", "ranks_per_node": 2}, NODES), (qm.fit, RANKS, {"ranks_per_node": 2}, NODES),
    (qm.predict, TWO, {"strategy": "all-reduce", "ranks_per_node": 2},
     r"whole nodes of 2 \(ranks_per_node\), got a throughput of 1; leave"),
    (qm.fit, TWO, {"strategy": "all-reduce", "ranks_per_node": 0}, "ranks_per_node must be a whole"),
    (qm.predict, TWO, {"strategy": "sync-ps", "ranks_per_node": 2},
     "ranks_per_node is a question for strategy 'all-reduce', not 'sync-ps'"),
    (qm.fit, [*SLOW, *FAST], {}, "give those of one bandwidth"), (qm.fit, [TWO[0], *SLOW], {}, "of one bandwidth"),
    (qm.predict, PROFILE, {"parameter_bytes": 1e8}, "parameter_bytes is for throughputs of"),
    *((qm.predict, TWO, {"strategy": kind, name: value}, f"{name} needs a profile with recorded steps")
      for kind in KINDS for name, value in (("bandwidth", 1e9), ("accelerator_speed", 2.0))),
    *((qm.fit, [], {"strategy": kind}, "at least one measured throughput") for kind in KINDS),
    (qm.fit, TWO, {"strategy": "ring"}, "strategy must be one of async-ps"),
    (qm.fit, TWO, {"batch_size": 0}, "batch_size must be"),
]  # fmt: skip


@pytest.mark.parametrize(("verb", "data", "asked", "message"), REFUSED)
def test_what_would_not_be_used_is_refused(verb, data, asked, message):
    with pytest.raises(qm.QueueModelError, match=message):
        verb(data, **asked)


def test_what_is_used_is_asked_of_every_verb_and_what_is_not_is_said():
    curve = qm.predict(EIGHT, workers=[64], strategy="all-reduce", ranks_per_node=8)
    assert curve.at(64) == pytest.approx(qm.fit(EIGHT, strategy="all-reduce", ranks_per_node=8).throughput([64]).at(64))
    hints = {"sparse_gradients", "ranks_per_node"}
    for known, left in (
        ({}, hints),
        ({"ranks_per_node": 1}, {"sparse_gradients"}),
        ({"sparse_gradients": True}, set()),
    ):
        note = qm.fit(TWO, strategy="all-reduce", **known).note
        assert {hint for hint in hints if hint in note} == left
    for kind in ROUNDS:
        known, unknown = (qm.predict(TWO, workers=[4, 16], strategy=kind, parameter_bytes=b) for b in (1e8, None))
        np.testing.assert_allclose(known.steps_per_second, unknown.steps_per_second)
        assert "bytes are not used" in known.note
        assert "bytes" not in unknown.note
