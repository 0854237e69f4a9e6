"""The same model written a second time, with SimPy (benchmarks/trace_simulator.py), gives the same run."""

import importlib.util
from pathlib import Path

import pytest

from queuemodel.traces import Link, Links, simulate

pytest.importorskip("simpy")
PATH = Path(__file__).parents[2] / "benchmarks" / "trace_simulator.py"


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_simpy_agrees_to_the_last_digits(workers):
    specification = importlib.util.spec_from_file_location("trace_simulator", PATH)
    peer = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(peer)
    profile = peer.network(12)
    run = simulate(profile, workers=workers, steps=4, **peer.IDEAL)
    assert run.steps / run.duration == pytest.approx(peer.simpy_run(profile, workers=workers, steps=4), rel=1e-9)
    slower = Link(0.98 * peer.RATE)
    wrong = simulate(profile, workers=workers, steps=4, **{**peer.IDEAL, "links": Links(slower, slower)})
    assert wrong.steps / wrong.duration != pytest.approx(run.steps / run.duration, rel=1e-3)
