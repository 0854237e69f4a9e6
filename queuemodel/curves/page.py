"""What the report of a throughput curve shows (`queuemodel.report`), and the what-ifs that it and a notebook offer.

A page has no model: it has the curves of all combinations of choices.
"""

from __future__ import annotations

import base64
import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from ..base.checks import MOST_EXAMPLES, require_choice, require_count
from ..base.errors import ModelError, QueueModelError
from ..base.results import percent, significant
from .figures import rate_axis, size_axis
from .goals import LIMITS, QUESTIONS, Shown, checked, named

if TYPE_CHECKING:
    from ..profile.profile import Profile, Step
    from ..profile.records import Operation, Round

#: A fitted model and its curve, of modules above this one.
Model = Any
Curve = Any

MOST_SPANS = 400  # the longest, or a page would be too large
#: Kind of operation and what does it, named as the fitted network's stations.
PAGE_LANES = {"fetch": "transmit link", "compute": "worker", "push": "receive link", "update": "server update"}
GBIT = 1.25e8  # bytes per second
#: The middle of the bandwidths, in bytes per second, where the profile's is unknown.
USUAL_BANDWIDTH = 10 * GBIT
#: Leading digits of the bandwidths, which include those of Ethernet and InfiniBand.
RATE_FIELDS = (1.0, 2.0, 2.5, 4.0, 5.0)
#: Numbers of workers of a grid, of which the others follow where throughput is smooth: within such an error.
MOST_WORKERS, BETWEEN_WORKERS = 24, 0.004
#: Relative speeds of accelerators.
SPEEDS = tuple(2 ** (k / 4) for k in (-4, -2, 0, 1, 2, 4, 6, 8))
#: What changes throughput and its parts alone: a page has a packed row for each combination, not a whole curve.
PACKED = ("accelerator_speed", "bandwidth")
#: One step of the packed logarithms.
UNIT = 1e-3


def timeline(profile: Profile) -> dict[str, Any] | None:
    """The first step with operations, or round of the most ranks with buckets; spans: see `_lane`."""
    step = next((one for one in profile.steps if one.operations), None)
    if step is not None:
        return _of_step(step)
    rounds = [one for one in profile.rounds if one.buckets]
    return _of_round(max(rounds, key=lambda one: one.ranks)) if rounds else None


def _of_step(step: Step) -> dict[str, Any]:
    longest = sorted(step.operations, key=lambda one: one.start - one.end)[:MOST_SPANS]
    lanes = [_lane(lane, [o for o in longest if o.kind == kind]) for lane, kind in enumerate(PAGE_LANES)]
    spans, places = [*itertools.chain(*lanes)], [*PAGE_LANES.values()]
    note = "A transfer is light since its request, dark since the transfer before it on its link has arrived."
    if len(spans) < len(step.operations):
        note += f" The {MOST_SPANS} longest of {len(step.operations)} operations."
    about = {"what": "step", "seconds": step.step_time, "lanes": places, "places": places}
    return about | {"spans": spans, "note": note}


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
    note = f"As rank {one.rank} recorded it: buckets are light once ready, dark while they are reduced."
    lanes = {"lanes": ["computation", "all-reduce"], "places": ["worker", "network"]}
    about = {"what": f"round of {one.ranks} ranks", "seconds": one.round_time, "note": note}
    return about | lanes | {"spans": computed + reduced}


def curve_data(
    curve: Curve, solved: Curve, questions: Mapping[str, Any], *, profile: Profile | None, name: str, progress: bool
) -> dict[str, Any]:
    """Plain values of everything that the page of a curve shows, with the what-ifs of a ``solved`` one.

    Refuses questions out of range or unknown.
    """
    asked, model = _checked(questions), curve.model
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
        "goals": {"limits": {name: limit._asdict() for name, limit in LIMITS.items()}, "questions": QUESTIONS},
        "answer": curve.answer(),
        "parameters": model._shown_rows() if model else [],
        "details": model._details() if model else [],
        "about": [*curve.notes(), *_about(curve, solved, profile)],
        "timeline": timeline(profile) if profile is not None else None,
    }


def _checked(questions: Mapping[str, Any]) -> dict[str, Any]:
    """The initial values of a page's questions, None where there is none."""
    for name in questions:
        require_choice(name, "report: question", Shown.__annotations__)
    about = {name: questions.get(name) for name in ("dataset_size", "currency")}
    if (workers := questions.get("workers")) is not None:
        require_count(workers, "report: workers", most=MOST_EXAMPLES)
    goals = {name: value for name, value in questions.items() if name not in (*about, "workers")}
    return dict.fromkeys(Shown.__annotations__) | about | {"workers": workers} | checked(goals, "report", **about)


def _about(curve: Curve, solved: Curve, profile: Profile | None) -> list[str]:
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


@dataclass(frozen=True)
class WhatIf:
    """A what-if that a reader changes, a field of `Scenario`, and its values, one of which is as predicted."""

    name: str
    label: str
    value: float | None  # As predicted, in SI units like all of these; None for unknown
    factor: float = 1.0  # Of the unit, in SI units
    unit: str = ""
    choices: tuple[float | None, ...] = ()

    def worded(self, value: float | None) -> str:
        """A value with its unit."""
        return "as profiled" if value is None else f"{significant(value / self.factor)} {self.unit}".strip()


def what_ifs_of(curve: Curve, *, every: bool = False) -> list[WhatIf]:
    """The what-ifs that the model of a curve answers; fewer, or none, of more workers on servers than take seconds.

    ``every``: also those that would make a page many times as large.
    """
    model, most = curve.model, curve.workers[-1]
    on_servers = curve.parameter_servers > 0
    if model is None or (on_servers and most > (64 if curve.synchronous else 256)):
        return []
    own = model.bandwidth if model.bandwidth is not None and math.isfinite(model.bandwidth) else None
    long = on_servers and (curve.synchronous or most > 64)
    servers, speeds = ((), (0.5, 2.0, 4.0)) if long else ((1, 2, 4), SPEEDS)
    small = every or "accelerator_speed" not in model.changes
    sizes = tuple(curve.batch_size * 2**k // 4 for k in range(5) if curve.batch_size * 2**k % 4 == 0) if small else ()
    accumulated = (1, 2, 4, 8) if every else ()
    found = []
    for one in (
        WhatIf("parameter_servers", "parameter servers", curve.parameter_servers, choices=servers),
        WhatIf("gpus_per_node", "GPUs per node", curve.workers_per_node, choices=(1, 2, 4, 8)),
        WhatIf("batch_size", "batch size of a worker", curve.batch_size, choices=sizes),
        WhatIf("accelerator_speed", "accelerator speed", 1.0, unit="× profiled", choices=speeds),
        WhatIf("accumulation", "steps of an iteration", model.scenario.accumulation or 1, choices=accumulated),
        WhatIf("bandwidth", "bandwidth of a node's link", own, GBIT, "Gbit/s", _bandwidths(own or USUAL_BANDWIDTH)),
        WhatIf("latency", "latency of a message", model.scenario.latency, 1e-6, "µs", (1e-5, 1e-4, 1e-3)),
    ):
        others = {value for value in one.choices if value != one.value and _answers(curve, one, value)}
        if others:
            values = sorted({one.value, *others}, key=lambda value: value or 0.0)
            found.append(replace(one, choices=tuple(values)))
    return found


def _bandwidths(link: float) -> tuple[float, ...]:
    """From a fifth to fifty times a link's, in bytes per second."""
    decades = range(math.floor(math.log10(link / GBIT)) - 1, math.ceil(math.log10(link / GBIT)) + 3)
    every = (rate * 10.0**decade * GBIT for decade in decades for rate in RATE_FIELDS)
    return tuple(value for value in every if link / 5.01 < value < 50.1 * link and not math.isclose(value, link))


def _answers(curve: Curve, what_if: WhatIf, value: float | None) -> bool:
    if what_if.name not in curve.model.changes or not value:
        return False
    try:
        curve.model.what_if(**{what_if.name: value}).throughput(curve.workers[-1])
    except QueueModelError:
        return False
    return True


def grid(curve: Curve, what_ifs: Sequence[WhatIf], solved: Curve, *, progress: bool = False) -> dict[str, Any]:
    """Plain values of the curves for all combinations of choices, as the model of a ``solved`` curve changes it.

    That is the curve itself unless it takes too long to change.

    A cell, of the choices that are not `PACKED`, has its curve, and a row for each combination of those that are (the
    last one varies first). A row holds for each of ``workers`` the logarithms of throughput over the first of the
    cell's, and over it of the ends of its interval and of the bound; the share of a step at each place; and last the
    logarithms of the saturation point, and of the base's throughput per worker: all in steps of ``unit``. The rows of
    a cell are packed as differences from row to row.
    """
    packed = [one for one in what_ifs if one.name in PACKED]
    chosen = [one for one in what_ifs if one not in packed]
    workers = _worker_knots(curve) if solved is curve else curve.workers
    cells = []
    with tqdm(desc="what-ifs", unit=" curves", disable=not progress) as bar:
        for choices in _combinations(chosen):
            model = _changed(solved.model, chosen, choices)
            exact = curve if model is solved.model else _predicted(model, curve.workers, curve, solved)
            base, rows = math.log(exact.steps_per_second[0]), []
            for values in _combinations(packed) if packed else ():
                other = _changed(model, packed, values)
                rows.append(_row(_predicted(other, workers, curve, solved), base))
                bar.update()
            cells.append({"choices": choices, "curve": shown(exact), "base": base, "rows": _packed(rows)})
    return {"workers": workers, "unit": UNIT, "packed": [one.name for one in packed], "cells": cells}


def _combinations(what_ifs: Sequence[WhatIf]) -> list[dict[str, Any]]:
    names = [one.name for one in what_ifs]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*(one.choices for one in what_ifs))]


def _changed(model: Model, what_ifs: Sequence[WhatIf], values: dict[str, Any]) -> Model:
    changes = {one.name: values[one.name] for one in what_ifs if values[one.name] != one.value}
    return model.what_if(**changes) if changes else model


def _predicted(model: Model, workers: np.ndarray, curve: Curve, solved: Curve) -> Curve:
    """What a model predicts, as many times the curve as it is times the solved one."""
    found = model.throughput(workers, confidence=curve.confidence)
    if solved is curve:
        return found
    by = (curve.steps_per_second / solved.steps_per_second)[np.searchsorted(curve.workers, workers)]
    rates = {name: getattr(found, name) * by for name in ("steps_per_second", "lower", "upper", "bound_upper")}
    single, spent = found.single * curve.single / solved.single, found.residence_time / by[:, None]
    return replace(found, **rates, single=single, residence_time=spent)


def _row(curve: Curve, base: float) -> np.ndarray:
    X, knee = curve.steps_per_second, min(curve.saturation_workers, 1e3 * curve.workers[-1])
    bound = curve.bound_upper if curve.bound_upper.size else X
    logs = [np.log(X) - base, *(np.log(end / X) for end in (curve.lower, curve.upper, bound))]
    return np.concatenate([*logs, _shares(curve)[1].ravel(), [math.log(knee), math.log(curve.single) - base]])


def _packed(rows: Sequence[np.ndarray]) -> str:
    whole = np.clip(np.rint(np.nan_to_num(np.array(rows).T) / UNIT), -32767, 32767).astype("<i2")
    differences = np.diff(whole, axis=1, prepend=whole.dtype.type(0)) if rows else whole
    return base64.b64encode(zlib.compress(differences.tobytes(), 9)).decode()


def shown(curve: Curve) -> dict[str, Any]:
    """What a page shows of a curve."""
    names = ("workers", "steps_per_second", "lower", "upper", "single", "base_workers", "base", "batch_size", "unit",
             "work", "nodes", "workers_per_node", "in_rounds", "parameter_servers", "bound_upper", "saturation_workers",
             "measured", "profiled_workers")  # fmt: skip
    places, shares = _shares(curve)
    return {name: getattr(curve, name) for name in names} | {
        "counts": curve._counts,
        "names": [named(curve, n) for n in curve.workers.tolist()],
        "in_one": curve._steps_in_one,
        "rate": rate_axis(curve),
        "size": size_axis(curve),
        "places": places,
        "shares": shares,
    }


def _shares(curve: Curve) -> tuple[list[str], np.ndarray]:
    """Where a step's time goes besides the worker's own: places, and their shares, shape (places, n)."""
    kinds = [name.rstrip("0123456789 ") for name in curve.stations] if curve.residence_time.size else []
    places = list(dict.fromkeys(kinds))
    spent = [curve.residence_time[:, [kind == place for kind in kinds]].sum(axis=1) for place in places]
    return places, np.array(spent).reshape(len(places), len(curve.workers)) * curve.steps_per_second / curve.workers


def _worker_knots(curve: Curve) -> np.ndarray:
    """Numbers of workers between which logarithms are linear in those of the workers; all where few are not enough."""
    every, log_x = curve.workers, np.log(curve.steps_per_second)
    few = np.unique(np.searchsorted(every, np.geomspace(every[0], every[-1], MOST_WORKERS).round()))
    if curve.synchronous and curve.parameter_servers > 0:  # each number bends at a bandwidth of its own
        return every
    off = np.abs(np.interp(np.log(every), np.log(every[few]), log_x[few]) - log_x).max()
    return every[few] if off < BETWEEN_WORKERS else every
