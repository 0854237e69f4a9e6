"""Ranks on nodes and in copies of the model: how long their collectives take, and a round of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...transport.collectives import Algorithm, Hierarchical, Link, Ring
from ..rounds.graph import ACROSS, INSIDE, Task, end_times
from ..rounds.times import NodeLink

#: Collectives of parameters and gradients that are sharded.
SHARD_KINDS = ("all-gather", "reduce-scatter")
#: Collectives of several nodes follow each other: they share the nodes' links.
BETWEEN_NODES = "network"


@dataclass(frozen=True)
class TimedTask:
    """A task of a round, and of a collective the recorded seconds without waiting for other ranks."""

    task: Task
    seconds: float = 0.0


@dataclass(frozen=True)
class RankPlacement:
    """Where n ranks are, and which of them share a copy of the model; a last node that is not full counts as full."""

    ranks: int
    per_node: int = 1
    shards: int = 0  #: ranks that share a copy; 0: all
    inside: Link | None = None  #: between ranks of a node; None: as recorded
    collective: Algorithm = field(default_factory=Ring)
    #: of a link, what a gather or reduce-scatter of two ranks loses by sending both ways over one connection
    pair_loss: float = 0.0

    @property
    def copy(self) -> int:
        """Ranks that share a copy."""
        return min(self.shards or self.ranks, self.ranks)

    @property
    def padded(self) -> int:
        """Ranks, with those that would make the last node and the last copy full."""
        whole = math.lcm(self.copy, self.per_node) if self.ranks > max(self.copy, self.per_node) else 1
        return -(-self.ranks // whole) * whole

    def task(self, step: TimedTask) -> Task:
        """The task with the ranks that meet in it, and with one stream for all that shares the links of nodes."""
        task, g = step.task, self.per_node
        if not task.kind:
            return task
        inside = task.group.startswith(INSIDE)
        members = 0 if task.group.startswith(ACROSS) else self.copy if task.kind in SHARD_KINDS else g if inside else 0
        local = members and members <= g
        return replace(
            task, stream=task.group if local else BETWEEN_NODES, ranks=members if members < self.ranks else 0
        )

    def seconds(self, step: TimedTask, link: NodeLink) -> float:
        """Of a collective, once all its ranks are there; ``link`` is a node's."""
        kind, group, n, g, copy = step.task.kind, step.task.group, self.ranks, self.per_node, self.copy
        node, V = Link(link.bandwidth, latency=link.latency), step.task.bytes
        # g rings, one for each place in a node, share the node's link: B / g each, V bytes over N nodes
        if group.startswith(ACROSS) and kind in SHARD_KINDS:  # each rank of a node with its like on the others
            return self._among(step, V, -(-n // g), 1, replace(node, bandwidth=node.bandwidth / g), rings=g)
        if group.startswith(ACROSS):  # likewise, of each rank of a copy
            rings = min(copy, g)
            shared = replace(node, bandwidth=node.bandwidth / rings)
            return self._among(step, V / copy, -(-n // copy), max(g // copy, 1), shared, rings=rings)
        if kind in SHARD_KINDS:
            return self._among(step, V, copy, g, node)
        return self._within(step, min(g, n)) if group.startswith(INSIDE) else self._among(step, V, n, g, node)

    def _among(self, step: TimedTask, V: float, ranks: int, per_node: int, link: Link, *, rings: int = 1) -> float:
        """Of V bytes among so many ranks, some of them on each node, whose link other rings may share."""
        kind = step.task.kind
        if ranks <= per_node:
            return self._within(step, ranks)
        if per_node > 1 and self.inside is not None:
            return float(Hierarchical(per_node, self.inside, self.collective).time(V, ranks, link, kind=kind))
        # a ring through nodes of g ranks: V / g bytes cross each link in N - 1 steps, the rest stays inside
        nodes, alone = -(-ranks // per_node), kind in SHARD_KINDS and rings * per_node == 1
        carried = (1 - self.pair_loss / (nodes - 1) ** 2 * alone) / per_node
        shared = replace(link, bandwidth=link.bandwidth * carried)
        between = self.collective.time(V / per_node, nodes, shared, kind=kind)
        return float(between) + self._within(step, per_node)

    def _within(self, step: TimedTask, ranks: int) -> float:
        """Among ranks of a node: by the link there, or as was recorded of all of them."""
        if ranks == 1:
            return 0.0
        if self.inside is not None:
            return float(Ring().time(step.task.bytes, ranks, self.inside, kind=step.task.kind))
        # a ring moves (g-1)/g of the bytes
        return step.seconds * (1 - 1 / ranks) / (1 - 1 / self.per_node)


def round_times(
    steps: Sequence[TimedTask],
    computed: np.ndarray,
    placement: RankPlacement,
    link: NodeLink,
    *,
    without: Collection[str] = (),
) -> np.ndarray:
    """Seconds of rounds, (samples,), whose ranks compute for such seconds, (samples, ranks, computations).

    Exact for collectives that take no less time when others wait. Those of the kinds ``without`` take none.
    """
    tasks, seconds = [placement.task(step) for step in steps], task_seconds(steps, computed, placement, link, without)
    ends = end_times(tasks, seconds, [np.zeros(1)] * len(steps))
    over = np.zeros(len(computed))
    for end in {task.stream: end for task, end in zip(tasks, ends, strict=True)}.values():
        np.maximum(over, end.max(axis=-1), out=over)
    return over


def task_seconds(
    steps: Sequence[TimedTask],
    computed: np.ndarray,
    placement: RankPlacement,
    link: NodeLink,
    without: Collection[str] = (),
) -> list[np.ndarray]:
    """Seconds of each task, which broadcast to (samples, ranks); see `round_times`."""
    rows, seconds = iter(np.moveaxis(computed, -1, 0)), []
    for step in steps:
        kind = step.task.kind
        took = 0.0 if not kind or kind in without else placement.seconds(step, link)
        seconds.append(np.array([took]) if kind else next(rows))
    return seconds
