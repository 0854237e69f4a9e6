"""
What flows make of a link that they share, and what one makes of it once it is alone: no TensorFlow, plain sockets.

Three hosts start to fetch from the server at once, or to push to it: the first for longest, so that three, two and one
use the link in turn, and nobody until the next round. Meanwhile others may fill the other direction, so that the
acknowledgements wait in its queue. Each flow keeps its connection, as TensorFlow's do. The receivers say when how much
arrived, the senders what TCP thought of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from .sockets import PAYLOAD, START, Round, answers, listening

#: Seconds that each flow's bytes would take if it had the link to itself, and between the starts of rounds.
ALONE, PERIOD = (0.70, 0.30, 0.12), 2.0
#: Directions of the measured flows, each with so many others against it.
PHASES = (("fetch", 0), ("fetch", 1), ("fetch", 2), ("push", 0), ("push", 2))
LEAD = 0.5  # seconds that the others run before the measured flows


def measure_shares(mbit: float, *, congestion_control: str | None, buffer_ms: float, repeats: int = 3) -> list[Round]:
    """
    Measure how flows share a link of this rate (Mbit/s), its congestion control (None: the machine's) and buffer.

    Every flow of a round has `begin` (s since the epoch), `bin` (s), `bytes` that arrived in each bin since, and `tcp`:
    seconds since, congestion window (packets), round trip (s), slow-start threshold (packets), packets sent again.
    """
    told = {"congestion_control": congestion_control, "buffer_ms": buffer_ms}
    with listening("shares", mbit, workers=5, **told) as start:
        at, rounds, others = time.time() + START, [], []
        for way, against in PHASES:
            end = at + LEAD + repeats * PERIOD
            others.append((at, end - 0.1, "push" if way == "fetch" else "fetch", against))
            rounds += [(at + LEAD + i * PERIOD, way) for i in range(repeats)]
            at = end
        for i in range(2):
            start(f"worker{3 + i}", "fill", [row[:3] for row in others if row[3] > i])
        sizes = [round(seconds * mbit * 125_000 * PAYLOAD) for seconds in ALONE]
        flows = [start(f"worker{i}", "flow", [(*row, size) for row in rounds]) for i, size in enumerate(sizes)]
        rows = answers(flows, at - time.time() + 60)
    labels = [phase for phase in PHASES for _ in range(repeats)]
    return [Round(*label, list(one)) for label, one in zip(labels, zip(*rows, strict=True), strict=True)]


def describe(rounds: Sequence[Round], *, mbit: float, **settings: Any) -> list[dict[str, Any]]:
    """A row for each direction and number of flows against it."""
    rows = []
    for way, against in PHASES:
        own = [one for one in rounds if (one.way, one.against) == (way, against)]
        users = by_users(own, mbit)
        looks = [look for one in own for flow in one.flows for look in flow["tcp"]]
        rows.append(
            settings
            | {"mbit": mbit, "way": way, "against": against}
            | {"used": [round(users[k][1], 3) for k in users], "spread": [round(users[k][2], 3) for k in (2, 3)]}
            | {"alone": [round(share, 3) for share in alone(own, mbit)]}
            | {"window": float(np.median([look[1] for look in looks])) if looks else 0.0}
            | {"trip_ms": round(1e3 * float(np.median([look[2] for look in looks])), 2) if looks else 0.0}
        )
    return rows


def by_users(rounds: Sequence[Round], mbit: float) -> dict[int, tuple[float, float, float]]:
    """
    While 1, 2, 3 flows were under way: seconds, share of the link that they used, and how unequal they were.

    The last is the standard deviation of the logarithm of the shares, pooled over rounds, each a mean over the time in
    which the same flows were under way.
    """
    capacity = mbit * 125_000 * PAYLOAD
    seconds, carried, logs = dict.fromkeys((1, 2, 3), 0.0), dict.fromkeys((1, 2, 3), 0.0), {2: [], 3: []}
    for one in rounds:
        edges = sorted(
            [max(f["begin"] for f in one.flows), *(f["begin"] + len(f["bytes"]) * f["bin"] for f in one.flows)]
        )
        for k, (start, end) in zip((3, 2, 1), pairwise(edges), strict=True):
            got = [_between(f, start, end) for f in one.flows]
            if end - start < 0.03:
                continue
            seconds[k] += end - start
            carried[k] += sum(got)
            if k > 1:
                shares = np.log(np.maximum(sorted(got)[-k:], 1.0))
                logs[k].append(shares - shares.mean())
    return {
        k: (
            seconds[k],
            carried[k] / max(seconds[k], 1e-9) / capacity,
            float(np.sqrt(sum((x**2).sum() for x in logs[k]) / max(1, (k - 1) * len(logs[k])))) if k > 1 else 0.0,
        )
        for k in (1, 2, 3)
    }


def alone(rounds: Sequence[Round], mbit: float, interval: float = 0.05) -> list[float]:
    """Mean share of the link that the last flow uses, by intervals since it is alone, as long as half of the rounds."""
    rows = []
    for one in rounds:
        ends = sorted((f["begin"] + len(f["bytes"]) * f["bin"], i) for i, f in enumerate(one.flows))
        (start, _), (end, last) = ends[-2:]
        edges = np.arange(start, end, interval)
        capacity = interval * mbit * 125_000 * PAYLOAD
        rows.append([_between(one.flows[last], a, b) / capacity for a, b in pairwise(edges)])
    count = sorted(map(len, rows))[len(rows) // 2]
    return [float(np.mean([row[i] for row in rows if len(row) > i])) for i in range(count)]


def _between(flow: dict[str, Any], start: float, end: float) -> float:
    """Bytes that a flow received between two times."""
    edges = flow["begin"] + flow["bin"] * np.arange(len(flow["bytes"]) + 1)
    return float(np.diff(np.interp([start, end], edges, np.concatenate([[0.0], np.cumsum(flow["bytes"])])))[0])
