"""Traces of people's own training scripts: what is reduced is read to the byte, what a round does not describe refused.

All were recorded (`tests/data/README.md`), most of five layers with 3,196,840 bytes of parameters.
"""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import queuemodel as qm
from queuemodel.adapters.pytorch import read_traces
from queuemodel.prediction import predict
from queuemodel.strategies import simulate_rounds

DATA = Path(__file__).parent.parent / "data"
BYTES = 4 * (784 * 400 + 400 + 3 * (400 * 400 + 400) + 400 * 10 + 10)


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scripts")
    shutil.unpack_archive(DATA / "ddp-scripts.tar.xz", folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def script(scripts):
    def read(name, *runs):
        return read_traces([scripts / name / run for run in runs or ("trace_n2",)], batch_size=32)

    return read


@pytest.mark.parametrize(
    ("name", "sent"), [("checkpoint-reentrant", BYTES), ("fp16-hook", BYTES // 2), ("functional", BYTES)]
)
def test_what_scripts_send_is_read(script, name, sent):
    profile = script(name)
    assert profile.job.parameter_bytes == sent
    assert profile.job.tensors == 10  # not those of activations
    for one in profile.rounds:
        assert sum(bucket.bytes for bucket in one.buckets) == sent
        assert sum(gradient.bytes for gradient in one.gradients) == sent


def test_waiting_inside_a_reentrant_checkpoint_is_not_computation(script):
    profile = script("checkpoint-reentrant", "trace_n1", "trace_n2")
    one, two = ([r for r in profile.rounds if r.ranks == ranks] for ranks in (1, 2))
    alone = np.mean([round.computed for round in one])
    assert alone > 5 * 0.04  # five layers that wait 10 ms forward, twice, and 20 ms backward
    assert np.mean([round.computed for round in two]) == pytest.approx(alone, rel=0.15)
    assert all(round.computed < 0.75 * round.buckets[-1].end for round in two)


def test_what_a_cast_halves_is_halved_in_what_ifs(script):
    profile = script("fp16-hook")
    as_recorded, one_message = (predict(profile, workers=[2], scheme=scheme) for scheme in (None, "tf-ring"))
    wire = np.array(
        [float(curve.utilization[0, 0] / curve.rounds_per_second[0]) for curve in (as_recorded, one_message)]
    )
    assert wire[1] == pytest.approx(wire[0], rel=0.01)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("powersgd", "799,210 elements of gradients, and all-reduces of 1,610; what a communication hook sends after"),
        ("sparse", "every rank gathers the sparse gradients of all; only dense ones"),
        ("local-sgd", "reduced among an unknown number of 2 ranks; all must reduce together"),
        ("tensor-parallel", "allreduce_ and the like move 320 elements beside the 0 of the gradients'"),
        ("two-models-in-turn", "the steps have different gradients; only steps that all train the same parameters"),
    ],
)
def test_what_a_round_does_not_describe_is_refused(script, name, match):
    with pytest.raises(qm.DataError, match=match) as caught:
        script(name)
    assert "\n" not in str(caught.value)


def slow_loader(scripts, **changes):
    folder = scripts / "slow-loader"
    profile = read_traces([folder / "trace_n1", folder / "trace_n2"], batch_size=32, bandwidth=12.5e6)
    (measured,) = json.loads((folder / "measured.json").read_text()).values()
    return predict(profile, workers=[1, 2, 3], **changes), 1 / np.array(list(measured.values()))


def test_rounds_that_wait_for_a_loader_are_no_shorter_than_batches_take_to_load(scripts):
    curve, measured = slow_loader(scripts)
    assert curve.rounds_per_second == pytest.approx(measured, rel=0.05)  # tracing costs that
    assert measured[1] > 1.1 * measured[2]  # what two ranks wait, three need for the network
    loaded = curve.rounds_per_second[0]
    assert curve.rounds_per_second[1] == pytest.approx(loaded, rel=0.01)
    for faster in ({"bandwidth": 12.5e8}, {"accelerator_speed": 100}, {"bandwidth": 12.5e8, "accelerator_speed": 100}):
        curve, _ = slow_loader(scripts, **faster)
        assert all(curve.rounds_per_second <= loaded * 1.01)
    assert curve.rounds_per_second == pytest.approx([loaded] * 3, rel=0.01)
    assert curve.bottleneck == "input"
    assert "waited for their input, which takes 0.41" in curve.note
    curve, _ = slow_loader(scripts, batch_size=64, bandwidth=12.5e8)
    assert curve.rounds_per_second[2] == pytest.approx(loaded / 2, rel=0.01)
    rounds = simulate_rounds(curve.model, ranks=3, rounds=200)
    assert rounds.times.mean() == pytest.approx(2 / loaded, rel=0.02)
    (row,) = rounds.to_rows()
    assert row["input"] > 0.4 > 0.1 > row["communication"]


def test_a_schedule_that_repeats_writes_several_files_of_a_rank(tmp_path):
    whole = DATA / "ddp" / "ddp-alexnet-40" / "trace_n2"
    for path in whole.iterdir():
        trace = json.loads(gzip.decompress(path.read_bytes()))
        steps = sorted((e for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep")), key=lambda e: e["ts"])
        parts = {"first": (0, steps[5]["ts"]), "second": (steps[5]["ts"], float("inf"))}
        for part, (start, end) in parts.items():
            events = [event for event in trace["traceEvents"] if start <= event.get("ts", 0) < end]
            (tmp_path / f"{part}-{path.name.removesuffix('.gz')}").write_text(
                json.dumps(trace | {"traceEvents": events})
            )
    read = [read_traces([folder], batch_size=32) for folder in (tmp_path, whole)]
    assert read[0] == read[1]
    shutil.copy(tmp_path / "first-rank0.pt.trace.json", tmp_path / "once more.pt.trace.json")
    with pytest.raises(qm.DataError, match=r"rank 0 again, as in .*; give each run a folder, without copies"):
        read_traces([tmp_path], batch_size=32)
