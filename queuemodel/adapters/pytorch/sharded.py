"""Steps of sharded training (FSDP, ZeRO, HSDP) as graphs: computations, collectives, and what waits for what.

Collectives are sorted by their process groups, not by names of frameworks. A trace does not record what waits for what,
which the framework's streams and events decide: rules of how far gathers run ahead of the computation, and reductions
behind it, are replayed on the recorded steps. What most of them contradict is dropped, and the best is taken.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from ...base.errors import DataError
from ...base.recognition import TIMES
from ...base.results import percent
from ...models.rounds.graph import ACROSS, ALL, INSIDE, Task, backward_gathers, end_times, transfer_times
from ...profile.records import Collective as Kind
from ...profile.records import Operation, Round
from ..recordings import RankTrace, StepClock, constant, length, union
from .events import AcceleratorWork, Collective, TraceEvent

KIND_NAMES: dict[str, Kind] = {
    "allreduce": "all-reduce", "reducescatter": "reduce-scatter", "allgather": "all-gather", "broadcast": "broadcast",
}  # fmt: skip
#: What data-parallel and sharded training do not do, and what it is.
OTHER_KINDS = {
    "sendrecv": "pipeline stages send activations", "alltoall": "an all-to-all, as of experts or sequences",
    "reduce": "gradients are reduced to one rank, as by ZeRO without reduce_scatter",
}  # fmt: skip
StepEvents = tuple[int, list[TraceEvent], list[Collective]]
Members = dict[str, tuple[int, ...]]  # ranks of process groups
MISSED = constant("most_missed_by_replay")
#: Kernels of streams that compute less than this share of the busiest one's time are copies beside the computation.
LEAST_STREAM = constant("least_stream")


def is_sharded(together: Sequence[Collective]) -> bool:
    """Whether accelerators gather parameters, and most of their reductions scatter what they reduce."""
    moved = Counter[str]()
    for one in together:
        moved[one.kind] += one.elements * one.ran.is_nccl
    return moved["allgather"] > 0 and moved["reducescatter"] > 0 and moved["reducescatter"] >= moved["allreduce"]


def read_rank(trace: RankTrace, steps: Iterable[StepEvents], begin: float, work: AcceleratorWork) -> RankTrace:
    """The rounds of a rank's file, of each step's number, its events in the program's order, and what ranks did then.

    The first begins at ``begin`` (us), the others when the one before is done.
    """
    streams = {stream for stream, time in work.busy.items() if time >= LEAST_STREAM * max(work.busy.values())}
    members: Members = {}
    rounds = []
    for step, events, together in steps:
        ran = {id(one.ran): one for one in together if one.ran.is_nccl}
        there = [e for e in events if id(e) in ran or (e.cat == "kernel" and e.stream in streams)]
        if not ran or len(there) == len(ran):
            continue
        clock = StepClock(begin, begin := max(event.end for event in there), [], 1e-6)
        _require_known(trace.where, list(ran.values()), clock.end - clock.start)
        operations = list(_operations(there, ran, trace.ranks, clock, members))
        computed = round(sum(one.end - one.start for one in operations if one.kind == "compute"), 7)
        groups = {name: len(ranks) for name, ranks in members.items()}
        known: dict[str, Any] = {"rank": trace.rank, "ranks": trace.ranks, "number": step, "computed": computed}
        rounds.append(Round(round_time=clock.round_time, operations=operations, groups=groups, **known))
    alike, left = _alike(trace.where, rounds)
    return replace(trace, rounds=alike, ignored=+Counter({"unlike steps": left}), members=members)


def _operations(
    events: Sequence[TraceEvent], ran: Mapping[int, Collective], ranks: int, clock: StepClock, members: Members
) -> Iterator[Operation]:
    """Computations between collectives, and these, in the order of their launches."""
    seconds, number = clock.since, Counter[str]()
    first = min(event.ts for event in events)
    if first > clock.start:  # what the program does before anything runs
        yield Operation("compute", "launch", 0.0, seconds(first))
    for together, some in itertools.groupby(events, key=lambda event: id(event) in ran):
        if together:
            for one in (ran[id(event)] for event in some):
                group = one.members or tuple(range(one.group or ranks))
                name = one.group_name or f"group of {len(group)}"
                members[name] = group
                whole = one.bytes * (len(group) if one.kind == "allgather" else 1)
                kind, start, end = KIND_NAMES[one.kind], seconds(one.ran.ts), seconds(one.ran.end)
                number[kind] += 1
                yield Operation(kind, f"{kind} {number[kind]}", start, end, bytes=whole, group=name)
        else:
            spans = union((event.ts, event.end) for event in some)
            end = seconds(spans[-1][1])  # pauses between its kernels are left out
            number["compute"] += 1
            begun = max(0.0, round(end - 1e-6 * length(spans), 7))
            yield Operation("compute", f"computation {number['compute']}", begun, end)


def _require_known(where: str, together: Sequence[Collective], time: float) -> None:
    """Refuse what is no part of sharded training, by its name, and collectives of unknown kind, group or size."""
    for one in together:
        if one.kind in OTHER_KINDS:
            raise DataError(
                f"{where}: {OTHER_KINDS[one.kind]} ({one.ran.name}); only all-reduces, and gathers and reductions of "
                f"sharded parameters can be predicted; {TIMES}"
            )
    unknown = [one for one in together if one.kind not in KIND_NAMES or not (one.group or one.members) or not one.bytes]
    if unknown:
        share = length(union((one.ran.ts, one.ran.end) for one in unknown)) / time
        raise DataError(
            f"{where}: {percent(share)} of a step in {unknown[0].ran.name!r} and the like, whose kind, process group "
            "or size is not recorded; record with PyTorch 2.2 or newer and record_shapes=True"
        )


def _signature(one: Round) -> tuple[tuple[str, int, str], ...]:
    return tuple((operation.kind, operation.bytes, operation.group) for operation in one.operations)


def _alike(where: str, rounds: Sequence[Round]) -> tuple[list[Round], int]:
    """Rounds with the commonest operations, and how many have others."""
    found = Counter(map(_signature, rounds))
    if not found:
        raise DataError(f"{where}: no step has both kernels and collectives; record with CUDA activity")
    common, count = found.most_common(1)[0]
    if count <= len(rounds) / 2:
        raise DataError(
            f"{where}: steps have different operations ({len(found)} kinds of {len(rounds)} steps); only steps that "
            "all do the same can be predicted"
        )
    return [one for one in rounds if _signature(one) == common], len(rounds) - count


# Process groups


def of_job(runs: Sequence[list[RankTrace]]) -> tuple[list[list[RankTrace]], dict[str, int], str]:
    """Runs of a job that shards its parameters, with what waits for what; fields of `Job`; and the rules, in words."""
    named, rules = with_roles([run for run in runs if run[0].ranks > 1]), []
    for i, run in enumerate(named):
        named[i], rule = with_edges(run)
        rules.append(rule)
    largest = max(named, key=lambda run: run[0].ranks)[0]
    scattered = [one.bytes for one in largest.rounds[0].operations if one.kind == "reduce-scatter"]
    job = {"parameter_bytes": sum(scattered), "tensors": len(scattered)}
    return [*(run for run in runs if run[0].ranks == 1), *named], job, f"; {'; '.join(rules)}"


def with_roles(runs: Sequence[Sequence[RankTrace]]) -> list[list[RankTrace]]:
    """The same with process groups named by how they grow with the nodes (raises DataError)."""
    sizes: dict[tuple[str, int], dict[int, int]] = {}
    for run in runs:
        for key, name in _of_kinds(run[0]).items():
            sizes.setdefault(key, {})[run[0].ranks] = len(run[0].members[name])
    return [[_renamed(trace, sizes) for trace in run] for run in runs]


def _of_kinds(trace: RankTrace) -> dict[tuple[str, int], str]:
    """Groups by the kind of their first collective, in the order of their appearance for that."""
    found: dict[str, tuple[str, int]] = {}
    count = Counter[str]()
    for operation in trace.rounds[0].operations:
        if operation.group and operation.group not in found:
            found[operation.group] = (operation.kind, count[operation.kind])
            count[operation.kind] += 1
    return {key: name for name, key in found.items()}


def _renamed(trace: RankTrace, sizes: Mapping[tuple[str, int], Mapping[int, int]]) -> RankTrace:
    names: dict[str, str] = {}
    for key, name in _of_kinds(trace).items():
        role = _role(trace, trace.members[name], sizes[key])
        again = sum(other.startswith(role) for other in names.values())
        names[name] = f"{role} {again + 1}" if again else role

    def renamed(one: Round) -> Round:
        operations = [structs.replace(o, group=names.get(o.group, "")) for o in one.operations]
        groups = {names[name]: size for name, size in one.groups.items()}
        return structs.replace(one, operations=operations, groups=groups)

    members = {names[name]: ranks for name, ranks in trace.members.items()}
    return replace(trace, rounds=list(map(renamed, trace.rounds)), members=members)


def _role(trace: RankTrace, ranks: Sequence[int], sizes: Mapping[int, int]) -> str:
    """How a group grows: with all ranks, with the nodes, or not, which it may within a node only."""
    neighbours = ranks[-1] - ranks[0] == len(ranks) - 1
    constant_size = len(sizes) > 1 and len(set(sizes.values())) == 1
    if constant_size and not neighbours:
        raise DataError(
            f"{trace.where}: ranks {', '.join(map(str, ranks))} of several nodes communicate in a group that does not "
            "grow with them, as pipeline, context or expert parallelism does; groups may be inside a node, or grow"
        )
    if len(ranks) == trace.ranks and not constant_size:
        return ALL
    return INSIDE if neighbours and (constant_size or len(sizes) == 1) else ACROSS


# What waits for what


class EdgeRule(NamedTuple):
    """How far gathers run ahead, counted in computations and in what the program launched before; see `edges`."""

    forward: int  # a gather of the forward pass begins when the computation so many before its launch has ended
    backward: int  # likewise, in the backward pass
    lag: int  # a computation waits for the gather so many before the last launched
    reductions: int  # and for the reduction so many before: how many may be in flight; 0: any number

    def __str__(self) -> str:
        ahead = f"gathers {self.forward} (backward {self.backward}) computations ahead of their launch"
        return f"{ahead}, {self.reductions or 'any number of'} reductions in flight"


#: From the loosest to the strictest.
EDGE_RULES = [
    EdgeRule(forward, backward, lag, reductions)
    for lag, reductions, forward, backward in itertools.product((0, 1), (0, 3, 2, 1), *[(4, 3, 2, 1, 0)] * 2)
]


class RecordedRun:
    """A run's steps: begin and end of each operation, (steps, ranks, operations), by each rank's clock (s)."""

    def __init__(self, run: Sequence[RankTrace]) -> None:
        first, whole = run[0].rounds[0], len(run) == run[0].ranks
        rounds = [[{one.number: one for one in trace.rounds}[r.number] for trace in run] for r in run[0].rounds]
        times = np.array([[[(o.start, o.end) for o in one.operations] for one in ranks] for ranks in rounds])
        self.operations, self.begin, self.end = first.operations, times[..., 0], times[..., 1]
        self.round_time = np.array([[one.round_time for one in ranks] for ranks in rounds])  # (steps, ranks)
        # how many neighbours meet in each; 0: all
        self.meet = [first.groups[o.group] if whole and o.group.startswith(INSIDE) else 0 for o in first.operations]
        # the operations' times, of collectives from the last rank's begin to the last rank's end
        self.took, place = self.end - self.begin, {trace.rank: i for i, trace in enumerate(run)}
        for name in first.groups:
            own = [k for k, o in enumerate(first.operations) if o.group == name]
            for ranks in {tuple(place[m] for m in trace.members[name] if m in place) for trace in run}:
                took = transfer_times(self.begin[:, ranks], self.end[:, ranks], own)
                for rank in ranks:
                    self.took[:, rank, own] = took[:, own]

    def contradicted(self) -> np.ndarray:
        """Where one (row) began before another (column) had ended, in most steps of the ranks: it did not wait for it.

        A collective waits for its last rank, which streams that share a queue of the accelerator hold up in some steps.
        """
        most, found = float(self.round_time.mean()), []
        for k, one in enumerate(self.operations):
            early = self.begin[..., [k]] < self.end - 1e-3 * most
            found.append((early.all(axis=1, keepdims=True) if one.group else early).mean(axis=(0, 1)) > 0.5)
        return np.array(found)

    def replay(self, after: Sequence[Sequence[int]]) -> np.ndarray:
        """When each would end with these edges, (operations, steps, ranks)."""
        tasks = [
            Task(o.group or "compute", tuple(before), o.group and o.kind, o.bytes, o.group, ranks)
            for o, before, ranks in zip(self.operations, after, self.meet, strict=True)
        ]
        none = np.zeros(1)
        ends = end_times(tasks, [self.took[..., k] for k in range(len(tasks))], [none] * len(tasks))
        return np.array([np.broadcast_to(end, self.round_time.shape) for end in ends])


def edges(operations: Sequence[Operation], rule: EdgeRule, contradicted: np.ndarray) -> list[list[int]]:
    """For each operation those that it waits for, by a rule, as far as no record contradicts that.

    Where one does, an earlier one of the same kind is taken, until none does.
    """
    computed, gathered, reduced, after = list[int](), list[int](), list[int](), list[list[int]]()
    compute = [k for k, one in enumerate(operations) if one.kind == "compute"]
    backward = backward_gathers([one.kind for one in operations])

    def latest(k: int, of: Sequence[int], skip: int) -> list[int]:
        possible = (i for i in itertools.islice(reversed(of), skip, None) if not contradicted[k, i])
        return list(itertools.islice(possible, 1))

    for k, one in enumerate(operations):
        if one.kind == "compute":
            before = latest(k, gathered, rule.lag)
            if k == compute[-1]:  # the optimizer
                before += [i for i in reduced if not contradicted[k, i]]
            elif rule.reductions:
                before += latest(k, reduced, rule.reductions - 1)
            computed.append(k)
        elif one.kind == "all-gather":
            before = latest(k, computed, rule.backward if k in backward else rule.forward)
            gathered.append(k)
        else:
            scattered = [i for i in reduced if operations[i].kind == "reduce-scatter"]
            of_copies = one.kind == "all-reduce" and scattered  # what a copy of the model has reduced
            before = latest(k, scattered if of_copies else computed, 0)
            reduced.append(k)
        last = {operations[i].group: i for i in sorted(before)}  # those before it on its stream end before
        after.append(sorted(last.values()))
    return after


def with_edges(run: Sequence[RankTrace]) -> tuple[list[RankTrace], str]:
    """The same with what waits for what, by the rule whose replay is next to the record, and that in words.

    Raises
    ------
    DataError
        When the replayed step is not nearly as long as the recorded one.
    """
    recorded = RecordedRun(run)
    contradicted = recorded.contradicted()
    replays: dict[str, tuple[float, float]] = {}
    found = [(rule, edges(recorded.operations, rule, contradicted)) for rule in EDGE_RULES]
    for _, after in found:
        if str(after) not in replays:
            ends = recorded.replay(after)
            away = np.moveaxis(ends, 0, -1) - recorded.end
            step = float(ends.max(axis=0).mean() / recorded.round_time.mean()) - 1
            replays[str(after)] = float(np.sqrt((away**2).mean())), step
    near = 1.02 * min(away for away, _ in replays.values())
    rule, after = next((rule, after) for rule, after in found if replays[str(after)][0] <= near)
    missed = replays[str(after)][1]
    if abs(missed) > MISSED:
        raise DataError(
            f"{run[0].where}: no rule of what waits for what replays the recorded steps: the best misses them by "
            f"{percent(missed)} ({rule}); record more steps, or steps without other work"
        )

    def waiting(one: Round) -> Round:
        operations = [structs.replace(o, after=before) for o, before in zip(one.operations, after, strict=True)]
        return structs.replace(one, operations=operations)

    words = f"{rule}: replayed steps are {percent(missed)} off"
    return [replace(trace, rounds=list(map(waiting, trace.rounds))) for trace in run], words
