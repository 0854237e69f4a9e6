"""Tables of measurements and jobs as text (CSV): one reader, whose every refusal names file, line, column and value.

A column that is not known is refused, because a misspelt one would silently count as not given.
"""

from __future__ import annotations

import csv
import difflib
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .checks import LARGEST, require_count, require_number, require_share
from .errors import DataError
from .files import read_bytes

MOST_COLUMNS = 1000

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, and where it stands; each question for a value checks it.

    A cell left empty, or a column that is not there, counts as not given: then the answer is ``default``, and without
    one the row is refused.
    """

    file: str
    line: int
    values: dict[str, str]

    @property
    def where(self) -> str:
        """Where the row stands, for error messages."""
        return f"{self.file}: line {self.line}"

    def given(self, column: str) -> bool:
        """Whether the column is there and filled in."""
        return bool(self.values.get(column, "").strip())

    def text(self, column: str, default: str | None = None, *, most: int = 200) -> str:
        """Printable text of at most so many characters, without the blanks around it."""
        text = self.values.get(column, "").strip()
        if not text and default is not None:
            return default
        if not text or not text.isprintable():
            got = ascii(text[:60]) if text else "an empty cell"
            raise DataError(f"{self.where}: {column} must be printable text, got {got}")
        if len(text) > most:
            raise DataError(f"{self.where}: {column} must be at most {most} characters, got {len(text)}")
        return text

    def number(
        self,
        column: str,
        default: float | None = None,
        *,
        positive: bool = False,
        largest: float = LARGEST,
        unit: str = "",
    ) -> float:
        """A finite number >= 0 (``positive``: > 0)."""
        if default is not None and not self.given(column):
            return default
        text = self.text(column)
        value = float(text) if _NUMBER.fullmatch(text) else text
        what = f"{self.where}: {column}"
        return require_number(value, what, positive=positive, largest=largest, unit=unit, error=DataError)

    def quantity(self, column: str, parse: Callable[[str], float], *, largest: float = LARGEST) -> float | None:
        """A number with its unit, as ``parse`` of `queuemodel.units` reads it; None where it is not given."""
        if not self.given(column):
            return None
        what = f"{self.where}: {column}"
        try:
            value = parse(self.text(column))
        except DataError as error:
            raise DataError(f"{what}: {error}") from None
        return require_number(value, what, positive=True, largest=largest, error=DataError)

    def count(self, column: str, default: int | None = None, *, least: int = 1, most: int = 1_000_000) -> int:
        """A whole number, also when written ``4.0``, as tables with gaps are."""
        if default is not None and not self.given(column):
            return default
        text = self.text(column)
        value = float(text) if _NUMBER.fullmatch(text) else text
        whole = int(value) if isinstance(value, float) and value.is_integer() else text
        return require_count(whole, f"{self.where}: {column}", least=least, most=most, error=DataError)

    def share(self, column: str, default: float | None = None) -> float:
        """A number between 0 and 1."""
        return require_share(self.number(column, default), f"{self.where}: {column}", error=DataError)


def read_rows(
    path: str | os.PathLike[str],
    *,
    content: bytes | None = None,
    required: Sequence[str],
    optional: Sequence[str] = (),
    what: str = "rows",
    others: bool = False,
    header: Sequence[str] | None = None,
    delimiter: str = ",",
    meanings: Mapping[str, str] | None = None,
) -> Iterator[Row]:
    """Read a table, row by row; refuse in one line a file that is no such table, or ends in the midst of a row.

    ``content`` is that of the file where it is at hand, ``what`` what the rows are; ``meanings`` say what columns hold.
    ``header`` names all columns of a file without a header. ``others`` passes over further columns of files of others'
    making, but not what is spelt almost like an optional column that is absent.
    """
    file = str(path)
    content = read_bytes(path) if content is None else content
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: is not UTF-8 text, see byte {error.start}; save it as CSV in UTF-8") from None
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    columns = None if header is None else list(header)
    empty = True
    try:
        for fields in lines:
            where = f"{file}: line {lines.line_num}"
            if not any(field.strip() for field in fields):  # spreadsheets write empty rows as commas
                continue
            if columns is None:
                columns = [field.strip() for field in fields]
                _require_columns(where, columns, required, optional, others, meanings or {})
                continue
            if len(fields) != len(columns):
                raise DataError(
                    f"{where}: a row must have {len(columns)} values ({_listed(columns)}), got {len(fields)}; "
                    "the file may be truncated"
                )
            empty = False
            yield Row(file, lines.line_num, dict(zip(columns, fields, strict=True)))
    except csv.Error as error:
        said = f"{error}; is this a CSV with {_listed(required)}?"
        raise DataError(f"{file}: line {lines.line_num}: {said}") from None
    if empty:
        raise DataError(f"{file}: no {what} below the header")


def _require_columns(
    where: str,
    columns: Sequence[str],
    required: Sequence[str],
    optional: Sequence[str],
    others: bool,
    meanings: Mapping[str, str],
) -> None:
    for name, delimiter in (("semicolons", ";"), ("tabs", "\t")):  # as spreadsheets save them in some languages
        if len(columns) == 1 and delimiter in columns[0]:
            raise DataError(
                f"{where}: columns must be separated by commas, got {name}; save it with commas between columns and "
                "points in numbers"
            )
    known, said = [*required, *optional], {name: f" ({text})" for name, text in meanings.items()}
    if len(columns) > MOST_COLUMNS:
        raise DataError(f"{where}: a table must have at most {MOST_COLUMNS} columns, got {len(columns)}")
    for column in columns:
        if columns.count(column) > 1:
            raise DataError(f"{where}: column {column[:60]!r} stands twice; leave one")
    absent = [column for column in known if column not in columns]
    unknown = [column for column in columns if column not in known]
    for column in unknown:
        alike = difflib.get_close_matches(column.lower(), absent, 1, 0.75)
        if alike:
            meant = f"did you mean {alike[0]!r}{said.get(alike[0], '')}?"
            raise DataError(f"{where}: unknown column {column[:60]!r}; {meant}")
    for column in required:
        if column in absent:
            what = f"column {column!r}{said.get(column, '')}"
            raise DataError(f"{where}: {what} is missing; the columns are {_listed(columns)}")
    if unknown and not others:
        raise DataError(f"{where}: unknown column {unknown[0][:60]!r}; the known ones are {_listed(known)}")


def _listed(columns: Sequence[str]) -> str:
    text = ", ".join(columns)
    return ascii(text)[1:-1] if len(text) <= 120 else f"{ascii(text[:117])[1:-1]}..."
