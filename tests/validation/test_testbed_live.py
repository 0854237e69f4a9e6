"""A real cluster of two workers on this machine, torn down to the last namespace."""

import fcntl
import json
from pathlib import Path

import pytest

from testbed import network
from testbed.recordings import unpacked

pytestmark = pytest.mark.testbed
WORKLOADS = Path(network.__file__).parent / "workloads"


@pytest.fixture(autouse=True)
def alone(tmp_path_factory):
    """The machine has one testbed; pytest-xdist may run another of these tests meanwhile."""
    with (tmp_path_factory.getbasetemp().parent / "testbed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def measured(tmp_path):
    """From a workload to the rows that a measurement returns, and the folder that it writes and packs."""
    if problem := network.why_not():
        pytest.skip(problem)

    def run(measure, workload, **asked):
        rows = measure(WORKLOADS / f"{workload}.json", tmp_path / "series", priority=-5, **asked)
        series = unpacked(tmp_path) / "series"
        assert rows == json.loads((series / "measured.json").read_text())
        assert not (tmp_path / "series").exists()
        assert network.namespaces() == []
        return rows, series

    return run


def test_live_measurement_of_two_workers(measured):
    """60 ms of computation and two transfers of 244 kB at 40 Mbit/s bound a step from below (0.06 s) and the rate of
    the cluster from above (a push holds the link for 0.05 s).
    """
    pytest.importorskip("tensorflow")
    from testbed.measure import measure

    rows, series = measured(measure, "tiny", workers=[1, 2], trace_steps=2, one_worker_s=20)
    assert [row["workers"] for row in rows] == [1, 2]
    assert rows[0]["steps_per_s"] < 1 / 0.06
    assert rows[1]["steps_per_s"] < 1 / 0.0488
    for row in rows:  # but for those under way when the window began and ended
        assert row["steps_per_s"] * row["window_s"] == pytest.approx(row["steps"], abs=row["workers"])
    assert len(list(series.glob("trace/step_*.pb"))) == 2
    own = [len(json.loads((series / f"steps_n2_w{worker}.json").read_text())) for worker in (0, 1)]
    assert min(own) > 0
    assert sum(own) >= rows[1]["steps"]


def test_live_rounds_of_two_ranks(measured):
    pytest.importorskip("torch")
    from testbed.rounds.measure import measure

    rows, series = measured(measure, "ddp-tiny", ranks=[2], seconds=2, trace_rounds=2)
    assert rows[0]["group_steps_per_s"] < 1 / 0.06  # 60 ms of computation
    assert rows[0]["group_steps_per_s"] == pytest.approx(rows[0]["steps"] / sum(rows[0]["round_s"]), rel=1e-3)
    recorded = sorted(path.name for path in series.glob("trace_n2/*"))
    assert recorded == ["rank0.pt.trace.json", "rank1.pt.trace.json"]


def test_live_gathers_of_two_ranks(measured):
    pytest.importorskip("torch")
    from testbed.rounds.measure import measure

    rows, series = measured(measure, "fsdp-tiny", ranks=[2], seconds=2, trace_rounds=2)
    assert rows[0]["group_steps_per_s"] < 1 / 0.092  # computation, and half an optimizer each
    for rank in (0, 1):
        trace = json.loads((series / "trace_n2" / f"rank{rank}.pt.trace.json").read_text())
        assert trace["distributedInfo"]["world_size"] == 2
        kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
        calls = {event["args"]["correlation"] for event in trace["traceEvents"] if event.get("cat") == "cuda_runtime"}
        assert {kernel["args"]["correlation"] for kernel in kernels} == calls
        marks = [event for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep#")]
        assert len(marks) == 2
        for mark in marks:
            step = [k["args"] for k in kernels if 0 <= k["ts"] - mark["ts"] < mark["dur"]]
            moved = {"_allgather_base": [], "_reduce_scatter_base": []}
            for args in (args for args in step if "Collective name" in args):
                assert args["Process Group Ranks"] == "[0, 1]"
                moved[args["Collective name"]].append(4 * max(args["In msg nelems"], args["Out msg nelems"]))
            assert moved["_allgather_base"] == [40000, 124000, 80000, 80000, 124000, 40000]  # forward, and backward
            assert moved["_reduce_scatter_base"] == [80000, 124000, 40000]
