"""Traces of sharded training: recorded ones are read as graphs that replay, what cannot be predicted is refused."""

import json
import re
from functools import partial

import numpy as np
import pytest
import recording

from queuemodel.adapters import read_pytorch
from testbed.recordings import unpacked
from tests.oracles.recorded import DATA
from validation.sharded import NCCL

FSDP, HSDP = DATA / "sharded" / "fsdp-gpt8-60", DATA / "sharded" / "hsdp-gpt8-60"


def read(*folders, say=lambda _: None):
    return read_pytorch(folders, batch_size=8, say=say)


refused = partial(recording.refused, read)


def measured(folder):
    return {one["workers"]: one["group_steps_per_s"] for one in json.loads((folder / "measured.json").read_text())}


@pytest.fixture
def copied(tmp_path):
    """Runs of a series as ``edit`` leaves the arguments of each collective, of all their traces."""

    def copy(series, runs, edit):
        def each(trace):
            for event in trace["traceEvents"]:
                if event["name"].startswith("nccl"):
                    edit(event, len(trace["distributedInfo"]["pg_config"][0]["ranks"]))

        return [recording.copied(series / run, tmp_path, each) for run in runs]

    return copy


def test_fsdp_units_are_read_whole():
    """Ten units, gathered for each pass and scattered once, and a computation for each; what waits for what."""
    said = []
    profile = read(FSDP / "trace_n1", FSDP / "trace_n2", say=said.append)
    truth = json.loads((FSDP / "job.json").read_text())
    assert (profile.strategy, profile.job.parameter_bytes) == ("fsdp", truth["parameter_bytes"])
    rounds = [one for one in profile.rounds if one.ranks == 2]
    assert len(rounds) == 24
    operations = rounds[0].operations
    kinds = [one.kind for one in operations]
    assert [kinds.count(kind) for kind in ("all-gather", "reduce-scatter", "compute")] == [20, 10, 22]
    assert sum(one.bytes for one in operations if one.kind == "all-gather") == 2 * truth["parameter_bytes"]
    assert np.mean([one.computed for one in rounds]) == pytest.approx(truth["compute_s"], rel=0.03)
    forward = [k for k, kind in enumerate(kinds) if kind == "compute"][1:11]
    for unit, k in enumerate(forward):  # it waits for the gather of its own unit, which began two units before
        (gather,) = operations[k].after
        assert operations[gather].name == f"all-gather {unit + 1}"
        if unit > 2:
            assert operations[gather].after == [forward[unit - 3]]
    for k, one in enumerate(operations):
        if one.kind == "reduce-scatter":
            assert one.after == [max(i for i in range(k) if kinds[i] == "compute")]
    assert operations[-1].after[-1] == len(operations) - 2  # the optimizer
    assert "replayed steps are 1 % off" in said[0]


@pytest.mark.parametrize(("job", "strategy", "kinds", "gathered"), [
    ("nccl-fsdp", "fsdp", [18, 9, 0], 8), ("nccl-fsdp-mixed", "fsdp", [18, 9, 0], 4),
    ("nccl-fsdp-kept", "fsdp", [9, 9, 0], 4), ("nccl-fsdp-clipped", "fsdp", [18, 9, 1], 4),
    ("nccl-fsdp1", "fsdp", [17, 9, 0], 8), ("nccl-hsdp", "hsdp", [18, 9, 9], 8),
])  # fmt: skip
def test_steps_over_nccl_replay(job, strategy, kinds, gathered):
    """Eight blocks and the rest, in float32 or gathered in bfloat16; rates measured without the profiler."""
    folder, said = unpacked(NCCL) / job, []
    profile = read(*sorted(folder.glob("trace_n*")), say=said.append)
    parameters = 8 * (12 * 320**2 + 13 * 320) + 2 * 2048 * 320 + 2048
    assert (profile.strategy, profile.job.parameter_bytes) == (strategy, pytest.approx(4 * parameters, rel=1e-3))
    ranks = 4 if strategy == "hsdp" else 2
    (operations,) = {tuple(one.kind for one in r.operations) for r in profile.rounds if r.ranks == ranks}
    assert [operations.count(kind) for kind in ("all-gather", "reduce-scatter", "all-reduce")] == kinds
    first = next(one for one in profile.rounds if one.ranks == ranks)
    size = sum(one.bytes for one in first.operations if one.kind == "all-gather")
    assert size == pytest.approx(gathered * parameters, rel=0.07)  # FSDP1 keeps what is not in blocks
    expected = {"inside a node": 2, "across nodes": 2} if strategy == "hsdp" else {"all ranks": 2}
    assert first.groups == expected
    assert all(one.after for one in first.operations[1:])
    (off,) = [int(n) for n in re.findall(r"replayed steps are (-?\d+) % off", said[0])]
    assert abs(off) <= 3
    took = np.mean([one.round_time for one in profile.rounds if one.ranks == ranks])
    assert took == pytest.approx(1 / measured(folder)[ranks], rel=0.03)


def test_fixed_groups_across_nodes_are_refused(copied):
    """The shards' group is of neighbours in one run, and in the other of ranks of two nodes."""

    def elsewhere(event, ranks):
        if event["args"]["Process Group Ranks"] in ("[0, 1]", "[2, 3]") and ranks == 4:
            event["args"]["Process Group Ranks"] = "[0, 2]"

    refused(
        *copied(HSDP, ["trace_n2", "trace_n4"], elsewhere), "ranks 0, 2 of several nodes .* does not grow with them"
    )


@pytest.mark.parametrize(("name", "said"), [
    ("SendRecv", "pipeline stages send activations"), ("AllToAll", "an all-to-all, as of experts"),
    ("Reduce", "gradients are reduced to one rank, as by ZeRO"),
    ("", "of a step in .* whose kind, process group or size is not recorded"),
])  # fmt: skip
def test_other_collectives_are_named_and_refused(copied, name, said):
    def other(event, ranks):
        if not name:
            event["args"].pop("dtype")
        elif event["args"]["In msg nelems"] == 30000 and "AllGather" in event["name"]:
            event["name"] = f"ncclDevKernel_{name}_RING_LL"
            event["args"]["Collective name"] = name.lower()

    refused(*copied(FSDP, ["trace_n2"], other), said)


def test_steps_without_replay_are_refused(tmp_path):
    """A pause amid a step that nothing recorded explains."""

    def paused(trace):
        marks = sorted(e["ts"] for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep"))
        for event in trace["traceEvents"]:
            step = sum(event["ts"] >= mark for mark in marks) - 1
            late = 300e3 * step + 200e3 * (event["ts"] - marks[step] > 400e3)
            if event["name"].startswith("ProfilerStep"):
                event["dur"] += 300e3
                late = 300e3 * step
            event["ts"] += late

    run = recording.copied(FSDP / "trace_n2", tmp_path, paused)
    refused(run, "no rule of what waits for what replays the recorded steps: the best misses")


def test_steps_of_unlike_operations_are_dropped(copied):
    """Of one step one unit is larger."""
    changed = []

    def larger(event, ranks):
        if not changed or changed[-1] != event["pid"]:
            changed.append(event["pid"])
            event["args"]["In msg nelems"] += 1

    said = []
    profile = read(*copied(FSDP, ["trace_n2"], larger), say=said.append)
    assert len(profile.rounds) == 22
    assert "unlike steps: 1" in said[1]
