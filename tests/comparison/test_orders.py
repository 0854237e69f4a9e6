"""Orders of completion from simulated clusters keep their rates and their staleness."""

import numpy as np
import pytest

from queuemodel import ModelError
from queuemodel.comparison import simulated_order
from queuemodel.data import example_profile
from queuemodel.descent import ServerSGD, descend, make_problem
from queuemodel.traces import simulate

PROFILE = example_profile("alexnet-60")


@pytest.mark.parametrize("slowdown", [None, [1.0, 1.0, 4.0]])
def test_rates_and_staleness_are_those_of_the_simulation(slowdown):
    run = simulate(PROFILE, workers=3, steps=300, trace_steps=300, slowdown=slowdown, seed=1)
    order = simulated_order(run)(3, 800, np.random.default_rng(0))
    assert 800 / order.times[-1] == pytest.approx(run.throughput, rel=0.05)
    shares = np.bincount(order.workers) / 800
    if slowdown:
        assert shares[2] < 0.75 * shares[0]
    else:
        np.testing.assert_allclose(shares, 1 / 3, atol=0.03)
    done = descend(
        make_problem("logistic"),
        ServerSGD(order=simulated_order(run)),
        workers=3,
        steps=600,
        learning_rate=0.1,
        seeds=2,
    )
    assert done.staleness.mean() == pytest.approx(run.mean_staleness, rel=0.05)


@pytest.mark.parametrize(
    "rounds", [{"synchronization": "sync", "backup_workers": 2}, {"synchronization": "first", "results": 2}]
)
def test_results_that_a_round_does_not_use_are_not_in_the_order(rounds):
    run = simulate(PROFILE, workers=4, steps=300, trace_steps=300, seed=1, **rounds)
    assert run.dropped_share > 0.2
    order = simulated_order(run)(4, 1000, np.random.default_rng(0))
    assert 1000 / order.times[-1] == pytest.approx(run.throughput, rel=0.05)


def test_a_step_that_the_end_of_the_run_cuts_is_not_in_the_order():
    run = simulate(PROFILE, workers=3, steps=30, trace_steps=30, worker_bandwidth=[1e7, 1e7, 5e4])  # fetches to the end
    assert 2 in run.log[:, 0]
    assert 2 not in simulated_order(run)(3, 500, np.random.default_rng(0)).workers


def test_other_workers_and_too_few_steps_are_refused():
    run = simulate(PROFILE, workers=2, steps=100, trace_steps=100)
    with pytest.raises(ModelError, match="2 workers were simulated"):
        descend(make_problem("logistic"), ServerSGD(order=simulated_order(run)), workers=3, steps=10, learning_rate=0.1)
    with pytest.raises(ModelError, match="trace_steps"):
        simulated_order(simulate(PROFILE, workers=2, steps=100))
