"""Each step once, and of one job: copies and mixtures in a folder are refused by name."""

import gzip
import importlib.util
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from queuemodel import DataError
from queuemodel.adapters.events import TracedOperation, TracedStep, Transfer
from queuemodel.adapters.phases import derive
from queuemodel.adapters.tensorflow import read_traces
from queuemodel.adapters.tensorflow.reading.traces import run_metadata_files, xplane_files

DATA = Path(__file__).parent.parent / "data"
XPLANE_BYTES = 788_992


@pytest.fixture
def folder(tmp_path):
    """Three recorded steps."""
    for path in sorted((DATA / "alexnet-60" / "trace").iterdir())[:3]:
        shutil.copy(path, tmp_path / path.name)
    return tmp_path


def read(folder, **settings):
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("reading needs TensorFlow's protocol buffers")
    known = {"parameter_bytes": XPLANE_BYTES} if xplane_files(folder) else {}
    return read_traces(folder, batch_size=1, **known, **settings)


def test_a_packed_file_beside_its_original(folder):
    first = run_metadata_files(folder)[0]
    first.with_suffix("").write_bytes(gzip.decompress(first.read_bytes()))
    with pytest.raises(DataError, match=rf"{first.stem}: the same recording as {first.name} beside it; remove one"):
        read(folder)


def test_a_copy_under_another_name(folder):
    first = run_metadata_files(folder)[0]
    shutil.copy(first, folder / "copy of it.pb.gz")
    with pytest.raises(DataError, match=rf"({first.name}|copy of it).*the same step as.*({first.name}|copy of it)"):
        read(folder)


def test_hidden_files_are_nobodys(folder):
    before = read(folder)
    first = run_metadata_files(folder)[0]
    shutil.copy(first, folder / f".{first.name}")
    shutil.copytree(DATA / "xplane-1ps", folder / ".profiler")
    assert read(folder) == before
    assert len(before.steps) == 3


def test_two_jobs(folder):
    other = sorted((DATA / "resnet50-60" / "trace").iterdir())[0]
    shutil.copy(other, folder / "zz.pb.gz")
    with pytest.raises(DataError, match=r"another job than .*a folder of their own"):
        read(folder)


def test_two_kinds_of_recordings(folder):
    shutil.copytree(DATA / "xplane-1ps", folder / "plugins")
    with pytest.raises(DataError, match=r"holds RunMetadata \(.*pb.gz\) and tf.profiler's recordings \(ps0.xplane"):
        read(folder)


def test_a_tasks_file_twice(tmp_path):
    shutil.copytree(DATA / "xplane-1ps", tmp_path / "a")
    shutil.copy(tmp_path / "a" / "ps0.xplane.pb.gz", tmp_path / "a" / "ps0 (copy).xplane.pb.gz")
    with pytest.raises(DataError, match=r"ps0.xplane.pb.gz: a recording of ps:0, as ps0 \(copy\)\.xplane\.pb\.gz is"):
        read(tmp_path)


def test_a_whole_recording_twice(tmp_path):
    for name in ("a", "b"):
        shutil.copytree(DATA / "xplane-1ps", tmp_path / name)
    with pytest.raises(DataError, match=r"/[ab]: the same step as .*/[ab]; remove the copy"):
        read(tmp_path)


# without files

START = 1_700_000_000_000_000


def step(where, begins, *, worker="worker:0", size=4_000, names="abc", length=10_000):
    """A fetch of a variable, computation, a push and its update (us)."""
    t = START + begins
    operations = [
        TracedOperation("ps:0", "w", "VariableV2", (), t, t + 1),
        TracedOperation("ps:0", "w/read", "Identity", ("w",), t + 1, t + 2),
        *(TracedOperation(worker, n, "MatMul", ("w/read_S1",), t + 1_000, t + length - 1_000) for n in names),
        TracedOperation("ps:0", "apply", "AssignSub", ("w", f"{names[0]}_S2"), t + length - 500, t + length),
    ]
    transfers = [
        Transfer("w/read", "ps:0", worker, t + 2, t + 1_000, size),
        Transfer(names[0], worker, "ps:0", t + length - 1_000, t + length - 500, size),
    ]
    return TracedStep(where, operations, transfers)


def test_steps_one_after_the_other_are_one_job():
    assert len(derive([step(f"s{k}", k * 10_500) for k in range(5)]).steps) == 5
    assert len(derive([step(f"s{k}", k * 9_900) for k in range(5)]).steps) == 5  # the server's end overlaps the next


def test_steps_at_the_same_time_are_two():
    with pytest.raises(DataError, match=r"^s1: worker:0 runs this step while it runs s0: two jobs, or clocks"):
        derive([step("s0", 0), step("s1", 3_000)])
    with pytest.raises(DataError, match=r"^s1: the same step as s0"):
        derive([step("s0", 0), step("s1", 0, size=4_000)])


def test_a_parameter_that_grew_is_another_jobs():
    with pytest.raises(DataError, match=r"^s1: another job than s0: parameter 'w/read' has 5,000 bytes, there 4,000"):
        derive([step("s0", 0), step("s1", 10_500, size=5_000)])


def test_what_is_looked_up_may_change_its_size():
    looked_up = [
        replace(s, operations=[replace(o, op="GatherV2") if o.name == "w/read" else o for o in s.operations])
        for s in (step("s0", 0), step("s1", 10_500, size=5_000))
    ]
    assert [s.fetched_bytes for s in derive(looked_up).steps] == [4_000, 5_000]


def test_a_branch_that_runs_now_and_then_is_the_same_job():
    assert len(derive([step("s0", 0, names="abcd"), step("s1", 10_500, names="abce")]).steps) == 2
    with pytest.raises(DataError, match=r"^s1: another job than s0: they have 3 operations in common"):
        derive([step("s0", 0, names="abcdefg"), step("s1", 10_500, names="ABCDEFG")])


def test_other_workers_of_the_job_are_counted_and_not_read():
    alone = [step(f"s{k}", k * 10_500) for k in range(3)]
    others = [step(f"o{k}", k * 10_500 + 4_000, worker="worker:1", size=3_000) for k in range(3)]
    both = derive([*alone, *[replace(s, transfers=s.transfers[1:]) for s in others]])
    assert (derive(alone).workers, both.workers) == (1, 2)
    assert both.steps == derive(alone).steps


def test_workers_can_be_told_but_not_below_those_seen(folder):
    assert read(folder).cluster.workers == 1
    assert read(folder, workers=4).cluster.workers == 4
    with pytest.raises(DataError, match="workers"):
        read(folder, workers=0)
