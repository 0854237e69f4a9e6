"""Fits from a few throughputs, judged on series of sources that their prior was not learnt from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from queuemodel import Job, RoundModel, Throughput, ThroughputCurve, TrainingModel, fit
from queuemodel.training.prior import STRATEGIES, Strategy
from queuemodel.training.throughput_fit import fit_throughputs

from .intervals import interval_score
from .prior import NO_JOB, learn_knees, learn_rounds, learn_sparse, series, source_weights, sparse_series
from .published import Scaling, testbed

Fit = Callable[[list[Throughput]], TrainingModel | RoundModel]


def learnt_from(
    jobs: Sequence[Scaling],
    kind: Strategy,
    *,
    sparse: bool = False,
    parameter_bytes: int | None = None,
    link: float | None = None,
    ranks_per_node: int | None = None,
) -> Fit:
    """A fit with the prior of these series, which may be told more of a job."""
    if kind == "async-ps":
        knees, job = learn_knees(jobs), Job(batch_size=1, parameter_bytes=parameter_bytes or 0, tensors=0)
        return lambda points: TrainingModel(fit_throughputs(points, job=job, prior=knees, link=link))
    rounds = (learn_sparse(jobs) if sparse else learn_rounds(jobs))[kind]
    return lambda points: RoundModel(tuple(points), kind, NO_JOB, rounds, ranks_per_node)


def learnt_without(source: str, kind: Strategy, *, sparse: bool = False, **told: Any) -> Fit:
    """The same with the prior of all sources but one."""
    others = [job for job in (sparse_series() if sparse else series()) if job.source != source]
    return learnt_from(others, kind, sparse=sparse, **told)


@dataclass(frozen=True)
class Judged:
    """What was measured of a series where it was not fitted, and what was predicted there."""

    job: Scaling
    nodes: np.ndarray
    measured: np.ndarray
    predicted: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @property
    def error(self) -> float:
        """Mean absolute relative error."""
        return float(np.abs(self.predicted / self.measured - 1).mean())

    @property
    def covered(self) -> float:
        """Share of the measurements inside the interval."""
        return float(((self.lower <= self.measured) & (self.measured <= self.upper)).mean())

    @property
    def width(self) -> float:
        """Mean width of the interval against the prediction."""
        return float(((self.upper - self.lower) / self.predicted).mean())

    @property
    def score(self) -> float:
        """Mean interval score in logarithms."""
        return float(interval_score(np.log(self.lower), np.log(self.upper), np.log(self.measured)).mean())


def judge(jobs: Iterable[Scaling], fits: Callable[[Scaling], Fit], *, most: int | None = None) -> list[Judged]:
    """Predict each series from its two smallest groups, or from those of at most ``most`` nodes."""
    found = []
    for job in jobs:
        fitted = job.nodes <= most if most else np.arange(len(job.nodes)) < 2
        if fitted.sum() < 2 or fitted.all():
            continue
        nodes = job.nodes[~fitted]
        curve: ThroughputCurve = fits(job)(job.points(fitted)).throughput(job.workers[~fitted].tolist())
        found.append(Judged(job, nodes, job.throughput[~fitted], curve.steps_per_second, curve.lower, curve.upper))
    return found


def leave_source_out(kind: Strategy, *, most: int | None = None, told: bool = False) -> list[Judged]:
    """Each series of a kind, predicted with a prior from all other sources; ``told`` what is known of it besides."""
    judged = [job for job in [*series(), *testbed()] if job.kind == kind]
    return judge(judged, _fits(told=told), most=most)


def leave_sparse_out(*, told: bool) -> list[Judged]:
    """Each synchronous series with sparse gradients, told so or not, with a prior from all other sources."""
    return judge(sparse_series(), _fits(told=told))


def _fits(*, told: bool) -> Callable[[Scaling], Fit]:
    """For each series a fit that was not learnt from its source."""

    learnt = cache(learnt_without)

    def fits(job: Scaling) -> Fit:
        return learnt(job.source, job.kind, **_known(job, told=told))

    return fits


def _known(job: Scaling, *, told: bool) -> dict[str, Any]:
    """What a fit is told of a job, where it is."""
    if not told:
        return {}
    if job.kind == "async-ps":
        known = {"parameter_bytes": job.parameter_bytes, "link": job.link}
    else:
        known = {"sparse": job.sparse, "ranks_per_node": job.ranks_per_node if job.ranks_per_node > 1 else None}
    return {name: value for name, value in known.items() if value}


#: Two-parameter forms that a throughput of two groups determines: 1/n of X(n), of which T(n) = a + b g(n).
FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Amdahl's law": lambda n: n,
    "ring, bandwidth": lambda n: 1.0 - 1.0 / n,
    "log n": np.log2,
}


def two_parameters(form: str, known: tuple[np.ndarray, np.ndarray], nodes: np.ndarray) -> np.ndarray:
    """Throughput of a form through two measurements; never negative, at most a thousandfold of the largest."""
    (n1, n2), (x1, x2) = known
    n = nodes.astype(float)
    if form == "line":
        return np.maximum(x1 + (x2 - x1) / (n2 - n1) * (n - n1), 1e-3 * x1)
    g = FORMS[form]
    slope = (n2 / x2 - n1 / x1) / (g(np.array(n2 * 1.0)) - g(np.array(n1 * 1.0)))
    round_time = n1 / x1 + slope * (g(n) - g(np.array(n1 * 1.0)))
    return n / np.maximum(round_time, 1e-3 * n / max(x1, x2))


def baseline(form: str, judged: Sequence[Judged]) -> list[Judged]:
    """The same series by a form with two parameters."""
    return [
        replace(one, predicted=two_parameters(form, (one.job.nodes[:2], one.job.throughput[:2]), one.nodes))
        for one in judged
    ]


SECTION = """## Few throughputs, on sources that the prior was not learnt from

Published series (`validation/data/published_scaling.json`, `later_scaling.json`) and the cloud's, predicted from their
two smallest groups of machines, or from one to four workers, with a prior learnt from all other sources; the testbed's
and later all-reduces too, which no prior is learnt from ([why](explanation/few-throughputs.md)). What is known besides
is how many bytes the parameters of asynchronous jobs have (cloud, testbed), how fast their links are (testbed), which
synchronous jobs have sparse gradients, and how many GPUs each machine of an all-reduce. Beside them forms with two
parameters, through the same two points. Errors are means over series of mean absolute relative errors, *by source*
first over those of each source; *width* is that of the 90 % intervals, relative to the prediction, *score* their
interval score in logarithms.
"""


def prior_section() -> str:
    """Markdown: what fits from few throughputs err on unseen sources, beside forms with two parameters."""
    lines = [
        SECTION,
        "| jobs, fitted on | method | series | mean error | by source | median | covered | width | score |",
        "|---|---|---|---|---|---|---|---|---|",
    ]

    def row(jobs: str, method: str, found: Sequence[Judged], *, interval: bool = True) -> None:
        errors = [one.error for one in found]
        weights = source_weights([one.job for one in found])
        covered, width, score = np.mean([(one.covered, one.width, one.score) for one in found], axis=0)
        told = f"{covered:.0%} | {width:.0%} | {score:.2f}"
        lines.append(
            f"| {jobs} | {method} | {len(found)} | {np.mean(errors):.1%} | "
            f"{np.average(errors, weights=weights):.1%} | {np.median(errors):.1%} | "
            f"{told if interval else ' |  | '} |"
        )

    def row_if_told(jobs: str, untold: Sequence[Judged], told: Sequence[Judged]) -> None:
        if any(np.any(one.predicted != other.predicted) for one, other in zip(told, untold, strict=True)):
            row(jobs, "**and told what is known besides**", told)

    for kind in STRATEGIES:
        found = leave_source_out(kind)
        by_source = {"async-ps": sorted({one.job.source for one in found})}.get(kind, [])
        for source in by_source or [""]:
            of_source = [one for one in found if source in ("", one.job.source)]
            jobs = f"{kind}{f' ({source})' if source else ''}, two points"
            row(jobs, "**learnt without the source**", of_source)
            told = [one for one in leave_source_out(kind, told=True) if source in ("", one.job.source)]
            row_if_told(jobs, of_source, told)
            if kind != "async-ps":
                counted = [replace(one.job, ranks_per_node=1) for one in of_source]
                row(jobs, "as if asynchronous", judge(counted, lambda _: fit))
            for form in ("line", *FORMS):
                row(jobs, form, baseline(form, of_source), interval=False)
    found = leave_sparse_out(told=True)
    row("sparse gradients, two points", "**told, learnt without the source**", found)
    row("sparse gradients, two points", "not told", leave_sparse_out(told=False))
    for form in ("line", *FORMS):
        row("sparse gradients, two points", form, baseline(form, found), interval=False)
    for source in ("cloud", "testbed"):
        for told, method in ((False, "**learnt without the source**"), (True, "**and told what is known besides**")):
            few = leave_source_out("async-ps", most=4, told=told)
            row(f"async ({source}), up to 4 workers", method, [one for one in few if one.job.source == source])
    return "\n".join(lines) + "\n"
