"""The greedy choice of nodes one by one, for all jobs at once.

With concave curves the values of a job's successive nodes fall, so the greedy choice is the set of the ``nodes``
largest values. Measured curves are not concave; they are replaced by their least concave majorant, whose corners are
real node counts, and a job stops only at corners.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..view import ActiveJobs

#: Seconds per step of a job that does not run: finite, so that weights put such jobs in order.
_NEVER = 1e200


def corners(speeds: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Corners of the least concave majorant of a speed table: node counts, rising.

    Node counts with an efficiency, speed per node over that on the least nodes, below ``floor`` are left out, and so
    are those beyond the fastest. Points on the majorant between corners count as corners.
    """
    allowed = np.flatnonzero(speeds > 0)
    if not allowed.size:
        return allowed
    least = allowed[0]
    efficient = speeds[allowed] * least >= floor * (1 - 1e-12) * allowed * speeds[least]
    usable = allowed[efficient | (allowed == least)]
    usable = usable[usable <= usable[np.argmax(speeds[usable])]]
    at = np.append(0, usable)
    slopes = np.diff(speeds[at]) / np.diff(at)
    if not (np.diff(slopes) > 1e-12 * slopes[:-1]).any():  # concave already
        return usable
    hull = [(0, 0.0)]
    for n, speed in zip(usable.tolist(), speeds[usable].tolist(), strict=True):
        while len(hull) > 1:
            (a, u), (b, v) = hull[-2], hull[-1]
            if (v - u) * (n - b) >= (speed - v) * (b - a):
                break
            hull.pop()
        hull.append((n, speed))
    return np.array([n for n, _ in hull[1:]])


def speed_increments(speeds: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Speed gained by each further node on the concave majorant, shape (nodes,); 0 where no node is useful."""
    at = np.append(0, corners(speeds, floor))
    gained = np.zeros(len(speeds) - 1)
    gained[: at[-1]] = np.repeat(np.minimum.accumulate(np.diff(speeds[at]) / np.diff(at)), np.diff(at))
    return gained


def time_increments(speeds: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Seconds per step saved by each further node after the least, averaged between corners, shape (nodes,).

    Those up to the first corner save more than any other: a job that does not run would never end.
    """
    at = corners(speeds, floor)
    saved = np.zeros(len(speeds) - 1)
    if at.size:
        saved[: at[0]] = _NEVER
        slopes = np.minimum.accumulate(-np.diff(1 / speeds[at]) / np.diff(at))
        saved[at[0] : at[-1]] = np.repeat(np.maximum(slopes, 0.0), np.diff(at))
    return saved


def next_corner(speeds: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """The first corner after each of 0 to ``nodes`` nodes; 0 where there is none."""
    at = corners(speeds, floor)
    return np.append(at, 0)[np.searchsorted(at, np.arange(len(speeds)), side="right")]


def most_useful(speeds: np.ndarray, floor: float = 0.0) -> int:
    """Most nodes, up to saturation, whose speed per node is at least ``floor`` of that on the least: last corner."""
    return int(corners(speeds, floor).max(initial=0))


def greedy(
    jobs: ActiveJobs, kind: Callable[..., np.ndarray], floor: float, weight: np.ndarray, nodes: int
) -> np.ndarray:
    """Nodes per job by the greedy choice: values of further nodes by ``kind``, times the weight > 0 of each job."""
    from ..state import hand_out  # compiled: numba takes long to import

    values, following = jobs.tables.derived(kind, floor), jobs.tables.derived(next_corner, floor)
    return hand_out(values, following, jobs.row, weight, nodes)
