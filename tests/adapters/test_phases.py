"""Phases, clocks, bytes and dependencies of hand-made steps: known schedules, laws, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from queuemodel import DataError
from queuemodel.adapters import TracedOperation, TracedStep, Transfer, derive

WORKER, SERVER = "worker:0", "ps:0"
START = 1_700_000_000_000_000  # us since 1970, as TensorFlow writes them


def op(name, inputs, start, end, *, task=WORKER, kind="MatMul"):
    return TracedOperation(task, name, kind, tuple(inputs), START + start, START + end)


def fetch(tensor, start, end, size, *, server=SERVER, worker=WORKER):
    return Transfer(tensor, server, worker, START + start, START + end, size)


def push(tensor, start, end, size, *, worker=WORKER):
    return Transfer(tensor, worker, SERVER, START + start, START + end, size)


def also(step, *parts):
    operations, transfers = ([p for p in parts if isinstance(p, kind)] for kind in (TracedOperation, Transfer))
    return replace(step, operations=[*step.operations, *operations], transfers=[*step.transfers, *transfers])


def two_layers(**changes):
    """Times in us; the phases follow by eye."""
    operations = [
        op("a", [], 0, 1, task=SERVER, kind="VariableV2"),
        op("b", [], 0, 1, task=SERVER, kind="VariableV2"),
        op("a/read", ["a"], 1, 2, task=SERVER, kind="Identity"),
        op("b/read", ["b"], 1, 2, task=SERVER, kind="Identity"),
        op("slice", ["b/read_S3"], 21_000, 21_004, kind="StridedSlice"),
        op("fwd_a", ["a/read_S1"], 11_000, 31_000),
        op("add", ["fwd_a", "slice"], 31_000, 31_002, kind="AddV2"),
        op("fwd_b", ["add"], 31_002, 41_000),
        op("bwd_b", ["fwd_b"], 41_000, 61_000),
        op("grad_b", ["bwd_b"], 61_000, 61_003, kind="Mul"),
        op("bwd_a", ["bwd_b"], 61_003, 71_000),
        op("apply_b", ["b", "grad_b_S5"], 81_000, 82_000, task=SERVER, kind="AssignSub"),
        op("apply_a", ["a", "bwd_a_S7"], 91_000, 93_000, task=SERVER, kind="AssignSub"),
        op("done", ["apply_a", "apply_b"], 93_000, 93_001, task=SERVER, kind="NoOp"),
    ]
    transfers = [
        fetch("a/read", 1_000, 11_000, 400_000),
        fetch("b/read", 1_000, 21_000, 100_000),
        push("grad_b", 61_003, 81_000, 100_000),
        push("bwd_a", 71_000, 91_000, 400_000),
    ]
    return replace(TracedStep("step", operations, transfers), **changes)


def in_order(step):
    """No operation starts before those that it waits for have ended."""
    return all(o.start >= step.operations[a].end - 1e-5 for o in step.operations for a in o.after)


def only(step):
    (found,) = derive([step]).steps
    return found


def test_bytes_count_per_transfer():
    """What servers send each other is no push."""
    again = op("a/read_again", ["a"], 1, 2, task=SERVER, kind="Identity")
    derived = derive([also(two_layers(), again, fetch("a/read_again", 1_000, 20_000, 400_000))])
    assert derived.steps[0].fetched_bytes == 900_000
    assert (derived.shard_bytes, derived.tensors) == ([500_000], 2)
    other = op("c/read", [], 1, 2, task="ps:10", kind="Identity")
    own = Transfer("c/read", "ps:10", SERVER, START + 2, START + 50_000, 8)
    found = only(also(two_layers(), other, fetch("c/read", 1_000, 2_000, 4, server="ps:10"), own))
    assert (found.pushed_bytes, found.push) == (500_000, pytest.approx(0.029997))


def test_control_messages_have_no_bytes():
    found = only(also(two_layers(), push("fwd_a", 31_000, 60_000, 0)))
    assert found.push == pytest.approx(0.029997)
    (message,) = [o for o in found.operations if (o.name, o.kind) == ("fwd_a", "push")]
    assert (message.bytes, [found.operations[a].name for a in message.after]) == (0, ["fwd_a"])


def test_loops_run_an_operation_many_times():
    """As a recurrent layer reads its weights under one name again; two that wait for each other are cut."""
    again = op("a/read", ["a"], 50_000, 50_001, task=SERVER, kind="Identity")
    found = only(also(two_layers(), again, fetch("a/read", 50_001, 55_000, 400_000)))
    assert found.fetch == pytest.approx(0.020 + 0.004999)
    assert found.fetched_bytes == 900_000
    assert in_order(found)  # what began before the second arrival does not wait for it
    enter, following = op("enter", ["a/read_S1", "next"], 62_000, 65_000), op("next", ["enter"], 65_000, 70_000)
    circle = only(also(two_layers(), following, enter, push("enter", 70_000, 80_000, 8)))
    assert in_order(circle)
    names = [o.name for o in circle.operations]
    (after,) = [o.after for o in circle.operations if o.name == "next"]
    assert [names[a] for a in after] == ["enter"]


# clocks and times


def shifted(step, by):
    operations = [replace(o, start=o.start + by, end=o.end + by) for o in step.operations]
    transfers = [replace(t, start=t.start + by, end=t.end + by) for t in step.transfers]
    return replace(step, operations=operations, transfers=transfers)


def test_impossible_clocks_are_refused():
    fetched, other, pushed, last = two_layers().transfers
    early = replace(pushed, start=START + 100, end=START + 200)  # received 61 ms before it was made
    said = r"^step: the clocks of worker:0 and ps:0 do not match: .* up to 0.049805 s .*NTP"
    with pytest.raises(DataError, match=said):
        derive([two_layers(transfers=[fetched, other, early, last])])


def test_step_time_includes_plausible_pauses():
    """A pause after every step of one recording is the job's own; what comes once, or between files, is not."""
    steps = [two_layers(), shifted(two_layers(), 95_000), shifted(two_layers(), 1_000_000)]
    paced = [shifted(two_layers(), k * 153_000 + 400_000 * (k > 2)) for k in range(5)]
    for some, each in (
        (steps, 0.095),
        (steps[::-1], 0.095),
        ([replace(s, collection=1_000) for s in steps], 0.094),
        ([replace(s, collection=10_000) for s in steps], 0.093001 + 0.001999 / 4),
        (paced, 0.153),
        ([step("s0", 0), step("s1", 15_000)], 0.015),  # 5 ms, or a tenth of the step
        ([step("s0", 0), step("s1", 15_001)], 0.010),
        ([replace(steps[0], where="s0"), shifted(two_layers(), 102_301)], 0.102301),
        ([replace(steps[0], where="s0"), shifted(two_layers(), 102_302)], 0.093001),
        ([replace(s, where=f"step {k}") for k, s in enumerate(paced)], 0.093001),
    ):
        assert [s.step_time for s in derive(some).steps] == pytest.approx([each] * len(some))


# a job whose every number is its own, on two servers


def random_step(rng, begins, asked, worker=WORKER, part=1):
    """A step as it happened, and what must be found: phases by a row of microseconds, operations by what was drawn."""
    made, least, at = [2, 4, 7, 5], {"ps:2": 9_000, "ps:10": 14_000}, ["ps:2", "ps:10", "ps:10", "ps:2"]
    sizes = [size // part for size in (52_000, 3_300_000, 4_000, 700_000)]
    longer = rng.integers(1, 9_000, (2, 4)) * [[0, 0, 1, 1], [1, 1, 0, 0]]  # one of each server takes its least time
    fetched = [made[k] + least[at[k]] + longer[0, k] for k in range(4)]
    ops, sent, found, now = [op("batch", [], 0, 7_500, task=worker, kind="IteratorGetNextSync")], [], {}, 7_500
    found["compute", "batch"] = 0, 7_500, 0, 0, set()
    for k, server in enumerate(at):
        ops.append(op(f"v{k}", [], 0, 1, task=server, kind="VariableV2"))
        ops.append(op(f"v{k}/read", [f"v{k}"], 1, made[k], task=server))
        sent.append(fetch(f"v{k}/read", made[k] + asked, fetched[k], sizes[k], server=server, worker=worker))
        begin, now = max(now, fetched[k]), max(now, fetched[k]) + int(rng.integers(8_000, 20_000))
        before = f"f{k - 1}" if k else "batch"
        ops.append(op(f"f{k}", [f"v{k}/read_S1", before], begin, now, task=worker))
        found["fetch", f"v{k}/read"] = made[k] + asked, fetched[k], sizes[k], at[k] == "ps:10", set()
        found["compute", f"f{k}"] = begin, now, 0, 0, {("fetch", f"v{k}/read"), ("compute", before)}
    for k in (3, 2, 1, 0):
        begin, now = now, now + int(rng.integers(8_000, 20_000))
        implied = f"v{k}/read_S1", f"f{k}"
        ops.append(op(f"b{k}", [f"b{k + 1}" if k < 3 else "f3", *implied], begin, now, task=worker))
        found["compute", f"b{k}"] = begin, now, 0, 0, {("compute", f"b{k + 1}")}
        ready = now + 3 * (k == 1)
        if k == 1:
            ops.append(op("g1", ["b1"], now, ready, task=worker, kind="Cast"))  # negligible
        name, end = "g1" if k == 1 else f"b{k}", ready + least[at[k]] + int(longer[1, k])
        sent.append(Transfer(name, worker, at[k], START + ready + asked, START + end, sizes[k] + k))
        ops.append(op(f"u{k}", [f"v{k}", f"{name}_S7"], end, end + 700 * (k + 1), task=at[k], kind="AssignSub"))
        found["push", name] = ready + asked, end, sizes[k] + k, at[k] == "ps:10", {("compute", f"b{k}")}
        found["update", f"u{k}"] = end, end + 700 * (k + 1), 0, at[k] == "ps:10", {("push", name)}
    (begin, _, *_, after), (middle, end, *_) = found.pop(("compute", "f3")), found.pop(("compute", "b3"))
    name = "f3" if middle - begin > end - middle else "b3"  # both wait for the same, and the same waits for both
    renamed = {("compute", "b3"): ("compute", name)}
    found = {key: (*own, {renamed.get(a, a) for a in waits}) for key, (*own, waits) in found.items()}
    found["compute", name] = begin, end, 0, 0, after
    order = rng.permutation(len(ops))
    step = TracedStep(f"{begins}", [ops[i] for i in order], [sent[i] for i in rng.permutation(8)])
    return shifted(step, begins), found


def covered(found, *kinds):
    """Which microseconds any of these lasts."""
    row = np.zeros(400_000, bool)
    for (kind, _), (begin, end, *_) in found.items():
        row[begin:end] |= kind in kinds
    return row


def as_recorded(step, clocks, asked):
    """By each task's clock; ``asked``: how long after a tensor was ready it was asked for, as is recorded above 0."""
    at = {WORKER: 0, "worker:1": 0, **clocks}
    operations = [replace(o, start=o.start + at[o.task], end=o.end + at[o.task]) for o in step.operations]
    transfers = []
    for t in step.transfers:
        start, end, behind = t.start + at[t.source], t.end + at[t.destination], at[t.destination]
        asking = {"start": start - asked, "requested": t.start + behind}
        mixed = {"start": min(max(start, t.start + behind), end - 1)}
        transfers.append(replace(t, end=end, **(asking if asked else mixed)))
    return replace(step, operations=operations, transfers=transfers)


@pytest.mark.parametrize("asked", [0, 40])
@pytest.mark.parametrize(
    ("two", "ten"),
    [((0, 0, 0), (0, 0, 0)), ((-70_000,) * 3, (3_600_000_000,) * 3), ((9_201,) * 3, (-14_201,) * 3),
     ((0, 300_000, 0), (60_000, -50_000, 20_000))],
    ids=["one clock", "far", "just apart", "drifting"],
)  # fmt: skip
def test_random_job_is_recovered_exactly(two, ten, asked):
    """Three of one worker, one of which has lost a push, and another's; the last two pauses are not the job's."""
    rng, begins, recorded, truth, times = np.random.default_rng(7), 0, [], [], []
    for k, (pause, collection, own) in enumerate([(3_000, 1_000, 2_000), (12_000, 11_500, 3_000), (10**7, 0, 2_500)]):
        step, found = random_step(rng, begins, asked)
        if k == 1:
            step = replace(step, transfers=[t for t in step.transfers if t.tensor != "b0"])
            found["push", "b0"] = (found["push", "b0"][0] - asked, *found["push", "b0"][1:])
        for part in (step, random_step(rng, begins + 60_000, asked, worker="worker:1", part=2)[0]):
            part = as_recorded(part, {"ps:2": two[k], "ps:10": ten[k]}, asked)
            recorded.append(replace(part, collection=collection))
        truth.append(found)
        times.append((max(end for _, end, *_ in found.values()) + own) / 1e6)
        begins += max(end for _, end, *_ in found.values()) + pause
    derived = derive(recorded[::-1])
    assert (derived.workers, derived.servers, derived.tensors) == (2, ["ps:2", "ps:10"], 4)
    assert derived.input == pytest.approx(3 * 7.5e-3 / sum(times))
    shards = [sum(o[2] for (kind, _), o in found.items() if kind == "fetch" and o[3] == s) for s in (0, 1)]
    assert derived.shard_bytes == shards
    for step, time, found in zip(derived.steps, times, truth, strict=True):
        names = [(o.kind, o.name) for o in step.operations]
        told = [(o.start * 1e6, o.end * 1e6, o.bytes, o.server, {names[a] for a in o.after}) for o in step.operations]
        assert len(found) == len(names)
        assert [one[2:] for one in told] == [found[name][2:] for name in names]
        np.testing.assert_allclose([one[:2] for one in told], [found[name][:2] for name in names], atol=1e-3)
        computing, sending = covered(found, "compute"), covered(found, "fetch", "push")
        phases = [covered(found, kind).sum() for kind in ("fetch", "compute", "push", "update")]
        assert 1e6 * np.array([step.fetch, step.compute, step.push, step.update]) == pytest.approx(phases)
        assert (step.step_time, step.overlap) == pytest.approx((time, (computing & sending).sum() / 1e6))
        for kind, moved in (("fetch", step.fetched_bytes), ("push", step.pushed_bytes)):
            assert moved == sum(own[2] for (one, _), own in found.items() if one == kind)


@pytest.mark.parametrize(("pause", "late", "names"), [(500, 100, "x"), (501, 100, "xy"), (500, 101, "xy")])
def test_computations_are_cut_at_waits(pause, late, names):
    """Pauses of 0.5 ms and waits of 0.1 ms are none; what is together has the name of the longest."""
    step = [op("w", [], 0, 1, task=SERVER, kind="VariableV2"), op("batch", [], 0, 1_000 + late, kind="IteratorGetNext"),
            op("x", ["w_S1"], 1_000, 2_000), op("y", ["x", "batch"], 2_000 + pause, 2_900 + pause)]  # fmt: skip
    found = only(TracedStep("step", step, [fetch("w", 2, 1_000, 8), push("y", 3_500, 4_000, 8)])).operations
    assert "".join(sorted(o.name for o in found if o.kind == "compute")) == "batch" + names


# one job, each step once


def step(where, begins, *, worker=WORKER, size=4_000, names="abc", read="Identity"):
    """A fetch of a variable, computation, a push and its update, in 10 ms."""
    at = [
        op("w", [], 0, 1, task=SERVER, kind="VariableV2"),
        op("w/read", ["w"], 1, 2, task=SERVER, kind=read),
        *(op(name, ["w/read_S1"], 1_000, 9_000, task=worker) for name in names),
        op("apply", ["w", f"{names[0]}_S2"], 9_500, 10_000, task=SERVER, kind="AssignSub"),
    ]
    moved = fetch("w/read", 2, 1_000, size, worker=worker), push(names[0], 9_000, 9_500, size, worker=worker)
    return shifted(TracedStep(where, at, moved), begins)


def test_what_is_one_job():
    for pace in (10_500, 9_900):  # the server's end overlaps the next step
        assert len(derive([step(f"s{k}", k * pace) for k in range(5)]).steps) == 5
    for other in (step("s1", 4_000), step("s1", 10_500, names="ABC")):  # half of it, and half of the operations
        assert len(derive([step("s0", 0), other]).steps) == 2
    looked_up = [step("s0", 0, read="GatherV2"), step("s1", 10_500, read="GatherV2", size=5_000)]
    assert [s.fetched_bytes for s in derive(looked_up).steps] == [4_000, 5_000]
    assert len(derive([step("s0", 0, names="abcd"), step("s1", 10_500, names="abce")]).steps) == 2  # a branch
    alone = [step(f"s{k}", k * 10_500) for k in range(3)]
    others = [step(f"o{k}", k * 10_500 + 4_000, worker="worker:1", size=3_000) for k in range(3)]
    both = derive([*alone, *[replace(s, transfers=s.transfers[1:]) for s in others]])
    assert (derive(alone).workers, both.workers) == (1, 2)
    assert both.steps == derive(alone).steps


@pytest.mark.parametrize(("steps", "said"), [
    ([step("s0", 0), step("s1", 3_000)], "s1: worker:0 runs this step while it runs s0: two jobs, or clocks"),
    ([step("s0", 0), step("s1", 3_999)], "s1: worker:0 runs this step while it runs s0"),  # more than half
    ([step("s0", 0, names="abcd"), step("s1", 10_500, names="ABCD")], "s1: another job than s0"),  # 3 of 7
    ([step("s0", 0), step("s1", 0)], "s1: the same step as s0"),
    ([step("s0", 0, names="abcdefg"), step("s1", 10_500, names="ABCDEFG")],
     "s1: another job than s0: they have 3 operations in common"),
    ([two_layers(transfers=[])], "step: no RecvTensor"),
    ([two_layers(operations=[op("x", [], 0, 1)], transfers=[])], r"step: .*only one task \(worker:0\)"),
    ([two_layers(transfers=[replace(fetch("a/read", 0, 1, 4), source="master:0")])],
     "step: .*expected parameter servers in job 'ps'"),
    ([two_layers(transfers=[replace(fetch("a/read", 0, 1, 4), destination="ps:1")])],
     "step: .*expected parameter servers in job"),
])  # fmt: skip
def test_what_is_no_job_is_refused(steps, said):
    with pytest.raises(DataError, match=f"^{said}"):
        derive(steps)
