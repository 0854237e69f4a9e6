"""A model from throughputs alone: a Bayesian fit on a grid, because few points leave much open."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from ..errors import FitError
from ..solvers.knee import knee_throughput
from .demands import Demands, Servers, largest_share, uneven_shards
from .fitted import Fitted
from .parameters import Parameter
from .profile import Job, Throughput

#: Knee widths s with equal weight: service times of coefficient of variation about 0.1, 0.3 and 0.5 (assumed).
WIDTHS = np.array([0.15, 0.25, 0.40])
#: Relative errors of one measured throughput, with equal weight; Student's t of 4 degrees of freedom bears outliers.
SIGMAS = np.array([0.015, 0.03, 0.06])
DEGREES = 4.0
#: Parameter bytes per second that one server's demand is expected to be worth, and the spread of its logarithm
#: (assumed; a weak prior, used only when the size of the parameters is known).
SERVER_BYTES_PER_SECOND = 400e6
SERVER_BYTES_SPREAD = 0.7
#: Draws of the posterior that the model keeps.
DRAWS = 2000


def fit_throughputs(measured: list[Throughput], *, job: Job) -> Fitted:
    """Fit server demand and undisturbed cycle to measured throughputs.

    A worker's undisturbed cycle is R, of which the busiest server needs D; X(N) follows `knee_throughput`. Prior: log R
    flat, D/R uniform on (0, 1), the knee's width and the measurement error each from a few values of equal weight; when
    the bytes of the parameters are known also a wide log-normal for D. Predictions are posterior medians. The method is
    numerical integration on a grid, without randomness.

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
    rate, ratio, width, weight = _posterior(N, y, share, job.parameter_bytes)
    keep = (np.arange(DRAWS) + 0.5) / DRAWS
    order = np.argsort(ratio, kind="stable")
    pick = order[np.searchsorted(np.cumsum(weight[order]), keep).clip(max=len(order) - 1)]
    cycle, total = 1.0 / rate[pick], ratio[pick] / rate[pick]
    none = np.zeros(DRAWS)
    demands = Demands(np.zeros(()), np.zeros(()), np.median(total), np.median(cycle) - np.median(total))
    spread = float(np.log(total).std())
    seen = spread < 0.25
    most = max(p.workers for p in measured)
    size = f"prior from {job.parameter_bytes / 1e6:.3g} MB of parameters" if job.parameter_bytes else "scale-free prior"
    note = "throughputs alone cannot tell the server's links from its processor, nor what a faster network buys"
    if not seen:
        note = f"the data show no saturation up to {most} worker(s), the server's demand rests on a {size}; {note}"
    return Fitted(
        demands=demands,
        draws=Demands(none, none, total, cycle - total),
        job=job,
        servers=Servers("single", uneven_shards(servers)),
        width=float(np.median(width[pick])),
        draw_widths=width[pick],
        measured=tuple(measured),
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
                "knee width", float(width[pick].mean()), "", standard_error=float(width[pick].std()), origin="assumed",
                identified=False, note="coefficients of variation of 0.1 to 0.5",
            ),
            *(
                Parameter(name, math.nan, "s", origin="assumed", identified=False, note="needs a profile")
                for name in ("transmit link demand", "receive link demand", "server update demand")
            ),
        ),
        note=note,
    )  # fmt: skip


def _posterior(
    N: np.ndarray, y: np.ndarray, share: np.ndarray, parameter_bytes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Flat grids of 1/R, total D/R and width, with their posterior weights."""
    # cycle over the demand of all servers
    log_knee = np.linspace(0.0, math.log(max(200.0, 10.0 * N.max())), 200)
    lowest = float(np.max(y - np.log(N))) - 0.35  # X(N) <= N / R bounds 1/R from below, up to noise
    highest = float(y[N.argmin()] + np.log(N.min())) + 0.35
    log_rate = np.linspace(lowest, max(highest, lowest + 0.7), 140)
    shape = np.log(
        knee_throughput(N, cycle=1.0, demand=share * np.exp(-log_knee)[:, None], width=WIDTHS[:, None, None])
    )
    error = y - (shape[:, :, None, :] + log_rate[:, None])
    log_weight = np.zeros(error.shape[:-1])
    likelihood = [
        (-(DEGREES + 1) / 2 * np.log1p((error / s) ** 2 / DEGREES) - math.log(s)).sum(axis=-1) for s in SIGMAS
    ]
    log_weight = np.logaddexp.reduce(likelihood, axis=0) - log_knee[:, None]  # D/R uniform
    if parameter_bytes:
        expected = math.log(SERVER_BYTES_PER_SECOND / parameter_bytes)
        log_weight = log_weight - 0.5 * ((log_rate + log_knee[:, None] - expected) / SERVER_BYTES_SPREAD) ** 2
    weight = np.exp(log_weight - log_weight.max())
    width, knee, rate = np.broadcast_arrays(WIDTHS[:, None, None], np.exp(log_knee)[:, None], np.exp(log_rate))
    return rate.ravel(), 1.0 / knee.ravel(), width.ravel(), (weight / weight.sum()).ravel()
