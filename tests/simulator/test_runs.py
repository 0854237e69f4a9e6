"""Many simulations at once: in threads as one after the other, and an end for all when one cannot go on."""

import gc
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuemodel import example_profile
from queuemodel.models import trace_curve
from queuemodel.simulator import trace_runs

FEW = {"workers": [1, 2, 4], "steps": 60, "replications": 3}


@pytest.mark.parametrize("congestion_control", ["bbr", "unknown"])
def test_threads_give_sequential_results(congestion_control):
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
def test_answers_ignore_other_questions(others, congestion_control, seed):
    asked = {"congestion_control": congestion_control, "seed": seed, "steps": 60, "replications": 2}
    alone = trace_curve(example_profile(), workers=[3], **asked)
    workers = sorted(others | {3})
    among = trace_curve(example_profile(), workers=workers, **asked)
    at = workers.index(3)
    for name in ("steps_per_second", "lower", "upper", "utilization", "residence_time"):
        assert np.array_equal(getattr(among, name)[at], getattr(alone, name)[0]), name
    other_seed = trace_curve(example_profile(), workers=[3], **asked | {"seed": seed ^ 1})
    assert other_seed.steps_per_second != alone.steps_per_second


def test_ctrl_c_ends_all_runs():
    """Runs under way end at their next look, those that wait never begin, and the next question is answered.

    All of them would take 64 processors minutes, others hours.
    """

    def press(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, press)
    gc.disable()  # an interrupt inside a collector's callback is swallowed
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            trace_runs(example_profile(), workers=range(1, 257), steps=1_000_000, replications=20)
        assert time.monotonic() - begun < 60
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPool")]
    assert len(trace_runs(example_profile(), **FEW)) == 3
