"""Sliders ask the model what a user would ask it, and a notebook keeps the last answer."""

import sys

import pytest

import queuemodel as qm
from queuemodel import example_profile, example_throughputs

pytest.importorskip("ipywidgets")


@pytest.fixture(scope="module")
def model():
    return qm.fit(example_profile("alexnet-60"))


def test_a_slider_is_a_what_if(model):
    explorer = model.explore(workers=8)
    assert explorer.curve.to_json() == model.throughput(range(1, 9)).to_json()
    bandwidth = explorer.controls["bandwidth"].options[9][1]
    explorer.controls["bandwidth"].value = bandwidth
    explorer.controls["workers"].value = 5
    changed = model.what_if(bandwidth=bandwidth).throughput(range(1, 6))
    assert explorer.curve.to_json() == changed.to_json()
    explorer.controls["parameter_servers"].value = 2
    asked = {"bandwidth": bandwidth, "parameter_servers": 2}
    assert explorer.curve.at(5) == model.what_if(**asked).throughput([5]).at(5) != changed.at(5)
    explorer.controls["parameter_servers"].value = 1
    assert explorer.curve.to_json() == changed.to_json()
    with pytest.raises(qm.ModelError, match="explore: workers"):
        model.explore(workers=0)


def test_refused_change_keeps_the_answer(model):
    explorer = model.what_if(worker_speeds=[1, 1, 2]).explore(workers=3)
    last = explorer.curve.to_json()
    explorer.controls["workers"].value = 4
    assert "workers must be at most 3" in explorer.message
    assert explorer.curve.to_json() == last
    explorer.controls["workers"].value = 2
    assert explorer.message == "as given"


def test_sliders_are_the_answered_changes():
    assert set(qm.fit(example_throughputs("alexnet-60")).explore(workers=8).controls) == {
        "workers",
        "parameter_servers",
    }
    of_rounds = qm.fit(example_profile("ddp-alexnet-40"), strategy="all-reduce").explore(workers=8)
    assert set(of_rounds.controls) == {
        "workers", "latency", "accelerator_speed", "bandwidth", "batch_size", "accumulation",
    }  # fmt: skip
    of_rounds.controls["latency"].value = 1e-3
    asked = qm.predict(example_profile("ddp-alexnet-40"), workers=range(1, 9), latency=1e-3)
    assert of_rounds.curve.to_json() == asked.to_json()


def test_a_kept_curve_stays_for_comparison(model):
    explorer = model.explore(workers=4)
    explorer.controls["parameter_servers"].value = 2
    explorer.keep.click()
    explorer.controls["parameter_servers"].value = 4
    assert explorer.kept == {"parameter_servers=2": model.what_if(parameter_servers=2).throughput(range(1, 5))}


def test_goals_give_the_plan(model):
    explorer = model.explore(workers=8)
    assert explorer.plan is None
    explorer.goals["price_per_node_hour"].value = 1.5
    explorer.goals["deadline"].value = "6h"
    asked = {"epochs": 1.0, "deadline": "6h", "price_per_node_hour": 1.5}
    assert explorer.plan.answer() == qm.plan(explorer.curve, **asked).answer()
    explorer.goals["deadline"].value = "soon"
    assert "deadline" in explorer.message


def test_missing_widgets_name_their_installation(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(qm.MissingDependencyError, match="pip install ipywidgets"):
        model.explore()
