"""The package's own workload file: one job per row (docs/reference/workload-csv)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from ..base.checks import MOST_EXAMPLES
from ..base.errors import DataError, QueueModelError
from ..base.files import Row, read_rows
from ..curves.curve import ThroughputCurve
from .curves import BatchSizes, Curve, PowerLawCurve, TableCurve, as_curve, statistical_efficiency
from .jobs import ClusterJob, Workload
from .published import located

#: From a profile's file, the most nodes, and settings by name to a throughput curve.
Predicted: TypeAlias = Callable[[Path, int, dict[str, str]], ThroughputCurve]

REQUIRED = ("name", "arrival_time", "speeds")
#: Instead of ``steps`` a job may have these three.
PASSES = ("epochs", "dataset_size", "batch_size")
OPTIONAL = ("steps", "least_nodes", "most_nodes", "requested_nodes", "kind", "end_probability", "noise_scales")


def read_workload(
    path: str | os.PathLike[str], *, nodes: int | None = None, predicted: Predicted | None = None
) -> Workload:
    """Read a workload (docs/reference/workload-csv has the columns).

    With ``nodes``, for a cluster of n nodes: a job that needs more is refused with its row. ``predicted``
    (`queuemodel.models.curve_of`) makes a curve of speeds like ``profile FILE NAME=VALUE ...``.

    Raises
    ------
    DataError
        One line with file, row, column and what is wrong.
    """
    jobs = []
    for row in read_rows(path, required=REQUIRED, optional=(*OPTIONAL, *PASSES), what="jobs"):
        with located(row.where):
            jobs.append(_job(row, Path(path).parent, nodes, predicted))
            if nodes is not None:
                jobs[-1].require_room(nodes)
    with located(path):
        return Workload(jobs, os.path.basename(str(path)))


def _job(row: Row, folder: Path, nodes: int | None, predicted: Predicted | None) -> ClusterJob:
    """The job of a row; a `ModelError` does not name the row yet."""
    text = row.text("speeds", most=100_000)
    least, most = row.count("least_nodes", 1), row.count("most_nodes", 0) or None
    sizes = None
    if text.split()[0] == "profile":
        curve = _predicted(row, text.split()[1:], folder, most or nodes, predicted)
    elif "=" in text:
        sizes = _batch_sizes(row, text)
        curve = sizes.curves[row.count("batch_size")]
    else:
        curve = _speeds(row, text)
    if sizes is None and row.given("noise_scales"):
        raise DataError(f"{row.where}: noise_scales go with speeds by batch size; give these, or leave it empty")
    if isinstance(curve, TableCurve):
        if most is None or sizes:  # others of its batch sizes may reach further
            most = min(most or curve.most, curve.most)
        least = row.count("least_nodes", curve.least)
        if least < curve.least or most > curve.most:
            raise DataError(
                f"{row.where}: speeds are given for {curve.least} to {curve.most} nodes, but the job may run on "
                f"{least} to {most}; give more speeds or narrow least_nodes and most_nodes"
            )
    return ClusterJob(
        row.text("name"),
        arrival_time=row.number("arrival_time", unit="seconds from the stream's start"),
        steps=_steps(row) if sizes is None else sizes.steps(row.count("batch_size")),
        curve=curve,
        batch_sizes=sizes,
        least_nodes=least,
        most_nodes=most,
        requested_nodes=row.count("requested_nodes", 0) or None,
        kind=row.text("kind", ""),
        end_probability=row.share("end_probability", 0.0),
    )


def _steps(row: Row) -> float:
    if row.given("steps"):
        if any(row.given(part) for part in PASSES if part != "batch_size" or not row.given("noise_scales")):
            raise DataError(f"{row.where}: steps and {', '.join(PASSES)} exclude each other; give one")
        return row.number("steps", positive=True)
    if not all(row.given(part) for part in PASSES):
        raise DataError(f"{row.where}: a job needs work: give steps, or {', '.join(PASSES)}")
    epochs, dataset, batch = (row.number(part, positive=True, largest=MOST_EXAMPLES) for part in PASSES)
    return epochs * dataset / batch


def _predicted(row: Row, words: list[str], folder: Path, most: int | None, predicted: Predicted | None) -> Curve:
    """The speeds predicted from a profile, on 1 to ``most`` nodes."""
    settings = {name: value for name, _, value in (word.partition("=") for word in words[1:])}
    if not words or not all(name and value for name, value in settings.items()):
        raise DataError(f"{row.where}: speeds must be 'profile FILE NAME=VALUE ...', got {' '.join(words)[:60]!r}")
    if predicted is None or most is None:
        what = "most_nodes" if most is None else "predicted"
        raise DataError(f"{row.where}: speeds from a profile need {what}; give it")
    with located(f"{row.where}: speeds", QueueModelError):
        return as_curve(predicted(folder / words[0], most, settings))


def _speeds(row: Row, text: str) -> PowerLawCurve | TableCurve:
    """A table ``1:2.0 2:3.7`` or ``power EXPONENT SPEED``."""
    first, *others = text.split() or [""]
    try:
        if first == "power":
            exponent, speed = map(float, others)
        else:
            pairs = [(int(nodes), float(speed)) for nodes, speed in (part.split(":") for part in (first, *others))]
    except ValueError:
        raise DataError(
            f"{row.where}: speeds must be a table such as '1:2.0 2:3.7', 'power EXPONENT SPEED' or 'profile FILE', or "
            f"tables by batch size such as '128=1:2.0 2:3.7; 256=1:1.2 2:2.3', got {text[:60]!r}"
        ) from None
    return PowerLawCurve(exponent, speed=speed) if first == "power" else TableCurve(pairs)


def _batch_sizes(row: Row, text: str) -> BatchSizes:
    """The batch sizes of a row; noise scales: ``STEPS:SCALE`` per stretch, in steps at the smallest batch, or one."""
    curves: dict[int, PowerLawCurve | TableCurve] = {}
    for part in text.split(";"):
        size, _, speeds = part.partition("=")
        if not size.strip().isdecimal() or int(size) in curves:
            raise DataError(
                f"{row.where}: speeds by batch size must be such as '128=1:2.0 2:3.7; 256=1:1.2 2:2.3', each size "
                f"once, got {part[:60]!r}"
            )
        curves[int(size)] = _speeds(row, speeds)
    user, first = row.count("batch_size", most=10**9), min(curves)
    if user not in curves:
        raise DataError(f"{row.where}: batch_size must be one of {sorted(curves)}, whose speeds are given, got {user}")
    noise = row.text("noise_scales", most=100_000)
    staged = ":" in noise
    try:
        pairs = (part.split(":") for part in noise.split()) if staged else [("0", noise)]
        scales = [(float(length), float(scale)) for length, scale in pairs]
    except ValueError:
        raise DataError(
            f"{row.where}: noise_scales must be a number of examples, or 'STEPS:SCALE STEPS:SCALE ...', "
            f"got {noise[:60]!r}"
        ) from None
    if staged and (row.given("steps") or row.given("epochs")):
        raise DataError(f"{row.where}: noise_scales with steps are the job's work; leave steps and epochs empty")
    if not staged:
        ((_, scale),) = scales
        scales = [(_steps(row) * user / first * statistical_efficiency(user, scale, first=first), scale)]
    return BatchSizes(curves, scales, most_nodes=row.count("most_nodes", 0) or None)
