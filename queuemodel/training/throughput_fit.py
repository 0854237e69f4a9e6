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
from .knee_posterior import DRAWS, Costs, KneePosterior
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
    faster = contradiction(job.parameter_bytes * float(np.max(share * np.exp(y))), link)
    told = job.parameter_bytes, prior or knee_prior(), None if faster else link
    posterior = KneePosterior(N, y, share, *told)
    draws, width, costs = _drawn(posterior)
    cycle, demand = np.median(draws.total), np.median(draws.server)
    fewest = [N.argmin()]
    low, high = np.quantile(draws.server, [0.16, 0.84])
    basis = f"{job.parameter_bytes / 1e6:.3g} MB of parameters" if job.parameter_bytes else "published jobs"
    unseen = f"prior from {basis}" if high >= low * math.exp(2 * 0.25) else ""
    notes = [faster] if faster else []
    notes.append("throughputs alone cannot tell the server's links from its processor, nor what a faster network buys")
    if unseen:
        most = max(p.workers for p in measured)
        notes.insert(0, f"the data show no saturation up to {most} worker(s), the server's demand rests on a {unseen}")
    wrong, misfits = posterior.against()
    doubtful = wrong > 0.5
    if len(measured) > 1 and wrong.sum() > 0.5:
        doubtful |= wrong > 0.5 * wrong.max()  # where nothing tells which of two is wrong, both are named
        doubted = [point for point, bad in zip(measured, doubtful, strict=True) if bad]
        notes.insert(0, doubt(doubted, "the other measurements"))
    trusted = ~doubtful if not doubtful.all() else doubtful
    servers = Counter(p.parameter_servers for p in measured).most_common(1)[0][0]
    return Fitted(
        demands=Demands(np.zeros(()), np.zeros(()), demand, cycle - demand),
        draws=draws,
        job=job,
        servers=Servers("single", uneven_shards(servers)),
        width=float(np.median(width)),
        draw_widths=width,
        costs=costs,
        before=_drawn(KneePosterior(N[fewest], y[fewest], share[fewest], *told)),
        measured=tuple(measured),
        misfit=float(np.sqrt(np.mean(misfits[trusted] ** 2))),
        average=True,
        others=_parameters(draws, width, unseen),
        note="; ".join(notes),
    )


def _drawn(posterior: KneePosterior) -> tuple[Demands, np.ndarray, Costs]:
    """Demands, of which that at the servers is one, knees' widths and costs."""
    cycle, demand, width, costs = posterior.draws()
    return Demands(np.zeros(DRAWS), np.zeros(DRAWS), demand, cycle - demand), width, costs


def _parameters(draws: Demands, width: np.ndarray, unseen: str) -> tuple[Parameter, ...]:
    """What the posterior says of each quantity; ``unseen``: what the servers' demand rests on where no data show it."""
    cycle, demand = float(np.median(draws.total)), float(np.median(draws.server))
    return (
        Parameter(
            "server demand", demand, "s", standard_error=float(draws.server.std()), origin="derived",
            identified=not unseen, note=unseen,
        ),
        Parameter(
            "worker time", cycle - demand, "s", standard_error=float(draws.worker.std()), origin="derived",
            identified=not unseen, note="undisturbed cycle less the server's demand",
        ),
        Parameter("undisturbed cycle", cycle, "s", standard_error=float(draws.total.std()), origin="derived"),
        Parameter(
            "no saturation", float((draws.server == 0).mean()), "", origin="derived", identified=not unseen,
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
    )  # fmt: skip
