"""The report of a curve: the page computes what Python computes, and is safe, whole and usable by keyboard."""

import math

import numpy as np
import pytest
from msgspec.structs import replace

import queuemodel as qm
from queuemodel import example_profile, example_throughputs

MEASURES = ("steps_per_second", "lower", "upper", "bound_lower", "bound_upper", "utilization", "residence_time",
            "think_time")  # fmt: skip
QUESTIONS = {"epochs": 90, "deadline": 40 * 3600.0, "price_per_node_hour": 2.5}


def on_two_servers(profile):
    """The profile as it would be of two servers with uneven shards, on links of unknown bandwidth."""
    job = replace(profile.job, shard_bytes=[2_000_000, 1_066_224])
    return replace(profile, cluster=qm.Cluster(parameter_servers=2), job=job)


def without_overlap(profile):
    """Steps whose phases follow each other: mean-value analysis of them is exact."""
    steps = [replace(step, step_time=step.fetch + step.compute + step.push + step.update, operations=[])
             for step in profile.steps]  # fmt: skip
    return replace(profile, steps=steps, cluster=qm.Cluster(bandwidth=7.5e6))


MODELS = {
    "settled": lambda: qm.fit(example_profile("alexnet-60")),
    "untold": lambda: qm.fit(example_profile("alexnet-60").with_network("unknown")),
    "exact": lambda: qm.fit(without_overlap(example_profile("alexnet-60"))),
    "one station": lambda: qm.fit(example_profile("resnet50-60"), form="single"),
    "calibrated": lambda: qm.fit(example_profile("resnet50-60"), throughputs=example_throughputs("resnet50-60")),
    "two servers": lambda: qm.fit(on_two_servers(example_profile("resnet50-60"))),
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


def drawn_settings(model, count):
    """Settings of a page, and the same as arguments of `what_if`."""
    rng = np.random.default_rng(1)
    servers = [p for p in range(1, 9) if p <= len(model.fitted.recorded.tensor_bytes or range(8))]
    for i in range(count):
        profiled = model.fitted.recorded.bandwidth
        changes = {
            "bandwidth": profiled if i % 5 == 0 else float(10 ** rng.uniform(5, 9)),
            "parameter_servers": model.fitted.servers.count if i % 3 == 0 else int(rng.choice(servers)),
            "accelerator_speed": 1.0 if i % 5 == 0 else float(10 ** rng.uniform(-1, 1.3)),
            "batch_size": model.fitted.job.batch_size if i % 5 == 0 else int(10 ** rng.uniform(0, 3)),
        }
        asked = {
            "epochs": float(rng.uniform(0.1, 100)),
            "dataset_size": int(rng.integers(1, 10**7)),
            "deadline": None if i % 4 == 1 else float(10 ** rng.uniform(1, 6)),
            "price_per_node_hour": None if i % 4 == 2 else float(10 ** rng.uniform(-2, 2)),
            "min_efficiency": float(rng.uniform(0.05, 1)),
        }
        yield changes, asked, int(rng.integers(1, 24))


def difference(told, curve, plan):
    """Largest relative difference of the page's numbers from Python's; infinite where words differ."""
    page = told["curve"]
    same = ("bottleneck", "parameter_servers", "batch_size", "profiled_workers", "method")
    words = [(page[name], getattr(curve, name)) for name in same]
    words.append(([tuple(point) for point in page["measured"]], list(curve.measured)))
    pairs = [(page[name], getattr(curve, name)) for name in (*MEASURES, "saturation_workers")]
    for one, choice in zip(told["plan"], plan.choices, strict=True):
        words += [(one[name], getattr(choice, name)) for name in ("workers", "workers_low", "workers_high")]
        for name in ("time", "time_low", "time_high", "cost", "cost_low", "cost_high"):
            value = getattr(choice, name)
            pairs.append((one[name], value) if one[name] is not None or not math.isnan(value) else (0.0, 0.0))
    if any(page != python for page, python in words):
        return math.inf
    worst = 0.0
    for page, python in pairs:
        page, python = np.asarray(page, dtype=float), np.asarray(python, dtype=float)
        assert page.shape == python.shape
        off = np.abs(page - python) / np.maximum(np.abs(python), 1e-12)  # nobody measures a picosecond
        worst = max(worst, float(off.max()))
    return worst


@pytest.mark.parametrize("name", MODELS)
def test_the_page_computes_what_python_computes(browser, folder, name):
    model = MODELS[name]()
    path = folder / f"{name}.html"
    model.throughput(range(1, 17)).report(path)
    cases = list(drawn_settings(model, 40))
    settings = [changes | asked | {"workers": 1, "most_workers": most} for changes, asked, most in cases]
    browser.open(path)
    told = browser.run("return arguments[0].map(answer)", settings)
    worst = []
    for page, (changes, asked, most) in zip(told, cases, strict=True):
        curve = model.what_if(**changes).throughput(range(1, most + 1))
        worst.append(difference(page, curve, qm.plan(curve, **asked)))
    assert max(worst) < 1e-9
    changes, asked, most = cases[1]
    other = model.what_if(**changes | {"bandwidth": changes["bandwidth"] * 1.02}).throughput(range(1, most + 1))
    assert difference(told[1], other, qm.plan(other, **asked)) > 1e-4


def test_it_opens_without_asking_for_anything_and_everything_has_a_name_every_picture_a_table(browser, whole):
    path, _ = whole
    assert len(path.read_bytes()) < 500_000
    browser.open(path)
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [f"file://{path}"]
    headings = browser.run("return [...document.querySelectorAll('h2')].map((one) => one.textContent)")
    for about in ("Throughput", "step's time", "plan", "One recorded step", "parameters", "cannot know"):
        assert any(about in heading for heading in headings)
    for script in (
        "return [...document.querySelectorAll('input[type=number]')].filter((one) => !one.labels.length).length",
        "return [...document.querySelectorAll('input[type=range]')].filter((one) => !one.ariaLabel).length",
        "return [...document.querySelectorAll('svg')].filter((one) => !one.ariaLabel).length",
        "return [...document.querySelectorAll('section:has(svg)')].filter((one) => !one.querySelector('table')).length",
    ):
        assert browser.run(script) == 0
    assert browser.run("return document.querySelectorAll('svg').length") == 3


def test_a_slider_moves_what_is_said(browser, whole):
    path, curve = whole
    browser.open(path)

    def said(name):
        return browser.run(f"return document.getElementById('answer-{name}').textContent")

    def shown(value):
        return f"{value:.4g}"

    assert said("steps_per_second") == shown(curve.at(4))
    browser.press("input[type=range][name=workers]", "ARROW_RIGHT")
    assert said("steps_per_second") == shown(curve.at(5))
    hours = 90 * 50_000 / (curve.at(5) * 32) / 3600
    assert said("cost") == shown(hours * 2.5 * 6)
    browser.enter("parameter_servers", 2)
    two = curve.model.what_if(parameter_servers=2).throughput([5])
    assert said("steps_per_second") == shown(two.at(5))
    before = said("cost")
    browser.enter("price_per_node_hour", -3)
    assert not browser.run("return document.getElementById('price_per_node_hour').validity.valid")
    assert said("cost") == before != "-"
    link = browser.run("return location.hash")
    browser.open(path, link)
    assert browser.run("return [settings.workers, settings.parameter_servers]") == [5, 2]
    assert said("steps_per_second") == shown(two.at(5))
    assert browser.complaints() == []
