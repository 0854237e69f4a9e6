"""How long a synchronous data-parallel step takes on N GPUs that stand on k nodes, g of them on the fullest.

    T = f c + ((1 - f) c ⊕ m),    c = C (1 + s E_N),    x ⊕ y = (x^γ + y^γ)^(1/γ), γ = 4

C is the step on one GPU with the same batch, E_N the mean of the largest of N standard normal numbers: the group waits
for its slowest GPU, s being the spread of a step relative to its mean. The forward pass, a share f, comes first;
behind the backward pass the all-reduce hides, for as long as that lasts (a smooth maximum, as in A. Qiao et al.,
"Pollux", OSDI 2021, who take f = 0 and fit γ). One ring through all GPUs carries 2 (N - 1)/N of the gradients across
every link (Patarasuk and Yuan, 2009), so that with r(N) = 2 (N - 1)/N

    m = L r(N)                      on one node,
    m = W r(N) g^a                  on two,
    m = W r(N) g^a h (k/3)^p        on more:

W is the all-reduce between two nodes of one GPU each, and a is how far the GPUs of a node are in each other's way at
its link. Two nodes do not identify h, by how much the third is off a ring, nor p, how latencies and stragglers on the
network grow: both are learnt from other clusters (placements.toml), and their spread is in the interval.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import msgspec
import numpy as np

from ..base.checks import MOST_EXAMPLES, require_count, require_number
from ..base.errors import DataError, FitError, ModelError
from ..base.estimates import Parameter, standard_errors
from ..base.files import Row, constants, read_bytes, read_rows
from ..base.results import counted
from ..curves.prediction import Prediction
from ..profile.job import Job
from .outcome import Model, Outcome
from .rules import order_statistic

#: GPUs of a job, and seconds of a step: none has more, or takes longer.
MOST_GPUS, LONGEST_STEP = 10_000, 1e6


class PlacedStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A measured mean step time of a synchronous data-parallel job.

    Attributes
    ----------
    nodes : int
    gpus : int
        On all nodes together.
    batch_size : int
        Examples per GPU and step.
    step_time : float
        Seconds.
    gpus_per_node : int
        On the node that has most of them; as even as can be, unless given.

    Raises
    ------
    DataError
        When the GPUs cannot stand on the nodes like that, or a number is none.
    """

    nodes: int
    gpus: int
    batch_size: int
    step_time: float
    gpus_per_node: int = 0

    def __post_init__(self) -> None:
        require_count(self.nodes, "nodes", most=MOST_GPUS, error=DataError)
        require_count(self.gpus, "gpus", least=self.nodes, most=MOST_GPUS, error=DataError)
        require_count(self.batch_size, "batch_size", most=MOST_EXAMPLES, error=DataError)
        require_number(
            self.step_time, "step_time", positive=True, largest=LONGEST_STEP, unit="seconds", error=DataError
        )
        even = -(-self.gpus // self.nodes)
        if self.gpus_per_node:
            most = self.gpus - self.nodes + 1  # every node has one at least
            require_count(self.gpus_per_node, "gpus_per_node", least=even, most=most, error=DataError)
        msgspec.structs.force_setattr(self, "gpus_per_node", self.gpus_per_node or even)


def read_placements(path: str | os.PathLike[str]) -> list[PlacedStep]:
    """Read measured step times from a CSV with the columns ``nodes,gpus,batch_size,step_time[,gpus_per_node]``.

    Returns
    -------
    list of PlacedStep
        In the order of the file.

    Raises
    ------
    DataError
        One line that names the file, the line, the column and the value.
    """
    columns = ("nodes", "gpus", "batch_size", "step_time")
    rows = read_rows(path, required=columns, optional=("gpus_per_node",), what="measurements")
    return [_placed(row) for row in rows]


def holds_placements(path: str | os.PathLike[str]) -> bool:
    """Whether a table's header names step times, and not of numbers of workers."""
    header, *_ = read_bytes(path).splitlines()
    return b"step_time" in header and b"workers" not in header


def _placed(row: Row) -> PlacedStep:
    values = {name: row.count(name) for name in ("nodes", "gpus", "batch_size")}
    share = row.count("gpus_per_node") if row.given("gpus_per_node") else 0
    try:
        return PlacedStep(**values, step_time=row.number("step_time"), gpus_per_node=share)
    except DataError as error:
        raise DataError(f"{row.where}: {error}") from None


def span(batch_size: np.ndarray) -> str:
    """The smallest and the largest, for messages."""
    first, last = batch_size[[0, -1]]
    return f"{first}" if first == last else f"{first} to {last}"


#: Measured and assumed numbers, with their sources; means and spreads over clusters (`validation.placements`).
_NUMBERS = constants(__package__)["placements"]
_LEARNT: dict[str, tuple[float, float]] = constants(__package__, "placements.toml")
SHARPNESS = _NUMBERS["sharpness"]
TAILS = _NUMBERS["tails"]

#: Of n placements: weights of the steps on one GPU with the measured batch sizes, shape (n, sizes); nodes, GPUs, and
#: GPUs on the fullest node, shape (n,).
Shapes = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def shapes(
    sizes: np.ndarray, nodes: np.ndarray, gpus: np.ndarray, gpus_per_node: np.ndarray, batch_size: np.ndarray
) -> Shapes:
    """What a step's time depends on, where one GPU was measured with batches of these sizes; linear between them."""
    weights = np.column_stack([np.interp(batch_size, sizes, unit) for unit in np.eye(len(sizes))])
    return weights, nodes, gpus, gpus_per_node


def step_time(parameters: np.ndarray, placed: Shapes) -> np.ndarray:
    """Seconds of a step, shape (..., n).

    Parameters, shape (..., sizes + 7): logarithms of the steps on one GPU, the forward share (logit), straggling,
    all-reduce on two nodes and in one, and what a third node makes of it (logarithms), sharing of a link, growth.
    """
    weights, nodes, gpus, gpus_per_node = placed
    alone, law = np.split(parameters, [weights.shape[1]], axis=-1)
    forward, straggling, across, inside, third, sharing, growth = np.moveaxis(law, -1, 0)[..., None]
    compute = np.exp(alone) @ weights.T
    share = 1.0 / (1.0 + np.exp(-forward))
    computed = compute * (1.0 + np.exp(straggling) * _largest(gpus))
    further = np.where(nodes > 2, np.exp(third) * (np.maximum(nodes, 3) / 3) ** growth, 1.0)
    between = np.exp(across) * further * gpus_per_node**sharing
    reduced = np.where(nodes > 1, between, np.exp(inside)) * _ring(gpus)
    hidden = (1.0 - share) * computed
    return share * computed + (hidden**SHARPNESS + reduced**SHARPNESS) ** (1 / SHARPNESS)


def _ring(n: np.ndarray) -> np.ndarray:
    return 2.0 * (n - 1) / n


def _largest(n: np.ndarray) -> np.ndarray:
    sizes, at = np.unique(n, return_inverse=True)
    return np.array([_largest_of(int(size)) for size in sizes])[at]


@cache
def _largest_of(n: int) -> float:
    from scipy.special import ndtri

    return order_statistic(lambda p: -ndtri(p), n, n)


DOUBT = _NUMBERS["doubt"]
JITTER = _NUMBERS["jitter"]
TOLD = _NUMBERS["told"]


@dataclass(frozen=True, eq=False, repr=False)
class PlacementModel(Model):
    """How long a synchronous data-parallel step takes, by nodes, GPUs and batch size.

    Made by `fit_placements`; a worker of its curves is a GPU.

    Attributes
    ----------
    measured : tuple of PlacedStep
    sizes : ndarray of int, shape (n,)
        Batch sizes of steps measured on one GPU, increasing.
    mode, draws : ndarray, shapes (n + 7,), (B, n + 7)
        Logarithms of the seconds of these, and the parameters of `step_time`: the likeliest, and draws from the
        posterior.
    prior_spread : ndarray, shape (7,)
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
    changes = ("batch_size", "gpus_per_node")
    kind = "of placements"

    @property
    def profiled_nodes(self) -> int:
        """The most nodes that were measured."""
        return max(point.nodes for point in self.measured)

    @cached_property
    def note(self) -> str:
        """What this fit does not determine, and which measurement does not fit the others."""
        unknown = [one.unsure for one, known in zip(LAW, self._identified(), strict=True) if one.unsure and not known]
        notes = [f"assumed rather than measured: {', '.join(unknown)}"] if unknown else []
        error = np.median(self.error)
        if error * min(p.step_time for p in self.measured) < JITTER:
            notes.append(f"steps differ by {JITTER:g} s between runs, which widens intervals beyond what was measured")
        off = np.abs(np.log([p.step_time for p in self.measured] / self.seconds(self.measured)))
        if off.max() > DOUBT * error:
            p = self.measured[int(off.argmax())]
            what = (
                f"{p.step_time:.4g} s with {counted(p.gpus, 'GPU')} on {counted(p.nodes, 'node')}, batch {p.batch_size}"
            )
            notes.insert(0, f"{what}: does not fit the other measurements and has little weight; measure it again")
        return "; ".join(notes)

    def seconds(self, points: Sequence[PlacedStep]) -> np.ndarray:
        """Of steps that are placed like these, shape (n,)."""
        return step_time(self.mode, shapes(self.sizes, *_columns(points)))

    def step_time(self, *, nodes: int, gpus: int, batch_size: int, gpus_per_node: int | None = None) -> float:
        """Seconds of a step with so many examples per GPU; on nodes as even as can be, unless the fullest is specified.

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

    @property
    def job(self) -> Job:
        """Its batch size is the specified one; it may be left out where only one was measured."""
        sizes = {point.batch_size for point in self.measured}
        if self.scenario.batch_size is None and len(sizes) > 1:
            raise ModelError(
                f"throughput: batch_size must be given, since {len(sizes)} were measured ({span(self.sizes)})"
            )
        return Job(batch_size=self.scenario.batch_size or min(sizes), parameter_bytes=0, tensors=0)

    def outcome(self, workers: np.ndarray, *, seed: int = 0) -> Outcome:
        """On as few nodes as the GPUs fit; nodes have as many as the fullest measured one, unless specified."""
        g = self.scenario.gpus_per_node or max(point.gpus_per_node for point in self.measured)
        size, n = self.job.batch_size, workers
        self._require_known(size, -(-int(n.max()) // g))
        placed = shapes(self.sizes, -(-n // g), n, np.minimum(n, g), np.full_like(n, size))
        seconds = step_time(self.mode, placed)
        error = np.hypot(self.error[:, None], np.where(placed[1] > self.profiled_nodes, JITTER / seconds, 0.0))
        noise = error * np.random.default_rng(seed).standard_t(TAILS, (len(self.draws), 1))
        return Outcome(
            workers=n,
            throughput=n / seconds,
            prediction=Prediction.drawn(n, (np.log(n) - np.log(step_time(self.draws, placed)) - noise).T),
            method=f"all-reduce on nodes of {counted(g, 'GPU')} (fitted placements)",
            note=self.note,
            workers_per_node=g,
            profiled_workers=max(point.gpus for point in self.measured),
            measured=tuple(
                (p.gpus, p.gpus / p.step_time)
                for p in sorted(self.measured, key=lambda p: p.gpus)
                if (p.batch_size, p.nodes, p.gpus_per_node) == (size, -(-p.gpus // g), min(p.gpus, g))
            ),
            synchronous=True,
        )

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What was fitted, with its uncertainty."""
        value = self.mode[-len(LAW) :].copy()
        value[:5] = np.exp(value[:5])
        value[0] /= 1.0 + value[0]
        error = standard_errors(self.draws)[-len(LAW) :]
        error[:5] *= value[:5] * np.array([1 - value[0], 1, 1, 1, 1])
        return tuple(
            Parameter(
                one.name, found, one.unit, standard_error=off, origin="measured" if known else "assumed",
                identified=known, note=one.note,
            )
            for one, found, off, known in zip(LAW, value.tolist(), error.tolist(), self._identified(), strict=True)
        )  # fmt: skip

    def caption(self) -> str:
        """What was measured, and what the fit does not determine."""
        return f"{len(self.measured)} placements on at most {self.profiled_nodes} nodes; {self.note}".rstrip("; ")

    def _identified(self) -> list[bool]:
        """Of each parameter of the law, whether the measurements identify it."""
        narrowed: list[bool] = (standard_errors(self.draws)[-len(LAW) :] < TOLD * self.prior_spread).tolist()
        return narrowed

    def _require_known(self, batch_size: int, nodes: int) -> None:
        require_count(batch_size, "batch_size", most=MOST_EXAMPLES)
        if not self.sizes[0] <= batch_size <= self.sizes[-1]:
            raise ModelError(f"batch_size: one GPU was measured with {span(self.sizes)} examples, got {batch_size}")
        if nodes > 1 and self.profiled_nodes == 1:
            raise ModelError(
                f"nodes: {nodes} were requested, but only one was measured; measure a step on two nodes too"
            )


def _columns(points: Sequence[PlacedStep]) -> np.ndarray:
    """Nodes, GPUs, GPUs on the fullest node and batch sizes, shape (4, n)."""
    return np.array([(p.nodes, p.gpus, p.gpus_per_node, p.batch_size) for p in points]).T


class Assumed(NamedTuple):
    """A parameter of the law, in the order of `step_time`, and what is assumed of it before anything is measured.

    The third node and the growth are learnt (placements.toml), the others assumed. The first five are logarithms,
    the share's of its odds; all-reduce times are relative to the fastest step on one GPU.
    """

    name: str
    mean: float
    spread: float
    note: str
    unit: str = ""
    unsure: str = ""  # what is assumed where it is not identified


LAW = (
    Assumed("forward share", math.log(0.5), 1.0, "of a step's computation, before gradients"),  # backward takes twice
    Assumed("straggling", math.log(0.03), 0.7, "spread of a GPU's step, relative to its mean"),
    Assumed("all-reduce, two nodes", 0.0, 3.0, "one GPU each, hidden or not", "s"),
    Assumed("all-reduce, one node", math.log(0.1), 1.5, "two GPUs", "s", "the all-reduce inside a node"),
    Assumed("third node", *_LEARNT["third_node"], "all-reduce on three nodes, relative to a ring's",
            unsure="how the all-reduce grows beyond two nodes"),
    Assumed("sharing of a link", 0.1, 0.15, "exponent of the GPUs on a node",  # 0.06 to 0.2 in those jobs
            unsure="how the GPUs of a node share its link"),
    Assumed("growth with nodes", *_LEARNT["growth"], "exponent of the nodes, beyond a ring's",
            unsure="how fast it grows with further ones"),
)  # fmt: skip

#: Draws, out of how many proposed, and how much wider than the normal approximation these spread.
DRAWS, PROPOSED, WIDER = 400, 3000, 1.3

ERROR = _NUMBERS["error"]
ASSUMED = _NUMBERS["assumed"]

#: Fits of the parameters, each with the error that the one before left.
ROUNDS = 4


def fit_placements(measured: Iterable[PlacedStep], *, law: Sequence[Assumed] = LAW) -> PlacementModel:
    """Fit how a data-parallel step depends on nodes, GPUs and batch size (`queuemodel.models.placements`).

    Parameters
    ----------
    measured : iterable of PlacedStep
        Some on one GPU; batch sizes on more GPUs must lie among theirs.
    law : sequence of Assumed, optional
        What is assumed of the law's parameters before anything is measured.

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
    mean, spread = np.array([(one.mean, one.spread) for one in law]).T
    mean[2:4] += min(first)
    mode, draws, error = _posterior(points, sizes, np.append(first, mean), mean, spread)
    return PlacementModel(points, sizes, mode, draws, spread, error)


def _posterior(
    points: Sequence[PlacedStep], sizes: np.ndarray, start: np.ndarray, mean: np.ndarray, spread: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The posterior's mode, shape (sizes + 7,), draws from it, and the error of a measurement in each, shape (DRAWS,).

    Parameters are the logarithms of steps on one GPU with these batch sizes, which measurements alone determine, and
    those of the law.
    """
    from scipy.optimize import least_squares

    placed, logs = shapes(sizes, *_columns(points)), np.log([p.step_time for p in points])
    own, n = len(sizes), len(points)

    def residuals(parameters: np.ndarray, error: np.ndarray | float) -> np.ndarray:
        law = parameters[..., own:]
        x = (logs - np.log(step_time(parameters, placed))) / error
        robust = np.sign(x) * np.sqrt((TAILS + 1) * np.log1p(x**2 / TAILS))
        return np.concatenate([robust, (law - mean) / spread], axis=-1)

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
