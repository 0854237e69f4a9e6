"""The first command that a new user types, for real: servers, training, prediction, picture."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import queuemodel as qm

pytest.importorskip("tensorflow", reason="a live run needs TensorFlow")


def test_demo_profiles_predicts_and_draws(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "queuemodel", "demo", "--steps", "5", "-o", tmp_path / "demo"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    profile = qm.Profile.load(tmp_path / "demo" / "profile.json")
    assert len(profile.steps) == 5
    assert (tmp_path / "demo" / "throughput.png").read_bytes().startswith(b"\x89PNG")
    assert "saturation at" in done.stdout
    rows = re.findall(r"^ +(\d+) +(\S+)", done.stdout, re.MULTILINE)  # captions may wrap before a number
    assert [int(workers) for workers, _ in rows[:6]] == [1, 2, 4, 8, 16, 32]
    untraced = profile.throughputs[0].steps_per_second
    assert float(rows[0][1]) == pytest.approx(untraced, rel=0.015)  # the model reproduces the measured step


@pytest.mark.slow
def test_recorded_traces_to_prediction(tmp_path):
    """Import, then every method, as somebody with traces of their own would."""
    traces = Path(__file__).parent.parent / "data" / "resnet50-60" / "trace"

    def run(*arguments):
        command = [sys.executable, "-m", "queuemodel", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout

    run("import-trace", traces, "--batch-size", 1, "-o", tmp_path / "p.json")
    curves = {
        method: json.loads(
            run("predict", tmp_path / "p.json", "--method", method, "--workers", "1:4", "--format", "json")
        )
        for method in ("mva", "trace", "auto")
    }
    assert curves["auto"] == curves["trace"]
    assert curves["mva"]["method"] != curves["trace"]["method"]
    assert curves["mva"].keys() == curves["trace"].keys()
    for curve in curves.values():
        assert curve["steps_per_second"][0] == pytest.approx(1.0, rel=0.05)  # measured: 1.02
        assert curve["steps_per_second"][3] == pytest.approx(2.23, rel=0.15)  # measured: 2.23
