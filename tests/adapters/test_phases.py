"""Phases, clocks, bytes and dependencies from intervals: known schedules, and the laws of unions."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuemodel import DataError
from queuemodel.adapters.events import TracedOperation, TracedStep, Transfer, intersection, length, union
from queuemodel.adapters.phases import derive

WORKER, SERVER = "worker:0", "ps:0"
START = 1_700_000_000_000_000  # us since 1970, as TensorFlow writes them


def op(name, inputs, start, end, *, task=WORKER, kind="MatMul"):
    return TracedOperation(task, name, kind, tuple(inputs), START + start, START + end)


def fetch(tensor, start, end, size, *, server=SERVER):
    return Transfer(tensor, server, WORKER, START + start, START + end, size)


def push(tensor, start, end, size, *, server=SERVER):
    return Transfer(tensor, WORKER, server, START + start, START + end, size)


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


def test_a_known_schedule_has_its_phases():
    derived = derive([two_layers()])
    (step,) = derived.steps
    assert step.fetch == pytest.approx(0.020)
    assert step.compute == pytest.approx(0.060)  # without a gap: the slice lies within fwd_a
    assert step.push == pytest.approx(0.029997)
    assert step.update == pytest.approx(0.003)
    assert step.overlap == pytest.approx(0.010 + 0.009997)  # fwd_a with b's fetch, bwd_a with b's push
    assert step.step_time == pytest.approx(0.093001)
    assert (step.fetched_bytes, step.pushed_bytes) == (500_000, 500_000)
    assert (derived.workers, derived.servers, derived.shard_bytes, derived.tensors) == (1, [SERVER], [500_000], 2)


def test_a_known_schedule_has_its_dependencies():
    (step,) = derive([two_layers()]).steps
    names = [o.name for o in step.operations]
    waits = {o.name: {names[a] for a in o.after} for o in step.operations}
    assert waits == {
        "a/read": set(),
        "b/read": set(),
        "fwd_a": {"a/read"},
        "bwd_b": {"fwd_a", "b/read"},  # with fwd_b and the addition, which wait for the same
        "grad_b": {"bwd_b"},  # the push; the computation of this name is negligible
        "bwd_a": {"bwd_b"},
        "apply_b": {"grad_b"},
        "apply_a": {"bwd_a"},
    } | {"bwd_a": waits["bwd_a"]}
    by_kind = {(o.kind, o.name): o for o in step.operations}
    assert [names[a] for a in by_kind["push", "bwd_a"].after] == ["bwd_a"]
    assert by_kind["compute", "bwd_b"].start == pytest.approx(0.031)
    assert by_kind["compute", "bwd_b"].end == pytest.approx(0.061)
    assert sum(o.end - o.start for o in step.operations if o.kind == "compute") == pytest.approx(
        step.compute, rel=0.005
    )


def test_no_operation_starts_before_those_it_waits_for_have_ended():
    (step,) = derive([two_layers()]).steps
    for o in step.operations:
        assert all(o.start >= step.operations[a].end - 1e-5 for a in o.after)


def test_what_is_implied_by_the_rest_is_left_out():
    step = two_layers()
    direct = replace(step.operations[8], inputs=("fwd_b", "a/read_S1", "b/read_S3", "fwd_a"))
    step = replace(step, operations=[*step.operations[:8], direct, *step.operations[9:]])
    assert [o.after for o in derive([step]).steps[0].operations] == [
        o.after for o in derive([two_layers()]).steps[0].operations
    ]


def test_a_parameter_read_twice_is_fetched_twice_and_counted_once():
    step = two_layers()
    again = op("a/read_again", ["a"], 1, 2, task=SERVER, kind="Identity")
    step = replace(
        step,
        operations=[*step.operations, again],
        transfers=[*step.transfers, fetch("a/read_again", 1_000, 20_000, 400_000)],
    )
    derived = derive([step])
    assert derived.steps[0].fetched_bytes == 900_000
    assert (derived.shard_bytes, derived.tensors) == ([500_000], 2)


def test_servers_are_numbered_by_task_and_their_own_exchange_is_no_push():
    step = two_layers()
    other = op("c/read", [], 1, 2, task="ps:10", kind="Identity")
    step = replace(
        step,
        operations=[*step.operations, other],
        transfers=[
            *step.transfers,
            fetch("c/read", 1_000, 2_000, 4, server="ps:10"),
            Transfer("c/read", "ps:10", SERVER, START + 2, START + 50_000, 8),
        ],
    )
    derived = derive([step])
    assert derived.servers == ["ps:0", "ps:10"]
    assert derived.shard_bytes == [500_000, 4]
    assert derived.steps[0].pushed_bytes == 500_000
    assert derived.steps[0].push == pytest.approx(0.029997)


def test_a_control_message_is_no_transmission_but_a_dependency():
    step = two_layers()
    step = replace(step, transfers=[*step.transfers, push("fwd_a", 31_000, 60_000, 0)])
    derived = derive([step])
    assert derived.steps[0].push == pytest.approx(0.029997)
    assert [o.bytes for o in derived.steps[0].operations if o.name == "fwd_a"] == [0, 0]


def test_a_transfer_that_the_recorder_lost_is_put_back():
    whole = two_layers()
    lossy = replace(whole, transfers=[t for t in whole.transfers if t.tensor != "grad_b"])
    derived = derive([whole, shifted(lossy, 100_000)])
    assert [s.pushed_bytes for s in derived.steps] == [500_000, 500_000]
    assert derived.steps[1].push == pytest.approx(derived.steps[0].push, abs=1e-5)


def shifted(step, by, task=None):
    """The step ``by`` us later; with a task, only what its clock shows, as TensorFlow would have recorded it."""
    if task is None:
        return replace(
            step,
            operations=[replace(o, start=o.start + by, end=o.end + by) for o in step.operations],
            transfers=[replace(t, start=t.start + by, end=t.end + by) for t in step.transfers],
        )
    first = step.span[0]
    transfers = []
    for t in step.transfers:
        sent = t.start + (by if t.source == task else 0)
        requested = first + (by if t.destination == task else 0)
        end = t.end + (by if t.destination == task else 0)
        transfers.append(replace(t, start=min(max(sent, requested), end - 1), end=end))
    return replace(
        step,
        operations=[replace(o, start=o.start + by, end=o.end + by) if o.task == task else o for o in step.operations],
        transfers=transfers,
    )


@pytest.mark.parametrize("offset", [-3_600_000_000, -50_000, 50_000, 3_600_000_000])
def test_clocks_that_differ_are_brought_together(offset):
    derived = derive([shifted(two_layers(), offset, SERVER)])
    # from below by the fetch that took 10 ms from being made, from above by a push of 20 ms: halfway
    true, got = derive([two_layers()]).steps[0], derived.steps[0]
    assert got.compute == true.compute
    assert got.overlap == pytest.approx(true.overlap, abs=0.012)
    assert got.step_time == pytest.approx(true.step_time, abs=0.012)


def test_clocks_within_the_bounds_are_left_alone():
    true, got = (derive([shifted(two_layers(), by, SERVER)]).steps[0] for by in (0, 150))
    assert (got.fetch, got.push) == pytest.approx((true.fetch - 150e-6, true.push + 150e-6), rel=1e-9)


def test_clocks_that_drift_are_matched_step_by_step():
    steps = [shifted(shifted(two_layers(), k * 10**6), k * 200_000, SERVER) for k in range(5)]
    times = [s.compute for s in derive(steps).steps]
    assert times == [times[0]] * 5


def test_clocks_that_no_offset_can_match_are_refused():
    step = two_layers()
    early = replace(step.transfers[2], start=START + 100, end=START + 200)  # received 61 ms before it was made
    step = replace(step, transfers=[*step.transfers[:2], early, step.transfers[3]])
    with pytest.raises(DataError, match=r"^step: the clocks of worker:0 and ps:0 do not match: .*NTP"):
        derive([step])


def test_a_loop_that_fetches_in_every_round_is_no_clock_that_runs_ahead():
    """As a recurrent layer reads its weights: under one name, again after the first have arrived."""
    step = two_layers()
    again = [*step.operations, op("a/read", ["a"], 50_000, 50_001, task=SERVER, kind="Identity")]
    looped = replace(step, operations=again, transfers=[*step.transfers, fetch("a/read", 50_001, 55_000, 400_000)])
    (found,) = derive([looped]).steps
    assert found.fetch == pytest.approx(0.020 + 0.004999)
    assert found.fetched_bytes == 900_000


def test_step_time_runs_to_the_next_start_where_the_pause_is_plausible():
    steps = [two_layers(), shifted(two_layers(), 95_000), shifted(two_layers(), 1_000_000)]
    assert [s.step_time for s in derive(steps).steps] == pytest.approx([0.095, 0.095, 0.095])
    collected = [replace(s, collection=1_000) for s in steps]
    assert [s.step_time for s in derive(collected).steps] == pytest.approx([0.094, 0.094, 0.094])
    assert derive(steps[:1]).steps[0].step_time == pytest.approx(0.093001)


def test_a_pause_after_every_step_of_one_recording_is_the_jobs_own():
    """A coordinator does something else for 60 ms after each; what comes once, or between files, is told from it."""
    steps = [shifted(two_layers(), k * 153_000 + 400_000 * (k > 2)) for k in range(5)]
    assert [s.step_time for s in derive(steps).steps] == pytest.approx([0.153] * 5)
    files = [replace(step, where=f"step {k}") for k, step in enumerate(steps)]
    assert [s.step_time for s in derive(files).steps] == pytest.approx([0.093001] * 5)


def test_the_order_of_the_files_does_not_matter():
    steps = [shifted(two_layers(), k * 95_000) for k in range(3)]
    assert derive(steps[::-1]).steps == derive(steps).steps


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transfers": []}, "no RecvTensor"),
        ({"operations": [op("x", [], 0, 1)], "transfers": []}, r"only one task \(worker:0\)"),
        (
            {"transfers": [replace(fetch("a/read", 0, 1, 4), source="master:0")]},
            "expected parameter servers in job 'ps'",
        ),
        ({"transfers": [replace(fetch("a/read", 0, 1, 4), destination="ps:1")]}, "expected parameter servers in job"),
    ],
)
def test_a_trace_without_worker_server_or_transfers_is_refused(changes, message):
    with pytest.raises(DataError, match=f"^step: .*{message}"):
        derive([two_layers(**changes)])


def test_a_graph_of_thousands_of_operations_stays_compact():
    layers, small = 40, 50
    operations, transfers, time, last = [], [], 1_000, None
    for layer in range(layers):
        operations.append(op(f"w{layer}", [], 0, 1, task=SERVER, kind="ReadVariableOp"))
        transfers.append(fetch(f"w{layer}", 2, 1_000, 4_000))
        for i in range(small):
            inputs = [f"w{layer}_S1"] if i == 0 else []
            operations.append(op(f"l{layer}_{i}", [*inputs, *([last] if last else [])], time, time + 20))
            time, last = time + 20, f"l{layer}_{i}"
    for layer in reversed(range(layers)):
        for i in range(small):
            operations.append(op(f"g{layer}_{i}", [last], time, time + 20))
            time, last = time + 20, f"g{layer}_{i}"
        transfers.append(push(last, time, time + 500, 4_000))
        operations.append(op(f"u{layer}", [f"{last}_S2"], time + 500, time + 510, task=SERVER, kind="ApplyAdam"))
    (step,) = derive([TracedStep("big", operations, transfers)]).steps
    kinds = [o.kind for o in step.operations]
    assert [kinds.count(k) for k in ("fetch", "compute", "push", "update")] == [layers, 2 * layers - 1, layers, layers]
    assert sum(o.end - o.start for o in step.operations if o.kind == "compute") == pytest.approx(step.compute)
    assert all(len(o.after) <= 2 for o in step.operations)


# the laws of unions

intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def points(some):
    return {x for start, end in some for x in range(start, end)}


@given(intervals)
def test_a_union_covers_the_same_points_once_and_in_order(some):
    covered = union(some)
    assert points(covered) == points(some)
    assert length(covered) == len(points(some))
    assert all(a[1] < b[0] for a, b in pairwise(covered))
    assert union(covered) == covered


@given(intervals, intervals)
def test_an_intersection_covers_the_common_points(a, b):
    both = intersection(union(a), union(b))
    assert points(both) == points(a) & points(b)
    assert both == intersection(union(b), union(a))
    assert length(union(a)) + length(union(b)) == length(union([*a, *b])) + length(both)
