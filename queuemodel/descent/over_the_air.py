"""Band-limited coordinate descent over the air: all workers send at once, and the channel adds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import require_choice, require_count, require_number
from .compressors import WORD
from .strategy import Moment, Sent, State, Strategy, sent


@dataclass(frozen=True)
class OverTheAir(Strategy):
    """Some coordinates, one to a sub-carrier, are added up by the channel (Zhang, Li and Dedeoglu, INFOCOM 2021).

    Worker m has u_m = eta g_m + r_m. In each step ``carriers`` common random coordinates j are sent with amplitudes
    sqrt(q_j) / max(h_mj, fading), so that sqrt(q_j) * sum of min(h_mj / fading, 1) u_mj arrives, and noise; r_m keeps
    the other coordinates, and of these what a weak channel lost. The noise in the server's mean has the variance
    noise^2 / (q_j n^2). The amplitudes are ours: with a_j = max over m of (u_mj / max(h_mj, fading))^2, "inversion"
    takes one q for all sub-carriers, power / sum a; "water-filling" q_j = power / (sqrt(a_j) sum sqrt(a)), which makes
    the sum of variances least under sum q_j a_j <= power. Both keep every worker within its power.

    Attributes
    ----------
    carriers : int
    power : float
        Largest sum of squared amplitudes of a worker in a step.
    noise : float
        Standard deviation of the noise on each sub-carrier.
    fading : float
        Amplitude of the Rayleigh channel (mean square 1) below which a worker spends no more power.
    allocation : {"water-filling", "inversion"}
    """

    carriers: int = 16
    power: float = 1.0
    noise: float = 0.01
    fading: float = 0.1
    allocation: str = "water-filling"

    def __post_init__(self) -> None:
        require_count(self.carriers, "OverTheAir: carriers", least=1)
        require_number(self.power, "OverTheAir: power", positive=True)
        require_number(self.noise, "OverTheAir: noise")
        require_number(self.fading, "OverTheAir: fading", positive=True)
        require_choice(self.allocation, "OverTheAir: allocation", ("water-filling", "inversion"))

    def begin(self, start: np.ndarray, workers: int) -> State:
        return {"x": start[:, None].copy(), "rest": np.zeros((len(start), workers, start.shape[-1]), start.dtype)}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        runs, n, d = gradients.shape
        k = min(self.carriers, d)
        u = moment.rate * gradients + state["rest"]
        chosen = np.stack([rng.choice(d, k, replace=False) for rng in moment.rngs])[:, None, :]
        told = np.take_along_axis(u, chosen, axis=-1)
        channel = np.stack([rng.rayleigh(np.sqrt(0.5), (n, k)) for rng in moment.rngs])
        noise = self.noise * np.stack([rng.normal(size=k) for rng in moment.rngs])
        through = np.minimum(channel / self.fading, 1.0)
        received = (through * told).mean(axis=1) + noise / (n * np.sqrt(self.gains(told, channel)))
        np.put_along_axis(u, chosen, (1 - through) * told, axis=-1)
        state["rest"] = u
        step = np.zeros((runs, 1, d), u.dtype)
        np.put_along_axis(step, chosen, received[:, None].astype(u.dtype), axis=-1)
        state["x"] -= step
        return sent(runs, WORD * k / n, WORD * k)  # one slot, whatever n

    def gains(self, told: np.ndarray, channel: np.ndarray) -> np.ndarray:
        """Received power of one unit on each sub-carrier, q of shape (S, k); told and channel have shape (S, n, k)."""
        needed = np.square(told / np.maximum(channel, self.fading)).max(axis=1)
        needed = np.maximum(needed, 1e-12 * needed.max(axis=1, keepdims=True) + np.finfo(float).tiny)
        if self.allocation == "inversion":
            return np.broadcast_to(self.power / needed.sum(axis=1, keepdims=True), needed.shape)
        root = np.sqrt(needed)
        return self.power / (root * root.sum(axis=1, keepdims=True))
