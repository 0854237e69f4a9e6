"""One replication: a run that can be made longer, and what its batches have seen."""

from __future__ import annotations

import numpy as np

from ...network import Network
from ..kernels import simulate as kernel
from ..routes import Routes
from .arrays import new_run

#: Batches that a run is kept in: when it is made longer they are joined in pairs.
BATCHES = 200
#: Left out at the beginning of every run.
WARM_UP = 0.2
#: Departures between two looks at whether somebody wants to stop.
AT_ONCE = 50_000


class Replication:
    """Customers who begin all at one place, another one in each replication, so that agreement is not the start's."""

    def __init__(
        self, network: Network, routes: Routes, model: kernel.Model, counts: tuple[int, ...], rng: np.random.Generator,
        number: int, size: int,
    ) -> None:  # fmt: skip
        self.routes, self.model, self.rng, self.size = routes, model, rng, size
        self.chains = [list(chain) for chain in network.chains]
        self.stay = routes.P.sum(axis=(2, 3)).T > 0
        starts = []
        for chain in self.chains:
            homes = [(k, c) for c in chain for k in range(len(self.stay)) if self.stay[k, c]]
            starts += [homes[number % len(homes)]] * sum(counts[c] for c in chain)
        place, klass = rng.permutation(np.array(starts, dtype=np.int64)).T
        self.run = new_run(model, place, klass, BATCHES)

    @property
    def departures(self) -> int:
        """Departures per replication, when every batch is full."""
        return BATCHES * self.size

    def fill(self) -> None:
        """Run until every batch is full, returning to Python every so often, so that Ctrl-C ends it."""
        while self.run.counters[kernel.BATCH] < BATCHES:
            kernel.advance(self.rng, self.model, self.run, self.size, AT_ONCE)

    def double(self) -> None:
        """Join batches in pairs, which leaves room for as many again."""
        half = BATCHES // 2
        for series in (self.run.durations, self.run.areas, self.run.departures, self.run.busy):
            series[:half] = series[0:BATCHES:2] + series[1:BATCHES:2]
            series[half:] = 0.0
        self.run.counters[kernel.BATCH] = half
        self.size *= 2

    def measures(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """X (C,), Q (K, C) and how often somebody was there (K,), after the warm-up."""
        kept = slice(int(WARM_UP * BATCHES), BATCHES)
        time = self.run.durations[kept].sum()
        X = self._cycles(self.run.departures[kept].sum(axis=0)) / time
        return X, self.run.areas[kept, :-1].sum(axis=0) / time, self.run.busy[kept, :-1].sum(axis=0) / time

    def series(self) -> np.ndarray:
        """Queue lengths at each place, then throughputs, of each class, batch by batch after the warm-up: (B, M)."""
        kept = slice(int(WARM_UP * BATCHES), BATCHES)
        time = self.run.durations[kept, None]
        queues = self.run.areas[kept].reshape(len(time), -1) / time
        return np.hstack([queues, self._cycles(self.run.departures[kept]) / time])

    def _cycles(self, departures: np.ndarray) -> np.ndarray:
        """Cycles of each class's chain from departures (..., C)."""
        visits = (self.routes.visits * self.stay).sum(axis=0)
        cycles = np.zeros(departures.shape)
        for chain in self.chains:
            cycles[..., chain] = departures[..., chain].sum(axis=-1, keepdims=True) / visits[chain].sum()
        return cycles
