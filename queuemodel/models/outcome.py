"""What every model answers with, and the one way from an answer to a curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from ..base.checks import require_seed, require_share
from ..base.estimates import Parameter, normal_quantile
from ..base.results import Result
from ..curves.curve import ThroughputCurve, require_workers
from ..profile.job import Job
from ..profile.scenario import Scenario, require_answered
from .ensemble import Discrepancy
from .explorer import Explorer

NONE = np.empty(0)

#: A lower end that an alternative brings down to less than this share of itself is worth a word.
NOTICED = 0.999


@dataclass(frozen=True, eq=False, kw_only=True)
class Breakdown:
    """Where the time of a step goes at n numbers of workers, and the asymptotes; see `ThroughputCurve`."""

    stations: tuple[str, ...] = ()
    utilization: np.ndarray = field(default_factory=lambda: NONE.reshape(0, 0))
    residence_time: np.ndarray = field(default_factory=lambda: NONE.reshape(0, 0))
    think_time: np.ndarray = field(default_factory=lambda: NONE)
    bound_lower: np.ndarray = field(default_factory=lambda: NONE)
    bound_upper: np.ndarray = field(default_factory=lambda: NONE)
    saturation_workers: float = math.inf
    bottleneck: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """What a model says of throughput at n numbers of workers, before anybody asks for an interval.

    The interval joins the quantiles of ``draws`` with ``error`` as independent errors, spans the ``alternatives`` and
    ends at the ``ceiling``; where measured throughputs bend the curve, ``discrepancy`` says it instead.
    """

    workers: np.ndarray  # (n,): Increasing, the first is 1
    throughput: np.ndarray  # (n,): Steps of all workers per second
    error: np.ndarray | float = 0.0  # (n,), or (2, n) downwards and upwards: Relative standard error
    draws: np.ndarray | None = None  # (n, B): Logarithms of throughput under what the fit leaves open
    ceiling: np.ndarray | None = None  # (n, B): Logarithms of what throughput cannot exceed, likewise
    ceiling_error: float = 0.0  # Relative standard error of that
    alternatives: Sequence[Outcome] = ()  # Other networks that it may be
    doubt: str = ""  # Of an alternative: what to say where it makes the interval wider
    discrepancy: Discrepancy | None = None
    breakdown: Callable[[np.ndarray], Breakdown] = lambda X: Breakdown()  # of the throughput that is predicted
    method: str
    note: str = ""
    assumption: str = ""
    parameter_servers: int = 0
    workers_per_node: int = 1
    profiled_workers: int = 0  # Most that were measured on such machines
    measured: tuple[tuple[int, float], ...] = ()
    synchronous: bool = False  # All make their steps together
    asynchronous: bool = False  # Nobody waits for anybody, but for the servers
    steps_per_round: np.ndarray = field(default_factory=lambda: NONE)  # (n,): Where these are not one of each worker

    def scaled(self, factor: np.ndarray) -> Outcome:
        """Throughput that is so many times (n,) as high, whatever network it is."""
        others = [one.scaled(factor) for one in self.alternatives]
        return replace(self, throughput=self.throughput * factor, alternatives=others)

    def interval(self, confidence: float) -> tuple[np.ndarray, list[str]]:
        """Throughput, and the ends of an interval of such probability, shape (3, n), and which doubts widen it."""
        X, tail, reach = self.throughput, (1 - confidence) / 2, normal_quantile(confidence)
        if self.discrepancy is not None:
            return X * self.discrepancy.factors(self.workers, confidence), []
        apart = reach * np.broadcast_to(self.error, (2, len(X)))
        if self.draws is not None:
            low, high = np.quantile(self.draws, [tail, 1 - tail], axis=-1) - np.log(X)
            apart = np.hypot(apart, np.maximum([-low, high], 0.0))
        lower, upper = X * np.exp(-apart[0]), X * np.exp(apart[1])
        if self.ceiling is not None:
            most = np.quantile(self.ceiling, 1 - tail, axis=-1) + reach * self.ceiling_error
            upper = np.maximum(np.minimum(upper, np.exp(most)), X)
        doubts = []
        for other in self.alternatives:
            (_, low, high), _ = other.interval(confidence)
            if other.doubt and (low < NOTICED * lower).any():
                doubts.append(other.doubt)
            lower, upper = np.minimum(lower, low), np.maximum(upper, high)
        return np.array([X, lower, upper]), doubts


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Model(Result):
    """What was fitted to one kind of data; changed by `what_if`, asked by `throughput`.

    A model says what it found (`parameters`, `note`), which questions it answers (``changes``), and its `outcome`.
    """

    scenario: Scenario = field(default_factory=Scenario)  # What differs from the machines of the data
    changes: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[str] = ""  # For refusals: no change "of the closed network"
    quick: ClassVar[bool] = True  # A curve takes milliseconds, so that a page may hold hundreds

    if TYPE_CHECKING:

        @property
        def job(self) -> Job:
            """The job, with the batch size that it has here."""

    @property
    def note(self) -> str:
        """What this fit cannot know, and what contradicts it."""
        return ""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What was fitted, and how far to trust it."""
        return ()

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second of each host's link, nominal; None where nobody knows."""
        return None

    def outcome(self, workers: np.ndarray, *, seed: int = 0) -> Outcome:
        """Throughput at these numbers of workers, and perhaps at others between them."""
        raise NotImplementedError

    def check(self) -> None:
        """Refuse a scenario that the data do not answer."""

    def what_if(self, **changes: Any) -> Self:
        """The same job on other machines, or trained in another way.

        Changes are fields of `Scenario`, told against the data whatever their order. One that is asked for again
        replaces the earlier one; accelerator speeds multiply.

        Raises
        ------
        ModelError
            For what the data do not answer, or a value that makes no sense.
        """
        require_answered(changes, self.changes, self.kind)
        changed = replace(self, scenario=self.scenario.updated(**changes))
        changed.check()
        return changed

    def throughput(
        self, workers: int | Iterable[int] = range(1, 33), *, confidence: float = 0.9, seed: int = 0, **changes: Any
    ) -> ThroughputCurve:
        """Predict throughput against the number of workers.

        Parameters
        ----------
        workers : iterable of int
            Increasing numbers of workers.
        confidence : float
            Probability of the interval of what would be measured in a minute. It covers the sampling of what was
            recorded, the fit, and the model's own error as docs/validation measured it.
        seed : int
            Of models that draw.
        **changes
            As for `what_if`.

        Raises
        ------
        ModelError
            When workers are not whole, increasing and at least 1, or for what the data do not answer.
        """
        model = self.what_if(**changes) if changes else self
        counts = require_workers(workers)
        require_share(confidence, "confidence", open_ended=True)
        require_seed(seed, "throughput: seed")
        outcome = model.outcome(np.union1d(counts, 1), seed=seed)
        return finish(model, outcome, counts, confidence)

    def explore(self, *, workers: int = 32) -> Explorer:
        """The what-ifs of a report as sliders in a notebook, with the curve of 1 to ``workers`` workers.

        Raises
        ------
        MissingDependencyError
            Without ipywidgets (``pip install ipywidgets``).
        """
        return Explorer(self, workers=workers)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per parameter."""
        return [parameter.to_row() for parameter in self.parameters]


def finish(model: Model, outcome: Outcome, workers: np.ndarray, confidence: float) -> ThroughputCurve:
    """The curve of an outcome at some of its numbers of workers."""
    (X, lower, upper), doubts = outcome.interval(confidence)
    at, parts = np.searchsorted(outcome.workers, workers), outcome.breakdown(X)
    rows = {
        name: value[at] if len(value) else value
        for name in ("utilization", "residence_time", "think_time", "bound_lower", "bound_upper")
        for value in [getattr(parts, name)]
    }
    return ThroughputCurve(
        workers=workers,
        steps_per_second=X[at],
        lower=lower[at],
        upper=upper[at],
        single=float(X[0]),
        batch_size=model.job.batch_size,
        dataset_size=model.job.dataset_size,
        confidence=confidence,
        stations=parts.stations,
        saturation_workers=parts.saturation_workers,
        bottleneck=parts.bottleneck,
        **rows,
        **{name: getattr(outcome, name) for name in FROM_OUTCOME},
        note="; ".join(filter(None, [outcome.note, *doubts])),
        steps_per_round=outcome.steps_per_round[at] if len(outcome.steps_per_round) else NONE,
        model=model,
    )


#: Fields of a curve that are those of its outcome.
FROM_OUTCOME = (
    "parameter_servers", "workers_per_node", "profiled_workers", "measured", "method", "assumption",
    "synchronous", "asynchronous",
)  # fmt: skip
