"""The first command that a new user types, for real: training on this machine, prediction, pictures."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import queuemodel as qm


def run(*arguments):
    command = [sys.executable, "-m", "queuemodel", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("framework", "said"), [("tensorflow", "saturation at"), ("torch", "all-reduce")])
def test_demo_profiles_predicts_and_draws(framework, said, tmp_path):
    pytest.importorskip(framework, reason=f"a live run needs {framework}")
    shown = run("demo", "--framework", framework, "--steps", 5, "-o", tmp_path / "demo")
    profile = qm.Profile.load(tmp_path / "demo" / "profile.json")
    assert said in shown
    rows = re.findall(r"^ +(\d+) +(\S+)", shown, re.MULTILINE)  # captions may wrap before a number
    assert [int(workers) for workers, _ in rows[:6]] == [1, 2, 4, 8, 16, 32]
    assert (tmp_path / "demo" / "throughput.png").read_bytes().startswith(b"\x89PNG")
    if framework == "tensorflow":
        assert len(profile.steps) == 5
        untraced = profile.throughputs[0].steps_per_second
        assert float(rows[0][1]) == pytest.approx(untraced, rel=0.015)  # the model reproduces the measured step
    else:
        assert {one.ranks for one in profile.rounds} == {1, 2}


def test_without_pytorch_one_line_says_what_to_install(run, tmp_path, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else real(name, *rest))
    said = "queuemodel: error: a live run needs torch: pip install 'queuemodel[torch]'\n"
    assert run("demo", "--framework", "torch", "-o", tmp_path / "demo") == (1, "", said)


@pytest.mark.slow
def test_recorded_traces_to_prediction(tmp_path):
    """Import, then every method, as somebody with traces of their own would."""
    pytest.importorskip("tensorflow", reason="reading traces needs TensorFlow")
    traces = Path(__file__).parent.parent / "data" / "resnet50-60" / "trace"
    run("import-trace", traces, "--batch-size", 1, "-o", tmp_path / "p.json")
    asked = ("predict", tmp_path / "p.json", "--workers", "1:4", "--format", "json", "--method")
    curves = {method: json.loads(run(*asked, method)) for method in ("mva", "trace", "auto")}
    assert curves["auto"] == curves["trace"]
    assert curves["mva"]["method"] != curves["trace"]["method"]
    assert curves["mva"].keys() == curves["trace"].keys()
    for curve in curves.values():
        assert curve["steps_per_second"][0] == pytest.approx(1.0, rel=0.05)  # measured: 1.02
        assert curve["steps_per_second"][3] == pytest.approx(2.23, rel=0.15)  # measured: 2.23
