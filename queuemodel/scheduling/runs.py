"""What a study yields: the figures of many runs, and their intervals over replications."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import require_choice, require_share
from ..errors import ModelError
from ..results import Result
from .schedule import FIGURES

SHOWN = ("mean_response_time", "mean_slowdown", "efficiency", "utilization", "mean_restarts")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Study(Result):
    """Figures of many runs.

    Attributes
    ----------
    runs : tuple of dict
        One per run: what was varied (``policy``, ``load``, ...), ``replication``, and the figures.
    varied : tuple of str
        Names of what was varied.
    complete : bool
        False when it was interrupted: only the runs that had ended are there.
    """

    runs: tuple[dict[str, Any], ...]
    varied: tuple[str, ...]
    complete: bool = True

    def table(self, *figures: str, confidence: float = 0.95) -> list[dict[str, Any]]:
        """Mean and half-width of the interval (Student's t over replications) of each figure, per combination.

        Replications of one combination use different seeds, those of different policies the same ones.
        """
        chosen = figures or SHOWN
        for figure in chosen:
            require_choice(figure, "study: figure", FIGURES)
        rows = []
        for key, members in self._groups(self.runs):
            row = key | {"replications": len(members)}
            for figure in chosen:
                row[figure], row[f"{figure}_half_width"] = _interval([run[figure] for run in members], confidence)
            rows.append(row)
        return rows

    def relative(self, figure: str, *, to: str, confidence: float = 0.95) -> list[dict[str, Any]]:
        """Ratio of a figure to that of the policy named ``to``, replication by replication: mean and half-width.

        All policies run the same replications, so ratios vary much less than the figures themselves.
        """
        require_choice(figure, "study: figure", FIGURES)
        others = [*(name for name in self.varied if name != "policy"), "replication"]

        def case(run: dict[str, Any]) -> tuple[Any, ...]:
            return tuple(run[name] for name in others)

        base = {case(run): run[figure] for run in self.runs if run.get("policy") == to}
        if not base:
            raise ModelError(f"study: no runs of a policy named {to!r}")
        rows = []
        for key, members in self._groups(run for run in self.runs if case(run) in base):
            mean, half = _interval([run[figure] / base[case(run)] for run in members], confidence)
            rows.append(key | {"ratio": mean, "half_width": half})
        return rows

    def _groups(self, runs: Iterable[dict[str, Any]]) -> Iterable[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """The runs of each combination of what was varied."""
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for run in runs:
            groups.setdefault(tuple(run[name] for name in self.varied), []).append(run)
        return ((dict(zip(self.varied, key, strict=True)), members) for key, members in groups.items())

    def to_rows(self) -> list[dict[str, Any]]:
        """The runs."""
        return [dict(run) for run in self.runs]

    def shown_rows(self) -> list[dict[str, Any]]:
        """The table."""
        return self.table()

    def caption(self) -> str:
        """How many runs, whether they are all, and where they are too few for intervals."""
        said = f"Study of {len(self.runs)} runs{'' if self.complete else ' (interrupted)'}"
        alone = any(len(members) == 1 for _, members in self._groups(self.runs))
        return f"{said}; one replication does not tell how far it is off: run several" if alone else said

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the table (intervals of one replication are None) and the runs."""
        table = [{name: None if value != value else value for name, value in row.items()} for row in self.table()]
        return {"complete": self.complete, "table": table, "runs": self.to_rows()}


def _interval(values: list[float], confidence: float) -> tuple[float, float]:
    """Mean and half-width by Student's t; the width of one value is not known (NaN)."""
    from scipy.special import stdtrit

    level = (1 + require_share(confidence, "study: confidence", open_ended=True)) / 2
    n = len(values)
    spread = float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return float(np.mean(values)), float(stdtrit(n - 1, level)) * spread if n > 1 else math.nan
