"""Ranks side by side, batch by batch: each waits for its input and computes; all meet where gradients are reduced.

`predict`, `simulate` and `compare` have their rounds from here. Rounds in which nobody waits for input do not depend on
each other, so that `times.slowest_of` may draw the slowest rank of each at once; the law is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .times import sampler

if TYPE_CHECKING:
    from .model import AllReduceModel

#: Batches, for each that is loaded ahead, until it no longer matters that loaders began with nothing.
WARM_UP = 10


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
