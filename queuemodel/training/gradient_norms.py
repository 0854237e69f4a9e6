"""Gradients of one step as the gradient noise scale needs them: each worker's own, and their mean."""

from __future__ import annotations

import msgspec

from ..checks import require_number
from ..errors import DataError

#: Squared norms of single-precision gradients end here.
LARGEST_NORM = 1e80

#: By how much rounding may make a mean longer than what it is the mean of.
ROUNDING = 1e-3


class GradientNorms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Squared norms of one step's gradients, all parameters together."""

    workers: list[float]  # Of each worker's own gradient on its own batch, before they are reduced; two or more
    mean: float  # Of the mean of the workers' gradients

    def __post_init__(self) -> None:
        if len(self.workers) < 2:
            raise DataError(f"workers must be squared norms of two workers or more, got {len(self.workers)}")
        for value in (*self.workers, self.mean):
            require_number(value, "squared norm of a gradient", largest=LARGEST_NORM, error=DataError)
        most = sum(self.workers) / len(self.workers)
        if self.mean > (1 + ROUNDING) * most:
            raise DataError(
                f"mean must be the squared norm of the mean gradient, at most the workers' mean, {most!r}, "
                f"got {self.mean!r}"
            )

    @property
    def alike(self) -> bool:
        """Whether all workers had the same gradient: they trained on the same examples, which tells no noise."""
        return self.mean > (1 - ROUNDING) * sum(self.workers) / len(self.workers)
