"""Jobs that may choose their batch size, in the package's own workload file: speeds for each, and noise scales."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import DataError, ModelError
from ...rows import Row
from ..batch_sizes import BatchSizes, statistical_efficiency
from ..curves import TableCurve
from ..jobs import Job
from .speed_cells import IS, read_speeds_by_batch_size, told_by_batch_size

NOISE = "noise_scales"


def has_batch_sizes(text: str) -> bool:
    """Whether a cell of speeds is by batch size."""
    return IS in text and text.split()[0] != "profile"


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


def told_batch_sizes(job: Job, sizes: BatchSizes, nodes: range | None) -> dict[str, object]:
    """The columns of a job that may choose.

    Raises
    ------
    ModelError
        For what has no column: noise scales that differ by batch size, a curve that is none of the batch sizes', a
        limit on the nodes of one batch size.
    """
    what = f"job {job.name!r}"
    user = [size for size, curve in sizes.curves.items() if curve is job.curve]
    if not user:
        raise ModelError(f"{what}: the file has no column for a curve that is none of its batch sizes'")
    reached = int(job.curve.points[-1][0]) if isinstance(job.curve, TableCurve) else sizes.most_nodes
    if job.most_nodes != (reached if sizes.most_nodes is None else min(sizes.most_nodes, reached or sizes.most_nodes)):
        raise ModelError(f"{what}: the file has no column for most_nodes of the user's batch size alone")
    stretches = []
    for steps, scales in sizes.stretches:
        if len(set(scales.values())) > 1:
            raise ModelError(f"{what}: the file has no column for noise scales that differ by batch size")
        stretches.append(f"{steps!r}:{float(next(iter(scales.values())))!r}")
    speeds = told_by_batch_size(sizes.curves, nodes, what)
    return {
        "speeds": speeds,
        "batch_size": user[0],
        NOISE: " ".join(stretches),
        "most_nodes": sizes.most_nodes or "",
    }
