"""What the report of a throughput curve shows (`queuemodel.report`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..base.checks import MOST_EXAMPLES, require_choice, require_count
from ..base.errors import ModelError
from ..base.results import percent
from .goals import GOALS, LIMITS, WORK, checked, named
from .goals import QUESTIONS as ASKED
from .what_ifs import grid, what_ifs_of

if TYPE_CHECKING:
    from ..profile.profile import Profile, Step
    from ..profile.records import Operation, Round

#: A curve, which writes its page with these functions and so is imported after them.
ThroughputCurve = Any

MOST_SPANS = 400  # the longest, or a page would be too large

#: Kind of operation and what does it, named as the fitted network's stations.
PAGE_LANES = {"fetch": "transmit link", "compute": "worker", "push": "receive link", "update": "server update"}


def timeline(profile: Profile) -> dict[str, Any] | None:
    """The first step with operations, or round of the most ranks with buckets; spans: see `_lane`."""
    step = next((one for one in profile.steps if one.operations), None)
    if step is not None:
        return _of_step(step)
    rounds = [one for one in profile.rounds if one.buckets]
    return _of_round(max(rounds, key=lambda one: one.ranks)) if rounds else None


def _of_step(step: Step) -> dict[str, Any]:
    longest = sorted(step.operations, key=lambda one: one.start - one.end)[:MOST_SPANS]
    spans = [
        span for lane, kind in enumerate(PAGE_LANES) for span in _lane(lane, [o for o in longest if o.kind == kind])
    ]
    note = "A transfer is light since its request, dark since the transfer before it on its link has arrived."
    if len(spans) < len(step.operations):
        note += f" The {MOST_SPANS} longest of {len(step.operations)} operations."
    lanes = list(PAGE_LANES.values())
    return {
        "what": "step", "seconds": step.step_time, "lanes": lanes, "places": lanes, "spans": spans, "note": note,
    }  # fmt: skip


def _lane(lane: int, operations: Sequence[Operation]) -> list[list[Any]]:
    """Spans: lane, name, seconds of request, begin (its link's previous transfer has arrived) and end, bytes."""
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
        "note": f"As rank {one.rank} recorded it: buckets are light once ready, dark while they are reduced.",
    }


#: Questions whose initial values a caller may set.
PAGE_QUESTIONS = (
    "workers", *WORK, "dataset_size", "deadline", "price_per_node_hour", "currency", "budget", "min_efficiency"
)  # fmt: skip


def curve_data(
    curve: ThroughputCurve,
    solved: ThroughputCurve,
    *,
    profile: Profile | None,
    name: str,
    questions: Mapping[str, Any],
    progress: bool = False,
) -> dict[str, Any]:
    """Plain values of everything that the page of a curve shows, with the what-ifs of a ``solved`` one.

    Refuses questions out of range or unknown.
    """
    asked = _checked(questions)
    model = curve.model
    if (solved.workers.tolist(), solved.stations) != (curve.workers.tolist(), curve.stations):
        raise ModelError("report: what_ifs must be a curve of the same workers and stations")
    offered = what_ifs_of(solved) if solved.model is not None and solved.model.quick else []
    job = profile.job if profile is not None else getattr(model, "job", None)
    name = name or (job.name if job else "") or "Training job"
    return {
        "title": f"{name}: throughput of up to {named(curve, int(curve.workers[-1]))}",
        "controls": [asdict(one) | {"words": [one.worded(value) for value in one.choices]} for one in offered],
        "grid": grid(curve, offered, solved, progress=progress),
        "by": f"changed as by {solved.method}" if offered and solved is not curve else "",
        "confidence": curve.confidence,
        "questions": asked | {"dataset_size": asked["dataset_size"] or curve.dataset_size},
        "goals": {"limits": {name: limit._asdict() for name, limit in LIMITS.items()}, "questions": ASKED},
        "answer": curve.answer(),
        "parameters": model._shown_rows() if model is not None else [],
        "details": model._details() if model is not None else [],
        "about": [*curve.notes(), *_about(curve, solved, profile)],
        "timeline": timeline(profile) if profile is not None else None,
    }


def _checked(questions: Mapping[str, Any]) -> dict[str, Any]:
    for name in questions:
        require_choice(name, "report: question", PAGE_QUESTIONS)
    others = {name: questions.get(name) for name in ("workers", "dataset_size", "currency")}
    if (shown := others.pop("workers")) is not None:
        require_count(shown, "report: workers", most=MOST_EXAMPLES)
    goals = {name: value for name, value in questions.items() if name in WORK | GOALS}
    return dict.fromkeys(PAGE_QUESTIONS) | {"workers": shown} | others | checked(goals, "report", **others)


def _about(curve: ThroughputCurve, solved: ThroughputCurve, profile: Profile | None) -> list[str]:
    """What was recorded, what the interval covers, and what what-ifs rest on."""
    lines = []
    if solved is not curve:
        off = 100 * (solved.steps_per_second / curve.steps_per_second - 1)
        lines.append(
            f"what-ifs change this prediction by the factors by which they change another one, {solved.method}, which "
            f"is {off.min():+.0f} to {off.max():+.0f} % off this one"
        )
    if profile is not None:
        source = profile.source
        with_what = " ".join(filter(None, (source.framework, source.framework_version)))
        how = ", ".join(filter(None, (source.method, source.style, source.taken_at)))
        lines.append(f"recorded: {profile.caption()}, with {with_what}{f' ({how})' if how else ''}")
        network = profile.cluster.congestion_control
        shown = "not known; it decides how connections share a link" if network == "unknown" else network
        lines.append(f"congestion control of the hosts: {shown}")
    return [
        *lines,
        f"the interval has a probability of {percent(curve.confidence)}; it covers the sampling of what was recorded, "
        "the fit, and the error of such models against recorded measurements, not machines unlike all of these",
    ]
