"""Which type of machine, and how many: against brute force over all of them, and what files of types may hold."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel import example_profile

PROFILE = example_profile("alexnet-60")
SMALL = qm.Instance("small", price=0.2)
WIDE = qm.Instance("wide", price=0.26, bandwidth=125e6)
FAST = qm.Instance("fast", price=0.75, bandwidth=125e6, accelerator_speed=4.0)
COUNTS, EXAMPLES = range(1, 13), 3 * PROFILE.job.dataset_size
CHANGES = ({}, {"bandwidth": 125e6}, {"bandwidth": 125e6, "accelerator_speed": 4.0})
CURVES = [qm.fit(PROFILE).what_if(**change).throughput(COUNTS) for change in CHANGES]


def brute(types, good, cost):
    """Cost, type and number of all that are good enough at the lower end of their interval."""
    found = [
        (cost(one, n, 32 * x), one.name, n)
        for one, curve in zip(types, CURVES, strict=True)
        for n, x, low in zip(COUNTS, curve.steps_per_second, curve.lower, strict=True)
        if good(32 * low)
    ]
    return min(found, default=None)


def planned(types, **asked):
    return qm.plan_instances(PROFILE, types, workers=COUNTS, method="mva", **asked)


@settings(max_examples=15)
@given(st.floats(0.05, 3.0), st.lists(st.floats(0.1, 5.0), min_size=3, max_size=3))
def test_cheapest_type_meets_the_deadline(hours, prices):
    types = [replace(one, price=price) for one, price in zip((SMALL, WIDE, FAST), prices, strict=True)]
    seconds = 3600 * hours
    best = brute(types, lambda x: EXAMPLES / x <= seconds, lambda one, n, x: EXAMPLES / x / 3600 * (n + 1) * one.price)
    found = planned(types, epochs=3, deadline=3600 * hours)
    if best is None:
        assert found.cheapest is None or found.cheapest.choice.probability is None
        assert found.cheapest is not None or "no type of machine will do" in repr(found)
        return
    choice = found.cheapest.choice
    assert (choice.cost, found.cheapest.instance.name, choice.workers) == (pytest.approx(best[0]), *best[1:])
    costs = [offer.choice.cost for offer in found.offers if offer.choice.probability]
    assert costs == sorted(costs)
    assert found.to_text().startswith(f"{found.cheapest.instance.name}: {found.cheapest.plan.answer()}")
    assert choice.cost_low < choice.cost < choice.cost_high


@pytest.mark.parametrize("wanted", [20.0, 100.0, 230.0])
def test_cheapest_hour_reaches_a_throughput(wanted):
    types = [SMALL, WIDE, FAST]
    best = brute(types, lambda x: x >= wanted, lambda one, n, x: (n + 1) * one.price)
    found = planned(types, throughput=wanted)
    row = found.to_rows()[0]
    assert (row["price_per_hour"], row["instance"], row["workers"]) == (pytest.approx(best[0]), *best[1:])
    (curve,) = [curve for one, curve in zip(types, CURVES, strict=True) if one.name == row["instance"]]
    assert row["examples_per_second"] == pytest.approx(32 * curve.at(row["workers"]))
    assert row["examples_per_second_low"] < row["examples_per_second"] < row["examples_per_second_high"]
    assert (row["machines"], row["cost"]) == (row["workers"] + 1, None)
    paid = planned(types, throughput=wanted, epochs=3).to_rows()[0]
    assert paid["cost"] == pytest.approx(EXAMPLES / row["examples_per_second"] / 3600 * best[0])
    json.loads(found.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_servers_are_paid_latency_for_ranks():
    assert planned([SMALL], throughput=1.0, parameter_servers=2).offers[0].hourly == pytest.approx(3 * 0.2)
    near, far = (qm.Instance(name, price=1.0, latency=latency) for name, latency in (("near", 1e-6), ("far", 0.1)))
    found = qm.plan_instances(example_profile("ddp-alexnet-40"), [far, near], workers=[4], throughput=1.0)
    speed = {offer.instance.name: offer.curve.steps_per_second[0] for offer in found.offers}
    assert speed["near"] > 1.2 * speed["far"]


@pytest.mark.parametrize(("question", "match"), [
    ({"deadline": 60.0, "throughput": 1.0, "epochs": 1}, "exclude each other"),
    ({}, "give epochs too, for a deadline, a price or a budget"),
    ({"throughput": 1.0, "bandwidth": 1e9}, "each instance has its own bandwidth"),
    ({"throughput": -1.0}, "throughput must be finite and > 0"),
    ({"throughput": 1.0, "instances": []}, "at least one type of machine"),
    ({"throughput": 1.0, "instances": "types.csv"}, "expected Instances, got str; `read_instances` reads them"),
    ({"throughput": 1.0, "instances": [replace(SMALL, latency=1.0)]}, "instance 'small': latency applies to"),
])  # fmt: skip
def test_senseless_questions_are_refused(question, match):
    with pytest.raises(qm.ModelError, match=match):
        qm.plan_instances(PROFILE, **{"instances": [SMALL], "method": "mva"} | question)


def test_units_and_what_is_left_out(tmp_path):
    text = "name,price,bandwidth,latency,accelerator_speed\nsmall,0.2,,,\nfast,2,10Gbit/s,50us,4\n"
    (tmp_path / "types.csv").write_text(text)
    fast = qm.Instance("fast", price=2.0, bandwidth=1.25e9, accelerator_speed=4.0, latency=50 * 1e-6)
    assert qm.read_instances(tmp_path / "types.csv") == [SMALL, fast]


@pytest.mark.parametrize(("text", "match"), [
    ("name,price\na,cheap\n", "line 2: price must be finite and > 0, got 'cheap'"),
    ("name,price\na,1\na,2\n", "line 3: name 'a' stands twice"),
    ("name,price,bandwidth\na,1,10 parsecs\n", "line 2: bandwidth: bandwidth '10 parsecs': unknown unit"),
    ("name,price,latency\na,1,-1us\n", "line 2: latency"), ("name,price\na,nan\n", "line 2: price must be finite"),
    ("name,price,bandwidth\na,1,10B/s\n", "line 2: bandwidth: bandwidth must be at least 1000 bytes per second"),
])  # fmt: skip
def test_bad_file_names_its_line(tmp_path, text, match):
    (tmp_path / "types.csv").write_text(text)
    with pytest.raises(qm.DataError, match=match):
        qm.read_instances(tmp_path / "types.csv")
