"""Compressors, and strategies that send compressed or fewer messages."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..base.checks import require_choice, require_count
from ..base.errors import ModelError
from .strategy import WORD, LocalSteps, Moment, Sent, State, Strategy, nesterov, require_fields


class Compressor(ABC):
    """C(v) of vectors of shape (S, ..., d).

    ``unbiased``: its expectation is v; ``names``: a message names the few coordinates that it holds.
    """

    unbiased = False
    names = False

    def __post_init__(self) -> None:
        require_fields(self)

    @abstractmethod
    def compress(self, v: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        """The decoded vectors, shape (S, ..., d); each run S draws from its own generator."""

    @abstractmethod
    def bits(self, dimension: int) -> float:
        """Bits of one message."""

    @abstractmethod
    def variance(self, dimension: int) -> float:
        """A bound of the expectation of ``|C(v) - v|^2 / |v|^2``."""

    def contract(self, v: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        """C(v), an unbiased one divided by 1 + its variance: then less than ``|v|^2`` is lost, as feedback needs."""
        received = self.compress(v, rngs)
        return received / v.dtype.type(1 + self.variance(v.shape[-1])) if self.unbiased else received


@dataclass(frozen=True)
class Identity(Compressor):
    """Nothing is lost."""

    unbiased = True

    def compress(self, v: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        return v

    def bits(self, dimension: int) -> float:
        return WORD * dimension

    def variance(self, dimension: int) -> float:
        return 0.0


@dataclass(frozen=True)
class TopK(Compressor):
    """The share of coordinates that are largest in absolute value, with their indices (Stich et al., NeurIPS 2018).

    An index has by default as many bits as it needs; frameworks send ``index_bits`` of 32 or 64.
    """

    share: float = 0.01
    index_bits: int | None = None
    names = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.index_bits is not None:
            require_count(self.index_bits, "TopK: index_bits")

    def compress(self, v: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        k = kept(self.share, v.shape[-1])
        return only(v, np.argpartition(np.abs(v), -k, axis=-1)[..., -k:])

    def bits(self, dimension: int) -> float:
        return kept(self.share, dimension) * (WORD + (self.index_bits or math.ceil(math.log2(max(dimension, 2)))))

    def variance(self, dimension: int) -> float:
        return 1 - kept(self.share, dimension) / dimension


@dataclass(frozen=True)
class RandomK(Compressor):
    """A random share of the coordinates; their indices follow from a seed that is sent.

    ``unbiased``: scaled up by d/k, so that its expectation is right; else as they are, for error feedback.
    """

    share: float = 0.01
    unbiased: bool = False
    names = True

    def compress(self, v: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        d = v.shape[-1]
        k = kept(self.share, d)
        chosen = np.argpartition(np.stack([rng.random(v.shape[1:]) for rng in rngs]), k - 1, axis=-1)[..., :k]
        return only(v * v.dtype.type(d / k) if self.unbiased else v, chosen)

    def bits(self, dimension: int) -> float:
        return WORD * (kept(self.share, dimension) + 1)

    def variance(self, dimension: int) -> float:
        k = kept(self.share, dimension)
        return dimension / k - 1 if self.unbiased else 1 - k / dimension


@dataclass(frozen=True)
class QSGD(Compressor):
    """Random rounding of ``|v_i| / |v|`` to multiples of 1/levels, with signs (Alistarh et al., NeurIPS 2017)."""

    levels: int = 4
    unbiased = True

    def compress(self, v: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        return quantize(v, self.levels, rngs)

    def bits(self, dimension: int) -> float:
        return float(qsgd_bits(dimension, self.levels))

    def variance(self, dimension: int) -> float:
        return min(dimension / self.levels**2, math.sqrt(dimension) / self.levels)


@dataclass(frozen=True)
class BlockSign(Compressor):
    """Signs, times the mean absolute value of each block (Bernstein et al., ICML 2018; Zheng et al., NeurIPS 2019)."""

    blocks: int = 1

    def compress(self, v: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        blocks = np.array_split(v, min(self.blocks, v.shape[-1]), axis=-1)
        return np.concatenate([np.abs(b).mean(axis=-1, keepdims=True) * np.sign(b) for b in blocks], axis=-1)

    def bits(self, dimension: int) -> float:
        return dimension + WORD * min(self.blocks, dimension)

    def variance(self, dimension: int) -> float:
        return 1 - 1 / math.ceil(dimension / self.blocks)  # |v|_1^2 >= |v|^2 in each block


def only(v: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The chosen coordinates of v, and 0 elsewhere."""
    sent = np.zeros_like(v)
    np.put_along_axis(sent, chosen, np.take_along_axis(v, chosen, axis=-1), axis=-1)
    return sent


def quantize(v: np.ndarray, levels: int | np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
    """Random rounding of ``v`` to its norm over so many levels."""
    u = np.stack([rng.random(v.shape[1:]) for rng in rngs])
    norm = np.linalg.norm(v, axis=-1, keepdims=True)
    scaled = np.abs(v) * np.divide(levels, norm, out=np.zeros_like(norm), where=norm > 0)
    return (np.sign(v) * np.floor(scaled + u) * (norm / levels)).astype(v.dtype)


def qsgd_bits(dimension: int, levels: float | np.ndarray) -> np.ndarray:
    """Bits of one message of so many levels: a level and a sign for each coordinate, and the norm."""
    return dimension * np.ceil(np.log2(np.add(levels, 1))) + dimension + WORD


def kept(share: float, dimension: int) -> int:
    """How many coordinates are kept, at least one."""
    return max(1, round(share * dimension))


class Anchored(LocalSteps):
    """Workers take ``local_steps`` from a common anchor, and send how far they have moved."""

    by_worker: ClassVar[tuple[str, ...]] = ("moved",)

    def begin(self, start: np.ndarray, workers: int) -> State:
        return super().begin(start, workers) | {"anchor": start[:, None].copy()}

    def step(self, state: State, gradients: np.ndarray, rate: float) -> None:
        state["moved"] += rate * gradients
        np.subtract(state["anchor"], state["moved"], out=state["x"])

    def synchronize(self, state: State, moment: Moment) -> Sent:
        sent = self.send(state, moment)
        state["x"][:] = state["anchor"]
        state["moved"][:] = 0.0
        return sent

    @abstractmethod
    def send(self, state: State, moment: Moment) -> Sent:
        """Move the anchor by the workers' messages of their ``moved``, shape (S, n, d)."""

    def model(self, state: State) -> np.ndarray:
        return state["anchor"][:, 0]


@dataclass(frozen=True)
class DoubleCompression(Anchored):
    """Error feedback at the workers and at the server: compression errors are kept and sent later.

    DoubleSqueeze (Tang et al., ICML 2019) and dist-EF-SGDM (Zheng et al., NeurIPS 2019). Worker: m <- momentum m + g,
    p = eta (momentum m + g) + e, sends C(p), keeps e = p - C(p); server: the same with the mean of the messages. e is
    in units of a step, so a changing learning rate needs no scaling. C is `Compressor.contract`; `Identity` gives SGD
    with Nesterov's momentum.
    """

    compressor: Compressor = field(default_factory=TopK)
    momentum: float = 0.0
    local_steps: int = 1
    by_worker = ("moved", "v", "error")
    in_common = ("server_error",)

    def step(self, state: State, gradients: np.ndarray, rate: float) -> None:
        super().step(state, nesterov(self.momentum, state, gradients), rate)

    def send(self, state: State, moment: Moment) -> Sent:
        wanted = state["moved"] + state["error"]
        received = self.compressor.contract(wanted, moment.rngs)
        state["error"] = wanted - received
        total = received.mean(axis=1, keepdims=True) + state["server_error"]
        answer = self.compressor.contract(total, moment.rngs)
        state["server_error"] = total - answer
        state["anchor"] -= answer
        bits = self.compressor.bits(total.shape[-1])
        return Sent(bits, bits, synchronized=True)


@dataclass(frozen=True)
class AdaQuantFL(Anchored):
    """Local steps whose sum is sent in more and more levels (Jhunjhunwala, Gadhikar, Joshi and Eldar, ICASSP 2021).

    There are ceil(sqrt(f(w_0) / f(w_k)) initial_levels) of them, from the loss f. The way down is not compressed.
    """

    local_steps: int = 4
    initial_levels: int = 2

    def begin(self, start: np.ndarray, workers: int) -> State:
        levels = np.full(len(start), self.initial_levels)
        return super().begin(start, workers) | {"first_loss": np.full(len(start), np.nan), "levels": levels}

    def send(self, state: State, moment: Moment) -> Sent:
        anchor, levels, loss = state["anchor"], state["levels"], moment.problem.loss
        if moment.number + 1 == self.local_steps:  # the first time
            state["first_loss"] = loss(anchor[:, 0])
        anchor -= quantize(state["moved"], levels[:, None, None], moment.rngs).mean(axis=1, keepdims=True)
        share = state["first_loss"] / np.maximum(loss(anchor[:, 0]), np.finfo(float).tiny)
        wanted = np.ceil(np.sqrt(np.maximum(share, 0.0)) * self.initial_levels)
        state["levels"] = np.clip(wanted, 1, 2.0**31).astype(np.int64)
        return Sent(qsgd_bits(d := anchor.shape[-1], levels), WORD * d, synchronized=True)


def mixing_matrix(graph: str, workers: int) -> np.ndarray:
    """Weights with which workers on a "ring", "torus" or "complete" graph average their neighbours' values and theirs.

    Shape (n, n), symmetric, rows add up to 1; every neighbour, and the worker itself, counts 1 / (degree + 1), on a
    complete graph thus 1/n (Xiao and Boyd 2004, maximum-degree weights). A torus needs a square number of workers.
    """
    require_choice(graph, "graph", ("ring", "torus", "complete"))
    side = math.isqrt(workers)
    if graph == "torus" and side**2 != workers:
        raise ModelError(f"torus: workers must be a square number, got {workers}")
    n = side if graph == "torus" else workers
    near: np.ndarray = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    joined = np.isin(near, [1, n - 1]) if graph != "complete" else near > 0
    if graph == "torus":
        joined = np.kron(joined, np.eye(n)) + np.kron(np.eye(n), joined) > 0
    neighbours = joined & ~np.eye(workers, dtype=bool)
    weights = neighbours / (neighbours.sum(axis=1).max(initial=0) + 1)
    np.fill_diagonal(weights, 1 - weights.sum(axis=1))
    return weights


@dataclass(frozen=True)
class SquarmSGD(LocalSteps):
    """Nesterov momentum, local steps, event-triggered compressed gossip (Singh, Data, George and Diggavi 2020).

    v <- momentum v + g, x <- x - eta (momentum v + g); every ``local_steps`` steps a worker whose distance from its
    neighbours' copy of it exceeds eta sqrt(trigger) sends them the compressed difference (`Compressor.contract`), and
    moves by ``mixing`` times the weighted difference of the copies. Coarser compression needs a mixing below 1.
    """

    graph: str = "ring"
    compressor: Compressor = field(default_factory=Identity)
    local_steps: int = 1
    trigger: float = 0.0
    mixing: float = 1.0
    momentum: float = 0.0
    by_worker = ("v",)

    def __post_init__(self) -> None:
        super().__post_init__()
        mixing_matrix(self.graph, 1)

    def begin(self, start: np.ndarray, workers: int) -> State:
        state = super().begin(start, workers)
        return state | {"known": state["x"].copy(), "weights": mixing_matrix(self.graph, workers)}

    def step(self, state: State, gradients: np.ndarray, rate: float) -> None:
        super().step(state, nesterov(self.momentum, state, gradients), rate)

    def synchronize(self, state: State, moment: Moment) -> Sent:
        x, known, weights = state["x"], state["known"], state["weights"]
        change = x - known
        sends = np.square(change).sum(axis=-1) > self.trigger * moment.rate**2
        known += np.where(sends[..., None], self.compressor.contract(change, moment.rngs), 0)
        x += (self.mixing * (weights.astype(x.dtype) @ known - known)).astype(x.dtype)
        degree = np.count_nonzero(weights, axis=1).max() - 1  # a worker's own weight is never 0
        bits = sends.mean(axis=1) * degree * self.compressor.bits(x.shape[-1])
        return Sent(bits, bits, synchronized=True, partners=weights > 0)


@dataclass(frozen=True)
class OrderedGradient(Strategy):
    """Workers send the change of their gradient in the order of its size, until the rest cannot matter.

    After Chen, Sadler and Blum (SPAWC 2020): a worker waits in proportion to 1 over the norm of its innovation (exact
    gradient minus the one sent last). The halting rule is ours: when j of n workers have sent and the others' norms are
    at most r, the server halts as soon as (n - j) r is at most ``threshold`` plus ``relative`` times the norm of the
    sum used last. The sum of gradients is then off by at most that, and the step by eta / n times that.
    """

    threshold: float = 0.0
    relative: float = 0.1
    exact = True
    by_worker = ("last_sent",)

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        last = state["last_sent"]
        norms = np.linalg.norm(gradients - last, axis=-1)
        halt = self.threshold + self.relative * np.linalg.norm(last.sum(axis=1), axis=-1)
        order = np.argsort(-norms, axis=1, kind="stable")
        waiting = norms.shape[1] - np.arange(norms.shape[1])
        enough = waiting * np.take_along_axis(norms, order, axis=1) <= halt[:, None]
        silent = np.logical_or.accumulate(enough, axis=1)  # the first that need not send, and all after it
        sends = np.empty_like(silent)
        np.put_along_axis(sends, order, ~silent, axis=1)
        last[sends] = gradients[sends]
        state["x"] -= moment.rate * last.mean(axis=1, keepdims=True)
        bits = WORD * gradients.shape[-1]
        return Sent(bits * sends.mean(axis=1), bits, synchronized=True)
