"""Many simulations at once: in threads as one after the other, and an end for all when one cannot go on."""

import importlib
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuemodel import ModelError
from queuemodel.data import example_profile
from queuemodel.prediction import predict
from queuemodel.traces import trace_curve, trace_runs

RUNS = importlib.import_module("queuemodel.traces.runs")  # whose threads two tests look at; removed with it
FEW = {"workers": [1, 2, 4], "steps": 60, "replications": 3}


@pytest.mark.parametrize("congestion_control", ["bbr", "unknown"])
def test_threads_give_what_one_after_the_other_gives(congestion_control):
    settings = FEW | {"congestion_control": congestion_control}
    at_once, in_turn = trace_runs(example_profile(), **settings), trace_runs(example_profile(), n_jobs=1, **settings)
    for several, others in zip(at_once, in_turn, strict=True):
        for one, other in zip(several, others, strict=True):
            assert np.array_equal(one.times, other.times)
    assert at_once[2][0].throughput != at_once[2][1].throughput


@given(
    others=st.sets(st.integers(1, 8)),
    congestion_control=st.sampled_from(["bbr", "unknown"]),
    seed=st.integers(0, 2**64 - 1),
)
@settings(max_examples=5)
def test_an_answer_does_not_depend_on_what_else_is_asked(others, congestion_control, seed):
    asked = {"congestion_control": congestion_control, "seed": seed, "steps": 60, "replications": 2}
    alone = trace_curve(example_profile(), workers=[3], **asked)
    workers = sorted(others | {3})
    among = trace_curve(example_profile(), workers=workers, **asked)
    at = workers.index(3)
    for name in ("steps_per_second", "lower", "upper", "utilization", "residence_time"):
        assert np.array_equal(getattr(among, name)[at], getattr(alone, name)[0]), name
    other_seed = trace_curve(example_profile(), workers=[3], **asked | {"seed": seed ^ 1})
    assert other_seed.steps_per_second != alone.steps_per_second


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ModelError])
def test_what_ends_one_run_ends_all(monkeypatch, stop):
    """Runs under way end at their next look, those that wait never begin, and the next question is answered."""
    begun, simulate = [], RUNS.simulate

    def first_stops(*arguments, **settings):
        begun.append(settings["seed"])
        if len(begun) == 1:
            raise stop("by the test")
        return simulate(*arguments, **settings)

    monkeypatch.setattr(RUNS, "simulate", first_stops)
    with pytest.raises(stop):
        trace_runs(example_profile(), workers=range(1, 65), steps=20_000, replications=20)
    assert len(begun) < 640
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPool")]
    monkeypatch.undo()
    assert len(trace_runs(example_profile(), **FEW)) == 3


@pytest.mark.parametrize("name", ["alexnet-60", "resnet50-60"])
def test_another_seed_moves_the_throughput_by_less_than_a_tenth_of_its_interval(name):
    """As another processor does: the paths of a simulation diverge from the last bits on."""
    curves = [predict(example_profile(name), workers=[2, 8], seed=seed) for seed in range(5)]
    X = np.array([curve.steps_per_second for curve in curves])
    width = np.mean([curve.upper - curve.lower for curve in curves], axis=0)
    assert np.all(np.ptp(X, axis=0) > 0)
    assert np.all(X.std(axis=0, ddof=1) < width / 10)
