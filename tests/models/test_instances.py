"""Which type of machine, and how many: against brute force over all of them, and what files of types may hold."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel import example_profile

PROFILE = example_profile("alexnet-60")
SMALL = qm.Instance("small", price=0.2)
WIDE = qm.Instance("wide", price=0.26, bandwidth=125e6)
FAST = qm.Instance("fast", price=0.75, bandwidth=125e6, accelerator_speed=4.0)
COUNTS = range(1, 13)


def curve(one):
    changes = {"bandwidth": one.bandwidth, "accelerator_speed": one.accelerator_speed}
    return qm.fit(PROFILE).what_if(**{k: v for k, v in changes.items() if v is not None}).throughput(COUNTS)


CURVES = {one.name: curve(one) for one in (SMALL, WIDE, FAST)}


def brute(instances, good, cost):
    """Cost, type and number of all that are good enough at the lower end of their interval."""
    found = [
        (cost(one, n, x), one.name, n)
        for one in instances
        for n, x, low in zip(COUNTS, CURVES[one.name].steps_per_second, CURVES[one.name].lower, strict=True)
        if good(low)
    ]
    return min(found, default=None)


@settings(max_examples=15)
@given(st.floats(0.05, 3.0), st.lists(st.floats(0.1, 5.0), min_size=3, max_size=3))
def test_cheapest_type_meets_the_deadline(hours, prices):
    types = [replace(one, price=price) for one, price in zip((SMALL, WIDE, FAST), prices, strict=True)]
    examples = 3 * PROFILE.job.dataset_size

    def seconds(x):
        return examples / (32 * x)

    best = brute(types, lambda x: seconds(x) <= 3600 * hours, lambda one, n, x: seconds(x) / 3600 * (n + 1) * one.price)
    found = qm.plan_instances(PROFILE, types, workers=COUNTS, method="mva", epochs=3, deadline=3600 * hours)
    if best is None:
        assert found.cheapest is None or found.cheapest.choice.probability is None
        assert found.cheapest is not None or "no type of machine will do" in repr(found)
        return
    assert "with 95 % probability" in found.caption()
    choice = found.cheapest.choice
    assert (choice.cost, found.cheapest.instance.name, choice.workers) == (pytest.approx(best[0]), *best[1:])
    costs = [offer.choice.cost for offer in found.offers if offer.choice.probability]
    assert costs == sorted(costs)
    assert found.to_text().startswith(f"{found.cheapest.instance.name}: {found.cheapest.plan.answer()}")
    assert any("examples to train" in note for note in found.notes())
    assert choice.cost_low < choice.cost < choice.cost_high


@pytest.mark.parametrize("wanted", [20.0, 100.0, 230.0])
def test_cheapest_hour_reaches_a_throughput(wanted):
    best = brute([SMALL, WIDE, FAST], lambda x: 32 * x >= wanted, lambda one, n, x: (n + 1) * one.price)
    found = qm.plan_instances(PROFILE, [SMALL, WIDE, FAST], workers=COUNTS, method="mva", throughput=wanted)
    row = found.to_rows()[0]
    assert (row["price_per_hour"], row["instance"], row["workers"]) == (pytest.approx(best[0]), *best[1:])
    assert row["examples_per_second"] == pytest.approx(32 * CURVES[row["instance"]].at(row["workers"]))
    assert row["examples_per_second_low"] < row["examples_per_second"] < row["examples_per_second_high"]
    assert (row["machines"], row["cost"]) == (row["workers"] + 1, None)
    paid = qm.plan_instances(PROFILE, [SMALL, WIDE, FAST], workers=COUNTS, method="mva", throughput=wanted, epochs=3)
    hours = 3 * PROFILE.job.dataset_size / row["examples_per_second"] / 3600
    assert paid.to_rows()[0]["cost"] == pytest.approx(hours * best[0])
    json.loads(found.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_servers_are_paid_latency_for_ranks():
    found = qm.plan_instances(PROFILE, [SMALL], workers=[4], method="mva", throughput=1.0, parameter_servers=2)
    assert found.offers[0].hourly == pytest.approx(6 * 0.2)
    near, far = (qm.Instance(name, price=1.0, latency=latency) for name, latency in (("near", 1e-6), ("far", 0.1)))
    found = qm.plan_instances(example_profile("ddp-alexnet-40"), [far, near], workers=[4], throughput=1.0)
    speed = {offer.instance.name: offer.curve.steps_per_second[0] for offer in found.offers}
    assert speed["near"] > 1.2 * speed["far"]
    with pytest.raises(qm.ModelError, match="instance 'near': latency applies to"):
        qm.plan_instances(PROFILE, [near], throughput=1.0)


def test_marginal_speedup_stops_at_first_miss():
    """A curve that is not monotone, and later rises again: the third worker adds 0.1, the fifth takes away."""
    X = np.array([1.0, 2.0, 2.1, 3.6, 3.5, 4.6])
    about = {"single": 1.0, "batch_size": 10, "parameter_servers": 1}
    shown = qm.ThroughputCurve(np.arange(1, 7), X, 0.9 * X, 1.1 * X, **about)
    apart = qm.ThroughputCurve(np.array([1, 2, 4, 8]), np.array([1.0, 1.9, 3.1, 4.1]), *[X[:4]] * 2, **about)
    at = {1.0: 2, 0.5: 2, 0.11: 2, 0.09: 4, 0.01: 4}, {0.91: 1, 0.7: 2, 0.5: 4, 0.26: 4, 0.24: 8}  # per worker
    for curve, expected in zip((shown, apart), at, strict=True):
        found = {floor: qm.plan(curve, min_marginal_speedup=floor).choices[0].workers for floor in expected}
        assert found == expected


@pytest.mark.parametrize(("question", "match"), [
    ({"deadline": 60.0, "throughput": 1.0, "epochs": 1}, "exclude each other"),
    ({}, "give epochs too, for a deadline, a price or a budget"),
    ({"throughput": 1.0, "bandwidth": 1e9}, "each instance has its own bandwidth"),
    ({"throughput": -1.0}, "throughput must be finite and > 0"),
    ({"throughput": 1.0, "instances": []}, "at least one type of machine"),
    ({"throughput": 1.0, "instances": "types.csv"}, "expected Instances, got str; `read_instances` reads them"),
])  # fmt: skip
def test_senseless_questions_are_one_line(question, match):
    with pytest.raises(qm.ModelError, match=rf"\A.*{match}.*\Z"):
        qm.plan_instances(PROFILE, **{"instances": [SMALL], "method": "mva"} | question)


def read(tmp_path, text):
    (tmp_path / "types.csv").write_text(text)
    return qm.read_instances(tmp_path / "types.csv")


def test_units_and_what_is_left_out(tmp_path):
    text = "name,price,bandwidth,latency,accelerator_speed\nsmall,0.2,,,\nfast,2,10Gbit/s,50us,4\n"
    fast = qm.Instance("fast", price=2.0, bandwidth=1.25e9, accelerator_speed=4.0, latency=50 * 1e-6)
    assert read(tmp_path, text) == [qm.Instance("small", price=0.2), fast]


@pytest.mark.parametrize(("text", "match"), [
    ("name,price\na,cheap\n", "line 2: price must be finite and > 0, got 'cheap'"),
    ("name,price\na,1\na,2\n", "line 3: name 'a' stands twice"),
    ("name,price,bandwidth\na,1,10 parsecs\n", "line 2: bandwidth: bandwidth '10 parsecs': unknown unit"),
    ("name,price,bandwidth\na,1,10B/s\n", "line 2: bandwidth: bandwidth must be at least 1000 bytes per second"),
])  # fmt: skip
def test_bad_file_names_its_line(tmp_path, text, match):
    with pytest.raises(qm.DataError, match=rf"\A.*{match}.*\Z"):
        read(tmp_path, text)
    for values in ({"price": math.nan}, {"price": 1, "bandwidth": 0}, {"price": 1, "latency": -1e-6}, {"price": "1"}):
        with pytest.raises(qm.ModelError, match="instance 'a'"):
            qm.Instance("a", **values)
