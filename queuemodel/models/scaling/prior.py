"""The prior of the law: each parameter is a function of a standard normal coordinate.

Means and spreads of transformed parameters, and shares of jobs by growth exponent, are learnt by kind of job from
published series and clusters (prior.toml; `python -m validation.scaling --write`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from ...base.files import constants
from ...profile.bandwidth import LINK_EFFICIENCY
from ...profile.gathers import Gather
from ...profile.scenario import PRECISIONS, SHARDED
from .law import Values

Kind = Literal["all-reduce", "sync-ps", "sparse gradients", "async-ps", "fsdp", "hsdp", "zero-1"]

_TABLE = constants(__package__, "prior.toml")
PRIOR_NUMBERS: dict[str, float] = _TABLE["numbers"]
SHARDED_JOBS: dict[str, Any] = _TABLE["sharded"]
EXPONENTS: dict[str, list[float]] = _TABLE["exponents"]


class Coordinate(NamedTuple):
    """A parameter: its transform of a normal number, its unit ("step": of the smallest group), and a note."""

    name: str
    transform: Literal["log", "logit", "linear", "normal cdf", "share"]
    unit: str
    note: str


WORKERS = (
    Coordinate("forward share", "logit", "", "of computation, before the first gradient"),
    Coordinate("straggling", "log", "", "spread of a worker's computation, relative to its mean"),
    Coordinate("inside a node", "log", "step", "all-reduce of two workers of one node, or two gathers"),
)
REDUCING = (
    *WORKERS,
    Coordinate("between nodes", "log", "step", "all-reduce of two nodes, one worker each"),
    Coordinate("link sharing", "linear", "", "exponent of the workers on a node"),
    Coordinate("growth", "share", "", "exponent of the all-reduce beyond two nodes; -1: a ring, 1: linear"),
    Coordinate("latency", "log", "step", "added to the all-reduce by the third and fourth node"),
    Coordinate("latency growth", "normal cdf", "", "exponent of that beyond four nodes"),
)
SHARDING = (
    *WORKERS,
    Coordinate("gather", "log", "step", "all parameters' bytes over a node's bandwidth"),
    Coordinate("latency", "log", "step", "of a gather of all layers, for each further rank"),
)
ASYNCHRONOUS = (
    Coordinate("demand", "normal cdf", "step", "of the busiest server, per step"),
    Coordinate("growth", "share", "", "exponent of the servers' load; 1: servers stay as they are"),
    Coordinate("sharpness", "log", "", "exponent of the maximum of computation and servers' load"),
)
COMMON = (
    Coordinate("batch exponent", "linear", "", "of computation, above the batch sizes of the smallest group"),
    Coordinate("misfit", "log", "", "relative error of the law at measured sizes"),
)


def _normal_cdf(x: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return np.asarray(ndtr(x))


TRANSFORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "log": np.exp, "logit": lambda x: 1.0 / (1.0 + np.exp(-x)), "linear": np.asarray, "normal cdf": _normal_cdf,
}  # fmt: skip


@dataclass(frozen=True)
class Prior:
    """The prior of jobs of one kind."""

    kind: Kind
    learnt: dict[str, tuple[float, float]]  # Mean and spread of transformed parameters; those of others are assumed
    growth: tuple[float, ...]  # Shares of jobs by growth exponent
    #: Of asynchronous servers, whose number then does not grow: parameter bytes, and nominal bytes per second of a
    #: link. Of sharded parameters: the bytes that a gather of all of them brings
    bytes: float | None = None
    link: float | None = None
    layers: float | None = None  # Gathers of a forward pass
    #: Mean and spread of the logarithm of seconds, of a byte gathered and of a message, if bytes and layers are known
    cluster: dict[str, tuple[float, float]] = field(default_factory=lambda: SHARDED_JOBS["cluster"])

    @classmethod
    def of(cls, kind: Kind, **known: Any) -> Prior:
        """The prior learnt from all sources."""
        if kind in SHARDED:
            return cls(kind, SHARDED_JOBS["job"], (), **known)
        return cls(kind, _TABLE["learnt"][kind], tuple(_TABLE["growth"][kind]), **known)

    @classmethod
    def sharded(
        cls, kind: Kind, *, parameters: float | None = None, layers: float | None = None, precision: str | None = None,
        cluster: dict[str, tuple[float, float]] | None = None,
    ) -> Prior:  # fmt: skip
        """The prior of sharded jobs; unless given, layers are those of a transformer of this size, precision bf16."""
        L_0, N_0, e = SHARDED_JOBS["layers"]
        layers = layers or (parameters and L_0 * (parameters / N_0) ** e)  # a power law of the parameters
        gathered = parameters and parameters * PRECISIONS[precision or "bf16"]  # bytes of a parameter
        return cls.of(kind, bytes=gathered, layers=layers, cluster=cluster or SHARDED_JOBS["cluster"])

    @property
    def asynchronous(self) -> bool:
        """Whether workers are asynchronous."""
        return self.kind == "async-ps"

    @property
    def drift(self) -> float:
        """Error of the law beyond the measured sizes, in misfits per square root of a doubling."""
        return float(SHARDED_JOBS["drift"] if self.kind in SHARDED else PRIOR_NUMBERS["drift"])

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """Coordinates of the law of such jobs."""
        specific = ASYNCHRONOUS if self.asynchronous else SHARDING if self.kind in SHARDED else REDUCING
        return (*specific, *COMMON)

    def normal(self, name: str, reference: float) -> tuple[float, float]:
        """Mean and spread of a transformed parameter."""
        size = {"gather": self.bytes, "latency": self.layers}.get(name) if self.kind in SHARDED else None
        if size:  # known bytes or layers: the cluster's seconds of each, over the step
            mean, spread = self.cluster[name]
            return mean + math.log(size / reference), spread
        return self.learnt.get(name) or _TABLE["assumed"].get(name, (0.0, 1.0))

    def values(self, u: np.ndarray, reference: float) -> Values:
        """Parameters (B, 1) of coordinates (B, ...), where a step of the smallest group takes ``reference`` seconds."""
        values = {}
        for (name, transform, *_), z in zip(self.coordinates, np.clip(u.T, -8.0, 8.0), strict=True):
            mean, spread = self.normal(name, reference)
            if name == "latency":  # a heavy upper tail: z + a z^3
                z = z + PRIOR_NUMBERS["stretch"] * np.clip(z, 0.0, 5.0) ** 3
            if transform == "share":
                x = self._exponents(_normal_cdf(z))
            elif name == "demand" and self.bytes:
                x = self.bytes / self._server_rate(z) / reference  # V / rate, over the step
            else:
                x = TRANSFORMS[transform](mean + spread * z)
            values[name] = x[:, None]
        return values

    def _exponents(self, quantile: np.ndarray) -> np.ndarray:
        """Growth exponents at quantiles of their shares of jobs."""
        if self.asynchronous and self.bytes:
            return np.ones(len(quantile))  # servers stay as they are: their load is linear
        exponents = np.array(EXPONENTS["asynchronous" if self.asynchronous else "synchronous"])
        return exponents[np.searchsorted(np.cumsum(self.growth)[:-1] / sum(self.growth), quantile)]

    def _server_rate(self, z: np.ndarray) -> np.ndarray:
        """Bytes per second of a saturated server: Student's t about published ones, at most what its link carries."""
        from scipy.special import stdtrit

        server = _TABLE["server"]
        freedom = server["freedom" if self.link is None else "freedom_on_links"]
        # log rate = mean + s t_f(Phi(-z)): a slow server has a large demand
        log_rate = math.log(server["rate"]) + server["spread"] * stdtrit(freedom, _normal_cdf(-z))
        if self.link is not None:
            log_rate = np.minimum(log_rate, math.log(LINK_EFFICIENCY * self.link) - server["link_spread"] * z)
        return np.exp(np.clip(log_rate, 0.0, 60.0))


def of_gathers(gathers: Iterable[Gather], gpus_per_node: int) -> dict[str, tuple[float, float]]:
    """Mean and spread of the logarithm of seconds, of a byte and of a message, from all-gathers on several nodes.

    A time is S of `law`, of one layer; the posterior's mode by Gauss-Newton, and its curvature (Laplace).
    """
    rows = [g for g in gathers if g.nodes > 1]
    bytes_sent = [g.bytes * (1.0 - 1.0 / g.nodes) for g in rows]
    messages = [g.nodes * (g.gpus_per_node or gpus_per_node) - 1.0 for g in rows]
    counts = np.column_stack([bytes_sent, messages])
    prior, spread = np.array([SHARDED_JOBS["cluster"][name] for name in ("gather", "latency")]).T
    log_time, x, error = np.log([g.seconds for g in rows]), prior.copy(), PRIOR_NUMBERS["gather_error"]
    for _ in range(50):
        parts = counts * np.exp(x)  # S = bytes e^x_1 + messages e^x_2
        slope = parts / parts.sum(axis=1, keepdims=True)  # d log S / d x
        precision = np.diag(spread**-2) + slope.T @ slope / error**2
        gradient = (prior - x) / spread**2 + slope.T @ (log_time - np.log(parts.sum(axis=1))) / error**2
        x = x + np.clip(np.linalg.solve(precision, gradient), -1.0, 1.0)
    errors = np.sqrt(np.diag(np.linalg.inv(precision)) + PRIOR_NUMBERS["other_job"] ** 2)
    return dict(zip(("gather", "latency"), zip(x.tolist(), errors.tolist(), strict=True), strict=True))
