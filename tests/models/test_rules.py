"""Rules of the closed network: against exact networks, measurements and the rules by hand; links not filled."""

import json
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import queuemodel as qm
from queuemodel import example_profile, queueing
from testbed.recordings import unpacked
from tests.oracles.by_hand import profile_of, serial
from tests.oracles.jobs_by_hand import on_network, profile, step

SERIES = Path(__file__).parents[2] / "validation" / "data" / "testbed" / "parameter_servers"

SECONDS = st.floats(0.01, 1.0)
PHASES = st.fixed_dictionaries({"fetch": SECONDS, "push": SECONDS, "update": SECONDS, "compute": SECONDS})
SHARED = {"congestion_control": "cubic"}


def fitted(phases, **changes):
    """The model of steps that do one thing after the other, on links that connections share equally."""
    return qm.fit(on_network(profile([step(**phases)] * 3), "cubic")).what_if(**changes)


def keeps_laws(curve):
    total = curve.residence_time.sum(axis=1) + curve.think_time
    np.testing.assert_allclose(total, curve.workers / curve.steps_per_second, rtol=1e-9)  # Little's law
    assert np.all(np.diff(curve.steps_per_second) >= -1e-12)
    assert np.all(curve.bound_lower <= curve.steps_per_second * (1 + 1e-9))
    assert np.all(curve.steps_per_second <= curve.bound_upper * (1 + 1e-9))
    assert np.all((curve.lower <= curve.steps_per_second) & (curve.steps_per_second <= curve.upper))


@given(PHASES)
def test_one_server_is_solved_exactly(phases):
    workers = [1, 2, 7, 30]
    curve = fitted(phases).throughput(workers)
    stations = [queueing.Station(name, service_time=phases[name]) for name in ("fetch", "push", "update")]
    for i, n in enumerate(workers):
        exact = queueing.solve(queueing.Network(stations, think_time=phases["compute"]), population=n)
        assert curve.steps_per_second[i] == pytest.approx(exact.throughput, rel=1e-9)
        np.testing.assert_allclose(np.sort(curve.residence_time[i]), np.sort(exact.residence_time), rtol=1e-9)
    assert "exact" in curve.method
    keeps_laws(curve)


@settings(max_examples=30)
@given(PHASES, st.lists(st.sampled_from([0.02, 0.5, 1.0, 3.0, 40.0]), min_size=2, max_size=6))
def test_unequal_workers_are_job_classes(phases, speeds):
    curve = fitted(phases, worker_speeds=speeds).throughput([len(speeds)])
    stations = [queueing.Station(name, service_time=phases[name]) for name in ("fetch", "push", "update")]
    classes = [queueing.JobClass(str(i), population=1, think_time=phases["compute"] / s) for i, s in enumerate(speeds)]
    exact = queueing.solve(queueing.Network(stations, classes=classes))
    assert curve.steps_per_second[0] == pytest.approx(exact.throughput, rel=1e-9)
    np.testing.assert_allclose(np.sort(curve.utilization[0]), np.sort(exact.utilization), rtol=1e-8)
    demands = [phases[name] for name in ("fetch", "push", "update")]
    alone = np.mean([1 / (sum(demands) + phases["compute"] / speed) for speed in speeds])
    assert curve.saturation_workers == pytest.approx(1 / (max(demands) * alone))
    if len(set(speeds)) > 1:
        own = fitted(phases, worker_speeds=speeds).network()
        assert queueing.solve(own).throughput == pytest.approx(exact.throughput, rel=1e-9)
    keeps_laws(curve)


@pytest.mark.parametrize(("name", "buffer"), [("alexnet-60", 0.012), ("alexnet-60-bbr-40ms", 0.04)])
def test_bbr_buffers_cost_as_measured(name, buffer):
    """Control: links that are always used in full are too fast by what the buffer costs."""
    rows = json.loads((unpacked(SERIES) / name / "measured.json").read_text())
    workers, steps = np.array([(row["workers"], row["steps_per_s"]) for row in rows if row["workers"] >= 4]).T
    recorded = example_profile("alexnet-60")
    held, full = (
        qm.predict(recorded, workers=workers.astype(int), method="mva", **known).steps_per_second / steps - 1
        for known in ({"congestion_control": "bbr", "buffer": buffer}, SHARED)
    )
    assert np.abs(held).max() < 0.07
    assert full.max() > (0.15 if buffer > 0.02 else 0.07)


def test_unknown_congestion_control_widens_to_bbr():
    """The point is that of equal shares, the interval that of a mixture of both by their probabilities."""
    workers, recorded = [1, 2, 4, 8], example_profile("alexnet-60")
    unknown, fair, bbr = (qm.fit(on_network(recorded, one)).throughput(workers) for one in ("unknown", "cubic", "bbr"))
    np.testing.assert_allclose(unknown.steps_per_second, fair.steps_per_second)
    assert np.all((bbr.upper - 1e-3 < unknown.upper) & (unknown.upper < 1.001 * fair.upper))
    assert np.all((0.98 * bbr.lower < unknown.lower) & (unknown.lower < 1.001 * fair.lower))
    assert unknown.lower[2] < 0.95 * fair.lower[2]
    assert "--congestion-control" in unknown.note
    assert "--congestion-control" not in fair.note + bbr.note
    asked = {"workers": workers, "method": "mva", "congestion_control": "bbr"}
    apart, shared = (qm.predict(recorded, **asked, buffer=buffer) for buffer in (0.0, None))
    np.testing.assert_allclose(apart.steps_per_second, fair.steps_per_second)  # queues of their own
    np.testing.assert_allclose(shared.steps_per_second, bbr.steps_per_second)


def shares_by_hand(j, n, Q, other, least, busy):
    """Mean share of a link that j of n workers use under BBR; of the others each is in the other direction by chance.

    Of K there, each connection has at least a K-th of its link (or what its window fills of the buffer), alone all.
    """
    others = max(n - j, 0)
    p = min(max(other / max(n - 1 - Q, 1e-300), 0.0), 1 - 1e-9)
    each = [1.0 if K < 2 else max(1.0 / K, least) for K in range(others + 1)]
    chance = stats.binom.pmf(np.arange(others + 1), others, p)
    return sum(c * min(1.0, j * (e if busy >= K else max(1.0 / others, least)))
               for K, (c, e) in enumerate(zip(chance, each, strict=True)))  # fmt: skip


def paces_by_hand(D, Z, most, *, settled, least):
    """Servers' demands D (servers, phases), one population after the other: X and the phases' residence times."""
    count, phases = D.shape
    order = -np.sort(-D, axis=0)
    busiest = order[0]
    met = busiest - order[1] if count > 1 else busiest
    levels = min(max(count, math.ceil(1 / min(least)) if least is not None else 1) - 1, 40, most)
    Q, U, found, best = np.zeros(phases), np.zeros(phases), [], 0.0
    p = [[1.0] + [0.0] * levels for _ in range(phases)]  # of each phase, how likely 0, 1, ... are in it
    for n in range(1, most + 1):
        spent, slow, there = np.zeros(phases), np.ones((phases, levels)), np.zeros((phases, levels))
        for k in range(phases):
            for j in range(1, levels + 1):
                slow[k, j - 1] = j + order[j:, k].sum() / max(busiest[k], 1e-300)
                if least is not None and k < 2:
                    used = shares_by_hand(j, n, Q[k], Q[1 - k], least[k], min(levels + 1, n))
                    slow[k, j - 1] += j / used - j
            spared = settled * met[k] * U[k] * (1 / (2 * max(n - 1, 1)) if least is not None else 1 - U[k])
            missed = spared / max(busiest[k] * Q[k], 1e-300)
            for j in range(levels):
                there[k, j] = p[k][j] + missed * ((j + 1) * p[k][j + 1] - j * p[k][j])
            held = sum(there[k, j] * (slow[k, j] - j - 1) for j in range(levels))
            spent[k] = busiest[k] * (1 + Q[k] + held) - spared
        best = max(best, min(n / (Z + spent.sum()), 1 / busiest.max()))
        Q, U = best * spent, best * busiest
        for k in range(phases):
            later = [U[k] * slow[k, j] / (j + 1) * there[k, j] for j in range(levels)]
            first = 1 - U[k] - sum((1 - (j + 1) / slow[k, j]) * one for j, one in enumerate(later))
            p[k] = np.array([max(first, 0.0), *later])
            p[k] /= max(p[k].sum(), 1.0)
        found.append((best, spent * (n / best - Z) / spent.sum()))
    return found


@settings(max_examples=25)
@given(
    PHASES, st.sampled_from([(1.0,), (0.5, 0.5), (0.55, 0.3, 0.15)]), st.floats(0.0, 0.8),
    st.sampled_from([None, 0.012, 0.04, 0.15]), st.integers(0, 2**32),
)  # fmt: skip
def test_approximate_rules_by_hand(phases, shards, overlap, buffer, seed):
    """Settled phases, links shared under BBR and servers in parallel, in every combination."""
    jitter = np.random.default_rng(seed).uniform(0.8, 1.2, 3)
    hidden = overlap * min(phases["fetch"] + phases["push"], phases["compute"])
    steps = [step(**{name: by * s for name, s in phases.items()}, overlap=by * hidden) for by in jitter.tolist()]
    recorded, workers = profile(steps, bandwidth=20e6), [1, 2, 3, 6, 9]
    curve = qm.fit(on_network(recorded, "cubic" if buffer is None else "bbr", buffer)).what_if(shards=shards)
    curve = curve.throughput(workers)
    times = np.array([one.step_time for one in steps])
    D = jitter.mean() * np.outer(shards, [phases[name] for name in ("fetch", "push", "update")])
    Z, off = times.mean() - D.sum(), jitter.mean() * hidden
    settled = off / (off + times.std(ddof=1)) if off > 1e-6 * times.mean() else 0.0
    least = None
    if buffer is not None:
        seconds = np.maximum(24 * 1448 * D.sum(axis=0)[:2] / [2e6, 1e6], 0.005)
        least = np.minimum(seconds / buffer, 1.0)
    by_hand = paces_by_hand(D, Z, 9, settled=settled, least=least)
    for i, n in enumerate(workers):
        X, spent = by_hand[n - 1]
        assert curve.steps_per_second[i] == pytest.approx(X, rel=1e-6)
        expected = (D / D.sum(axis=0) * spent).ravel()
        np.testing.assert_allclose(curve.residence_time[i], expected, rtol=1e-5, atol=1e-12)
    assert ("exact" in curve.method) == (settled == 0 and least is None and len(shards) == 1)


def test_outliers_are_named_and_downweighted():
    """A contradiction of the model widens the interval."""
    recorded, asked = example_profile("alexnet-60"), {"workers": [1, 2, 4, 8], "method": "mva"}
    alike, odd, again, elsewhere = (
        qm.predict(recorded, throughputs=[qm.Measurement(workers=4, steps_per_second=x) for x in rates], **asked)
        for rates in ((1.7, 1.69), (1.7, 1.68, 2.5), (2.5, 1.68, 1.7), (1.3, 1.31))
    )
    assert "2.5 steps/s with 4 workers: does not fit" in odd.note
    for name in ("steps_per_second", "lower", "upper"):
        np.testing.assert_allclose(getattr(again, name), getattr(odd, name), rtol=1e-6)
    assert "fit" not in alike.note + elsewhere.note
    assert odd.at(4) == pytest.approx(alike.at(4), rel=0.02)
    assert elsewhere.at(4) == pytest.approx(1.31, rel=0.03)
    widths = [np.log(curve.upper / curve.lower) for curve in (alike, elsewhere)]
    assert np.all(widths[1][[0, 1, 3]] > 1.5 * widths[0][[0, 1, 3]])


# Links that one worker does not fill: seen in the steps' rates, and nothing is made of links that are full

SIZE, COMPUTE = 1_000_000, 0.5
LINK_EFFICIENCY = 0.95  # of a link's nominal rate, as documented
UNFILLED = "the same bytes took much longer in most steps than in the best"
ERRATIC = [1e6, 2e6, 1.2e6, 4e6, 1e6, 1.5e6]
LOOPBACK = {"ps": "a:1", "worker": "a:2"}


def at_rates(rates, *, back=1.0, operations=True, **known):
    """A step for each rate (bytes per second), that of its fetch, and ``back`` times of its push, of half the bytes."""
    steps = [serial(SIZE / r, COMPUTE, SIZE / r / 2 / back, sizes=(SIZE, SIZE // 2)) for r in rates]
    made = profile_of(*steps, **known)
    bare = [msgspec.structs.replace(one, operations=[]) for one in made.steps]
    return made if operations else msgspec.structs.replace(made, steps=bare)


def asked(profile, n, method="mva", **changes):
    return qm.predict(profile, workers=n, method=method, **changes)


@settings(max_examples=20)
@given(st.lists(st.floats(0.95, 1.0), min_size=5, max_size=12), st.integers(0, 2))
def test_full_links_are_recognized(shares, late):
    assert UNFILLED not in asked(at_rates(4e6 * np.array([*shares, *[0.3] * late])), [1]).note


@pytest.mark.parametrize(("rates", "known", "seen"), [
    (ERRATIC, {}, True), (ERRATIC[:4], {}, False), (1000 * np.array(ERRATIC), {}, False),
    (ERRATIC, {"operations": False}, False), (ERRATIC, {"workers": 2}, False), (ERRATIC, {"hosts": LOOPBACK}, False),
], ids=["unfilled", "few steps", "a millisecond", "no operations", "two workers", "one machine"])  # fmt: skip
def test_unfilled_links_are_recognized(rates, known, seen):
    assert (UNFILLED in asked(at_rates(rates, **known), [1]).note) == seen


@pytest.mark.parametrize("method", ["mva", "trace"])
def test_unfilled_link_scales_until_full(method):
    """Each of n workers is held to one's mean rate while they use less than the link together."""
    profile, full = (at_rates(rates, bandwidth=1e9, **SHARED) for rates in (ERRATIC, [1e6] * 6))
    curve, queued = asked(profile, [1, 2, 4], method), asked(full, [4], method)
    assert curve.steps_per_second == pytest.approx(curve.at(1) * np.array([1, 2, 4]), rel=0.02)
    assert curve.at(1) == pytest.approx(1 / (COMPUTE + 1.5 * (SIZE / np.array(ERRATIC)).mean()), rel=0.1)
    assert queued.at(4) < 1.02 * 1e6 / SIZE  # it was the link


@pytest.mark.parametrize("method", ["trace", "mva"])
def test_the_interval_spans_what_nobody_knows(method):
    """From all workers getting together what one does to what only full links hold up (mean-value analysis)."""
    told, untold = (asked(at_rates(ERRATIC, **SHARED, **known), [8], method) for known in ({"bandwidth": 8e6}, {}))
    for curve in (told, untold):
        assert curve.lower[0] < 1.2 / (SIZE * np.mean(1 / np.array(ERRATIC)))
    D = SIZE / (LINK_EFFICIENCY * 8e6)
    links = [queueing.Station("transmit", service_time=D), queueing.Station("receive", service_time=D / 2)]
    best = queueing.solve(queueing.Network(links, think_time=COMPUTE + 1.5 * (SIZE / 4e6 - D)), population=8)
    assert 0.95 * best.throughput < told.upper[0] < 8e6 / SIZE * (1 + 1e-6)
    assert 0.9 * 8 / (COMPUTE + 1.5 * SIZE / 4e6) < untold.upper[0] < math.inf
    full = asked(at_rates([1e6] * 6, bandwidth=8e6, **SHARED), [8], method)
    assert full.upper[0] < 1.3 * full.lower[0]


def test_nominal_rate_bounds_unfilled_links():
    """It bounds what several workers may get, where one step in two was far below the best."""
    curve = asked(at_rates(ERRATIC, bandwidth=5e6, **SHARED), [64])
    assert 0.98 < curve.upper[0] / (LINK_EFFICIENCY * 5e6 / SIZE) < 1.08  # the model's own error besides
    two = asked(at_rates(ERRATIC, bandwidth=4e6, servers=2), [64])
    assert two.at(64) == pytest.approx(2 * 4e6 / SIZE, rel=0.01)  # as in the best step, which was faster
    slow = at_rates(ERRATIC, back=0.25, bandwidth=0.8e6, servers=2)  # pushes: 1 MB/s in the best step
    assert asked(slow, [64]).at(64) == pytest.approx(2 * 1e6 / 5e5, rel=0.01)
