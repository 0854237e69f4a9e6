"""Reports in a browser: the page has Python's numbers within 1 %, and is safe, whole and usable by keyboard."""

import base64
import math
import re
from dataclasses import replace

import numpy as np
import pytest

import queuemodel as qm
from queuemodel import example_profile, example_throughputs
from queuemodel.sgd import compare

QUESTIONS = {"epochs": 90, "deadline": 40 * 3600.0, "price_per_node_hour": 2.5}
PLACED = [
    qm.Measurement(
        nodes=nodes, workers=gpus, batch_size=size, steps_per_second=gpus / (0.004 * size + 0.01 * (1 - 1 / gpus))
    )
    for nodes, gpus in ((1, 1), (1, 2), (1, 4), (2, 2), (2, 8))
    for size in (16, 32)
]

MODELS = {
    "parameter server": lambda: qm.fit(example_profile("alexnet-60")),
    "unknown network": lambda: qm.fit(example_profile("alexnet-60").with_network("unknown")),
    "calibrated": lambda: qm.fit(example_profile("resnet50-60"), throughputs=example_throughputs("resnet50-60")),
    "data-parallel": lambda: qm.fit(example_profile("ddp-alexnet-40")),
    "throughputs": lambda: qm.fit(example_throughputs("shakesmall-p100")),
    "barrier": lambda: qm.fit(example_profile("alexnet-60"), strategy="sync-ps"),
    "placements": lambda: qm.fit(PLACED, batch_size=16),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def whole(folder):
    """A report with everything in it, and its curve."""
    profile = example_profile("alexnet-60")
    curve = qm.fit(profile).throughput(range(1, 17))
    path = folder / "whole.html"
    curve.report(path, profile=profile, workers=4, **QUESTIONS)
    return path, curve


def drawn(controls, rng):
    """What-ifs at random."""
    return {one["name"]: one["choices"][rng.integers(len(one["choices"]))] for one in controls}


def off(page, curve):
    """Largest relative difference of the page's curve from Python's."""
    names = ("steps_per_second", "lower", "upper")
    return max(float(np.abs(np.array(page[name]) / getattr(curve, name) - 1).max()) for name in names)


@pytest.mark.parametrize("name", MODELS)
def test_page_curves_agree_within_a_percent(browser, folder, name):
    model, path, rng = MODELS[name](), folder / "page.html", np.random.default_rng(1)
    predicted = model.throughput(range(1, 33))
    predicted.report(path, **({"epochs": 2, "dataset_size": 10_000} if predicted.unit else {"steps": 2500}))
    assert len(path.read_bytes()) < 300_000
    browser.open(path)
    controls = browser.run("return data.controls")
    assert controls
    own = {one["name"]: one["value"] for one in controls}
    cases = [{}, *(drawn(controls, rng) for _ in range(25))]
    pages = browser.run("return arguments[0].map((one) => answer({ ...start, workers: 8, ...one }))", cases)
    worst, faster = [], 0
    for case, page in zip(cases, pages, strict=True):
        changes = {key: value for key, value in case.items() if value != own[key]}
        curve = model.what_if(**changes).throughput(range(1, 33))
        worst.append(off(page["curve"], curve))
        assert page["now"]["time"] == pytest.approx(20_000 / curve.examples_per_second[7], rel=0.01)  # 2500 steps of 8
        for end in ("slow", "fast"):
            ends = curve._efficiency_of(getattr(curve, {"slow": "lower", "fast": "upper"}[end]))
            assert page[end]["efficiency"] == pytest.approx(ends[7], rel=0.01)  # held to the bound
        if "bandwidth" in changes:
            more = changes | {"bandwidth": 1.1 * changes["bandwidth"]}
            faster += off(page["curve"], model.what_if(**more).throughput(range(1, 33))) > 0.02
    assert worst[0] < 1e-12  # what was predicted is not interpolated
    assert max(worst) < 0.01
    assert faster >= 5 or "bandwidth" not in own  # a change of a tenth is noticed


def of_nodes(unit, steps_per_round=()):
    """Nodes of 8 GPUs, of which some counts fill none."""
    n = np.array([4, 8, 12, 16, 20, 24, 32, 40, 64])
    X = 64 * n / (40 + n)
    return qm.ThroughputCurve(
        n, X, 0.93 * X, 1.06 * X, single=X[1] / 8, base_workers=8, workers_per_node=8, parameter_servers=0, unit=unit,
        batch_size=4096 if unit else 1, synchronous=True, steps_per_round=np.array(steps_per_round),
    )  # fmt: skip


BOUGHT = {"tokens": 2e10, "price_per_node_hour": 25.0}
ASKED = [
    (None, {**QUESTIONS, "dataset_size": 50_000, "budget": 300.0, "min_efficiency": 0.4}),
    (None, {"steps": 2e5, "deadline": 30 * 3600.0, "price_per_node_hour": 1.0, "min_efficiency": 0.9}),
    (of_nodes("tokens"), BOUGHT | {"deadline": 2e5, "budget": 2000.0, "currency": "EUR", "min_efficiency": 0.6}),
    (of_nodes("tokens"), BOUGHT | {"deadline": 5e4, "budget": 900.0, "min_efficiency": 1}),
    (of_nodes("", range(4, 22, 2)), {"steps": 5e4, "deadline": 5400.0, "price_per_node_hour": 300.0}),
    *((of_nodes("examples"), {"examples": 4096 * 3600.0 * per, "deadline": 3600.0}) for per in (20, 30.2, 36.7, 37)),
]


@pytest.mark.parametrize(("other", "asked"), ASKED)
def test_the_plan_is_pythons(browser, whole, folder, other, asked):
    path, curve = (folder / "plan.html", other) if other else whole
    if other:
        curve.report(path, **asked)
    browser.open(path)
    shown = browser.run("return planWorkers(curveOf(start), arguments[0])", asked)
    plan = qm.plan(curve, **asked)
    assert shown[0]["answer"] == plan.answer()
    for one, choice in zip(shown, plan.choices, strict=True):
        for name in ("goal", "workers", "workers_point", "nodes"):
            assert one[name] == getattr(choice, name)
        for name in ("time", "time_low", "time_high", "cost", "cost_low", "cost_high", "probability"):
            value = getattr(choice, name)
            assert one[name] == (None if value is None or math.isnan(value) else pytest.approx(value, rel=1e-12))
    if other:
        assert plan.answer() in browser.text("recommendation")
        assert ("cost (EUR)" in browser.text("plan")) is ("currency" in asked)
        assert browser.run("return settings.workers") in (4, 8, 16, 24, 32, 40, 64)
        assert browser.complaints() == []


@pytest.mark.parametrize(("goals", "data", "simulated"), [
    ("--epochs 10 --deadline 2h --price 2", "ddp-alexnet-40", False),
    ("--epochs 10 --dataset-size 10000 --price 2", "alexnet-60", True),
])  # fmt: skip
def test_pages_plan_as_the_command(browser, run, told, examples, goals, data, simulated):
    """The same goals, sentence and figures. A what-if changes a simulation by the closed network's factor."""
    words, workers = f"{data}.json --workers 1:4 {goals}", [1, 2, 3, 4]
    assert run("report", *words.split(), "--name", "ours", "-o", "page.html")[0] == 0
    plan = told(f"plan {words}")
    browser.open(examples / "page.html")
    assert browser.run("return document.title").startswith("ours: ")
    assert browser.text("recommendation").startswith(f"{plan['answer']}. ")
    model = qm.fit(example_profile(data))
    solved, faster = (one.throughput(workers) for one in (model, model.what_if(bandwidth=25e6)))
    before, after = browser.run("return [{}, { bandwidth: 25e6 }].map((one) => curveOf({ ...start, ...one }))")
    predicted = qm.predict(example_profile(data), workers=workers)
    assert off(before, predicted) < 1e-12
    factor = faster.steps_per_second / solved.steps_per_second
    assert np.divide(after["steps_per_second"], before["steps_per_second"]) == pytest.approx(factor, rel=0.01)
    assert "changed as by" not in browser.text("scenario")
    browser.run("set({ bandwidth: 25e6 })")
    assert (f"changed as by {solved.method}" in browser.text("scenario")) == simulated
    if simulated:
        with pytest.raises(qm.ModelError, match="the same workers and stations"):
            predicted.report(what_ifs=model.throughput([1, 2]))


def test_page_is_accessible_without_requests(browser, whole):
    path, _ = whole
    browser.open(path)
    assert browser.complaints() == []
    assert browser.requests() == [f"file://{path}"]
    headings = browser.run("return [...document.querySelectorAll('h2')].map((one) => one.textContent)")
    assert headings[:2] == ["Throughput", "Answers"]
    for about in ("step's time", "plan", "One recorded step", "parameters", "limits"):
        assert any(about in heading for heading in headings)
    for script in (
        "return [...document.querySelectorAll('input')].filter((one) => !one.labels.length).length",
        "return [...document.querySelectorAll('svg')].filter((one) => !one.ariaLabel).length",
        "return [...document.querySelectorAll('section:has(svg)')].filter((one) => !one.querySelector('table')).length",
    ):
        assert browser.run(script) == 0
    assert browser.run("return document.querySelectorAll('svg').length") == 3


def test_slider_moves_answers_and_link(browser, whole):
    path, curve = whole
    browser.open(path)
    assert browser.text("answer-rate") == f"{curve.at(4):.3g}"
    browser.press("input[type=range][name=workers]", "ARROW_RIGHT")
    assert browser.text("answer-rate") == f"{curve.at(5):.3g}"
    hours = 90 * 50_000 / (curve.at(5) * 32) / 3600
    assert float(browser.text("answer-cost")) == pytest.approx(hours * 2.5 * 6, rel=0.01)
    browser.press("input[name=parameter_servers]", "ARROW_RIGHT")
    two = curve.model.what_if(parameter_servers=2).throughput([5])
    assert browser.text("answer-rate") == f"{two.at(5):.3g}"
    assert "parameter servers 2" in browser.text("scenario")
    before = browser.text("answer-cost")
    browser.enter("price_per_node_hour", -3)
    assert not browser.run("return document.getElementById('price_per_node_hour').validity.valid")
    assert browser.text("answer-cost") == before
    link = browser.run("return location.hash")
    browser.open(path, link)
    assert browser.run("return [settings.workers, settings.parameter_servers]") == [5, 2]
    assert browser.text("answer-rate") == f"{two.at(5):.3g}"
    assert browser.complaints() == []


def test_changes_compare_with_before(browser, whole):
    path, curve = whole
    browser.open(path)
    assert "as predicted" not in browser.text("throughput").split("Table")[0]
    assert "×" not in browser.text("answers")
    browser.run("set({ bandwidth: 12.5e6 })")
    faster = curve.model.what_if(bandwidth=12.5e6).throughput([4]).at(4) / curve.at(4)
    assert f"×{faster:.3g}" in browser.text("answers")
    assert "as predicted" in browser.text("throughput").split("Table")[0]
    assert f"from {curve.at(4):.3g}" in browser.text("answers")
    assert "Kept" not in browser.text("scenario")
    browser.run("[...document.querySelectorAll('button')].find((one) => one.textContent.startsWith('Keep')).click()")
    browser.run("set({ bandwidth: 25e6 })")
    further = curve.model.what_if(bandwidth=25e6).throughput([4]).at(4) / (faster * curve.at(4))
    assert "Kept: bandwidth of a node's link 0.1 Gbit/s" in browser.text("scenario")
    assert float(browser.text("answers").split("×")[1].split(" from")[0]) == pytest.approx(further, rel=0.02)


def test_axes_stay_while_a_slider_moves(browser, whole):
    path, _ = whole
    browser.open(path)
    move = """const slider = document.querySelector('input[name=bandwidth]');
              slider.value = arguments[0]; slider.dispatchEvent(new Event(arguments[1])); return highest"""
    wide, narrow = browser.run(move, 9, "input"), browser.run(move, 1, "input")
    assert wide == narrow
    assert browser.run(move, 1, "change") < wide


def test_a_pointer_reads_values(browser, whole):
    path, curve = whole
    browser.open(path)
    browser.run("""const box = document.querySelector('#throughput svg').getBoundingClientRect();
        document.querySelector('#throughput svg').dispatchEvent(new PointerEvent('pointermove',
            { clientX: box.right - 20, clientY: box.top + 50 }))""")
    shown = browser.run("return document.querySelector('#throughput .readout').textContent")
    assert shown.startswith(f"16 workers: {curve.at(16):.3g} steps/s")


def of_table(measured=()):
    """Nodes of 8 ranks, as a table gives them: no parts of a step are known."""
    return replace(of_nodes("examples"), measured=measured)


def test_it_counts_as_the_command_line(browser, folder):
    """Nodes, GPUs and iterations: no steps of all ranks, no picture of one part."""
    curve, path = of_table(((8, 10.0),)), folder / "nodes.html"
    curve.report(path, name="ours", workers=64)
    browser.open(path)
    assert browser.run("return document.title") == "ours: throughput of up to 8 nodes (64 GPUs)"
    shown = browser.run("return document.body.innerText")
    assert curve.answer() in shown
    assert not re.search(r"steps/s|upper bound|step's time", shown)
    rows = browser.run("""return [...document.querySelectorAll('#throughput tr')].map((row) =>
        [...row.cells].map((cell) => cell.textContent))""")
    expected = curve._shown_rows()
    assert rows[0] == [name.replace("_", "") for name in expected[0]]
    assert [[float(cell) for cell in row[:4]] for row in rows[1:]] == [
        pytest.approx([row[name] for name in ("nodes", "GPUs", "iterations_/s", "lower")], rel=1e-3) for row in expected
    ]
    assert [row[-1] for row in rows[1:3]] == ["-", "1.25"]


def test_later_measurements_are_drawn_and_carried(browser, folder):
    curve, path = of_table(), folder / "measured.html"
    curve.report(path, workers=64)
    browser.open(path)
    dots = "return document.querySelectorAll('#throughput circle.measured').length"
    assert browser.run(dots) == 0
    predicted = curve.iterations_per_second[[3, 8]]
    browser.enter("measured", f"16={predicted[0]:.4f}, 64={0.8 * predicted[1]:.4f} 48=1")
    assert browser.run(dots) == 3
    assert re.search(r"2 nodes \(16 GPUs\) .0(\.\d+)? %, inside the interval; 8 nodes \(64 GPUs\) −20 %, outside",
                     browser.text("scenario"))  # fmt: skip
    link = browser.run("return location.hash")
    browser.open(path, link)
    assert browser.run(dots) == 3
    browser.enter("measured", "16 nodes")
    assert not browser.run("return document.getElementById('measured').validity.valid")
    assert browser.run(dots) == 3


def test_page_prints_without_the_form(browser, whole):
    path, _ = whole
    browser.open(path)
    pages = base64.b64decode(browser.driver.print_page())
    assert len(re.findall(rb"/Type\s*/Page\b", pages)) == 2
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    hidden = "return getComputedStyle(document.querySelector('.controls')).display"
    assert browser.run(hidden) == "none"
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert browser.run(hidden) != "none"


def test_phone_shows_answers_before_sliders(browser, whole):
    """And scrolls only tables."""
    path, _ = whole
    phone = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    browser.open(path)
    assert browser.run("return document.documentElement.scrollWidth") <= 390
    wider = "[...document.querySelectorAll('.scroll')].some((one) => one.scrollWidth > one.clientWidth)"
    assert browser.run(f"return {wider}")
    order = browser.run("""return [...document.querySelectorAll('#recommendation, #throughput, #answers, .controls')]
        .map((one) => one.id || one.className)""")
    assert order == ["recommendation", "throughput", "answers", "controls"]
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture(scope="module")
def trained():
    return compare(
        example_profile("ddp-alexnet-40"), problem="least-squares", steps=100, seeds=3, learning_rates=[0.1], workers=4,
        strategies=["sync", "local-sgd", "top-k"], price_per_node_hour=2.5,
    )  # fmt: skip


def numbers(rows):
    """Costs; below 0 where a strategy never arrives."""
    return [-1.0 if row["cost"] is None else row["cost"] for row in rows]


def test_page_recomputes_the_cost(browser, trained, folder):
    path = folder / "comparison.html"
    trained.report(path)
    browser.open(path)
    assert browser.complaints() == []
    assert browser.requests() == [f"file://{path}"]
    page = browser.run("return answer(settings)")
    for row, shown in zip(trained.to_rows(), page, strict=True):
        assert shown | {"cost": None} == row | {"cost": None}
    assert numbers(page) == pytest.approx(numbers(trained.to_rows()), rel=1e-12)
    dearer = replace(trained, price_per_node_hour=7.0)
    browser.enter("price_per_node_hour", 7)
    page = browser.run("return answer(settings)")
    assert numbers(page) == pytest.approx(numbers(dearer.to_rows()), rel=1e-12)
    assert numbers(page) != pytest.approx(numbers(trained.to_rows()), rel=1e-3)


def test_losses_are_those_of_runs(trained, held):
    data = held(trained.report())
    stand_in = "LeastSquares(1000 examples of 50 features, 50 parameters), which stands in for the job"
    assert data["headline"] == f"Most probably first on {stand_in}: {trained.best.name}."
    assert [one["strategy"] for one in data["losses"]] == [one.name for one in trained.rows]
    for drawn, one in zip(data["losses"], trained.rows, strict=True):
        assert drawn["seconds"][-1] == pytest.approx(one.descent.times[:, -1].mean(), rel=1e-4)
        assert drawn["mean"][-1] == pytest.approx(one.descent.losses[:, -1].mean(), rel=1e-4)
        assert drawn["least"][-1] <= drawn["mean"][-1] <= drawn["largest"][-1]
