"""What jobs are like before they are measured: each parameter of the law a function of a standard normal coordinate.

Means and spreads of the transformed parameters, and the shares of jobs by growth exponent, are learnt by kind of job from
published series and clusters (prior.toml; `python -m validation.scaling --write`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ...base.files import constants
from ...profile.bandwidth import LINK_EFFICIENCY
from .law import EXPONENTS, Values

Kind = Literal["all-reduce", "sync-ps", "sparse gradients", "async-ps"]


class Coordinate(NamedTuple):
    """A parameter: how it follows from a normal number, its unit ("step": of the smallest group), what it is."""

    name: str
    transform: Literal["log", "logit", "linear", "uniform", "share"]
    unit: str
    note: str


SYNCHRONOUS = (
    Coordinate("forward share", "logit", "", "of computation, before the first gradient"),
    Coordinate("straggling", "log", "", "spread of a worker's computation, relative to its mean"),
    Coordinate("inside a node", "log", "step", "all-reduce of two workers of one node"),
    Coordinate("between nodes", "log", "step", "all-reduce of two nodes, one worker each"),
    Coordinate("link sharing", "linear", "", "exponent of the workers on a node"),
    Coordinate("growth", "share", "", "exponent of the all-reduce beyond two nodes; -1: a ring's bandwidth, 1: linear"),
    Coordinate("latency", "log", "step", "added to the all-reduce by the third and fourth node"),
    Coordinate("latency growth", "uniform", "", "exponent of that beyond four nodes"),
)
ASYNCHRONOUS = (
    Coordinate("demand", "uniform", "step", "of the busiest server, per step"),
    Coordinate("growth", "share", "", "exponent of the servers' load; 1: servers stay as they are"),
    Coordinate("sharpness", "log", "", "exponent of the maximum of computation and servers' load"),
)
COMMON = (
    Coordinate("batch exponent", "linear", "", "of computation, outside the batch sizes of the smallest group"),
    Coordinate("misfit", "log", "", "relative error of the law at measured sizes"),
)
TRANSFORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "log": np.exp, "logit": lambda x: 1.0 / (1.0 + np.exp(-x)), "linear": np.asarray, "uniform": lambda x: _normal_cdf(x),
}  # fmt: skip
_TABLE = constants(__package__, "prior.toml")
ASSUMED: dict[str, tuple[float, float]] = _TABLE["assumed"]
NUMBERS: dict[str, float] = _TABLE["numbers"]
SERVER: dict[str, float] = _TABLE["server"]


@dataclass(frozen=True)
class Prior:
    """What jobs of one kind are like.

    Attributes
    ----------
    kind : {"all-reduce", "sync-ps", "sparse gradients", "async-ps"}
    learnt : dict
        Mean and spread of transformed parameters, beside those of `ASSUMED`.
    growth : tuple of float
        Share of jobs by growth exponent (`EXPONENTS`).
    bytes : float or None
        Of the parameters on asynchronous servers, if known: these stay as they are.
    link : float or None
        Nominal bytes per second of a server's link, if known.
    """

    kind: Kind
    learnt: dict[str, tuple[float, float]]
    growth: tuple[float, ...]
    bytes: float | None = None
    link: float | None = None

    @classmethod
    def of(cls, kind: Kind, **known: float | None) -> Prior:
        """As learnt from all sources."""
        return cls(kind, _TABLE["learnt"][kind], tuple(_TABLE["growth"][kind]), **known)

    @property
    def asynchronous(self) -> bool:
        return self.kind == "async-ps"

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """Of a job; those of `COMMON` last."""
        return (*(ASYNCHRONOUS if self.asynchronous else SYNCHRONOUS), *COMMON)

    def values(self, u: np.ndarray, reference: float) -> Values:
        """Parameters (B, 1) of coordinates (B, ...), where the smallest group's computation takes ``reference`` s."""
        found = {}
        for (name, transform, *_), one in zip(self.coordinates, u.T, strict=False):
            mean, spread = (self.learnt | ASSUMED).get(name, (0.0, 1.0))
            if name == "latency":  # a heavy upper tail
                one = one + NUMBERS["stretch"] * np.maximum(one, 0.0) ** 3
            if name == "demand" and self.bytes:
                found[name] = self.bytes / self._server_rate(one)[:, None] / reference
            elif transform == "share":
                found[name] = self._exponent(_normal_cdf(one))[:, None]
            else:
                found[name] = TRANSFORMS[transform](mean + spread * one)[:, None]
        return found

    def _exponent(self, quantile: np.ndarray) -> np.ndarray:
        exponents = np.array(EXPONENTS["asynchronous" if self.asynchronous else "synchronous"])
        if self.asynchronous and self.bytes:
            return np.ones(len(quantile))
        return exponents[np.searchsorted(np.cumsum(self.growth)[:-1] / sum(self.growth), quantile)]

    def _server_rate(self, u: np.ndarray) -> np.ndarray:
        """Bytes per second of a saturated server: Student's t about published ones, and at most what its link carries."""
        from scipy.special import stdtrit

        freedom = SERVER["freedom" if self.link is None else "freedom_on_links"]
        log_rate = math.log(SERVER["rate"]) + SERVER["spread"] * stdtrit(freedom, _normal_cdf(-u))
        if self.link is not None:
            log_rate = np.minimum(log_rate, math.log(LINK_EFFICIENCY * self.link) - SERVER["link_spread"] * u)
        return np.exp(np.clip(log_rate, 0.0, 60.0))


def _normal_cdf(x: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return np.asarray(ndtr(x))
