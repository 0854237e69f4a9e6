"""How a job's life ends: which share of its work it really does."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Protocol

import numpy as np

from ..checks import require_number, require_share


class EndLaw(Protocol):
    """How a job's life ends: which share of its work it really does."""

    def sample(self, rng: np.random.Generator) -> float:
        """Share of the work done when the job ends, in (0, 1]; 1: it completes."""


@dataclass(frozen=True, slots=True)
class Completes:
    """The job does all its work."""

    def sample(self, rng: np.random.Generator) -> float:
        """Always 1."""
        return 1.0


@dataclass(frozen=True, slots=True)
class EndsEarly:
    """The job is terminated early with a probability, as users kill runs whose loss does not fall.

    Parameters
    ----------
    probability : float
        That it is terminated at all.
    alpha, beta : float, default 1
        The progress at termination is Beta(alpha, beta); 1 and 1: uniform over the work.
    """

    probability: float
    _: KW_ONLY
    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        require_share(self.probability, "end law: probability")
        require_number(self.alpha, "end law: alpha", positive=True)
        require_number(self.beta, "end law: beta", positive=True)

    def sample(self, rng: np.random.Generator) -> float:
        """One share; both numbers are always drawn, so that streams stay aligned."""
        chance, share = rng.random(), rng.beta(self.alpha, self.beta)
        return max(float(share), 1e-9) if chance < self.probability else 1.0
