"""The loop that was compiled while the package was installed: taken when it is this one, and as right as this one.

This looks at the loop itself (`queuemodel.traces.kernel`), and is removed together with it.
"""

import importlib
import sys
import types
from pathlib import Path

import numba
import numpy as np
import pytest

from queuemodel.compiled import AHEAD, ready, stamp
from queuemodel.data import example_profile
from queuemodel.traces import ahead, simulate
from queuemodel.traces.kernel import loop

KERNEL = "queuemodel.traces.kernel"
SIMULATE = importlib.import_module("queuemodel.traces.simulate")
SETTINGS = [
    {},
    {"congestion_control": "bbr", "straggler_probability": 0.1, "straggler_slowdown": 3},
    {"congestion_control": "reno", "buffer": 0.003, "synchronization": "sync", "backup_workers": 1},
    {"synchronization": "batches", "results": 5},
    {"policy": "multiplexed", "synchronization": "bounded", "staleness_bound": 2, "slowdown": [1, 2, 3]},
    {"parameter_servers": 2, "loaded_trip": 0, "unfairness": 0, "trace_steps": 3, "policy": "random"},
    {"worker_bandwidth": [1_000_000] * 3, "in_phase": True, "window_kept": 0},
]


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_simulation_calls_the_loop_with_the_types_that_it_is_compiled_for(settings, monkeypatch):
    """Code compiled ahead does not look at types: another one's bits would be taken for numbers of this one."""
    seen = []
    monkeypatch.setattr(SIMULATE, "ready", lambda *_: lambda *told: seen.append(told) or loop.run(*told))
    simulate(example_profile(), workers=3, steps=20, **settings)
    assert [numba.typeof(value) for value in seen[0]] == [numba.typeof(value) for value in ahead.arguments()]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_it_simulates_the_same_bit_for_bit(settings, monkeypatch):
    if ready(f"{KERNEL}.loop", "run") is loop.run:
        pytest.skip("not compiled while the package was installed, or the sources have changed since")
    soon = simulate(example_profile(), workers=3, steps=50, seed=5, **settings)
    monkeypatch.setattr(SIMULATE, "ready", lambda *_: loop.run)
    late = simulate(example_profile(), workers=3, steps=50, seed=5, **settings)
    assert np.array_equal(soon.times, late.times)
    assert not np.array_equal(soon.times, simulate(example_profile(), workers=3, steps=50, seed=6, **settings).times)


def test_it_is_taken_only_if_made_of_these_sources(monkeypatch):
    built = types.ModuleType(f"{KERNEL}.{AHEAD}")
    sources = stamp(Path(loop.__file__).parent)
    built.sources, built.run = (lambda: sources), object()
    monkeypatch.setitem(sys.modules, built.__name__, built)
    assert ready(f"{KERNEL}.loop", "run") is built.run
    built.sources = lambda: sources + 1
    assert ready(f"{KERNEL}.loop", "run") is loop.run
    monkeypatch.setitem(sys.modules, built.__name__, None)
    assert ready(f"{KERNEL}.loop", "run") is loop.run
