"""The first command that a new user types, for real: training on this machine, prediction, pictures."""

import importlib.util
import re
import subprocess
import sys

import pytest

import queuemodel as qm


def run(*arguments):
    command = [sys.executable, "-m", "queuemodel", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("framework", "said"), [("tensorflow", "saturation at"), ("torch", "all-reduce")])
def test_demo_profiles_predicts_and_draws(framework, said, tmp_path):
    pytest.importorskip(framework, reason=f"a live run needs {framework}")
    shown = run("demo", "--framework", framework, "--steps", 5, "-o", tmp_path / "demo")
    profile = qm.Profile.load(tmp_path / "demo" / "profile.json")
    assert said in " ".join(shown.split())  # lines break anywhere
    rows = re.findall(r"^ +(\d+) +(\S+) +(\S+) +(\S+)", shown, re.MULTILINE)  # captions may wrap before a number
    assert [int(workers) for workers, *_ in rows[:6]] == [1, 2, 4, 8, 16, 32]
    assert (tmp_path / "demo" / "throughput.png").read_bytes().startswith(b"\x89PNG")
    if framework == "tensorflow":
        assert len(profile.steps) == 5
        _, predicted, low, high = map(float, rows[0])
        assert 0.99 * low < profile.throughputs[0].steps_per_second < 1.01 * high  # steps of a busy machine vary
        assert low < predicted < high
    else:
        assert {one.ranks for one in profile.rounds} == {1, 2}


def test_missing_pytorch_names_its_installation(run, tmp_path, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else real(name, *rest))
    said = "a live run needs torch: pip install torch, or '.[torch]' in a checkout of queuemodel"
    assert run("demo", "--framework", "torch", "-o", tmp_path / "demo") == (1, "", f"queuemodel: error: {said}\n")
