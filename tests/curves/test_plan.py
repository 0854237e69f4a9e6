"""Plans against brute force on known curves; the next run to measure, for every kind of data."""

import json
import math
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.curves.prediction import Prediction


def spaced(rates, *, spread, servers=1, each=1, start=1, batch_size=9, **more):
    """A curve from ``start`` workers on, on nodes of ``each``, with an interval of its own for each number."""
    x, n = np.array(rates), np.arange(start, start + len(rates))
    low, high = x * (1 - np.resize(spread, len(x))), x * (1 + np.resize(spread, len(x)))
    return qm.ThroughputCurve(
        n, x, low, high, single=float(x[0] / n[0]), base_workers=start, batch_size=batch_size,
        parameter_servers=servers, workers_per_node=each, **more,
    )  # fmt: skip


SATURATING = spaced([1.0, 2.0, 2.9, 3.6, 4.0, 4.1, 4.1, 4.1], spread=[0.1], batch_size=10, dataset_size=36_000)


RATES = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=40)
SPREADS = st.lists(st.floats(0.0, 0.9), min_size=1, max_size=40)


@settings(max_examples=300)
@given(
    rates=RATES, spread=SPREADS, servers=st.integers(0, 3), each=st.sampled_from([1, 2, 4, 8]),
    deadline=st.floats(60.0, 1e5), floor=st.floats(0.05, 1.0), added=st.floats(0.01, 1.0), speed=st.floats(1.0, 99.0),
    budget=st.floats(0.5, 200.0),
)  # fmt: skip
def test_choices_are_those_of_brute_force(rates, spread, servers, each, deadline, floor, added, speed, budget):
    """Number by number, of those that fill nodes; 9 examples a step, 2 epochs of 16,200."""
    whole = spaced(rates, spread=spread, servers=servers, each=each)
    asked = {"price_per_node_hour": 5.0, "min_efficiency": floor, "min_marginal_speedup": added, "throughput": speed}
    asked |= {"budget": budget, "deadline": deadline}
    found = qm.plan(whole, epochs=2, dataset_size=16_200, **asked).choices
    allowed = [n for n in range(1, len(rates) + 1) if n < each or n % each == 0]
    X, low, high = (dict(enumerate(x.tolist(), 1)) for x in (whole.steps_per_second, whole.lower, whole.upper))

    def late(x, n):
        return 3600 / x[n] > deadline

    def cost(x, n):
        return 3600 / x / 3600 * 5.0 * (math.ceil(n / each) + servers)

    def steep(x, n):
        pairs = zip([0, *allowed], allowed, strict=False)
        return all((x[b] - (x[a] if a else 0)) / rates[0] / (b - a) >= added for a, b in pairs if b <= n)

    rules = [
        (lambda x, n: not late(x, n), lambda x, n: cost(x[n], n)),
        (lambda x, n: cost(x[n], n) <= budget, lambda x, n: 1 / x[n]),
        (lambda x, n: not late(x, n), lambda x, n: n), (lambda x, n: 9 * x[n] >= speed, lambda x, n: n),
        (lambda x, n: True, lambda x, n: cost(x[n], n)),
        (lambda x, n: n == 1 or x[n] / (n * rates[0]) >= floor, lambda x, n: -n), (steep, lambda x, n: -n),
    ]  # fmt: skip
    for k, (choice, (good, value)) in enumerate(zip(found, rules, strict=True)):

        def best(met, at, good=good, value=value):
            return min((n for n in allowed if good(met, n)), key=lambda n: value(at, n), default=None)

        point, sure, slow, quick = best(X, X), best(low, X), best(low, low), best(high, high)
        certain, fewer = k not in (4, 6), k in (1, 5, 6)
        assert choice.workers_point == point
        assert choice.workers == (sure if certain and sure else point)
        assert choice.probability == (pytest.approx(0.95) if certain and sure else None)
        every = [n for n in (point, slow, quick, sure if certain else None) if n]
        assert choice.workers_low == (min(every) if every and (slow or not fewer) else None)
        assert choice.workers_high == (max(every) if every and (slow or fewer) else None)
        if point:
            n = choice.workers
            assert choice.nodes == math.ceil(n / each) + servers
            times, costs = ([take(x[n]) for x in (X, high, low)]
                            for take in (lambda x: 3600 / x, lambda x, n=n: cost(x, n)))  # fmt: skip
            assert [choice.time, choice.time_low, choice.time_high] == pytest.approx(times)
            assert [choice.cost, choice.cost_low, choice.cost_high] == pytest.approx(costs)


def test_kinds_of_work_share_one_law():
    """Of 9 examples or tokens a step; iterations of a synchronous job are steps of each worker."""
    rates = [2.0, 3.5, 4.8]
    curve = spaced(rates, spread=[0.1], dataset_size=180)
    tokens, together = replace(curve, unit="tokens"), replace(curve, synchronous=True)
    rounds = replace(curve, steps_per_round=np.array([1, 1, 2]))
    n = np.arange(1, 4)
    for shown, work, seconds in (
        (curve, {"epochs": 5}, 100 / np.array(rates)), (curve, {"examples": 900}, 100 / np.array(rates)),
        (tokens, {"tokens": 900}, 100 / np.array(rates)), (tokens, {"epochs": 5}, 100 / np.array(rates)),
        (curve, {"steps": 100}, 100 * n / rates), (together, {"steps": 100}, 100 * n / rates),
        (rounds, {"steps": 100}, 100 * np.array([1, 1, 2]) / rates),
    ):  # fmt: skip
        (choice,) = qm.plan(shown, price_per_node_hour=1.0, **work).choices
        assert choice.time == pytest.approx(seconds[choice.workers - 1])
        assert choice.workers == 1 + np.argmin(seconds * (n + 1))
    plans = [qm.plan(one, steps=1e6, price_per_node_hour=1).assumed.split("; ")[0] for one in (curve, together)]
    assert plans == ["1,000,000 steps of each worker to train", "1,000,000 iterations to train"]


ON_EIGHT = spaced(64 / (1 + 64 / np.arange(1, 65)), spread=[0.05], each=8, servers=0, batch_size=1, dataset_size=3600)
HALF_HOUR = {"epochs": 1, "deadline": "30min"}
EUROS = {"epochs": 1, "price_per_node_hour": 2500, "currency": "EUR"}
TOO_MUCH = {"epochs": 100, "deadline": 12 * 3600, "budget": 50, "price_per_node_hour": 1.0, "throughput": 82}


@pytest.mark.parametrize(("curve", "asked", "answer", "besides"), [
    (SATURATING, HALF_HOUR, "3 workers meet 30 min with 95 % probability, 2 workers by the point estimate: 20.7 min "
     "(18.8 to 23 min); 90 % intervals", []),
    (replace(SATURATING, confidence=0.95), HALF_HOUR, "3 workers meet 30 min with 97.5 % probability", []),
    (SATURATING, {"throughput": 40.5}, "6 workers train at least 40.5 examples/s by the point estimate only",
     ["at least 40.5 examples/s: no number of workers on the curve has 95 % probability"]),
    (SATURATING, EUROS, "3 workers cost least: 20.7 min (18.8 to 23 min), 3,448 EUR (3,135 to 3,831 EUR); 90 % "
     "intervals", ["at 2,500 EUR per node and hour"]),
    (SATURATING, TOO_MUCH, "within 12 h is not met: 6 workers come nearest, to 24.4 h; it needs 2.03 times the "
     "throughput", ["a budget of 50 is not met: 3 workers come nearest, to 138",
                    "at least 82 examples/s is not met: 6 workers come nearest, to 41 examples/s; it needs 2 times"]),
    (SATURATING, {"min_efficiency": 0.01}, "8 workers", ["are the most on the curve; predict more"]),
    (ON_EIGHT, {"epochs": 1, "deadline": 1500}, "1 node (3 GPUs) meets 25 min with 95 % probability", []),
])  # fmt: skip
def test_answer_states_probability_and_shortfall(curve, asked, answer, besides):
    plan = qm.plan(curve, **asked)
    assert plan.answer().startswith(answer)
    assert all(text in plan.caption() for text in besides)


def test_rows_of_met_and_unmet_goals():
    plan = qm.plan(SATURATING, **HALF_HOUR)
    for deadline in ("0.5h", timedelta(minutes=30), pytest.importorskip("pandas").Timedelta("30min")):
        assert repr(qm.plan(SATURATING, epochs=1, deadline=deadline)) == repr(plan)
    assert plan._shown_rows()[0] == {
        "goal": "smallest within 30 min", "workers": 3, "point estimate": 2, "time": "20.7 min (18.8 to 23 min)"
    }  # fmt: skip
    assert qm.plan(SATURATING, **EUROS)._shown_rows()[0]["cost (EUR)"] == "3,448"
    assert qm.plan(ON_EIGHT, epochs=1, deadline=220)._shown_rows()[0].items() >= {"nodes": 3, "GPUs": 24}.items()
    assert not qm.plan(SATURATING, epochs=1, deadline=12 * 3600).remarks
    plan = qm.plan(SATURATING, epochs=10, deadline=1.0, min_efficiency=0.9)
    assert "are the most on the curve" not in plan.caption()
    assert [row["workers"] for row in plan.to_rows()] == [None, 2]
    assert json.loads(plan.to_json())["note"] == "; ".join([*plan.remarks, "360,000 examples to train"])
    assert list(plan.to_frame()["goal"]) == [c.goal for c in plan.choices]
    assert "<table" in plan._repr_html_()
    said = r"\Aplan: no number of workers on the curve fills nodes of 8; predict multiples"
    with pytest.raises(qm.ModelError, match=said):
        qm.plan(spaced([1.0, 2.0], spread=[0.1], each=8, start=9), throughput=1)


WITH_EPOCHS = {"epochs": 1, "deadline": 1}
BAD = [
    ({}, "at least one"), ({"deadline": 3600}, "plan: give epochs too"),
    ({"budjet": 9.0}, "plan: goal must be one of .*got 'budjet'"),
    ({"budget": 9.0}, "give epochs and price_per_node_hour too, for a deadline, a price or a budget"),
    *((WITH_EPOCHS | {"epochs": epochs}, said) for epochs, said in (
        (0, "epochs"), (math.nan, "epochs"), (10**400, "plan: epochs must be finite"),
        (1e300, "plan: epochs must be at most 1e\\+09"))),
    *((WITH_EPOCHS | {"deadline": deadline}, said) for deadline, said in (
        (-1, "deadline"), (1e300, "plan: deadline must be at most"),
        ("3", "plan: deadline: duration '3' has no unit; write 3h, 3min or 3s"))),
    *((WITH_EPOCHS | {"dataset_size": size}, said) for size, said in (
        (10**400, "dataset_size must be at most"), (1e6, "dataset_size must be a whole number"))),
    *(({"epochs": 1, "price_per_node_hour": price}, "plan: price_per_node_hour must be") for price in (math.nan, 1e99)),
    ({"min_efficiency": 1.5}, "min_efficiency"), ({"min_efficiency": math.nan}, "min_efficiency"),
    ({"min_marginal_speedup": 0}, "min_marginal_speedup"),
    ({"epochs": 1, "steps": 2, "deadline": 3}, "plan: epochs and steps exclude each other; give one of epochs, steps"),
    ({"tokens": 1, "deadline": 3}, "plan: the curve counts examples, not tokens; give examples or steps"),
    ({"examples": 1e16, "deadline": 3}, "plan: examples must be at most"),
    ({"epochs": 1, "deadline": 3, "currency": 7}, "plan: currency: name must be a text"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_questions_are_one_clear_line(arguments, message):
    with pytest.raises(qm.ModelError, match=rf"\A.*{message}.*\Z"):
        qm.plan(SATURATING, **arguments)


def test_other_curves_are_refused():
    for name in ("epochs", "examples", "tokens"):
        said = rf"\Aplan: {name} needs batch_size, .*; give it to predict, or .* steps"
        with pytest.raises(qm.ModelError, match=said):
            qm.plan(replace(SATURATING, unit=""), deadline=3, **{name: 1})
    with pytest.raises(qm.ModelError, match=r"\Aplan: the curve counts tokens, not examples; give tokens or steps\Z"):
        qm.plan(replace(SATURATING, unit="tokens"), deadline=3, examples=1)
    with pytest.raises(qm.ModelError, match="curve must be a ThroughputCurve, got Profile; predict gives one"):
        qm.plan(example_profile("alexnet-60"), throughput=1)
    with pytest.raises(qm.ModelError, match="no model"):
        qm.next_measurement(SATURATING)


PROFILE, ROUNDS = example_profile("alexnet-60"), example_profile("ddp-alexnet-40")
POINTS = [qm.Measurement(workers=n, steps_per_second=x) for n, x in ((1, 10.0), (2, 19.0))]
ON_NODES = [qm.Measurement(workers=8 * n, nodes=n, steps_per_second=x) for n, x in ((1, 50.0), (2, 82.0))]
UNKNOWN = {"congestion_control": "unknown", "method": "trace"}


def width(curve):
    return float(np.log(curve.upper[-1] / curve.lower[-1]))


@pytest.mark.parametrize("kinds", [1, 2])
def test_expected_deviation_is_that_of_conditioning(kinds):
    """Against the mean over measurements drawn from the prediction itself; one kind: exact."""
    rng, workers, noise = np.random.default_rng(kinds), np.array([1, 4, 8]), 0.03
    logs = [np.log(workers)[:, None] * (1.0 - 0.1 * kind) for kind in range(kinds)]
    given = Prediction.drawn(
        workers, *logs, error=np.full(3, 0.1), noise=np.array([0.0, 0.0, 0.02]),
        weights=np.full(kinds, 1 / kinds), correlation=0.6,
    )  # fmt: skip
    before, after = given.expected_deviation(2, noise)
    assert before**2 == pytest.approx(0.1**2 + 0.02**2 + np.var([x[2, 0] for x in logs]))
    if kinds == 1:
        assert after[1] ** 2 == pytest.approx(before**2 - (0.6 * 0.1**2) ** 2 / (0.1**2 + noise**2))
        return
    variances = []
    for _ in range(300):
        log_x = given.mean[1, rng.integers(kinds)] + np.hypot(0.1, noise) * rng.standard_normal()
        found, _ = given.condition([1], np.array([log_x]), np.array([noise]))
        variances.append(found.mean[2].var() + (found.error[2] ** 2).mean())
    assert 0.85 * after[1] ** 2 < np.mean(variances) < 1.1 * after[1] ** 2
    assert after[2] < after[1] < after[0] < before  # the nearer, the more


@pytest.mark.parametrize(("data", "asked", "nodes", "more"), [
    (POINTS, 16, None, {}), (POINTS, 16, None, {"strategy": "sync-ps"}), (ON_NODES, 128, True, {}),
    (ROUNDS, 16, None, {}), (PROFILE, 8, None, UNKNOWN),
], ids=["asynchronous", "synchronous", "nodes", "rounds", "steps"])  # fmt: skip
def test_predicted_run_narrows_the_interval(data, asked, nodes, more):
    curve = qm.predict(data, workers=[asked], **more)
    found = qm.next_measurement(curve)
    assert curve.profiled_workers < found.workers <= asked / 2
    assert (found.nodes is not None) == bool(nodes)
    if nodes:
        assert f"measure next: {found.nodes} nodes ({8 * found.nodes} GPUs) for a minute" in found.caption()
    X = qm.predict(data, workers=[found.workers], **more).steps_per_second[0]
    point = qm.Measurement(workers=found.workers, nodes=found.nodes, steps_per_second=float(X))
    given = {"throughputs": [point]} if isinstance(data, qm.Profile) else {}
    after = qm.predict(data if given else [*data, point], workers=[asked], **more, **given)
    assert width(after) < 0.95 * width(curve)


def test_uninformative_runs_are_not_recommended():
    measured = [qm.Measurement(workers=5, steps_per_second=1.85)]
    again = qm.predict(PROFILE, workers=[8], throughputs=measured, method="mva")
    few, elsewhere = (qm.fit(PROFILE).what_if(**one).throughput([16]) for one in ({}, {"bandwidth": 1e9}))
    for curve, why in ((again, "were measured"), (few, "at most"), (elsewhere, "not measured on such machines")):
        found = qm.next_measurement(curve)
        assert found.workers is None
        assert why in found.reason
        assert not any("narrow" in note for note in curve.notes())
    uncertain = qm.predict(ROUNDS, workers=[16])  # control
    found = qm.next_measurement(uncertain)
    assert f"to narrow it: measure {found.run} for a minute" in uncertain.notes()
