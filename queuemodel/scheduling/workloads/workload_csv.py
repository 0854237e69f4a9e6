"""The package's own workload file: one job per row (docs/reference/workload-csv)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ...checks import MOST_EXAMPLES
from ...errors import DataError, ModelError, QueueModelError
from ...rows import Row, read_rows
from ...training.curve import ThroughputCurve
from ..curves import PowerLawCurve, TableCurve
from ..jobs import Job, Workload, training_steps
from ..phases import BatchSizes, statistical_efficiency

#: From a profile's file, the most nodes, and settings by name to a throughput curve.
Predicted = Callable[[Path, int, dict[str, str]], ThroughputCurve]

NOISE = "noise_scales"

REQUIRED = ("name", "arrival_time", "speeds")
#: Instead of ``steps`` a job may have these three.
PASSES = ("epochs", "dataset_size", "batch_size")
OPTIONAL = ("steps", "least_nodes", "most_nodes", "requested_nodes", "kind", "end_probability", NOISE)


def read_workload(
    path: str | os.PathLike[str], *, nodes: int | None = None, predicted: Predicted | None = None
) -> Workload:
    """Read a workload; with ``nodes``, for a cluster of so many: a job that needs more is refused with its row.

    Columns ``name``, ``arrival_time`` (seconds, not falling), ``speeds`` and either ``steps`` or ``epochs``,
    ``dataset_size`` and ``batch_size``; optional ``least_nodes``, ``most_nodes``, ``requested_nodes``, ``kind`` and
    ``end_probability`` (that the job ends early, uniformly over its work). ``speeds`` is a table ``1:2.0 2:3.7 4:6.1``
    (nodes to steps per second, linear in between), ``power EXPONENT SPEED`` (``SPEED * nodes ** EXPONENT``), or
    ``profile FILE NAME=VALUE ...``, what ``predicted`` (`queuemodel.speeds.curve_of`) makes of a profile beside the
    workload. Without ``most_nodes`` a table's largest node count is the most. A job that may choose its batch size has
    such ``speeds`` for each, ``128=1:2.0 2:3.7; 256=1:1.2 2:2.3``, with ``noise_scales`` and its user's ``batch_size``.

    Raises
    ------
    DataError
        One line with file, row, column and what is wrong.
    """
    jobs: list[Job] = []
    rows: dict[str, int] = {}
    for row in read_rows(path, required=REQUIRED, optional=(*OPTIONAL, *PASSES), what="jobs"):
        job = _job(row, Path(path).parent, nodes, predicted)
        if nodes is not None:
            job.require_room(nodes, where=row.where, error=DataError)
        if job.name in rows:
            raise DataError(f"{row.where}: the name {job.name!r} is already that of line {rows[job.name]}; rename one")
        if jobs and job.arrival_time < jobs[-1].arrival_time:
            raise DataError(
                f"{row.where}: arrival_time must not fall, got {job.arrival_time:g} after {jobs[-1].arrival_time:g}; "
                "sort the rows by arrival_time"
            )
        rows[job.name] = row.line
        jobs.append(job)
    return Workload(jobs, os.path.basename(str(path)))


def _job(row: Row, folder: Path, nodes: int | None, predicted: Predicted | None) -> Job:
    text = row.text("speeds", most=100_000)
    sizes = read_batch_sizes(row, text, _steps) if has_batch_sizes(text) else None
    if sizes is None and row.given(NOISE):
        raise DataError(f"{row.where}: noise_scales go with speeds by batch size; give these, or leave it empty")
    if sizes is None:
        curve: Callable[[float], float] = _curve(row, text, folder, nodes, predicted)
    else:
        curve = sizes.curves[row.count("batch_size")]
    least, most = row.count("least_nodes", 1), row.count("most_nodes", 0) or None
    if isinstance(curve, TableCurve):
        last = int(curve.points[-1][0])
        if most is None or sizes:  # others of its batch sizes may reach further
            most = min(most or last, last)
        least = max(least, int(curve.points[0][0])) if not row.given("least_nodes") else least
        if least < curve.points[0][0] or most > curve.points[-1][0]:
            raise DataError(
                f"{row.where}: speeds are given for {curve.points[0][0]:g} to {curve.points[-1][0]:g} nodes, but the "
                f"job may run on {least} to {most}; give more speeds or narrow least_nodes and most_nodes"
            )
    work = _steps(row) if sizes is None else sizes.steps(row.count("batch_size"))
    try:
        return Job(
            row.text("name"),
            arrival_time=row.number("arrival_time", unit="seconds from the stream's start"),
            steps=work,
            curve=curve,
            batch_sizes=sizes,
            least_nodes=least,
            most_nodes=most,
            requested_nodes=row.count("requested_nodes", 0) or None,
            kind=row.text("kind", ""),
            end_probability=row.share("end_probability", 0.0),
        )
    except ModelError as error:
        raise DataError(f"{row.where}: {error}") from None


def _steps(row: Row) -> float:
    if row.given("steps"):
        if any(row.given(part) for part in PASSES if part != "batch_size" or not row.given(NOISE)):
            raise DataError(f"{row.where}: steps and {', '.join(PASSES)} are two ways to say one thing; give one")
        return row.number("steps", positive=True)
    if not all(row.given(part) for part in PASSES):
        raise DataError(f"{row.where}: a job needs work: give steps, or {', '.join(PASSES)}")
    epochs, dataset, batch = (row.number(part, positive=True, largest=MOST_EXAMPLES) for part in PASSES)
    return training_steps(epochs, dataset, batch, row.where)


def _curve(
    row: Row, text: str, folder: Path, nodes: int | None, predicted: Predicted | None
) -> PowerLawCurve | TableCurve:
    if text.split()[0] == "profile":
        return _predicted(row, text.split()[1:], folder, row.count("most_nodes", 0) or nodes, predicted)
    return read_speeds(row, text)


def _predicted(row: Row, words: list[str], folder: Path, most: int | None, predicted: Predicted | None) -> TableCurve:
    """The speeds that are predicted from a profile, on 1 to so many nodes."""
    if not words or not all(name and value for name, _, value in (word.partition("=") for word in words[1:])):
        raise DataError(f"{row.where}: speeds must be 'profile FILE NAME=VALUE ...', got {' '.join(words)[:60]!r}")
    if predicted is None or most is None:
        what = "most_nodes" if most is None else "predicted"
        raise DataError(f"{row.where}: speeds from a profile need {what}; give it")
    settings = {word.partition("=")[0]: word.partition("=")[2] for word in words[1:]}
    try:
        curve = predicted(folder / words[0], most, settings)
        return TableCurve(tuple(zip(curve.workers.tolist(), curve.steps_per_second.tolist(), strict=True)))
    except QueueModelError as error:
        raise DataError(f"{row.where}: speeds: {error}") from None


def read_speeds(row: Row, text: str) -> PowerLawCurve | TableCurve:
    """A table ``1:2.0 2:3.7`` or ``power EXPONENT SPEED`` (raises DataError)."""
    try:
        if text.split()[:1] == ["power"]:
            _, exponent, speed = text.split()
            return PowerLawCurve(float(exponent), speed=float(speed))
        pairs = [part.split(":") for part in text.split()]
        return TableCurve([(int(nodes), float(speed)) for nodes, speed in pairs])
    except ModelError as error:
        raise DataError(f"{row.where}: speeds: {error}") from None
    except ValueError:
        raise DataError(
            f"{row.where}: speeds must be a table such as '1:2.0 2:3.7', 'power EXPONENT SPEED' or 'profile FILE', or "
            f"tables by batch size such as '128=1:2.0 2:3.7; 256=1:1.2 2:2.3', got {text[:60]!r}"
        ) from None


def read_speeds_by_batch_size(row: Row, text: str) -> dict[int, PowerLawCurve | TableCurve]:
    """Curves by batch size, ``128=1:2.0 2:3.7; 256=1:1.2 2:2.3`` (raises DataError)."""
    curves: dict[int, PowerLawCurve | TableCurve] = {}
    for part in text.split(";"):
        size, _, curve = part.partition("=")
        try:
            batch_size = int(size)
        except ValueError:
            raise DataError(
                f"{row.where}: speeds by batch size must be such as '128=1:2.0 2:3.7; 256=1:1.2 2:2.3', "
                f"got {part[:60]!r}"
            ) from None
        if batch_size in curves:
            raise DataError(f"{row.where}: speeds: batch size {batch_size} stands twice; leave one")
        curves[batch_size] = read_speeds(row, curve)
    return curves


def has_batch_sizes(text: str) -> bool:
    """Whether a cell of speeds is by batch size."""
    return "=" in text and text.split()[0] != "profile"


def read_batch_sizes(row: Row, text: str, steps: Callable[[Row], float]) -> BatchSizes:
    """The batch sizes of a row, with stretches of noise (raises DataError).

    ``noise_scales`` are ``STEPS:SCALE`` for each stretch of training, steps at the smallest batch size, or one number
    for all of it; then ``steps`` of the row are those at its ``batch_size``.
    """
    curves = read_speeds_by_batch_size(row, text)
    user = row.count("batch_size", most=10**9)
    if user not in curves:
        raise DataError(f"{row.where}: batch_size must be one of {sorted(curves)}, whose speeds are given, got {user}")
    scales = _scales(row)
    try:
        if isinstance(scales, float):
            first = min(curves)
            scales = [(steps(row) * user / first * statistical_efficiency(user, scales, first=first), scales)]
        elif row.given("steps") or row.given("epochs"):
            raise DataError(f"{row.where}: noise_scales with steps are the job's work; leave steps and epochs empty")
        return BatchSizes(curves, scales, most_nodes=row.count("most_nodes", 0) or None)
    except ModelError as error:
        raise DataError(f"{row.where}: {error}") from None


def _scales(row: Row) -> float | list[tuple[float, float]]:
    """One noise scale, or steps and noise scale of each stretch."""
    text = row.text(NOISE, most=100_000)
    try:
        if ":" not in text:
            return float(text)
        return [(float(length), float(scale)) for length, scale in (part.split(":") for part in text.split())]
    except ValueError:
        raise DataError(
            f"{row.where}: noise_scales must be a number of examples, or 'STEPS:SCALE STEPS:SCALE ...', "
            f"got {text[:60]!r}"
        ) from None
