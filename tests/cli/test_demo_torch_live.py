"""The demonstration for PyTorch: for real where it is installed, one line where it is not."""

import importlib.util
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

import queuemodel as qm
from queuemodel.cli import cli


def test_demo_profiles_ranks_predicts_and_draws(tmp_path):
    pytest.importorskip("torch", reason="a live run needs PyTorch")
    command = [sys.executable, "-m", "queuemodel", "demo", "--framework", "torch", "--steps", "4", "-o", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert {one.ranks for one in qm.Profile.load(tmp_path / "profile.json").rounds} == {1, 2}
    for name in ("throughput.png", "round.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    rows = re.findall(r"^ +(\d+) ", done.stdout, re.MULTILINE)  # captions may wrap before a number
    assert [int(workers) for workers in rows[:6]] == [1, 2, 4, 8, 16, 32]
    assert "all-reduce" in done.stdout


def test_without_pytorch_one_line_says_what_to_install(tmp_path, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else real(name, *rest))
    found = CliRunner().invoke(cli, ["demo", "--framework", "torch", "-o", str(tmp_path / "demo")])
    assert isinstance(found.exception, qm.MissingDependencyError)
    assert str(found.exception) == "a live run needs torch: pip install 'queuemodel[torch]'"
