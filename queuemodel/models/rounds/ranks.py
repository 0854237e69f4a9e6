"""Ranks side by side, batch by batch: each waits for its input and computes; all meet where gradients are reduced.

`predict`, `simulate` and `compare` have their rounds from here. Rounds in which nobody waits for input do not depend on
each other, so that `times.slowest_of` may draw the slowest rank of each at once; the law is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .loading import AHEAD
from .times import sampler

if TYPE_CHECKING:
    from .model import AllReduceModel

#: Batches until it no longer matters that loaders began with nothing.
WARM_UP = 20


class RankRounds(NamedTuple):
    """A round of R runs: what each rank did in it, and the seconds that it took."""

    rows: np.ndarray  # (R, n, p + 2): As `Scheme.time` gets them, of each rank, since the round began
    waited: np.ndarray  # (R, n): Seconds for which each rank waited for its input
    seconds: np.ndarray  # (R,)


class Ranks:
    """n ranks of a model in R runs: so many of each random generator.

    Attributes
    ----------
    at : ndarray
        When each rank may go on, (R, n).
    begun : ndarray
        When it had its last batch.
    rows : ndarray
        What it made of that, (R, n, p + 2), since ``begun``: see `Scheme.time`.
    """

    def __init__(
        self, model: AllReduceModel, ranks: int, rngs: Sequence[np.random.Generator], *, runs: int = 1
    ) -> None:
        self.model, self.ranks, self.runs, self.link = model, ranks, runs, model.among(ranks)
        self.rngs, self.loaders = rngs, [rng.spawn(1)[0] for rng in rngs]
        self.sizes, rows = model.pieces()
        self.draw, self.mean = sampler(rows), float(rows[:, -1].mean())
        self.paces = model.paces(ranks)
        self.cost = model.group(ranks, self.sizes, rows).cost(self.link)
        self.at = np.zeros((runs * len(rngs), ranks))
        self.begun, self.made, self.taken = self.at, self.at, np.zeros((AHEAD, *self.at.shape))
        #: Seconds of a step after computation and reduction
        self.tail = model.fitted.tail if ranks > 1 else model.beyond
        for _ in range(-(-WARM_UP // model.steps_per_round) if model.loading else 0):
            self.round()
        self.made, self.taken, self.at = self.made - self.at, self.taken - self.at, np.zeros_like(self.at)

    def compute(self, batches: float | np.ndarray = 1.0) -> np.ndarray:
        """Each rank takes its next batch when it is loaded, and computes; seconds for which it waited, (R, n).

        Of several ``batches`` all but the last take the mean time.
        """
        shape = self.runs, self.ranks, -1
        drawn = np.concatenate([self.draw(rng, self.runs * self.ranks).reshape(shape) for rng in self.rngs])
        self.rows, self.begun = drawn * self.paces[:, None], self.at
        self.rows[..., 1:] += (np.subtract(batches, 1.0) * self.mean * self.paces)[..., None]
        if loading := self.model.loading:
            load = np.empty_like(self.at)
            for rng, part in zip(self.loaders, np.split(load, len(self.loaders)), strict=True):
                for i, times in enumerate(loading[: self.ranks]):
                    part[:, i :: len(loading)] = rng.choice(times, part[:, i :: len(loading)].shape)
            self.made = np.maximum(self.made, self.taken[0]) + load  # a loader stops while AHEAD batches wait
            self.begun = np.maximum(self.at, self.made)
            self.taken = np.append(self.taken[1:], self.begun[None], axis=0)
        waited, self.at = self.begun - self.at, self.begun + self.rows[..., -1]
        return waited

    def reduce(self, later: float = 0.0) -> np.ndarray:
        """When the last batch's gradients are reduced and all may go on, (R, 1); each is sent so much ``later``."""
        if self.ranks == 1:
            return self.at + self.tail
        start = self.begun.min(axis=1, keepdims=True)
        rows = self.rows.copy()
        rows[..., 1:] += (self.begun - start + later)[..., None]
        group = self.model.group(self.ranks, self.sizes, rows.max(axis=1))
        return start + group.times(self.link)[:, None]

    def round(self) -> RankRounds:
        """The steps of the model's round, and the reduction that ends it."""
        began, waited = self.at, np.zeros_like(self.at)
        for _ in range(self.model.steps_per_round):
            waited = waited + self.compute()
        rows = self.rows.copy()
        rows[..., 1:] += (self.begun - began)[..., None]
        self.at = np.broadcast_to(self.reduce(), began.shape)
        return RankRounds(rows, waited, (self.at - began)[:, 0])

    def message_time(self, message_bytes: np.ndarray, *, gathered: bool = False) -> np.ndarray:
        """Seconds of one message of so many bytes of each rank, (R,), which are reduced, or gathered; nothing takes 0.

        Gathering takes half of reducing n times as much.
        """
        seconds, n = np.zeros(len(message_bytes)), self.ranks
        for size in np.unique(message_bytes[message_bytes > 0]).tolist() if n > 1 else ():
            here = message_bytes == size
            one, share = (n * size, 0.5) if gathered else (size, 1.0)
            times = self.model.scheme.time(np.array([one]), np.zeros((here.sum(), 3)), self.cost)
            seconds[here] = share * times
        return seconds
