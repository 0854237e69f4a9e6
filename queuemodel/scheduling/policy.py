"""What a policy is, a frozen value with one pure method, and what it may know of the jobs."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ..base.checks import require_share
from ..base.errors import ModelError
from .curves import SpeedTables

#: Columns, and what a policy must declare in its ``knows`` to look at them (nothing for what everybody knows).
COLUMNS = {
    "arrival_time": "",  # seconds
    "least": "",  # nodes
    "most": "",  # nodes, at most those of the cluster
    "requested": "",  # nodes that the users request
    "nodes": "",  # held now
    "pause": "",  # seconds until it makes progress: what is left of its pause, or of a waiting job that of a start
    "attained_service": "attained_service",  # node-seconds held so far
    "remaining": "remaining",  # steps left of the declared work
    "row": "curve",  # of each job's curve in ``tables``, as the policy believes it
}


class ActiveJobs:
    """The jobs in the cluster in order of arrival: `COLUMNS` of shape (jobs,), each gathered when a policy looks."""

    def __init__(self, gather: Callable[[str], Any], count: int, tables: SpeedTables, policy: Policy) -> None:
        self._gather, self._count, self._policy = gather, count, policy
        self.tables = tables

    def __len__(self) -> int:
        return self._count

    def __getattr__(self, column: str) -> Any:
        if column not in COLUMNS:
            raise AttributeError(column)
        needed = COLUMNS[column]
        if needed and needed not in self._policy.knows:
            raise ModelError(f"{self._policy.name}: looks at {needed!r} but does not declare it; add it to its `knows`")
        value = self.__dict__[column] = self._gather(column)
        return value

    def per_curve(self, function: Callable[..., Any], *args: Any) -> np.ndarray:
        """``function(speed table, *args)`` of each job's curve, computed once per curve; shape (jobs, ...)."""
        return self.tables.derived(function, *args)[self.row]

    def speed(self, nodes: np.ndarray) -> np.ndarray:
        """Steps per second of each job on n whole nodes."""
        return self.tables.speeds[self.row, nodes]


class Policy(abc.ABC):
    """Decides how many nodes each job gets; a pure function of its arguments.

    A new policy is a frozen dataclass with `grants`, called at every arrival, end and failure, and at `review` times.
    """

    #: What it uses besides arrival times, limits and present nodes: ``"attained_service"``, ``"remaining"``
    #: (steps of the declared work), ``"curve"``, ``"batch_sizes"`` (jobs that have some run at the best one: steps and
    #: curves are then those of goodput).
    knows: ClassVar[frozenset[str]] = frozenset()
    #: Whether it grants fractions of a node (for comparison with theory); limits of the jobs are then ignored.
    divisible: bool = False

    @abc.abstractmethod
    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """Nodes of each job, in the order of ``jobs``: 0 or within the job's limits, together at most ``nodes``."""

    def review(self, jobs: ActiveJobs, grants: np.ndarray, now: float) -> float:
        """When the answer changes without an arrival or end; ``inf``: never."""
        return math.inf

    @property
    def name(self) -> str:
        """How tables, studies and plots call it: its type, with every knob that differs from its default."""
        knobs: Any = dataclasses.fields(self) if dataclasses.is_dataclass(self) else ()
        values: list[tuple[Any, Any]] = [(knob, getattr(self, knob.name)) for knob in knobs]
        changed = ", ".join(f"{knob.name}={_shown(value)}" for knob, value in values if value != knob.default)
        return type(self).__name__ + (f"({changed})" if changed else "")


class SizeAware(Policy):
    """A policy that reads the steps left and the curves."""

    knows = frozenset({"remaining", "curve"})


def _shown(value: Any) -> str:
    """A knob's value as `policy_named` takes it."""
    if isinstance(value, tuple):
        return "+".join(map(_shown, value))
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value)) if whole else str(value)


def in_turn(order: np.ndarray, least: np.ndarray, wanted: np.ndarray, nodes: int) -> np.ndarray:
    """Grant ``wanted`` in this order, cut to what is left, passing over jobs whose least does not fit any more."""
    granted = np.zeros(len(order), dtype=int)
    for job, need, most in zip(order.tolist(), least[order].tolist(), wanted[order].tolist(), strict=True):
        if need <= nodes:
            granted[job] = min(most, nodes)
            nodes -= int(granted[job])
            if not nodes:
                break
    return granted


def require_exponent(value: float, policy: str) -> None:
    if require_share(value, f"{policy}: exponent") == 1:
        raise ModelError(f"{policy}: exponent must be below 1, got 1; SRPT is for linear speedup")
