"""Base of all models: their outcome, its posterior given measurements, and the curve that follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias, Unpack

import numpy as np

from ..base.checks import require_seed, require_share
from ..base.estimates import Parameter, Parameters
from ..base.results import Note, Result, counted, joined, percent, ranked, same
from ..curves.curve import Basis, Breakdown, ThroughputCurve, require_workers
from ..curves.prediction import Prediction
from ..profile.job import Job
from ..profile.measurements import Measurement
from ..profile.profile import Profile
from ..profile.scenario import Changes, Scenario, of_group, require_answered
from ..profile.throughputs import doubt
from .explorer import Explorer

Data: TypeAlias = Profile | Sequence[Measurement]
OTHER_DATA = "-"  #: A model's refusal of data that are another model's.
#: Fields of a scenario that describe the job or the data: no change of a model's.
NO_CHANGES = (*of_group("job"), *of_group("form"), *of_group("throughputs"), *of_group("network"))
#: Fields of a scenario that differ from the machines of the data.
CHANGED = (
    *of_group("machines"), *of_group("shards"), *of_group("rounds"), *of_group("sharded"), "worker_bandwidth",
    "straggler_probability", "straggler_slowdown",
)  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome(Basis):
    """Predicted distribution of throughput at n numbers of workers."""

    workers: np.ndarray  # (n,): Increasing, the base of speedup among them
    throughput: np.ndarray  # (n,): Steps of all workers per second
    prediction: Prediction  # At these places
    kinds: tuple[str, ...] = ()  # Names of its kinds of network, where there are several
    noise: np.ndarray | float = 0.0  # (n,): Relative standard error of a measurement there, unless it has its own
    breakdown: Callable[[np.ndarray], Breakdown] = lambda X: Breakdown()  # At a throughput (n,)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Model(Result):
    """A fit to one kind of data; changed by `what_if`, predicts `throughput`.

    A model has its fit (`parameters`, `remarks`), the fields of `Scenario` that it answers (``changes``), and its
    `outcome`.
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
        """Unit of a batch: examples, tokens, ...; "" where no batch size is known."""
        return "examples"

    @property
    def sequence_length(self) -> int | None:
        """Tokens of an example, where they are known."""
        return None

    @property
    def remarks(self) -> tuple[Note, ...]:
        """Notes on what the fit does not determine, and what contradicts it."""
        return ()

    @property
    def note(self) -> str:
        """The remarks in one text."""
        return joined(self.remarks)

    @property
    def parameters(self) -> Parameters:
        """Fitted parameters with their errors."""
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
        """Bytes per second of each host's link, nominal; None where it is not known."""
        return None

    def outcome(self, workers: np.ndarray, *, seed: int = 0) -> Outcome:
        """The outcome at these numbers of workers, without the model's conditions."""
        raise NotImplementedError

    @property
    def base_workers(self) -> int:
        """Number of workers that speedup and efficiency relate to."""
        return 1

    @property
    def conditions(self) -> Sequence[Measurement]:
        """Measurements of the same job and strategy, but those that the fit has used."""
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
        """The same fit of the same job on other machines, or with another strategy.

        Changes are fields of `Scenario`, relative to the data; their order does not matter. A field that changes again
        is replaced; accelerator speeds multiply. A `ModelError` for what the data do not answer, or makes no sense.

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
            Probability of the interval of a measurement of a minute. It covers the sampling of recorded steps or
            rounds, the fit, and the model's own error as docs/validation measured it.
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
        """The outcome at these numbers of workers and at the base of speedup, given the model's conditions."""
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
        outcomes = {model.scenario: model._unconditioned(workers, seed) for model in (self, other)}
        if len({outcome.prediction.draws for outcome in outcomes.values()}) > 1:
            return None
        posterior, first, _ = joint_posterior(self, outcomes, seed=seed)
        here, there = (
            first[m.scenario] + np.searchsorted(outcomes[m.scenario].workers, workers) for m in (self, other)
        )
        return posterior.over(here, there)

    def explore(self, *, workers: int = 32) -> Explorer:
        """The what-ifs of a report as sliders in a notebook, with the curve of 1 to ``workers`` workers.

        A `MissingDependencyError` without ipywidgets (``pip install ipywidgets``).
        """
        return Explorer(self, workers=workers)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per parameter."""
        return [parameter.to_row() for parameter in self.parameters]

    def _shown_rows(self) -> list[dict[str, Any]]:
        """The rows without what is in notes."""
        return [parameter.to_row(shown=True) for parameter in self.parameters]

    def answer(self) -> str:
        """The caption without the remarks."""
        return self.caption().removesuffix(self.note).removesuffix("; ")

    def notes(self) -> list[str]:
        """The remarks in the order of their use."""
        return ranked(self.remarks)

    def _details(self) -> list[str]:
        """Notes of the parameters."""
        return [f"{parameter.name}: {parameter.note}" for parameter in self.parameters if parameter.note]


class ModelKind(Protocol):
    """A kind of model, a folder of this one: the data and questions that it answers, and its fit to them."""

    METHOD: str  # Argument of `predict` that selects it
    NEEDS: str  # The data

    def refuses(self, data: Data, question: Scenario) -> str:
        """Why it has no answer, `OTHER_DATA`, or "" where it has one."""

    def of(self, data: Data, question: Scenario, measured: Sequence[Measurement], *, seed: int) -> Model:
        """The model, on the machines of the question."""


def on_nodes(data: object) -> bool:
    """Whether data are a table of GPUs on nodes."""
    return isinstance(data, Sequence) and any(getattr(point, "nodes", None) is not None for point in data)


def strategy_of(data: Data, question: Scenario) -> str:
    """The strategy as specified, or recorded, or else asynchronous."""
    rounds = isinstance(data, Profile) and data.rounds and not data.steps
    recorded = getattr(data, "strategy", "") or ("all-reduce" if rounds or on_nodes(data) else "async-ps")
    return question.strategy or recorded


def changes_of(question: Scenario) -> dict[str, Any]:
    """Fields that differ from the machines of the data."""
    return {name: value for name, value in question.specified.items() if name not in NO_CHANGES}


def joint_posterior(
    model: Model, outcomes: dict[Scenario, Outcome], *, seed: int
) -> tuple[Prediction, dict[Scenario, int], list[Measurement]]:
    """Posterior of several scenarios of a fit, given the model's conditions on their or other machines.

    With it come the first place of each scenario, and the outliers among the conditions.
    """
    points, asked = model.conditions, tuple(outcomes)
    machines = [
        next((scenario for scenario in asked if replace(model, scenario=scenario).is_here(p)), model.machines_of(p))
        for p in points
    ]
    outcomes = dict(outcomes)
    for scenario in machines:  # other machines join as further places: errors there are correlated with errors here
        if scenario not in outcomes:
            counts = {1, *(p.workers for p, place in zip(points, machines, strict=True) if place == scenario)}
            outcomes[scenario] = replace(model, scenario=scenario).outcome(np.array(sorted(counts)), seed=seed)
    joint = reduce(Prediction.joined, (outcome.prediction for outcome in outcomes.values()))
    sizes = [len(outcome.workers) for outcome in outcomes.values()]
    first = dict(zip(outcomes, np.cumsum([0, *sizes]).tolist(), strict=False))
    if not points:
        return joint, first, []
    at = [
        first[scenario] + int(np.searchsorted(outcomes[scenario].workers, p.workers))
        for scenario, p in zip(machines, points, strict=True)
    ]
    noises = np.concatenate([np.broadcast_to(outcome.noise, outcome.workers.shape) for outcome in outcomes.values()])
    noise = np.array([p.relative_error(float(noises[place])) for p, place in zip(points, at, strict=True)])
    posterior, outliers = joint.condition(at, np.log([p.steps_per_second for p in points]), noise)
    return posterior, first, [p for p, outlier in zip(points, outliers, strict=True) if outlier]


def conditioned(model: Model, outcome: Outcome, *, seed: int) -> Outcome:
    """The outcome, given the model's conditions."""
    if not (points := model.conditions):
        return outcome
    posterior, _, outliers = joint_posterior(model, {model.scenario: outcome}, seed=seed)
    posterior = posterior.at(np.arange(len(outcome.workers)))
    shares = sorted(zip(posterior.kinds(len(outcome.kinds) or 1).tolist(), outcome.kinds, strict=False), reverse=True)
    kinds = ", ".join(f"{name} {percent(share)}" for share, name in shares)
    calibrated = ": ".join(filter(None, [f"calibrated by {counted(len(points), 'measurement')}", kinds]))
    against = doubt(outliers, "the prediction and the other measurements") if outliers else ""
    return replace(
        outcome,
        throughput=posterior.interval(0.9)[0],  # the median
        prediction=posterior,
        method=outcome.method.replace(outcome.kinds[0], shares[0][1]) if outcome.kinds else outcome.method,
        remarks=(Note(calibrated), Note(against, "doubt"), *outcome.remarks),
    )


def finish(model: Model, outcome: Outcome, workers: np.ndarray, confidence: float) -> ThroughputCurve:
    """The curve of an outcome at some of its numbers of workers."""
    X = outcome.throughput
    _, lower, upper = outcome.prediction.interval(confidence)
    at = np.searchsorted(outcome.workers, workers)
    basis = {one.name: getattr(outcome, one.name) for one in fields(Basis)}
    parts: dict[str, Any] = {
        name: value[at] if isinstance(value, np.ndarray) and len(value) else value
        for name, value in (basis | vars(outcome.breakdown(X))).items()
    }
    return ThroughputCurve(
        workers=workers,
        steps_per_second=X[at],
        lower=np.minimum(lower, X)[at],  # a point estimate is not always the median, and stays inside
        upper=np.maximum(upper, X)[at],
        single=float(X[np.searchsorted(outcome.workers, model.base_workers)]) / model.base_workers,
        base_workers=model.base_workers,
        batch_size=model.job.batch_size,
        unit=model.unit,
        sequence_length=model.sequence_length,
        dataset_size=model.job.dataset_size,
        confidence=confidence,
        **parts,
        model=model,
    )
