"""The greedy choice of nodes one by one, done for all jobs at once.

With concave curves the values of a job's successive nodes fall, so the greedy choice is the set of the ``nodes``
largest values: found by bisection on their threshold, whose cost does not depend on the number of nodes. Measured
curves are not concave; they are replaced by their least concave majorant, whose corners are real node counts, and a
job stops only at corners (what is left over is then offered again, one block at a time).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..view import ActiveJobs

#: Keys of a row lie within +-_SPAN / 2, so that rows stand one after the other in one sorted array.
_SPAN = 4000.0


def corners(speeds: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Corners of the least concave majorant of a speed table: boolean, shape (nodes + 1,); corner 0 is "not run".

    Node counts with an efficiency, speed per node over that on the least nodes, below ``floor`` are left out, and so
    are those beyond the fastest. Points on the majorant between corners count as corners.
    """
    allowed = np.flatnonzero(speeds > 0)
    marks = np.zeros(len(speeds), dtype=bool)
    if not allowed.size:
        return marks
    least = int(allowed[0])
    efficient = speeds[allowed] * least >= floor * (1 - 1e-12) * allowed * speeds[least]
    usable = allowed[efficient | (allowed == least)]
    usable = usable[usable <= usable[np.argmax(speeds[usable])]]
    at = np.concatenate([[0], usable])
    slopes = np.diff(speeds[at]) / np.diff(at)
    if not (np.diff(slopes) > 1e-12 * slopes[:-1]).any():  # concave already
        marks[usable] = True
        return marks
    hull = [(0, 0.0)]
    for n, speed in zip(usable.tolist(), speeds[usable].tolist(), strict=True):
        while len(hull) > 1:
            (a, u), (b, v) = hull[-2], hull[-1]
            if (v - u) * (n - b) < (speed - v) * (b - a):
                hull.pop()
            else:
                break
        hull.append((n, speed))
    marks[[n for n, _ in hull[1:]]] = True
    return marks


def speed_increments(speeds: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Speed gained by each further node on the concave majorant, shape (nodes,); 0 where no node is useful."""
    at = np.concatenate([[0], np.flatnonzero(corners(speeds, floor))])
    gained = np.zeros(len(speeds) - 1)
    if len(at) > 1:
        slopes = np.minimum.accumulate(np.diff(speeds[at]) / np.diff(at))
        gained[: at[-1]] = np.repeat(slopes, np.diff(at))
    return gained


def time_increments(speeds: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Seconds per step saved by each further node after the least, averaged between corners, shape (nodes,).

    The nodes up to the first corner have the value infinity: a job that does not run would never end.
    """
    at = np.concatenate([[0], np.flatnonzero(corners(speeds, floor))])
    saved = np.zeros(len(speeds) - 1)
    if len(at) == 1:
        return saved
    saved[: at[1]] = np.inf
    slopes = np.minimum.accumulate(-np.diff(1 / speeds[at[1:]]) / np.diff(at[1:]))
    saved[at[1] : at[-1]] = np.repeat(np.maximum(slopes, 0.0), np.diff(at[1:]))
    return saved


def last_corner(speeds: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Largest corner at most n, for each n of 0 to nodes."""
    marks = corners(speeds, floor)
    return np.maximum.accumulate(np.where(marks, np.arange(len(marks)), 0))


def most_useful(speeds: np.ndarray, floor: float = 0.0) -> int:
    """Most nodes, up to saturation, whose speed per node is at least ``floor`` of that on the least: last corner."""
    return int(last_corner(speeds, floor)[-1])


def _keys(speeds: np.ndarray, kind: Callable[..., np.ndarray], floor: float, row: int) -> np.ndarray:
    """Negative logarithms of the values of a row, rising, shifted so that row follows row."""
    with np.errstate(divide="ignore"):
        keys = -np.log(kind(speeds, floor))
    return np.clip(keys, -1200.0, 1700.0) + row * _SPAN


def greedy(jobs: ActiveJobs, kind: Callable[..., np.ndarray], floor: float, weight: Any, nodes: int) -> np.ndarray:
    """Nodes per job by the greedy choice.

    Parameters
    ----------
    jobs : ActiveJobs
    kind : `speed_increments` or `time_increments`
        Value of each further node, per curve; not rising.
    floor : float
        Of the efficiency.
    weight : ndarray, shape (jobs,)
        Factor on a job's values, > 0.
    nodes : int
    """
    row = jobs.row
    most = jobs.tables.derived(most_useful, floor)[row]
    if most.sum() <= nodes:
        return most
    keys = jobs.tables.derived(_keys, kind, floor, numbered=True)
    width = keys.shape[1]
    flat = keys.reshape(-1)
    base = row * width
    shift = np.log(weight)
    query = row * _SPAN + shift
    # f(threshold): nodes whose value exceeds exp(threshold); falls from more than `nodes` to 0.
    high = float((shift - (keys[row, 0] - row * _SPAN)).max()) + 1e-9
    low = float((shift - (keys[row, most - 1] - row * _SPAN)).min()) - 1e-9
    counts = np.zeros(len(row), dtype=int)
    total, above = 0, float(most.sum())
    slack = max(4, nodes // 100)
    for turn in range(60):
        if nodes - total <= slack or high - low < 1e-12 * max(1.0, abs(high)):
            break
        middle = 0.5 * (low + high)
        if turn % 3 and total:  # where a straight line in the logarithm of the counts would have it
            share = math.log(above / nodes) / math.log(above / total)
            middle = low + (high - low) * min(max(share, 0.02), 0.98)
        found = np.minimum(flat.searchsorted(query - middle) - base, most)
        size = int(found.sum())
        if size <= nodes:
            high, total, counts = middle, size, found
        else:
            low, above = middle, float(size)
    last = jobs.tables.derived(last_corner, floor)
    granted = last[row, counts]
    left = nodes - int(granted.sum())
    if left > 0:
        _offer(granted, jobs.tables.derived(kind, floor), last, row, weight, left)
    return granted


def _offer(
    granted: np.ndarray, values: np.ndarray, last: np.ndarray, row: np.ndarray, weight: np.ndarray, left: int
) -> None:
    """Hand out what is left, block by block, to the job with the most valuable block that fits."""
    most = values.shape[1]
    following = np.where(granted < most, values[row, np.minimum(granted, most - 1)], 0.0) * weight
    # A job further down the order could only get a block after every one before it had one that did not fit.
    order = np.argsort(-following, kind="stable")[: 2 * left + 32]
    heap = [(-value, job) for value, job in zip(following[order].tolist(), order.tolist(), strict=True) if value > 0]
    heapq.heapify(heap)
    while left > 0 and heap:
        value, job = heapq.heappop(heap)
        now, at = int(granted[job]), int(row[job])
        ahead = last[at, now + 1 : now + left + 1]
        same = int((values[at, now : now + left] >= values[at, now]).sum())  # a run of equally good nodes
        step = int(ahead[:same].max(initial=now)) - now
        if step <= 0:
            continue
        if heap and -value == -heap[0][0]:  # ties are shared: one corner at a time
            step = int(np.argmax(ahead > now)) + 1
        granted[job] += step
        left -= step
        if granted[job] < most and values[at, granted[job]] > 0:
            heapq.heappush(heap, (-float(values[at, granted[job]] * weight[job]), job))
