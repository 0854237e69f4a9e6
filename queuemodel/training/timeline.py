"""One recorded step, or round, as spans on lanes: what a report draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .operations import Operation
    from .profile import Profile, Step
    from .rounds import Round

#: More spans would make a page too large: the longest are kept.
MOST_SPANS = 1000

#: Kind of operation and what does it, named as the fitted network's stations.
LANES = {"fetch": "transmit link", "compute": "worker", "push": "receive link", "update": "server update"}


def timeline(profile: Profile) -> dict[str, Any] | None:
    """The first recorded step with operations, or round with buckets of the most ranks; None without either.

    A span is its lane's index, its name, when it was asked for, began and ended (seconds), and its bytes. A transfer's
    record starts when it is asked for: it begins here when the one before it on its link had arrived.
    """
    step = next((one for one in profile.steps if one.operations), None)
    if step is not None:
        return _of_step(step)
    rounds = [one for one in profile.rounds if one.buckets]
    return _of_round(max(rounds, key=lambda one: one.ranks)) if rounds else None


def _of_step(step: Step) -> dict[str, Any]:
    longest = sorted(step.operations, key=lambda one: one.start - one.end)[:MOST_SPANS]
    spans = [span for lane, kind in enumerate(LANES) for span in _lane(lane, [o for o in longest if o.kind == kind])]
    return {
        "what": "step",
        "seconds": step.step_time,
        "lanes": list(LANES.values()),
        "places": list(LANES.values()),
        "spans": spans,
        "note": "A transfer is dark from the arrival before it on its link, light since it was asked for."
        + (
            f" The {MOST_SPANS} longest of {len(step.operations)} operations."
            if len(spans) < len(step.operations)
            else ""
        ),
    }


def _lane(lane: int, operations: Sequence[Operation]) -> list[list[Any]]:
    arrived: dict[int, float] = {}  # on each server's link
    spans = []
    for one in sorted(operations, key=lambda one: (one.end, one.start)):
        begun = max(one.start, arrived.get(one.server, 0.0)) if one.kind in ("fetch", "push") else one.start
        arrived[one.server] = one.end
        spans.append([lane, one.name, one.start, begun, one.end, one.bytes])
    return spans


def _of_round(one: Round) -> dict[str, Any]:
    computed = [[0, "forward and backward pass", 0.0, 0.0, one.computed, 0]]
    reduced = [
        [1, f"bucket {number}", bucket.ready, max(bucket.begin, bucket.ready), bucket.end, bucket.bytes]
        for number, bucket in enumerate(one.buckets[:MOST_SPANS])
    ]
    return {
        "what": f"round of {one.ranks} ranks",
        "seconds": one.round_time,
        "lanes": ["computation", "all-reduce"],
        "places": ["worker", "network"],
        "spans": computed + reduced,
        "note": f"As rank {one.rank} saw it: buckets are light since they were handed over, dark since they began.",
    }
