"""The report of a comparison: its page has Python's numbers, and is whole."""

import json
import re
from dataclasses import replace

import pytest

from queuemodel import example_profile
from queuemodel.sgd import compare


@pytest.fixture(scope="module")
def trained():
    trained = {"problem": "least-squares", "steps": 100, "seeds": 3, "learning_rates": [0.1]}
    asked = {"workers": 4, "strategies": ["sync", "local-sgd", "top-k"], "price_per_node_hour": 2.5}
    return compare(example_profile("ddp-alexnet-40"), **trained, **asked)


@pytest.fixture(scope="module")
def path(trained, tmp_path_factory):
    path = tmp_path_factory.mktemp("comparison") / "comparison.html"
    trained.report(path)
    return path


def numbers(rows):
    """Costs; below 0 where a strategy never arrives."""
    return [-1.0 if row["cost"] is None else row["cost"] for row in rows]


def test_page_recomputes_the_cost(browser, trained, path):
    browser.open(path)
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [f"file://{path}"]
    page = browser.run("return answer(settings)")
    for row, shown in zip(trained.to_rows(), page, strict=True):
        assert shown | {"cost": None} == row | {"cost": None}
    assert numbers(page) == pytest.approx(numbers(trained.to_rows()), rel=1e-12)
    dearer = replace(trained, price_per_node_hour=7.0)
    browser.enter("price_per_node_hour", 7)
    page = browser.run("return answer(settings)")
    assert numbers(page) == pytest.approx(numbers(dearer.to_rows()), rel=1e-12)
    assert numbers(page) != pytest.approx(numbers(trained.to_rows()), rel=1e-3)


def test_losses_are_those_of_runs(trained):
    data = json.loads(re.search(r'id="data">(.*?)</script>', trained.report())[1])
    stand_in = "LeastSquares(1000 examples of 50 features, 50 parameters), which stands in for the job"
    assert data["headline"] == f"Most probably first on {stand_in}: {trained.best.name}."
    assert [one["strategy"] for one in data["losses"]] == [one.name for one in trained.rows]
    for drawn, one in zip(data["losses"], trained.rows, strict=True):
        assert drawn["seconds"][-1] == pytest.approx(one.descent.times[:, -1].mean(), rel=1e-4)
        assert drawn["mean"][-1] == pytest.approx(one.descent.losses[:, -1].mean(), rel=1e-4)
        assert drawn["least"][-1] <= drawn["mean"][-1] <= drawn["largest"][-1]
