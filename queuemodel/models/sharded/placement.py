"""Ranks on nodes and in copies of the model: how long their collectives take, and a round of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...base.checks import FASTEST_LINK
from ...transport.collectives import Algorithm, Hierarchical, Link, Ring
from ..rounds.graph import ACROSS, INSIDE, Task, end_times
from ..rounds.times import NodeLink

#: Collectives of parameters and gradients that are sharded.
SHARD_KINDS = ("all-gather", "reduce-scatter")
#: Collectives of several nodes follow each other: they share the nodes' links.
NETWORK = "network"


@dataclass(frozen=True)
class Step:
    """A task of a round, and of a collective the recorded seconds without waiting for other ranks."""

    task: Task
    seconds: float = 0.0


@dataclass(frozen=True)
class Placement:
    """Where n ranks are, and which of them share a copy of the model; a last node that is not full counts as full."""

    ranks: int
    per_node: int = 1
    shards: int = 0  #: ranks that share a copy; 0: all
    inside: Link | None = None  #: between ranks of a node; None: as recorded
    collective: Algorithm = field(default_factory=Ring)
    #: of a node's bandwidth, what each kind of collective has; 1 unless it is there
    shares: Mapping[str, float] = field(default_factory=dict)

    @property
    def copy(self) -> int:
        """Ranks that share a copy."""
        return min(self.shards or self.ranks, self.ranks)

    @property
    def padded(self) -> int:
        """Ranks, with those that would make the last node and the last copy full."""
        whole = math.lcm(self.copy, self.per_node) if self.ranks > max(self.copy, self.per_node) else 1
        return -(-self.ranks // whole) * whole

    def task(self, step: Step) -> Task:
        """The task with the ranks that meet in it, and with one stream for all that shares the links of nodes."""
        task, g = step.task, self.per_node
        if not task.kind:
            return task
        inside = task.group.startswith(INSIDE)
        members = 0 if task.group.startswith(ACROSS) else self.copy if task.kind in SHARD_KINDS else g if inside else 0
        local = members and members <= g
        return replace(task, stream=task.group if local else NETWORK, ranks=members if members < self.ranks else 0)

    def seconds(self, step: Step, link: NodeLink) -> float:
        """Of a collective, once all its ranks are there; ``link`` is a node's."""
        kind, group, n, g, copy = step.task.kind, step.task.group, self.ranks, self.per_node, self.copy
        bandwidth = min(link.bandwidth * self.shares.get(kind, 1.0), FASTEST_LINK)
        node, V = Link(bandwidth, latency=link.latency), step.task.bytes
        if group.startswith(ACROSS) and kind in SHARD_KINDS:  # each rank of a node with its like on the others
            return self._among(step, V, -(-n // g), 1, replace(node, bandwidth=node.bandwidth / g))
        if group.startswith(ACROSS):  # likewise, of each rank of a copy
            shared = replace(node, bandwidth=node.bandwidth / min(copy, g))
            return self._among(step, V / copy, -(-n // copy), max(g // copy, 1), shared)
        if kind in SHARD_KINDS:
            return self._among(step, V, copy, g, node)
        return self._within(step, min(g, n)) if group.startswith(INSIDE) else self._among(step, V, n, g, node)

    def _among(self, step: Step, V: float, ranks: int, per_node: int, link: Link) -> float:
        """Of V bytes among so many ranks, some of them on each node."""
        kind = step.task.kind
        if ranks <= per_node:
            return self._within(step, ranks)
        if per_node > 1 and self.inside is not None:
            return float(Hierarchical(per_node, self.inside, self.collective).time(V, ranks, link, kind=kind))
        shared = replace(link, bandwidth=link.bandwidth / per_node)
        between = self.collective.time(V / per_node, -(-ranks // per_node), shared, kind=kind)
        return float(between) + self._within(step, per_node)

    def _within(self, step: Step, ranks: int) -> float:
        """Among ranks of a node: by the link there, or as was recorded of all of them."""
        if ranks == 1:
            return 0.0
        if self.inside is not None:
            return float(Ring().time(step.task.bytes, ranks, self.inside, kind=step.task.kind))
        return step.seconds * (1 - 1 / ranks) / (1 - 1 / self.per_node)


def round_times(
    steps: Sequence[Step], computed: np.ndarray, placement: Placement, link: NodeLink, *, without: Collection[str] = ()
) -> np.ndarray:
    """Seconds of rounds, (samples,), whose ranks compute for such seconds, (samples, ranks, computations).

    Exact for collectives that take no less time when others wait. Those of the kinds ``without`` take none.
    """
    rows, none, seconds = iter(np.moveaxis(computed, -1, 0)), np.zeros(1), []
    for step in steps:
        kind = step.task.kind
        took = 0.0 if not kind or kind in without else placement.seconds(step, link)
        seconds.append(np.array([took]) if kind else next(rows))
    tasks = [placement.task(step) for step in steps]
    ends = end_times(tasks, seconds, [none] * len(steps))
    over = np.zeros(len(computed))
    for end in {task.stream: end for task, end in zip(tasks, ends, strict=True)}.values():
        np.maximum(over, end.max(axis=-1), out=over)
    return over


def in_copies(steps: Sequence[Step]) -> list[Step]:
    """The same, with reductions among copies of the model: each after that within a copy, all before the optimizer."""
    if any(one.task.kind == "all-reduce" and one.task.group.startswith(ACROSS) for one in steps):
        return list(steps)
    changed: list[Step] = []
    where: list[int] = []
    for one in steps:
        task = replace(one.task, after=tuple(where[i] for i in one.task.after))
        where.append(len(changed))
        changed.append(replace(one, task=task))
        if task.kind == "reduce-scatter":
            copies = Task(ACROSS, (where[-1],), "all-reduce", task.bytes, ACROSS)
            changed.append(Step(copies))
    return [*changed[:-1], waiting_for_all(changed)] if len(changed) > len(steps) else changed


def waiting_for_all(steps: Sequence[Step]) -> Step:
    """The last step, after all that was done before it."""
    streams = {one.task.stream: i for i, one in enumerate(steps[:-1])}
    return replace(steps[-1], task=replace(steps[-1].task, after=tuple(sorted(streams.values()))))


def without_resharding(steps: Sequence[Step]) -> list[Step]:
    """The same without gathers in the backward pass: parameters stay where the forward pass has gathered them."""
    first = next((i for i, one in enumerate(steps) if one.task.kind == "reduce-scatter"), len(steps))
    computations = [i for i, one in enumerate(steps[:first]) if not one.task.kind]
    turn = [-1, -1, *computations][-2]
    changed: list[Step] = []
    where: dict[int, int] = {}
    for i, one in enumerate(steps):
        if one.task.kind == "all-gather" and i > turn:
            continue
        where[i] = len(changed)
        after = tuple(where[j] for j in one.task.after if j in where)
        changed.append(replace(one, task=replace(one.task, after=after)))
    return changed
