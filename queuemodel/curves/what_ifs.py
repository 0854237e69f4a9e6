"""What-ifs of a fitted model: those that a page and a notebook offer, and the curves of a page.

A page has no model: it has the curves of all combinations of choices.
"""

from __future__ import annotations

import base64
import itertools
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tqdm import tqdm

from ..base.errors import QueueModelError
from ..base.results import significant
from .figures import rate_axis, size_axis
from .goals import named

#: A fitted model and its curve, of modules above this one.
Model = Any
Curve = Any

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
    found = []
    for one in (
        WhatIf("parameter_servers", "parameter servers", curve.parameter_servers, choices=servers),
        WhatIf("gpus_per_node", "GPUs per node", curve.workers_per_node, choices=(1, 2, 4, 8)),
        WhatIf("batch_size", "batch size of a worker", curve.batch_size, choices=sizes),
        WhatIf("accelerator_speed", "accelerator speed", 1.0, unit="× profiled", choices=speeds),
        WhatIf(
            "accumulation",
            "steps of an iteration",
            model.scenario.accumulation or 1,
            choices=(1, 2, 4, 8) if every else (),
        ),
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
    return replace(
        found,
        **rates,
        residence_time=found.residence_time / by[:, None],
        single=found.single * curve.single / solved.single,
    )


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
