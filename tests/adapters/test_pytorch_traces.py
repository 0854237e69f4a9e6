"""Traces of torch.profiler: recorded ones are read to the byte, damaged and mixed ones refused in one line.

People's own scripts were recorded too (`tests/data/README.md`), most of five layers with 3,196,840 bytes of parameters:
what is reduced is read, what a round does not describe refused.
"""

import gzip
import json
import shutil
from functools import partial

import numpy as np
import pytest
import recording
from recording import decoded

from queuemodel.adapters import read_pytorch
from tests.oracles.recorded import DATA

JOB = DATA / "ddp" / "ddp-alexnet-40"
BUCKETS = (4 * 260924, 4 * 471912, 4 * 29161)
BYTES = 4 * (784 * 400 + 400 + 3 * (400 * 400 + 400) + 400 * 10 + 10)


@pytest.fixture
def folder(tmp_path):
    """Two ranks' files."""
    return recording.copied(JOB / "trace_n2", tmp_path)


def change(folder, edit, ranks=(0,)):
    for rank in ranks:
        recording.change(folder / f"rank{rank}.pt.trace.json.gz", edit)


@pytest.fixture(scope="module")
def scripts():
    return DATA / "ddp-scripts"


def read(*folders):
    return read_pytorch(folders, batch_size=32)


refused = partial(recording.refused, read)


def test_what_was_recorded_is_read(tmp_path):
    profile, truth = read(JOB / "trace_n1", JOB / "trace_n2"), json.loads((JOB / "job.json").read_text())
    assert profile.job.parameter_bytes == truth["parameter_bytes"]
    each = [(1, 0), (2, 0), (2, 1)]
    assert sorted((one.ranks, one.rank) for one in profile.rounds) == sorted(12 * each)
    assert np.mean([one.computed for one in profile.rounds]) == pytest.approx(truth["compute_s"], rel=0.05)
    two = [one for one in profile.rounds if one.ranks == 2]
    for one in two:
        assert tuple(bucket.bytes for bucket in one.buckets) == BUCKETS
        assert sum(g.bytes for g in one.gradients) == truth["parameter_bytes"]  # without the input's
        assert all(b.ready <= b.begin + 1e-6 <= b.end + 1e-6 for b in one.buckets)
    traced = [part for rank in (0, 1) for part in in_steps(decoded(JOB / "trace_n2" / f"rank{rank}.pt.trace.json.gz"))]
    for (step, events), one in zip(traced, two, strict=True):

        def spans(name, step=step, events=events):
            inside = [(e["ts"] - step["ts"], e["dur"], e["args"]) for e in events if e["name"].startswith(name)]
            return [(begin / 1e6, min(begin + took, step["dur"]) / 1e6, told) for begin, took, told in inside]

        each = zip(spans("c10d::allreduce_"), spans("gloo:all_reduce"), strict=True)
        reduced = [(ready, begin, end) for (ready, *_), (begin, end, _) in each]
        assert np.array([(b.ready, b.begin, b.end) for b in one.buckets]) == pytest.approx(np.array(reduced), abs=1e-7)
        made = [(end, 4 * np.prod(told["Input Dims"][0])) for _, end, told in spans("torch::autograd::AccumulateGrad")]
        assert len(made) == 9  # and the input's gradient is not sent
        assert [(g.ready, g.bytes) for g in one.gradients] == [pytest.approx(own) for own in made[:7] + made[8:]]
        times = step["dur"] / 1e6, max(end for _, end, _ in spans("autograd::engine"))
        assert (one.round_time, one.computed, one.waited) == pytest.approx((*times, 0), abs=1e-7)
    plain = JOB / "trace_n1" / "rank0.pt.trace.json.gz"
    (tmp_path / "rank0.pt.trace.json").write_bytes(gzip.decompress(plain.read_bytes()))
    assert read(tmp_path).rounds == read(plain.parent).rounds


CONTENTS = [
    ((JOB / "trace_n2" / "rank1.pt.trace.json.gz").read_bytes()[:5000], "rank1.*gzip"),
    (gzip.compress(b'{"traceEvents": [{"name": 5}]}'), "rank1.*not a trace of torch.profiler"),
    (
        gzip.compress(
            b'{"distributedInfo": {"rank": 2, "world_size": 2}, "traceEvents": [{"ph": "X", "name": "ProfilerStep#1", '
            b'"dur": 1}]}'
        ),
        "below its",
    ),
    (b"", "empty"),
]


def test_copies_mixtures_and_damage_are_refused(folder, tmp_path):
    refused(folder, folder, "another number of ranks")
    refused(folder, DATA / "ddp" / "ddp-resnet50-60" / "trace_n1", "another job")
    shutil.copy(folder / "rank0.pt.trace.json.gz", folder / "rank0 (copy).pt.trace.json.gz")
    refused(folder, "rank 0 again, as in .*; give each run a folder, without copies")
    (folder / "rank0 (copy).pt.trace.json.gz").unlink()
    for content, said in CONTENTS:
        (folder / "rank1.pt.trace.json.gz").write_bytes(content)
        refused(folder, said)
    (folder / "rank1.pt.trace.json.gz").unlink()
    refused(tmp_path / "nowhere", "no such folder")
    refused(tmp_path, r"no \*.pt.trace.json")


def test_repeated_schedules_write_several_files(tmp_path):
    for path in (JOB / "trace_n2").iterdir():
        trace = decoded(path)
        steps = sorted((e for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep")), key=lambda e: e["ts"])
        for part, start, end in (("first", 0, steps[5]["ts"]), ("second", steps[5]["ts"], float("inf"))):
            events = [event for event in trace["traceEvents"] if start <= event.get("ts", 0) < end]
            file = tmp_path / f"{part}-{path.name.removesuffix('.gz')}"
            file.write_text(json.dumps(trace | {"traceEvents": events}))
    assert read(tmp_path) == read(JOB / "trace_n2")
    shutil.copy(tmp_path / "first-rank0.pt.trace.json", tmp_path / "once more.pt.trace.json")
    refused(tmp_path, "rank 0 again")


def named(trace, name):
    return [event for event in trace["traceEvents"] if event.get("name", "").startswith(name)]


def without(*names, step=""):
    """A trace, or one step, without some events."""

    def edit(trace):
        some = [[one, *own] for one, own in in_steps(trace) if one["name"].startswith(f"ProfilerStep{step}")]
        gone = {id(event) for own in some for event in own if event["name"].startswith(names)}
        trace["traceEvents"] = [event for event in trace["traceEvents"] if id(event) not in gone]

    return edit


def changed(which, **values):
    def edit(trace):
        for event in named(trace, which):
            event.update(values, args=event.get("args", {}) | values.get("args", {}))

    return edit


def also(name, elements, kernel=None):
    """Each step with more communication, right before its end."""

    def edit(trace):
        for step in named(trace, "ProfilerStep"):
            args = {"Input Dims": [[[elements]], []], "Input type": ["TensorList", ""]}
            one = {"ph": "X", "cat": "cpu_op", "name": name, "ts": step["ts"] + step["dur"] - 3, "dur": 1, "args": args}
            trace["traceEvents"].append(one)
            if kernel:
                args = {"Input Dims": [[elements]], "Input type": ["float"]}
                trace["traceEvents"].append(one | {"name": kernel, "ts": one["ts"] + 1, "args": args})

    return edit


def in_steps(trace):
    """Each step, and the events within it, in order."""
    events = sorted((e for e in trace["traceEvents"] if e.get("ph") == "X"), key=lambda e: e["ts"])
    steps = [e for e in events if e["name"].startswith("ProfilerStep")]
    return [(s, [e for e in events if s["ts"] <= e["ts"] < s["ts"] + s["dur"] and e is not s]) for s in steps]


def twice(trace):
    """Each step's events, and so its reductions, twice."""
    made, shift = [], 0.0
    for step, own in in_steps(trace):
        made += [e | {"ts": e["ts"] + shift + again * step["dur"]} for e in own for again in (0, 1)]
        made.append(step | {"ts": step["ts"] + shift, "dur": 2 * step["dur"]})
        shift += step["dur"]
    return trace | {"traceEvents": made}


SCATTER = "c10d::_reduce_scatter_base_"


@pytest.mark.parametrize(("edit", "said"), [
    (without("gloo:all_reduce"), "3 all-reduces were handed over in a step and 0 ran"),
    (without("autograd::engine"), "without evaluate_function.*record with PyTorch 1.10 or newer"),
    (without("autograd::engine", "torch::autograd"), "no backward pass"), (without("ProfilerStep"), "no ProfilerStep"),
    (without("c10d", "gloo", step="#3"), "step 3 reduces no gradients, others do; call profiler.step"),
    (without("c10d", "gloo"), "no data-parallel reduction of gradients.*call DistributedDataParallel, not its"),
    (changed("ProfilerStep#4", dur=1e13), "rank0.*round_time"),
    (changed("gloo:all_reduce", args={"Input type": ["quaternion"]}), "quaternion"),
    (twice, r"#\d+: gradients are reduced more than once; call profiler"),
    (changed("c10d::allreduce_", name=SCATTER), r"sharded, as by FSDP or ZeRO \(reducescatter: 36\)"),
    *((also(name, 710_000), "parameters are sharded, as by FSDP or ZeRO.*: 12.*predict steps.csv$")
      for name in (SCATTER, "c10d::_allgather_base_")),
    (also("c10d::broadcast_", 710_000), "c10d::broadcast_ and the like move 93 % as many elements"),
    (changed("c10d::allreduce_", name="c10d::alltoall_base_"),
     r"no data-parallel reduction of gradients in it \(alltoall: 36\)"),
])  # fmt: skip
def test_traces_without_rounds_are_refused(folder, edit, said):
    change(folder, edit)
    refused(folder, said)


def test_small_communication_besides_is_passed_over(folder):
    """Buffers of batch normalization, and an all-reduce of a loss."""
    recorded = read(folder)
    for name, *more in (("c10d::broadcast_", 10_000), ("c10d::allreduce_", 1, "gloo:all_reduce")):
        change(folder, also(name, *more), ranks=(0, 1))
    assert read(folder) == recorded


def test_gradient_order_may_differ_by_rank(folder):
    def swapped(trace):
        for _, own in in_steps(trace):
            first, second, *_ = [event for event in own if event["name"] == "torch::autograd::AccumulateGrad"]
            first["args"], second["args"] = second["args"], first["args"]

    recorded = read(folder)
    change(folder, swapped, ranks=(1,))
    each = zip(recorded.rounds, read(folder).rounds, strict=True)
    assert all(after.gradients[0].bytes == before.gradients[after.rank].bytes for before, after in each)


def test_buckets_follow_the_order_of_issue(folder):
    """As gloo's threads do on a busy machine: the sizes of two rounds seemed to differ."""

    def overtake(trace):
        first, second, *_ = sorted(named(trace, "gloo:all_reduce"), key=lambda e: e["ts"])
        first["ts"], first["dur"] = second["ts"] + 1, first["dur"] - (second["ts"] + 1 - first["ts"])

    computed = [one.computed for one in read(folder).rounds]
    change(folder, overtake)
    assert {tuple(bucket.bytes for bucket in one.buckets) for one in read(folder).rounds} == {BUCKETS}
    change(folder, changed("gloo:all_reduce", dur=1.0), ranks=(0, 1))  # the first ends amid the backward pass
    assert [one.computed for one in read(folder).rounds] == computed


# people's own scripts


@pytest.mark.parametrize(
    ("name", "sent"), [("checkpoint-reentrant", BYTES), ("fp16-hook", BYTES // 2), ("functional", BYTES)]
)
def test_what_scripts_send_is_read(scripts, name, sent):
    profile = read(scripts / name / "trace_n2")
    assert (profile.job.parameter_bytes, profile.job.tensors) == (sent, 10)  # not those of activations
    for one in profile.rounds:
        assert sum(bucket.bytes for bucket in one.buckets) == sum(g.bytes for g in one.gradients) == sent
        # reductions that wait for each other after the backward pass do not wait for gradients
        assert all(bucket.ready <= one.computed for bucket in one.buckets)


@pytest.mark.parametrize(("name", "said"), [
    ("powersgd", "799,210 elements of gradients, and all-reduces of 1,610; what a communication hook sends after"),
    ("sparse", "every rank gathers the sparse gradients of all; only dense ones"),
    ("local-sgd", "reduced among an unknown number of 2 ranks; all must reduce together"),
    ("tensor-parallel", r"no data-parallel reduction of gradients in it \(allreduce: \d"),
    ("two-models-in-turn", "the steps have different gradients; only steps that all train the same parameters"),
])  # fmt: skip
def test_scripts_without_rounds_are_refused(scripts, name, said):
    refused(scripts / name / "trace_n2", said)


def test_waiting_for_a_loader_is_no_computation(scripts):
    """Measured without the profiler, which costs a twentieth."""
    folder = scripts / "slow-loader"
    ((*measured,),) = (found.values() for found in json.loads((folder / "measured.json").read_text()).values())
    for one in read(folder / "trace_n1").rounds:
        assert one.round_time == pytest.approx(1.05 * measured[0], rel=0.05)
        assert one.waited == pytest.approx(one.round_time - one.computed, abs=0.01)
        assert one.computed == pytest.approx(0.14, abs=0.005)
