"""Strategies without a meeting of all.

Gossip on a graph when there is something to say (`SquarmSGD`), in the order of who has most to say
(`OrderedGradient`), and a server that applies gradients as they complete (`ServerSGD`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ..base.checks import require_choice
from ..base.errors import ModelError
from .compression import Compressor, Identity
from .strategy import WORD, Moment, Sent, State, Strategy, per_worker


def mixing_matrix(graph: str, workers: int) -> np.ndarray:
    """Weights with which workers on a "ring", "torus" or "complete" graph average their neighbours' values and theirs.

    Shape (n, n), symmetric, rows add up to 1; every neighbour, and the worker itself, counts 1 / (degree + 1), on a
    complete graph thus 1/n (Xiao and Boyd 2004, maximum-degree weights). A torus needs a square number of workers.
    """
    require_choice(graph, "graph", ("ring", "torus", "complete"))
    i, side = np.arange(workers), math.isqrt(workers)
    if graph == "torus" and side**2 != workers:
        raise ModelError(f"torus: workers must be a square number, got {workers}")
    if graph == "torus":
        grid = i.reshape(side, side)
        ahead = [np.roll(grid, 1, axis).ravel() for axis in (0, 1)]
    else:
        ahead = [np.roll(i, by) for by in range(1, 2 if graph == "ring" else workers)]
    neighbours = np.zeros((workers, workers), bool)
    for others in ahead:
        neighbours[i, others] = neighbours[others, i] = True
    np.fill_diagonal(neighbours, False)
    weights = neighbours / (neighbours.sum(axis=1).max(initial=0) + 1)
    np.fill_diagonal(weights, 1 - weights.sum(axis=1))
    return weights


@dataclass(frozen=True)
class SquarmSGD(Strategy):
    """Nesterov momentum, local steps, event-triggered compressed gossip (Singh, Data, George and Diggavi 2020).

    v <- momentum v + g, x <- x - eta (momentum v + g); every ``local_steps`` steps a worker whose distance from what
    its neighbours know of it exceeds eta sqrt(trigger) sends them the compressed difference (`Compressor.contract`),
    and moves by ``mixing`` times the weighted difference of what it knows of them and they of it. A mixing below 1 is
    stable with coarser compression.
    """

    graph: str = "ring"
    compressor: Compressor = field(default_factory=Identity)
    local_steps: int = 1
    trigger: float = 0.0
    mixing: float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        mixing_matrix(self.graph, 1)

    def begin(self, start: np.ndarray, workers: int) -> State:
        x = per_worker(start, workers)
        return {"x": x, "known": x.copy(), "v": np.zeros_like(x), "weights": mixing_matrix(self.graph, workers)}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        x, known, weights = state["x"], state["known"], state["weights"]
        state["v"] = self.momentum * state["v"] + gradients
        x -= moment.rate * (self.momentum * state["v"] + gradients if self.momentum else gradients)
        if (moment.number + 1) % self.local_steps:
            return Sent()
        change = x - known
        speaks = np.square(change).sum(axis=-1) > self.trigger * moment.rate**2
        known += np.where(speaks[..., None], self.compressor.contract(change, moment.rngs), 0)
        x += (self.mixing * (weights.astype(x.dtype) @ known - known)).astype(x.dtype)
        degree = np.count_nonzero(weights, axis=1).max() - 1  # a worker's own weight is never 0
        bits = speaks.mean(axis=1) * degree * self.compressor.bits(x.shape[-1])
        return Sent(bits, bits, met=True, partners=weights > 0)


@dataclass(frozen=True)
class OrderedGradient(Strategy):
    """Workers send the change of their gradient in the order of its size, until the rest cannot matter.

    The idea is that of Chen, Sadler and Blum (SPAWC 2020): a worker waits in proportion to 1 over the norm of its
    innovation (its exact gradient minus the one that it sent last). The rule by which the server halts is ours: j of n
    workers have sent, those that wait have norms of at most r, and it halts as soon as (n - j) r is at most the
    threshold. What is missing is a sum of n - j vectors of norms of at most r, so the sum of gradients in use differs
    from the true one by at most the threshold, and the step from that of gradient descent by at most eta threshold / n.
    The threshold is ``threshold`` plus ``relative`` times the norm of the sum that the server used last.
    """

    threshold: float = 0.0
    relative: float = 0.1
    exact = True

    def begin(self, start: np.ndarray, workers: int) -> State:
        return {"x": start[:, None].copy(), "told": np.zeros_like(per_worker(start, workers))}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        told = state["told"]
        norms = np.linalg.norm(gradients - told, axis=-1)
        halt = self.threshold + self.relative * np.linalg.norm(told.sum(axis=1), axis=-1)
        order = np.argsort(-norms, axis=1, kind="stable")
        waiting = norms.shape[1] - np.arange(norms.shape[1])
        enough = waiting * np.take_along_axis(norms, order, axis=1) <= halt[:, None]
        silent = np.logical_or.accumulate(enough, axis=1)  # the first who need not speak, and all after them
        speaks = np.empty_like(silent)
        np.put_along_axis(speaks, order, ~silent, axis=1)
        told[speaks] = gradients[speaks]
        state["x"] -= moment.rate * told.mean(axis=1, keepdims=True)
        bits = WORD * gradients.shape[-1]
        return Sent(bits * speaks.mean(axis=1), bits, met=True)


NAMES = ("async", "k-async", "k-batch-async", "k-sync", "k-batch-sync", "bounded-staleness")


@dataclass(frozen=True)
class ServerSGD(Strategy):
    """SGD on a server that applies the mean of every k gradients as they complete, each taken where its worker began.

    Names, and who then gets new parameters and goes on, as in Dutta et al. (AISTATS 2018): "async" (k = 1) and
    "k-batch-async": whoever completes one; "bounded-staleness" (Ho et al., NeurIPS 2013): the same, once it is no more
    than ``staleness_bound`` completed steps ahead of the slowest; "k-async": the k who completed; "k-sync",
    "k-batch-sync": all, others' work being given up, but meanwhile whoever completes waits, or takes another batch at
    the same parameters. K-sync with k = n is synchronous SGD, with less that with n - k backup workers (Chen et al.
    2016).
    """

    name: str = "async"
    k: int = 1
    staleness_bound: int = 0
    one_by_one = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self.name, "ServerSGD: name", NAMES)
        if self.k > 1 and self.name in ("async", "bounded-staleness"):
            raise ModelError(f"ServerSGD: {self.name!r} applies every gradient by itself, so k must be 1, got {self.k}")

    def begin(self, start: np.ndarray, workers: int) -> State:
        if self.k > workers and self.name in ("k-sync", "k-async"):
            raise ModelError(f"ServerSGD: {self.name!r} needs at least k = {self.k} workers, got {workers}")
        x, shape = start[:, None].copy(), (len(start), workers)
        return {
            "x": x,
            "copies": per_worker(start, workers),
            "sum": np.zeros_like(x),
            "waits": np.zeros(shape, bool),
            "version": np.zeros(shape, int),
            "done": np.zeros(shape, int),
            "staleness": np.zeros(len(start)),
        }

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
