"""Traces that others recorded and published (`tests/data/README.md`), most as people do: one rank's file, no shapes.

What must be read is computed here by itself, from the events' own numbers.
"""

import json
from functools import partial

import numpy as np
import pytest
import recording
from test_pytorch_traces import DATA, in_steps, named

import queuemodel as qm
from queuemodel.adapters import read_pytorch

RESNET_BYTES = 4 * 25_557_032
EVALUATED = "autograd::engine::evaluate_function"
INPUT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@pytest.fixture(scope="module")
def published():
    return DATA / "pytorch-traces" / "pytorch-traces"


@pytest.fixture
def copied(published, tmp_path):
    return lambda run, edit=None: recording.copied(published / run, tmp_path, edit)


def events(folder):
    (path,) = folder.iterdir()
    return recording.decoded(path)["traceEvents"]


def read(folder, **known):
    said = []
    return read_pytorch([folder], batch_size=32, say=said.append, **known), said


refused = partial(recording.refused, read)


def is_nccl(event):
    return event["name"].startswith("nccl") and event["cat"] == "kernel"


def of_steps(trace):
    """Each step's mark, and the kernels that it launched, in order of their launch."""
    calls = {e["args"]["correlation"]: e["ts"] for e in trace if e["name"] == "launch"}
    there = [e for e in trace if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    launched = sorted((calls.get(e["args"]["correlation"], -1.0), i) for i, e in enumerate(there))
    for mark in sorted((e for e in trace if e["name"].startswith("ProfilerStep")), key=lambda e: e["ts"]):
        yield mark, [(at, there[i]) for at, i in launched if mark["ts"] <= at < mark["ts"] + mark["dur"]]


def drop(trace, gone):
    trace["traceEvents"] = [event for event in trace["traceEvents"] if not gone(event)]


def brief(trace):
    """All-to-alls in a twentieth of their time, which is then little of a step."""
    for event in named(trace, "nccl"):
        if is_nccl(event) and "SendRecv" in event["name"]:
            event["dur"] /= 20


def test_one_rank_without_shapes(published):
    folder = published / "resnet50-2xA100"
    profile, said = read(folder)
    trace = events(folder)
    steps = list(of_steps(trace))
    begun = [own[0][1]["ts"] for _, own in steps]
    ends = [*begun[1:], steps[-1][0]["ts"] + steps[-1][0]["dur"]]
    for one, (mark, own), start, end in zip(profile.rounds, steps, begun, ends, strict=True):
        assert one.round_time == pytest.approx(1e-6 * (end - start), abs=1e-6)
        reduced = [kernel for _, kernel in own if kernel["args"].get("Collective name") == "allreduce"]
        assert [bucket.bytes for bucket in one.buckets] == [4 * kernel["args"]["In msg nelems"] for kernel in reduced]
        spans = [(kernel["ts"] - start, kernel["ts"] + kernel["dur"] - start) for kernel in reduced]
        assert np.array([(b.begin, b.end) for b in one.buckets]) == pytest.approx(1e-6 * np.array(spans), abs=1e-6)
        backward = max(
            e["ts"] + e["dur"]
            for e in trace
            if e["name"].startswith(EVALUATED) and mark["ts"] <= e["ts"] < mark["ts"] + mark["dur"]
        )
        done = max(e["ts"] + e["dur"] for at, e in own if at <= backward and not is_nccl(e))
        assert one.computed == pytest.approx(1e-6 * (done - start), abs=1e-6)
        assert not one.gradients
    assert (profile.job.parameter_bytes, profile.job.tensors) == (RESNET_BYTES, 161)
    assert said[0] == "used 3 steps of rank 0 of 2: 102,228,128 bytes of 161 gradients in 5 all-reduces a step"
    assert said[1] == "ignored broadcast: 6"
    for asked in ({"bucket_bytes": 1e6}, {"scheme": "horovod"}):
        with pytest.raises(qm.ModelError, match="needs recorded gradients; record PyTorch with record_shapes=True"):
            qm.predict(profile, workers=[2], **asked)


def test_input_is_awaited_while_the_accelerator_idles(published, copied):
    """At each step's begin 0.1 s for a batch, while kernels of the step before may still run."""
    pause, idle = 1e5, []

    def loading(trace):
        steps = list(of_steps(trace["traceEvents"]))
        marks = [mark["ts"] for mark, _ in steps]
        for (_, own), following in zip(steps, marks[1:], strict=False):
            done = max(kernel["ts"] + kernel["dur"] for _, kernel in own if not is_nccl(kernel))
            idle.append(1e-6 * (pause - max(0.0, done - following)))
        launched_in = {id(kernel): k for k, (_, own) in enumerate(steps) for _, kernel in own}
        for event in trace["traceEvents"]:
            event["ts"] += pause * (launched_in.get(id(event), sum(event["ts"] >= mark for mark in marks) - 1) + 1)
        for mark, _ in steps:
            mark["ts"], mark["dur"] = mark["ts"] - pause, mark["dur"] + pause
            trace["traceEvents"].append(mark | {"name": INPUT, "dur": pause})

    whole, late = (
        read(folder)[0].rounds for folder in (published / "resnet50-2xA100", copied("resnet50-2xA100", loading))
    )
    assert [one.waited for one in late[:2]] == pytest.approx(idle, abs=1e-6)
    assert [one.round_time - 0.1 for one in late[:2]] == pytest.approx([one.round_time for one in whole[:2]], abs=1e-6)
    assert [one.computed for one in late] == pytest.approx([one.computed for one in whole], abs=1e-6)


def test_groups_without_description_and_subgroups(published, copied):
    """PyTorch leaves the value of the description out, so that the file is no JSON."""
    folder = copied("resnet50-2xA100")
    (path,) = folder.iterdir()
    text = path.read_text()
    path.write_text(text.replace('"Group size"', '"Process Group Description": , "Group size"'))
    with pytest.raises(json.JSONDecodeError):
        events(folder)
    assert read(folder) == read(published / "resnet50-2xA100")
    path.write_text(text.replace('"Group size":2', '"Group size":1'))
    refused(folder, "ProfilerStep#4: gradients are reduced among 1 of 2 ranks")


def test_kernels_without_launch_precede_the_recording(published, copied):
    """Ranks 1 and 3 begin with 64 of them: their rounds seemed to take 18.86 and 18.97 ms."""
    profile, said = read(copied("dlrm-8xV100", brief))
    truth = []
    for path in sorted((published / "dlrm-8xV100").iterdir()):
        ((mark, own),) = of_steps(recording.decoded(path)["traceEvents"])
        truth.append(1e-6 * (mark["ts"] + mark["dur"] - own[0][1]["ts"]))
    assert [one.round_time for one in profile.rounds] == pytest.approx(truth, abs=1e-6)
    assert [truth[1], truth[3]] == pytest.approx([0.01858, 0.01763], abs=5e-6)
    assert {tuple(bucket.bytes for bucket in one.buckets) for one in profile.rounds} == {(1_576_964, 448, 907_840)}
    assert all(sum(g.bytes for g in one.gradients) == 4 * 621_313 for one in profile.rounds)
    assert said[1] == "ignored alltoall: 40, kernels of an earlier step: 128"


def test_earlier_all_reduces_are_no_buckets(published, copied):
    """Three ran in the first step that the program had handed over before: "3 were handed over and 6 ran"."""

    def alone(trace):  # what refuses this job is how much it exchanges besides
        launches = [e for e in named(trace, "nccl:all_to_all") if e["cat"] == "user_annotation"]
        calls = {
            e["args"]["correlation"]
            for e in named(trace, "launch")
            if any(one["ts"] <= e["ts"] <= one["ts"] + one["dur"] for one in launches)
        }
        drop(trace, lambda e: e["name"] == "nccl:all_to_all")
        drop(trace, lambda e: is_nccl(e) and e["args"]["correlation"] in calls)

    refused(published / "dlrm-2xV100", r"nccl:all_to_all and the like take 20 % of the steps \(alltoall: \d+\)")
    profile, said = read(copied("dlrm-2xV100", alone))
    assert [len(one.buckets) for one in profile.rounds] == [3, 3]
    assert profile.job.parameter_bytes == 4 * 50_009_301
    assert "kernels of an earlier step: 614" in said[1]


def test_other_traffic_weighs_by_time(published, copied):
    """All-to-alls of 3 % of the elements that take 30 % of the step; kernels that no record surrounds."""
    refused(published / "dlrm-8xV100", r"c10d::alltoall_base_ and the like take 30 % of the steps \(alltoall: 5\)")
    unrecorded = copied("dlrm-2xV100", lambda trace: drop(trace, lambda e: e["name"] == "nccl:all_to_all"))
    refused(unrecorded, r"SendRecv.* and the like take 20 % of the steps")


def test_a_kernels_name_says_least(published):
    """Here all collectives run in kernels of one name, and batches are copied 150 ms ahead of their step."""
    profile, said = read(published / "dlrm-16")
    trace = events(published / "dlrm-16")
    assert {e["name"].split("_")[1] for e in trace if is_nccl(e)} == {"SendRecv"}
    handed = [e for e in trace if e["name"] == "nccl:all_reduce"]
    sizes = [4 * int(np.prod(e["args"]["Input Dims"][0])) for e in handed]
    assert [bucket.bytes for one in profile.rounds for bucket in one.buckets] == sizes
    marks = [e["dur"] for e in trace if e["name"].startswith("ProfilerStep")]
    assert [one.round_time for one in profile.rounds[1:]] == pytest.approx(1e-6 * np.array(marks[1:]), rel=0.01)
    assert "reducescatter: 6" in said[1]
    assert "allgather: 6" in said[1]


def test_group_size_from_kernels(published, copied):
    def without(trace):
        del trace["distributedInfo"]

    rounds = read(copied("resnet50-2xA100", without))[0].rounds
    assert rounds == read(published / "resnet50-2xA100")[0].rounds
    refused(
        copied("hooks-2xV100", without),
        "404 collectives like 'ncclKernel_AllReduce.*neither distributedInfo nor 'Group size' records",
    )


def test_categories_of_old_pytorch_versions(published, copied):
    old = {"cpu_op": "Operator", "kernel": "Kernel", "cuda_runtime": "Runtime", "gpu_memcpy": "Memcpy"}
    old["gpu_memset"] = "Memset"

    def renamed(trace):
        for event in trace["traceEvents"]:
            event["cat"] = old.get(event["cat"], event["cat"])

    for run in ("dlrm-16", "resnet50-1xV100"):
        assert read(copied(run, renamed)) == read(published / run)
    refused(published / "resnet50-pytorch19", "ProfilerStep#5: .*without evaluate_function.*PyTorch 1.10 or newer")


def test_user_all_reduces_are_buckets(published, copied):
    """404 of them, all before the first gradient is accumulated."""
    refused(published / "hooks-2xV100", "neither 'ncclKernel_AllReduce.* nor the records around its launch give its")

    def with_shapes(trace):
        for number, event in enumerate(named(trace, "nccl:all_reduce")):
            event["args"] = {"Input Dims": [[number + 1]], "Input type": ["float"]}

    profile, _ = read(copied("hooks-2xV100", with_shapes))
    (one,) = profile.rounds
    assert [bucket.bytes for bucket in one.buckets] == [4 * (n + 1) for n in range(404)]
    assert all(bucket.begin <= bucket.end for bucket in one.buckets)


@pytest.mark.parametrize(("cut", "kept"), [(6, [4, 5]), (4, [5, 6]), (5, None)])
def test_incomplete_steps_are_dropped(copied, cut, kept):
    """As where a recording stops before the accelerator has done all."""

    def lose(trace):
        (own,) = [own for step, own in in_steps(trace) if step["name"] == f"ProfilerStep#{cut}"]
        calls = {event["args"]["correlation"] for event in own if event["name"] == "launch"}
        drop(trace, lambda e: is_nccl(e) and e["args"]["correlation"] in calls)

    folder = copied("resnet50-2xA100", lose)
    if kept is None:
        refused(folder, "ProfilerStep#5: 5 all-reduces were handed over in a step and 0 ran in it; record whole steps")
        return
    profile, said = read(folder)
    assert [one.number for one in profile.rounds] == kept
    assert "incomplete steps: 1" in said[1]


def test_missing_shapes_are_no_scalars(copied):
    """PyTorch up to 2.1 writes [] for a list of tensors: a broadcast of buffers beside it must not look large."""

    def with_buffers(trace):
        brief(trace)
        for _, own in in_steps(trace):
            first = own[0]
            args = {"Input Dims": [[[26_560]]], "Input type": ["TensorList"]}
            trace["traceEvents"].append(first | {"cat": "cpu_op", "name": "c10d::broadcast_", "dur": 1, "args": args})

    profile, said = read(copied("dlrm-8xV100", with_buffers))
    assert profile.job.parameter_bytes == 4 * 621_313
    assert "broadcast: 8" in said[1]


def test_single_rank_under_data_parallel(published, copied):
    """Its buckets go nowhere, but tell the gradients' size; after the last profiler.step() nothing is trained."""

    def with_another(trace):
        last = max(named(trace, "ProfilerStep"), key=lambda e: e["ts"])
        after = {"name": "ProfilerStep#107", "ts": last["ts"] + last["dur"] + 1, "dur": 50}
        trace["traceEvents"].append(last | after)

    profile, said = read(published / "resnet50-1xV100")
    assert (profile.job.parameter_bytes, profile.job.tensors) == (RESNET_BYTES, 161)
    used = f"used 2 steps of all 1 rank: {RESNET_BYTES:,} bytes of 161 gradients in no all-reduce a step"
    assert said == [used, "ignored nothing"]
    assert not any(one.buckets for one in profile.rounds)
    assert read(copied("resnet50-1xV100", with_another)) == (profile, [used, "ignored incomplete steps: 1"])
