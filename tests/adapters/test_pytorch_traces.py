"""Traces of torch.profiler: recorded ones are read to the byte, damaged and mixed ones refused in one line."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import queuemodel as qm
from queuemodel.adapters.pytorch import read_traces
from queuemodel.prediction import predict

DATA = Path(__file__).parent.parent / "data" / "ddp"


@pytest.fixture
def run(tmp_path):
    """A folder of two ranks, and a way to change what its files say."""
    folder = tmp_path / "trace_n2"
    shutil.copytree(DATA / "ddp-alexnet-40" / "trace_n2", folder)

    def change(rank, edit):
        path = folder / f"rank{rank}.pt.trace.json.gz"
        trace = json.loads(gzip.decompress(path.read_bytes()))
        path.write_bytes(gzip.compress(json.dumps(edit(trace) or trace).encode()))

    return folder, change


def test_what_was_recorded_is_read():
    folder = DATA / "ddp-alexnet-40"
    profile = read_traces([folder / "trace_n1", folder / "trace_n2"], batch_size=32)
    truth = json.loads((folder / "job.json").read_text())
    assert profile.job.parameter_bytes == truth["parameter_bytes"]
    assert sorted({one.ranks for one in profile.rounds}) == [1, 2]
    assert len(profile.rounds) == 12 * 3
    two = [one for one in profile.rounds if one.ranks == 2]
    assert {tuple(bucket.bytes for bucket in one.buckets) for one in two} == {(4 * 260924, 4 * 471912, 4 * 29161)}
    assert {one.rank for one in two} == {0, 1}
    assert np.mean([one.computed for one in profile.rounds]) == pytest.approx(truth["compute_s"], rel=0.05)
    for one in two:
        assert sum(g.bytes for g in one.gradients) == truth["parameter_bytes"]  # without the input's
        assert all(b.ready <= b.begin + 1e-6 <= b.end + 1e-6 for b in one.buckets)
    (third,) = [one for one in two if one.rank == 0 and one.number == 3]
    assert third.buckets[0].ready == pytest.approx(0.1793, abs=2e-4)
    assert third.buckets[1].end == pytest.approx(0.2202 + 0.5826, abs=2e-4)


def test_plain_and_compressed_files_are_the_same(tmp_path):
    source = DATA / "ddp-alexnet-40" / "trace_n1" / "rank0.pt.trace.json.gz"
    (tmp_path / "rank0.pt.trace.json").write_bytes(gzip.decompress(source.read_bytes()))
    assert read_traces([tmp_path], batch_size=1).rounds == read_traces([source.parent], batch_size=1).rounds


def refused(folders, match):
    with pytest.raises(qm.DataError, match=match) as caught:
        read_traces(folders, batch_size=32)
    assert "\n" not in str(caught.value)


def test_doubles_and_mixtures_are_refused_by_name(run, tmp_path):
    folder, _ = run
    refused([folder, folder], "another number of ranks")
    refused([folder, DATA / "ddp-resnet50-60" / "trace_n1"], "another job")
    shutil.copy(folder / "rank0.pt.trace.json.gz", folder / "rank0 (copy).pt.trace.json.gz")
    refused([folder], "rank 0 again")
    (folder / "rank0 (copy).pt.trace.json.gz").unlink()
    (folder / "rank1.pt.trace.json.gz").unlink()
    refused([folder], "all 2 ranks")
    refused([tmp_path / "nowhere"], "no such folder")
    refused([tmp_path], "no \\*.pt.trace.json")


def test_half_a_file_is_refused(run):
    folder, _ = run
    path = folder / "rank1.pt.trace.json.gz"
    path.write_bytes(path.read_bytes()[:5000])
    refused([folder], "rank1.*gzip")
    path.write_bytes(gzip.compress(b'{"traceEvents": [{"name": 5}]}'))
    refused([folder], "rank1.*not a Chrome trace")
    path.write_bytes(b"")
    refused([folder], "empty")


def drop(name):
    def edit(trace):
        trace["traceEvents"] = [event for event in trace["traceEvents"] if not event.get("name", "").startswith(name)]

    return edit


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("ProfilerStep", "no ProfilerStep"),
        ("gloo:all_reduce", "3 all-reduces were handed over in a step and 0 ran"),
        ("autograd::engine", "no backward pass"),
        ("torch::autograd::AccumulateGrad", "different gradients|no AccumulateGrad|another job"),
    ],
)
def test_what_a_trace_lacks_is_said(run, name, match):
    folder, change = run
    for rank in (0, 1):
        change(rank, drop(name))
    refused([folder], match)


def test_times_that_make_no_sense_are_refused(run):
    folder, change = run

    def stretch(trace):
        for event in trace["traceEvents"]:
            if event.get("name") == "ProfilerStep#4":
                event["dur"] = 1e13

    change(1, stretch)
    refused([folder], "rank1.*round_time")


def test_an_unknown_type_is_not_passed_over(run):
    folder, change = run

    def rename(trace):
        for event in trace["traceEvents"]:
            if event.get("name") == "gloo:all_reduce":
                event["args"]["Input type"] = ["quaternion"]

    change(0, rename)
    refused([folder], "quaternion")


def passes(trace, *, reduced_each=False):
    """Each step with a pass before the recorded one, whose gradients are accumulated, or reduced too."""
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    steps = sorted((e for e in events if e["name"].startswith("ProfilerStep")), key=lambda e: e["ts"])
    made, shift = [], 0.0
    for step in steps:
        own = [e for e in events if step["ts"] <= e["ts"] < step["ts"] + step["dur"] and e is not step]
        backward = max(e["ts"] + e["dur"] for e in own if e["name"].startswith("autograd::engine"))
        longer = step["dur"] if reduced_each else backward - step["ts"]
        for event in own:
            if reduced_each or (event["ts"] < backward and not event["name"].startswith(("c10d", "gloo"))):
                made.append(event | {"ts": event["ts"] + shift})
            made.append(event | {"ts": event["ts"] + shift + longer})
        made.append(step | {"ts": step["ts"] + shift, "dur": step["dur"] + longer})
        shift += longer
    return trace | {"traceEvents": made}


def test_gradients_that_were_accumulated_are_sent_once(run, tmp_path):
    two, change = run
    one = tmp_path / "trace_n1"
    one.mkdir()
    recorded = read_traces([DATA / "ddp-alexnet-40" / "trace_n1", two], batch_size=32)
    for rank in (0, 1):
        change(rank, passes)
    alone = json.loads(gzip.decompress((DATA / "ddp-alexnet-40" / "trace_n1" / "rank0.pt.trace.json.gz").read_bytes()))
    (one / "rank0.pt.trace.json").write_text(json.dumps(passes(alone)))
    accumulated = read_traces([one, two], batch_size=64)
    assert (accumulated.job.tensors, accumulated.job.parameter_bytes) == (
        recorded.job.tensors, recorded.job.parameter_bytes,
    )  # fmt: skip
    for before, after in zip(recorded.rounds, accumulated.rounds, strict=True):
        longer = before.computed
        assert after.computed == pytest.approx(2 * longer, rel=1e-4)
        assert [(g.bytes, g.ready) for g in after.gradients] == [
            (g.bytes, pytest.approx(g.ready + longer, abs=1e-4)) for g in before.gradients
        ]
        assert [(b.bytes, b.ready) for b in after.buckets] == [
            (b.bytes, pytest.approx(b.ready + longer, abs=1e-4)) for b in before.buckets
        ]


def test_steps_that_reduce_twice_or_not_at_all_are_refused(run):
    folder, change = run
    change(0, lambda trace: passes(trace, reduced_each=True))
    refused([folder], r"ProfilerStep#\d+: gradients are reduced more than once; call profiler.step\(\) after each")
    shutil.rmtree(folder)
    shutil.copytree(DATA / "ddp-alexnet-40" / "trace_n2", folder)
    change(0, lambda trace: drop_from(trace, "ProfilerStep#3", ("c10d", "gloo")))
    refused([folder], "step 3 reduces no gradients, others do; call profiler.step")


def drop_from(trace, name, prefixes):
    (step,) = [event for event in trace["traceEvents"] if event.get("name") == name]
    return trace | {
        "traceEvents": [
            event
            for event in trace["traceEvents"]
            if not (event.get("name", "").startswith(prefixes) and step["ts"] <= event["ts"] < step["ts"] + step["dur"])
        ]
    }


def also(name, elements, kernel=None):
    """Each step with more communication, right before its end."""

    def edit(trace):
        events = trace["traceEvents"]
        for step in [event for event in events if event.get("name", "").startswith("ProfilerStep")]:
            args = {"Input Dims": [[[elements]], []], "Input type": ["TensorList", ""]}
            one = {"ph": "X", "cat": "cpu_op", "name": name, "ts": step["ts"] + step["dur"] - 3, "dur": 1, "args": args}
            events.append(one)
            if kernel:
                args = {"Input Dims": [[elements]], "Input type": ["float"]}
                events.append(one | {"name": kernel, "ts": one["ts"] + 1, "args": args})

    return edit


def test_the_reduction_of_a_loss_is_no_bucket(run):
    folder, change = run
    recorded = read_traces([folder], batch_size=32)
    for rank in (0, 1):
        change(rank, also("c10d::allreduce_", 1, "gloo:all_reduce"))
    assert read_traces([folder], batch_size=32) == recorded


def test_a_bucket_is_what_was_handed_over_though_another_begins_first(run):
    """As gloo's threads do on a busy machine: the sizes of two rounds seemed to differ."""

    def overtake(trace):
        ran = sorted((e for e in trace["traceEvents"] if e.get("name") == "gloo:all_reduce"), key=lambda e: e["ts"])
        first, second = ran[:2]
        first["ts"], first["dur"] = second["ts"] + 1, first["dur"] - (second["ts"] + 1 - first["ts"])

    folder, change = run
    recorded = [[bucket.bytes for bucket in one.buckets] for one in read_traces([folder], batch_size=32).rounds]
    assert recorded[0][0] != recorded[0][1]
    change(0, overtake)
    assert [[bucket.bytes for bucket in one.buckets] for one in read_traces([folder], batch_size=32).rounds] == recorded


@pytest.mark.parametrize("name", ["c10d::_reduce_scatter_base_", "c10d::_allgather_base_", "c10d::broadcast_"])
def test_training_that_sends_more_than_gradients_is_refused(run, name):
    folder, change = run
    recorded = read_traces([folder], batch_size=32)
    change(0, also(name, 10_000))  # buffers of batch normalization
    assert read_traces([folder], batch_size=32) == recorded
    change(0, also(name, 700_000))
    refused([folder], f"{name} and the like move 710,000 elements beside the 761,997 of the gradients' all-reduces")


def one_by_one(trace):
    """All-reduces that the program waits for, one after the other, when the backward pass is over."""
    events = sorted((e for e in trace["traceEvents"] if e.get("ph") == "X"), key=lambda e: e["ts"])
    steps = [event for event in events if event["name"].startswith("ProfilerStep")]
    inside = [[e for e in events if s["ts"] <= e["ts"] < s["ts"] + s["dur"]] for s in steps]
    shift = 0.0
    for step, own in zip(steps, inside, strict=True):
        for event in own:
            event["ts"] += shift
        moment = max(e["ts"] + e["dur"] for e in own if e["name"].startswith("autograd::engine"))
        handed, ran = ([e for e in own if e["name"] == name] for name in ("c10d::allreduce_", "gloo:all_reduce"))
        for one, other in zip(handed, ran, strict=True):
            one["ts"], other["ts"] = moment + 10, moment + 20
            moment = other["ts"] + other["dur"]
        longer = max(0.0, moment + 1000 - step["ts"] - step["dur"])
        step["dur"] += longer
        shift += longer


def test_reductions_after_the_backward_pass_wait_for_each_other_and_not_for_gradients(run):
    folder, change = run
    for rank in (0, 1):
        change(rank, one_by_one)
    profile = read_traces([folder], batch_size=32, bandwidth=2e6)
    for one in profile.rounds:
        assert [bucket.ready for bucket in one.buckets] == [one.computed] * 3
    slow, fast = (predict(profile, workers=[2], bandwidth=b) for b in (2e6, 2e9))
    compute = np.mean([one.computed for one in profile.rounds])
    assert 2 / slow.steps_per_second[0] > 2 * compute
    assert 2 / fast.steps_per_second[0] == pytest.approx(compute, rel=0.05)


def test_sharded_training_whose_scatter_gloo_runs_as_an_all_reduce_is_named(run):
    folder, change = run

    def sharded(trace):
        for event in trace["traceEvents"]:
            if event.get("name") == "c10d::allreduce_":
                event["name"] = "c10d::_reduce_scatter_base_"

    change(0, sharded)
    refused([folder], "c10d::_reduce_scatter_base_ and the like move 761,997 elements beside the 0 of the gradients'")
