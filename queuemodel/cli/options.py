"""Option types and checks that several commands share."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import DataError, QueueModelError
from ..units import parse_bandwidth, parse_duration


class Quantity(click.ParamType):
    """A number with its unit, like 10Gbit/s or 90min."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The value in SI units."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except QueueModelError as error:
            self.fail(str(error), param, ctx)


#: More machines or customers than this are a typing mistake.
LARGEST = 1_000_000


class Counts(click.ParamType):
    """Numbers of machines or customers: ``8``, ``1:32`` (both ends included) or ``1,2,4,8``."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Sequence[int]:
        """Increasing whole numbers of at least 1."""
        if not isinstance(value, str):
            return value
        try:
            if ":" in value:
                first, last = map(int, value.split(":"))
                counts: Sequence[int] = range(first, last + 1)
            else:
                counts = sorted({int(part) for part in value.split(",")})
        except ValueError:
            self.fail(f"{value!r} is not like 8, 1:32 or 1,2,4,8", param, ctx)
        if not counts:
            self.fail(f"{value!r}: the range is empty, its first number must not exceed its last", param, ctx)
        if counts[0] < 1 or counts[-1] > LARGEST:
            self.fail(f"{value!r}: numbers must be 1 to {LARGEST:,}", param, ctx)
        return counts


BANDWIDTH = Quantity("bandwidth", parse_bandwidth)
DURATION = Quantity("duration", parse_duration)
COUNTS = Counts()

format_option = click.option(
    "--format", "output_format", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True
)


def require_writable(path: str | os.PathLike[str] | None, *, suffixes: Sequence[str] = ()) -> None:
    """Fail before long work, not after it, when an output cannot be written."""
    if path is None:
        return
    target = Path(path)
    folder = target.parent
    if suffixes and target.suffix.lower() not in suffixes:
        raise DataError(f"{path}: the file name must end in one of {', '.join(suffixes)}")
    if target.is_dir():
        raise DataError(f"{path}: cannot be written: is a folder")
    if not folder.is_dir():
        raise DataError(f"{path}: cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise DataError(f"{path}: cannot be written: permission denied")


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV with a header."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().rstrip("\n")
