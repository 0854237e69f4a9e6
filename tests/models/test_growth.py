"""Throughputs alone: the posterior is Bayes' rule, intervals hold what they promise, and what is told counts."""

import json
import tomllib
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs_by_hand import parameter
from scipy import stats

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.queueing import knee_throughput

#: Some jobs here gain nothing from a second node.
pytestmark = pytest.mark.filterwarnings("ignore:.*call the column rounds_per_second:queuemodel.QueueModelWarning")

TOLD = tomllib.loads((resources.files("queuemodel.models") / "growth.toml").read_text())
ERRORS = json.loads((resources.files("queuemodel.models") / "model_error.json").read_text())["mva"]
WORST = max(ERRORS[name] for name in ("below", "at", "beyond", "far"))  # of the closed network on other machines
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
        qm.Measurement(workers=int(n), steps_per_second=float(x), **others)
        for n, x in zip(workers, throughput, strict=True)
    ]


def curve_of(nodes, *, cost, law):
    """Measurement relative to the smallest of the nodes, whose first doubling costs that share of a round."""
    n = np.asarray(nodes, dtype=float)
    return n / (1.0 + cost * LAWS[law](n / n.min()) / max(LAWS[law](np.array(2.0)), 1e-9))


def jobs_of(kind, nodes, rng, count, *, ranks=1, seen=None):
    """Log throughputs (count, n) of jobs as the prior has them, up to a level, and their knees.

    Of nodes of so many ranks; the first ``seen`` numbers are measured.
    """
    shares, n = TOLD["shares"].get(kind, {"value": {"knee": 1.0}})["value"], np.asarray(nodes, dtype=float)
    chosen = rng.choice(len(shares), size=count, p=np.array(list(shares.values())) / sum(shares.values()))
    log_x, knees = np.empty((count, len(n))), np.ones(count)
    for k, law in enumerate(shares):
        own = np.flatnonzero(chosen == k)[:, None]
        if law == "knee":
            knee = np.exp(rng.uniform(0.0, np.log(max(200.0, 10.0 * n[:seen].max())), (8 * len(own) + 8, 1)))
            knee = rng.choice(knee, len(own), p=(1.0 / knee / (1.0 / knee).sum()).ravel())
            width = rng.choice([0.15, 0.25, 0.4, 0.65, 1.0], (len(own), 1))
            log_x[own[:, 0]] = np.log(knee_throughput(n, cycle=1.0, demand=1.0 / knee, width=width))
            knees[own[:, 0]] = knee[:, 0]
        else:
            far = rng.gamma(0.5, TOLD["growth"]["value"][kind], (len(own), 1))
            m = ranks if law.startswith("1 -") else 1  # what ends costs ranks of one node nothing
            g = np.where((n == n.min()) & (m > 1), 0.0, LAWS[law](m * n / n.min()))
            log_x[own[:, 0]] = np.log(n) - np.log1p(np.expm1(far) * g / max(LAWS[law](np.array(64.0 * m)), 1e-9))
    return log_x, knees


def log_served(log_rate, link):
    """Of a server's bytes per second at saturation: as published, but no more than its link carries."""
    usual = {"loc": np.log(TOLD["server_rate"]["value"]), "scale": TOLD["server_rate_spread"]["value"]}
    if link is None:
        return stats.t.logpdf(log_rate, 2, **usual)
    most = np.log(0.95 * link)
    slower = stats.t.pdf(log_rate, 4, **usual) * stats.norm.sf(log_rate, most, 0.2)
    return np.log(slower + stats.t.sf(most, 4, **usual) * stats.norm.pdf(log_rate, most, 0.2) + 1e-300)


BAYES = [
    *((kind, nodes, x, {}) for kind in KINDS for nodes, x in (([2, 4, 16], [2.0, 3.1, 11.0]),
                                                              ([1, 2, 4, 8], [1.0, 1.9, 2.6, 2.8]))),
    ("sync-ps", [1, 2], [1.0, 1.5], {"sparse_gradients": True}),
    ("all-reduce", [8, 16], [8.0, 11.0], {"ranks_per_node": 8}),
    ("async-ps", [1, 2], [1.0, 1.95], {"parameter_bytes": 1e8}),
    ("async-ps", [1, 4], [1.0, 3.4], {"parameter_bytes": 1e6, "bandwidth": 6e6}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "nodes", "x", "told"), BAYES)
def test_the_posterior_is_bayes_rule(kind, nodes, x, told):
    """Jobs drawn from the prior, at any level, weighed by the likelihood of the measurements."""
    rng, ahead, size = np.random.default_rng(3), [2 * max(nodes), 4 * max(nodes)], told.get("parameter_bytes")
    drawn_as = "sparse gradients" if told.get("sparse_gradients") else "knee" if size else kind
    log_x, knee = jobs_of(drawn_as, [*nodes, *ahead], rng, 500_000, ranks=told.get("ranks_per_node", 1), seen=len(x))
    centre = (np.log(x) - log_x[:, : len(x)]).mean(axis=1)
    level = centre + rng.uniform(-0.4, 0.4, len(centre))
    scale = np.hypot(ERROR, DRIFT * np.sqrt(np.log2(max(nodes) / np.array(nodes))))
    z = (np.log(x) - log_x[:, : len(x)] - level[:, None]) / scale
    weight = np.prod((1.0 + z**2 / 2.0) ** -1.5, axis=1)
    if size:
        weight *= np.exp(log_served(level + np.log(knee * size), told.get("bandwidth")))
    measured = points(nodes, x, bandwidth=told.pop("bandwidth", None))
    curve = qm.fit(measured, strategy=kind, **told).throughput(ahead)
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
@pytest.mark.parametrize("off", [0.0, 0.15])
def test_a_curve_and_its_parameters_are_those_of_the_posteriors_draws(kind, off):
    """Of two to twelve workers on two servers; asked about three servers as well, which nobody measured."""
    nodes, N = np.array([2, 4, 6, 12]), [1, 2, 9, 12, 31]
    x = curve_of(nodes, cost=0.3, law="n") * np.exp(off * np.array([1, -1, 1, -1]))
    told = {"sparse_gradients": True} if kind == "all-reduce" else {}
    model = qm.fit(points(nodes, x, parameter_servers=2), strategy=kind, batch_size=16, **told)
    doublings = np.log2([2, 1, 1, 1, 31 / 12])
    for one, elsewhere in [
        (model, False),
        *([(model.what_if(parameter_servers=3), True)] if kind == "async-ps" else []),
    ]:
        curve, drawn = one.throughput(N, confidence=0.6), np.log(one.drawn(np.arange(1, 32)))
        middle = np.median(drawn, axis=1)
        noise = np.hypot(ERROR, DRIFT * np.sqrt(doublings))
        if kind == "async-ps":  # the least expected relative error, to which half the median is the least that counts
            for n in range(31):
                values = np.sort(drawn[n])
                cost = np.cumsum(np.exp(-np.maximum(values, middle[n] + np.log(0.5))))
                middle[n] = max(np.interp(0.5 * cost[-1], cost, values), middle[n - 1] if n else -np.inf)
            far = np.maximum(np.hypot(0.01, 0.07 * np.sqrt(doublings)), one.misfit)
            noise = np.where(doublings == 0, 0.01, far)
            noise = np.full(5, max(WORST, one.misfit)) if elsewhere else noise
        at = np.array(N) - 1
        np.testing.assert_allclose(np.log(curve.steps_per_second), middle[at], atol=1e-9)
        errors = noise[:, None, None] * stats.norm.ppf((np.arange(100) + 0.5) / 100)
        ends = np.quantile((drawn[at][:, :, None] + errors).reshape(5, -1), [0.2, 0.8], axis=1)
        np.testing.assert_allclose(np.log(curve.lower), np.minimum(ends[0], middle[at]), atol=0.01)
        np.testing.assert_allclose(np.log(curve.upper), np.maximum(ends[1], middle[at]), atol=0.01)
        assert (curve.single, curve.batch_size) == (pytest.approx(np.exp(middle[0])), 16)
        assert curve.parameter_servers == {"async-ps": 2 + elsewhere, "sync-ps": 2, "all-reduce": 0}[kind]
        assert curve.profiled_workers == (0 if elsewhere else 12)
        assert curve.measured == (() if elsewhere else tuple(zip(nodes.tolist(), x.tolist(), strict=True)))
    found = {p.name: p for p in model.parameters}
    if kind == "async-ps":
        cycle, demand, width = model.posterior.servers
        for name, draws in (("server demand", demand), ("undisturbed cycle", cycle)):
            assert (found[name].value, found[name].standard_error) == pytest.approx((np.median(draws), draws.std()))
        assert found["worker time"].value == pytest.approx(np.median(cycle) - np.median(demand))
        assert found["worker time"].standard_error == pytest.approx((cycle - demand).std())
        assert found["no saturation"].value == pytest.approx(np.mean(demand == 0))
        assert found["saturation width"].value == pytest.approx(width.mean())
    else:
        one, two = model.drawn(np.array([2, 4]))
        cost, chances = found["cost of doubling"], found["likeliest law"]
        assert (cost.value, cost.standard_error) == pytest.approx((np.mean(2 * one / two) - 1, np.std(2 * one / two)))
        assert found["round of 2"].value == pytest.approx(2 / np.median(one), rel=1e-6)
        assert chances.identified == (chances.value > 0.9)
        assert f"({100 * chances.value:.0f} %)" in chances.note.split(",")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_nine_of_ten_intervals_hold_what_comes(kind):
    """Of jobs as the prior has them, fitted to two noisy measurements and to four; narrower ones do not."""
    rng, nodes, held = np.random.default_rng(5), np.array([1, 2, 4, 8, 16, 32]), {1.0: [], 0.6: []}
    for log_x in jobs_of(kind, nodes, rng, 120)[0]:
        noisy = log_x + ERROR * rng.standard_normal(len(nodes)) + DRIFT * rng.standard_normal(len(nodes)).cumsum()
        for k in (2, 4):
            curve = qm.fit(points(nodes[:k], np.exp(noisy[:k])), strategy=kind).throughput(nodes[k:].tolist())
            low, off, high = np.log([curve.lower, np.exp(noisy[k:]), curve.upper] / curve.steps_per_second)
            for scale, inside in held.items():
                inside.append(np.mean((scale * low <= off) & (off <= scale * high)))
    assert 0.84 < np.mean(held[1.0]) < 0.99
    assert np.mean(held[0.6]) < 0.84


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
    assert f"{bad[wrong]:.4g} steps/s with {nodes[wrong]} workers: does not fit" in typo.note
    assert typo.note.count("does not fit") == 1
    seen = [n for n in nodes[:-1] if n != nodes[wrong]]
    expected = without.throughput(seen).steps_per_second
    np.testing.assert_allclose(typo.throughput(seen).steps_per_second, expected, rtol=0.05)


TWO, EIGHT = points([1, 2], [1.0, 1.9]), points([8, 16], [1.0, 1.9])
SLOW, FAST = (points([2], [1.9], bandwidth=b) for b in (1e7, 1e8))
PROFILE, RANKS = example_profile("alexnet-60"), example_profile("ddp-alexnet-40")
SPARSE = "sparse_gradients applies to throughputs of sync-ps or all-reduce alone; leave it out"
NODES = "ranks_per_node (applies to strategy 'all-reduce'|needs inside_bandwidth)"
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
     "ranks_per_node applies to strategy 'all-reduce', not 'sync-ps'"),
    (qm.fit, [*SLOW, *FAST], {}, "give those of one bandwidth"), (qm.fit, [TWO[0], *SLOW], {}, "of one bandwidth"),
    (qm.predict, PROFILE, {"parameter_bytes": 1e8}, "parameter_bytes applies to throughputs of"),
    *((qm.predict, TWO, {"strategy": kind, name: value}, f"{name} requires a profile with recorded steps")
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


def test_measurements_inside_one_node_are_named():
    ends = [qm.Measurement(workers=n, steps_per_second=float(n)) for n in (8, 16)]
    one, two = (qm.fit(ends[:count], strategy="all-reduce", ranks_per_node=8) for count in (1, 2))
    assert "crosses the network between nodes" in one.note
    assert "crosses the network" not in two.note
