"""One kind of job in a mix, and how much work its jobs do."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from ..checks import require_count, require_name, require_number
from .curves import TableCurve, as_curve
from .ends import Completes, EndLaw
from .jobs import training_steps
from .speed_tables import speed_at


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind of job in a mix.

    Parameters
    ----------
    name : str
    curve : callable, mapping or ThroughputCurve
        Steps per second against nodes.
    steps : float
        Mean work.
    variation : float, default 1
        Coefficient of variation of the work, at most 1000: 0 all the same, 1 exponential, else lognormal.
    requested_nodes, least_nodes, most_nodes : int
        A table's, or `ThroughputCurve`'s, largest node count is the most unless one is given.
    weight : float, default 1
        Share of the jobs, relative to the other kinds.
    end : EndLaw
    """

    name: str
    _: KW_ONLY
    curve: Any
    steps: float
    variation: float = 1.0
    requested_nodes: int = 1
    least_nodes: int = 1
    most_nodes: int | None = None
    weight: float = 1.0
    end: EndLaw = field(default_factory=Completes)

    def __post_init__(self) -> None:
        require_name(self.name, "kind")
        what = f"kind {self.name!r}"
        require_number(self.steps, f"{what}: steps", positive=True)
        require_number(self.variation, f"{what}: variation", largest=1000)
        require_number(self.weight, f"{what}: weight", positive=True)
        require_count(self.requested_nodes, f"{what}: requested_nodes")
        object.__setattr__(self, "curve", as_curve(self.curve))
        if self.most_nodes is None and isinstance(self.curve, TableCurve):
            object.__setattr__(self, "most_nodes", int(self.curve.points[-1][0]))
        speed_at(self.curve, self.requested_nodes, what)

    @classmethod
    def training(cls, name: str, *, epochs: float, dataset_size: int, batch_size: int, **rest: Any) -> JobKind:
        """A kind whose jobs pass over a data set so many times on average; a step treats ``batch_size`` examples."""
        return cls(name, steps=training_steps(epochs, dataset_size, batch_size, f"kind {name!r}"), **rest)

    @property
    def service(self) -> float:
        """Mean node-seconds on the requested nodes."""
        return self.requested_nodes * self.steps / float(self.curve(self.requested_nodes))

    def sample(self, rng: np.random.Generator) -> float:
        """Work of one job, in steps."""
        if self.variation == 0:
            return self.steps
        if self.variation == 1:
            return self.steps * float(rng.exponential())
        s2 = math.log1p(self.variation**2)
        return self.steps * float(rng.lognormal(-s2 / 2, math.sqrt(s2)))
