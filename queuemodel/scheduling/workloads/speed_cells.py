"""Speeds in a cell of the package's own workload file: a table, a power law, or one of these for each batch size."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...errors import DataError, ModelError
from ...rows import Row
from ..curves import PowerLawCurve, TableCurve
from ..stages import StagedCurve

#: Before a batch size's curve, and after it.
IS, NEXT = "=", ";"


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
    for part in text.split(NEXT):
        size, _, curve = part.partition(IS)
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


def told(curve: Callable[[float], float], nodes: range | None, what: str) -> str:
    """A curve as a cell; one that is neither a table nor a power law is tabulated on ``nodes``.

    Raises
    ------
    ModelError
        When it must be, and no nodes are given, or it is in stages.
    """
    if isinstance(curve, PowerLawCurve):
        return f"power {curve.exponent!r} {curve.speed!r}"
    if isinstance(curve, TableCurve):
        points = list(curve.points)
    elif isinstance(curve, StagedCurve):
        raise ModelError(f"{what}: the file has no column for a curve in stages")
    elif nodes is None:
        raise ModelError(f"{what}: give nodes, up to which to tabulate its curve")
    else:
        points = [(n, curve(n)) for n in nodes]
    return " ".join(f"{int(n)}:{float(speed)!r}" for n, speed in points)


def told_by_batch_size(curves: Mapping[int, Callable[[float], float]], nodes: range | None, what: str) -> str:
    """Curves by batch size as a cell (raises ModelError)."""
    return f"{NEXT} ".join(f"{size}{IS}{told(curve, nodes, what)}" for size, curve in curves.items())
