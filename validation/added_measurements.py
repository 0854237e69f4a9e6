"""What one and two further measurements gain: ``python -m validation.added_measurements [old]``.

Each series is predicted from its traces, once alone and once with the throughput of one or two numbers of workers, and
judged on the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from queuemodel import Measurement, Profile, ThroughputCurve
from queuemodel.models import predict
from testbed.recordings import unpacked

from .data_parallel import GIVEN, OURS, of_two, read_ranks
from .held_out import HELD_OUT
from .series import every_window, read_testbed, series_folders
from .unknown_control import hidden

#: Numbers of workers, or of ranks, whose throughput is given.
GIVEN_WORKERS: tuple[tuple[int, ...], ...] = ((), (4,), (2, 4))
GIVEN_RANKS: tuple[tuple[int, ...], ...] = ((), (3,), (3, 4))

Predict = Callable[[list[Measurement], list[int]], ThroughputCurve]


class Gain(NamedTuple):
    """A series judged where nothing was given: mean absolute error, share inside, mean relative width."""

    error: float
    covered: float
    width: float


def judge(workers: np.ndarray, measured: np.ndarray, given: Sequence[int], ask: Predict) -> Gain | None:
    """A series with the mean throughput of some numbers of workers given; None where these were not measured."""
    if not {*given} <= {*workers.tolist()}:
        return None
    points = [Measurement(workers=n, steps_per_second=float(measured[workers == n].mean())) for n in given]
    judged = [n for n in np.unique(workers).tolist() if n > 1 and n not in (2, 3, 4)]
    if not judged:
        return None
    curve, rows = ask(points, judged), []
    for i, n in enumerate(judged):
        x, low, high, own = curve.steps_per_second[i], curve.lower[i], curve.upper[i], measured[workers == n]
        rows.append((abs(x / own.mean() - 1), ((low <= own) & (own <= high)).mean(), (high - low) / x))
    return Gain(*np.mean(rows, axis=0).tolist())


def servers(profile: Profile, method: str) -> Predict:
    """Steps on parameter servers, by a method."""
    servers = profile.cluster.parameter_servers

    def ask(points: list[Measurement], counts: list[int]) -> ThroughputCurve:
        there = [msgspec.structs.replace(point, parameter_servers=servers) for point in points]
        return predict(profile, workers=counts, method=method, throughputs=there)

    return ask


def ranks(profile: Profile) -> Predict:
    """Rounds of data-parallel training."""
    return lambda points, counts: predict(profile, workers=counts, throughputs=points)


def groups() -> Iterator[tuple[str, list[tuple[np.ndarray, np.ndarray, Predict]], tuple[tuple[int, ...], ...]]]:
    """By name: series with what predicts them, and which numbers of workers are given."""
    usual = [(folder, read_testbed(folder)) for folder in series_folders()]
    held_out = [
        (folder, read_testbed(folder))
        for folder in sorted(unpacked(HELD_OUT).iterdir())
        if (folder / "trace").exists() and not _waits(folder)
    ]
    policed = [one for one in held_out if "policed" in one[0].name]
    held_out = [one for one in held_out if "policed" not in one[0].name]
    for name, found in (("testbed", usual), ("held out", held_out), ("policed link", policed)):
        for method in ("mva", "trace"):
            rows = [(*every_window(folder), servers(profile, method)) for folder, profile in found]
            yield f"{name}, {method}", rows, GIVEN_WORKERS
    rows = [(*every_window(folder), servers(hidden(profile), "trace")) for folder, profile in usual]
    yield "testbed, trace, control unknown", rows, GIVEN_WORKERS
    rows = []
    for folder in [*sorted(unpacked(GIVEN).iterdir()), *sorted(unpacked(OURS).iterdir())]:
        points = json.loads((folder / "measured.json").read_text())
        n = np.array([one["workers"] for one in points])
        rows.append((n, n * np.array([one["group_steps_per_s"] for one in points]), ranks(of_two(read_ranks(folder)))))
    yield "data-parallel rounds", rows, GIVEN_RANKS


def _waits(folder: Path) -> bool:
    workload: dict[str, Any] = json.loads((folder / "workload.json").read_text())
    return workload.get("mode", "async") != "async"


def added_measurements_section() -> str:
    """Markdown: a row for each group of series and what was given."""
    text = SECTION
    for name, rows, options in groups():
        for given in options:
            found = [gain for w, x, ask in rows if (gain := judge(w, x, given, ask)) is not None]
            if found:
                error, covered, width = np.mean(found, axis=0)
                what = " and ".join(map(str, given)) or "none"
                text += f"| {name} | {len(found)} | {what} | {error:.1%} | {covered:.0%} | {width:.0%} |\n"
    return text


SECTION = """## What further measurements gain

Each series from its traces, with the throughput of no, one and two numbers of workers (or ranks) given besides, judged
on those beyond 4 (`python -m validation.added_measurements`).

| predictions | series | given | mean absolute error | covered | mean width |
|---|---|---|---|---|---|
"""

if __name__ == "__main__":
    print(added_measurements_section())
