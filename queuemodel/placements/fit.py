"""The law's parameters from measured placements: all batch sizes of a job share them.

That is what makes few placements enough: where the batch is large the all-reduce hides and stragglers show, where it is
small the all-reduce shows. Least squares of logarithms, robust (pseudo-Huber), with a prior for what the measurements
do not tell: its mode, and draws from it, which the normal approximation there proposes and the posterior chooses among
(sampling importance resampling, D. B. Rubin 1988). That matters where an all-reduce hides wholly: it may then be
anything up to a limit, which no normal law is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..errors import FitError, ModelError
from .alone import Alone, shares, span
from .law import PARAMETERS, TAILS, step_time
from .measured import PlacedStep
from .model import PlacementModel

#: Means and standard deviations, assumed after seeing the jobs of docs/explanation/placements. The all-reduce times are
#: relative to the fastest step on one GPU.
PRIOR = {
    "forward": (np.log(0.5), 1.0),  # a backward pass takes twice as long as a forward pass
    "straggling": (np.log(0.03), 0.7),
    "across": (0.0, 3.0),
    "inside": (np.log(0.1), 1.5),
    "sharing": (0.1, 0.15),  # 0.06 to 0.2 in those jobs
    "growth": (0.34, 0.15),  # as wide as jobs differ
}

#: An all-reduce between two nodes of so many seconds grows half as fast with the nodes (assumed, likewise).
LONG = 0.7

ACROSS, GROWTH = PARAMETERS.index("across"), PARAMETERS.index("growth")

#: Draws, out of how many proposed, and how much wider than the normal approximation these spread.
DRAWS, PROPOSED, WIDER = 400, 3000, 1.3

#: Relative error of a measurement, and how many measurements that assumption is worth.
ERROR, ASSUMED = 0.05, 3

#: Fits of the parameters, each with the error that the one before left.
ROUNDS = 4


def fit_placements(measured: Iterable[PlacedStep]) -> PlacementModel:
    """Fit how a data-parallel step depends on nodes, GPUs and batch size (`queuemodel.placements.law`).

    Parameters
    ----------
    measured : iterable of PlacedStep
        Some on one GPU; batch sizes on more GPUs must lie among theirs.

    Raises
    ------
    FitError
        When nothing was measured on one GPU, or a batch size lies outside what was.
    ModelError
        For what is no PlacedStep.
    """
    points = tuple(measured)
    for point in points:
        if not isinstance(point, PlacedStep):
            raise ModelError(f"fit_placements: expected PlacedSteps, got {type(point).__name__}")
    once = [point for point in points if point.gpus == 1]
    if not once:
        raise FitError("fit_placements: at least one step on one GPU must be measured, got none")
    sizes = np.unique([point.batch_size for point in once])
    for point in points:
        if not sizes[0] <= point.batch_size <= sizes[-1]:
            raise FitError(
                f"fit_placements: {point.gpus} GPUs were measured with a batch of {point.batch_size}, one GPU with "
                f"{span(sizes)}; measure one GPU with that batch too"
            )
    first = [np.mean([np.log(point.step_time) for point in once if point.batch_size == size]) for size in sizes]
    mean, spread = np.array([PRIOR[name] for name in PARAMETERS]).T  # the growth is that of a short all-reduce
    mean = mean + min(first) * np.isin(PARAMETERS, ("across", "inside"))
    mode, draws, error = _posterior(points, sizes, np.append(first, mean), mean, spread)
    alone, law = np.split(mode, [len(sizes)])
    drawn, draws = np.split(draws, [len(sizes)], axis=1)
    return PlacementModel(points, Alone(sizes, np.exp(alone), np.exp(drawn)), law, draws, spread, error)


def _posterior(
    points: Sequence[PlacedStep], sizes: np.ndarray, start: np.ndarray, mean: np.ndarray, spread: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The posterior's mode, shape (sizes + 6,), draws from it, and the error of a measurement in each, shape (DRAWS,).

    Parameters are the logarithms of steps on one GPU with these batch sizes, which the measurements alone tell, and
    those of the law.
    """
    from scipy.optimize import least_squares

    nodes, gpus, fullest, batch = np.array([(p.nodes, p.gpus, p.gpus_per_node, p.batch_size) for p in points]).T
    logs, share, own, n = np.log([p.step_time for p in points]), shares(batch, sizes), len(sizes), len(points)

    def residuals(parameters: np.ndarray, error: np.ndarray | float) -> np.ndarray:
        law = parameters[..., own:]
        compute = np.exp(parameters[..., :own]) @ share.T
        x = (logs - np.log(step_time(law, compute, nodes, gpus, fullest))) / error
        robust = np.sign(x) * np.sqrt((TAILS + 1) * np.log1p(x**2 / TAILS))
        expected = np.broadcast_to(mean, law.shape).copy()
        expected[..., GROWTH] /= 1.0 + np.exp(law[..., ACROSS]) / LONG
        return np.concatenate([robust, (law - expected) / spread], axis=-1)

    error = ERROR
    for _ in range(ROUNDS):
        found = least_squares(residuals, start, args=(error,))
        start, data = found.x, found.jac[:n]
        squares = TAILS * np.expm1(found.fun[:n] ** 2 / (TAILS + 1)) * error**2
        weight = (TAILS + 1) / (TAILS + squares / error**2)
        identified = np.trace(np.linalg.solve(found.jac.T @ found.jac, data.T @ data))  # parameters, by the data
        freedom = ASSUMED + n - identified
        error = float(np.sqrt((ASSUMED * ERROR**2 + weight @ squares) / freedom))
    # Proposed: errors by their chi-square law, the law's parameters wider than normal, the others normal given both.
    rng = np.random.default_rng(0)
    errors = error * np.sqrt(freedom / rng.chisquare(freedom, (PROPOSED, 1)))
    normal = rng.standard_normal((PROPOSED, len(start)))
    scale = np.where(np.arange(len(start)) < own, errors / error, WIDER)
    proposed = start + (scale * normal) @ np.linalg.inv(np.linalg.cholesky(found.jac.T @ found.jac))
    log_weight = 0.5 * ((normal**2).sum(axis=1) - (residuals(proposed, errors) ** 2).sum(axis=1))
    squares = (freedom * error**2 - ASSUMED * ERROR**2) / errors**2
    log_weight += ((own - identified) * np.log(errors) + 0.5 * squares)[:, 0]
    chance = np.exp(log_weight - log_weight.max())
    drawn = rng.choice(PROPOSED, DRAWS, p=chance / chance.sum())
    return start, proposed[drawn], errors[drawn, 0]
