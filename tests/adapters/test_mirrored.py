"""TensorFlow's MultiWorkerMirroredStrategy: recorded runs are read to the byte, incomplete ones refused in one line."""

import gzip
import importlib.util
import json
import shutil
from functools import partial

import numpy as np
import pytest
import recording

import queuemodel as qm
from queuemodel.adapters import Mirrored, read_mirrored

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("needs TensorFlow to read its files", allow_module_level=True)

from tensorflow_protos import edited, events_of, renamed

from tests.oracles.recorded import DATA

TINY, MLP = DATA / "mirrored" / "tiny", DATA / "mirrored" / "mlp"
TRUTH = json.loads((TINY / "job.json").read_text())
MLP_BYTES = 4 * (784 * 1024 + 1024 + 1024 * 512 + 512 + 512 * 10 + 10)


refused = partial(recording.refused, read_mirrored, batch_size=8)


def tiny(*runs, parameter_bytes=TRUTH["parameter_bytes"]):
    return read_mirrored([TINY / run for run in runs], batch_size=8, parameter_bytes=parameter_bytes)


def two(profile):
    return [one for one in profile.rounds if one.ranks == 2]


@pytest.mark.parametrize("case", ["slow-input", "late-input"])
def test_waiting_for_data_is_no_computation(case):
    """One rank and two that compute for 0.3 s."""
    folder = DATA / "mirrored" / case
    profile = read_mirrored([folder / "trace_n1", folder / "trace_n2"], batch_size=32)
    assert sum(one.waited for one in profile.rounds) > 0.1 * sum(one.round_time for one in profile.rounds)
    for one in profile.rounds:
        assert one.computed == pytest.approx(0.31, abs=0.03)
        assert one.computed + one.waited <= one.round_time
    told = {row["field"]: row["mean"] for row in profile.summary()}
    assert told["waited of 1 rank"] == pytest.approx(told["round_time of 1 rank"] - 0.31, abs=0.03)


@pytest.mark.parametrize("job", [TINY, MLP], ids=lambda job: job.name)
def test_rounds_are_what_their_events_say(job, tmp_path):
    """A pack that waited for another was ready with the last kernel before; gradients are those that a run noted."""
    run = shutil.copytree(job / "trace_n2", tmp_path / "trace_n2")
    noted = {"one_backward": 7, "fused into it": 5, "two_backward": 9} if job == TINY else {}
    (run / "rank1.gradients.json").write_text(json.dumps(noted))
    profile = read_mirrored([run], batch_size=8, parameter_bytes=MLP_BYTES)
    for rank, path in enumerate(sorted(run.glob("*.gz"))):
        events, rounds = events_of(path), [one for one in profile.rounds if one.rank == rank]
        marks = [one for one in events if "step_num" in one[3]]
        for (start, end, *_), after, one in zip(marks, [*marks[1:], None], rounds, strict=True):
            inside = [(a - start, b - start, *rest) for a, b, *rest in events if start <= a < end]
            kernels = {name.rpartition(":")[0]: b for _, b, name, _ in inside if ":" in name and "::" not in name}
            ran = [a for a, _, name, _ in inside if name.endswith(":CollectiveReduceV2")]
            reduces = [one for one in inside if one[3].get("kernel_type") == "CollectiveReduceV2"]
            ready, done = ([a for a, _, name, _ in reduces if name.endswith(end)] for end in ("Async::Start", "::Done"))
            ends = {name: b for name, b in kernels.items() if "CollectiveReduce" not in name}
            if len(ready) == 2:
                ready[1] = max(b for b in ends.values() if b <= done[0])
            backward = [b for name, b in ends.items() if name.startswith("gradient_tape/")]
            packs = [(pack.ready, pack.begin, pack.end) for pack in one.buckets]
            assert np.array(packs) == pytest.approx(np.transpose([ready, ran, done]), abs=2e-7)
            assert one.computed == pytest.approx(max(backward or ready), abs=2e-7)
            assert after is None or one.round_time == pytest.approx(after[0] - start, abs=2e-7)
            sizes = [(9, ends["two_backward"]), (7, ends["one_backward"]), (5, ends["one_backward"])] if noted else []
            told = [(gradient.bytes, pytest.approx(gradient.ready, abs=2e-7)) for gradient in one.gradients]
            assert told == sizes * rank


def with_metrics(plane, kinds, names):
    """In each step a millisecond later the same reduction of something small."""
    reduce = next((key for key, kind in kinds.items() if kind.endswith(":CollectiveReduceV2")), -1)
    own = kinds.get(reduce, ":").rpartition(":")[0]
    plane.event_metadata[0].name = "metric:CollectiveReduceV2"
    for line, event in [(own_line, one) for own_line in plane.lines for one in own_line.events]:
        told = {names[stat.metadata_id]: names.get(stat.ref_value) or stat.str_value for stat in event.stats}
        if event.metadata_id == reduce or told.get("name") == own:
            copy = line.events.add()
            copy.CopyFrom(event)
            copy.offset_ps += 10**9
            copy.metadata_id *= event.metadata_id != reduce
            for stat in copy.stats:
                if names[stat.metadata_id] == "name":
                    stat.str_value = "metric"
                if names[stat.metadata_id] == "instance_key":
                    stat.int64_value = (stat.int64_value or stat.uint64_value) + 10**6


def delayed(pauses):
    """The k-th step, and what follows, begins so much later (ps)."""

    def edit(plane, _, names):
        events = [(line.timestamp_ns * 1000 + e.offset_ps, e) for line in plane.lines for e in line.events]
        marks = sorted(t for t, e in events if "step_num" in {names[stat.metadata_id] for stat in e.stats})
        for start, event in events:
            event.offset_ps += sum(pause for mark, pause in zip(marks, pauses, strict=False) if start >= mark)

    return edit


def test_pauses_of_some_steps_are_excluded(tmp_path):
    """Evaluation after every third step, say; what is done after every one, such as waiting for input, is."""

    def seconds(pauses):
        run = edited(TINY / "trace_n2", tmp_path / str(pauses[1]), delayed(pauses))
        rounds = read_mirrored([run], batch_size=8, parameter_bytes=TRUTH["parameter_bytes"]).rounds
        return np.array([one.round_time for one in rounds if one.number < 11])

    as_recorded = np.array([one.round_time for one in two(tiny("trace_n2")) if one.number < 11])
    assert seconds([0, 0, 0, 10**11] * 3) == pytest.approx(as_recorded, abs=2e-5)
    assert seconds([10**11] * 12) == pytest.approx(as_recorded + 0.1, abs=2e-5)


def marked_late(plane, kinds, names):
    """Each step is marked only when its batch has been taken."""
    events = [(line.timestamp_ns * 1000 + e.offset_ps, e) for line in plane.lines for e in line.events]
    taken = sorted(t + e.duration_ps for t, e in events if kinds[e.metadata_id].startswith("IteratorGetNext"))
    for start, event in events:
        if "step_num" in {names[stat.metadata_id] for stat in event.stats}:
            late = next(t for t in taken if t >= start) - start
            event.offset_ps, event.duration_ps = event.offset_ps + late, event.duration_ps - late


def test_batches_taken_between_steps_count_before(tmp_path):
    runs = [DATA / "mirrored" / "slow-input" / run for run in ("trace_n1", "trace_n2")]
    late = [edited(run, tmp_path / run.name, marked_late) for run in runs]
    within, between = (read_mirrored(some, batch_size=32).rounds[:-1] for some in (runs, late))
    for name in ("round_time", "waited", "computed"):
        found, expected = (np.mean([getattr(one, name) for one in some]) for some in (between, within))
        assert found == pytest.approx(expected, rel=0.1)


def test_metric_packs_leave_nothing_to_share(tmp_path):
    """Keras' model.fit reduces its metrics as well; the gradients' pack is known to the byte."""
    run = edited(MLP / "trace_n2", tmp_path, with_metrics)
    profile = read_mirrored([run], batch_size=64, parameter_bytes=MLP_BYTES)
    assert {tuple(pack.bytes for pack in one.buckets) for one in profile.rounds} == {(MLP_BYTES, 1)}
    refused([tmp_path], "1 of 2 packs are too small")
    refused([tmp_path], "1 of 2 packs have 5,335,080 .* all trainable parameters", parameter_bytes=MLP_BYTES // 4)


def test_what_a_run_lacks_is_said(tmp_path):
    refused([TINY / "trace_n2"], r"2 of 2 packs are too small .* \(--parameter-bytes\)")
    refused([MLP / "trace_n2", TINY / "trace_n2"], "another number of ranks", parameter_bytes=MLP_BYTES + 8)
    refused([TINY / "trace_n1"], "no all-reduce among two ranks", parameter_bytes=1000)
    refused([tmp_path / "no"], "no such folder")
    refused([TINY], "got 3 of 2; give each run a folder of its own")
    refused([DATA / "alexnet-60" / "trace"], r"no \*.xplane.pb or \*.xplane.pb.gz in it")
    refused([DATA / "xplane-1ps"], "no step is marked in it")
    shutil.copy(MLP / "trace_n2" / "rank1.xplane.pb.gz", tmp_path)
    refused([tmp_path], "a file of each rank is needed, got 1 of (2|more)")
    for rank in (0, 2):
        shutil.copy(MLP / "trace_n2" / "rank0.xplane.pb.gz", tmp_path / f"rank{rank}.xplane.pb.gz")
    refused([tmp_path], "a file of each rank is needed, got 3 of 2")
    (tmp_path / "rank0.gradients.json").write_text('{"MatMul": -4}')
    refused([tmp_path], "rank0.gradients.json: not what 'queuemodel profile' writes")
    (tmp_path / "rank0.xplane.pb.gz").write_bytes(gzip.compress(b"\xff" * 100))
    refused([tmp_path], "no XSpace proto")


@pytest.mark.parametrize(
    ("run", "before", "after", "said"),
    [  # half of a job's bytes would be left out; the second step of a loop waits for the first's reductions
        (MLP, "2:CollectiveReduceV2", "2:CollectiveGatherV2", "gather the gradients of looked-up rows"),
        (TINY, "CollectiveReduceV2_1:", "CollectiveReduceV2:", "step 0 reduces the same gradients 2 times; mark each"),
        (TINY, ":CollectiveReduceV2", ":Nothing", "no all-reduce among two ranks or more"),
    ],
)
def test_other_collectives_are_refused(tmp_path, run, before, after, said):
    refused([renamed(run / "trace_n2", tmp_path, before, after)], said, parameter_bytes=1000)


def test_command_distinguishes_ranks_from_servers(tmp_path, run):
    command = ("import-trace", "--batch-size", 8, "-o", tmp_path / "p.json")
    asked = (TINY / "trace_n1", TINY / "trace_n2", "--parameter-bytes", "244kB", "--workers", 2)
    assert "--workers: traces of data-parallel training contain that" in run(*command, *asked)[2]
    assert run(*command, DATA / "xplane-1ps", "--parameter-bytes", "788992B")[0] == 0
    assert qm.Profile.load(tmp_path / "p.json").cluster.parameter_servers == 1


def profiled(*model, **settings):
    """A live profile; once more where TensorFlow itself crashed, as 2.21 does now and then when a recording ends."""
    try:
        return recording.recorded(Mirrored, *model, **settings)
    except qm.ProfilingError as error:
        if not any(signal in str(error) for signal in ("SIGSEGV", "SIGABRT")):
            raise
        return recording.recorded(Mirrored, *model, **settings)


@pytest.mark.live
def test_live_profile_of_three_ranks(family, tmp_path):
    profile = profiled("mlp", output=tmp_path / "p.json", ranks=3, steps=4, warmup=2, batch_size=16)
    recording.check_rounds(profile, ranks=(1, 2, 3), steps=4, parameter_bytes=MLP_BYTES)
    assert (profile.job.batch_size, profile.job.parameter_bytes, profile.job.tensors) == (16, MLP_BYTES, 6)
    assert all(one.gradients[-1].ready == one.computed for one in profile.rounds)
    assert [point.workers for point in profile.throughputs] == [1, 2, 3]
    assert qm.Profile.load(tmp_path / "p.json") == profile
    assert [len(step.workers) for step in profile.gradient_norms] == [3] * 10
