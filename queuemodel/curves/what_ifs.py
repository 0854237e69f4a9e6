"""What-ifs of a fitted model: those that a page and a notebook offer, and the curves of a page.

A page has no model: it has the curves of all combinations of choices, and interpolates those of other bandwidths
(report/grid.js), in logarithms.
"""

from __future__ import annotations

import base64
import itertools
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from tqdm import tqdm

from ..base.errors import QueueModelError

#: A fitted model and its curve, of modules above this one.
Model = Any
Curve = Any

GBIT = 1.25e8  # bytes per second
#: The middle of the slider, in bytes per second, where the profile's bandwidth is unknown.
USUAL_BANDWIDTH = 10 * GBIT

#: Largest error of interpolation halfway between two bandwidths, in logarithms; closer than `CLOSEST` none is added.
TOLERANCE, CLOSEST, FIRST = 0.006, 0.05, 15
#: Numbers of workers of a grid, of which the others follow where throughput is smooth: within such an error.
MOST_WORKERS, BETWEEN_WORKERS = 18, 0.002
#: Relative speeds of accelerators.
SPEEDS = tuple(2 ** (k / 4) for k in (-4, -2, 0, 1, 2, 4, 6, 8))
#: One step of the packed logarithms.
UNIT = 1e-3


@dataclass(frozen=True)
class WhatIf:
    """A what-if that a reader changes, a field of `Scenario`: one of ``choices``, or what is between two ends."""

    name: str
    label: str
    value: float | None  # As predicted, in SI units like all of these; None for unknown
    factor: float = 1.0  # Of the unit, in SI units
    unit: str = ""
    least: float = 0.0
    most: float = 0.0
    choices: tuple[float, ...] = ()


def what_ifs_of(curve: Curve, *, every: bool = False) -> list[WhatIf]:
    """The what-ifs that the model of a curve answers; fewer, or none, of more workers on servers than take seconds.

    ``every``: also those that would make a page many times as large.
    """
    model, most = curve.model, curve.workers[-1]
    on_servers = curve.parameter_servers > 0
    if model is None or (on_servers and most > (64 if curve.synchronous else 256)):
        return []
    own = model.bandwidth if model.bandwidth is not None and math.isfinite(model.bandwidth) else None
    link, scenario = own or USUAL_BANDWIDTH, model.scenario
    long = on_servers and (curve.synchronous or most > 64)
    servers, speeds = ((), (0.5, 2.0, 4.0)) if long else ((1, 2, 4), SPEEDS)
    small = every or "accelerator_speed" not in model.changes
    sizes = tuple(curve.batch_size * 2**k // 4 for k in range(5) if curve.batch_size * 2**k % 4 == 0) if small else ()
    found = []
    for one in (
        WhatIf("parameter_servers", "parameter servers", curve.parameter_servers, choices=servers),
        WhatIf("gpus_per_node", "GPUs per node", curve.workers_per_node, choices=(1, 2, 4, 8)),
        WhatIf("batch_size", "batch size of a worker", curve.batch_size, choices=sizes),
        WhatIf("accelerator_speed", "accelerator speed", 1.0, 1.0, "× profiled", choices=speeds),
        WhatIf(
            "accumulation",
            "steps of an iteration",
            scenario.accumulation or 1,
            choices=(1, 2, 4, 8) if every else (),
        ),
        WhatIf("bandwidth", "bandwidth of a node's link", own, GBIT, "Gbit/s", link / 5, 50 * link),
        WhatIf("latency", "latency of a message", scenario.latency, 1e-6, "µs", choices=(1e-5, 1e-4, 1e-3)),
    ):
        others = [value for value in one.choices or (one.most,) if value != one.value and _answers(curve, one, value)]
        if others and one.choices:
            own_value = () if one.value is None else (one.value,)
            found.append(replace(one, choices=tuple(sorted({*own_value, *others}))))
        elif others and one.most:
            found.append(one)
    return found


def _answers(curve: Curve, what_if: WhatIf, value: float) -> bool:
    if what_if.name not in curve.model.changes or not value:
        return False
    try:
        curve.model.what_if(**{what_if.name: value}).throughput(curve.workers[-1])
    except QueueModelError:
        return False
    return True


def grid(curve: Curve, what_ifs: Sequence[WhatIf], *, progress: bool = False) -> dict[str, Any]:
    """Plain values of the curves for all combinations of choices (but for those of accelerators), as cells.

    A cell has its curve, and lines for other accelerators and bandwidths: the logarithms of relative bandwidth
    (``knots``; one for the profiled bandwidth), and for each a row of ``rows``. This holds for each of ``workers`` the
    logarithms of throughput over the first of the cell's, and of the ends of its interval over it; the share of a step
    at each place; and last the logarithm of the saturation point: all in steps of ``unit``, packed as differences from
    row to row.
    """
    speeds = next((one.choices for one in what_ifs if one.name == "accelerator_speed"), (1.0,))
    link = next((one for one in what_ifs if one.name == "bandwidth"), None)
    chosen = [one for one in what_ifs if one.choices and one.name != "accelerator_speed"]
    middle = (link.value or USUAL_BANDWIDTH) if link else 1.0
    workers = _worker_knots(curve)
    cells = []
    with tqdm(desc="what-ifs", unit=" curves", disable=not progress) as bar:
        for values in itertools.product(*(dict.fromkeys([one.value, *one.choices]) for one in chosen)):
            choices = {one.name: value for one, value in zip(chosen, values, strict=True)}
            changes = {one.name: value for one, value in zip(chosen, values, strict=True) if value != one.value}
            model = curve.model.what_if(**changes) if changes else curve.model
            exact = model.throughput(curve.workers, confidence=curve.confidence) if changes else curve
            base = math.log(exact.steps_per_second[0])

            def row(speed: float, log: float | None, model: Model = model, base: float = base) -> np.ndarray:
                bandwidth = {} if log is None else {"bandwidth": middle * math.exp(log)}
                other = model.what_if(accelerator_speed=speed, **bandwidth)
                bar.update()
                return _row(other.throughput(workers, confidence=curve.confidence), base)

            lines = _lines(row, 3 * len(workers), speeds, link, middle)
            cells.append({"choices": choices, "curve": shown(exact), "base": base} | lines)
    return {"workers": workers, "unit": UNIT, "bandwidth": middle, "cells": cells}


def _lines(
    row: Callable[[float, float | None], np.ndarray],
    count: int,
    speeds: Sequence[float],
    link: WhatIf | None,
    middle: float,
) -> dict[str, Any]:
    """Lines at speeds of accelerators, and their rows, which begin with ``count`` logarithms of throughput."""
    lines: list[dict[str, Any]] = []
    rows: list[np.ndarray] = []
    for speed in speeds:
        if speed != 1.0:
            lines.append({"speed": speed, "knots": [], "start": len(rows)})
            rows.append(row(speed, None))
        if link:
            ends = math.log(link.least / middle), math.log(link.most / middle)
            found = _refined(partial(row, speed), *ends, count=count)
            lines.append({"speed": speed, "knots": list(found), "start": len(rows)})
            rows += found.values()
    if not rows:
        return {"lines": [], "rows": ""}
    whole = np.clip(np.rint(np.array(rows).T / UNIT), -32767, 32767).astype("<i2")
    packed = zlib.compress(np.diff(whole, axis=1, prepend=whole.dtype.type(0)).tobytes(), 9)
    return {"lines": lines, "rows": base64.b64encode(packed).decode()}


def _row(curve: Curve, base: float) -> np.ndarray:
    X, knee = curve.steps_per_second, min(curve.saturation_workers, 1e3 * curve.workers[-1])
    logs = [np.log(X) - base, np.log(curve.lower / X), np.log(curve.upper / X)]
    return np.concatenate([*logs, _shares(curve)[1].ravel(), [math.log(knee)]])


def _refined(row: Callable[[float], np.ndarray], low: float, high: float, *, count: int) -> dict[float, np.ndarray]:
    """Rows at increasing knots, halved where interpolation gives another one of the first ``count``."""
    found = {x: row(x) for x in np.linspace(low - 0.01, high, FIRST).tolist()}  # none is the profiled bandwidth
    wide = list(itertools.pairwise(found))
    while wide:
        left, right = wide.pop()
        x = (left + right) / 2
        new, guess = row(x), _pchip([*found], np.array([*found.values()]))(x)
        if np.abs(new - guess)[:count].max() > TOLERANCE and right - left > 2 * CLOSEST:
            wide += [(left, x), (x, right)]
        found = dict(sorted([*found.items(), (x, new)]))
    return found


def shown(curve: Curve) -> dict[str, Any]:
    """What a page shows of a curve."""
    names = ("workers", "steps_per_second", "lower", "upper", "single", "base_workers", "base", "batch_size", "unit",
             "nodes", "workers_per_node", "in_rounds", "steps_per_round", "bound_upper", "saturation_workers",
             "measured", "profiled_workers")  # fmt: skip
    places, shares = _shares(curve)
    return {name: getattr(curve, name) for name in names} | {"places": places, "shares": shares}


def _shares(curve: Curve) -> tuple[list[str], np.ndarray]:
    """Where a step's time goes besides the worker's own: places, and their shares, shape (places, n)."""
    kinds = [name.rstrip("0123456789 ") for name in curve.stations] if curve.residence_time.size else []
    places = list(dict.fromkeys(kinds))
    spent = [curve.residence_time[:, [kind == place for kind in kinds]].sum(axis=1) for place in places]
    return places, np.array(spent).reshape(len(places), len(curve.workers)) * curve.steps_per_second / curve.workers


def _worker_knots(curve: Curve) -> np.ndarray:
    """Numbers of workers between which throughput is interpolated; all where few are not enough."""
    every, log_x = curve.workers, np.log(curve.steps_per_second)
    if every[0] > 1:
        every, log_x = np.append(1, every), np.append(math.log(curve.single), log_x)
    few = np.unique(np.searchsorted(every, np.geomspace(1, every[-1], MOST_WORKERS).round()))
    barrier = curve.synchronous and curve.parameter_servers > 0  # each number bends at a bandwidth of its own
    if barrier or len(few) == len(every) or len(few) < 2:
        return every
    off = np.abs(_pchip(np.log(every[few]), log_x[few])(np.log(every)) - log_x).max()
    return every[few] if off < BETWEEN_WORKERS else every


def _pchip(x: Sequence[float] | np.ndarray, y: np.ndarray) -> Callable[[Any], np.ndarray]:
    """Monotone piecewise cubics (Fritsch and Butland 1984), as report/grid.js has them but for the outer knots."""
    from scipy.interpolate import PchipInterpolator

    interpolated: Callable[[Any], np.ndarray] = PchipInterpolator(x, y)
    return interpolated
