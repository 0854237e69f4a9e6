"""Phases, clocks, bytes and dependencies of hand-made steps: known schedules, laws, and what is refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_a_known_schedule_has_its_phases_and_dependencies():
    """Of a computation with what waits for the same, as bwd_b with fwd_b; what is implied by the rest is left out."""
    derived, whole = derive([two_layers()]), two_layers()
    (step,) = derived.steps
    assert (step.fetch, step.compute, step.push) == pytest.approx((0.020, 0.060, 0.029997))  # the slice is in fwd_a
    assert (step.update, step.step_time) == pytest.approx((0.003, 0.093001))
    assert step.overlap == pytest.approx(0.010 + 0.009997)  # fwd_a with b's fetch, bwd_a with b's push
    assert (step.fetched_bytes, step.pushed_bytes) == (500_000, 500_000)
    assert (derived.workers, derived.servers, derived.shard_bytes, derived.tensors) == (1, [SERVER], [500_000], 2)
    direct = replace(whole.operations[8], inputs=("fwd_b", "a/read_S1", "b/read_S3", "fwd_a", "beside"))
    beside = op("beside", ["add"], 31_500, 31_600)  # ends long before what it runs beside, and before what follows
    for one in (whole, replace(whole, operations=[*whole.operations[:8], beside, direct, *whole.operations[9:]])):
        operations = only(one).operations
        assert {(o.kind, o.name): {operations[a].name for a in o.after} for o in operations} == {
            ("fetch", "a/read"): set(), ("fetch", "b/read"): set(), ("compute", "fwd_a"): {"a/read"},
            ("compute", "bwd_b"): {"fwd_a", "b/read"}, ("compute", "bwd_a"): {"bwd_b"},
            ("push", "grad_b"): {"bwd_b"},  # the computation of this name is negligible
            ("push", "bwd_a"): {"bwd_a"}, ("update", "apply_b"): {"grad_b"}, ("update", "apply_a"): {"bwd_a"},
        }  # fmt: skip
        assert in_order(only(one))
        (merged,) = [o for o in operations if o.name == "bwd_b"]
        assert (merged.start, merged.end) == pytest.approx((0.031, 0.061))


spans = st.tuples(st.integers(10, 300), st.integers(1, 150)).map(lambda p: (p[0], sum(p)))


@given(st.lists(spans, min_size=1, max_size=6), st.lists(spans, max_size=6), st.lists(spans, max_size=6), st.data())
def test_phases_cover_each_microsecond_once(fetches, computes, pushes, data):
    """Counted one by one; computation of a task is united, and what carries no bytes is no transfer."""
    sizes = [data.draw(st.integers(0, 9)) for _ in (*fetches, *pushes)]
    made = [op(f"f{i}", [], 0, 1, task=SERVER, kind="VariableV2") for i in range(len(fetches))]
    made += [op(f"p{i}", [], 0, 1, kind="NoOp") for i in range(len(pushes))]
    step = TracedStep("step", [*made, *(op(f"c{i}", [], *span) for i, span in enumerate(computes))], [
        *(fetch(f"f{i}", *span, size) for i, (span, size) in enumerate(zip(fetches, sizes, strict=False))),
        *(push(f"p{i}", *span, size) for i, (span, size) in enumerate(zip(pushes, sizes[len(fetches):], strict=True))),
    ])  # fmt: skip

    def points(some, sizes):
        return {x for (start, end), size in zip(some, sizes, strict=False) if size for x in range(start, end)}

    fetching, pushing = points(fetches, sizes), points(pushes, sizes[len(fetches) :])
    computing, found = points(computes, [1] * len(computes)), only(step)
    assert (found.fetch, found.compute, found.push) == pytest.approx(
        (len(fetching) / 1e6, len(computing) / 1e6, len(pushing) / 1e6), abs=1e-9
    )
    assert found.overlap == pytest.approx(len(computing & (fetching | pushing)) / 1e6, abs=1e-9)
    kept = sum(o.end - o.start for o in found.operations if o.kind == "compute")
    assert kept >= 0.995 * found.compute - 1e-9
    assert sum(o.bytes for o in found.operations if o.kind == "fetch") == found.fetched_bytes


def test_what_is_sent_counts_each_time_and_a_parameter_once():
    """Servers are numbered by task, and what they send each other is no push."""
    again = op("a/read_again", ["a"], 1, 2, task=SERVER, kind="Identity")
    derived = derive([also(two_layers(), again, fetch("a/read_again", 1_000, 20_000, 400_000))])
    assert derived.steps[0].fetched_bytes == 900_000
    assert (derived.shard_bytes, derived.tensors) == ([500_000], 2)
    other = op("c/read", [], 1, 2, task="ps:10", kind="Identity")
    own = Transfer("c/read", "ps:10", SERVER, START + 2, START + 50_000, 8)
    derived = derive([also(two_layers(), other, fetch("c/read", 1_000, 2_000, 4, server="ps:10"), own)])
    assert (derived.servers, derived.shard_bytes) == (["ps:0", "ps:10"], [500_000, 4])
    assert (derived.steps[0].pushed_bytes, derived.steps[0].push) == (500_000, pytest.approx(0.029997))
    assert [o.server for o in derived.steps[0].operations if o.name == "c/read"] == [1]


def test_control_messages_are_dependencies_only_and_lost_transfers_are_put_back():
    whole = two_layers()
    found = only(also(whole, push("fwd_a", 31_000, 60_000, 0)))
    assert found.push == pytest.approx(0.029997)
    (message,) = [o for o in found.operations if (o.name, o.kind) == ("fwd_a", "push")]
    assert (message.bytes, [found.operations[a].name for a in message.after]) == (0, ["fwd_a"])
    again = op("again", ["grad_b_S5"], 85_000, 85_001, task=SERVER)  # it was there when its first user began
    lossy = also(replace(whole, transfers=[t for t in whole.transfers if t.tensor != "grad_b"]), again)
    steps = derive([whole, shifted(lossy, 100_000)]).steps
    assert [s.pushed_bytes for s in steps] == [500_000, 500_000]
    assert steps[1].push == pytest.approx(steps[0].push, abs=1e-5)
    assert [o.end for o in steps[1].operations if (o.kind, o.name) == ("push", "grad_b")] == [pytest.approx(0.081)]


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


def shifted(step, by, task=None):
    """The step ``by`` us later; with a task, only what its clock shows, as TensorFlow would have recorded it."""
    first, transfers = step.span[0], []
    for t in step.transfers:
        ahead, behind = ((by if task in (None, own) else 0) for own in (t.source, t.destination))
        start, end = t.start + ahead, t.end + behind
        if task:
            start = min(max(start, first + behind), end - 1)
        transfers.append(replace(t, start=start, end=end))
    operations = [
        replace(o, start=o.start + by, end=o.end + by) if task in (None, o.task) else o for o in step.operations
    ]
    return replace(step, operations=operations, transfers=transfers)


@pytest.mark.parametrize("offset", [-3_600_000_000, -50_000, 150, 50_000, 3_600_000_000])
def test_clocks_that_differ_are_brought_together(offset):
    """From below by the fetch that took 10 ms from being made, from above by a push of 20 ms: halfway."""
    true, got = only(two_layers()), only(shifted(two_layers(), offset, SERVER))
    assert got.compute == true.compute
    for name in ("fetch", "push", "overlap", "step_time"):
        assert getattr(got, name) == pytest.approx(getattr(true, name), abs=0.012)
    if offset == 150:
        assert (got.fetch, got.push) == pytest.approx((true.fetch - 150e-6, true.push + 150e-6), rel=1e-9)


def test_clocks_that_drift_are_matched_step_by_step_and_impossible_ones_refused():
    steps = derive([shifted(shifted(two_layers(), k * 10**6), k * 200_000, SERVER) for k in range(5)]).steps
    assert [s.compute for s in steps] == [steps[0].compute] * 5
    assert [s.push for s in steps] == pytest.approx([steps[0].push] * 5, abs=0.012)
    fetched, other, pushed, last = two_layers().transfers
    early = replace(pushed, start=START + 100, end=START + 200)  # received 61 ms before it was made
    said = r"^step: the clocks of worker:0 and ps:0 do not match: .* up to 0.049805 s .*NTP"
    with pytest.raises(DataError, match=said):
        derive([two_layers(transfers=[fetched, other, early, last])])


def test_step_time_runs_to_the_next_start_where_the_pause_is_plausible():
    """A pause after every step of one recording is the job's own; what comes once, or between files, is not."""
    steps = [two_layers(), shifted(two_layers(), 95_000), shifted(two_layers(), 1_000_000)]
    paced = [shifted(two_layers(), k * 153_000 + 400_000 * (k > 2)) for k in range(5)]
    for some, each in (
        (steps, 0.095),
        (steps[::-1], 0.095),
        ([replace(s, collection=1_000) for s in steps], 0.094),
        ([replace(s, collection=10_000) for s in steps], 0.093001 + 0.001999 / 4),
        (paced, 0.153),
        ([replace(s, where=f"step {k}") for k, s in enumerate(paced)], 0.093001),
    ):
        assert [s.step_time for s in derive(some).steps] == pytest.approx([each] * len(some))


def test_a_graph_of_thousands_of_operations_stays_compact():
    layers, last = 150, "w0_S1"
    operations = [op(f"w{k}", [], 0, 1, task=SERVER, kind="ReadVariableOp") for k in range(layers)]
    transfers = [fetch(f"w{k}", 2, 1_000, 4_000) for k in range(layers)]
    chain = [f"{way}{k}_{i}" for way in "lg" for k in range(layers)[:: 1 if way == "l" else -1] for i in range(10)]
    for number, name in enumerate(chain):
        begin, layer = 1_000 + 20 * number, name[1:].partition("_")[0]
        operations.append(op(name, [last, *[f"w{layer}_S1"] * name.startswith("l")], begin, begin + 20))
        last = name
        if name.startswith("g") and name.endswith("_9"):
            transfers.append(push(name, begin + 20, begin + 520, 4_000))
            operations.append(op(f"u{layer}", [f"{name}_S2"], begin + 520, begin + 530, task=SERVER, kind="ApplyAdam"))
    step = only(TracedStep("big", operations, transfers))
    kinds = [o.kind for o in step.operations]
    assert [kinds.count(k) for k in ("fetch", "compute", "push", "update")] == [layers, 2 * layers - 2, layers, layers]
    kept = sum(o.end - o.start for o in step.operations if o.kind == "compute")
    assert kept / step.compute == pytest.approx(1 - 1 / 300)  # one of 300 equal ones is negligible, not two
    assert all(len(o.after) <= 2 for o in step.operations)


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
    looked_up = [step("s0", 0, read="GatherV2"), step("s1", 10_500, read="GatherV2", size=5_000)]
    assert [s.fetched_bytes for s in derive(looked_up).steps] == [4_000, 5_000]
    assert len(derive([step("s0", 0, names="abcd"), step("s1", 10_500, names="abce")]).steps) == 2  # a branch
    alone = [step(f"s{k}", k * 10_500) for k in range(3)]
    others = [step(f"o{k}", k * 10_500 + 4_000, worker="worker:1", size=3_000) for k in range(3)]
    both = derive([*alone, *[replace(s, transfers=s.transfers[1:]) for s in others]])
    assert (derive(alone).workers, both.workers) == (1, 2)
    assert both.steps == derive(alone).steps


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([step("s0", 0), step("s1", 3_000)], "s1: worker:0 runs this step while it runs s0: two jobs, or clocks"),
        ([step("s0", 0), step("s1", 0)], "s1: the same step as s0"),
        ([step("s0", 0, names="abcdefg"), step("s1", 10_500, names="ABCDEFG")],
         "s1: another job than s0: they have 3 operations in common"),
        ([two_layers(transfers=[])], "step: no RecvTensor"),
        ([two_layers(operations=[op("x", [], 0, 1)], transfers=[])], r"step: .*only one task \(worker:0\)"),
        ([two_layers(transfers=[replace(fetch("a/read", 0, 1, 4), source="master:0")])],
         "step: .*expected parameter servers in job 'ps'"),
        ([two_layers(transfers=[replace(fetch("a/read", 0, 1, 4), destination="ps:1")])],
         "step: .*expected parameter servers in job"),
    ],
)  # fmt: skip
def test_what_is_no_job_is_refused(steps, said):
    with pytest.raises(DataError, match=f"^{said}"):
        derive(steps)
