"""Strategies in which not everyone sends everything to everyone.

Gossip on a graph when there is something to say (`SquarmSGD`), in the order of who has most to say
(`OrderedGradient`), and a few coordinates that the channel adds up (`OverTheAir`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..checks import require_choice, require_count, require_number, require_share
from ..errors import ModelError
from .compression import Compressor, Identity
from .strategy import WORD, Moment, Sent, State, Strategy, nothing, per_worker, sent

GRAPHS = ("ring", "torus", "complete")


def mixing_matrix(graph: str, workers: int) -> np.ndarray:
    """
    Weights with which each worker averages its neighbours' values and its own, shape (n, n).

    Symmetric, rows add up to 1; every neighbour, and the worker itself, counts 1 / (degree + 1), on a complete graph
    thus 1/n (Xiao and Boyd 2004, maximum-degree weights).

    Parameters
    ----------
    graph : {"ring", "torus", "complete"}
        A torus needs a square number of workers.
    workers : int

    Raises
    ------
    ModelError
        For another graph, or a torus of no square number.
    """
    require_choice(graph, "graph", GRAPHS)
    n = require_count(workers, "workers", least=1)
    neighbours = np.zeros((n, n), bool)
    i = np.arange(n)
    if graph == "complete":
        neighbours[:] = True
    elif graph == "ring":
        neighbours[i, (i + 1) % n] = True
    else:
        side = round(n**0.5)
        if side * side != n:
            raise ModelError(f"torus: workers must be a square number, got {n}")
        row, column = divmod(i, side)
        neighbours[i, row * side + (column + 1) % side] = True
        neighbours[i, (row + 1) % side * side + column] = True
    neighbours |= neighbours.T
    np.fill_diagonal(neighbours, False)
    weights = neighbours / (neighbours.sum(axis=1).max(initial=0) + 1)
    np.fill_diagonal(weights, 1 - weights.sum(axis=1))
    return weights


def spectral_gap(weights: np.ndarray) -> float:
    """1 minus the second largest absolute eigenvalue: an averaging takes at least this share off the disagreement."""
    sizes = np.sort(np.abs(np.linalg.eigvalsh(weights)))
    return float(1 - sizes[-2]) if len(sizes) > 1 else 1.0


def degree(weights: np.ndarray) -> int:
    """Largest number of neighbours."""
    return int((np.count_nonzero(weights, axis=1) - (np.diag(weights) > 0)).max())


@dataclass(frozen=True)
class SquarmSGD(Strategy):
    """Nesterov momentum, local steps, event-triggered compressed gossip (Singh, Data, George and Diggavi 2020).

    v <- momentum v + g, x <- x - eta (momentum v + g); every ``local_steps`` steps a worker whose distance from what
    its neighbours know of it exceeds eta sqrt(trigger) sends them the compressed difference (`Compressor.contract`),
    and moves by ``mixing`` times the weighted difference of what it knows of them and they of it.

    Attributes
    ----------
    graph : {"ring", "torus", "complete"}
    compressor : Compressor
    local_steps : int
    trigger : float
        0: whoever has changed sends.
    mixing : float
        In (0, 1]; stable with less for coarser compression.
    momentum : float
    """

    graph: str = "ring"
    compressor: Compressor = field(default_factory=Identity)
    local_steps: int = 1
    trigger: float = 0.0
    mixing: float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        mixing_matrix(self.graph, 1)
        require_count(self.local_steps, "SquarmSGD: local_steps", least=1)
        require_number(self.trigger, "SquarmSGD: trigger")
        require_number(self.mixing, "SquarmSGD: mixing", positive=True, largest=1.0)
        require_share(self.momentum, "SquarmSGD: momentum")

    def begin(self, start: np.ndarray, workers: int) -> State:
        x = per_worker(start, workers)
        return {"x": x, "known": x.copy(), "v": np.zeros_like(x), "weights": mixing_matrix(self.graph, workers)}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        x, known, weights = state["x"], state["known"], state["weights"]
        state["v"] = self.momentum * state["v"] + gradients
        x -= moment.rate * (self.momentum * state["v"] + gradients if self.momentum else gradients)
        if (moment.number + 1) % self.local_steps:
            return nothing(len(gradients))
        change = x - known
        speaks = np.square(change).sum(axis=-1) > self.trigger * moment.rate**2
        known += np.where(speaks[..., None], self.compressor.contract(change, moment.rngs), 0)
        x += (self.mixing * (weights.astype(x.dtype) @ known - known)).astype(x.dtype)
        bits = speaks.mean(axis=1) * degree(weights) * self.compressor.bits(x.shape[-1])
        return sent(len(gradients), bits, bits, partners=weights > 0)


@dataclass(frozen=True)
class OrderedGradient(Strategy):
    """Workers send the change of their gradient in the order of its size, until the rest cannot matter.

    The idea is that of Chen, Sadler and Blum (SPAWC 2020): a worker waits in proportion to 1 over the norm of its
    innovation (its exact gradient minus the one that it sent last). The rule by which the server halts is ours: j of n
    workers have sent, those that wait have norms of at most r, and it halts as soon as (n - j) r is at most the
    threshold. What is missing is a sum of n - j vectors of norms of at most r, so the sum of gradients in use differs
    from the true one by at most the threshold, and the step from that of gradient descent by at most eta threshold / n.

    Attributes
    ----------
    threshold : float
        0: everything that differs is sent, gradient descent.
    relative : float
        Threshold as a share of the norm of the sum that the server used last; added to the other.
    """

    threshold: float = 0.0
    relative: float = 0.1
    exact = True

    def __post_init__(self) -> None:
        require_number(self.threshold, "OrderedGradient: threshold")
        require_number(self.relative, "OrderedGradient: relative")

    def begin(self, start: np.ndarray, workers: int) -> State:
        told = np.zeros((len(start), workers, start.shape[-1]), start.dtype)
        return {"x": start[:, None].copy(), "told": told, "silent": np.zeros(len(start))}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        told = state["told"]
        norms = np.linalg.norm(gradients - told, axis=-1)
        halt = self.threshold + self.relative * np.linalg.norm(told.sum(axis=1), axis=-1)
        speaks = speakers(norms, halt)
        told[speaks] = gradients[speaks]
        state["x"] -= moment.rate * told.mean(axis=1, keepdims=True)
        d, spoken = gradients.shape[-1], speaks.mean(axis=1)
        return sent(len(gradients), WORD * d * spoken, WORD * d)


def speakers(norms: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """Who sends, as bool of shape (S, n), from the norms of the innovations and thresholds of shape (S,)."""
    order = np.argsort(-norms, axis=1, kind="stable")
    falling = np.take_along_axis(norms, order, axis=1)
    waiting = norms.shape[1] - np.arange(norms.shape[1])
    enough = waiting * falling <= threshold[:, None]  # the first who need not, and all after them
    silent = np.logical_or.accumulate(enough, axis=1)
    speaks = np.empty_like(silent)
    np.put_along_axis(speaks, order, ~silent, axis=1)
    return speaks


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
