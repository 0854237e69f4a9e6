"""What every model answers with, and the one way from an answer to a curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias, Unpack

import numpy as np

from ..base.checks import require_seed, require_share
from ..base.estimates import Parameter, Parameters
from ..base.results import Note, Result, counted, joined, percent, ranked, same
from ..curves.curve import ThroughputCurve, require_workers
from ..curves.prediction import Prediction
from ..profile.job import Job
from ..profile.measurements import Measurement
from ..profile.profile import Profile
from ..profile.scenario import Changes, Scenario, of_group, require_answered
from ..profile.throughputs import doubt
from .explorer import Explorer

NONE = np.empty(0)

Data: TypeAlias = Profile | Sequence[Measurement]
#: A model's refusal of data that are another model's.
OTHER_DATA = "-"
#: Fields of a scenario that are no change of a model's.
NO_CHANGES = (*of_group("job"), *of_group("form"), *of_group("throughputs"), *of_group("network"))

#: Fields of a scenario that differ from the machines of the data, and are not their description.
CHANGED = (
    *of_group("machines"), *of_group("shards"), *of_group("rounds"), *of_group("sharded"), "worker_bandwidth",
    "straggler_probability", "straggler_slowdown",
)  # fmt: skip


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
    """What a model predicts at n numbers of workers, before an interval is asked for."""

    workers: np.ndarray  # (n,): Increasing, the base of speedup among them
    throughput: np.ndarray  # (n,): Steps of all workers per second
    prediction: Prediction  # At these places
    kinds: tuple[str, ...] = ()  # Names of its kinds of network, where there are several
    noise: np.ndarray | float = 0.0  # (n,): Relative standard error of a measurement there, unless it has its own
    breakdown: Callable[[np.ndarray], Breakdown] = lambda X: Breakdown()  # of the throughput that is predicted
    method: str
    remarks: tuple[Note, ...] = ()
    assumption: str = ""
    parameter_servers: int = 0
    workers_per_node: int = 1
    profiled_workers: int = 0  # Most that were measured on such machines
    measured: tuple[tuple[int, float], ...] = ()
    synchronous: bool = False  # All make their steps together
    steps_per_round: np.ndarray = field(default_factory=lambda: NONE)  # (n,): Where these are not one of each worker


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Model(Result):
    """What was fitted to one kind of data; changed by `what_if`, asked by `throughput`.

    A model says what it found (`parameters`, `remarks`), which questions it answers (``changes``), and its `outcome`.
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
    def unit(self) -> str:
        """Of a batch: examples, tokens, ...; "" where no batch size is known."""
        return "examples"

    @property
    def sequence_length(self) -> int | None:
        """Tokens of an example, where they are known."""
        return None

    @property
    def remarks(self) -> tuple[Note, ...]:
        """What this fit cannot know, and what contradicts it."""
        return ()

    @property
    def note(self) -> str:
        """The remarks in one text."""
        return joined(self.remarks)

    @property
    def parameters(self) -> Parameters:
        """What was fitted, and how far to trust it."""
        return Parameters(self._parameters)

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        return ()

    def summary(self, *, confidence: float = 0.9) -> Parameters:
        """The parameters with intervals of this probability."""
        require_share(confidence, "summary: confidence", open_ended=True)
        return Parameters(self._parameters, confidence)

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second of each host's link, nominal; None where nobody knows."""
        return None

    def outcome(self, workers: np.ndarray, *, seed: int = 0) -> Outcome:
        """Throughput at these numbers of workers, and perhaps at others between them."""
        raise NotImplementedError

    @property
    def base_workers(self) -> int:
        """Number of workers that speedup and efficiency relate to."""
        return 1

    @property
    def conditions(self) -> Sequence[Measurement]:
        """Measurements of jobs that train in this way, beyond what the fit has used."""
        return ()

    def machines_of(self, point: Measurement) -> Scenario:
        """The scenario on the machines where a measurement was made."""
        return replace(self.scenario, **dict.fromkeys(CHANGED, None) | {"bandwidth": point.bandwidth})

    def is_here(self, point: Measurement) -> bool:
        """Whether a measurement was made on the machines of this scenario."""
        return self.machines_of(point) == self.scenario

    def check(self) -> None:
        """Refuse a scenario that the data do not answer."""

    def what_if(self, **changes: Unpack[Changes]) -> Self:
        """The same job on other machines, or trained in another way.

        Changes are fields of `Scenario`, relative to the data whatever their order. One that is asked for again
        replaces the earlier one; accelerator speeds multiply.

        Returns
        -------
        Model
            Of the same kind, and the same fit.

        Raises
        ------
        ModelError
            For what the data do not answer, or a value that makes no sense.

        Examples
        --------
        >>> import queuemodel as qm
        >>> model = qm.fit(qm.example_profile("ddp-alexnet-40"))
        >>> faster = model.what_if(bandwidth="10Gbit/s").throughput([8])
        >>> (faster / model.throughput([8]))[8]
        2.76 (2.57 to 2.96), 90 % interval
        """
        require_answered(changes, self.changes, self.kind)
        changed = replace(self, scenario=self.scenario.updated(**changes))
        changed.check()
        return changed

    def throughput(
        self,
        workers: int | Iterable[int] = range(1, 33),
        *,
        confidence: float = 0.9,
        seed: int = 0,
        **changes: Unpack[Changes],
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
        return finish(model, model.posterior(counts, seed=seed), counts, confidence)

    def posterior(self, workers: np.ndarray, *, seed: int = 0) -> Outcome:
        """The outcome at these numbers of workers and at the base of speedup, given all measurements."""
        return conditioned(self, self._unconditioned(workers, seed), seed=seed)

    def _unconditioned(self, workers: np.ndarray, seed: int) -> Outcome:
        """The outcome at these numbers of workers, at the base of speedup, and where conditions are."""
        here = [point.workers for point in self.conditions if self.is_here(point)]
        return self.outcome(np.union1d(workers, [self.base_workers, *here]), seed=seed)

    def relative(self, other: Model, workers: np.ndarray, *, seed: int = 0) -> Prediction | None:
        """Throughput over that of another model at these numbers of workers, where their draws are common, else None.

        They are common to models of one fit, which differ in their scenario alone.
        """
        if not same(self, replace(other, scenario=self.scenario)):
            return None
        found = {one.scenario: one._unconditioned(workers, seed) for one in (self, other)}
        if len({one.prediction.draws for one in found.values()}) > 1:
            return None
        posterior, first, _ = joint_posterior(self, found, seed=seed)
        at = [first[one.scenario] + np.searchsorted(found[one.scenario].workers, workers) for one in (self, other)]
        return posterior.over(*at)

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

    def _shown_rows(self) -> list[dict[str, Any]]:
        """The rows without what is in notes."""
        return [one.to_row(shown=True) for one in self.parameters]

    def answer(self) -> str:
        """The caption without the remarks."""
        return self.caption().removesuffix(self.note).removesuffix("; ")

    def notes(self) -> list[str]:
        """What the fit assumes, does not determine, and what contradicts it."""
        return ranked(self.remarks)

    def _details(self) -> list[str]:
        """Notes of the parameters."""
        return [f"{one.name}: {one.note}" for one in self.parameters if one.note]


class ModelKind(Protocol):
    """A kind of model, a folder of this one: for which data and questions it is, and how it is made of them."""

    METHOD: str  # of `predict`, that asks for it
    NEEDS: str  # Which data

    def refuses(self, data: Data, question: Scenario) -> str:
        """Why it has no answer, `OTHER_DATA`, or "" where it has one."""

    def of(self, data: Data, question: Scenario, measured: Sequence[Measurement], *, seed: int) -> Model:
        """The model, on the machines of the question."""


def on_nodes(data: object) -> bool:
    """Whether it is a table that says on how many nodes GPUs were measured."""
    return isinstance(data, Sequence) and any(getattr(point, "nodes", None) is not None for point in data)


def strategy_of(data: Data, question: Scenario) -> str:
    """How the job trains: as specified, recorded, or else asynchronously."""
    recorded = isinstance(data, Profile) and data.rounds and not data.steps
    told = getattr(data, "strategy", "") or ("all-reduce" if recorded or on_nodes(data) else "async-ps")
    return question.strategy or told


def changes_of(question: Scenario) -> dict[str, Any]:
    """What differs from the machines of the data."""
    return {name: value for name, value in question.specified.items() if name not in NO_CHANGES}


def joint_posterior(
    model: Model, outcomes: dict[Scenario, Outcome], *, seed: int
) -> tuple[Prediction, dict[Scenario, int], list[Measurement]]:
    """Of several scenarios of a fit, given what was measured of jobs that train in this way, here or on other machines.

    Beside it, the first place of each scenario, and the outliers among the measurements.
    """
    points, found = model.conditions, dict(outcomes)
    machines = [
        next((one for one in outcomes if replace(model, scenario=one).is_here(point)), model.machines_of(point))
        for point in points
    ]
    for scenario in machines:
        if scenario not in found:
            counts = {1, *(point.workers for point, one in zip(points, machines, strict=True) if one == scenario)}
            found[scenario] = replace(model, scenario=scenario).outcome(np.array(sorted(counts)), seed=seed)
    prediction = reduce(Prediction.joined, (one.prediction for one in found.values()))
    first = dict(zip(found, np.cumsum([0, *(len(one.workers) for one in found.values())]).tolist(), strict=False))
    if not points:
        return prediction, first, []
    at = [
        first[one] + int(np.searchsorted(found[one].workers, point.workers))
        for one, point in zip(machines, points, strict=True)
    ]
    usual = np.concatenate([np.broadcast_to(one.noise, one.workers.shape) for one in found.values()])
    noise = np.array([point.relative_error(float(usual[place])) for point, place in zip(points, at, strict=True)])
    posterior, outliers = prediction.condition(at, np.log([point.steps_per_second for point in points]), noise)
    return posterior, first, [point for point, off in zip(points, outliers, strict=True) if off]


def conditioned(model: Model, outcome: Outcome, *, seed: int) -> Outcome:
    """The outcome, given the model's conditions."""
    if not (points := model.conditions):
        return outcome
    posterior, _, wrong = joint_posterior(model, {model.scenario: outcome}, seed=seed)
    posterior = posterior.at(np.arange(len(outcome.workers)))
    likely = sorted(zip(posterior.kinds(len(outcome.kinds) or 1).tolist(), outcome.kinds, strict=False), reverse=True)
    by = ", ".join(f"{name} {percent(share)}" for share, name in likely)
    calibrated = ": ".join(filter(None, [f"calibrated by {counted(len(points), 'measurement')}", by]))
    against = doubt(wrong, "the prediction and the other measurements") if wrong else ""
    return replace(
        outcome,
        throughput=posterior.interval(0.9)[0],
        prediction=posterior,
        method=outcome.method.replace(outcome.kinds[0], likely[0][1]) if outcome.kinds else outcome.method,
        remarks=(Note(calibrated), Note(against, "doubt"), *outcome.remarks),
    )


def finish(model: Model, outcome: Outcome, workers: np.ndarray, confidence: float) -> ThroughputCurve:
    """The curve of an outcome at some of its numbers of workers."""
    X = outcome.throughput
    _, lower, upper = outcome.prediction.interval(confidence)
    lower, upper = np.minimum(lower, X), np.maximum(upper, X)
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
        single=float(X[np.searchsorted(outcome.workers, model.base_workers)]) / model.base_workers,
        base_workers=model.base_workers,
        batch_size=model.job.batch_size,
        unit=model.unit,
        sequence_length=model.sequence_length,
        dataset_size=model.job.dataset_size,
        confidence=confidence,
        stations=parts.stations,
        saturation_workers=parts.saturation_workers,
        bottleneck=parts.bottleneck,
        **rows,
        **{name: getattr(outcome, name) for name in FROM_OUTCOME},
        steps_per_round=outcome.steps_per_round[at] if len(outcome.steps_per_round) else NONE,
        model=model,
    )


#: Fields of a curve that are those of its outcome.
FROM_OUTCOME = (
    "parameter_servers", "workers_per_node", "profiled_workers", "measured", "method", "assumption", "remarks",
    "synchronous",
)  # fmt: skip
