"""From the intervals of one traced step to its phases and its graph of operations (docs/explanation/phases).

Nothing here knows a file format: readers hand over `TracedStep`, times in whole microseconds of each task's own clock.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from ..errors import DataError
from ..training.operations import Kind, Operation
from ..training.profile import Step

Interval = tuple[int, int]

CLOCK_TOLERANCE = 200  # us; two clocks that agree this well are taken for one
IDLE = 500  # us; a longer pause splits a computation in two, ...
JOINED = 100  # us; ... and so does waiting for something else that ended this long after it began
NEGLIGIBLE = 0.005  # share of the computation that may be left out of the operations, smallest first
MOST_COMPUTATIONS = 512
LONGEST_PAUSE = 0.1  # share of a step, to its successor: a longer one is not part of it, ...
SHORT_PAUSE = 5000  # us: ... unless it is this short

# operations that wait instead of working
WAITING = re.compile(r"NoOp|_?(Host)?(Send|Recv)|(Queue|RandomShuffleQueue)\w*Dequeue\w*|.*TakeGradient|Barrier\w*")
RECEIVED = re.compile(r"(?P<tensor>.+?)(_S\d+|/_\d+)$")


@dataclass(frozen=True, slots=True)
class TracedOperation:
    """One operation of the graph, executed on ``task`` (``"worker:0"``) from ``start`` to ``end``."""

    task: str
    name: str
    op: str
    inputs: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """
    A tensor sent from one task to another.

    ``start`` is by the sender's clock, ``end`` and ``requested`` (when the receiver asked for it) by the receiver's.
    Without ``requested``, start is as TensorFlow's RecvTensor has it: max(request, start of sending) of the two
    clocks, but at most 1 us before the end.
    """

    tensor: str
    source: str
    destination: str
    start: int
    end: int
    bytes: int
    requested: int | None = None


@dataclass(frozen=True)
class TracedStep:
    """What was recorded of one step; ``where`` names the file in messages.

    ``collection`` is how long the recorder may have held up the next step (us).
    """

    where: str
    operations: list[TracedOperation]
    transfers: list[Transfer]
    collection: float = 0

    @property
    def span(self) -> Interval:
        events: list[TracedOperation | Transfer] = [*self.operations, *self.transfers]
        return min(e.start for e in events), max(e.end for e in events)


@dataclass(frozen=True)
class Derived:
    """The steps, and what they say about the job and the cluster."""

    steps: list[Step]
    worker: str
    servers: list[str]
    shard_bytes: list[int]
    tensors: int
    clock_offsets: dict[str, int] = field(default_factory=dict)  # us, each server's clock less the worker's, first step


# interval arithmetic: sorted, disjoint lists of (start, end)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The points covered by any of ``intervals``."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def intersection(a: Sequence[Interval], b: Sequence[Interval]) -> list[Interval]:
    """The points covered by both of two unions."""
    both, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            both.append((start, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return both


def length(intervals: Iterable[Interval]) -> int:
    """Total length of a union."""
    return sum(end - start for start, end in intervals)


def derive(traced: Sequence[TracedStep]) -> Derived:
    """
    Derive phases, bytes, step times and operation graphs of consecutive steps of one worker.

    Raises
    ------
    DataError
        A step lacks a worker, a parameter server or transfers between them, or clocks that cannot be matched.
    """
    worker, servers = _roles(traced)
    traced = [_of_tasks(step, {worker, *servers}) for step in sorted(traced, key=lambda step: step.span[0])]
    offsets = [dict.fromkeys(servers, 0) for _ in traced]
    for server in servers:
        for offset, value in zip(offsets, _clock_offsets(traced, worker, server), strict=True):
            offset[server] = value
    traced = _restored([_on_one_clock(step, offset) for step, offset in zip(traced, offsets, strict=True)])
    graphs = [_Graph(step, worker, servers) for step in traced]
    sizes: dict[tuple[str, str], int] = {}
    for graph in graphs:
        for key, size in graph.parameters().items():
            sizes[key] = max(size, sizes.get(key, 0))
    return Derived(
        steps=[graph.step(step_time) for graph, step_time in zip(graphs, _step_times(traced), strict=True)],
        worker=worker,
        servers=servers,
        shard_bytes=[sum(size for (server, _), size in sizes.items() if server == s) for s in servers],
        tensors=len(sizes),
        clock_offsets=offsets[0],
    )


def _roles(traced: Sequence[TracedStep]) -> tuple[str, list[str]]:
    """The worker that ran the steps and the servers in order of their task numbers."""
    for step in traced:
        tasks = sorted({o.task for o in step.operations} | {t.destination for t in step.transfers})
        if len(tasks) < 2:
            raise DataError(
                f"{step.where}: a trace of only one task ({', '.join(tasks) or 'none'}); expected a worker and a "
                "parameter server: trace a session connected to the cluster, with FULL_TRACE"
            )
        if not step.transfers:
            raise DataError(
                f"{step.where}: no RecvTensor event, so no communication can be seen; trace with FULL_TRACE a graph "
                "whose variables live on a parameter server"
            )
    transfers = [transfer for step in traced for transfer in step.transfers]
    ends = {task for t in transfers for task in (t.source, t.destination)}
    servers = sorted((t for t in ends if t.startswith("ps:")), key=lambda t: int(t.partition(":")[2]))
    if not servers or len(ends) == len(servers):
        raise DataError(
            f"{traced[0].where}: transfers only among {', '.join(sorted(ends))}; expected parameter servers in job "
            "'ps' and a worker in another job"
        )
    bytes_of: dict[str, int] = defaultdict(int)
    for t in transfers:
        for task in {t.source, t.destination} - set(servers):
            bytes_of[task] += 1 + t.bytes
    return max(sorted(bytes_of), key=bytes_of.__getitem__), servers


def _of_tasks(step: TracedStep, tasks: set[str]) -> TracedStep:
    transfers = [t for t in step.transfers if t.source in tasks and t.destination in tasks]
    if not transfers:
        raise DataError(f"{step.where}: no RecvTensor event between {', '.join(sorted(tasks))}")
    return replace(step, operations=[o for o in step.operations if o.task in tasks], transfers=transfers)


def _restored(traced: Sequence[TracedStep]) -> list[TracedStep]:
    """
    Put back transfers that the recorder lost (it does, now and then).

    Somebody used the tensor, so it was sent: no earlier than it was made, and it was there when its first user started.
    """
    size = {(t.tensor, t.source, t.destination): t.bytes for step in traced for t in step.transfers}
    result = []
    for step in traced:
        seen = {(t.tensor, t.source, t.destination) for t in step.transfers}
        made = {(o.name, o.task): o for o in step.operations}
        lost: dict[tuple[str, str, str], Transfer] = {}
        for o in step.operations:
            for name in o.inputs:
                match = RECEIVED.match(name)
                if not match or (name, o.task) in made or (tensor := match["tensor"], o.task) in made:
                    continue
                for key in size:
                    source = key[1]
                    if key[0] == tensor and key[2] == o.task and key not in seen and (tensor, source) in made:
                        start = made[tensor, source].end
                        end = min(o.start, lost[key].end) if key in lost else o.start
                        lost[key] = Transfer(tensor, source, o.task, min(start, end), end, size[key])
        result.append(replace(step, transfers=[*step.transfers, *lost.values()]))
    return result


# clocks


def _clock_offsets(traced: Sequence[TracedStep], worker: str, server: str) -> list[int]:
    """
    The server's clock less the worker's, for each step (us).

    No tensor arrives before it was made: every fetch bounds the offset from below, every push from above. Where 0 lies
    within the bounds the clocks are taken for one; else the middle of the narrowest bounds is taken (as NTP does).
    """
    bounds = []
    for step in traced:
        made = {(o.name, o.task): o.end for o in step.operations}
        lows = [
            made[t.tensor, server] - t.end
            for t in step.transfers
            if t.source == server and t.destination == worker and (t.tensor, server) in made
        ]
        highs = [
            t.end - made[t.tensor, worker]
            for t in step.transfers
            if t.source == worker and t.destination == server and (t.tensor, worker) in made
        ]
        bounds.append((max(lows, default=None), min(highs, default=None)))
    low = max((b for b, _ in bounds if b is not None), default=None)
    high = min((b for _, b in bounds if b is not None), default=None)
    if low is None or high is None or low <= high + CLOCK_TOLERANCE:
        return [_offset_within(low, high)] * len(traced)
    for step, (low, high) in zip(traced, bounds, strict=True):  # the clocks drift
        if low is not None and high is not None and low > high + CLOCK_TOLERANCE:
            raise DataError(
                f"{step.where}: the clocks of {worker} and {server} do not match: tensors arrive up to "
                f"{(low - high) / 1e6:.6f} s before they were made whatever the offset; synchronize the "
                "hosts' clocks (NTP) and trace again"
            )
    return [_offset_within(*b) for b in bounds]


def _offset_within(low: int | None, high: int | None) -> int:
    if (low is None or low <= CLOCK_TOLERANCE) and (high is None or high >= -CLOCK_TOLERANCE):
        return 0
    known = [bound for bound in (low, high) if bound is not None]
    return round(sum(known) / len(known))


def _on_one_clock(step: TracedStep, offsets: dict[str, int]) -> TracedStep:
    """All times by the worker's clock; TensorFlow has mixed two in a transfer's start."""
    if not any(offsets.values()) and all(t.requested is None for t in step.transfers):
        return step
    operations = [
        replace(o, start=o.start - shift, end=o.end - shift) if (shift := offsets.get(o.task, 0)) else o
        for o in step.operations
    ]
    made = {(o.name, o.task): o.end for o in operations}
    transfers = []
    for t in step.transfers:
        ahead, behind = offsets.get(t.source, 0), offsets.get(t.destination, 0)
        end = t.end - behind
        earliest = made.get((t.tensor, t.source), step.span[0] - max(ahead, behind))
        if t.requested is not None:
            start = max(t.start - ahead, t.requested - behind)
        elif ahead <= behind:
            start = t.start - behind
        elif t.start < t.end - 1:
            start = t.start - ahead
        else:
            start = earliest
        transfers.append(replace(t, start=min(max(start, earliest), end), end=end))
    return replace(step, operations=operations, transfers=transfers)


# step times


def _step_times(traced: Sequence[TracedStep]) -> list[float]:
    """
    The step's span and the pause after it, less what collecting the trace took of the pause (us).

    A pause that is implausible (the recorder wrote a file, steps are missing), and the last step's, is the median one.
    """
    spans = [step.span for step in traced]
    pauses: list[float | None] = []
    for step, (start, end), following in zip(traced, spans, [*spans[1:], None], strict=True):
        pause = following[0] - end if following else -1
        plausible = 0 <= pause <= max(LONGEST_PAUSE * (end - start), SHORT_PAUSE)
        pauses.append(max(pause - step.collection, pause / 4) if plausible else None)
    usual = median([pause for pause in pauses if pause is not None] or [0])
    return [
        end - start + (usual if pause is None else pause) for (start, end), pause in zip(spans, pauses, strict=True)
    ]


# the graph of operations


@dataclass
class _Group:
    """Operations of one task that wait for the same transfers and that the same transfers wait for."""

    kind: Kind
    name: str
    server: int
    members: list[int]
    busy: list[Interval]
    bytes: int = 0

    @property
    def work(self) -> int:
        return length(self.busy)


class _Graph:
    """The data flow of one step: nodes are the operations, then the transfers."""

    def __init__(self, step: TracedStep, worker: str, servers: list[str]) -> None:
        self.where, self.worker, self.servers = step.where, worker, {s: i for i, s in enumerate(servers)}
        self.origin = step.span[0]
        self.operations, self.transfers = step.operations, step.transfers
        self.nodes: list[TracedOperation | Transfer] = [*step.operations, *step.transfers]
        self.payload = sum(1 << i for i, t in enumerate(self.transfers) if self._kind(t) == "push" and t.bytes)
        self.parents = self._parents()
        self.order = self._topological()
        self.ancestors = [0] * len(self.nodes)  # of a node, those that are transfers, as bits
        self.descendants = [0] * len(self.nodes)
        for n in self.order:
            for p in self.parents[n]:
                self.ancestors[n] |= self.ancestors[p] | self._bit(p)
        for n in reversed(self.order):
            for p in self.parents[n]:
                self.descendants[p] |= self.descendants[n] | self._bit(n)

    def _bit(self, node: int) -> int:
        return 1 << (node - len(self.operations)) if node >= len(self.operations) else 0

    def _parents(self) -> list[list[int]]:
        executions: dict[tuple[str, str], list[int]] = defaultdict(list)
        for i, o in enumerate(self.operations):
            executions[o.name, o.task].append(i)
        received: dict[tuple[str, str], list[int]] = defaultdict(list)
        for i, t in enumerate(self.transfers, len(self.operations)):
            received[t.tensor, t.destination].append(i)

        def latest(candidates: list[int], before: int, user: int) -> list[int]:
            """Loops execute one node many times: the last execution that had ended."""
            if len(candidates) < 2:
                return candidates
            ended = [c for c in candidates if self.nodes[c].end <= before and c != user]
            return [max(ended, key=lambda c: self.nodes[c].end)] if ended else []

        parents = []
        for i, o in enumerate(self.operations):
            found: set[int] = set()
            for text in o.inputs:
                if (text, o.task) in executions:
                    found.update(latest(executions[text, o.task], o.start, i))
                elif match := RECEIVED.match(text):
                    key = match["tensor"], o.task
                    arrived = received.get(key, [])  # the same name may also bring a control message
                    in_time = [t for t in arrived if self.nodes[t].end <= o.start]
                    found.update(in_time or arrived or executions.get(key, []))
            parents.append(sorted(found - {i}))
        for t in self.transfers:
            parents.append(latest(executions.get((t.tensor, t.source), []), t.end, -1))
        return parents

    def _topological(self) -> list[int]:
        """Parents before children; an edge that closes a cycle is cut."""
        order, state = [], [0] * len(self.nodes)
        for root in range(len(self.nodes)):
            stack = [(root, False)]
            while stack:
                node, done = stack.pop()
                if done:
                    order.append(node)
                    state[node] = 2
                elif state[node] == 0:
                    state[node] = 1
                    self.parents[node] = [p for p in self.parents[node] if state[p] != 1]
                    stack.append((node, True))
                    stack.extend((p, False) for p in self.parents[node] if state[p] == 0)
        return order

    def _kind(self, t: Transfer) -> Kind | None:
        """Fetch or push; None between servers (small change, such as an optimizer's step count)."""
        return "fetch" if t.destination == self.worker else "push" if t.source == self.worker else None

    def parameters(self) -> dict[tuple[str, str], int]:
        """Bytes of each fetched parameter, by server and name: a parameter read twice counts once."""
        made = {(o.name, o.task): o for o in self.operations}
        sizes: dict[tuple[str, str], int] = {}
        for t in self.transfers:
            if self._kind(t) == "fetch" and t.bytes:
                name, seen = t.tensor, set()
                while (o := made.get((name, t.source))) and o.inputs and name not in seen:
                    seen.add(name)
                    name = o.inputs[0]
                sizes[t.source, name] = max(t.bytes, sizes.get((t.source, name), 0))
        return sizes

    def step(self, step_time: float) -> Step:
        """Phases, bytes and operations."""
        fetches = [t for t in self.transfers if self._kind(t) == "fetch"]
        pushes = [t for t in self.transfers if self._kind(t) == "push"]
        moved = {
            kind: union((t.start, t.end) for t in transfers if t.bytes)  # control messages carry nothing
            for kind, transfers in (("fetch", fetches), ("push", pushes))
        }
        computing = union(
            (o.start, o.end) for o in self.operations if o.task == self.worker and not WAITING.fullmatch(o.op)
        )
        updating = union(
            (o.start, o.end) for i, o in enumerate(self.operations) if o.task != self.worker and self._updates(i)
        )
        transmitting = union([*moved["fetch"], *moved["push"]])
        return Step(
            step_time=step_time / 1e6,
            fetch=length(moved["fetch"]) / 1e6,
            compute=length(computing) / 1e6,
            push=length(moved["push"]) / 1e6,
            update=length(updating) / 1e6,
            fetched_bytes=sum(t.bytes for t in fetches),
            pushed_bytes=sum(t.bytes for t in pushes),
            overlap=length(intersection(computing, transmitting)) / 1e6,
            operations=self._contracted(),
        )

    def _updates(self, node: int) -> bool:
        """Whether a server's operation works on what the worker sent."""
        return self.ancestors[node] & self.payload != 0 and not WAITING.fullmatch(self.operations[node].op)

    def _groups(self) -> list[_Group]:
        """Transfers one by one, the operations of worker and servers merged; what is left out is in no group."""
        together: dict[tuple[str, int, int], list[int]] = defaultdict(list)
        for i, o in enumerate(self.operations):
            if not WAITING.fullmatch(o.op) and (o.task == self.worker or self._updates(i)):
                together[o.task, self.ancestors[i], self.descendants[i]].append(i)
        computes, others = [], []
        for (task, _, _), members in together.items():
            for part in self._parts(members):
                name = self.operations[max(part, key=lambda i: self.nodes[i].end - self.nodes[i].start)].name
                busy = union((self.nodes[i].start, self.nodes[i].end) for i in part)
                if task == self.worker:
                    computes.append(_Group("compute", name, 0, part, busy))
                else:
                    others.append(_Group("update", name, self.servers[task], part, busy))
        spare = NEGLIGIBLE * sum(group.work for group in computes)
        computes.sort(key=lambda group: group.work)
        while computes and (computes[0].work <= spare or len(computes) > MOST_COMPUTATIONS):
            spare -= computes.pop(0).work
        for i, t in enumerate(self.transfers, len(self.operations)):
            if (kind := self._kind(t)) is None:
                continue
            server = self.servers[t.source if kind == "fetch" else t.destination]
            others.append(_Group(kind, t.tensor, server, [i], [(t.start, t.end)], t.bytes))
        return computes + others

    def _parts(self, members: list[int]) -> list[list[int]]:
        """Cut what belongs together at long pauses, and where it goes on only after something else has ended."""
        parts: list[list[int]] = []
        began = ended = 0
        own = set(members)
        for i in sorted(members, key=lambda i: (self.nodes[i].start, self.nodes[i].end)):
            awaited = max((self.nodes[p].end for p in self.parents[i] if p not in own), default=0)
            if not parts or self.nodes[i].start > ended + IDLE or awaited > began + JOINED:
                parts.append([])
                began, ended = self.nodes[i].start, 0
            parts[-1].append(i)
            ended = max(ended, self.nodes[i].end)
        return parts

    def _contracted(self) -> list[Operation]:
        groups = self._groups()
        group_of = {member: g for g, group in enumerate(groups) for member in group.members}
        # what each node waits for, in groups: its own group, or through an operation left out
        waits: list[set[int]] = [set() for _ in self.nodes]
        before: list[set[int]] = [set() for _ in groups]
        for n in self.order:
            above = set().union(*(waits[p] for p in self.parents[n])) if self.parents[n] else set()
            g = group_of.get(n)
            if g is None:
                waits[n] = above
            else:
                before[g] |= above - {g}
                waits[n] = {g}
        order = _ordered(groups, before)
        index = {g: i for i, g in enumerate(order)}
        after = _reduced([sorted(index[b] for b in before[g] if index[b] < index[g]) for g in order])
        names: dict[tuple[str, str], int] = defaultdict(int)
        operations = []
        for g, earlier in zip(order, after, strict=True):
            group = groups[g]
            names[group.kind, group.name] += 1
            count = names[group.kind, group.name]
            operations.append(
                Operation(
                    kind=group.kind,
                    name=group.name if count == 1 else f"{group.name} ({count})",
                    start=(group.busy[0][0] - self.origin) / 1e6,
                    end=(group.busy[-1][1] - self.origin) / 1e6,
                    bytes=group.bytes,
                    server=group.server,
                    after=earlier,
                )
            )
        return operations


def _ordered(groups: list[_Group], before: list[set[int]]) -> list[int]:
    """By start, but never before what a group waits for."""
    missing = [len(b) for b in before]
    children: list[list[int]] = [[] for _ in groups]
    for g, earlier in enumerate(before):
        for b in earlier:
            children[b].append(g)
    ready = [(group.busy[0][0], g) for g, group in enumerate(groups) if not missing[g]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, g = heapq.heappop(ready)
        order.append(g)
        for child in children[g]:
            missing[child] -= 1
            if not missing[child]:
                heapq.heappush(ready, (groups[child].busy[0][0], child))
    rest = sorted(set(range(len(groups))) - set(order), key=lambda g: groups[g].busy[0][0])  # cycles, from cut loops
    return order + rest


def _reduced(after: list[list[int]]) -> list[list[int]]:
    """Leave out what is implied by the rest (transitive reduction)."""
    reach = [0] * len(after)
    result = []
    for i, earlier in enumerate(after):
        implied, kept = 0, []
        for e in reversed(earlier):
            if not implied >> e & 1:
                kept.append(e)
                implied |= reach[e] | 1 << e
        reach[i] = implied
        result.append(kept[::-1])
    return result
