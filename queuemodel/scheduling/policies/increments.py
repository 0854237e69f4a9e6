"""The greedy choice of nodes one by one, done for all jobs at once.

With concave curves the values of a job's successive nodes fall, so the greedy choice is the set of the ``nodes`` largest
values. Measured curves are not concave; they are replaced by their least concave majorant, whose corners are real node
counts, and a job stops only at corners (the few nodes left over are then offered again, one block at a time).
"""

from __future__ import annotations

import heapq

import numpy as np


def corners(speeds: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Corners of the least concave majorant of a speed table: boolean, shape (nodes + 1,); corner 0 is "not run".

    Node counts with an efficiency, speed per node over that on the least nodes, below ``floor`` are left out, and so
    are those beyond the fastest.
    """
    allowed = np.flatnonzero(speeds > 0)
    marks = np.zeros(len(speeds), dtype=bool)
    if not allowed.size:
        return marks
    least = int(allowed[0])
    efficient = speeds[allowed] * least >= floor * (1 - 1e-12) * allowed * speeds[least]
    usable = allowed[efficient | (allowed == least)]
    usable = usable[usable <= usable[np.argmax(speeds[usable])]]
    hull = [(0, 0.0)]
    for n, speed in zip(usable.tolist(), speeds[usable].tolist(), strict=True):
        while len(hull) > 1:
            (a, u), (b, v) = hull[-2], hull[-1]
            if (v - u) * (n - b) <= (speed - v) * (b - a):
                hull.pop()
            else:
                break
        hull.append((n, speed))
    marks[[n for n, _ in hull[1:]]] = True
    return marks


def speed_increments(speeds: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Speed gained by each further node on the concave majorant, shape (nodes,); 0 where no node is useful."""
    return _slopes(speeds, corners(speeds, floor))


def time_increments(speeds: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Seconds per step saved by each further node after the least, averaged between corners, shape (nodes,).

    The first corner has the value infinity: a job that does not run would never end.
    """
    at = np.concatenate([[0], np.flatnonzero(corners(speeds, floor))])
    saved = np.zeros(len(speeds) - 1)
    if len(at) == 1:
        return saved
    saved[: at[1]] = np.inf
    seconds = 1 / speeds[at[1:]]
    slopes = np.minimum.accumulate(-np.diff(seconds) / np.diff(at[1:]))
    saved[at[1] : at[-1]] = np.repeat(slopes, np.diff(at[1:]))
    return saved


def _slopes(speeds: np.ndarray, marks: np.ndarray) -> np.ndarray:
    at = np.concatenate([[0], np.flatnonzero(marks)])
    gained = np.zeros(len(speeds) - 1)
    if len(at) > 1:
        gained[: at[-1]] = np.repeat(np.diff(speeds[at]) / np.diff(at), np.diff(at))
    return gained


def next_corner(marks: np.ndarray) -> np.ndarray:
    """Largest corner at most n, for each n of 0 to nodes."""
    return np.maximum.accumulate(np.where(marks, np.arange(len(marks)), 0))


def largest(values: np.ndarray, corner: np.ndarray, nodes: int) -> np.ndarray:
    """Nodes per job by the greedy choice.

    Parameters
    ----------
    values : ndarray, shape (jobs, most)
        Value of each job's first, second, ... node, not rising along a row; 0: of no use.
    corner : ndarray, shape (jobs, most + 1)
        Largest corner at most n, from `next_corner`.
    nodes : int
    """
    useful = values > 0
    counts = np.count_nonzero(useful, axis=1)
    if counts.sum() > nodes:
        flat = values[useful]
        threshold = np.partition(flat, flat.size - nodes)[flat.size - nodes]
        counts = np.count_nonzero(values > threshold, axis=1)
        if threshold == np.inf:  # more first nodes than nodes: the earliest jobs first
            counts = np.zeros_like(counts)
    granted = corner[np.arange(len(counts)), counts]
    left = nodes - int(granted.sum())
    if left > 0:
        _offer(granted, values, corner, left)
    return granted


def _offer(granted: np.ndarray, values: np.ndarray, corner: np.ndarray, left: int) -> None:
    """Hand out what is left, block by block, to the job with the most valuable block that fits."""
    most = values.shape[1]
    inside = granted < most
    following = np.where(inside, values[np.arange(len(granted)), np.minimum(granted, most - 1)], 0.0)
    order = np.argsort(-following, kind="stable")[: max(4 * left, 64)]
    heap = [(-float(following[job]), int(job)) for job in order if following[job] > 0]
    heapq.heapify(heap)
    while left > 0 and heap:
        _, job = heapq.heappop(heap)
        now = int(granted[job])
        ahead = np.flatnonzero(corner[job, now + 1 : now + left + 1] > now)
        if not ahead.size:
            continue
        step = int(ahead[0]) + 1
        granted[job] += step
        left -= step
        if granted[job] < most and values[job, granted[job]] > 0:
            heapq.heappush(heap, (-float(values[job, granted[job]]), job))
