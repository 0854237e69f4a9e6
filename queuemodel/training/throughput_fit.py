"""A model from throughputs alone: a Bayesian fit on a grid, because few points leave much open."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from ..errors import FitError
from .bandwidth import contradiction
from .demands import Demands, Servers, largest_share, uneven_shards
from .fitted import Fitted
from .job import Job, Throughput
from .knee_posterior import DRAWS, KneePosterior
from .parameters import Parameter
from .prior import KneePrior, knee_prior
from .throughputs import doubt


def fit_throughputs(
    measured: list[Throughput], *, job: Job, prior: KneePrior | None = None, link: float | None = None
) -> Fitted:
    """Fit server demand and undisturbed cycle to measured throughputs.

    A worker's undisturbed cycle is R, of which the busiest server needs D; X(N) follows `knee_throughput`, but for a
    share of jobs whose servers grow with their workers (`queuemodel.training.knee_posterior`). Prior: log R flat; D/R
    uniform on (0, 1); the knee's width and the measurement error each from a few values; when the bytes of the
    parameters are known also a wide law of heavy tails for D, and servers that do not grow; with the nominal bandwidth
    of the servers' links too, no more than a ``link`` carries. The share, the errors and that law are learnt from
    published series (`queuemodel.training.prior`). A measurement may be wrong altogether:
    one that the others contradict hardly counts, and the note names it. Predictions have the least expected relative
    error. The method is numerical integration on a grid, without randomness.

    Raises
    ------
    FitError
        When there is no throughput.
    """
    if not measured:
        raise FitError("fit: at least one measured throughput is needed, got none")
    N = np.array([p.workers for p in measured], dtype=float)
    y = np.log([p.steps_per_second for p in measured])
    share = np.array([largest_share(p.parameter_servers) for p in measured])
    servers = Counter(p.parameter_servers for p in measured).most_common(1)[0][0]
    prior = prior or knee_prior()
    faster = contradiction(job.parameter_bytes * float(np.max(share * np.exp(y))), link)
    link = None if faster else link
    posterior = KneePosterior(N, y, share, job.parameter_bytes, prior, link)
    cycle, total, width, costs = posterior.draws()
    fewest = np.array([N.argmin()])
    alone = KneePosterior(N[fewest], y[fewest], share[fewest], job.parameter_bytes, prior, link)
    cycle_before, total_before, width_before, costs_before = alone.draws()
    none = np.zeros(DRAWS)
    demands = Demands(np.zeros(()), np.zeros(()), np.median(total), np.median(cycle) - np.median(total))
    low, high = np.quantile(total, [0.16, 0.84])
    seen = high < low * math.exp(2 * 0.25)
    most = max(p.workers for p in measured)
    size = (
        f"prior from {job.parameter_bytes / 1e6:.3g} MB of parameters"
        if job.parameter_bytes
        else "prior from published jobs"
    )
    notes = ["throughputs alone cannot tell the server's links from its processor, nor what a faster network buys"]
    notes = [faster, *notes] if faster else notes
    if not seen:
        notes.insert(0, f"the data show no saturation up to {most} worker(s), the server's demand rests on a {size}")
    wrong, misfits = posterior.against()
    doubtful = wrong > 0.5
    if len(measured) > 1 and wrong.sum() > 0.5:
        doubtful |= wrong > 0.5 * wrong.max()  # where nothing tells which of two is wrong, both are named
        doubted = [point for point, bad in zip(measured, doubtful, strict=True) if bad]
        notes.insert(0, doubt(doubted, "the other measurements"))
    trusted = ~doubtful if not doubtful.all() else doubtful
    return Fitted(
        demands=demands,
        draws=Demands(none, none, total, cycle - total),
        job=job,
        servers=Servers("single", uneven_shards(servers)),
        width=float(np.median(width)),
        draw_widths=width,
        costs=costs,
        before=(Demands(none, none, total_before, cycle_before - total_before), width_before, costs_before),
        measured=tuple(measured),
        misfit=float(np.sqrt(np.mean(misfits[trusted] ** 2))),
        average=True,
        others=(
            Parameter(
                "server demand", float(demands.update), "s", standard_error=float(total.std()), origin="derived",
                identified=seen, note="" if seen else size,
            ),
            Parameter(
                "worker time", float(demands.worker), "s", standard_error=float((cycle - total).std()),
                origin="derived", identified=seen, note="undisturbed cycle less the server's demand",
            ),
            Parameter(
                "undisturbed cycle", float(np.median(cycle)), "s", standard_error=float(cycle.std()), origin="derived",
            ),
            Parameter(
                "no saturation", float((total == 0).mean()), "", origin="derived", identified=seen,
                note="probability that the servers grow with the workers",
            ),
            Parameter(
                "knee width", float(width.mean()), "", standard_error=float(width.std()), origin="assumed",
                identified=False, note="sharp, unless the data show a round knee",
            ),
            *(
                Parameter(name, math.nan, "s", origin="assumed", identified=False, note="needs a profile")
                for name in ("transmit link demand", "receive link demand", "server update demand")
            ),
        ),
        note="; ".join(notes),
    )  # fmt: skip
