"""What approximate mean-value analyses share: how long a customer stays, given the queues it meets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..checks import require_choice
from ..network import Network, Place
from .lowering import Chains, chains_of

MULTI_SERVER = ("suri", "seidmann")


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Arrays of a network: demands D, visits V, service times S and their scv, all (K, C); Z and N (C,)."""

    chains: Chains
    D: np.ndarray
    V: np.ndarray
    S: np.ndarray
    scv: np.ndarray
    Z: np.ndarray
    N: np.ndarray
    servers: np.ndarray
    fcfs: np.ndarray
    forks: dict[int, Place]
    curves: dict[int, np.ndarray]
    multi_server: str

    def residence(self, A: np.ndarray, U: np.ndarray, *, rarer: bool = True) -> np.ndarray:
        """R (K, C), given the queues A (K, R, C) of class r that class c meets, and utilizations U likewise.

        Processor sharing: D (1 + A). First come first served (Reiser, 1979; Eager, Sorin and Vernon, 2000): who waits
        is served before, who is in service needs his residual life: S (1 + scv) / 2 at an idle station, S at a busy
        one, where customers mostly come just after another has left (the straight line between is ours, measured to
        err a quarter as much as the residual life alone). Several servers: waiting is
        1/m of that, and rarer by rho**(4.464 (m**0.676 - 1)) (Suri, Sahu and Vernon, 2007) unless that is left to the
        caller. Fork-join: the slowest of the branches' responses, see `_fork_join`.
        """
        met = A.sum(axis=1)
        R = self.D * (1.0 + met)
        if self.fcfs.any():
            S, D = self.S[:, :, None], self.D
            full = np.minimum(U.sum(axis=1, keepdims=True), 1.0)
            residual = S * (1.0 + 0.5 * (self.scv[:, :, None] - 1.0) * (1.0 - full))
            waiting = self.V * (S * np.maximum(A - U, 0.0) + residual * np.minimum(U, A)).sum(axis=1)
            R = np.where(self.fcfs[:, None], D + waiting, R)
        for k in np.flatnonzero(self.servers > 1).tolist():
            m = self.servers[k]
            rho = np.minimum(U[k].sum(axis=0) / m, 1.0) if rarer else 1.0
            R[k] = self.D[k] + (R[k] - self.D[k]) / m * rho ** suri_exponent(m)
        for k, fork in self.forks.items():
            rho = np.minimum(U[k].sum(axis=0), 1.0)
            slowest = [_fork_join(fork, a, u) for a, u in zip(met[k].tolist(), rho.tolist(), strict=True)]
            R[k] = self.V[k] * slowest
        for k, curve in self.curves.items():
            n = 1.0 + met[k]
            R[k] = self.D[k] * n / np.interp(n, np.arange(1, len(curve) + 1), curve)
        R[self.chains.delay] = self.D[self.chains.delay]
        return R

    def with_servers(self, R: np.ndarray, customers: int) -> np.ndarray:
        """R (K,) of one class where waiting at several servers is as rare as the throughput makes it that follows.

        Taken from one customer fewer, throughputs would jump from one population to the next.
        """
        several = np.flatnonzero(self.servers > 1)
        if not len(several):
            return R
        least, m = self.D[several, 0], self.servers[several]
        waiting, rest = R[several] - least, float(self.Z[0] + R.sum() - R[several].sum() + least.sum())
        powers = suri_exponent(m)
        low, high = 0.0, customers / rest  # throughput without waiting there
        for _ in range(50):
            middle = 0.5 * (low + high)
            rare = np.minimum(middle * least / m, 1.0) ** powers
            low, high = (middle, high) if middle * (rest + waiting @ rare) < customers else (low, middle)
        R[several] = least + waiting * np.minimum(high * least / m, 1.0) ** powers
        return R

    def busy(self, X: np.ndarray, Q: np.ndarray) -> np.ndarray | None:
        """About how often somebody is at each load-dependent station, for throughputs (n, C) and queues (n, K).

        Work done, X D, is that share times the mean speed with the customers that are there then: about one, and more
        whose number is spread exponentially.
        """
        if not self.curves:
            return None
        share = np.full(Q.shape, np.nan)
        spread = -np.log((np.arange(16) + 0.5) / 16)
        for k, curve in self.curves.items():
            work = X @ self.D[k]
            p = 1.0 - np.exp(-Q[:, k])  # as if nobody waited
            for _ in range(30):
                more = np.maximum(Q[:, k] / np.maximum(p, 1e-300) - 1.0, 0.0)
                speed = np.interp(1.0 + more[:, None] * spread, np.arange(1, len(curve) + 1), curve).mean(axis=1)
                p = np.clip(0.5 * (p + work / speed), 0.0, 1.0)
            share[:, k] = p
        return share


def model_of(network: Network, population: int | tuple[int, ...], multi_server: str = "suri") -> Model:
    """The arrays of a network at a population."""
    require_choice(multi_server, "multi_server", MULTI_SERVER)
    chains = chains_of(network, population)
    V, S, second = _visits(network)
    total = range(1, int(chains.N.sum()) + 1)
    stations = list(enumerate(network.stations))
    with np.errstate(invalid="ignore", divide="ignore"):
        scv = np.where(S > 0, np.maximum(second / (S * S) - 1.0, 0.0), 1.0)
    return Model(
        chains,
        chains.D,
        V,
        S,
        scv,
        chains.Z,
        chains.N,
        servers=np.array([1.0 if s.is_delay else s.servers for s in network.stations]),
        fcfs=np.array([s.discipline == "fcfs" and not s.is_delay for s in network.stations]),
        forks={k: s for k, s in stations if s.branches},
        curves={k: np.array([s.rate(n) for n in total]) for k, s in stations if s.rates is not None},
        multi_server=multi_server,
    )


def suri_exponent(servers: Any) -> Any:
    """How fast waiting at several servers becomes rare as they are less busy."""
    return 4.464 * (servers**0.676 - 1.0)


def _visits(network: Network) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Visits, mean service times and second moments of chains, each (K, C)."""
    V, S = network.class_visit_ratios, network.class_service_times
    second = np.array([[1.0 + s.scv_of(c) for c in network.labels] for s in network.stations]) * S * S
    groups = [list(chain) for chain in network.chains]
    visits = np.array([V[:, g].sum(axis=1) for g in groups]).T
    with np.errstate(invalid="ignore", divide="ignore"):
        times, squares = (
            np.where(visits > 0, np.array([(V * x)[:, g].sum(axis=1) for g in groups]).T / visits, 0.0)
            for x in (S, second)
        )
    return visits, times, squares


def split_seidmann(model: Model) -> Model:
    """Seidmann, Schweitzer and Shalev-Oren (1987): m servers are one m times as fast, and a delay for the rest."""
    m = model.servers
    rest = (model.D * ((m - 1.0) / m)[:, None]).sum(axis=0)
    return replace(model, D=model.D / m[:, None], S=model.S / m[:, None], Z=model.Z + rest, servers=np.ones(len(m)))


def rejoin_seidmann(model: Model, R: np.ndarray) -> np.ndarray:
    """Residence times of the stations that were split."""
    rest: np.ndarray = model.D * ((model.servers - 1.0) / model.servers)[:, None]
    return R + rest


def _fork_join(station: Place, met: float, rho: float) -> float:
    """Time at a fork-join where ``met`` customers are found.

    Each branch is a queue of its own, r_b = S_b (1 + A_b), with the part r_b / R of the customers here; the slowest of
    independent responses, whose excess over the largest mean is less by rho / 4 since branches are busy together
    (Nelson and Tantawi, 1988, for two branches; here also for others, approximate).
    """
    S = np.array(station.branches)
    scv = (station.scv_of(None) + met) / (1.0 + met)  # of responses: queues make them exponential
    share, R = S / max(float(S.sum()), 1e-300), 0.0
    for _ in range(6):
        r = S * (1.0 + met * share)
        largest = float(r.max())
        R = largest + (largest_mean(r.tolist(), scv) - largest) * (1.0 - rho / 4.0)
        share = r / max(R, 1e-300)
    return R


def largest_mean(means: Any, scv: float = 1.0) -> float:
    """Mean of the largest of independent gamma variables of given means (seconds) and common scv, to about 1e-7.

    For equal exponential ones it is the mean times the harmonic number 1 + 1/2 + ... + 1/B.
    """
    times = np.array([t for t in means if t > 0], dtype=float)
    if len(times) < 2 or scv < 1e-6:
        return float(times.max(initial=0.0))
    if scv == 1.0 and len(set(times.tolist())) == 1:
        return float(times[0] * (1.0 / np.arange(1, len(times) + 1)).sum())
    if scv == 1.0 and len(times) <= 8:  # inclusion and exclusion of exponential variables
        subsets = (np.arange(1, 2 ** len(times))[:, None] >> np.arange(len(times))) & 1
        signs = np.where(subsets.sum(axis=1) % 2 == 1, 1.0, -1.0)
        return float((signs / (subsets / times).sum(axis=1)).sum())
    from scipy.special import gammainc, gammaincinv

    shape = 1.0 / scv
    end = float(times.max()) * float(gammaincinv(shape, 1.0 - 1e-15)) / shape
    x = np.linspace(0.0, end, 20_001)
    above = 1.0 - np.prod([gammainc(shape, shape * x / t) for t in times], axis=0)
    return float((above[0] + above[-1] + 4 * above[1::2].sum() + 2 * above[2:-1:2].sum()) * (x[1] / 3))  # Simpson
