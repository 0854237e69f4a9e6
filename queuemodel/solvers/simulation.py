"""Simulation of a network: the judge of approximations, for any service distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import require_count, require_number
from ..errors import ModelError
from ..network import Network, PhaseType, Solution
from .lowering import chains_of
from .routes import routes_of

BATCHES = 200


@dataclass(frozen=True, slots=True, eq=False)
class SimulationResult:
    """Estimates with their intervals; `solution` holds the means in the form of every other solver.

    Attributes
    ----------
    solution : Solution
    confidence : float
    throughput_interval : tuple of float
        Lower and upper end for the throughput of all customers.
    queue_length_interval : ndarray, shape (2, K)
    replications : int
    warm_up : float
        Largest part of a replication that was left out as warm-up.
    events : int
        Departures simulated in all.
    replicated_throughputs : ndarray, shape (replications,)
    """

    solution: Solution
    confidence: float
    throughput_interval: tuple[float, float]
    queue_length_interval: np.ndarray
    replications: int
    warm_up: float
    events: int
    replicated_throughputs: np.ndarray

    @property
    def throughput(self) -> float:
        """Cycles per second, the mean over replications."""
        return self.solution.throughput

    def __repr__(self) -> str:
        low, high = self.throughput_interval
        return f"{self.solution!r}\nthroughput {low:.6g} to {high:.6g} /s with {self.confidence:.0%} confidence"


@dataclass(frozen=True, slots=True)
class Simulation:
    """Discrete-event simulation, replicated (Law, 2015), warm-up found by MSER-5 (White, 1997); compiled.

    Service: phase-type where a distribution is given; else by mean and scv: constant (0), gamma (below 1), exponential
    (1), hyperexponential with balanced means (above 1). Think times are exponential. Intervals are Student's over
    replications. Approximate by nature; the interval says how much.

    Parameters
    ----------
    seed : int or numpy Generator
        The same seed gives the same numbers.
    departures : int, default 200,000
        Departures from stations in each replication.
    replications : int, default 8
        At least 2.
    confidence : float, default 0.95
    """

    seed: Any = 0
    departures: int = 200_000
    replications: int = 8
    confidence: float = 0.95

    def __post_init__(self) -> None:
        for what, least in (("departures", BATCHES), ("replications", 2)):
            value = getattr(self, what)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ModelError(f"simulation: {what} must be a whole number of at least {least}, got {value!r}")
        confidence = require_number(self.confidence, "simulation: confidence", unit="", positive=True)
        if confidence >= 1:
            raise ModelError(f"simulation: confidence must be between 0 and 1, got {confidence!r}")

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Means at ``population``; `run` gives the intervals too."""
        return self.run(network, population).solution

    def run(self, network: Network, population: int | tuple[int, ...]) -> SimulationResult:
        """Simulate and give estimates with intervals."""
        counts = (population,) if isinstance(population, int) else tuple(population)
        require_count(sum(counts), "population")
        setup = _Setup(network, counts)
        rng = self.seed if isinstance(self.seed, np.random.Generator) else np.random.default_rng(self.seed)
        runs = [setup.run(child, max(1, self.departures // BATCHES)) for child in rng.spawn(self.replications)]
        X, Q = np.array([r[0] for r in runs]), np.array([r[1] for r in runs])
        from scipy.special import stdtrit

        t = float(stdtrit(self.replications - 1, 0.5 + self.confidence / 2)) / math.sqrt(self.replications)
        members = [chain[0] for chain in network.chains]
        total, queue = X[:, members].sum(axis=1), Q.sum(axis=2)
        half, wide = t * total.std(ddof=1), t * queue.std(axis=0, ddof=1)
        mean, lengths = float(total.mean()), queue.mean(axis=0)
        busy = np.mean([r[3] for r in runs], axis=0)
        solution = self._solution(network, population, X.mean(axis=0), Q.mean(axis=0), busy)
        return SimulationResult(
            solution,
            self.confidence,
            (float(mean - half), float(mean + half)),
            np.array([lengths - wide, lengths + wide]),
            self.replications,
            max(r[2] for r in runs),
            self.replications * BATCHES * max(1, self.departures // BATCHES),
            total,
        )

    def _solution(
        self, network: Network, population: int | tuple[int, ...], X: np.ndarray, Q: np.ndarray, busy: np.ndarray
    ) -> Solution:
        about: dict[str, Any] = {
            "solver": f"simulation, {self.replications} replications of {self.departures:,} departures",
            "exact": False,
            "reason": "an estimate: Simulation(...).run gives its interval",
        }
        dependent = np.array([s.rates is not None for s in network.stations])
        seen = np.where(dependent, busy, np.nan) if dependent.any() else None
        if isinstance(population, int):
            row = None if seen is None else seen[None, :]
            return Solution(network, population, X, (Q[:, 0] / X[0])[None, :], busy=row, **about)
        chains = chains_of(network, population)
        x = np.array([X[members[0]] for members in network.chains])
        q = np.array([Q[:, list(members)].sum(axis=1) for members in network.chains]).T
        return chains.solution(x, q, busy=seen, **about)


class _Setup:
    """The arrays that the compiled loop takes."""

    def __init__(self, network: Network, counts: tuple[int, ...]) -> None:
        from .kernels import simulate as kernel

        self.network, self.counts = network, counts
        routes = routes_of(network)
        K, C, N = len(network.stations) + 1, len(counts), sum(counts)
        labels = network.class_names or [None]  # type: ignore[list-item]
        self.go = np.zeros((C, K, C * K))
        for c in range(C):
            for k in range(K):
                self.go[c, k] = np.cumsum(routes.P[c, k].ravel())
        self.stay = routes.P.sum(axis=(2, 3)).T > 0
        self.visits = routes.visits
        self.kind = np.full(K, kernel.DELAY)
        self.servers = np.ones(K, dtype=np.int64)
        self.speed = np.ones((K, N + 1))
        self.mean = routes.service_times.copy()
        self.dist, self.shape = np.full((K, C), kernel.EXPONENTIAL), np.ones((K, C))
        phases = _most_phases(network)
        self.first, self.T = np.ones((K, C, phases)), np.ones((K, C, phases, phases + 2))
        widest = max([1, *[len(s.branches) for s in network.stations]])
        self.branch, self.branch_dist, self.branch_shape = np.zeros((K, widest)), np.ones(K, dtype=int), np.ones(K)
        for k, station in enumerate(network.stations):
            self.speed[k, 1:] = [1.0 if station.is_delay else station.rate(n) for n in range(1, N + 1)]
            if station.branches:
                self.kind[k] = kernel.FORK
                self.branch[k, : len(station.branches)] = station.branches
                self.branch_dist[k], self.branch_shape[k] = _shape(station.scv_of(None))
                continue
            if station.is_delay:
                pass
            elif station.discipline == "ps":
                self.kind[k] = kernel.SHARING
            elif station.discipline == "fcfs":
                self.kind[k] = kernel.FCFS if station.rates is None else kernel.ORDERED
                self.servers[k] = int(min(station.servers, N))
            else:
                self.kind[k] = kernel.LIFO
                if station.servers != 1:
                    raise ModelError(
                        f"simulation: station {station.name!r} is lifo-pr with several servers; use MarkovChain"
                    )
            for c, label in enumerate(labels):
                given = station.distribution_of(label)
                if given is None:
                    self.dist[k, c], self.shape[k, c] = _shape(station.scv_of(label))
                else:
                    self.dist[k, c] = kernel.PHASES
                    _phases(given, self.first[k, c], self.T[k, c])

    def run(self, rng: np.random.Generator, cycles: int) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """X (C,), Q (K, C), the part left out as warm-up, and how often somebody was there (K,)."""
        from .kernels import simulate as kernel

        K, C = self.mean.shape
        place, klass = self._start()
        durations, areas = np.zeros(BATCHES), np.zeros((BATCHES, K, C))
        counts, busy = np.zeros((BATCHES, C)), np.zeros((BATCHES, K))
        kernel.run(
            rng, self.kind, self.servers, self.speed, self.dist, self.mean, self.shape, self.first, self.T,
            self.branch, self.branch_dist, self.branch_shape, self.go, place, klass,
            BATCHES, cycles, durations, areas, counts, busy,
        )  # fmt: skip
        cut = _mser(durations)
        time = durations[cut:].sum()
        out = counts[cut:].sum(axis=0)
        visits = (self.visits * self.stay).sum(axis=0)
        X = np.zeros(C)
        for chain in self.network.chains:
            members = list(chain)
            X[members] = out[members].sum() / visits[members].sum() / time
        return X, areas[cut:, :-1].sum(axis=0) / time, cut / BATCHES, busy[cut:, :-1].sum(axis=0) / time

    def _start(self) -> tuple[np.ndarray, np.ndarray]:
        place, klass = [], []
        for chain in self.network.chains:
            states = [(c, k) for c in chain for k in reversed(range(len(self.stay))) if self.stay[k, c]]
            for c in chain:
                own = [s for s in states if s[0] == c] or states
                place += [own[0][1]] * self.counts[c]
                klass += [own[0][0]] * self.counts[c]
        return np.array(place, dtype=np.int64), np.array(klass, dtype=np.int64)


def _shape(scv: float) -> tuple[int, float]:
    """Kind of distribution and its parameter."""
    if scv == 1:
        return 1, 1.0
    if scv < 1e-9:
        return 0, 1.0
    if scv < 1:
        return 2, 1.0 / scv
    return 3, 0.5 * (1 + math.sqrt((scv - 1) / (scv + 1)))


def _most_phases(network: Network) -> int:
    labels = network.class_names or [None]  # type: ignore[list-item]
    given = [s.distribution_of(c) for s in network.stations for c in labels]
    return max([1, *[len(d.alpha) for d in given if d is not None]])


def _phases(shape: PhaseType, first: np.ndarray, T: np.ndarray) -> None:
    """Cumulative first phases, and per phase its rate and cumulative moves; the last one ends the service."""
    n = len(shape.alpha)
    first[:] = 1.0
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


def _mser(durations: np.ndarray) -> int:
    """Batches to leave out: the truncation, at most half, with the smallest standard error of what is left (MSER-5)."""
    groups = durations[: len(durations) // 5 * 5].reshape(-1, 5).mean(axis=1)
    best = [float(groups[d:].var() / (len(groups) - d)) for d in range(len(groups) // 2)]
    return 5 * int(np.argmin(best))
