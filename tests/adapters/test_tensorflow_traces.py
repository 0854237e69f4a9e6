"""Reading recorded traces: the truth about them is known; and every way in which a trace can be bad."""

import gzip
import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from queuemodel import Cluster, DataError, MissingDependencyError, Profile, QueueModelWarning
from queuemodel.adapters.tensorflow import read_traces
from queuemodel.adapters.tensorflow.reading.messages import decode
from queuemodel.cli import cli

DATA = Path(__file__).parent.parent / "data"
if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("hand-made traces are written by TensorFlow's own classes", allow_module_level=True)
from tensorflow_protos import config_pb2, xplane_pb2  # noqa: E402

SERIES = ["alexnet-60", "resnet50-60"]
XPLANE_BYTES = (256 * 512 + 512 + 512 * 128 + 128) * 4


@pytest.fixture(scope="module", params=SERIES)
def series(request):
    folder = DATA / request.param
    return read_traces(folder / "trace", batch_size=1, name=request.param), folder


def test_bytes_are_exactly_those_of_the_model(series):
    profile, folder = series
    model_bytes = json.loads((folder / "job.json").read_text())["model_bytes"]
    assert profile.job.parameter_bytes == model_bytes
    assert profile.job.shard_bytes == [model_bytes]
    assert {s.fetched_bytes for s in profile.steps} == {model_bytes}


def test_pushed_bytes_are_those_really_sent(series):
    profile, _ = series
    # resnet50's equal gradients are one node of the graph, sent once; in its step 6 the recorder lost three of them
    assert {s.pushed_bytes for s in profile.steps} == {
        {"alexnet-60": 3047988, "resnet50-60": 1110216}[profile.job.name]
    }


def test_the_link_is_found_again_in_the_transfers(series):
    profile, folder = series
    bandwidth = json.loads((folder / "job.json").read_text())["bandwidth_mbit"] * 1e6 / 8
    for step in profile.steps:
        assert step.fetched_bytes / step.fetch == pytest.approx(bandwidth, rel=0.06)  # headers take 3 to 5 %
        assert step.fetched_bytes / step.fetch < bandwidth


def test_computation_is_what_was_emulated(series):
    profile, folder = series
    compute = json.loads((folder / "job.json").read_text())["compute_s"]
    assert profile.values("compute").mean() == pytest.approx(compute, rel=0.06)


def test_step_time_is_that_of_the_untraced_run_within_the_sampling_error(series):
    profile, folder = series
    untraced = np.diff(json.loads((folder / "steps_n1_w0.json").read_text()))
    traced = profile.values("step_time")
    error = np.hypot(untraced.std(ddof=1) / len(untraced) ** 0.5, untraced.std(ddof=1) / len(traced) ** 0.5)
    assert abs(traced.mean() - untraced.mean()) < 3 * error


def test_the_operations_keep_the_computation_and_their_order(series):
    profile, _ = series
    for step in profile.steps:
        kept = sum(o.end - o.start for o in step.operations if o.kind == "compute")
        assert kept == pytest.approx(step.compute, rel=0.006)
        assert len({(o.kind, o.name) for o in step.operations}) == len(step.operations) < 150
        assert sum(o.bytes for o in step.operations if o.kind == "fetch") == step.fetched_bytes
        for o in step.operations:
            assert all(o.start >= step.operations[a].end - 1e-4 for a in o.after)


def test_what_is_told_of_the_network_is_kept_as_told(tmp_path):
    traces, target = str(DATA / "alexnet-60" / "trace"), tmp_path / "p.json"
    told = ["--congestion-control", "bbr", "--buffer", "12ms"]
    done = CliRunner().invoke(cli, ["import-trace", traces, "--batch-size", "1", "-o", str(target), *told])
    assert done.exit_code == 0
    cluster = Profile.load(target).cluster
    assert (cluster.congestion_control, cluster.buffer) == ("bbr", 0.012)
    assert cluster.origins == {"congestion_control": "given", "buffer": "given"}
    assert read_traces(traces, batch_size=1).cluster == Cluster()
    assert read_traces(traces, batch_size=1, buffer=0.0).cluster.origins == {"buffer": "given"}
    with pytest.raises(DataError, match="congestion_control must be one of"):
        read_traces(traces, batch_size=1, congestion_control="vegas")


def test_a_layer_waits_for_its_tensor_and_the_layer_before():
    (step, *_) = read_traces(DATA / "alexnet-60" / "trace", batch_size=1).steps
    waits = {(o.kind, o.name): {step.operations[a].name for a in o.after} for o in step.operations}
    assert waits["compute", "conv1_fwd"] == {"conv1_0/read"}
    assert waits["compute", "conv2_fwd"] == {"conv1_fwd", "conv2_0/read"}
    assert waits["compute", "fc6_bwd"] == {"fc7_bwd"}
    assert waits["push", "Fill_2"] == {"fc6_bwd"}
    assert waits["update", "AssignSub_2"] == {"Fill_2"}


def test_tensors_fetched_one_after_the_other_wait_for_each_other():
    (step,) = read_traces(DATA / "layer-order", batch_size=1).steps
    waits = {(o.kind, o.name): [step.operations[a].name for a in o.after] for o in step.operations}
    assert waits["fetch", "v0/read"] == []
    assert waits["push", "strided_slice"] == ["v0/read"]  # no payload: it says that v0 has arrived
    assert waits["fetch", "Identity"] == ["strided_slice"]
    assert waits["fetch", "Identity_1"] == ["strided_slice_1"]
    assert waits["compute", "f1"] == ["Identity", "f0"]
    assert step.push < 0.003  # the control messages during fetching are not counted
    assert sum(o.kind == "update" for o in step.operations) == 4


def test_waiting_for_the_data_set_is_told():
    """The smaller data sets of other recordings are not waited for, or reading them would warn."""
    fetched = 4 * (400 * 784 + 3 * 400 * 400 + 10 * 400)
    with pytest.warns(QueueModelWarning, match="xplane-slow-input: 8[0-9]% of the steps is waiting for the data set"):
        profile = read_traces(DATA / "xplane-slow-input", batch_size=32, parameter_bytes=fetched)
    assert profile.steps[1].compute > 0.37  # of which the step takes 0.01 s where its batch is there
    assert profile.steps[0].compute < 0.02


@pytest.mark.parametrize(("servers", "shards"), [(1, [XPLANE_BYTES]), (2, [786_432, 2_560])])
def test_a_recorded_xplane(servers, shards):
    profile = read_traces(DATA / f"xplane-{servers}ps", batch_size=32, parameter_bytes=XPLANE_BYTES)
    assert (profile.source.method, profile.cluster.parameter_servers) == ("xplane", servers)
    assert (profile.job.shard_bytes, profile.job.tensors) == (shards, 4)
    assert len(profile.steps) == 11
    for step in profile.steps:
        assert step.fetched_bytes == step.pushed_bytes == XPLANE_BYTES
        assert step.compute < step.step_time < 0.02
        operations = {(o.kind, o.name): o for o in step.operations}
        assert operations["fetch", "MatMul/ReadVariableOp"].bytes == 256 * 512 * 4
        assert operations["fetch", "MatMul_1/ReadVariableOp"].bytes == 512 * 128 * 4
        update = operations["update", "AssignSubVariableOp"]
        assert [step.operations[a].name for a in update.after] == ["mul"]
        for o in step.operations:
            assert all(o.start >= step.operations[a].end - 2e-4 for a in o.after)


def test_an_xplane_without_all_sizes_asks_for_them():
    with pytest.raises(DataError, match=r"sizes of 4 of .*give parameter_bytes"):
        read_traces(DATA / "xplane-1ps", batch_size=32)


def altered(tmp_path, alter):
    """The recorded xplane, each event's stats as ``alter(kind, stats, texts)`` leaves them."""
    for path in (DATA / "xplane-1ps").iterdir():
        space = xplane_pb2.XSpace.FromString(gzip.decompress(path.read_bytes()))
        for plane in space.planes:
            names = {key: value.name for key, value in plane.stat_metadata.items()}
            kinds = {key: value.name for key, value in plane.event_metadata.items()}
            for event in (event for line in plane.lines for event in line.events):
                stats = {names[stat.metadata_id]: stat for stat in event.stats}
                texts = {name: names.get(stat.ref_value) or stat.str_value for name, stat in stats.items()}
                alter(kinds[event.metadata_id], stats, texts)
        (tmp_path / path.name.removesuffix(".gz")).write_bytes(space.SerializeToString())
    return tmp_path


def with_arrivals(tmp_path, change):
    """Every arrival of one gradient changed."""
    changed = 0

    def alter(kind, stats, texts):
        nonlocal changed
        arrives = kind.startswith("ExecutorState::ProcessAsync") and texts["kernel_type"] == "_Recv"
        if arrives and texts["name"] == "mul/_14":
            change(stats)
            changed += 1

    altered(tmp_path, alter)
    assert changed > 10
    return tmp_path


def test_a_tensor_for_the_hosts_memory_is_received_as_any(tmp_path):
    def host(stats):
        stats["kernel_type"].str_value = "_HostRecv"

    changed = read_traces(with_arrivals(tmp_path, host), batch_size=32, parameter_bytes=XPLANE_BYTES)
    assert changed == read_traces(DATA / "xplane-1ps", batch_size=32, parameter_bytes=XPLANE_BYTES)


def test_an_arrival_that_is_never_recorded_is_named_and_longer_traces_are_no_advice(tmp_path):
    def hide(stats):
        stats["kernel_type"].str_value = "_Else"

    with pytest.raises(DataError, match=r"in 11 of 12 the arrival of 'mul/_14' at ps:0 is not recorded, so a longer"):
        read_traces(with_arrivals(tmp_path, hide), batch_size=32, parameter_bytes=XPLANE_BYTES)


def test_a_worker_that_recorded_nothing_is_counted_by_what_the_server_sends_it(tmp_path):
    seen = Counter()

    def alter(kind, stats, texts):
        if kind.endswith(":_Send") and texts["key"].startswith("/job:ps"):
            seen[kind] += 1
            if seen[kind] % 2:
                stats["key"].str_value = texts["key"].replace("/job:worker/replica:0/task:0", "/job:worker/task:1")

    profile = read_traces(altered(tmp_path, alter), batch_size=32, parameter_bytes=XPLANE_BYTES)
    assert profile.cluster.workers == 2
    assert len(profile.steps) < 7


def test_several_training_steps_in_a_loop_are_refused(tmp_path):
    """Two steps under one number are as Keras' steps_per_execution=2 leaves them."""
    numbers = {}

    def alter(kind, stats, texts):
        for name in {"id", "step_id"} & stats.keys():
            found = stats[name].int64_value or stats[name].uint64_value
            stats[name].int64_value = 1 + numbers.setdefault(found, len(numbers)) // 2

    altered(tmp_path, alter)
    with pytest.raises(DataError, match=r"all its gradients several times: .* \(steps_per_execution=1\)"):
        read_traces(tmp_path, batch_size=32, parameter_bytes=XPLANE_BYTES)


def test_rows_looked_up_at_the_server_are_told_from_parameters(tmp_path):
    for path in (DATA / "xplane-1ps").iterdir():
        content = gzip.decompress(path.read_bytes())
        renamed = content.replace(b"MatMul/ReadVariableOp:ReadVariableOp", b"MatMul/ReadVariableOp:ResourceGather")
        (tmp_path / path.name).write_bytes(gzip.compress(renamed))
    with pytest.raises(DataError, match="tables in which the servers look up rows"):
        read_traces(tmp_path, batch_size=32, parameter_bytes=XPLANE_BYTES)
    rest = read_traces(tmp_path, batch_size=32, parameter_bytes=XPLANE_BYTES - 256 * 512 * 4)
    assert {s.fetched_bytes for s in rest.steps} == {XPLANE_BYTES}


def test_what_a_coordinator_recorded_of_itself_is_passed_over(tmp_path):
    for path in (DATA / "xplane-1ps").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "chief" / "plugins").mkdir(parents=True)
    own = xplane_pb2.XSpace(planes=[{"name": "/host:CPU"}]).SerializeToString()
    (tmp_path / "chief" / "plugins" / "vm.xplane.pb").write_bytes(own)
    whole = read_traces(tmp_path, batch_size=32, parameter_bytes=XPLANE_BYTES)
    assert whole == read_traces(DATA / "xplane-1ps", batch_size=32, parameter_bytes=XPLANE_BYTES)
    with pytest.raises(DataError, match=r"chief: no tensor sent to another task .* a coordinator records of itself"):
        read_traces(tmp_path / "chief", batch_size=32)


@pytest.mark.parametrize("task", ["worker0", "ps0"])
def test_an_xplane_of_one_task_is_refused(tmp_path, task):
    name = f"{task}.xplane.pb.gz"
    (tmp_path / name).write_bytes((DATA / "xplane-1ps" / name).read_bytes())
    with pytest.raises(DataError, match="only one task"):
        read_traces(tmp_path, batch_size=32)


def test_a_damaged_xplane_is_named(tmp_path):
    content = gzip.decompress((DATA / "xplane-1ps" / "ps0.xplane.pb.gz").read_bytes())
    (tmp_path / "a.xplane.pb").write_bytes(content[:-7])
    with pytest.raises(DataError, match=r"a\.xplane\.pb: no XSpace proto, or truncated"):
        read_traces(tmp_path, batch_size=32)
    (tmp_path / "a.xplane.pb").write_bytes(b"\x0a\x00")  # a plane without events
    with pytest.raises(DataError, match="no tensor sent to another task"):
        read_traces(tmp_path, batch_size=32)


# hand-made protos


def hand_made(*, recv=True, tasks=("worker", "ps"), allocation=True, label="[1.9MB] [1600.000000Mb/s]"):
    """One fetch of 2,000,000 bytes in 10 ms, 5 ms of computation."""
    metadata = config_pb2.RunMetadata()
    for task in tasks:
        device = metadata.step_stats.dev_stats.add(device=f"/job:{task}/replica:0/task:0/device:CPU:0")
        if task == "worker":
            device.node_stats.add(
                node_name="y",
                timeline_label="y = MatMul(w_S1, ^c:1)",
                all_start_micros=11_000,
                all_end_rel_micros=5_000,
            )
            if recv:
                node = device.node_stats.add(
                    node_name="RecvTensor",
                    timeline_label=f"{label} edge_1_w from /job:ps/replica:0/task:0/device:CPU:0 "
                    "to /job:worker/replica:0/task:0/device:CPU:0",
                    all_start_micros=1_000,
                    all_end_rel_micros=10_000,
                )
                if allocation:
                    node.output.add().tensor_description.allocation_description.requested_bytes = 2_000_000
        else:
            device.node_stats.add(
                node_name="w", timeline_label="w = VariableV2()", all_start_micros=900, all_end_rel_micros=1
            )
    return metadata.SerializeToString()


@pytest.mark.parametrize("allocation", [True, False])
def test_bytes_come_from_the_allocation_or_from_rate_and_duration(tmp_path, allocation):
    (tmp_path / "0.pb").write_bytes(hand_made(allocation=allocation))
    (step,) = read_traces(tmp_path, batch_size=1).steps
    assert step.fetched_bytes == 2_000_000
    assert (step.fetch, step.compute) == pytest.approx((0.010, 0.005))
    assert [o.after for o in step.operations] == [[], [0]]


@pytest.mark.parametrize("label", ["[1.9MB] [1.6Gb/s]", "[1.9MB] [infMb/s]"])
def test_rates_of_fast_links_are_read(tmp_path, label):
    (tmp_path / "0.pb").write_bytes(hand_made(label=label))
    assert read_traces(tmp_path, batch_size=1).steps[0].fetched_bytes == 2_000_000
    (tmp_path / "0.pb").write_bytes(hand_made(label="[1.9MB] [1.6Gb/s]", allocation=False))
    assert read_traces(tmp_path, batch_size=1).steps[0].fetched_bytes == pytest.approx(2_000_000, abs=0.05 * 2**20)


def test_rate_and_duration_recover_recorded_sizes(tmp_path):
    for path in sorted((DATA / "alexnet-60" / "trace").iterdir()):
        metadata = config_pb2.RunMetadata.FromString(gzip.decompress(path.read_bytes()))
        for device in metadata.step_stats.dev_stats:
            for node in device.node_stats:
                node.ClearField("output")
        (tmp_path / path.name.removesuffix(".gz")).write_bytes(metadata.SerializeToString())
    assert {s.fetched_bytes for s in read_traces(tmp_path, batch_size=1).steps} == {3047988}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("0.pb", b"", r"0\.pb: the file is empty"),
        ("0.pb", b"hello, this is no proto", r"0\.pb: no RunMetadata proto, or truncated"),
        ("0.pb", hand_made()[:-3], r"0\.pb: no RunMetadata proto, or truncated"),
        ("0.pb.gz", gzip.compress(hand_made(), mtime=0)[:-12], r"0\.pb\.gz: damaged gzip file"),
        ("0.pb.gz", b"\x00" * 30 + b"x", r"0\.pb\.gz: damaged gzip file"),
        ("0.pb.gz", gzip.compress(b"hello, this is no proto", mtime=0), r"0\.pb\.gz: no RunMetadata proto"),
        (
            "0.pb",
            config_pb2.RunMetadata(step_stats={"dev_stats": [{"device": "x"}]}).SerializeToString(),
            "no operations",
        ),
        ("0.pb", hand_made(tasks=["worker"], recv=False), r"0\.pb: a trace of only one task \(worker:0\)"),
        ("0.pb", hand_made(recv=False), r"0\.pb: no RecvTensor event"),
        ("0.pb", hand_made(label="[1.9 MiB]"), r"0\.pb: a RecvTensor event of worker:0 has an unknown label"),
        ("readme.txt", b"x", "no RunMetadata traces"),
    ],
)
def test_a_bad_trace_is_one_clear_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_traces(tmp_path, batch_size=1)
    assert "\n" not in str(caught.value)


def test_one_bad_step_among_good_ones_is_named(tmp_path):
    for name in ("0.pb", "1.pb"):
        (tmp_path / name).write_bytes(hand_made())
    (tmp_path / "2.pb").write_bytes(hand_made(recv=False))
    with pytest.raises(DataError, match=r"2\.pb: no RecvTensor"):
        read_traces(tmp_path, batch_size=1)


def test_absent_folders_and_absurd_arguments(tmp_path):
    with pytest.raises(DataError, match=r"nowhere: not a folder"):
        read_traces(tmp_path / "nowhere", batch_size=1)
    with pytest.raises(DataError, match="no RunMetadata traces"):
        read_traces(tmp_path, batch_size=1)
    (tmp_path / "0.pb").write_bytes(hand_made())
    with pytest.raises(DataError, match="batch_size"):
        read_traces(tmp_path, batch_size=0)
    with pytest.raises(DataError, match="bandwidth"):
        read_traces(tmp_path, batch_size=1, bandwidth=-1)
    with pytest.raises(DataError, match="parameter_bytes"):
        read_traces(tmp_path, batch_size=1, parameter_bytes=0)


def test_without_protobuf_one_line_names_the_extra(monkeypatch, tmp_path):
    (tmp_path / "0.pb").write_bytes(hand_made())
    monkeypatch.setitem(sys.modules, "google.protobuf.message", None)
    with pytest.raises(MissingDependencyError, match=r"0\.pb: .* pip install 'queuemodel\[traces\]'"):
        read_traces(tmp_path, batch_size=1)


@pytest.mark.parametrize("kept", ["alexnet-60/trace", "xplane-1ps", "mirrored/tiny/trace_n2"])
def test_messages_are_as_tensorflow_reads_them(kept):
    """Every field that is read here, in every message of these files."""

    def compare(ours, theirs):
        for field in ours.DESCRIPTOR.fields:
            mine, own = getattr(ours, field.name), getattr(theirs, field.name)
            if field.name in ("event_metadata", "stat_metadata"):
                assert {entry.key: entry.value.name for entry in mine} == {key: own[key].name for key in own}
            elif field.message_type is None:
                assert mine == own
                seen.add(field.name)
            elif hasattr(mine, "DESCRIPTOR"):
                compare(mine, own)
            else:
                for pair in zip(mine, own, strict=True):
                    compare(*pair)

    seen = set()
    for path in sorted((DATA / kept).glob("*.pb.gz"))[:2]:
        theirs = xplane_pb2.XSpace if "xplane" in path.name else config_pb2.RunMetadata
        name, content = theirs.DESCRIPTOR.name, gzip.decompress(path.read_bytes())
        compare(decode(name, content, where=path.name), theirs.FromString(content))
    assert seen >= ({"offset_ps", "str_value", "ref_value"} if name == "XSpace" else {"all_end_rel_micros", "device"})


def test_reading_needs_no_tensorflow_and_says_nothing():
    code = (
        "import sys; sys.modules['tensorflow'] = None; import queuemodel.adapters.tensorflow as a; "
        f"a.read_traces({str(DATA / 'alexnet-60' / 'trace')!r}, batch_size=1); "
        f"a.read_traces({str(DATA / 'xplane-1ps')!r}, batch_size=32, parameter_bytes={XPLANE_BYTES})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
