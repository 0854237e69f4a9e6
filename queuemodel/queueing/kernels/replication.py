"""One replication of a simulation: a network as arrays, and a run that can be doubled."""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from ...base.errors import ModelError
from ..lowered import Routes
from ..stations import PhaseType
from . import events
from .events import BATCH, CONSTANT, DELAY, FCFS, GAMMA, LIFO, ORDERED, PHASES, SHARING, advance

#: Per place (K; the last is for thinking) and class (C): kind, servers, speed with n customers; of service the kind of
#: distribution, mean, shape parameter, and of phase types cumulative first phases and moves; go (C, K, C*K), cumulative
#: probabilities of the next class and place; source (C,), whether the last place is where a class arrives from.
Model = namedtuple("Model", "kind servers speed dist mean shape first T go source")

#: Customers' place and klass; counters and clocks; per place customers there (q: by class), when its servers are free,
#: what remains of whose service and since when; for each batch, time, areas under queues, departures, time in use; and
#: by place and class visits, when each customer arrived and left thinking, response times in bins and their range.
Run = namedtuple(
    "Run",
    "place klass counters clocks n q heap_time heap_who free tag order clock last coming since occupied "
    "durations areas departures busy visits arrived left responses ends",
)
#: Batches that a run is kept in: when it is made longer they are joined in pairs.
BATCHES = 200
#: After the warm-up, a fifth of every run.
KEPT = slice(BATCHES // 5, BATCHES)
#: Upper ends of the bins of response times (s); a bin is 0.4 to 0.8 % wide.
BIN_ENDS = np.ldexp(
    0.5 + 0.5 * np.arange(1, events.IN_OCTAVE + 1) / events.IN_OCTAVE,
    events.FIRST_OCTAVE + np.arange(events.OCTAVES)[:, None],
).ravel()
#: Departures between two looks for an interruption.
AT_ONCE = 50_000


class Replication:
    """A run whose customers begin at one place, different in each replication, to show a dependence on the start."""

    def __init__(
        self, routes: Routes, model: Model, counts: tuple[int, ...], rng: np.random.Generator, number: int, size: int
    ) -> None:
        self.routes, self.model, self.rng, self.size = routes, model, rng, size
        starts, stay = [], routes.stay
        for chain in routes.network.chains:
            homes = [(k, c) for c in chain for k in range(len(stay)) if stay[k, c]]
            if model.source[chain[0]]:
                homes = homes[-1:]
            starts += [homes[number % len(homes)]] * sum(counts[c] for c in chain)
        place, klass = rng.permutation(np.array(starts, dtype=np.int64)).T
        self.run = _new_run(model, place, klass)

    @property
    def departures(self) -> int:
        return BATCHES * self.size

    def fill(self) -> None:
        """Run until every batch is full, returning to Python every so often, so that Ctrl-C ends it."""
        while self.run.counters[BATCH] < BATCHES:
            advance(self.rng, self.model, self.run, self.size, AT_ONCE, KEPT.start)

    def double(self) -> None:
        """Join batches in pairs: batch means of twice the length, and room for as many again."""
        half = BATCHES // 2
        for series in (self.run.durations, self.run.areas, self.run.departures, self.run.busy):
            series[:half] = series[0:BATCHES:2] + series[1:BATCHES:2]
            series[half:] = 0.0
        self.run.counters[BATCH] = half
        # those of the second half are counted; new zeros take no memory for what nobody visits
        self.run = self.run._replace(responses=np.zeros(self.run.responses.shape, np.int64))
        self.size *= 2

    def measures(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """X (C,), Q (K, C) and the share of time with customers (K,), after the warm-up."""
        time = self.run.durations[KEPT].sum()
        X = self.routes.cycles(self.run.departures[KEPT].sum(axis=0)) / time  # Q: time average, area / time
        return X, self.run.areas[KEPT, :-1].sum(axis=0) / time, self.run.busy[KEPT, :-1].sum(axis=0) / time

    def response_quantile(self, share: float, place: int, classes: list[int]) -> tuple[float, int]:
        """Seconds within which ``share`` of the responses at a place are over, interpolated in a bin; their number."""
        counts = np.cumsum(self.run.responses[place, classes].sum(axis=0))
        at = int(np.searchsorted(counts, share * counts[-1]))
        low, high = np.append(0.0, BIN_ENDS)[at : at + 2]
        before = counts[at - 1] if at else 0
        within = (share * counts[-1] - before) / max(counts[at] - before, 1)
        ends = self.run.ends[place, classes]
        return float(np.clip(low + within * (high - low), ends[:, 0].min(), ends[:, 1].max())), int(counts[-1])

    def series(self) -> np.ndarray:
        """Batch means after the warm-up, queue lengths at places, then throughputs, of each class: (B, M)."""
        time = self.run.durations[KEPT, None]
        queues = self.run.areas[KEPT].reshape(len(time), -1) / time
        return np.hstack([queues, self.routes.cycles(self.run.departures[KEPT]) / time])


def model_of(routes: Routes, population: int) -> Model:
    """Constant arrays of a simulation of ``population`` customers."""
    network = routes.network
    K, C = routes.visits.shape
    shapes = {
        (k, c): shape
        for k, s in enumerate(network.stations)
        for c, label in enumerate(network.labels)
        if (s.distribution_of(label) or s.scv_of(label) > 1) and (shape := s.shape_of(label))
    }
    phases = max([1, *[len(shape.alpha) for shape in shapes.values()]])
    model = Model(
        kind=np.full(K, DELAY), servers=np.ones(K, dtype=np.int64), speed=np.ones((K, population + 1)),
        dist=np.full((K, C), GAMMA), mean=routes.service_times.copy(), shape=np.ones((K, C)),
        first=np.ones((K, C, phases)), T=np.ones((K, C, phases, phases + 2)),
        go=np.cumsum(routes.P.reshape(C, K, C * K), axis=2), source=(network.arrival_rates > 0).astype(np.int64),
    )  # fmt: skip
    for (k, c), shape in shapes.items():
        model.dist[k, c] = PHASES
        _put_phases(shape, model.first[k, c], model.T[k, c])
    for k, station in enumerate(network.stations):
        for c, label in enumerate(network.labels):
            if (scv := station.scv_of(label)) < 1 and (k, c) not in shapes:
                model.dist[k, c], model.shape[k, c] = (GAMMA, 1.0 / scv) if scv > 1e-9 else (CONSTANT, 1.0)
        if station.is_delay:
            continue
        model.speed[k, 1:] = station.speeds(population)
        model.kind[k] = {"ps": SHARING, "fcfs": FCFS if station.rates is None else ORDERED, "lifo-pr": LIFO}[
            station.discipline
        ]
        if station.discipline == "fcfs":
            model.servers[k] = int(min(station.servers, population))
        elif station.discipline == "lifo-pr" and station.servers != 1:
            raise ModelError(f"simulation: station {station.name!r} is lifo-pr with several servers; use MarkovChain")
    return model


def _new_run(model: Model, place: np.ndarray, klass: np.ndarray) -> Run:
    """Arrays before the first event: customers are about to arrive; one row after the batches takes the rest."""
    (K, C), N, B = model.mean.shape, len(place), BATCHES
    servers, many = model.servers[model.kind == FCFS].max(initial=C), np.int64
    return Run(
        place=place.copy(), klass=klass.copy(), counters=np.zeros(4, many), clocks=np.zeros(2),
        n=np.zeros(K, many), q=np.zeros((K, C), many), heap_time=np.empty(N + 1), heap_who=np.zeros(N + 1, many),
        free=np.zeros((K, servers)), tag=np.empty((K, N + 1)), order=np.zeros((K, N + 1), many),
        clock=np.zeros(K), last=np.zeros(K), coming=np.full(K, np.inf), since=np.zeros((K, C)), occupied=np.zeros(K),
        durations=np.zeros(B), areas=np.zeros((B + 1, K, C)), departures=np.zeros((B + 1, C)),
        busy=np.zeros((B + 1, K)), visits=np.zeros((K, C), many), arrived=np.zeros(N), left=np.full(N, -1.0),
        responses=np.zeros((K, C, BIN_ENDS.size), many), ends=np.tile([np.inf, 0.0], (K, C, 1)),
    )  # fmt: skip


def _put_phases(shape: PhaseType, first: np.ndarray, T: np.ndarray) -> None:
    """Cumulative first phases, and per phase its rate and cumulative moves; the last one ends the service."""
    n, out = len(shape.alpha), -np.diag(shape.T)
    first[:n] = np.cumsum(shape.alpha)
    first[n - 1 :] = 1.0
    moves = np.array(shape.T) + np.diag(out)
    T[:n, 0] = out
    T[:n, 1 : n + 1] = np.cumsum(moves, axis=1) / out[:, None]  # P(i to j) = T_ij / -T_ii
    T[:n, n + 1 :] = T[:n, n, None]
    T[:n, -1] = 1.0
