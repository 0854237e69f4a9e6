"""Policies that give a job one number of nodes and leave it alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...checks import require_count
from ..view import ActiveJobs
from .base import Policy, pass_over


@dataclass(frozen=True)
class FIFO(Policy):
    """First come, first served with the nodes requested; a job that does not fit holds up those behind it.

    Parameters
    ----------
    fixed : int, optional
        Give every job so many nodes instead, within its limits.
    """

    fixed: int | None = None

    def __post_init__(self) -> None:
        if self.fixed is not None:
            require_count(self.fixed, "FIFO: fixed (nodes)")

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """See `Policy`."""
        wanted = jobs.requested if self.fixed is None else np.clip(self.fixed, jobs.least, jobs.most)
        return wanted * (wanted.cumsum() <= nodes)


@dataclass(frozen=True)
class ShortestJobFirst(Policy):
    """Shortest service time on the requested nodes first, never preempted; a job that does not fit is passed over."""

    knows: ClassVar[frozenset[str]] = frozenset({"remaining", "curve"})

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """See `Policy`."""
        wanted = np.where(jobs.nodes > 0, jobs.nodes, jobs.requested).astype(int)
        service = np.where(jobs.nodes > 0, -1.0, jobs.remaining / jobs.speed(wanted))
        return pass_over(np.argsort(service, kind="stable"), wanted, nodes)


@dataclass(frozen=True)
class Backfill(Policy):
    """First come, first served; later jobs may start in between when they do not delay the first that waits.

    EASY backfilling (Lifka, 1995) with predicted service times instead of the users' estimates.
    """

    knows: ClassVar[frozenset[str]] = frozenset({"remaining", "curve"})

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """See `Policy`."""
        runs = jobs.nodes > 0
        granted = np.where(runs, jobs.nodes, 0).astype(int)
        wanted = jobs.requested
        left = nodes - int(granted.sum())
        waiting = np.flatnonzero(~runs).tolist()
        while waiting and wanted[waiting[0]] <= left:
            head = waiting.pop(0)
            granted[head] = wanted[head]
            left -= int(wanted[head])
        if not waiting or left == 0:
            return granted
        service = jobs.remaining / jobs.speed(np.where(granted > 0, granted, wanted))
        shadow, spare = _reservation(granted, service, left, int(wanted[waiting[0]]))
        for job in waiting[1:]:
            need = int(wanted[job])
            if need > left:
                continue
            in_time = service[job] <= shadow * (1 + 1e-12)
            if in_time or need <= spare:
                granted[job] = need
                left -= need
                spare -= 0 if in_time else need
                if not left:
                    break
        return granted


def _reservation(granted: np.ndarray, service: np.ndarray, left: int, need: int) -> tuple[float, int]:
    """When the first waiting job can start at the latest, from now, and the nodes to spare then."""
    running = np.flatnonzero(granted)
    running = running[np.argsort(service[running], kind="stable")]
    free = left + np.cumsum(granted[running])
    first = int(np.searchsorted(free, need))
    return float(service[running[first]]), int(free[first]) - need
