"""What ranks of the testbed learnt for real: their losses against the loop's, their times against the profile's."""

import numpy as np
import pytest

from queuemodel.sgd import Candidate, compare, descend, make_problem
from testbed.recordings import unpacked
from testbed.rounds.training_task import STRATEGIES
from validation.data_parallel import read_ranks
from validation.training_runs import SERIES, recorded

FOLDERS = sorted(unpacked(SERIES).iterdir())
STAND_IN = make_problem("logistic", features=50)  # the time of a step does not depend on what is learnt
FIXED = [name for name in STRATEGIES if name != "adacomm"]  # whose meetings do not depend on the loss


@pytest.mark.parametrize("name", FIXED)
def test_ranks_learn_what_the_loop_says(name):
    rows, ranks, task = recorded(FOLDERS[0])
    (row,), (sync,) = ([row for row in rows if row["strategy"] == one] for one in (name, "sync"))
    looks = [k for k in row["looks"] if k <= 53]
    run = descend(task.problem, STRATEGIES[name], workers=ranks, seeds=1, steps=range(looks[-1] + 1),
                  learning_rate=task.learning_rate)  # fmt: skip
    loop = run.losses[0][np.searchsorted(run.steps, looks)]
    np.testing.assert_allclose(row["losses"][: len(looks)], loop, rtol=1e-3)
    assert loop[-1] < 0.5 * loop[0]
    if name != "sync":  # the control: they are told from synchronous SGD
        assert np.abs(np.log(sync["losses"][: len(looks)] / loop)).max() > 0.05


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_steps_take_what_two_ranks_tell(folder):
    rows, ranks, _ = recorded(folder)
    rows = {row["strategy"]: row for row in rows if row["strategy"] in FIXED}
    candidates = [Candidate(name, STRATEGIES[name], compression=rows[name].get("computed_s", 0.0)) for name in rows]
    found = compare(read_ranks(folder), workers=ranks, strategies=candidates, problem=STAND_IN, steps=400, seeds=4,
                    learning_rates=[0.01])  # fmt: skip
    measured = np.array([np.mean(row["step_s"]) for row in rows.values()])
    predicted = np.array([one.descent.times[:, -1].mean() / one.descent.steps[-1] for one in found.rows])
    errors = predicted / measured - 1
    assert np.abs(errors).max() < 0.1
    assert np.abs(errors).mean() < 0.05
    first = np.log(measured[:, None] / measured) < -0.1
    assert (predicted[:, None] < predicted)[first].all()
