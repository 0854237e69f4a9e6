"""Reading recorded traces: the truth about them is known; and every way in which a trace can be bad."""

import gzip
import importlib.util
import shutil
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import recording

from queuemodel import QueueModelWarning
from queuemodel.adapters import read_tensorflow

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("hand-made traces are written by TensorFlow's own classes", allow_module_level=True)
from tensorflow_protos import config_pb2, edited, events_of, renamed, xplane_pb2

from tests.oracles.recorded import DATA

ALEXNET, XPLANE = DATA / "alexnet-60" / "trace", DATA / "xplane-1ps"
XPLANE_BYTES = (256 * 512 + 512 + 512 * 128 + 128) * 4


def read(folder, *, batch_size=1, **known):
    """A folder's profile; of `tf.profiler`'s recordings the bytes of parameters are told."""
    recorded = {"parameter_bytes": XPLANE_BYTES} if list(Path(folder).rglob("*.xplane.pb*")) else {}
    return read_tensorflow(folder, batch_size=batch_size, **(recorded | known))


refused = partial(recording.refused, read)


def waits(step):
    return {(o.kind, o.name): {step.operations[a].name for a in o.after} for o in step.operations}


def test_given_values_are_checked():
    for name, wrong in {"workers": 0, "parameter_bytes": 0, "congestion_control": "vegas"}.items():
        refused(ALEXNET, name, **{name: wrong})


def test_waiting_for_data_is_reported():
    """The smaller data sets of other recordings are not waited for, or reading them would warn."""
    fetched = 4 * (400 * 784 + 3 * 400 * 400 + 10 * 400)
    with pytest.warns(QueueModelWarning, match="xplane-slow-input: 8[0-9] % of the steps is waiting for the data set"):
        profile = read(DATA / "xplane-slow-input", parameter_bytes=fetched)
    assert profile.steps[1].compute > 0.37  # of which the step takes 0.01 s where its batch is there
    assert profile.steps[0].compute < 0.02


@pytest.mark.parametrize(("servers", "shards"), [(1, [XPLANE_BYTES]), (2, [786_432, 2_560])])
def test_a_recorded_xplane(servers, shards):
    profile = read(DATA / f"xplane-{servers}ps")
    assert (profile.source.method, profile.cluster.parameter_servers) == ("xplane", servers)
    assert (profile.job.shard_bytes, profile.job.tensors) == (shards, 4)
    assert len(profile.steps) == 11
    for step in profile.steps:
        assert step.fetched_bytes == step.pushed_bytes == XPLANE_BYTES
        assert step.compute < step.step_time < 0.02
        sizes = {o.name: o.bytes // 4 for o in step.operations if o.kind == "fetch"}
        assert (sizes["MatMul/ReadVariableOp"], sizes["MatMul_1/ReadVariableOp"]) == (256 * 512, 512 * 128)
        assert waits(step)["update", "AssignSubVariableOp"] == {"mul"}
        assert all(o.start >= step.operations[a].end - 2e-4 for o in step.operations for a in o.after)
    refused(DATA / f"xplane-{servers}ps", r"sizes of 4 of .*give parameter_bytes", parameter_bytes=None)


@pytest.mark.parametrize("name", ["alexnet-60", "resnet50-60"])
def test_phases_agree_with_run_metadata(name):
    """Microsecond by microsecond."""
    folder = DATA / name / "trace"
    for path, step in zip(sorted(folder.iterdir()), read(folder).steps, strict=True):
        phases, sizes = (
            {kind: np.zeros(2_000_000, bool) for kind in ("fetch", "push", "compute", "update", "")},
            Counter(),
        )
        tasks = config_pb2.RunMetadata.FromString(gzip.decompress(path.read_bytes())).step_stats.dev_stats
        first = min(node.all_start_micros for device in tasks for node in device.node_stats)
        for task, node in ((device.device, node) for device in tasks for node in device.node_stats):
            begin, op = node.all_start_micros - first, node.timeline_label.partition(" = ")[2].partition("(")[0]
            if node.node_name == "RecvTensor":
                kind = "push" if task.startswith("/job:ps") else "fetch"
                sizes[kind] += node.output[0].tensor_description.allocation_description.requested_bytes
            elif task.startswith("/job:worker"):
                kind = "" if op == "NoOp" or op.startswith("_") else "compute"
            else:
                kind = "update" if op in ("AssignSub", "ApplyGradientDescent") else ""
            phases[kind][begin : begin + max(node.all_end_rel_micros, node.op_end_rel_micros)] = True
        assert step.fetched_bytes == sizes["fetch"]
        phases["overlap"] = phases["compute"] & (phases["fetch"] | phases["push"])
        if sizes["push"] < step.pushed_bytes:  # put back: of resnet50's step 6
            del phases["push"], phases["overlap"]
        for kind in phases.keys() - {""}:
            assert 1e6 * getattr(step, kind) == pytest.approx(phases[kind].sum(), abs=1e-3), kind


@pytest.mark.parametrize("servers", [1, 2])
def test_transfer_times_agree_with_the_profiler(servers):
    """Within a microsecond, which is cut off; steps that were not recorded whole are not read."""
    folder, found = DATA / f"xplane-{servers}ps", {}
    for begin, _, name, told in events_of(folder / "worker0.xplane.pb.gz"):
        if told.get("kernel_type") == "_Recv":
            kind = name.rpartition(":")[2]
            found.setdefault(told["step_id"], {})[told["name"].rpartition("/")[0], kind] = begin * 1e6
    each = [np.sort([t for (_, kind), t in times.items() if kind == "Done"]) for times in found.values()]
    for step in read(folder).steps:
        ends = np.sort([o.end * 1e6 for o in step.operations if o.kind == "fetch"])
        (own,) = [k for k, t in enumerate(each) if len(t) == len(ends) and abs(np.diff(t) - np.diff(ends)).max() < 1.1]
        began = each[own][0] - ends[0]
        for o in step.operations:
            if o.kind == "fetch":
                asked, arrived = (list(found.values())[own][o.name, kind] - began for kind in ("Start", "Done"))
                assert 1e6 * o.end == pytest.approx(arrived, abs=1.1)
                assert 1e6 * o.start > asked - 1.1


def test_unrecorded_requests_begin_transfers_when_sent(tmp_path):
    """As in the first step of a recording, which asked before the recording began."""
    unseen = read(renamed(XPLANE, tmp_path, "ProcessAsync::Start", "ProcessAsync::Other"))
    for step, whole in zip(unseen.steps, read(XPLANE).steps, strict=True):
        fetched, asked = ({o.name: o for o in one.operations if o.kind == "fetch" and o.bytes} for one in (step, whole))
        assert fetched.keys() == asked.keys()
        for name, transfer in fetched.items():
            seconds = asked[name].end - asked[name].start
            assert transfer.end - transfer.start >= max(seconds, 1e-6) - 1e-9


def altered(tmp_path, alter, *, in_time=False):
    """The recorded xplane, stats of events as ``alter(kind, stats, texts)`` leaves them; again so much (ps) later."""

    def edit(plane, kinds, names):
        events = [(line, event) for line in plane.lines for event in line.events]
        for own, event in sorted(events, key=lambda one: in_time * (one[0].timestamp_ns * 1000 + one[1].offset_ps)):
            stats = {names[stat.metadata_id]: stat for stat in event.stats}
            texts = {name: names.get(stat.ref_value) or stat.str_value for name, stat in stats.items()}
            if later := alter(kinds[event.metadata_id], stats, texts):
                again = own.events.add()
                again.CopyFrom(event)
                again.offset_ps += later

    return edited(XPLANE, tmp_path, edit)


def test_arrivals_of_any_receiving_kernel(tmp_path):
    """Every arrival of one gradient, as in the host's memory, or not recorded."""

    def arriving_as(kernel_type):
        def alter(kind, stats, texts):
            arrives = {"kernel_type": "_Recv", "name": "mul/_14"}.items() <= texts.items()
            if arrives and kind.startswith("ExecutorState::ProcessAsync"):
                stats["kernel_type"].str_value = kernel_type

        return altered(tmp_path / kernel_type, alter)

    assert read(arriving_as("_HostRecv")) == read(XPLANE)
    refused(arriving_as("_Else"), r"no step is recorded whole on all tasks \(ps:0, worker:0\): of 12 only parts are")


@pytest.mark.parametrize(("edge", "consumer", "less"), [
    ("GroupCrossDeviceControlEdges_1/Identity", "Identity", 1280),  # only says "done", ...
    ("cond/pivot_t/_4", "x", 1280), ("lstm/while/LoopCond/_45", "x", 1280),
    ("mul_3", "ConstantFolding/x", 1280),  # ... or waits without using the values, which another operation does
    ("mul_3", "x", 0), ("Func/x/input/_1", "x", 0),
])  # fmt: skip
def test_unrecorded_sizes_share_the_remaining_bytes(tmp_path, edge, consumer, less):
    """Biases of 2,048 and 512 bytes, whose sizes are not recorded; one gradient's send is made another."""

    def alter(kind, stats, texts):
        if kind == "mul_1/_15:_Send":
            key = texts["key"].split(";")
            stats["key"].str_value = ";".join([*key[:3], f"edge_7_{edge}", *key[4:]])
            stats["to"].str_value = consumer

    profile = read(altered(tmp_path, alter))
    assert {step.pushed_bytes for step in profile.steps} == {XPLANE_BYTES - less}
    assert {o.bytes for o in profile.steps[0].operations if o.kind == "fetch"} >= {1280}


def test_repeated_fetches_arrive_again(tmp_path):
    """Asked for and sent a nanosecond later, it arrives after 0.3 ms."""

    def alter(kind, stats, texts):
        if kind == "MatMul/ReadVariableOp/_1:_Send":
            return 1_000
        if texts.get("name") == "MatMul/ReadVariableOp/_2" and texts["kernel_type"] == "_Recv":
            return 300_000_000 if kind.endswith("Done") else 1_000
        return 0

    for once, twice in zip(read(XPLANE).steps, read(altered(tmp_path, alter)).steps, strict=True):
        fetched = [o for o in twice.operations if o.kind == "fetch"]
        first, second = (o for o in fetched if o.name.startswith("MatMul/ReadVariableOp"))
        assert twice.fetched_bytes == once.fetched_bytes + 256 * 512 * 4
        assert second.end - first.end == pytest.approx(300e-6, abs=1.1e-6)


def test_silent_workers_are_counted_by_sends(tmp_path):
    seen = Counter()

    def alter(kind, stats, texts):
        if kind.endswith(":_Send") and texts["key"].startswith("/job:ps"):
            seen[kind] += 1
            if seen[kind] % 2:
                stats["key"].str_value = texts["key"].replace("/job:worker/replica:0/task:0", "/job:worker/task:1")

    profile = read(altered(tmp_path, alter))
    assert (profile.cluster.workers, len(profile.steps) < 7) == (2, True)


def test_largest_total_transfer_selects_steps(tmp_path):
    """Eight or nine of twelve without one gradient move more than three with it."""
    seen = Counter()

    def alter(kind, stats, texts):
        sent, arrives = kind == "mul/_13:_Send", kind.endswith("Async::Done") and texts.get("name") == "mul/_14"
        seen[kind] += sent or arrives
        if sent and seen[kind] > 3:
            stats["key"].str_value = texts["key"].replace("/job:ps", "/job:worker")
        elif arrives and seen[kind] > 3:
            stats["kernel_type"].str_value = "_Else"

    assert len(read(altered(tmp_path, alter, in_time=True)).steps) in (8, 9)


def test_several_steps_per_execution_are_refused(tmp_path):
    """Two steps under one number are as Keras' steps_per_execution=2 leaves them."""
    numbers = {}

    def alter(kind, stats, texts):
        for name in {"id", "step_id"} & stats.keys():
            found = stats[name].int64_value or stats[name].uint64_value
            stats[name].int64_value = 1 + numbers.setdefault(found, len(numbers)) // 2

    refused(altered(tmp_path, alter), r"all its gradients several times: .* \(steps_per_execution=1\)")


def test_embedding_rows_are_no_parameters(tmp_path):
    renamed(XPLANE, tmp_path, "MatMul/ReadVariableOp:ReadVariableOp", "MatMul/ReadVariableOp:ResourceGather")
    refused(tmp_path, "tables in which the servers look up rows")
    rest = read(tmp_path, parameter_bytes=XPLANE_BYTES - 256 * 512 * 4)
    assert rest.job.parameter_bytes == XPLANE_BYTES - 256 * 512 * 4
    assert {s.fetched_bytes for s in rest.steps} == {XPLANE_BYTES}


# each step once, and of one job


@pytest.fixture
def folder(tmp_path):
    """Three recorded steps, the first of which is `0.pb.gz`."""
    for number, path in enumerate(sorted(ALEXNET.iterdir())[:3]):
        shutil.copy(path, tmp_path / f"{number}.pb.gz")
    return tmp_path


def test_copies_and_mixtures_are_refused(folder):
    original = (folder / "0.pb.gz").read_bytes()
    for name, content, said in (
        ("0.pb", gzip.decompress(original), r"0\.pb: the same recording as 0\.pb\.gz beside it; remove one"),
        ("copy of it.pb.gz", original, r"(0|copy of it)\.pb\.gz: the same step as.*(0|copy of it)"),
        ("z.pb.gz", next((DATA / "resnet50-60" / "trace").iterdir()).read_bytes(), "another job than .*of their own"),
        ("ps0.xplane.pb", b"", r"holds RunMetadata \(0.pb.gz\) and tf.profiler's recordings \(ps0.xplane"),
    ):
        (folder / name).write_bytes(content)
        refused(folder, said)
        (folder / name).unlink()
    whole = read(folder)
    (folder / ".0.pb.gz").write_bytes(original)  # hidden files are nobody's
    shutil.copytree(XPLANE, folder / ".profiler")
    assert read(folder, parameter_bytes=None) == whole
    assert len(whole.steps) == 3


def test_one_recording_per_task(tmp_path):
    shutil.copytree(XPLANE, tmp_path / "a")
    (tmp_path / "chief").mkdir()
    (tmp_path / "chief" / "vm.xplane.pb").write_bytes(
        xplane_pb2.XSpace(planes=[{"name": "/host:CPU"}]).SerializeToString()
    )
    assert read(tmp_path) == read(XPLANE)
    refused(tmp_path / "chief", r"chief: no tensor sent to another task .*a coordinator.s own recording")
    refused(tmp_path / "nowhere", "nowhere: not a folder")
    shutil.copytree(XPLANE, tmp_path / "b")
    refused(tmp_path, r"/[ab]: the same step as .*/[ab]; remove the copy")
    (tmp_path / "b" / "worker0.xplane.pb.gz").unlink()
    refused(tmp_path / "b", "only one task")
    shutil.copy(XPLANE / "ps0.xplane.pb.gz", tmp_path / "a" / "ps0 (copy).xplane.pb.gz")
    refused(tmp_path / "a", r"ps0.xplane.pb.gz: a recording of ps:0, as ps0 \(copy\)\.xplane\.pb\.gz is")


# hand-made protos


def hand_made(*, recv=True, tasks=("worker", "ps"), allocation=True, label="[1.9MB] [1600.000000Mb/s]"):
    """One fetch of 2,000,000 bytes in 10 ms, 5 ms of computation."""
    metadata = config_pb2.RunMetadata()
    for task in tasks:
        nodes = metadata.step_stats.dev_stats.add(device=f"/job:{task}/replica:0/task:0/device:CPU:0").node_stats
        if task == "ps":
            nodes.add(node_name="w", timeline_label="w = VariableV2()", all_start_micros=900, all_end_rel_micros=1)
            continue
        times = {"all_start_micros": 11_000, "all_end_rel_micros": 5_000}
        nodes.add(node_name="y", timeline_label="y = MatMul(w_S1, ^c:1)", **times)
        if recv:
            way = "from /job:ps/replica:0/task:0/device:CPU:0 to /job:worker/replica:0/task:0/device:CPU:0"
            times = {"all_start_micros": 1_000, "all_end_rel_micros": 10_000}
            node = nodes.add(node_name="RecvTensor", timeline_label=f"{label} edge_1_w {way}", **times)
            if allocation:
                node.output.add().tensor_description.allocation_description.requested_bytes = 2_000_000
    return metadata.SerializeToString()


@pytest.mark.parametrize(("how", "size"), [
    ({}, 2_000_000),
    ({"allocation": False}, 2_000_000),  # by rate and duration
    *(({"label": f"[1.9MB] [{rate}b/s]"}, 2_000_000) for rate in ("1.6G", "infM")),
    *(({"label": f"[1.9MB] [{rate}b/s]", "allocation": False}, 1_992_296) for rate in ("1.6G", "infM")),  # rounded
    ({"label": "[600B] [1600.000000Mb/s]", "allocation": False}, 600),
])  # fmt: skip
def test_bytes_from_allocation_or_label(tmp_path, how, size):
    (tmp_path / "0.pb").write_bytes(hand_made(**how))
    (step,) = read(tmp_path).steps
    assert step.fetched_bytes == size
    assert (step.fetch, step.compute) == pytest.approx((0.010, 0.005))
    assert [o.after for o in step.operations] == [[], [0]]


EMPTY = config_pb2.RunMetadata(step_stats={"dev_stats": [{"device": "x"}]}).SerializeToString()
HALF = gzip.decompress((XPLANE / "ps0.xplane.pb.gz").read_bytes())[:-7]


@pytest.mark.parametrize(("name", "content", "said"), [
    ("0.pb", b"", r"0\.pb: the file is empty"),
    *(("0.pb", bad, r"0\.pb: no RunMetadata proto, or truncated") for bad in (b"no proto", hand_made()[:-3])),
    ("0.pb.gz", gzip.compress(hand_made(), mtime=0)[:-12], r"0\.pb\.gz: damaged gzip file"),
    ("0.pb.gz", gzip.compress(b"hello, no proto", mtime=0), r"0\.pb\.gz: no RunMetadata proto"),
    ("0.pb", EMPTY, "no operations"),
    ("0.pb", hand_made(tasks=["worker"], recv=False), r"0\.pb: a trace of only one task \(worker:0\)"),
    ("0.pb", hand_made(recv=False), r"0\.pb: no RecvTensor event"),
    ("0.pb", hand_made(label="[1.9 MiB]"), r"0\.pb: a RecvTensor event of worker:0 has an unknown label"),
    ("readme.txt", b"x", "no RunMetadata traces"),
    ("a.xplane.pb", b"\x0a\x00", "no tensor sent to another task"),  # a plane without events
    ("a.xplane.pb", HALF, r"a\.xplane\.pb: no XSpace proto, or truncated"),
])  # fmt: skip
def test_bad_trace_is_one_line(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    refused(tmp_path, said)
    if name.startswith("0"):
        (tmp_path / f"2{name[1:]}").write_bytes(content)
        (tmp_path / name).unlink()
        (tmp_path / "1.pb").write_bytes(hand_made())
        refused(tmp_path, said.replace(r"0\.pb", r"2\.pb"))


def test_reading_needs_no_tensorflow():
    code = (
        "import sys; sys.modules['tensorflow'] = None; from queuemodel.adapters import read_tensorflow as r; "
        f"r({str(ALEXNET)!r}, batch_size=1); r({str(XPLANE)!r}, batch_size=32, parameter_bytes={XPLANE_BYTES})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
