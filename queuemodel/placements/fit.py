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
from .alone import Alone, steps_alone
from .law import PARAMETERS, step_time
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
ERROR, ASSUMED = 0.05, 5


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
    alone = steps_alone(points)
    many = [point for point in points if point.gpus > 1]
    for point in many:
        if not alone.covers(point.batch_size):
            raise FitError(
                f"fit_placements: {point.gpus} GPUs were measured with a batch of {point.batch_size}, one GPU with "
                f"{alone.span}; measure one GPU with that batch too"
            )
    mean, spread = np.array([PRIOR[name] for name in PARAMETERS]).T  # the growth is that of a short all-reduce
    mean = mean + np.log(alone.step_time.min()) * np.isin(PARAMETERS, ("across", "inside"))
    mode, draws, error = _posterior(many, alone, mean, spread)
    return PlacementModel(points, alone, mode, draws, spread, error)


def _posterior(
    many: Sequence[PlacedStep], alone: Alone, mean: np.ndarray, spread: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """The posterior's mode, draws from it, shape (DRAWS, 6), and the relative error of a measurement."""
    from scipy.optimize import least_squares

    nodes, gpus, fullest, batch = np.array(
        [(p.nodes, p.gpus, p.gpus_per_node, p.batch_size) for p in many], dtype=int
    ).reshape(-1, 4).T  # fmt: skip
    compute = alone.at(batch)
    logs = np.log([p.step_time for p in many])

    def off(parameters: np.ndarray) -> np.ndarray:
        return logs - np.log(step_time(parameters, compute, nodes, gpus, fullest))

    def residuals(parameters: np.ndarray, error: float) -> np.ndarray:
        x = off(parameters) / error
        robust = np.sign(x) * np.sqrt(2.0 * (np.sqrt(1.0 + x**2) - 1.0))
        expected = np.broadcast_to(mean, parameters.shape).copy()
        expected[..., GROWTH] /= 1.0 + np.exp(parameters[..., ACROSS]) / LONG
        return np.concatenate([robust, (parameters - expected) / spread], axis=-1)

    start, error = mean, ERROR
    for _ in range(2):
        found = least_squares(residuals, start, args=(error,))
        start = found.x
        x2 = off(start) ** 2
        weight = 1.0 / np.sqrt(1.0 + x2 / error**2)
        error = float(np.sqrt((ASSUMED * ERROR**2 + weight @ x2) / (ASSUMED + len(x2))))
    rng = np.random.default_rng(0)
    root = WIDER * np.linalg.inv(np.linalg.cholesky(found.jac.T @ found.jac)).T
    normal = rng.standard_normal((PROPOSED, len(mean)))
    proposed = found.x + normal @ root.T
    log_weight = 0.5 * ((normal**2).sum(axis=1) - (residuals(proposed, error) ** 2).sum(axis=1))
    chance = np.exp(log_weight - log_weight.max())
    return found.x, proposed[rng.choice(PROPOSED, DRAWS, p=chance / chance.sum())], error
