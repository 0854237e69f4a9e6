"""Strategies in which gradients are applied as they complete, on the parameters that their worker had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..checks import require_choice, require_count
from ..errors import ModelError
from . import orders
from .compressors import WORD
from .orders import Durations, Order
from .strategy import Moment, Sent, State, Strategy, per_worker, sent

NAMES = ("async", "k-async", "k-batch-async", "k-sync", "k-batch-sync", "bounded-staleness")


@dataclass(frozen=True)
class ServerSGD(Strategy):
    """SGD on a server that applies the mean of every k gradients as they complete, each taken where its worker began.

    Names, and who then gets new parameters, as in Dutta et al. (AISTATS 2018): "async" (k = 1) and "k-batch-async":
    whoever completes one; "bounded-staleness" (Ho et al., NeurIPS 2013): the same, once it may begin its next step;
    "k-async": the k who completed; "k-sync", "k-batch-sync": all, others' work being given up. K-sync with k = n is
    synchronous SGD, with less that with n - k backup workers (Chen et al. 2016).

    A step of the loop is one gradient. Times follow from the clock's durations alone, or from an ``order`` that was
    recorded or simulated: then staleness is that of the cluster (`queuemodel.comparison.simulated_order`).

    Attributes
    ----------
    name : str
    k : int
        Gradients of an update.
    staleness_bound : int
        Steps that a worker may be ahead of the slowest.
    order : callable, optional
        (workers, gradients, generator) to an `Order`, instead of durations.
    """

    name: str = "async"
    k: int = 1
    staleness_bound: int = 0
    order: Callable[[int, int, np.random.Generator], Order] | None = None

    def __post_init__(self) -> None:
        require_choice(self.name, "ServerSGD: name", NAMES)
        require_count(self.k, "ServerSGD: k", least=1)
        require_count(self.staleness_bound, "ServerSGD: staleness_bound", least=0)
        if self.k > 1 and self.name in ("async", "bounded-staleness"):
            raise ModelError(f"ServerSGD: {self.name!r} applies every gradient by itself, so k must be 1, got {self.k}")

    def begin(self, start: np.ndarray, workers: int) -> State:
        if self.k > workers and self.name in ("k-sync", "k-async"):
            raise ModelError(f"ServerSGD: {self.name!r} needs at least k = {self.k} workers, got {workers}")
        x = start[:, None].copy()
        shape = (len(start), workers)
        return {
            "x": x,
            "copies": per_worker(start, workers),
            "sum": np.zeros_like(x),
            "gave": np.zeros(shape, bool),
            "version": np.zeros(shape, int),
            "done": np.zeros(shape, int),
            "updates": np.zeros(1, int),
            "staleness": np.zeros(len(start)),
        }

    def make_order(self, workers: int, gradients: int, durations: Durations, rng: np.random.Generator) -> Order:
        """When which worker completes its gradients."""
        if self.order is not None:
            return self.order(workers, gradients, rng)
        rounds = -(-gradients // self.k)
        match self.name:
            case "k-sync":
                return orders.first_k(workers, self.k, rounds, durations, rng)
            case "k-batch-sync":
                return orders.first_k_batches(workers, self.k, rounds, durations, rng)
            case "k-async":
                return orders.k_wait(workers, self.k, rounds, durations, rng)
            case "bounded-staleness":
                return orders.bounded(workers, self.staleness_bound, gradients, durations, rng)
            case _:
                return orders.free(workers, gradients, durations, rng)

    def complete(self, state: State, gradients: np.ndarray, workers: np.ndarray, moment: Moment) -> Sent:
        """One gradient of shape (S, 1, d) of each run's worker, shape (S,)."""
        runs = np.arange(len(workers))
        state["staleness"] += state["updates"][0] - state["version"][runs, workers]
        state["sum"] += gradients
        state["gave"][runs, workers] = True
        state["done"][runs, workers] += 1
        due = (moment.number + 1) % self.k == 0
        if due:
            state["x"] -= moment.rate / self.k * state["sum"]
            state["sum"][:] = 0.0
            state["updates"] += 1
        if self.name in ("k-sync", "k-batch-sync"):
            renewed = np.full(state["gave"].shape, due)
        elif self.name == "k-async":
            renewed = state["gave"] & due
        elif self.name == "bounded-staleness":
            ahead = state["done"] - state["done"].min(axis=1, keepdims=True)
            renewed = state["gave"] & (ahead <= self.staleness_bound)
        else:
            renewed = state["gave"].copy()
        run, worker = np.nonzero(renewed)
        state["copies"][run, worker] = state["x"][run, 0]
        state["version"][renewed] = state["updates"][0]
        state["gave"] &= ~renewed
        d = gradients.shape[-1]
        return sent(len(workers), WORD * d, WORD * d, met=False)

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        raise ModelError("ServerSGD takes gradients one by one; run it by `descend`")
