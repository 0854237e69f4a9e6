"""What a strategy is: where gradients are taken, how they are applied, what is sent; those that send all parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import get_blas_funcs

from ..base.checks import require_choice, require_count, require_number, require_share
from ..base.errors import ModelError
from .problems import Problem, regular_solve

WORD = 32  # bits of an uncompressed number
EVERYONE = np.ones((1, 1), bool)  # waits for all

#: What a strategy keeps between steps: arrays by name; ``x`` has shape (S, n, d) or (S, 1, d).
State = dict[str, np.ndarray]

#: Checks of the numbers of strategies and compressors, by their names.
UPDATE_RULES: dict[str, Callable[[Any, str], object]] = {
    **dict.fromkeys(("local_steps", "initial_steps", "initial_levels", "k", "levels", "blocks"), require_count),
    **dict.fromkeys(("trigger", "threshold", "relative"), require_number),
    **dict.fromkeys(("momentum", "pull"), require_share),
    **dict.fromkeys(("share", "mixing"), partial(require_number, positive=True, largest=1.0)),
    "interval": partial(require_number, unit="seconds", positive=True),
    "staleness_bound": partial(require_count, least=0),
}


def require_fields(value: Any) -> None:
    """Refuse a dataclass with a number that breaks its rule."""
    for one in fields(value):
        if one.name in UPDATE_RULES:
            UPDATE_RULES[one.name](getattr(value, one.name), f"{type(value).__name__}: {one.name}")


class Sent(NamedTuple):
    """A step's communication, for each of S runs (arrays of shape (S,)) or for all alike; by default none."""

    up: float | np.ndarray = 0.0  # bits that a worker sent and received, mean over the workers
    down: float | np.ndarray = 0.0
    synchronized: bool | np.ndarray = False  # the workers waited for each other, and for the transfer
    pieces: bool = False  # gradients, each of which is sent as soon as it is ready; else all that is sent follows them
    ahead: bool = False  # the transfer goes on beside the next steps; at the next one all wait for it only
    partners: np.ndarray = EVERYONE  # for whom each worker waits, itself included, shape (n, n)
    begin: np.ndarray = EVERYONE  # who begins a gradient, shape (S, n), where they complete one by one


class Moment(NamedTuple):
    """When a step begins: its number, learning rate, the runs' generators and clocks (s), and the problem."""

    number: int
    rate: float
    rngs: list[np.random.Generator]
    time: np.ndarray
    problem: Problem
    workers: np.ndarray = np.empty(0, int)  # whose gradients these are, shape (S,), where they complete one by one


class Strategy(ABC):
    """A way of training. Values are frozen; the `State` changes."""

    #: Gradients are those of all examples of a worker's share, not of a mini-batch.
    exact = False
    #: A step is one gradient of one worker, at the parameters in ``copies`` that it began with.
    one_by_one = False
    #: Each worker has parameters of its own.
    replicas = False
    #: What else is kept, 0 at the start: by each worker, shape (S, n, d), and in common, shape (S, 1, d).
    by_worker: ClassVar[tuple[str, ...]] = ()
    in_common: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require_fields(self)

    def begin(self, start: np.ndarray, workers: int) -> State:
        """The state before the first step; ``start`` has shape (S, d)."""
        common, each = start[:, None].copy(), np.repeat(start[:, None], workers, axis=1)
        kept = {name: np.zeros_like(each) for name in self.by_worker}
        kept |= {name: np.zeros_like(common) for name in self.in_common}
        return kept | {"x": each if self.replicas else common}

    @abstractmethod
    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        """One step of every worker: change the state by gradients of shape (S, n, d), which may be overwritten."""

    def model(self, state: State) -> np.ndarray:
        """The parameters that training has reached, shape (S, d)."""
        return state["x"].mean(axis=1)


class LocalSteps(Strategy):
    """x_i <- x_i - eta g_i on each worker, which synchronizes with others every ``local_steps`` steps."""

    replicas = True
    local_steps: int

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        self.step(state, gradients, moment.rate)
        return Sent() if (moment.number + 1) % self.local_steps else self.synchronize(state, moment)

    def step(self, state: State, gradients: np.ndarray, rate: float) -> None:
        """Each worker's own step."""
        move(state["x"], gradients, rate)

    @abstractmethod
    def synchronize(self, state: State, moment: Moment) -> Sent:
        """Change the state by the workers' messages."""


def nesterov(momentum: float, state: State, gradients: np.ndarray) -> np.ndarray:
    """The gradients after v <- momentum v + g: momentum v + g (Nesterov 1983)."""
    if not momentum:
        return gradients
    state["v"] = momentum * state["v"] + gradients
    return momentum * state["v"] + gradients


def move(x: np.ndarray, gradients: np.ndarray, rate: float) -> None:
    """``x -= rate * gradients`` of contiguous arrays of one shape, in one pass over memory."""
    axpy = get_blas_funcs("axpy", (x,))
    axpy(gradients.reshape(-1), x.reshape(-1), a=-rate)


def over_workers(values: np.ndarray) -> np.ndarray:
    """The mean over the workers, shape (S, n, d) to (S, 1, d); as ``mean`` to the bit, and faster."""
    total = np.add.reduce(values, axis=1, keepdims=True)
    total /= values.shape[1]
    return np.asarray(total)


def whole(gradients: np.ndarray, *, pieces: bool = False, ahead: bool = False) -> Sent:
    """All gradients or parameters both ways, uncompressed."""
    bits = WORD * gradients.shape[-1]
    return Sent(bits, bits, synchronized=True, pieces=pieces, ahead=ahead)


@dataclass(frozen=True)
class SynchronousSGD(Strategy):
    """x <- x - eta v, where v <- momentum v + mean of the gradients (Polyak 1964)."""

    momentum: float = 0.0
    in_common = ("v",)

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        if self.momentum:
            state["v"] = gradients = self.momentum * state["v"] + over_workers(gradients)
        state["x"] -= over_workers(moment.rate * gradients)
        return whole(gradients, pieces=True)


@dataclass(frozen=True)
class LocalSGD(LocalSteps):
    """Averages every ``local_steps`` steps (Stich, ICLR 2019; McDonald et al. 2010); 1 is synchronous SGD."""

    local_steps: int = 8

    def synchronize(self, state: State, moment: Moment) -> Sent:
        state["x"][:] = over_workers(state["x"])
        return whole(state["x"], pieces=self.local_steps == 1)


@dataclass(frozen=True)
class AdaComm(Strategy):
    """Local SGD whose number of local steps follows the loss (Wang and Joshi, MLSys 2019).

    At the first averaging ``interval`` seconds of the clock or more after the last choice: the root of (loss over the
    first loss, times the first learning rate over the current one) times ``initial_steps``; half as many as before
    where that is not less (as we recall the paper's rule).
    """

    initial_steps: int = 16
    interval: float = 60.0
    replicas = True

    def begin(self, start: np.ndarray, workers: int) -> State:
        runs = len(start)
        return super().begin(start, workers) | {
            "local_steps": np.full(runs, self.initial_steps),
            "since": np.zeros(runs, int), "decided": np.zeros(runs),  # steps since averaging; seconds
            "first_loss": np.full(runs, np.nan), "first_rate": np.zeros(1),
        }  # fmt: skip

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        x, before = state["x"], state["local_steps"]
        if moment.number == 0:
            state["first_loss"], state["first_rate"][0] = moment.problem.loss(x[:, 0]), moment.rate
        decides = (state["since"] == 0) & (moment.time - state["decided"] >= self.interval)  # all have just averaged
        if decides.any():
            share = moment.problem.loss(x[:, 0]) * state["first_rate"][0] / (state["first_loss"] * moment.rate)
            wanted = np.ceil(np.sqrt(np.maximum(share, 0.0)) * self.initial_steps)
            chosen = np.where(wanted < before, wanted, np.ceil(before / 2))
            state["local_steps"] = np.where(decides, np.maximum(chosen, 1), before).astype(int)
            state["decided"] = np.where(decides, moment.time, state["decided"])
        move(x, gradients, moment.rate)
        state["since"] += 1
        due = state["since"] >= state["local_steps"]
        x[due] = over_workers(x[due])
        state["since"][due] = 0
        return whole(x)._replace(up=(bits := WORD * x.shape[-1] * due), down=bits, synchronized=due)


@dataclass(frozen=True)
class OverlapLocalSGD(LocalSteps):
    """Workers are pulled towards an anchor that was averaged one round earlier (Wang, Liang and Joshi, ICASSP 2020).

    At multiples of ``local_steps``: x_i <- (1 - pull) x_i + pull z; v <- momentum v + (z - mean x_i) / eta;
    z <- z - eta v; and z's all-reduce goes on beside the next steps. Pull and momentum are the paper's.
    """

    local_steps: int = 2
    pull: float = 0.6
    momentum: float = 0.7
    in_common = ("v",)

    def begin(self, start: np.ndarray, workers: int) -> State:
        return super().begin(start, workers) | {"z": start[:, None].copy()}

    def synchronize(self, state: State, moment: Moment) -> Sent:
        x, z = state["x"], state["z"]
        x += self.pull * (z - x)
        state["v"] = self.momentum * state["v"] + (z - over_workers(x)) / moment.rate
        state["z"] = z - moment.rate * state["v"]
        return whole(x, ahead=True)


@dataclass(frozen=True)
class Reparameterized(Strategy):
    """Gradient descent on the response A = (G^-1 - W)^-1 of a `FixedPoint` problem (Zhu and Rosenbaum 2024).

    With M = A^-1 and S = M^T g M^T, for one input dL/dr times M r: A <- A - eta S, W = G^-1 - A^-1. ``first_order``: W
    <- W - eta M S M is its first order, needs no inverse, is steepest descent under a metric of W, and diverges where A
    becomes singular on its way. Exact for one input, or where f is the identity; else G^-1 is its mean over the inputs
    (ours).
    """

    first_order: bool = False

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        x, M = state["x"], moment.problem.inverse_response(state["x"])
        Mt = np.swapaxes(M, -1, -2)
        step = moment.rate * (M @ Mt @ over_workers(gradients).reshape(M.shape) @ Mt)  # eta M S
        # (A - eta S)^-1 = (I - eta M S)^-1 M, of first order (I + eta M S) M
        change = step @ M if self.first_order else regular_solve(np.eye(M.shape[-1]) - step, step @ M)
        state["x"] = x - change.reshape(x.shape)
        return whole(gradients, pieces=True)


@dataclass(frozen=True)
class ServerSGD(Strategy):
    """SGD on a server that applies the mean of every k gradients as they complete, each taken where its worker began.

    Names, and who then gets new parameters, as in Dutta et al. (AISTATS 2018): "async" (k = 1) and "k-batch-async":
    the one that completes; "bounded-staleness" (Ho et al., NeurIPS 2013): the same, once at most ``staleness_bound``
    completed steps ahead of the slowest; "k-async": the k that completed; "k-sync", "k-batch-sync": all, others' work
    being discarded, and until then a worker that completes waits, or takes another batch at the same parameters. K-sync
    with k = n is synchronous SGD, with less that with n - k backup workers (Chen et al. 2016).
    """

    name: str = "async"
    k: int = 1
    staleness_bound: int = 0
    one_by_one = True

    def __post_init__(self) -> None:
        super().__post_init__()
        names = ("async", "k-async", "k-batch-async", "k-sync", "k-batch-sync", "bounded-staleness")
        require_choice(self.name, "ServerSGD: name", names)
        if self.k > 1 and self.name in ("async", "bounded-staleness"):
            raise ModelError(f"ServerSGD: {self.name!r} applies every gradient by itself, so k must be 1, got {self.k}")

    def begin(self, start: np.ndarray, workers: int) -> State:
        if self.k > workers and self.name in ("k-sync", "k-async"):
            raise ModelError(f"ServerSGD: {self.name!r} needs at least k = {self.k} workers, got {workers}")
        x, shape = start[:, None].copy(), (len(start), workers)
        return {
            "x": x, "copies": x.repeat(workers, axis=1), "sum": np.zeros_like(x), "waits": np.zeros(shape, bool),
            "version": np.zeros(shape, int), "done": np.zeros(shape, int), "staleness": np.zeros(len(start)),
        }  # fmt: skip

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        runs, workers = np.arange(len(gradients)), moment.workers
        updates, rest = divmod(moment.number, self.k)
        due = rest + 1 == self.k
        state["staleness"] += updates - state["version"][runs, workers]
        state["sum"] += gradients
        state["waits"][runs, workers] = True
        state["done"][runs, workers] += 1
        if due:
            state["x"] -= moment.rate / self.k * state["sum"]
            state["sum"][:] = 0.0
        if self.name in ("k-sync", "k-batch-sync"):
            renewed = np.full_like(state["waits"], due)
        elif self.name == "k-async":
            renewed = state["waits"] & due
        elif self.name == "bounded-staleness":
            ahead = state["done"] - state["done"].min(axis=1, keepdims=True)
            renewed = state["waits"] & (ahead <= self.staleness_bound)
        else:
            renewed = state["waits"].copy()
        run, worker = np.nonzero(renewed)
        state["copies"][run, worker] = state["x"][run, 0]
        state["version"][renewed] = updates + due
        begin = state["waits"] if self.name == "k-batch-sync" and not due else renewed
        state["waits"] = state["waits"] & ~begin
        bits = WORD * gradients.shape[-1]
        return Sent(bits, bits, begin=begin)
