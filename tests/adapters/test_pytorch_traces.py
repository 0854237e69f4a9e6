"""Traces of torch.profiler: recorded ones are read to the byte, damaged and mixed ones refused in one line."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import queuemodel as qm
from queuemodel.adapters.pytorch import read_traces

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
        assert sum(g.bytes for g in one.gradients) == truth["parameter_bytes"] + 4  # and the input's, one number
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
