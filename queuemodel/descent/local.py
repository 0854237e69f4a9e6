"""Workers go on alone and average their parameters now and then: every few steps, adaptively, or ahead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import require_count, require_number, require_share
from .strategy import WORD, Moment, Sent, State, Strategy, move, nothing, over_workers, per_worker, sent, whole


@dataclass(frozen=True)
class LocalSGD(Strategy):
    """Averages every ``local_steps`` steps (Stich, ICLR 2019; McDonald et al. 2010); 1 is synchronous SGD, bit for bit.

    Attributes
    ----------
    local_steps : int
    """

    local_steps: int = 8

    def __post_init__(self) -> None:
        require_count(self.local_steps, "LocalSGD: local_steps", least=1)

    def begin(self, start: np.ndarray, workers: int) -> State:
        return {"x": per_worker(start, workers)}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        x = state["x"]
        if (moment.number + 1) % self.local_steps:
            move(x, gradients, moment.rate)
            return nothing(len(gradients))
        gradients *= moment.rate
        apart = moment.number % self.local_steps  # else all are where the first is
        x[:] = (over_workers(x) if apart else x[:, :1]) - over_workers(gradients)
        return whole(len(gradients), gradients.shape[-1])


@dataclass(frozen=True)
class AdaComm(Strategy):
    """Local SGD whose number of local steps follows the loss (Wang and Joshi, MLSys 2019).

    At the first averaging after every ``interval`` seconds, ceil(sqrt(eta_0 F / (eta F_0)) initial_steps) local steps
    are chosen, from the loss F; when that is not less than before, half of what it was (as we recall the paper's rule).

    Attributes
    ----------
    initial_steps : int
    interval : float
        Seconds (about 60 in the paper) by the clock of the run.
    """

    initial_steps: int = 16
    interval: float = 60.0

    def __post_init__(self) -> None:
        require_count(self.initial_steps, "AdaComm: initial_steps", least=1)
        require_number(self.interval, "AdaComm: interval", unit="seconds", positive=True)

    def begin(self, start: np.ndarray, workers: int) -> State:
        runs = len(start)
        return {
            "x": per_worker(start, workers),
            "local_steps": np.full(runs, self.initial_steps),
            "since": np.zeros(runs, int),
            "decided": np.zeros(runs),
            "first_loss": np.full(runs, np.nan),
            "first_rate": np.zeros(1),
        }

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        x = state["x"]
        if moment.number == 0:
            state["first_loss"], state["first_rate"][0] = moment.loss(x[:, 0]), moment.rate
        due = (state["since"] == 0) & (moment.time - state["decided"] >= self.interval)  # all have just averaged
        if due.any():
            self._decide(state, due, moment)
        move(x, gradients, moment.rate)
        state["since"] += 1
        meet = state["since"] >= state["local_steps"]
        x[meet] = over_workers(x[meet])
        state["since"][meet] = 0
        bits = WORD * gradients.shape[-1] * meet
        return sent(len(gradients), bits, bits, met=meet)

    def _decide(self, state: State, due: np.ndarray, moment: Moment) -> None:
        share = moment.loss(state["x"][:, 0]) * state["first_rate"][0] / (state["first_loss"] * moment.rate)
        wanted = np.ceil(np.sqrt(np.maximum(share, 0.0)) * self.initial_steps)
        before = state["local_steps"]
        chosen = np.where(wanted < before, wanted, np.ceil(before / 2))
        state["local_steps"] = np.where(due, np.maximum(chosen, 1), before).astype(int)
        state["decided"] = np.where(due, moment.time, state["decided"])


@dataclass(frozen=True)
class OverlapLocalSGD(Strategy):
    """Workers are pulled towards an anchor that was averaged one round earlier (Wang, Liang and Joshi, ICASSP 2020).

    At multiples of ``local_steps``: x_i <- (1 - pull) x_i + pull z; v <- momentum v + (z - mean x_i) / eta;
    z <- z - eta v; and z's all-reduce goes on beside the next steps.

    Attributes
    ----------
    local_steps : int
    pull, momentum : float
        In [0, 1]; 0.6 and 0.7 in the paper.
    """

    local_steps: int = 2
    pull: float = 0.6
    momentum: float = 0.7

    def __post_init__(self) -> None:
        require_count(self.local_steps, "OverlapLocalSGD: local_steps", least=1)
        require_share(self.pull, "OverlapLocalSGD: pull")
        require_share(self.momentum, "OverlapLocalSGD: momentum")

    def begin(self, start: np.ndarray, workers: int) -> State:
        z = start[:, None].copy()
        return {"x": per_worker(start, workers), "z": z, "v": np.zeros_like(z)}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        x, z = state["x"], state["z"]
        move(x, gradients, moment.rate)
        if (moment.number + 1) % self.local_steps:
            return nothing(len(gradients))
        x += self.pull * (z - x)
        state["v"] = self.momentum * state["v"] + (z - x.mean(axis=1, keepdims=True)) / moment.rate
        state["z"] = z - moment.rate * state["v"]
        return whole(len(gradients), gradients.shape[-1], ahead=True)
