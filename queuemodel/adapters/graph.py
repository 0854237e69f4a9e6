"""The data flow of one traced step, and its operations, merged where a simulation cannot distinguish them
(validation/notes/phases)."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from ..profile.records import Kind, Operation
from .recordings import RECEIVED, Interval, TracedOperation, TracedStep, Transfer, constant, length, union

# operations that wait instead of working
WAITS = re.compile(r"NoOp|_?(Host)?(Send|Recv)|(Queue|RandomShuffleQueue)\w*Dequeue\w*|.*TakeGradient|Barrier\w*")

IDLE, JOINED = constant("idle"), constant("joined")  # longer ones split a computation
NEGLIGIBLE, MOST_COMPUTATIONS = constant("negligible"), constant("most_computations")


class StepGraph:
    """The data flow of one step: nodes are the operations, then the transfers."""

    def __init__(self, step: TracedStep, worker: str, servers: list[str]) -> None:
        self.where, self.worker, self.servers = step.where, worker, {s: i for i, s in enumerate(servers)}
        self.origin = step.span[0]
        self.operations, self.transfers = step.operations, step.transfers
        self.nodes: list[TracedOperation | Transfer] = [*step.operations, *step.transfers]
        self.parents = self._parents()
        self.order = self._topological()
        bits = [0] * len(self.operations) + [1 << i for i in range(len(self.transfers))]
        self.ancestors, self.descendants = ([0] * len(bits) for _ in range(2))  # of a node, those that are transfers
        edges = [(p, n) for n in self.order for p in self.parents[n]]
        for p, n in edges:
            self.ancestors[n] |= self.ancestors[p] | bits[p]
        for p, n in reversed(edges):
            self.descendants[p] |= self.descendants[n] | bits[n]
        self.payload = sum(1 << i for i, t in enumerate(self.transfers) if t.source == worker and t.bytes)
        self.kinds = [self._kind(n) for n in range(len(bits))]

    def _kind(self, node: int) -> Kind | None:
        """None for what waits, reads variables, or is between servers (such as an optimizer's step count)."""
        one = self.nodes[node]
        if isinstance(one, Transfer):
            return "fetch" if one.destination == self.worker else "push" if one.source == self.worker else None
        if WAITS.fullmatch(one.op):
            return None
        if one.task == self.worker:
            return "compute"
        return "update" if self.ancestors[node] & self.payload else None

    def of_kind(self, kind: Kind) -> list[Any]:
        return [node for node, own in zip(self.nodes, self.kinds, strict=True) if own == kind]

    def _parents(self) -> list[list[int]]:
        executions: dict[tuple[str, str], list[int]] = defaultdict(list)
        for i, o in enumerate(self.operations):
            executions[o.name, o.task].append(i)
        received: dict[tuple[str, str], list[int]] = defaultdict(list)
        for i, t in enumerate(self.transfers, len(self.operations)):
            received[t.tensor, t.destination].append(i)

        def latest(candidates: list[int], before: int, user: int) -> list[int]:
            """Of a node's executions in a loop, the last that had ended."""
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
        """Parents before children; the first operation of a cycle waits for nothing in it."""
        while True:
            try:
                return list(TopologicalSorter(dict(enumerate(self.parents))).static_order())
            except CycleError as error:
                cycle = error.args[1]
                parent, first = min(itertools.pairwise(cycle), key=lambda edge: self.nodes[edge[1]].start)
                self.parents[first].remove(parent)

    def parameters(self) -> dict[tuple[str, str], int]:
        """Bytes of each fetched parameter, by server and name: a parameter read twice counts once."""
        made = {(o.name, o.task): o for o in self.operations}
        sizes: dict[tuple[str, str], int] = {}
        for t in self.of_kind("fetch"):
            if t.bytes:
                name, seen = t.tensor, set()
                while (o := made.get((name, t.source))) and o.inputs and name not in seen:
                    seen.add(name)
                    name = o.inputs[0]
                sizes[t.source, name] = max(t.bytes, sizes.get((t.source, name), 0))
        return sizes


@dataclass
class _Group:
    """Operations of one task between the same transfers, or a transfer."""

    kind: Kind
    name: str
    server: int
    members: list[int]
    busy: list[Interval]
    bytes: int = 0


def contract(graph: StepGraph) -> list[Operation]:
    """The step's operations: transfers, and the merged computations and updates between them."""
    groups = _groups(graph)
    group_of = {member: g for g, group in enumerate(groups) for member in group.members}
    # groups that each node waits for: its own, or those of its parents where it is in none
    waits: list[set[int]] = [set() for _ in graph.nodes]
    before: list[set[int]] = [set() for _ in groups]
    for n in graph.order:
        above = set[int]().union(*(waits[p] for p in graph.parents[n]))
        if (g := group_of.get(n)) is None:
            waits[n] = above
        else:
            before[g] |= above - {g}
            waits[n] = {g}
    order = _ordered(groups, before)
    index = {g: i for i, g in enumerate(order)}
    names, reach, operations = Counter[tuple[str, str]](), list[int](), list[Operation]()
    for i, g in enumerate(order):
        group, implied, after = groups[g], 0, list[int]()
        for e in sorted((index[b] for b in before[g] if index[b] < i), reverse=True):  # transitive reduction
            if not implied >> e & 1:
                after.insert(0, e)
                implied |= reach[e] | 1 << e
        reach.append(implied)
        names[group.kind, group.name] += 1
        count = names[group.kind, group.name]
        name = group.name if count == 1 else f"{group.name} ({count})"
        start, end = ((moment - graph.origin) / 1e6 for moment in (group.busy[0][0], group.busy[-1][1]))
        operations.append(Operation(group.kind, name, start, end, group.bytes, group.server, after))
    return operations


def _groups(graph: StepGraph) -> list[_Group]:
    """Each transfer by itself, operations merged; negligible ones are in no group."""
    together: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    others: list[_Group] = []
    for i, (node, kind) in enumerate(zip(graph.nodes, graph.kinds, strict=True)):
        if kind and isinstance(node, Transfer):
            server = graph.servers[node.source if kind == "fetch" else node.destination]
            others.append(_Group(kind, node.tensor, server, [i], [(node.start, node.end)], node.bytes))
        elif kind and isinstance(node, TracedOperation):
            together[node.task, graph.ancestors[i], graph.descendants[i]].append(i)
    computes: list[_Group] = []
    updates: list[_Group] = []
    for (task, _, _), members in together.items():
        for part in _parts(graph, members):
            name = graph.operations[max(part, key=lambda i: graph.nodes[i].end - graph.nodes[i].start)].name
            busy = union((graph.nodes[i].start, graph.nodes[i].end) for i in part)
            own = task == graph.worker
            group = _Group("compute" if own else "update", name, graph.servers.get(task, 0), part, busy)
            (computes if own else updates).append(group)
    spare = NEGLIGIBLE * sum(length(group.busy) for group in computes)
    computes.sort(key=lambda group: length(group.busy))
    while computes and (length(computes[0].busy) <= spare or len(computes) > MOST_COMPUTATIONS):
        spare -= length(computes.pop(0).busy)
    return computes + updates + others


def _parts(graph: StepGraph, members: list[int]) -> list[list[int]]:
    """Split operations at long pauses, and where they continue only after something else has ended."""
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
    """Groups by start, after those that they wait for; of a cycle, the first begins."""
    left = sorted(range(len(groups)), key=lambda g: groups[g].busy[0][0])
    order: dict[int, None] = {}
    while left:
        ready = next((g for g in left if before[g] <= order.keys()), left[0])
        left.remove(ready)
        order[ready] = None
    return list(order)
