"""Jobs whose speed falls or rises as they train: stretches of their work, each with a curve of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..checks import require_number
from ..errors import ModelError
from .curves import TableCurve, as_curve
from .phases import Phase
from .speed_tables import speed_table


@dataclass(frozen=True, slots=True, eq=False)
class StagedCurve:
    """A curve for each stretch of a job's work; as one curve, the mean speed over all of it.

    A simulation runs each stretch at its own curve, and shows it to policies that know curves. Policies that divide
    nodes run and see the mean.

    Parameters
    ----------
    stretches : sequence of pairs (length, curve)
        Lengths are relative: the job's steps are divided in their proportion.

    Raises
    ------
    ModelError
        When there is no stretch, a length is no number > 0, or a curve is none.

    Examples
    --------
    >>> slower = StagedCurve([(1, {1: 4.0, 2: 8.0}), (1, {1: 2.0, 2: 4.0})])
    >>> round(slower(2), 3)
    5.333
    """

    stretches: Sequence[tuple[float, Callable[[float], float]]]

    def __post_init__(self) -> None:
        try:
            pairs = [(length, curve) for length, curve in self.stretches]
        except (TypeError, ValueError):
            raise ModelError(f"staged curve: must be pairs (length, curve), got {self.stretches!r}") from None
        if not pairs:
            raise ModelError("staged curve: needs at least one pair (length, curve), got none")
        checked = tuple(
            (require_number(length, "staged curve: length", positive=True), as_curve(curve)) for length, curve in pairs
        )
        object.__setattr__(self, "stretches", checked)

    def __call__(self, nodes: float, /) -> float:
        """Mean steps per second over all of the work."""
        lengths, curves = zip(*self.stretches, strict=True)
        return float(sum(lengths) / sum(length / curve(nodes) for length, curve in zip(lengths, curves, strict=True)))

    def phases(
        self, steps: float, least: int, most: int, what: str, seen: Callable[[float], float] | None
    ) -> tuple[Phase, ...]:
        """The phases of a job of so many steps on ``least`` to ``most`` nodes; policies see ``seen`` if it is given."""
        lengths = np.array([length for length, _ in self.stretches])
        ends = np.cumsum(lengths) / lengths.sum() * steps
        ends[-1] = steps
        tables = [speed_table(curve, least=least, most=most, what=what) for _, curve in self.stretches]
        curves = [TableCurve([(n, speeds[n]) for n in range(least, most + 1)]) for speeds in tables]
        return tuple(Phase(end, curve, seen or curve) for end, curve in zip(ends.tolist(), curves, strict=True))
