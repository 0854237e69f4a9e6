"""Plans against brute force on known curves."""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel import example_profile


def curve(x, *, spread=0.1, servers=1, batch_size=10, dataset_size=36_000):
    x = np.array(x, dtype=float)
    return qm.ThroughputCurve(
        np.arange(1, len(x) + 1),
        x,
        x * (1 - spread),
        x * (1 + spread),
        single=float(x[0]),
        batch_size=batch_size,
        parameter_servers=servers,
        dataset_size=dataset_size,
    )


SATURATING = curve([1.0, 2.0, 2.9, 3.6, 4.0, 4.1, 4.1, 4.1])


def only(plan):
    (choice,) = plan.choices
    return choice


@given(
    rates=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=12), servers=st.integers(0, 3),
    deadline=st.floats(60.0, 1e5), floor=st.floats(0.05, 1.0), added=st.floats(0.01, 1.0), speed=st.floats(1.0, 99.0),
    budget=st.floats(0.5, 200.0),
)  # fmt: skip
def test_choices_are_those_of_brute_force(rates, servers, deadline, floor, added, speed, budget):
    """Of the curve and of both ends of its interval; 9 examples a step, 2 epochs of 16,200."""
    whole = curve(rates, servers=servers, batch_size=9, dataset_size=None)
    asked = {"price_per_node_hour": 5.0, "min_efficiency": floor, "min_marginal_speedup": added, "throughput": speed}
    asked["budget"] = budget
    found = qm.plan(whole, epochs=2, dataset_size=16_200, deadline=deadline, **asked).choices
    n = np.arange(1, len(rates) + 1)

    def answers(X):
        cost = 3600 / X / 3600 * 5.0 * (n + servers)
        within, steps = deadline >= 3600 / X, np.diff(X / rates[0], prepend=0.0) >= added
        efficient = (X / (n * rates[0]) >= floor) | (n == 1)
        late = np.where(within, cost, np.inf)
        return (
            n[within][:1], [1 + np.argmin(cost)], [1 + np.argmin(late)] if within.any() else [], n[speed <= 9 * X][:1],
            [1 + np.argmax(np.where(cost <= budget, X, 0))] if (cost <= budget).any() else [], n[efficient][-1:],
            n[np.logical_and.accumulate(steps)][-1:],
        )  # fmt: skip

    ends = zip(*(answers(X) for X in (whole.steps_per_second, whole.lower, whole.upper)), strict=True)
    for k, (choice, (own, slow, quick)) in enumerate(zip(found, ends, strict=True)):
        every, least = [int(one[0]) for one in (own, slow, quick) if len(one)], k < 4
        assert choice.workers == (int(own[0]) if len(own) else None)
        assert choice.workers_low == (min(every) if every and (len(slow) or least) else None)
        assert choice.workers_high == (max(every) if every and (len(slow) or not least) else None)
        if len(own):
            times = 3600 / (rates[choice.workers - 1] * np.array([1.0, 1.1, 0.9]))
            assert [choice.time, choice.time_low, choice.time_high] == pytest.approx(times)
            price = 5.0 / 3600 * (choice.workers + servers)
            assert [choice.cost, choice.cost_low, choice.cost_high] == pytest.approx(price * times)


def test_the_largest_number_is_open_below_where_the_slower_end_has_no_answer():
    # efficiencies on the lower end: 0.9 at two workers, and less beyond; that of one is 1 by definition
    choice = only(qm.plan(SATURATING, min_efficiency=0.95))
    assert (choice.workers_low, choice.workers, choice.workers_high) == (1, 3, 4)
    row = qm.plan(SATURATING, min_marginal_speedup=0.95).to_rows()[0]
    assert row["workers_interval"] == "? to 3"
    steep = only(qm.plan(SATURATING, min_marginal_speedup=0.95))
    assert (steep.workers_low, steep.workers, steep.workers_high) == (None, 2, 3)


def test_a_goal_that_is_not_met_says_what_it_would_need():
    """4.1 steps of 10 examples a second: 100 epochs of 36,000 examples take 24.4 h and cost at least 97.6."""
    goals = {"deadline": 12 * 3600, "budget": 50, "price_per_node_hour": 1.0, "throughput": 82}
    plan = qm.plan(SATURATING, epochs=100, **goals)
    assert plan.choices[0].workers is None
    said = plan.caption()
    assert "within 12 h is not met: 6 workers, the fastest on the curve, take 24.4 h; it needs 2.03 times" in said
    assert "a budget of 50 is not met: 3 workers, the cheapest on the curve, cost 138" in said
    assert "82 examples/s are not reached: 6 workers, the fastest on the curve, process 41" in said
    assert not qm.plan(SATURATING, epochs=1, deadline=12 * 3600).remarks


def test_rows_and_json():
    plan = qm.plan(SATURATING, epochs=10, deadline=1.0, min_efficiency=0.9)
    assert [row["workers"] for row in plan.to_rows()] == [None, 4]
    assert json.loads(plan.to_json())["choices"][0]["workers"] is None
    assert list(plan.to_frame()["goal"]) == [c.goal for c in plan.choices]
    assert "intervals of 90 %" in repr(plan)
    assert "<table" in plan._repr_html_()


WITH_EPOCHS = {"epochs": 1, "deadline": 1}
BAD = [
    ({}, "at least one"), ({"deadline": 3600}, "plan: give epochs too"),
    ({"price_per_node_hour": 1.0}, "give epochs too"),
    ({"budjet": 9.0}, "plan: goal must be one of .*got 'budjet'"),
    ({"budget": 9.0}, "give epochs and price_per_node_hour too, for a deadline, a price or a budget"),
    *((WITH_EPOCHS | {"epochs": epochs}, said) for epochs, said in (
        (0, "epochs"), (math.nan, "epochs"), (10**400, "plan: epochs must be finite"),
        (1e300, "plan: epochs must be at most 1e\\+09"))),
    *((WITH_EPOCHS | {"deadline": deadline}, said) for deadline, said in (
        (-1, "deadline"), (1e300, "plan: deadline must be at most"),
        ("3h", "plan: deadline must be finite and > 0, got '3h'"))),
    *((WITH_EPOCHS | {"dataset_size": size}, said) for size, said in (
        (0, "dataset_size"), (10**400, "dataset_size must be at most"),
        (1e6, "dataset_size must be a whole number"), (math.nan, "dataset_size must be a whole number"))),
    *(({"epochs": 1, "price_per_node_hour": price}, "plan: price_per_node_hour must be")
      for price in (math.inf, math.nan, 1e300)),
    ({"min_efficiency": 1.5}, "min_efficiency"), ({"min_efficiency": math.nan}, "min_efficiency"),
    ({"min_marginal_speedup": 0}, "min_marginal_speedup"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_questions_are_one_clear_line(arguments, message):
    with pytest.raises(qm.ModelError, match=message):
        qm.plan(SATURATING, **arguments)
    with pytest.raises(qm.ModelError, match="curve must be a ThroughputCurve, got Profile; predict gives one"):
        qm.plan(example_profile("alexnet-60"), throughput=1)


def test_an_answer_that_is_the_end_of_the_curve_is_marked():
    remark = "efficiency >= 0.01: .* are the most on the curve; predict more"
    assert re.search(remark, qm.plan(SATURATING, min_efficiency=0.01).caption())
    assert not re.search("the most on the curve", qm.plan(SATURATING, min_efficiency=0.99).caption())
