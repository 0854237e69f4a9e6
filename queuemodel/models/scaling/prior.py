"""What jobs are like before they are measured: each parameter of the law a function of a standard normal coordinate.

Means and spreads of transformed parameters, and shares of jobs by growth exponent, are learnt by kind of job from
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
from .law import Values

Kind = Literal["all-reduce", "sync-ps", "sparse gradients", "async-ps"]


class Coordinate(NamedTuple):
    """A parameter: its transform of a normal number, its unit ("step": of the smallest group), what it is."""

    name: str
    transform: Literal["log", "logit", "linear", "normal cdf", "share"]
    unit: str
    note: str


SYNCHRONOUS = (
    Coordinate("forward share", "logit", "", "of computation, before the first gradient"),
    Coordinate("straggling", "log", "", "spread of a worker's computation, relative to its mean"),
    Coordinate("inside a node", "log", "step", "all-reduce of two workers of one node"),
    Coordinate("between nodes", "log", "step", "all-reduce of two nodes, one worker each"),
    Coordinate("link sharing", "linear", "", "exponent of the workers on a node"),
    Coordinate("growth", "share", "", "exponent of the all-reduce beyond two nodes; -1: a ring, 1: linear"),
    Coordinate("latency", "log", "step", "added to the all-reduce by the third and fourth node"),
    Coordinate("latency growth", "normal cdf", "", "exponent of that beyond four nodes"),
)
ASYNCHRONOUS = (
    Coordinate("demand", "normal cdf", "step", "of the busiest server, per step"),
    Coordinate("growth", "share", "", "exponent of the servers' load; 1: servers stay as they are"),
    Coordinate("sharpness", "log", "", "exponent of the maximum of computation and servers' load"),
)
COMMON = (
    Coordinate("batch exponent", "linear", "", "of computation, outside the batch sizes of the smallest group"),
    Coordinate("misfit", "log", "", "relative error of the law at measured sizes"),
)


def _normal_cdf(x: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return np.asarray(ndtr(x))


TRANSFORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "log": np.exp, "logit": lambda x: 1.0 / (1.0 + np.exp(-x)), "linear": np.asarray, "normal cdf": _normal_cdf,
}  # fmt: skip
_TABLE = constants(__package__, "prior.toml")
NUMBERS: dict[str, float] = _TABLE["numbers"]
EXPONENTS: dict[str, list[float]] = _TABLE["exponents"]


@dataclass(frozen=True)
class Prior:
    """What jobs of one kind are like.

    Attributes
    ----------
    kind : {"all-reduce", "sync-ps", "sparse gradients", "async-ps"}
    learnt : dict
        Mean and spread of transformed parameters, beside those that are assumed.
    growth : tuple of float
        Shares of jobs by growth exponent.
    bytes, link : float or None
        Of asynchronous servers, which then stay as they are: parameter bytes, and nominal bytes per second of a link.
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
        return (*(ASYNCHRONOUS if self.asynchronous else SYNCHRONOUS), *COMMON)

    def values(self, u: np.ndarray, reference: float) -> Values:
        """Parameters (B, 1) of coordinates (B, ...), where a step of the smallest group takes ``reference`` seconds."""
        found, normal = {}, _TABLE["assumed"] | self.learnt
        for (name, transform, *_), z in zip(self.coordinates, np.clip(u.T, -8.0, 8.0), strict=True):
            mean, spread = normal.get(name, (0.0, 1.0))
            if name == "latency":  # a heavy upper tail
                z = z + NUMBERS["stretch"] * np.clip(z, 0.0, 5.0) ** 3
            if transform == "share":
                found[name] = self._exponents(_normal_cdf(z))
            elif name == "demand" and self.bytes:
                found[name] = self.bytes / self._server_rate(z) / reference
            else:
                found[name] = TRANSFORMS[transform](mean + spread * z)
        return {name: x[:, None] for name, x in found.items()}

    def _exponents(self, quantile: np.ndarray) -> np.ndarray:
        if self.asynchronous and self.bytes:
            return np.ones(len(quantile))
        exponents = np.array(EXPONENTS["asynchronous" if self.asynchronous else "synchronous"])
        return exponents[np.searchsorted(np.cumsum(self.growth)[:-1] / sum(self.growth), quantile)]

    def _server_rate(self, z: np.ndarray) -> np.ndarray:
        """Bytes per second of a saturated server: Student's t about published ones, at most what its link carries."""
        from scipy.special import stdtrit

        server = _TABLE["server"]
        freedom = server["freedom" if self.link is None else "freedom_on_links"]
        log_rate = math.log(server["rate"]) + server["spread"] * stdtrit(freedom, _normal_cdf(-z))
        if self.link is not None:
            log_rate = np.minimum(log_rate, math.log(LINK_EFFICIENCY * self.link) - server["link_spread"] * z)
        return np.exp(np.clip(log_rate, 0.0, 60.0))
