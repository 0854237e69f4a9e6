"""A step's operations, merged where no simulation can tell them apart (docs/explanation/phases)."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass

from ..training.operations import Kind, Operation
from .events import Interval, length, union
from .graph import StepGraph

IDLE = 500  # us; a longer pause splits a computation in two, ...
JOINED = 100  # us; ... and so does waiting for something else that ended this long after it began
NEGLIGIBLE = 0.005  # share of the computation that may be left out of the operations, smallest first
MOST_COMPUTATIONS = 512


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


def contract(graph: StepGraph) -> list[Operation]:
    """The transfers, and the computations and updates between them, each after those that it waited for."""
    groups = _groups(graph)
    group_of = {member: g for g, group in enumerate(groups) for member in group.members}
    # what each node waits for, in groups: its own group, or through an operation left out
    waits: list[set[int]] = [set() for _ in graph.nodes]
    before: list[set[int]] = [set() for _ in groups]
    for n in graph.order:
        above = set().union(*(waits[p] for p in graph.parents[n])) if graph.parents[n] else set()
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
                start=(group.busy[0][0] - graph.origin) / 1e6,
                end=(group.busy[-1][1] - graph.origin) / 1e6,
                bytes=group.bytes,
                server=group.server,
                after=earlier,
            )
        )
    return operations


def _groups(graph: StepGraph) -> list[_Group]:
    """Transfers one by one, the operations of worker and servers merged; what is left out is in no group."""
    together: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for i, o in enumerate(graph.operations):
        if graph.computes(i) or graph.updates(i):
            together[o.task, graph.ancestors[i], graph.descendants[i]].append(i)
    computes, others = [], []
    for (task, _, _), members in together.items():
        for part in _parts(graph, members):
            name = graph.operations[max(part, key=lambda i: graph.nodes[i].end - graph.nodes[i].start)].name
            busy = union((graph.nodes[i].start, graph.nodes[i].end) for i in part)
            if task == graph.worker:
                computes.append(_Group("compute", name, 0, part, busy))
            else:
                others.append(_Group("update", name, graph.servers[task], part, busy))
    spare = NEGLIGIBLE * sum(group.work for group in computes)
    computes.sort(key=lambda group: group.work)
    while computes and (computes[0].work <= spare or len(computes) > MOST_COMPUTATIONS):
        spare -= computes.pop(0).work
    for i, t in enumerate(graph.transfers, len(graph.operations)):
        if (kind := graph.kind(t)) is None:
            continue
        server = graph.servers[t.source if kind == "fetch" else t.destination]
        others.append(_Group(kind, t.tensor, server, [i], [(t.start, t.end)], t.bytes))
    return computes + others


def _parts(graph: StepGraph, members: list[int]) -> list[list[int]]:
    """Cut what belongs together at long pauses, and where it goes on only after something else has ended."""
    parts: list[list[int]] = []
    began = ended = 0
    own = set(members)
    for i in sorted(members, key=lambda i: (graph.nodes[i].start, graph.nodes[i].end)):
        awaited = max((graph.nodes[p].end for p in graph.parents[i] if p not in own), default=0)
        if not parts or graph.nodes[i].start > ended + IDLE or awaited > began + JOINED:
            parts.append([])
            began, ended = graph.nodes[i].start, 0
        parts[-1].append(i)
        ended = max(ended, graph.nodes[i].end)
    return parts


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
