"""Reading tables of jobs and measurements: every refusal names the file, the row and the column."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import DataError
from ..files import read_bytes


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, with where it stands (``file, row 7``; the header is row 1)."""

    path: str
    line: int
    values: dict[str, str]

    @property
    def where(self) -> str:
        """Where the row stands, for error messages."""
        return f"{self.path}, row {self.line}"

    def text(self, column: str) -> str:
        """A text that is not empty."""
        value = self.values[column].strip()
        if not value:
            raise DataError(f"{self.where}: {column} is empty; give it a value")
        return value

    def number(self, column: str, *, least: float = -math.inf, above: float = -math.inf) -> float:
        """A finite number, at least ``least`` and more than ``above``."""
        value = self.values[column].strip()
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number >= least and number > above):
            bound = f" >= {least:g}" if least > -math.inf else f" > {above:g}" if above > -math.inf else ""
            raise DataError(f"{self.where}: {column} must be a finite number{bound}, got {value!r}")
        return number

    def count(self, column: str, *, least: int = 1) -> int:
        """A whole number of at least ``least``."""
        number = self.number(column, least=least)
        if number != int(number):
            raise DataError(f"{self.where}: {column} must be a whole number, got {self.values[column]!r}")
        return int(number)

    def given(self, column: str) -> bool:
        """Whether the optional column is there and filled in."""
        return bool(self.values.get(column, "").strip())


def read_rows(
    path: str | os.PathLike[str],
    *,
    required: Sequence[str],
    columns: Sequence[str] | None = None,
    delimiter: str = ",",
) -> Iterator[Row]:
    """The rows of a delimited text file, each checked for its number of fields.

    Parameters
    ----------
    path : path
    required : sequence of str
        Columns that must be there.
    columns : sequence of str, optional
        Names of the columns of a file without a header.
    delimiter : str

    Raises
    ------
    DataError
        When the file cannot be read, is not text, lacks a column, or has a row of another length (truncated).
    """
    name = str(path)
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{name}: not a text file (UTF-8); expected columns {', '.join(required)}") from None
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    header = list(columns) if columns is not None else None
    try:
        for fields in reader:
            if not fields or (len(fields) == 1 and not fields[0].strip()):
                continue
            if header is None:
                header = [field.strip() for field in fields]
                _require_columns(name, header, required)
                continue
            if len(fields) != len(header):
                raise DataError(
                    f"{name}, row {reader.line_num}: expected {len(header)} fields ({', '.join(header)}), got "
                    f"{len(fields)}; the file is truncated or of another format"
                )
            yield Row(name, reader.line_num, dict(zip(header, fields, strict=True)))
    except csv.Error as error:
        raise DataError(f"{name}, row {reader.line_num}: {error}; expected columns {', '.join(required)}") from None


def read_numbers(
    path: str | os.PathLike[str], columns: Sequence[str], *, least: Sequence[float] | None = None
) -> np.ndarray:
    """These columns of a file with a header as an array, shape (rows, columns), each number finite.

    ``least``: smallest allowed value per column. Rows are read at once; only a bad file is read again row by row, for
    an error that says where.
    """
    bounds = np.array(least if least is not None else [-math.inf] * len(columns))
    lines = read_bytes(path).decode("utf-8-sig", errors="replace").splitlines()
    header = lines[0].split(",")
    if all(column in header for column in columns):
        with contextlib.suppress(ValueError):
            places = [header.index(column) for column in columns]
            fields = [line.split(",") for line in lines[1:] if line.strip()]
            if all(len(row) == len(header) for row in fields):
                numbers = np.array([[row[place] for place in places] for row in fields], dtype=float)
                if numbers.size and np.isfinite(numbers).all() and (numbers >= bounds).all():
                    return numbers
    slow = [
        [row.number(column, least=float(low)) for column, low in zip(columns, bounds, strict=True)]
        for row in read_rows(path, required=columns)
    ]
    return np.array(slow, dtype=float).reshape(-1, len(columns))


def _require_columns(name: str, header: list[str], required: Sequence[str]) -> None:
    missing = [column for column in required if column not in header]
    if missing:
        raise DataError(
            f"{name}, row 1: column {missing[0]!r} is missing; expected {', '.join(required)}, got "
            f"{', '.join(header)[:120]!r}"
        )
    if len(set(header)) != len(header):
        raise DataError(f"{name}, row 1: a column is named twice in {', '.join(header)!r}")
