"""Fits of throughputs alone: one grid of growth laws, which few measurements weigh.

A group of n workers makes X(n) = n / T(n) steps per second. Relative to the smallest measured group of n_1, a round, or
a worker's cycle, takes

    T(n) = T(n_1) (1 + c G(n / n_1) / G(2)),

c being what the first doubling costs and G a law of `LAWS`; or servers stay as they are, and X(n) has a knee
(`queuemodel.queueing.knee_throughput`). Prior: a share of jobs for each law and kind of training (growth.toml, learnt
by `python -m validation.growth`), Gamma's law of shape 1/2 for ln T(64 n_1) / T(n_1), a knee's demand uniform on (0,
cycle), a flat level. A measured logarithm errs by Student's t, the more the smaller the group, as a law misses
something at each doubling. The posterior is summed over laws, costs and levels, without randomness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import mode
from typing import Any, Literal

import numpy as np

from ..base.checks import require_count
from ..base.errors import FitError, ModelError
from ..base.estimates import Parameter
from ..base.files import constants
from ..base.results import counted, percent
from ..curves.prediction import Prediction
from ..profile.bandwidth import LINK_EFFICIENCY, contradiction
from ..profile.job import MOST_WORKERS, Job
from ..profile.measurements import Measurement
from ..profile.throughputs import doubt
from ..queueing.bounds import knee_throughput
from .demands import Servers, largest_share, uneven_shards
from .errors import worst_error
from .outcome import Breakdown, Model, Outcome

Strategy = Literal["async-ps", "sync-ps", "all-reduce"]
STRATEGIES: tuple[Strategy, ...] = ("async-ps", "sync-ps", "all-reduce")


@dataclass(frozen=True, slots=True)
class Law:
    """How a round's time grows with the ratio of sizes, up to a factor; 0 at 1.

    What ``ends``, as a ring's bandwidth does, costs ranks of one node nothing.
    """

    name: str
    words: str
    growth: Callable[[np.ndarray], np.ndarray]
    ends: bool = False

    def round_time(self, ratio: np.ndarray, cost: np.ndarray, ranks: int = 1) -> np.ndarray:
        """T(r n_1) / T(n_1) from one node of so many ranks; a smaller group saves at most what a power law saves."""
        m = float(ranks) if self.ends else 1.0
        g = self.growth(m * ratio) / self.growth(np.array(2.0 * m))
        g = np.where((ratio <= 1) & (m > 1), 0.0, g)
        return np.maximum(1.0 + cost * g, np.where(ratio < 1, ratio ** np.log2(1.0 + cost), 0.0))


LAWS = (
    Law("1", "not at all", np.log),  # of which only a cost of 0 is tried
    Law("n", "with the group", lambda r: r - 1.0),
    Law("sqrt n", "with its square root", lambda r: np.sqrt(r) - 1.0),
    Law("log n", "with its logarithm", np.log),
    Law("1 - 1/sqrt n", "slowly to a limit", lambda r: 1.0 - r**-0.5, ends=True),
    Law("1 - 1/n", "as a ring's bandwidth", lambda r: 1.0 - 1.0 / r, ends=True),
    Law("1 - 1/n^2", "soon to a limit", lambda r: 1.0 - r**-2.0, ends=True),
    Law("1 - 1/n^6", "only at first", lambda r: 1.0 - r**-6.0, ends=True),
)
#: The last is no law of rounds: servers that stay as they are, and saturate.
NAMES = (*(law.name for law in LAWS), "knee")

#: What the first doubling may cost: a round's time differs by 3 % from one to the next, by less where it costs little.
COSTS = np.concatenate([np.geomspace(1e-4, 0.028, 30)[:-1], np.expm1(np.linspace(0.028, math.log(300.0), 200))])
_NUMBERS, LEARNT = constants(__package__)["growth"], constants(__package__, "growth.toml")
FAR = _NUMBERS["far"]
#: How many knees are tried, of widths s, equally likely: service times of coefficient of variation 0.1 to 1 and more.
KNEES, WIDTHS = 160, np.array([0.15, 0.25, 0.40, 0.65, 1.0])
ERROR = _NUMBERS["error"]
DRIFT = _NUMBERS["drift"]
FREEDOM = _NUMBERS["freedom"]
KNEE_ERROR = _NUMBERS["knee_error"]
KNEE_DRIFT = _NUMBERS["knee_drift"]
MISFIT = _NUMBERS["misfit"]
#: Levels are tried so many scales around each measurement; of more than `MOST_CENTRES` around quantiles.
SCALES = np.concatenate([-np.geomspace(8.0, 0.25, 8), [0.0], np.geomspace(0.25, 8.0, 8)])
MOST_CENTRES = 8
#: Draws of the posterior that a model keeps; see `least_relative_error`.
DRAWS, FLOOR = 2000, 0.5
#: Its points are at all numbers of workers up to this, then at so many per doubling; between, straight in logarithms.
EVERY, PER_DOUBLING = 32, 16
SERVER_FREEDOM = _NUMBERS["server_freedom"]
SERVER_FREEDOM_ON_LINKS = _NUMBERS["server_freedom_on_links"]
LINK_SPREAD = _NUMBERS["link_spread"]


@dataclass(frozen=True, slots=True)
class Prior:
    """What jobs of one kind are like: shares of them by `NAMES`, scale of ln T(`FAR` n_1) / T(n_1) under the laws."""

    shares: dict[str, float]
    growth: float


def learnt_prior(kind: str) -> Prior:
    """The prior of a strategy's jobs, or of synchronous ones with "sparse gradients"."""
    return Prior(LEARNT["shares"][kind], LEARNT["growth"][kind])


class Posterior:
    """What throughputs, (n,), measured with so many workers leave open of a job's curve.

    ``share`` is the largest one of a server (`largest_share`), ``ranks`` are those of a ring on the smallest group,
    where that is one node; ``log_served`` is the log density of the logarithm of the steps per second of a server.
    """

    def __init__(
        self,
        workers: np.ndarray,
        log_throughput: np.ndarray,
        prior: Prior,
        *,
        share: np.ndarray | float = 1.0,
        ranks: int = 1,
        log_served: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        self.workers, self.ranks = np.asarray(workers, dtype=float), ranks
        self.smallest, self.largest = float(self.workers.min()), float(self.workers.max())
        log_knee = np.linspace(0.0, math.log(max(200.0, 10.0 * self.largest)), KNEES)
        at_knee = np.exp(-log_knee) / np.exp(-log_knee).sum() / len(WIDTHS)  # uniform in demand over cycle
        blocks = [(k, *_cost_prior(law, prior.growth), 0.0) for k, law in enumerate(LAWS)]
        blocks += [(len(LAWS), np.exp(-log_knee), at_knee, width) for width in WIDTHS]
        columns = [np.broadcast_arrays(*block) for block in blocks if prior.shares.get(NAMES[block[0]], 0.0) > 0]
        # of each shape: its law, the cost of a doubling or the demand over the cycle, its weight, the knee's width
        self.law, self.size, weight, self.width = map(np.concatenate, zip(*columns, strict=True))
        off = log_throughput - self.log_shape(self.workers, share=share)  # (shapes, n)
        scale = np.hypot(ERROR, DRIFT * np.sqrt(np.log2(self.largest / self.workers)))
        centres = off if len(scale) <= MOST_CENTRES else np.quantile(off, np.linspace(0, 1, MOST_CENTRES), axis=1).T
        self.level = np.sort((centres[..., None] + ERROR * SCALES).reshape(len(off), -1), axis=1)
        z = ((one[:, None] - self.level) / s for one, s in zip(off.T, scale, strict=True))
        log_likelihood = -0.5 * (FREEDOM + 1.0) * sum(np.log1p(one**2 / FREEDOM) for one in z)
        spacing = np.gradient(self.level, axis=1)  # of the trapezoid rule
        self._log_weight = log_likelihood + np.log(np.maximum(spacing, 1e-300)) + np.log(weight)[:, None]
        if log_served is not None:
            knee = self.law == len(LAWS)
            self._log_weight[knee] += log_served(self.level[knee] - np.log(self.size[knee, None]))
        self._log_share = np.log([max(prior.shares.get(name, 0.0), 1e-300) for name in NAMES])
        self._off, self._scale = off, scale

    def log_shape(
        self, workers: np.ndarray, which: np.ndarray | slice = slice(None), *, share: np.ndarray | float = 1.0
    ) -> np.ndarray:
        """Log throughput (shapes, n) of every shape, or of some, but for its level."""
        law, size, width = self.law[which], self.size[which, None], self.width[which, None]
        table = np.empty((len(law), len(workers)))
        for k, one in enumerate(LAWS):
            own = law == k
            table[own] = np.log(workers) - np.log(one.round_time(workers / self.smallest, size[own], self.ranks))
        own = law == len(LAWS)
        table[own] = np.log(knee_throughput(workers, cycle=1.0, demand=share * size[own], width=width[own]))
        return table

    def log_evidence(self) -> np.ndarray:
        """Log likelihood of the measurements under each of `NAMES`: what learning needs."""
        shapes = np.logaddexp.reduce(self._log_weight, axis=1)
        return np.array([np.logaddexp.reduce(shapes[self.law == k], initial=-np.inf) for k in range(len(NAMES))])

    @cached_property
    def drawn(self) -> tuple[np.ndarray, np.ndarray]:
        """Shapes and levels of draws, (DRAWS,), evenly over the posterior."""
        log_weight = self._log_weight + self._log_share[self.law][:, None]
        reached = np.cumsum(np.exp(log_weight - log_weight.max()))
        pick = np.searchsorted(reached, (np.arange(DRAWS) + 0.5) / DRAWS * reached[-1])
        return pick // self.level.shape[1], self.level.ravel()[pick]

    def draws(self, workers: np.ndarray, share: float = 1.0) -> np.ndarray:
        """Log throughput (n, DRAWS), of servers the busiest of which has such a share."""
        shape, level = self.drawn
        some, at = np.unique(shape, return_inverse=True)
        return self.log_shape(workers, some, share=share)[at].T + level

    @cached_property
    def servers(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A worker's cycle (s), the servers' demand in it (s; 0: they grow), the saturation width, each (DRAWS,)."""
        shape, level = self.drawn
        knee, cycle = self.law[shape] == len(LAWS), np.exp(-level)
        demand = np.where(knee, self.size[shape] * cycle, 0.0)
        return cycle, demand, np.where(knee, self.width[shape], WIDTHS[0])

    def doublings(self, workers: np.ndarray) -> np.ndarray:
        """By how many doublings numbers of workers (n,) lie beyond the measured ones."""
        return np.log2(np.maximum(np.maximum(workers / self.largest, self.smallest / workers), 1.0))

    def misfits(self) -> tuple[np.ndarray, np.ndarray]:
        """Each measurement's mean difference from the draws, and whether it does not fit, both (n,)."""
        shape, level = self.drawn
        off = self._off[shape] - level[:, None]
        wrong = (np.abs(off) > MISFIT * self._scale).mean(axis=0)
        doubtful = wrong > 0.5
        if len(wrong) > 1 and wrong.sum() > 0.5:
            doubtful |= wrong > 0.5 * wrong.max()  # where the data leave open which of two is wrong, both are named
        return off.mean(axis=0), doubtful


def _cost_prior(law: Law, growth: float) -> tuple[np.ndarray, np.ndarray]:
    """Costs and how likely each is: Gamma's law of shape 1/2 for ln T(`FAR` n_1) / T(n_1)."""
    from scipy.special import gammainc

    if law is LAWS[0]:
        return np.zeros(1), np.ones(1)
    log_far = np.log(law.round_time(np.array(FAR), COSTS))
    between = (log_far[1:] + log_far[:-1]) / 2
    return COSTS, np.diff(gammainc(0.5, between / growth), prepend=0.0, append=1.0)


def least_relative_error(logs: np.ndarray) -> np.ndarray:
    """The points (n,), of draws (n, B) of log throughput, whose expected error, relative to what comes, is least.

    That is the median under probabilities that are divided by the values (Gneiting, Making and Evaluating Point
    Forecasts, 2011): below the median, as too high a throughput has the larger relative error. Values below `FLOOR` of
    the median count as if they were there, so that the unlikeliest do not decide.
    """
    ordered = np.sort(logs, axis=1)
    reached = np.cumsum(np.exp(-np.maximum(ordered - np.median(logs, axis=1)[:, None], math.log(FLOOR))), axis=1)
    return np.array([np.interp(0.5 * c[-1], c, own) for c, own in zip(reached, ordered, strict=True)])


def _log_served(log_rate: np.ndarray, link: float | None) -> np.ndarray:
    """Log density, up to a constant, of the logarithm of a server's bytes per second at saturation.

    Servers of another source may be far from those of one, on slow links above all: Student's t. A
    server that could do more does what its link carries.
    """
    from scipy.special import ndtr
    from scipy.stats import norm, t

    rate, spread = LEARNT["server_rate"], LEARNT["server_rate_spread"]
    usual = {"loc": math.log(rate), "scale": spread}
    if link is None:
        return np.asarray(t.logpdf(log_rate, SERVER_FREEDOM, **usual))
    most = math.log(LINK_EFFICIENCY * link)
    at_link = t.sf(most, SERVER_FREEDOM_ON_LINKS, **usual) * norm.pdf(log_rate, most, LINK_SPREAD)
    below = ndtr((most - log_rate) / LINK_SPREAD) * t.pdf(log_rate, SERVER_FREEDOM_ON_LINKS, **usual)
    return np.log(np.maximum(below + at_link, 1e-300))


@dataclass(frozen=True, eq=False, repr=False)
class GrowthModel(Model):
    """A job known by throughputs alone: how the time of a round, or of a worker's cycle, grows with the group.

    Made by `fit`; solved by `throughput`. Throughputs of synchronous training may count machines or devices, as long as
    all count the same. Of asynchronous workers, the busiest server needs part of a worker's undisturbed cycle, with a
    saturation point; or the servers grow with the workers. Where the bytes of the parameters are known the servers
    are taken to stay as they are, and to be about as fast as published ones; with the nominal bandwidth
    of their links too, they carry no more than a ``link`` does.

    Attributes
    ----------
    measured : tuple of Measurement
    strategy : {"async-ps", "sync-ps", "all-reduce"}
    job : Job
    prior : Prior
    sparse_gradients : bool
    ranks_per_node : int or None
        Of an all-reduce, where it is known: its workers are ranks then.
    link : float or None
        Nominal bytes per second of each asynchronous server's link.
    assumption : str
        What is assumed of how the job trains.
    """

    measured: tuple[Measurement, ...]
    strategy: Strategy
    job: Job
    prior: Prior
    sparse_gradients: bool = False
    ranks_per_node: int | None = None
    link: float | None = None
    assumption: str = ""
    changes = ("parameter_servers", "shards")

    @cached_property
    def posterior(self) -> Posterior:
        """What the measurements leave open."""
        workers, throughput = np.array([(p.workers, p.steps_per_second) for p in self.measured]).T
        if self.strategy != "async-ps":
            ranks = self.ranks_per_node if workers.min() == self.ranks_per_node else None
            return Posterior(workers, np.log(throughput), self.prior, ranks=ranks or 1)
        size, prior, log_served = self.job.parameter_bytes, self.prior, None
        if size:
            prior, link = replace(prior, shares={"knee": 1.0}), None if self._faster else self.link
            log_served = lambda rate: _log_served(rate + math.log(size), link)  # noqa: E731
        return Posterior(workers, np.log(throughput), prior, share=self._shares, log_served=log_served)

    @property
    def _shares(self) -> np.ndarray:
        return np.array([largest_share(p.parameter_servers) for p in self.measured])

    @property
    def _faster(self) -> str:
        served = self._shares * [p.steps_per_second for p in self.measured]
        return contradiction(self.job.parameter_bytes * float(served.max()), self.link)

    @property
    def servers(self) -> Servers:
        """Asynchronous servers, as specified."""
        most = mode([p.parameter_servers for p in self.measured])
        return Servers("single", uneven_shards(most)).changed(self.scenario)

    @property
    def on_such_servers(self) -> list[Measurement]:
        """What was measured on as many servers as specified."""
        if self.strategy != "async-ps":
            return list(self.measured)
        return [p for p in self.measured if p.parameter_servers == self.servers.count and not self.scenario.shards]

    @property
    def demand_unseen(self) -> str:
        """What an asynchronous server's demand rests on where the data do not show it; empty where they do."""
        low, high = np.quantile(self.posterior.servers[1], [0.16, 0.84])
        size = self.job.parameter_bytes
        basis = f"{size / 1e6:.3g} MB of parameters" if size else "published jobs"
        return f"prior from {basis}" if high >= low * math.exp(2 * 0.25) else ""

    @cached_property
    def note(self) -> str:
        """What this fit does not determine, and which measurement does not fit the others."""
        wrong = [point for point, bad in zip(self.measured, self.posterior.misfits()[1], strict=True) if bad]
        notes = [doubt(wrong, "the other measurements") if wrong else ""]
        if self.strategy == "async-ps":
            seen = f"the data show no saturation up to {counted(self.posterior.largest, 'worker')}, the server's demand"
            notes += [f"{seen} rests on a {self.demand_unseen}" if self.demand_unseen else "", self._faster]
            notes.append(
                "throughputs alone identify neither the server's links and processor nor the effect of a faster network"
            )
            return "; ".join(filter(None, notes))
        jobs = "jobs with sparse gradients" if self.sparse_gradients else "such jobs"
        notes.append(f"growth of rounds beyond the measurements is estimated from published series of {jobs}")
        if not self.sparse_gradients:
            notes.append("rounds with sparse gradients grow much more: specify sparse_gradients")
            if self.strategy == "all-reduce" and not self.ranks_per_node:
                notes.append("for nodes of several ranks, specify ranks_per_node")
        if self.ranks_per_node and self.posterior.largest <= self.ranks_per_node:
            notes.append("no measurement crosses the network between nodes; measure two nodes")
        if self.job.parameter_bytes:
            notes.append("the parameters' bytes are not used: they do not determine where rounds stop growing")
        return "; ".join(filter(None, notes))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What was fitted, with its uncertainty."""
        return _of_servers(self) if self.strategy == "async-ps" else _of_rounds(self)

    @property
    def misfit(self) -> float:
        """Root mean square relative difference of the fit from the measurements that fit."""
        off, doubtful = self.posterior.misfits()
        return float(np.sqrt(np.mean(off[~doubtful if not doubtful.all() else doubtful] ** 2)))

    def drawn(self, workers: np.ndarray) -> np.ndarray:
        """Steps per second (n, DRAWS) of the posterior's draws."""
        share = max(self.servers.shards) if self.strategy == "async-ps" else 1.0
        return np.exp(self.posterior.draws(np.asarray(workers, dtype=float), share))

    def _error(self, workers: np.ndarray) -> np.ndarray:
        """Scale (n,) of what one measurement would differ from the draws."""
        doublings = self.posterior.doublings(workers)
        if self.strategy != "async-ps":
            return np.hypot(ERROR, DRIFT * np.sqrt(doublings))
        misfit = self.misfit
        if not self.on_such_servers:
            return np.full(len(workers), max(worst_error("mva"), misfit))
        return np.where(
            doublings == 0, KNEE_ERROR, np.maximum(np.hypot(KNEE_ERROR, KNEE_DRIFT * np.sqrt(doublings)), misfit)
        )

    def outcome(self, workers: np.ndarray, *, seed: int = 0) -> Outcome:
        """Medians of the posterior of rounds; of asynchronous workers points of the least expected relative error."""
        free = self.strategy == "async-ps"
        every = np.union1d(workers, _rungs(int(workers[-1]))) if free else workers
        logs = np.log(self.drawn(every))
        measured = self.on_such_servers
        return Outcome(
            workers=every,
            throughput=np.exp(_points(every, logs) if free else np.median(logs, axis=1)),
            prediction=Prediction.drawn(every, logs, error=self._error(every)),
            breakdown=(lambda X: self._stations(every, X)) if free else lambda X: Breakdown(),
            method="mva (fcfs saturation)" if free else f"{self.strategy} rounds (learnt growth)",
            note=self.note,
            assumption=self.assumption,
            parameter_servers=_servers(self),
            workers_per_node=self.ranks_per_node or 1,
            profiled_workers=max((p.workers for p in measured), default=0),
            measured=tuple((p.workers, p.steps_per_second) for p in measured),
            synchronous=not free,
            asynchronous=free,
        )

    def _stations(self, counts: np.ndarray, X: np.ndarray) -> Breakdown:
        """Of asynchronous workers: a curve's servers, by the medians of cycle and demand."""
        cycle, demand = (float(np.median(draws)) for draws in self.posterior.servers[:2])
        D, Z = demand * np.array(self.servers.shards), cycle - demand
        at_servers = np.maximum(counts / X - Z, demand)[:, None] * (D / demand if demand else D)
        names = self.servers.stations
        return Breakdown(
            stations=names,
            utilization=np.minimum(X[:, None] * D, 1.0),
            residence_time=at_servers,
            think_time=np.full(len(counts), Z),
            bound_lower=counts / (cycle + (counts - 1) * demand),
            bound_upper=np.minimum(counts / cycle, 1.0 / D.max() if demand else math.inf),
            saturation_workers=cycle / float(D.max()) if demand else math.inf,
            bottleneck=names[int(D.argmax())] if demand else "",
        )

    def what_if(self, **changes: Any) -> GrowthModel:
        """The model with another number of asynchronous servers (``parameter_servers``), or with uneven ``shards``.

        Raises
        ------
        ModelError
            For any other change: throughputs alone do not determine its effect.
        """
        answered = self.changes if self.strategy == "async-ps" else ()
        if unknown := next((n for n, value in changes.items() if value is not None and n not in answered), None):
            raise ModelError(
                f"{unknown} requires a profile with recorded steps: throughputs alone do not determine its effect"
            )
        return replace(self, scenario=self.scenario.updated(**changes))

    def caption(self) -> str:
        """Which job, and what the fit does not determine."""
        what = f"{self.job.name or 'job'}, {self.strategy}"
        if self.strategy == "async-ps":
            what = f"{self.job.name or 'job'} with {counted(self.servers.count, 'parameter server')}, form 'single'"
        return "; ".join(filter(None, [self.assumption, what, self.note]))


def _rungs(most: int) -> np.ndarray:
    """Numbers of workers, the last of them ``most`` or more; the same for every request, but for how far they go."""
    doublings = max(math.ceil(PER_DOUBLING * math.log2(most / EVERY)), 0)
    rungs = np.append(np.arange(1, EVERY), EVERY * 2.0 ** (np.arange(doublings + 1) / PER_DOUBLING)).astype(int)
    return rungs[: int(np.searchsorted(rungs, most)) + 1]


def _points(workers: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Log throughput (n,) of the least expected relative error from draws (n, B), falling nowhere."""
    rungs = _rungs(int(workers[-1]))
    points = least_relative_error(logs[np.searchsorted(workers, rungs)])
    return np.interp(np.log(workers), np.log(rungs), np.maximum.accumulate(points))


def _servers(model: GrowthModel) -> int:
    if model.strategy == "async-ps":
        return model.servers.count
    return 0 if model.strategy == "all-reduce" else max(p.parameter_servers for p in model.measured)


def _of_rounds(model: GrowthModel) -> tuple[Parameter, ...]:
    """Parameters of rounds."""
    posterior, fewest = model.posterior, min(p.workers for p in model.measured)
    one, two = posterior.draws(np.array([fewest, 2.0 * fewest]))
    cost = 2.0 * np.exp(one - two) - 1.0
    chances = np.bincount(posterior.law[posterior.drawn[0]], minlength=len(NAMES)) / DRAWS
    words = [*(law.words for law in LAWS), "as a queue at the servers"]
    likely = [f"{words[k]} ({percent(chances[k])})" for k in np.argsort(-chances) if chances[k] >= 0.05]
    return (
        Parameter(
            f"round of {fewest}", fewest / model.throughput([fewest]).at(fewest), "s",
            origin="derived", note="time of a round of the smallest measured group",
        ),
        Parameter(
            "cost of doubling", float(cost.mean()), "", standard_error=float(cost.std()),
            origin="derived", identified=len({p.workers for p in model.measured}) > 1,
            note=f"what {2 * fewest} nodes add to a round of {fewest}, relative to it",
        ),
        Parameter(
            "likeliest law", float(chances.max()), "", origin="derived", identified=bool(chances.max() > 0.9),
            note=f"grows {', '.join(likely)}",
        ),
    )  # fmt: skip


def _of_servers(model: GrowthModel) -> tuple[Parameter, ...]:
    """Parameters of asynchronous workers."""
    cycle, demand, width = model.posterior.servers
    middle, needed = float(np.median(cycle)), float(np.median(demand))
    unseen = model.demand_unseen
    return (
        Parameter(
            "server demand", needed, "s", standard_error=float(demand.std()), origin="derived",
            identified=not unseen, note=unseen,
        ),
        Parameter(
            "worker time", middle - needed, "s", standard_error=float((cycle - demand).std()), origin="derived",
            identified=not unseen, note="undisturbed cycle less the server's demand",
        ),
        Parameter("undisturbed cycle", middle, "s", standard_error=float(cycle.std()), origin="derived"),
        Parameter(
            "no saturation", float((demand == 0).mean()), "", origin="derived", identified=not unseen,
            note="probability that the servers grow with the workers",
        ),
        Parameter(
            "saturation width", float(width.mean()), "", standard_error=float(width.std()), origin="assumed",
            identified=False, note="sharp, unless the data show otherwise",
        ),
        *(
            Parameter(name, math.nan, "s", origin="assumed", identified=False, note="requires a profile")
            for name in ("transmit link demand", "receive link demand", "server update demand")
        ),
    )  # fmt: skip


def fit_throughputs(
    measured: Sequence[Measurement],
    *,
    job: Job,
    strategy: Strategy,
    prior: Prior | None = None,
    sparse_gradients: bool = False,
    ranks_per_node: int | None = None,
    link: float | None = None,
) -> GrowthModel:
    """Fit a job to measured throughputs alone.

    Raises
    ------
    FitError
        When there is no throughput, or one that is not of whole nodes.
    """
    if not measured:
        raise FitError("fit: at least one measured throughput is needed, got none")
    ranks = 1 if ranks_per_node is None else require_count(ranks_per_node, "fit: ranks_per_node", most=MOST_WORKERS)
    for point in measured:
        if point.workers % ranks:
            raise FitError(
                f"fit: workers are ranks on whole nodes of {ranks} (ranks_per_node), got a throughput of "
                f"{point.workers}; leave groups inside a node out"
            )
    prior = prior or learnt_prior("sparse gradients" if sparse_gradients else strategy)
    return GrowthModel(tuple(measured), strategy, job, prior, sparse_gradients, ranks_per_node, link)
