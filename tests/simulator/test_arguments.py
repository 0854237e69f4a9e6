"""What makes no sense is refused in one line, before anything is compiled or indexed."""

import pytest

import queuemodel as qm
from queuemodel.models import trace_curve
from queuemodel.profile import Operation, Synchronization
from queuemodel.simulator import simulate_operations
from tests.oracles.by_hand import IDEAL, LINKS, profile_of, serial

NAN, INF = float("nan"), float("inf")
WRONG = {
    "workers": [0, -1, 2.0, True, "2", 10_001],
    "steps": [0, 2.5, NAN],
    "seed": [-1, 1.5, None, 2**64],
    "transfer_order": ["best", None],
    "sharding": ["halves"],
    "parameter_servers": [0, -1, 1.0, 10**6],
    "bandwidth": [0.0, -1.0, NAN, INF, "10 Gbit/s"],
    "straggler_probability": [-0.1, 2, NAN],
    "straggler_slowdown": [-1, 0, NAN, INF],
    "loaded_trip": [-1e-3, NAN, INF],
    "unfairness": [-0.4, NAN, 1e6],
    "window_kept": [-0.1, 1.5, NAN],
    "congestion_control": ["vegas", 1, True],
    "buffer": [-1e-3, NAN, 12, "12ms"],  # 12: milliseconds
    "slowdown": [[1.0], [1.0, 0.0], [1.0, NAN], [1.0, INF]],
    "worker_bandwidth": [[1e6], [1e6, -1.0], [1e6, INF]],
    "trace_steps": [-1, 1000],
    "confidence": [0, 1, 2, NAN],
}


WAYS = [
    ("maybe", 0), ("async-ps", 1), ("sync-ps", -1), ("bounded-staleness", 0.5), ("k-sync", 0), ("k-async", 10**6),
]  # fmt: skip
SETS = [{"confidence": 1}, {"replications": 0}, {"n_jobs": 0}, {"worker_speeds": [1.0]}, {"worker_speeds": [1.0, NAN]},
        {"accelerator_speed": 0}]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "wrong"), [(name, {name: value}) for name, values in WRONG.items() for value in values]
)
def test_senseless_arguments_are_refused_by_name(name, wrong):
    with pytest.raises(qm.ModelError, match=rf"simulate: .*{name}.*got"):
        simulate_operations(profile_of(serial()), **{"workers": 2, "steps": 5, "links": LINKS} | wrong)


@pytest.mark.parametrize(("way", "number"), WAYS)
def test_no_way_of_training_is_refused(way, number):
    with pytest.raises(qm.ModelError, match="got"):
        Synchronization(way, number)


@pytest.mark.parametrize("way", ["k-sync", "k-async", "sync-ps"])
def test_too_many_results_are_refused(way):
    with pytest.raises(qm.ModelError, match=r"workers must be at least .*, got 2"):
        simulate_operations(profile_of(serial()), workers=2, steps=5, synchronization=Synchronization(way, 3))


@pytest.mark.parametrize("settings", SETS)
def test_senseless_sets_of_runs_are_refused(settings):
    with pytest.raises(qm.ModelError, match="got"):
        trace_curve(profile_of(serial()), workers=[1, 2], steps=20, **settings, **IDEAL)


@pytest.mark.parametrize(("operations", "said"), [
    ([Operation("compute", "step", 0.2, 0.7, server=1)], "operation 1 .'step'.: server must"),
    ([Operation("compute", "step", 0.2, 0.7, after=[5])], "operation 1 .'step'.: after must"),
    (None, "step 0 has no operations"), ([Operation("compute", "c", 1.0, 1.0, after=[0])], "step 0 takes no time"),
])  # fmt: skip
def test_unchecked_operations_are_refused(operations, said):
    profile = profile_of(serial())
    recorded = profile.steps[0].operations  # behind the profile's own checks
    recorded[:] = [] if operations is None else [Operation("fetch", "w", 0.0, 1.0, 0), *operations]
    with pytest.raises(qm.DataError, match=said):
        simulate_operations(profile, workers=1, links=LINKS)


def test_excessive_memory_is_refused():
    with pytest.raises(qm.ModelError, match="simulate fewer workers"):
        simulate_operations(profile_of(serial()), workers=10_000, parameter_servers=1000, **IDEAL)
