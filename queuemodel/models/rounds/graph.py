"""A round as a graph on streams: computations, and collectives in which the ranks of a group meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

#: Names of process groups begin with how they grow: with all ranks, not (they are of neighbours), or with the nodes.
ALL, INSIDE, ACROSS = "all ranks", "inside a node", "across nodes"


@dataclass(frozen=True, slots=True)
class Task:
    """One task of every rank.

    Attributes
    ----------
    stream : str
        "compute", or the communicator of a collective: tasks of one stream run in order.
    after : tuple of int
        Tasks, by their index, that must end before.
    kind : str
        Of a collective, whose ranks begin together; "" of a computation.
    bytes : float
        Of a collective: the whole data, gathered or before it is scattered.
    group : str
        Process group of a collective.
    ranks : int
        How many ranks meet, neighbours; 0: all. It divides the number of ranks.
    """

    stream: str
    after: tuple[int, ...] = ()
    kind: str = ""
    bytes: float = 0.0
    group: str = ""
    ranks: int = 0


def backward_gathers(kinds: Sequence[str]) -> list[int]:
    """Which of a step's tasks gather parameters once more: those after as many gathers as there are reduce-scatters.

    Each unit is gathered in the forward pass, and its gradients are scattered once.
    """
    gathers = [i for i, kind in enumerate(kinds) if kind == "all-gather"]
    return gathers[kinds.count("reduce-scatter") :]


def end_times(tasks: Sequence[Task], seconds: Sequence[np.ndarray], latency: Sequence[np.ndarray]) -> list[np.ndarray]:
    """When each task ends on each rank, a max-plus recursion over the graph; exact.

    ``seconds`` occupy the stream of each task, ``latency`` passes before what waits for it may begin. Both are arrays
    that broadcast to (samples, ranks), one for each task.
    """
    ends: list[np.ndarray] = []
    free: dict[str, np.ndarray] = {}
    for task, duration, late in zip(tasks, seconds, latency, strict=True):
        # start = max(previous task of the stream, all that it waits for)
        start = reduce(np.maximum, [ends[i] for i in task.after], free.get(task.stream, np.zeros(1)))
        if task.kind and not task.ranks:  # its ranks meet
            # the last of all ranks
            start = np.max(start, axis=-1, keepdims=True)
        elif task.kind and start.shape[-1] > 1:
            # the last of each group of neighbours
            groups = start.reshape(*start.shape[:-1], -1, task.ranks)
            start = np.repeat(groups.max(axis=-1), task.ranks, axis=-1)
        # the stream is free after its work, what waits goes on a latency later
        free[task.stream] = start + duration
        ends.append(free[task.stream] + late)
    return ends


def transfer_times(begin: np.ndarray, end: np.ndarray, collectives: Sequence[int]) -> np.ndarray:
    """Seconds of each collective from when its last rank begins to when its last rank ends, (rounds, tasks); else 0.

    ``begin`` and ``end`` (rounds, ranks, tasks) are by each rank's own clock. A collective ends everywhere at once, on
    average over all of a round: that puts the clocks on top of each other.
    """
    taken = np.zeros((len(begin), begin.shape[-1]))
    if len(collectives):
        # offset of each rank's clock to the first's: ends are the same moment
        clock = (end[:, :1, collectives] - end[..., collectives]).mean(axis=-1, keepdims=True)
        last = [(moments + clock).max(axis=1)[:, collectives] for moments in (begin, end)]
        taken[:, collectives] = np.maximum(last[1] - last[0], 0.0)
    return taken
