"""Other ways of sharded training as rewritings of a round's graph: copies, kept parameters, accumulated steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..rounds.graph import ACROSS, Task, backward_gathers
from .placement import TimedTask


def in_copies(steps: Sequence[TimedTask]) -> list[TimedTask]:
    """The same, with reductions among copies of the model: each after that within a copy, all before the optimizer."""
    if any(one.task.kind == "all-reduce" and one.task.group.startswith(ACROSS) for one in steps):
        return list(steps)
    changed: list[TimedTask] = []
    where: list[int] = []
    for one in steps:
        task = replace(one.task, after=tuple(where[i] for i in one.task.after))
        where.append(len(changed))
        changed.append(replace(one, task=task))
        if task.kind == "reduce-scatter":
            copies = Task(ACROSS, (where[-1],), "all-reduce", task.bytes, ACROSS)
            changed.append(TimedTask(copies))
    return [*changed[:-1], waiting_for_all(changed)] if len(changed) > len(steps) else changed


def waiting_for_all(steps: Sequence[TimedTask]) -> TimedTask:
    """The last step, after all that was done before it."""
    streams = {one.task.stream: i for i, one in enumerate(steps[:-1])}
    return replace(steps[-1], task=replace(steps[-1].task, after=tuple(sorted(streams.values()))))


def without_resharding(steps: Sequence[TimedTask]) -> list[TimedTask]:
    """The same without gathers in the backward pass: parameters stay where the forward pass has gathered them."""
    backward = backward_gathers([one.task.kind for one in steps])
    changed: list[TimedTask] = []
    where: dict[int, int] = {}
    for i, one in enumerate(steps):
        if i in backward:
            continue
        where[i] = len(changed)
        after = tuple(where[j] for j in one.task.after if j in where)
        changed.append(replace(one, task=replace(one.task, after=after)))
    return changed


def prefetching(steps: Sequence[TimedTask], ahead: int) -> list[TimedTask]:
    """The graph with gathers ``ahead`` computations before the one that needs them, in both passes.

    The gather for computation c is launched before computation c - ahead, and begins when c - ahead - 1 has ended.
    """
    computations = [i for i, one in enumerate(steps) if not one.task.kind]
    first = int(computations[0] == 0)  # before a round's first computation nothing is launched
    launched: dict[int, list[int]] = {}  # gathers, by the computation before which they are
    left = [i for i, one in enumerate(steps) if one.task.kind == "all-gather"]
    for position, i in enumerate(computations):
        needed = max((j for j in steps[i].task.after if steps[j].task.kind == "all-gather"), default=-1)
        used = [j for j in left if j <= needed]
        launched.setdefault(computations[max(position - ahead, first)], []).extend(used)
        left = left[len(used) :]
    before = dict(zip(computations[1:], computations, strict=False))
    changed: list[TimedTask] = []
    where: dict[int, int] = {}

    def add(i: int, after: Sequence[int]) -> None:
        where[i] = len(changed)
        changed.append(replace(steps[i], task=replace(steps[i].task, after=tuple(sorted(where[j] for j in after)))))

    for i, one in enumerate(steps):
        for gather in launched.get(i, ()):
            add(gather, [before[i]] if i in before else [])
        if one.task.kind != "all-gather" or i in left:
            add(i, one.task.after)
    return changed


def accumulated(steps: Sequence[TimedTask], count: int) -> list[TimedTask]:
    """So many steps, of which the last reduces the gradients of all, and only the optimizer follows.

    What a round begins with, and the optimizer, are its first and last computations. Each step gathers parameters
    again, after the computation of the one before it.
    """
    computations = [i for i, one in enumerate(steps) if not one.task.kind]
    first, optimizer = int(computations[0] == 0), computations[-1]
    changed = list(steps[:first])
    begun: tuple[int, ...] = tuple(range(first))  # what a step begins after
    where: dict[int, tuple[int, ...]] = {}

    def add(i: int) -> None:
        # what nothing of its own step holds back begins after the step before
        after = {k for j in steps[i].task.after for k in where[j]} or set(begun)
        where[i] = (len(changed),)
        changed.append(replace(steps[i], task=replace(steps[i].task, after=tuple(sorted(after)))))

    for step in range(count):
        where = dict.fromkeys(range(first), begun)
        for i in range(first, optimizer):
            if step == count - 1 or steps[i].task.kind in ("", "all-gather"):
                add(i)
            else:
                where[i] = ()
        begun = (max(k for k, one in enumerate(changed) if not one.task.kind),)
    for i in range(optimizer, len(steps)):
        add(i)
    return changed
