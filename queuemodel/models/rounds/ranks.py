"""Ranks side by side, batch by batch: each waits for its input and computes; all meet where gradients are reduced.

A `Group` sends gradients by a scheme; `Ranks` are drawn one by one. `predict`, `simulate` and `compare` have their
rounds from here. Rounds in which nobody waits for input do not depend on each other, so that `times.slowest_of` may
draw the slowest rank of each at once; the law is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...transport.collectives import Algorithm
from .schemes import Cost, Scheme
from .times import NodeLink, message_costs, sampler

if TYPE_CHECKING:
    from .model import AllReduceModel

#: Batches, for each that is loaded ahead, until it no longer matters that loaders began with nothing.
WARM_UP = 10


class Parts(NamedTuple):
    """Mean seconds of a round, and of what makes it up (see `Group.parts`)."""

    time: float
    network: float
    latency: float
    stragglers: float
    wire: float
    messages: float


@dataclass(frozen=True, eq=False)
class Group:
    """Drawn rounds of n ranks."""

    ranks: int
    sizes: np.ndarray  # (p,): Bytes of the pieces that the scheme is given: buckets as recorded, or gradients
    rows: np.ndarray  # (samples, p + 2): See `Scheme.time`; of the slowest rank (s)
    collective: Algorithm
    scheme: Scheme
    tail: float  # Seconds after the last of it

    def cost(self, link: NodeLink) -> Cost:
        """Seconds of messages that need bandwidth, and that do not."""
        return partial(message_costs, collective=self.collective, ranks=self.ranks, link=link)

    def times(self, link: NodeLink, *, slower: float = 1.0) -> np.ndarray:
        """Seconds of each round when computation takes ``slower`` times as long."""
        rows = self.rows if slower == 1.0 else slower * self.rows
        return np.asarray(self.scheme.time(self.sizes, rows, self.cost(link)) + self.tail)

    def mean_time(self, link: NodeLink, slower: float = 1.0) -> float:
        """Mean seconds of the rounds."""
        return float(self.times(link, slower=slower).mean())

    def parts(self, link: NodeLink, compute: float) -> Parts:
        """What bandwidth, latency and waiting for the slowest add to a mean rank's computation.

        ``wire`` and ``messages`` are what the network and its latency would take if nothing overlapped.
        """
        time, at_best = map(self.mean_time, (link, link._replace(latency=0.0, buffer=0.0)))
        # T = slowest + bandwidth's part (no latency) + latency's part + tail
        slowest = float(self.rows[:, -1].mean())
        work, wait = self.cost(link)(self.scheme.units(self.sizes))
        return Parts(
            time,
            max(at_best - slowest - self.tail, 0.0),
            max(time - at_best, 0.0),
            max(slowest - compute, 0.0),
            float(work.sum()),
            float(wait.sum()),
        )


class Ranks:
    """n ranks of a model in R runs, ``runs`` of each random generator; see `Scheme.time` for what they do in a step."""

    def __init__(self, model: AllReduceModel, ranks: int, rngs: Sequence[np.random.Generator], runs: int = 1) -> None:
        self.model, self.ranks, self.runs, self.link = model, ranks, runs, model.link_at(ranks)
        self.rngs, self.loaders = rngs, [rng.spawn(1)[0] for rng in rngs]
        self.sizes, rows = model.tensors()
        self.draw, self.mean = sampler(rows), float(rows[:, -1].mean())
        self.relative_compute_times = model.relative_compute_times(ranks)
        self.cost = model.group(ranks, self.sizes, rows).cost(self.link)
        #: When each rank may go on, (R, n), and when it began its last batch
        self.at = np.zeros((runs * len(rngs), ranks))
        self.begun, self.made, self.taken = self.at, self.at, np.zeros((model.batches_ahead, *self.at.shape))
        #: Seconds of a step after computation and reduction
        self.tail = model.fitted.tail if ranks > 1 else model.non_compute_time
        for _ in range(-(-WARM_UP * model.batches_ahead // model.steps_per_round) if model.loading else 0):
            self.round()
        self.made, self.taken, self.at = self.made - self.at, self.taken - self.at, np.zeros_like(self.at)

    def compute(self, batches: float | np.ndarray = 1.0) -> np.ndarray:
        """Each rank takes its next batch, of several all but the last as a mean one, and computes: waits for input."""
        shape = self.runs, self.ranks, -1
        drawn = np.concatenate([self.draw(rng, self.runs * self.ranks).reshape(shape) for rng in self.rngs])
        self.rows, self.begun = drawn * self.relative_compute_times[:, None], self.at
        self.rows[..., 1:] += (np.subtract(batches, 1.0) * self.mean * self.relative_compute_times)[..., None]
        if loading := self.model.loading:
            load = np.empty_like(self.at)
            for rng, part in zip(self.loaders, np.split(load, len(self.loaders)), strict=True):
                for i, times in enumerate(loading[: self.ranks]):
                    part[:, i :: len(loading)] = rng.choice(times, part[:, i :: len(loading)].shape)
            # made_k = max(made_(k-1), taken_(k-a)) + load_k, a buffer of a batches (Dallery and Gershwin, 1992)
            self.made = np.maximum(self.made, self.taken[0]) + load  # a loader stops while that many batches wait
            # taken_k = max(round's begin, made_k)
            self.begun = np.maximum(self.at, self.made)
            self.taken = np.append(self.taken[1:], self.begun[None], axis=0)
        waited, self.at = self.begun - self.at, self.begun + self.rows[..., -1]
        return waited

    def reduce(self, *, start: np.ndarray | None = None, later: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Rows (R, n, p + 2) since ``start``, (R, 1), of gradients that are sent ``later``, and when all may go on."""
        start = self.begun.min(axis=1, keepdims=True) if start is None else start
        rows = self.rows.copy()
        rows[..., 1:] += (self.begun - start + later)[..., None]
        group = self.model.group(self.ranks, self.sizes, rows.max(axis=1))
        seconds = group.times(self.link) if self.ranks > 1 else rows[:, 0, -1] + self.tail
        return rows, start + seconds[:, None]

    def round(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A round of the model's steps: its rows, (R, n, p + 2), waits for input, (R, n), and seconds, (R,)."""
        began = self.at
        waited = np.add.reduce([self.compute() for _ in range(self.model.steps_per_round)])
        rows, end = self.reduce(start=began[:, :1])
        self.at = np.broadcast_to(end, began.shape)
        return rows, waited, (end - began)[:, 0]

    def message_time(self, message_bytes: np.ndarray, *, gathered: bool = False) -> np.ndarray:
        """Seconds, (R,), of one message of each rank, reduced or gathered: half of reducing n times as much."""
        seconds, n = np.zeros(len(message_bytes)), self.ranks
        for size in np.unique(message_bytes[message_bytes > 0]).tolist() if n > 1 else ():
            here = message_bytes == size
            one, share = (n * size, 0.5) if gathered else (size, 1.0)
            times = self.model.scheme.time(np.array([one]), np.zeros((here.sum(), 3)), self.cost)
            seconds[here] = share * times
        return seconds
