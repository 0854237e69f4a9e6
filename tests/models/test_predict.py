"""Which model answers, and solvers as methods."""

from dataclasses import dataclass

import numpy as np
import pytest

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.models.closed_network import ClosedNetworkModel
from queuemodel.models.predict import MODELS
from queuemodel.queueing import ApproximateMVA, ExactMVA, solve


@dataclass(frozen=True)
class Halved:
    """A new solver in one file: exact, but for service demands, which it halves."""

    def solve(self, network, population):
        queues = [s if s.servers > 1 else type(s)(s.name, service_time=s.service_time / 2) for s in network.stations]
        return solve(type(network)(queues), population=population)


def test_a_solver_reaches_predictions():
    profile, counts = example_profile("alexnet-60"), [1, 4, 16]
    network = qm.fit(profile).network()
    for solver in (ExactMVA(), ApproximateMVA(), Halved()):
        curve = qm.predict(profile, workers=counts, method=solver)
        found = [solve(network, population=n, solver=solver).throughput for n in counts]
        assert curve.steps_per_second == pytest.approx(found)
        assert np.all(curve.lower < curve.steps_per_second)
        assert np.all(curve.steps_per_second < curve.upper)
        assert type(solver).__name__ in curve.method
    assert curve.at(1) > 1.05 * qm.predict(profile, workers=[1], method=ExactMVA()).at(1)


@pytest.mark.parametrize(("method", "asked", "message"), [
    ("fast", {}, "method must be one of auto, trace, mva"),
    (ExactMVA(), {"strategy": "sync-ps"}, "equal asynchronous workers"),
    (ExactMVA(), {"strategy": "all-reduce"}, "needs a profile with recorded steps"), (ExactMVA, {}, "solver value"),
])  # fmt: skip
def test_methods_that_do_not_answer(method, asked, message):
    with pytest.raises(qm.ModelError, match=message):
        qm.predict(example_profile("alexnet-60"), workers=[2], method=method, **asked)


def test_first_willing_model_answers():
    """Each for its own data; a closed network where it is asked for."""
    traced, rounds = example_profile("alexnet-60"), example_profile("ddp-alexnet-40")
    table = [qm.Measurement(workers=n, steps_per_second=x) for n, x in ((1, 1.0), (4, 3.0))]
    question = qm.Scenario()
    assert [sum(not kind.refuses(data, question) for kind in MODELS) for data in (traced, rounds, table)] == [2, 1, 1]
    assert isinstance(qm.predict(traced, workers=[2], method="mva").model, ClosedNetworkModel)
    names = [type(qm.predict(data, workers=[2]).model).__name__ for data in (traced, rounds, table)]
    assert names == ["SimulationModel", "AllReduceModel", "ScalingModel"]


def test_a_table_needs_no_reading_first():
    """A dict of columns, records and a frame are the same table; so are measurements beside data."""
    pd = pytest.importorskip("pandas")
    columns = {"nodes": [1, 2, 4], "gpus": [8, 16, 32], "step_time": [0.312, 0.34, 0.371]}
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    found = [qm.predict(data, workers=[64]).at(64) for data in (columns, records, pd.DataFrame(columns))]
    assert found == pytest.approx([qm.predict(qm.read_measurements(columns), workers=[64]).at(64)] * 3)
    profile, besides = example_profile("ddp-alexnet-40"), {"workers": [4], "steps_per_second": [4.0]}
    given = [qm.predict(profile, workers=[8], throughputs=one).at(8) for one in (besides, pd.DataFrame(besides))]
    point = qm.Measurement(workers=4, steps_per_second=4.0)
    assert given == pytest.approx([qm.predict(profile, workers=[8], throughputs=[point]).at(8)] * 2)
