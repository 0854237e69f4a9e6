"""The loop that was compiled while the package was installed is as right as the one that numba compiles."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import queuemodel
from queuemodel.profile import Synchronization

PACKAGE = Path(queuemodel.__file__).parent
SETTINGS = [
    {},
    {"congestion_control": "bbr", "straggler_probability": 0.1, "straggler_slowdown": 3},
    {"congestion_control": "reno", "buffer": 0.003, "synchronization": Synchronization("sync-ps", 1)},
    {"synchronization": Synchronization("k-batch-sync", 5)},
    {
        "transfer_order": "multiplexed",
        "synchronization": Synchronization("bounded-staleness", 2),
        "slowdown": [1, 2, 3],
    },
    {"parameter_servers": 2, "loaded_trip": 0, "unfairness": 0, "trace_steps": 3, "transfer_order": "random"},
    {"worker_bandwidth": [1_000_000] * 3, "in_phase": True, "window_kept": 0},
]
SCRIPT = f"""
from queuemodel.profile import Synchronization
from queuemodel import example_profile
from queuemodel.profile import Synchronization
from queuemodel.simulator import simulate_operations
for settings in {SETTINGS!r}:
    for seed in (5, 6):
        print(simulate_operations(example_profile(), workers=3, steps=50, seed=seed, **settings).times.tolist())
"""


@pytest.mark.slow
def test_it_simulates_the_same_bit_for_bit_whatever_types_are_given(tmp_path):
    """Code compiled ahead does not look at types: another one's bits would be taken for numbers of this one."""
    if not list(PACKAGE.glob("simulator/kernel/ahead.*")):
        pytest.skip("not compiled while the package was installed")
    shutil.copytree(PACKAGE, tmp_path / "queuemodel", ignore=shutil.ignore_patterns("ahead.*.so", "__pycache__"))
    printed = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env=os.environ | {"PYTHONPATH": str(place)}, cwd=tmp_path,
            capture_output=True, text=True, check=True, timeout=300,
        ).stdout.splitlines()
        for place in (PACKAGE.parent, tmp_path)
    ]  # fmt: skip
    assert printed[0] == printed[1]
    assert len(set(printed[0])) == 2 * len(SETTINGS)
