"""What ranks of the testbed learnt for real: their losses against the loop's, their times against the profile's."""

import numpy as np
import pytest

from queuemodel.comparison.timing import Timing
from queuemodel.descent import Moment, SynchronousSGD, descend, make_problem
from validation.data_parallel import read_ranks
from validation.learned import SERIES, recorded
from validation.testbed.recordings import unpacked
from validation.testbed.rounds.lesson import SEED, STRATEGIES

FOLDERS = sorted(unpacked(SERIES).iterdir())
REPLAYED = 53  # steps; ADACOMM has decided by then, and averaged sooner than at first
STAND_IN = make_problem("logistic", features=50)  # the time of a step does not depend on what is learnt


def replayed(strategy, row, ranks, lesson):
    """Losses of the loop's own arithmetic at the recorded looks, with the clocks that the ranks read."""
    rngs, problem = [np.random.default_rng([SEED, 0])], lesson.problem
    state = strategy.begin(problem.start(np.random.default_rng([SEED, 2]))[None], ranks)
    clocks, losses = dict(zip(row["met"], row["clock_s"], strict=True)), []
    for k in range(REPLAYED):
        gradients = problem.sampled_gradients(state["x"], np.arange(ranks), rngs)
        now = np.array([clocks.get(k, 0.0)])
        strategy.update(state, gradients, Moment(k, lesson.learning_rate, rngs, now, problem.loss))
        if k + 1 in row["looks"]:
            losses.append(float(problem.loss(strategy.model(state))[0]))
    return np.array(losses)


@pytest.mark.parametrize("name", STRATEGIES)
def test_ranks_learn_what_the_loop_says(name):
    rows, ranks, lesson = recorded(FOLDERS[0])
    (row,) = (row for row in rows if row["strategy"] == name)
    loop = replayed(STRATEGIES[name], row, ranks, lesson)
    ranks_losses = np.array(row["losses"])[1 : 1 + len(loop)]
    np.testing.assert_allclose(ranks_losses, loop, rtol=1e-3)
    assert loop[-1] < 0.5 * loop[0]
    if name != "sync":  # the control: they are told from synchronous SGD
        (sync,) = (row["losses"] for row in rows if row["strategy"] == "sync")
        assert np.abs(np.log(sync[1 : 1 + len(loop)] / loop)).max() > 0.05


def steps(folder, clock_of):
    """Measured and predicted mean seconds of a step of each strategy whose meetings do not depend on the loss."""
    rows, ranks, _ = recorded(folder)
    timing, times = Timing(read_ranks(folder), ranks, STAND_IN.dimension, {}), {}
    for row in rows:
        strategy, count = STRATEGIES[row["strategy"]], len(row["step_s"])
        if row["strategy"] != "adacomm":
            clock = clock_of(timing, strategy, row.get("computed_s", 0.0))
            run = descend(STAND_IN, strategy, workers=ranks, steps=count, learning_rate=0.01, seeds=8, clock=clock)
            times[row["strategy"]] = np.mean(row["step_s"]), run.times[:, -1].mean() / count
    return times


@pytest.fixture(scope="module")
def times():
    return {folder.name: steps(folder, Timing.clock) for folder in FOLDERS}


@pytest.mark.parametrize("series", [folder.name for folder in FOLDERS])
def test_steps_take_what_two_ranks_tell(times, series):
    measured, predicted = np.array(list(times[series].values())).T
    errors = predicted / measured - 1
    assert np.abs(errors).max() < 0.1
    assert np.abs(errors).mean() < 0.05
    first = np.log(measured[:, None] / measured) < -0.1
    assert (predicted[:, None] < predicted)[first].all()


def test_a_transfer_that_hides_or_a_sum_of_named_coordinates_would_be_noticed(times):
    def hidden(timing, strategy, compression):
        return timing.clock(SynchronousSGD())

    wrong = steps(FOLDERS[0], hidden)
    assert wrong["local-sgd"][1] < 0.975 * times[FOLDERS[0].name]["local-sgd"][1]
    assert wrong["block-sign"][1] > 1.2 * times[FOLDERS[0].name]["block-sign"][1]
