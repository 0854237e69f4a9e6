"""Every benchmark, validation command and script of the documentation runs, at its smallest size, in a copy."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("benchmarks", "docs", "testbed", "validation", "verification")
#: Of each script: arguments of its smallest size, and what it prints at least.
SCRIPTS = {
    "benchmarks/descent.py": ("", "a plain loop"), "benchmarks/rounds.py": ("", "SimPy"),
    "benchmarks/scheduling.py": ("--jobs 300", "bytes per job"),
    "benchmarks/solvers.py": ("--quick", "FCFS, one class"),
    "benchmarks/startup.py": ("--times 1 --most 5", "times the import"),
    "benchmarks/trace_simulator.py": ("--quick", "SimPy"), "docs/scripts/approximation_errors.py": ("", "%"),
    "docs/scripts/figures.py": ("throughput", "throughput"),
    "docs/scripts/run_examples.py": ("docs/how-to/install.md", ""),
    "docs/scripts/scheduling_study.py": ("--quick", "all"), "testbed/__main__.py": ("--help", "measure"),
    "validation/__main__.py": ("", "wrote docs/validation.md"), "validation/bbr_bandwidth.py": ("", "bandwidth"),
    "validation/constants.py": ("queuemodel.models.sharded.fit.replay_error", "replay_error"),
    "validation/convergence.py": ("", "%"), "validation/model_errors.py": ("", "wrote"),
    "validation/nccl.py": ("", "%"), "validation/noise_floor.py": ("", "%"),
    "validation/pollux/__main__.py": ("--help", "--traces"), "validation/sharded.py": ("", "%"),
    "testbed/rounds/nccl_job.py": ("--help", "torchrun"), "testbed/rounds/reduced.py": ("--help", "--steps"),
    "validation/training_runs.py": ("learn-clusters-30-cubic", "%"),
    "verification/fuzz.py": ("--format csv --count 5", ""), "verification/mutants.py": ("--help", "Usage"),
}  # fmt: skip
#: What others start: tests of the testbed and of live profiles, `python -m benchmarks`, and `python -m validation`.
STARTED = {
    "benchmarks/__main__.py", "testbed/datagrams.py", "testbed/flows.py", "testbed/host.py",
    "testbed/rings.py", "testbed/rounds/rank.py", "validation/added_measurements.py", "validation/other_traffic.py",
    "validation/scaling.py",
}  # fmt: skip


def is_script(path):
    tests = [node.test for node in ast.parse(path.read_text()).body if isinstance(node, ast.If)]
    return path.name == "__main__.py" or any("__main__" in ast.unparse(test) for test in tests)


def test_every_script_is_run_here():
    found = {str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    assert {name for name in found if is_script(ROOT / name)} == SCRIPTS.keys() | STARTED


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the repository, in which scripts may write."""
    place = tmp_path_factory.mktemp("copy")
    left_out = shutil.ignore_patterns("__pycache__", "_build", "generated")
    for name in (*FOLDERS, "queuemodel", "tests"):
        shutil.copytree(ROOT / name, place / name, ignore=left_out)
    for path in ROOT.glob("*.md"):
        shutil.copy(path, place)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs(copy, name):
    if name == "verification/mutants.py":
        pytest.importorskip("cosmic_ray")
    arguments, printed = SCRIPTS[name]
    path = Path(name)
    module = ".".join(path.parent.parts if path.stem == "__main__" else path.with_suffix("").parts)
    command = [str(path)] if path.parts[0] == "docs" else ["-m", module]
    asked = {"cwd": copy, "env": os.environ | {"PYTHONPATH": str(copy)}, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, *command, *arguments.split()], **asked, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert printed in done.stdout
