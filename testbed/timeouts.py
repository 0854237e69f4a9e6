"""
How often connections that share a link fall silent until a timeout, or take the link for policed: plain sockets.

Workers fetch from the server at once and push to it at once, round after round, each on connections that it keeps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from .sockets import PAYLOAD, START, Round, answers, listening

ALONE = 0.42  # seconds that each flow's bytes would take if it had the link to itself
SILENCE = 0.18  # seconds without a byte: hardly less than the least timeout
SAME = 0.25  # seconds for which the pacing rate stays the same to the byte: BBR takes the link for policed
PACING = 5  # of a look at what TCP thinks


def together(mbit: float, *, workers: int, congestion_control: str, buffer_ms: float, repeats: int = 6) -> list[Round]:
    """Measure rounds of so many workers that fetch at once, then push at once."""
    size, phase = round(ALONE * mbit * 125_000 * PAYLOAD), 1.6 * workers * ALONE + 0.5
    told = {"congestion_control": congestion_control, "buffer_ms": buffer_ms}
    with listening("timeouts", mbit, workers=workers, **told) as start:
        begin, ways = time.time() + START, ("fetch", "push") * repeats
        schedule = [(begin + i * phase, way, size) for i, way in enumerate(ways)]
        flows = [start(f"worker{i}", "flow", schedule) for i in range(workers)]
        rows = answers(flows, START + len(ways) * phase + 120)
    return [Round(way, 0, list(one)) for way, one in zip(ways, zip(*rows, strict=True), strict=True)]


def count(rounds: Sequence[Round]) -> dict[str, Any]:
    """
    Timeouts and detected policers, beside what they are to be measured by: other flows under way, times seconds, of
    flows that might have met with one; and when each round's flows ended, in order (s).
    """
    row: dict[str, Any] = {"silences": [], "against_silence": 0.0, "policed": [], "against_policing": 0.0, "took": []}
    for one in rounds:
        spans = [(flow["begin"], flow["begin"] + len(flow["bytes"]) * flow["bin"]) for flow in one.flows]
        first = min(begin for begin, _ in spans)
        row["took"].append(sorted(round(end - first, 2) for _, end in spans))
        for i, flow in enumerate(one.flows):
            others = spans[:i] + spans[i + 1 :]
            silences = [s for s in _silences(flow) if _at(others, s[0])]
            policed = [p for p in _policed(flow) if _at(others, p[0])]
            row["silences"] += [round(until - since, 2) for since, until in silences]
            row["policed"] += [round(until - since, 2) for since, until in policed]
            for j in range(len(flow["bytes"])):
                now = flow["begin"] + j * flow["bin"]
                against = _at(others, now) * flow["bin"]
                row["against_silence"] += 0.0 if _at(silences, now) else against
                row["against_policing"] += 0.0 if _at(policed, now) else against
    return row


def _at(spans: Sequence[tuple[float, float]], now: float) -> int:
    """How many of these spans it is the time of."""
    return sum(since <= now < until for since, until in spans)


def _silences(flow: dict[str, Any]) -> Iterator[tuple[float, float]]:
    since = None
    for i, got in enumerate([*flow["bytes"], 1]):
        if got and since is not None and (i - since) * flow["bin"] >= SILENCE:
            yield flow["begin"] + since * flow["bin"], flow["begin"] + i * flow["bin"]
        since = None if got else (i if since is None else since)


def _policed(flow: dict[str, Any]) -> Iterator[tuple[float, float]]:
    looks = [look for look in flow["tcp"] if len(look) > PACING]
    first = 0
    for i in range(1, len(looks) + 1):
        if i == len(looks) or looks[i][PACING] != looks[first][PACING]:
            if looks[i - 1][0] - looks[first][0] >= SAME:
                yield flow["begin"] + looks[first][0], flow["begin"] + looks[i - 1][0]
            first = i
