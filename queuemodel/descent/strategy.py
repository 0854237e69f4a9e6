"""What a way of training is, seen from the loss: where gradients are taken, what becomes of them, what is sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import get_blas_funcs

from ..checks import require_share

#: Bits of a number that is sent as it is.
WORD = 32

#: Of a meeting: everyone waits for all.
EVERYONE = np.ones((1, 1), bool)

#: What a strategy keeps between steps: arrays by name, among them ``x``, of shape (S, n, d) or (S, 1, d).
State = dict[str, np.ndarray]


class Sent(NamedTuple):
    """What a step sent, for each of S runs.

    Attributes
    ----------
    up, down : ndarray, shape (S,)
        Bits that a worker sent and received, mean over the workers.
    met : ndarray of bool, shape (S,)
        Whether the workers waited for each other, and for the transfer.
    ahead : bool
        The transfer goes on beside the next steps: at the next meeting everyone waits for it, and for nobody else.
    partners : ndarray of bool, shape (n, n)
        For whom each worker waits, itself included.
    """

    up: np.ndarray
    down: np.ndarray
    met: np.ndarray
    ahead: bool = False
    partners: np.ndarray = EVERYONE


class Moment(NamedTuple):
    """When a step begins: its number, learning rate, the runs' generators and clocks (s), and the loss to ask for."""

    number: int
    rate: float
    rngs: list[np.random.Generator]
    time: np.ndarray
    loss: Callable[[np.ndarray], np.ndarray]


class Strategy(ABC):
    """A way of training. Values are frozen; what changes is in the `State`."""

    #: Gradients are those of all examples of a worker's share, not of a mini-batch.
    exact = False

    def begin(self, start: np.ndarray, workers: int) -> State:
        """The state before the first step; ``start`` has shape (S, d)."""
        return {"x": start[:, None].copy()}

    @abstractmethod
    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        """One step of every worker: change the state by gradients of shape (S, n, d), which may be overwritten."""

    def model(self, state: State) -> np.ndarray:
        """The parameters that training has reached, shape (S, d)."""
        return state["x"].mean(axis=1)


def per_worker(start: np.ndarray, workers: int) -> np.ndarray:
    """A copy of the start for each worker, shape (S, n, d)."""
    return np.repeat(start[:, None], workers, axis=1)


def move(x: np.ndarray, gradients: np.ndarray, rate: float) -> None:
    """``x -= rate * gradients`` of contiguous arrays of one shape, in one pass over memory."""
    axpy = get_blas_funcs("axpy", (x,))
    axpy(gradients.reshape(-1), x.reshape(-1), a=-rate)


def over_workers(values: np.ndarray) -> np.ndarray:
    """The mean over the workers, shape (S, n, d) to (S, 1, d); as ``mean`` to the bit, and faster."""
    total = np.add.reduce(values, axis=1, keepdims=True)
    total /= values.shape[1]
    return np.asarray(total)


def sent(
    runs: int,
    up: float | np.ndarray,
    down: float | np.ndarray,
    *,
    met: bool | np.ndarray = True,
    ahead: bool = False,
    partners: np.ndarray = EVERYONE,
) -> Sent:
    """What every run sent: numbers, or arrays of shape (S,)."""
    up, down, met = (np.broadcast_to(value, (runs,)) for value in (up, down, met))
    return Sent(up, down, met, ahead, partners)


def whole(runs: int, dimension: int, *, ahead: bool = False) -> Sent:
    """All parameters both ways, uncompressed."""
    return sent(runs, WORD * dimension, WORD * dimension, ahead=ahead)


def nothing(runs: int) -> Sent:
    """A step that every worker takes alone."""
    return sent(runs, 0.0, 0.0, met=False)


@dataclass(frozen=True)
class SynchronousSGD(Strategy):
    """x <- x - eta v, where v <- momentum v + mean of the gradients (Polyak 1964).

    Attributes
    ----------
    momentum : float
        In [0, 1].
    """

    momentum: float = 0.0

    def __post_init__(self) -> None:
        require_share(self.momentum, "SynchronousSGD: momentum")

    def begin(self, start: np.ndarray, workers: int) -> State:
        return {"x": start[:, None].copy(), "v": np.zeros_like(start)[:, None]}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        if self.momentum:
            state["v"] = gradients = self.momentum * state["v"] + over_workers(gradients)
        state["x"] -= over_workers(moment.rate * gradients)
        return whole(len(gradients), gradients.shape[-1])
