"""Measured throughputs as a plain CSV: ``workers,steps_per_second[,parameter_servers]``."""

from __future__ import annotations

import csv
import io
import os

from ..errors import DataError
from ..files import read_bytes
from .profile import Throughput

REQUIRED = ("workers", "steps_per_second")
OPTIONAL = ("parameter_servers",)


def read_throughputs(path: str | os.PathLike[str]) -> list[Throughput]:
    """Read measured throughputs from a CSV with a header.

    Returns
    -------
    list of Throughput
        In the order of the file.

    Raises
    ------
    DataError
        One line that names the file, the row, the field and the value.
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not text; a CSV with the columns {', '.join(REQUIRED)} is needed") from None
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    header = [name.strip() for name in reader.fieldnames or []]
    missing = [name for name in REQUIRED if name not in header]
    unknown = [name for name in header if name not in REQUIRED + OPTIONAL]
    if missing or unknown:
        problem = f"column {missing[0]!r} is missing" if missing else f"unknown column {unknown[0]!r}"
        raise DataError(f"{path}: {problem}; the columns are workers,steps_per_second[,parameter_servers]")
    reader.fieldnames = header
    rows = [_parse(row, f"{path}: line {reader.line_num}") for row in reader]
    if not rows:
        raise DataError(f"{path}: no measurements below the header")
    return rows


def _parse(row: dict[str, str], where: str) -> Throughput:
    if None in row or None in row.values():
        raise DataError(f"{where}: expected {len([name for name in row if name])} values in the row")
    try:
        return Throughput(
            workers=_whole(row["workers"], "workers"),
            steps_per_second=_number(row["steps_per_second"], "steps_per_second"),
            parameter_servers=_whole(row.get("parameter_servers") or "1", "parameter_servers"),
        )
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def _number(text: str, field: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{field} must be a number, got {text!r}") from None


def _whole(text: str, field: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DataError(f"{field} must be a whole number, got {text!r}") from None
