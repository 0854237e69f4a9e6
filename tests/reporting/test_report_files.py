"""Reports as files: one file that needs nothing, whole or not at all, and what the command says."""

import dataclasses
import itertools
import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

import queuemodel as qm
from queuemodel import example_profile


@pytest.fixture
def curve():
    return qm.fit(example_profile("alexnet-60")).throughput(range(1, 9))


def test_page_is_self_contained(curve):
    page = curve.report()
    assert re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", page) == ["data:,"]
    assert not re.findall(r"@import|url\((?!#)|fetch\(|XMLHttpRequest|import\(", page)
    assert "default-src 'none'" in page
    assert set(re.findall(r"https?://[^\s\"']+", page)) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("text", ["</script>", "<!--", "&lt;", "\u2028", "é\N{GRINNING FACE}", 'a"b\\'])
def test_embedded_text_is_escaped(held, curve, text):
    page = dataclasses.replace(curve, method=text).report()
    assert f"method: {text}" in held(page)["about"]
    assert not set("<>&\u2028") & set(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_page_is_reproducible_and_atomic(held, curve, tmp_path):
    page = curve.report(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == page == curve.report()
    for name in ("a.pdf", "a", "nowhere/a.html"):
        with pytest.raises(qm.DataError, match=re.escape(name)):
            curve.report(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
    asked = {"deadline": -1.0, "epochs": float("nan"), "workers": 2.5, "price": 2.0, "min_efficiency": 2.0}
    for name, value in asked.items():
        with pytest.raises(qm.ModelError, match=name):
            curve.report(**{name: value})
    X = np.linspace(1.0, 2.0, 9000) * np.pi
    long = qm.ThroughputCurve(np.arange(1, 9001), X, X, X, single=np.pi)
    with pytest.raises(qm.ModelError, match="more than 300; predict fewer"):
        long.report(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text() == page
    unknown = dataclasses.replace(curve, bound_lower=np.full(8, np.nan), saturation_workers=np.inf, model=None)
    shown = held(unknown.report())["grid"]["cells"][0]["curve"]
    assert shown["saturation_workers"] is None
    assert unknown.to_dict()["saturation_workers"] is None


def test_some_curves_have_no_sliders(held, curve):
    data = held(curve.faster(2.0).report())
    assert (data["controls"], data["parameters"]) == ([], [])
    assert data["grid"]["cells"][0]["curve"]["steps_per_second"] == curve.faster(2.0).steps_per_second.tolist()
    profile = example_profile("alexnet-60")
    simulated = qm.predict(profile, workers=[1, 2], method="trace")
    data = held(simulated.report(profile=profile))
    assert data["controls"] == []
    assert data["grid"]["cells"][0]["curve"]["steps_per_second"] == simulated.steps_per_second.tolist()


@pytest.mark.parametrize(("words", "status"), [
    ("alexnet-60.json -o report.html --epochs 9 --price 2.5 --deadline 12h", 0),
    ("alexnet-60.json -o report.html --deadline 12h", 1), ("ddp-alexnet-40.json -o report.html", 0),
    ("shakesmall-p100-throughputs.csv -o report.html", 0), ("alexnet-60.json -o report.png", 1),
    ("resnet50-t4-placements.csv -o report.htm --batch-size 40 --workers 1,2", 0), ("alexnet-60.json", 2),
    ("alexnet-60.json -o report.html --strategy k-sync --k 2 --workers 2:4", 0), ("nowhere.json -o report.html", 1),
    ("alexnet-60.json -o nowhere/report.html", 1), ("alexnet-60.json -o report.html --deadline soon", 2),
])  # fmt: skip
def test_command_writes_page_or_line(run, examples, words, status):
    before = set(examples.iterdir())
    code, out, err = run("report", *words.split())
    written = {path.name for path in set(examples.iterdir()) - before}
    if status:
        assert (code, written, out, err.count("\n")) == (status, set(), "", 1)
    else:
        assert (code or 0, written) == (0, {words.split()[2]})
        assert out.endswith(f"{words.split()[2]}: open it in a browser\n")
        assert ("assuming" in out) == ("throughputs" in words)


def test_page_begins_with_the_question(held, run, examples):
    asked = "alexnet-60.json --workers 1:4 --epochs 9 --dataset-size 9 --deadline 1h --price 2 --budget 90 -o page.html"
    assert run("report", *asked.split())[0] == 0
    page = held(Path("page.html").read_text())
    told = {"epochs": 9.0, "dataset_size": 9, "deadline": 3600.0, "price_per_node_hour": 2.0, "budget": 90.0}
    assert page["questions"].items() >= (told | {"min_efficiency": None, "tokens": None}).items()
    assert "profiled up to 1 worker" in page["about"]
    assert page["grid"]["cells"][0]["curve"]["workers"] == [1, 2, 3, 4]
    assert sum("mva" in clause for clause in page["about"]) == 1
    for more in ("--method trace", "--strategy sync-ps --backup-workers 1 --workers 2:3"):
        assert run("report", *asked.split(), *more.split())[0] == 0
        assert any("trace" in clause for clause in held(Path("page.html").read_text())["about"])


def test_page_equals_printed_answer(held, run, told, examples):
    shown = told("compare ddp-alexnet-40.json --workers 2 --strategy sync --report page.html")
    assert held(Path("page.html").read_text())["rows"] == shown["rows"]
    asked = "ddp-alexnet-40.json -o page.html --workers 1,2 --format json"
    code, out, err = run("report", *asked.split())
    assert (code or 0, err) == (0, "page.html: open it in a browser\n")
    curve = held(Path("page.html").read_text())["grid"]["cells"][0]["curve"]
    assert [json.loads(out)[name] for name in ("workers", "lower")] == [curve["workers"], curve["lower"]]


def test_recorded_step_or_round_is_drawn(held):
    def drawn(profile):
        return held(qm.predict(profile, workers=[1, 2], method="auto").report(profile=profile))["timeline"]

    alexnet = example_profile("alexnet-60")
    spans, operations = drawn(alexnet)["spans"], alexnet.steps[0].operations
    assert {(name, asked, ended) for _, name, asked, _, ended, _ in spans} == {
        (one.name, one.start, one.end) for one in operations
    }
    sent = [(begun, ended) for lane, _, _, begun, ended, _ in spans if lane == 0]
    assert all(begun >= before for (_, before), (begun, _) in itertools.pairwise(sent))  # one link, one after the other
    told = drawn(example_profile("ddp-alexnet-40"))
    assert (told["what"], told["lanes"]) == ("round of 2 ranks", ["computation", "all-reduce"])
    assert all(asked <= begun <= ended for _, _, asked, begun, ended, _ in told["spans"])
    points = [qm.Measurement(workers=n, steps_per_second=1.0 * n) for n in (1, 2)]
    assert drawn(msgspec.structs.replace(alexnet, steps=[], throughputs=points)) is None
    many = [msgspec.structs.replace(one, name=f"{one.name}/{n}", after=[]) for n in range(40) for one in operations]
    steps = [msgspec.structs.replace(alexnet.steps[0], operations=many)]
    told = drawn(msgspec.structs.replace(alexnet, steps=steps))
    assert len(told["spans"]) == 400
    assert f"The 400 longest of {len(many)} operations." in told["note"]
