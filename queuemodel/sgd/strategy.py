"""The update rules: where gradients are taken, when workers meet, what is sent, how it is applied."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import get_blas_funcs

from ..base.checks import require_choice
from ..base.errors import ModelError
from ..profile.synchronization import SYNCHRONIZATIONS
from .compression import QSGD, WORD, BlockSign, Compressor, Identity, TopK
from .problems import FIELD_CHECKS, Checked, Problem, regular_solve

EVERYONE = np.ones((1, 1), bool)  # waits for all

#: What a strategy keeps between steps: arrays by name; ``x`` has shape (S, n, d) or (S, 1, d).
State = dict[str, Any]


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


class Strategy(Checked):
    """A row of the table of update rules: values are frozen; the `State` changes.

    By default each worker takes steps x_i <- x_i - eta g_i, and all `meet` every ``local_steps`` of them.
    """

    #: Gradients are those of all examples of a worker's share, not of a mini-batch.
    exact = False
    #: A step is one gradient of one worker, at the parameters in ``copies`` that it began with.
    one_by_one = False
    #: Each worker has parameters of its own.
    replicas = True
    #: Zero at the start: what each worker keeps, shape (S, n, d), and what all keep in common, shape (S, 1, d). Workers
    #: that keep "v" have Nesterov's momentum, those that keep "moved" step from the ``anchor``.
    by_worker: ClassVar[tuple[str, ...]] = ()
    in_common: ClassVar[tuple[str, ...]] = ()
    local_steps: int = 1
    momentum: float = 0.0

    def begin(self, start: np.ndarray, workers: int) -> State:
        """The state before the first step; ``start`` has shape (S, d)."""
        anchor, each = start[:, None].copy(), np.repeat(start[:, None], workers, axis=1)
        kept = {name: np.zeros_like(each) for name in self.by_worker}
        kept |= {name: np.zeros_like(anchor) for name in self.in_common}
        return kept | {"anchor": anchor, "x": each if self.replicas else anchor.copy()}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        """One step of every worker: change the state by gradients of shape (S, n, d), which may be overwritten."""
        if self.momentum and "v" in self.by_worker:  # v <- momentum v + g; momentum v + g (Nesterov 1983)
            state["v"] = self.momentum * state["v"] + gradients
            gradients = self.momentum * state["v"] + gradients
        anchored, meets = "moved" in self.by_worker, (moment.number + 1) % self.local_steps == 0
        if anchored:
            state["moved"] += moment.rate * gradients
            np.subtract(state["anchor"], state["moved"], out=state["x"])
        else:
            move(state["x"], gradients, moment.rate)
        sent = self.meet(state, moment) if meets else Sent()
        if anchored and meets:
            state["x"][:], state["moved"][:] = state["anchor"], 0.0
        return sent

    def meet(self, state: State, moment: Moment) -> Sent:
        """Change the state by the workers' messages; of anchored ones only the anchor, by how far each has moved."""
        return Sent()

    def model(self, state: State) -> np.ndarray:
        """The parameters that training has reached, shape (S, d)."""
        return np.asarray(state["anchor"][:, 0] if "moved" in self.by_worker else state["x"].mean(axis=1))


def move(x: np.ndarray, gradients: np.ndarray, rate: float) -> None:
    """``x -= rate * gradients`` of contiguous arrays of one shape, in one pass over memory."""
    axpy = get_blas_funcs("axpy", (x,))
    axpy(gradients.reshape(-1), x.reshape(-1), a=-rate)


def over_workers(values: np.ndarray) -> np.ndarray:
    """The mean over the workers, shape (S, n, d) to (S, 1, d); as ``mean`` to the bit, and faster."""
    total = np.add.reduce(values, axis=1, keepdims=True)
    total /= values.shape[1]
    return np.asarray(total)


def whole(values: np.ndarray, due: bool | np.ndarray = True, *, pieces: bool = False, ahead: bool = False) -> Sent:
    """All gradients or parameters both ways, uncompressed, in the runs where they are due."""
    bits = WORD * values.shape[-1] * due
    return Sent(bits, bits, due, pieces, ahead)


@dataclass(frozen=True)
class SynchronousSGD(Strategy):
    """x <- x - eta v, where v <- momentum v + mean of the gradients (Polyak 1964)."""

    momentum: float = 0.0
    replicas, in_common = False, ("v",)

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        if self.momentum:
            state["v"] = gradients = self.momentum * state["v"] + over_workers(gradients)
        state["x"] -= over_workers(moment.rate * gradients)
        return whole(gradients, pieces=True)


@dataclass(frozen=True)
class LocalSGD(Strategy):
    """Averages every ``local_steps`` steps (Stich, ICLR 2019; McDonald et al. 2010); 1 is synchronous SGD."""

    local_steps: int = 8

    def meet(self, state: State, moment: Moment) -> Sent:
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

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        x, loss, runs = state["x"], moment.problem.loss, len(gradients)
        if moment.number == 0:  # since: steps since averaging; decided: when (s)
            state |= {"first_loss": loss(x[:, 0]), "first_rate": np.float64(moment.rate), "decided": np.zeros(runs)}
            state |= {"steps": np.full(runs, self.initial_steps), "since": np.zeros(runs, int)}
        before = state["steps"]
        decides = (state["since"] == 0) & (moment.time - state["decided"] >= self.interval)  # all have just averaged
        if decides.any():
            share = loss(x[:, 0]) * state["first_rate"] / (state["first_loss"] * moment.rate)
            wanted = np.ceil(np.sqrt(np.maximum(share, 0.0)) * self.initial_steps)
            chosen = np.where(wanted < before, wanted, np.ceil(before / 2))
            state["steps"] = np.where(decides, np.maximum(chosen, 1), before).astype(int)
            state["decided"] = np.where(decides, moment.time, state["decided"])
        move(x, gradients, moment.rate)
        state["since"] += 1
        due = state["since"] >= state["steps"]
        x[due] = over_workers(x[due])
        state["since"][due] = 0
        return whole(x, due)


@dataclass(frozen=True)
class OverlapLocalSGD(Strategy):
    """Workers are pulled towards an anchor that was averaged one round earlier (Wang, Liang and Joshi, ICASSP 2020).

    At multiples of ``local_steps``: x_i <- (1 - pull) x_i + pull z; v <- momentum v + (z - mean x_i) / eta;
    z <- z - eta v; and z's all-reduce goes on beside the next steps. Pull and momentum are the paper's.
    """

    local_steps: int = 2
    pull: float = 0.6
    momentum: float = 0.7
    in_common = ("v",)

    def meet(self, state: State, moment: Moment) -> Sent:
        x, z = state["x"], state["anchor"]
        x += self.pull * (z - x)
        state["v"] = self.momentum * state["v"] + (z - over_workers(x)) / moment.rate
        state["anchor"] = z - moment.rate * state["v"]
        return whole(x, ahead=True)


@dataclass(frozen=True)
class DoubleCompression(Strategy):
    """Error feedback at the workers and at the server: compression errors are kept and sent later.

    DoubleSqueeze (Tang et al., ICML 2019) and dist-EF-SGDM (Zheng et al., NeurIPS 2019). Worker: m <- momentum m + g,
    p = eta (momentum m + g) + e, sends C(p), keeps e = p - C(p); server: the same with the mean of the messages. e is
    in units of a step, so a changing learning rate needs no scaling. C is `Compressor.contract`; `Identity` gives SGD
    with Nesterov's momentum.
    """

    compressor: Compressor = field(default_factory=TopK)
    momentum: float = 0.0
    local_steps: int = 1
    by_worker, in_common = ("moved", "v", "error"), ("server_error",)

    def meet(self, state: State, moment: Moment) -> Sent:
        message = state["moved"]
        for error in ("error", "server_error"):
            wanted = message + state[error]
            received = self.compressor.contract(wanted, moment.rngs)
            state[error] = wanted - received
            message = received.mean(axis=1, keepdims=True)
        state["anchor"] -= received
        bits = self.compressor.bits(received.shape[-1])
        return Sent(bits, bits, synchronized=True)


@dataclass(frozen=True)
class AdaQuantFL(Strategy):
    """Local steps whose sum is sent in more and more levels (Jhunjhunwala, Gadhikar, Joshi and Eldar, ICASSP 2021).

    There are ceil(sqrt(f(w_0) / f(w_k)) initial_levels) of them, from the loss f. The way down is not compressed.
    """

    local_steps: int = 4
    initial_levels: int = 2
    by_worker = ("moved",)

    def meet(self, state: State, moment: Moment) -> Sent:
        anchor, loss = state["anchor"], moment.problem.loss
        if moment.number + 1 == self.local_steps:  # the first time
            state |= {"first_loss": loss(anchor[:, 0]), "levels": np.full((len(anchor), 1, 1), self.initial_levels)}
        coder = QSGD(state["levels"])
        anchor -= coder.compress(state["moved"], moment.rngs).mean(axis=1, keepdims=True)
        share = state["first_loss"] / np.maximum(loss(anchor[:, 0]), np.finfo(float).tiny)
        wanted = np.ceil(np.sqrt(np.maximum(share, 0.0)) * self.initial_levels)
        state["levels"] = np.clip(wanted, 1, 2.0**31).astype(np.int64)[:, None, None]
        return whole(anchor)._replace(up=coder.bits(anchor.shape[-1])[:, 0, 0])


def mixing_matrix(graph: str, workers: int) -> np.ndarray:
    """Weights with which workers on a "ring", "torus" or "complete" graph average their neighbours' values and theirs.

    Shape (n, n), symmetric, rows add up to 1; every neighbour, and the worker itself, counts 1 / (degree + 1), on a
    complete graph thus 1/n (Xiao and Boyd 2004, maximum-degree weights). A torus needs a square number of workers.
    """
    FIELD_CHECKS["graph"](graph, "graph")
    alone = np.eye(math.isqrt(workers) if graph == "torus" else workers, dtype=bool)
    joined = ~alone if graph == "complete" else np.roll(alone, 1, axis=0) | np.roll(alone, -1, axis=0)
    if graph == "torus":
        if len(alone) ** 2 != workers:
            raise ModelError(f"torus: workers must be a square number, got {workers}")
        joined = np.kron(joined, alone) | np.kron(alone, joined)
    joined &= ~np.eye(workers, dtype=bool)
    weights = joined / (joined.sum(axis=1).max() + 1)
    np.fill_diagonal(weights, 1 - weights.sum(axis=1))
    return weights


@dataclass(frozen=True)
class SquarmSGD(Strategy):
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

    def begin(self, start: np.ndarray, workers: int) -> State:
        state = super().begin(start, workers)
        return state | {"known": state["x"].copy(), "weights": mixing_matrix(self.graph, workers)}

    def meet(self, state: State, moment: Moment) -> Sent:
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
    exact, replicas, by_worker = True, False, ("last_sent",)

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
        return whole(last)._replace(up=WORD * last.shape[-1] * sends.mean(axis=1))


@dataclass(frozen=True)
class OverTheAir(Strategy):
    """Band-limited coordinate descent: a radio channel adds coordinates up (Zhang, Li and Dedeoglu, INFOCOM 2021).

    Worker m has u_m = eta g_m + r_m. In each step ``carriers`` random coordinates j, the same of all workers, are sent
    at once, one on a sub-carrier, with amplitudes sqrt(q_j) / max(h_mj, fading) over Rayleigh channels h of mean square
    1; the noise of a sub-carrier has the standard deviation ``noise``. r_m keeps the other coordinates, and what weak
    channels lost of these. The powers are ours: q_j = power / (sqrt(a_j) sum sqrt(a)), a_j = max over m of
    (u_mj / max(h_mj, fading))^2, keeps each worker within ``power``, with the least variance of the mean. Not in
    `NAMES`, as no profile shows a radio channel.
    """

    carriers: int = 16
    power: float = 1.0
    noise: float = 0.01
    fading: float = 0.1
    replicas, by_worker = False, ("rest",)

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        (_, n, d), u = gradients.shape, moment.rate * gradients + state["rest"]
        k = min(self.carriers, d)
        chosen = np.stack([rng.choice(d, k, replace=False) for rng in moment.rngs])[:, None]
        channel = np.stack([rng.rayleigh(np.sqrt(0.5), (n, k)) for rng in moment.rngs])
        noise = self.noise * np.stack([rng.normal(size=k) for rng in moment.rngs])
        sent, arrives = np.take_along_axis(u, chosen, axis=-1), np.minimum(channel / self.fading, 1.0)
        received = over_workers(arrives * sent)[:, 0] + noise / (n * np.sqrt(self.gains(sent, channel)))
        np.put_along_axis(u, chosen, (1.0 - arrives) * sent, axis=-1)
        state["rest"], step = u, np.zeros_like(state["x"])
        np.put_along_axis(step, chosen, received[:, None].astype(u.dtype), axis=-1)
        state["x"] -= step
        return Sent(WORD * k / n, WORD * k, synchronized=True)  # one slot, whatever n

    def gains(self, sent: np.ndarray, channel: np.ndarray) -> np.ndarray:
        """Received power of a unit on each sub-carrier, q (S, k), of values sent over channels, both (S, n, k)."""
        root = np.abs(sent / np.maximum(channel, self.fading)).max(axis=1)  # sqrt(a_j)
        root = np.maximum(root, 1e-6 * root.max(axis=1, keepdims=True) + np.finfo(float).tiny)
        return np.asarray(self.power / (root * root.sum(axis=1, keepdims=True)))


@dataclass(frozen=True)
class Reparameterized(Strategy):
    """Gradient descent on the response A = (G^-1 - W)^-1 of a `FixedPoint` problem (Zhu and Rosenbaum 2024).

    With M = A^-1 and S = M^T g M^T, for one input dL/dr times M r: A <- A - eta S, W = G^-1 - A^-1. ``first_order``: W
    <- W - eta M S M is its first order, needs no inverse, is steepest descent under a metric of W, and diverges where A
    becomes singular on its way. Exact for one input, or where f is the identity; else G^-1 is its mean over the inputs
    (ours).
    """

    first_order: bool = False
    replicas = False

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        x, M = state["x"], moment.problem.inverse_response(state["x"])
        Mt = np.swapaxes(M, -1, -2)
        step = moment.rate * (M @ Mt @ over_workers(gradients).reshape(M.shape) @ Mt)  # eta M S
        # (A - eta S)^-1 = (I - eta M S)^-1 M, of first order (I + eta M S) M
        change = step @ M if self.first_order else regular_solve(np.eye(M.shape[-1]) - step, step @ M)
        state["x"] = x - change.reshape(x.shape)
        return whole(gradients, pieces=True)


#: Who waits for whom on a server, by name: the rows of the simulated servers, without their barrier of all.
SERVER_RULES = {name.removesuffix("-ps"): row for name, row in SYNCHRONIZATIONS.items() if not row.drops}


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
    one_by_one, replicas, in_common = True, False, ("sum",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self.name, "ServerSGD: name", SERVER_RULES)
        if self.k > 1 and SERVER_RULES[self.name].number != "k":
            raise ModelError(f"ServerSGD: {self.name!r} applies every gradient by itself, so k must be 1, got {self.k}")

    def begin(self, start: np.ndarray, workers: int) -> State:
        rule, none = SERVER_RULES[self.name], np.zeros((len(start), workers), int)
        if self.k > workers and rule.gathers and not rule.repeats:
            raise ModelError(f"ServerSGD: {self.name!r} needs at least k = {self.k} workers, got {workers}")
        return super().begin(start, workers) | {
            "copies": np.repeat(start[:, None], workers, axis=1), "staleness": np.zeros(len(start)),
            "version": none.copy(), "done": none, "waits": none > 0,
        }  # fmt: skip

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        waits, version, done = (state[name] for name in ("waits", "version", "done"))
        rule, completed = SERVER_RULES[self.name], (np.arange(len(gradients)), moment.workers)
        updates, rest = divmod(moment.number, self.k)
        due = rest + 1 == self.k
        state["staleness"] += updates - version[completed]
        state["sum"] += gradients
        waits[completed] = True
        done[completed] += 1
        if due:
            state["x"] -= moment.rate / self.k * state["sum"]
            state["sum"][:] = 0.0
        ahead = done - done.min(axis=1, keepdims=True) > (self.staleness_bound if rule.bounded else np.inf)
        renewed = (waits | rule.cuts) & (due or not rule.gathers) & ~ahead
        run, worker = np.nonzero(renewed)
        state["copies"][run, worker] = state["x"][run, 0]
        version[renewed] = updates + due
        begin = waits if rule.repeats and not due else renewed
        state["waits"] = waits & ~begin
        bits = WORD * gradients.shape[-1]
        return Sent(bits, bits, begin=begin)


SERVER, RANKS = "with a parameter server", "of data-parallel rounds"


def update_rules(workers: int) -> dict[str, tuple[Strategy, dict[str, Any], str]]:
    """The table by name: the rule, arguments of `predict` for the times of its gradients, the profile that it needs.

    Without arguments its workers meet, and without a profile any will do; k is half of the workers.
    """
    k, backup = max(workers // 2, 1), min(workers - 1, 1)
    late = {"strategy": "sync-ps", "backup_workers": backup}
    stale = {"strategy": "bounded-staleness", "staleness_bound": 2}
    half = ("k-sync", "k-batch-sync", "k-async", "k-batch-async")
    return {
        "sync": (SynchronousSGD(), {}, ""),
        "local-sgd": (LocalSGD(8), {}, ""),
        "adacomm": (AdaComm(16), {}, ""),
        "overlap-local-sgd": (OverlapLocalSGD(2), {}, ""),
        "top-k": (DoubleCompression(TopK(0.01)), {}, ""),
        "block-sign": (DoubleCompression(BlockSign(8)), {}, ""),
        "block-sign-local": (DoubleCompression(BlockSign(8), local_steps=8), {}, ""),
        "adaquant": (AdaQuantFL(8), {}, ""),
        "async-ps": (ServerSGD(), {"strategy": "async-ps"}, SERVER),
        "backup-worker": (ServerSGD("k-sync", workers - backup), late, SERVER),
        **{name: (ServerSGD(name, k), {"strategy": name, "k": k}, SERVER) for name in half},
        "bounded-staleness": (ServerSGD("bounded-staleness", staleness_bound=2), stale, SERVER),
        "ordered-gradient": (OrderedGradient(), {}, SERVER),
        "squarm-ring": (SquarmSGD("ring", BlockSign(8), mixing=0.3), {}, RANKS),
    }
