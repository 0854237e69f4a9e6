"""One replication of a simulation: a network as the arrays of the compiled loop, and a run that can be made longer."""

from __future__ import annotations

import numpy as np

from ..base.errors import ModelError
from .kernels import simulate as kernel
from .routes import Routes
from .stations import PhaseType

#: Batches that a run is kept in: when it is made longer they are joined in pairs.
BATCHES = 200
#: Left out at the beginning of every run.
WARM_UP = 0.2
#: Departures between two looks at whether somebody wants to stop.
AT_ONCE = 50_000


class Replication:
    """Customers who begin all at one place, another one in each replication, so that agreement is not the start's."""

    def __init__(
        self,
        routes: Routes,
        model: kernel.Model,
        counts: tuple[int, ...],
        rng: np.random.Generator,
        number: int,
        size: int,
    ) -> None:
        self.routes, self.model, self.rng, self.size = routes, model, rng, size
        starts, stay = [], routes.stay
        for chain in routes.network.chains:
            homes = [(k, c) for c in chain for k in range(len(stay)) if stay[k, c]]
            starts += [homes[number % len(homes)]] * sum(counts[c] for c in chain)
        place, klass = rng.permutation(np.array(starts, dtype=np.int64)).T
        self.run = _new_run(model, place, klass)

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
        X = self.routes.cycles(self.run.departures[kept].sum(axis=0)) / time
        return X, self.run.areas[kept, :-1].sum(axis=0) / time, self.run.busy[kept, :-1].sum(axis=0) / time

    def series(self) -> np.ndarray:
        """Queue lengths at each place, then throughputs, of each class, batch by batch after the warm-up: (B, M)."""
        kept = slice(int(WARM_UP * BATCHES), BATCHES)
        time = self.run.durations[kept, None]
        queues = self.run.areas[kept].reshape(len(time), -1) / time
        return np.hstack([queues, self.routes.cycles(self.run.departures[kept]) / time])


def model_of(routes: Routes, population: int) -> kernel.Model:
    """What does not change while ``population`` customers are simulated."""
    network = routes.network
    K, C = routes.visits.shape
    shapes = {
        (k, c): s.distribution_of(label) or PhaseType.from_moments(mean=s.time_of(label), scv=s.scv_of(label))
        for k, s in enumerate(network.stations)
        for c, label in enumerate(network.labels)
        if s.distribution_of(label) or (s.scv_of(label) > 1 and s.time_of(label) > 0)
    }
    phases = max([1, *[len(shape.alpha) for shape in shapes.values()]])
    model = kernel.Model(
        kind=np.full(K, kernel.DELAY),
        servers=np.ones(K, dtype=np.int64),
        speed=np.ones((K, population + 1)),
        dist=np.full((K, C), kernel.EXPONENTIAL),
        mean=routes.service_times.copy(),
        shape=np.ones((K, C)),
        first=np.ones((K, C, phases)),
        T=np.ones((K, C, phases, phases + 2)),
        go=np.cumsum(routes.P.reshape(C, K, C * K), axis=2),
    )
    for k, station in enumerate(network.stations):
        model.speed[k, 1:] = 1.0 if station.is_delay else station.speeds(population)
        if not station.is_delay and station.discipline == "ps":
            model.kind[k] = kernel.SHARING
        elif not station.is_delay and station.discipline == "fcfs":
            model.kind[k] = kernel.FCFS if station.rates is None else kernel.ORDERED
            model.servers[k] = int(min(station.servers, population))
        elif not station.is_delay:
            model.kind[k] = kernel.LIFO
            if station.servers != 1:
                raise ModelError(
                    f"simulation: station {station.name!r} is lifo-pr with several servers; use MarkovChain"
                )
        for c, label in enumerate(network.labels):
            scv = station.scv_of(label)
            if (k, c) in shapes:
                model.dist[k, c] = kernel.PHASES
                _put_phases(shapes[k, c], model.first[k, c], model.T[k, c])
            elif scv < 1:
                model.dist[k, c], model.shape[k, c] = (
                    (kernel.GAMMA, 1.0 / scv) if scv > 1e-9 else (kernel.CONSTANT, 1.0)
                )
    return model


def _new_run(model: kernel.Model, place: np.ndarray, klass: np.ndarray) -> kernel.Run:
    """Customers about to come to their places, in that order; one row more than batches for what comes after."""
    (K, C), N, B = model.mean.shape, len(place), BATCHES
    servers, many = model.servers[model.kind == kernel.FCFS].max(initial=1), np.int64
    return kernel.Run(
        place=place.copy(), klass=klass.copy(), counters=np.zeros(4, many), clocks=np.zeros(2),
        n=np.zeros(K, many), q=np.zeros((K, C), many), heap_time=np.empty(N + 1), heap_who=np.zeros(N + 1, many),
        free=np.zeros((K, servers)), tag=np.empty((K, N + 1)), order=np.zeros((K, N + 1), many),
        clock=np.zeros(K), last=np.zeros(K), coming=np.full(K, np.inf), since=np.zeros((K, C)), occupied=np.zeros(K),
        durations=np.zeros(B), areas=np.zeros((B + 1, K, C)), departures=np.zeros((B + 1, C)),
        busy=np.zeros((B + 1, K)), visits=np.zeros((K, C), many),
    )  # fmt: skip


def _put_phases(shape: PhaseType, first: np.ndarray, T: np.ndarray) -> None:
    """Cumulative first phases, and per phase its rate and cumulative moves; the last one ends the service."""
    n = len(shape.alpha)
    first[:n] = np.cumsum(shape.alpha)
    first[n - 1 :] = 1.0
    rates = np.array(shape.T)
    for i in range(n):
        moves = rates[i].copy()
        moves[i] = 0.0
        T[i, 0] = -rates[i, i]
        T[i, 1 : n + 1] = np.cumsum(moves) / -rates[i, i]
        T[i, n + 1 :] = T[i, n]
        T[i, -1] = 1.0
