"""The fitted law of a data-parallel job's step on nodes of several GPUs, and its fit.

A fit has all batch sizes of a job share the law's parameters. That is what makes few placements enough: where the
batch is large the all-reduce hides and stragglers show, where it is small the all-reduce shows. Least squares of
logarithms, robust (pseudo-Huber), with a prior for what the measurements do not tell: its mode, and draws from it,
which the normal approximation there proposes and the posterior chooses among (sampling importance resampling, D. B.
Rubin 1988). That matters where an all-reduce hides wholly: it may then be anything up to a limit, which no normal law
is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..checks import MOST_EXAMPLES, require_count, require_seed, require_share
from ..errors import FitError, ModelError
from ..results import Result
from ..training import Parameter, ThroughputCurve
from ..training.curve import require_workers
from ..training.parameters import standard_errors
from .law import MOST_GPUS, TAILS, PlacedStep, shapes, span, step_time

#: A measurement that is off by so many times the error of one is doubted.
DOUBT = 5.0

#: A parameter of which the measurements leave less than this share of the prior's spread open is told by them.
TOLD = 0.7


@dataclass(frozen=True, eq=False, repr=False)
class PlacementModel(Result):
    """How long a synchronous data-parallel step takes, by nodes, GPUs and batch size.

    Made by `fit_placements`; a worker of its curves is a GPU.

    Attributes
    ----------
    measured : tuple of PlacedStep
    sizes : ndarray of int, shape (n,)
        Batch sizes of steps measured on one GPU, increasing.
    mode, draws : ndarray, shapes (n + 6,), (B, n + 6)
        Logarithms of the seconds of these, and the parameters of `queuemodel.placements.law`: the likeliest, and draws
        from the posterior.
    prior_spread : ndarray, shape (6,)
        Standard deviations before anything was measured.
    error : ndarray, shape (B,)
        Relative error of a measurement in each draw, what the law misses included: the scale of Student's law.
    """

    measured: tuple[PlacedStep, ...]
    sizes: np.ndarray
    mode: np.ndarray
    draws: np.ndarray
    prior_spread: np.ndarray
    error: np.ndarray

    @property
    def profiled_nodes(self) -> int:
        """The most nodes that were measured."""
        return max(point.nodes for point in self.measured)

    @cached_property
    def note(self) -> str:
        """What this fit cannot know, and which measurement does not fit the others."""
        unknown = [one.unsure for one, told in zip(LAW, self._told(), strict=True) if one.unsure and not told]
        notes = [f"assumed rather than measured: {', '.join(unknown)}"] if unknown else []
        off = np.abs(np.log([p.step_time for p in self.measured] / self.seconds(self.measured)))
        if off.max() > DOUBT * np.median(self.error):
            p = self.measured[int(off.argmax())]
            what = f"{p.step_time:.4g} s with {p.gpus} GPU(s) on {p.nodes} node(s), batch {p.batch_size}"
            notes.insert(0, f"{what}: does not fit the other measurements and counts little; measure it again")
        return "; ".join(notes)

    def seconds(self, points: Sequence[PlacedStep]) -> np.ndarray:
        """Of steps that are placed like these, shape (n,)."""
        return step_time(self.mode, shapes(self.sizes, *_columns(points)))

    def step_time(self, *, nodes: int, gpus: int, batch_size: int, gpus_per_node: int | None = None) -> float:
        """Seconds of a step with so many examples per GPU; on nodes as even as can be, unless the fullest one is told.

        Raises
        ------
        ModelError
            For a placement that cannot be, a batch size outside those of one GPU, or several nodes of which none was
            measured.
        """
        placed = PlacedStep(
            nodes=nodes, gpus=gpus, batch_size=batch_size, step_time=1.0, gpus_per_node=gpus_per_node or 0
        )
        self._require_known(batch_size, placed.nodes)
        return float(self.seconds([placed])[0])

    def throughput(
        self,
        gpus: int | Iterable[int] = range(1, 33),
        *,
        gpus_per_node: int | None = None,
        batch_size: int | None = None,
        confidence: float = 0.9,
        seed: int = 0,
    ) -> ThroughputCurve:
        """Predict throughput against the number of GPUs, on as few nodes as they fit.

        Nodes have as many GPUs as the fullest measured one, unless told; the batch size, examples per GPU and step, may
        be left out where only one was measured. Intervals cover the fit's uncertainty and that of a measurement. Raises
        as `step_time`.
        """
        N = require_workers(gpus)
        require_share(confidence, "confidence", open_ended=True)
        g = require_count(
            max(point.gpus_per_node for point in self.measured) if gpus_per_node is None else gpus_per_node,
            "throughput: gpus_per_node", most=MOST_GPUS,
        )  # fmt: skip
        sizes = {point.batch_size for point in self.measured}
        if batch_size is None and len(sizes) > 1:
            raise ModelError(
                f"throughput: batch_size must be given, since {len(sizes)} were measured ({span(self.sizes)})"
            )
        size = min(sizes) if batch_size is None else batch_size
        self._require_known(size, -(-int(N.max()) // g))
        n = np.append(1, N)
        placed = shapes(self.sizes, -(-n // g), n, np.minimum(n, g), np.full_like(n, size))
        rng = np.random.default_rng(require_seed(seed, "throughput: seed"))
        noise = np.exp(self.error * rng.standard_t(TAILS, len(self.draws)))[:, None]
        single, X = np.split(n / step_time(self.mode, placed), [1])
        tail = (1.0 - confidence) / 2
        drawn = (n / (noise * step_time(self.draws, placed)))[:, 1:]
        lower, upper = np.quantile(drawn, [tail, 1.0 - tail], axis=0)
        return ThroughputCurve(
            workers=N,
            steps_per_second=X,
            lower=np.minimum(lower, X),
            upper=np.maximum(upper, X),
            single=float(single[0]),
            batch_size=size,
            parameter_servers=0,
            workers_per_node=g,
            confidence=confidence,
            profiled_workers=max(point.gpus for point in self.measured),
            measured=tuple(
                (p.gpus, p.gpus / p.step_time)
                for p in sorted(self.measured, key=lambda p: p.gpus)
                if (p.batch_size, p.nodes, p.gpus_per_node) == (size, -(-p.gpus // g), min(p.gpus, g))
            ),
            method=f"all-reduce on nodes of {g} GPU(s) (fitted placements)",
            note=self.note,
            model=self,
            synchronous=True,
        )

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What was fitted, and how far to trust it."""
        value = self.mode[-len(LAW) :].copy()
        value[:4] = np.exp(value[:4])
        value[0] /= 1.0 + value[0]
        error = standard_errors(self.draws)[-len(LAW) :]
        error[:4] *= value[:4] * np.array([1 - value[0], 1, 1, 1])
        return tuple(
            Parameter(
                one.name, found, one.unit, standard_error=off, origin="measured" if told else "assumed",
                identified=told, note=one.note,
            )
            for one, found, off, told in zip(LAW, value.tolist(), error.tolist(), self._told(), strict=True)
        )  # fmt: skip

    def obstacle(self) -> str:
        """Why a page cannot recompute the model's curve."""
        return "step times by placement do not tell what other machines would change"

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per parameter."""
        return [parameter.to_row() for parameter in self.parameters]

    def caption(self) -> str:
        """What was measured, and what the fit cannot know."""
        return f"{len(self.measured)} placements on at most {self.profiled_nodes} nodes; {self.note}".rstrip("; ")

    def _told(self) -> list[bool]:
        """Of each parameter of the law, whether the measurements tell it."""
        narrowed: list[bool] = (standard_errors(self.draws)[-len(LAW) :] < TOLD * self.prior_spread).tolist()
        return narrowed

    def _require_known(self, batch_size: int, nodes: int) -> None:
        require_count(batch_size, "batch_size", most=MOST_EXAMPLES)
        if not self.sizes[0] <= batch_size <= self.sizes[-1]:
            raise ModelError(f"batch_size: one GPU was measured with {span(self.sizes)} examples, got {batch_size}")
        if nodes > 1 and self.profiled_nodes == 1:
            raise ModelError(
                f"nodes: {nodes} were asked for, but only one was measured; measure a step on two nodes too"
            )


def _columns(points: Sequence[PlacedStep]) -> np.ndarray:
    """Nodes, GPUs, GPUs on the fullest node and batch sizes, shape (4, n)."""
    return np.array([(p.nodes, p.gpus, p.gpus_per_node, p.batch_size) for p in points]).T


class Assumed(NamedTuple):
    """A parameter of the law, in the order of `step_time`, and what is assumed of it before anything is measured.

    Means and standard deviations were chosen after seeing the jobs of docs/explanation/placements. The first four are
    logarithms, the share's of its odds; all-reduce times are relative to the fastest step on one GPU.
    """

    name: str
    mean: float
    spread: float
    note: str
    unit: str = ""
    unsure: str = ""  # what is not known where it is not told


LAW = (
    Assumed("forward share", math.log(0.5), 1.0, "of a step's computation, before gradients"),  # backward takes twice
    Assumed("straggling", math.log(0.03), 0.7, "spread of a GPU's step, relative to its mean"),
    Assumed("all-reduce, two nodes", 0.0, 3.0, "one GPU each, hidden or not", "s"),
    Assumed("all-reduce, one node", math.log(0.1), 1.5, "two GPUs", "s", "the all-reduce inside a node"),
    Assumed("sharing of a link", 0.1, 0.15, "exponent of the GPUs on a node",  # 0.06 to 0.2 in those jobs
            unsure="how the GPUs of a node share its link"),
    Assumed("growth with nodes", 0.34, 0.15, "exponent of the nodes",  # as wide as jobs differ
            unsure="how the all-reduce grows beyond two nodes"),
)  # fmt: skip

#: An all-reduce between two nodes of so many seconds grows half as fast with the nodes (assumed, likewise).
LONG = 0.7

#: Where, from the end, the parameters have the all-reduce between two nodes and the growth.
ACROSS, GROWTH = -4, -1

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
    mean, spread = np.array([(one.mean, one.spread) for one in LAW]).T  # the growth is that of a short all-reduce
    mean[2:4] += min(first)
    mode, draws, error = _posterior(points, sizes, np.append(first, mean), mean, spread)
    return PlacementModel(points, sizes, mode, draws, spread, error)


def _posterior(
    points: Sequence[PlacedStep], sizes: np.ndarray, start: np.ndarray, mean: np.ndarray, spread: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The posterior's mode, shape (sizes + 6,), draws from it, and the error of a measurement in each, shape (DRAWS,).

    Parameters are the logarithms of steps on one GPU with these batch sizes, which the measurements alone tell, and
    those of the law.
    """
    from scipy.optimize import least_squares

    placed, logs = shapes(sizes, *_columns(points)), np.log([p.step_time for p in points])
    own, n = len(sizes), len(points)

    def residuals(parameters: np.ndarray, error: np.ndarray | float) -> np.ndarray:
        law = parameters[..., own:]
        x = (logs - np.log(step_time(parameters, placed))) / error
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
