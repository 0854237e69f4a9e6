"""What a policy is: a frozen value with one pure method, and what it may know written in its type."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..cluster import ActiveJobs
from ..jobs import Job


class Policy(abc.ABC):
    """Decides how many nodes each job gets; a pure function of what it is shown.

    A new policy is a frozen dataclass with `grants`; the simulation asks it at every arrival, end and failure, and when
    `review` says.
    """

    #: What it looks at beyond names, arrival times, limits and present nodes: ``"attained_service"``, ``"remaining"``
    #: (steps of the declared work), ``"curve"``, ``"end"`` (whether the job ends early), ``"batch_sizes"`` (jobs that
    #: have some run at the best one: steps and curves are then those of goodput).
    knows: ClassVar[frozenset[str]] = frozenset()
    #: Whether it grants fractions of a node (for comparison with theory); limits of the jobs are then ignored.
    divisible: bool = False

    def allocate(self, jobs: Sequence[Job], nodes: int, now: float) -> dict[str, float]:
        """Nodes of each job that gets some, by name, when all of them arrive at an empty cluster."""
        shown = ActiveJobs.of(jobs, nodes, knows=self.knows, who=self.name)
        grants = self.grants(shown, nodes, now).tolist() if jobs else []
        return {name: granted for name, granted in zip(shown.names, grants, strict=True) if granted > 0}

    @abc.abstractmethod
    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """Nodes of each job, in the order of ``jobs``: 0 or within the job's limits, together at most ``nodes``."""

    def review(self, jobs: ActiveJobs, grants: np.ndarray, now: float) -> float:
        """When the answer changes although nobody arrives or ends; ``inf``: never."""
        return math.inf

    @property
    def name(self) -> str:
        """How tables, studies and plots call it: its type, with every knob that differs from its default."""
        knobs: Any = dataclasses.fields(self) if dataclasses.is_dataclass(self) else ()
        values: list[tuple[Any, Any]] = [(knob, getattr(self, knob.name)) for knob in knobs]
        changed = ", ".join(f"{knob.name}={_shown(value)}" for knob, value in values if value != knob.default)
        return type(self).__name__ + (f"({changed})" if changed else "")


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
