"""The model of a synchronous job that is known from throughputs alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..checks import require_count, require_share
from ..errors import FitError, ModelError
from ..results import Result
from .curve import ThroughputCurve, require_workers
from .forecast import least_relative_error, quantiles, width
from .job import MOST_WORKERS, Job, Throughput
from .parameters import Parameter
from .prior import RoundPrior, Strategy, round_prior
from .round_law import COSTS, Rounds

#: What the exponents of the laws mean, in the order in which they grow slower.
LAWS = ((-1.25, "faster than the group"), (-0.75, "with the group"), (-0.25, "between"), (0.25, "with its logarithm"),
        (0.75, "between"), (1.5, "as a ring's bandwidth"), (np.inf, "only at first"))  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class RoundModel(Result):
    """Synchronous training as rounds whose time grows with the group by a law that few measurements leave open.

    Made by `fit` with ``strategy="sync-ps"`` or ``"all-reduce"``; asked by `throughput`. The throughputs may
    count machines or devices, as long as all count the same.

    Attributes
    ----------
    measured : tuple of Throughput
    strategy : {"sync-ps", "all-reduce"}
    job : Job
    prior : RoundPrior
    ranks_per_node : int or None
        Of an all-reduce, where it is told: its workers are ranks then.
    """

    measured: tuple[Throughput, ...]
    strategy: Strategy
    job: Job
    prior: RoundPrior
    ranks_per_node: int | None = None

    @cached_property
    def _posterior(self) -> Rounds:
        return self._after(self.measured)

    def _after(self, measured: Iterable[Throughput]) -> Rounds:
        points = [(p.workers, p.steps_per_second) for p in measured]
        nodes, throughput = np.array(points).T
        ranks = self.ranks_per_node if nodes.min() == self.ranks_per_node else None
        return Rounds(nodes, np.log(throughput), self.prior, ranks or 1)

    @property
    def profiled_workers(self) -> int:
        """The most workers for which something was measured."""
        return max(p.workers for p in self.measured)

    @cached_property
    def note(self) -> str:
        """What this fit cannot know, and which measurement does not fit the others."""
        jobs = "jobs with sparse gradients" if self.prior.paid else "such jobs"
        notes = [f"how a round grows beyond what was measured rests on published series of {jobs}"]
        if not self.prior.paid:
            notes.append("rounds of a model that is mostly embeddings grow much more: say so (sparse_gradients)")
            if self.strategy == "all-reduce" and not self.ranks_per_node:
                notes.append("where nodes have several ranks, telling how many (ranks_per_node) says more")
        if self.job.parameter_bytes:
            notes.append("the parameters' bytes are not used, since they do not tell where rounds stop growing")
        mistaken = self._posterior.mistaken()
        if mistaken is not None:
            point = self.measured[mistaken]
            what = f"{point.steps_per_second:.4g} steps/s with {point.workers} worker(s)"
            notes.insert(0, f"{what}: does not fit the other measurements and counts little; measure it again")
        return "; ".join(notes)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What was fitted, and how far to trust it."""
        weight = self._posterior.weights().sum(axis=0)
        cost, share = weight.sum(axis=1), weight.sum(axis=0)
        laws = np.array(list(self.prior.laws))
        fewest = min(p.workers for p in self.measured)
        mean, law = float(cost @ COSTS), float(share @ laws)
        return (
            Parameter(
                f"round of {fewest}", fewest / self.throughput([fewest]).at(fewest), "s",
                origin="derived", note="time of a round of the smallest measured group",
            ),
            Parameter(
                "cost of doubling", mean, "", standard_error=float(np.sqrt(cost @ (COSTS - mean) ** 2)),
                origin="derived", identified=len({p.workers for p in self.measured}) > 1,
                note=f"what {2 * fewest} nodes add to a round of {fewest}, relative to it",
            ),
            Parameter(
                "law of growth", law, "", standard_error=float(np.sqrt(share @ (laws - law) ** 2)), origin="derived",
                identified=bool(share.max() > 0.9), note=_described(laws, share),
            ),
        )  # fmt: skip

    def throughput(self, workers: int | Iterable[int] = range(1, 33), *, confidence: float = 0.9) -> ThroughputCurve:
        """Predict throughput against the number of workers, with quantiles of the posterior.

        Points have the least expected relative error, or are medians for all-reduce, whose posterior is wider than it
        need be (docs/explanation/few-throughputs).

        Parameters
        ----------
        workers : iterable of int
            Increasing numbers of workers.
        confidence : float
            Probability of the interval of what would be measured: it covers the fit's uncertainty, what the laws
            miss and the measurement's own error.

        Raises
        ------
        ModelError
            When workers are not whole, increasing and at least 1.
        """
        counts = require_workers(workers)
        require_share(confidence, "throughput: confidence", open_ended=True)
        groups = np.union1d(counts, 1)
        columns, chance = self._posterior.forecast(groups.astype(float))
        tail = (1.0 - confidence) / 2
        lower, points, upper = quantiles(columns, chance, [tail, 0.5, 1.0 - tail])
        if self.strategy == "sync-ps":
            points = least_relative_error(columns, chance)
        lower, points, upper = np.exp([np.minimum(lower, points), points, upper])
        at = np.searchsorted(groups, counts)
        return ThroughputCurve(
            workers=counts,
            steps_per_second=points[at],
            lower=lower[at],
            upper=upper[at],
            single=float(points[0]),
            batch_size=self.job.batch_size,
            workers_per_node=self.ranks_per_node or 1,
            parameter_servers=0 if self.strategy == "all-reduce" else max(p.parameter_servers for p in self.measured),
            dataset_size=self.job.dataset_size,
            confidence=confidence,
            profiled_workers=self.profiled_workers,
            measured=tuple((p.workers, p.steps_per_second) for p in self.measured),
            prior_share=np.minimum((width(columns, chance)[at] / self._width_before(counts)) ** 2, 1.0),
            method=f"{self.strategy} rounds (learnt growth)",
            note=self.note,
            model=self,
            synchronous=True,
        )

    def _width_before(self, counts: np.ndarray) -> np.ndarray:
        """What the measurement of the smallest group alone leaves open of log throughput, shape (n,)."""
        fewest = min(self.measured, key=lambda point: point.workers)
        return width(*self._after([fewest]).forecast(counts.astype(float)))

    def what_if(self, **changes: Any) -> RoundModel:
        """The model itself: throughputs alone do not tell what other machines would change.

        Raises
        ------
        ModelError
            When anything is to change.
        """
        asked = next((name for name, value in changes.items() if value is not None), None)
        if asked:
            raise ModelError(
                f"what_if: {asked} needs a profile; throughputs of synchronous training do not tell its effect"
            )
        return self

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per parameter."""
        return [parameter.to_row() for parameter in self.parameters]

    def caption(self) -> str:
        """Which job, and what the fit cannot know."""
        return f"{self.job.name or 'job'}, {self.strategy}; {self.note}"


def fit_rounds(
    measured: list[Throughput],
    *,
    job: Job,
    strategy: Strategy,
    sparse_gradients: bool = False,
    ranks_per_node: int | None = None,
) -> RoundModel:
    """Fit a synchronous round to measured throughputs (`queuemodel.training.round_law`).

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
    prior = round_prior(strategy, sparse_gradients=sparse_gradients)
    return RoundModel(tuple(measured), strategy, job, prior, ranks_per_node)


def _described(laws: np.ndarray, share: np.ndarray) -> str:
    """The likelier laws in words."""
    chances: dict[str, float] = {}
    for law, chance in zip(laws, share, strict=True):
        name = next(name for limit, name in LAWS if law < limit)
        chances[name] = chances.get(name, 0.0) + float(chance)
    return "grows " + ", ".join(f"{name} ({p:.0%})" for name, p in chances.items() if p >= 0.05)
