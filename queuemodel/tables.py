"""Rows as text: aligned columns under their names, as wide as they are or as a terminal is."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

#: Columns of text are not made narrower than their longest word, nor because of longer ones than this.
LONGEST_WORD = 24

Rows = Sequence[dict[str, Any]]


def tabulate(rows: Rows, *, digits: int, form: str = "simple") -> str:
    """Rows in a format of the tabulate library, as wide as they are; what is not known (None, NaN) is a dash.

    Numbers have so many significant digits; from a million on they are written with an exponent.
    """
    import tabulate as library  # a quarter of the package's import time, and only needed to print

    def shown(value: Any) -> Any:
        return None if value != value else float(f"{value:.{digits}g}") if isinstance(value, float) else value

    readable = [{_readable(name): shown(value) for name, value in row.items()} for row in rows]
    return library.tabulate(readable, headers="keys", floatfmt=".6g", missingval="-", tablefmt=form)


def text_table(rows: Rows, *, digits: int = 4, width: int | None = None) -> str:
    """
    Aligned columns under their names.

    With a ``width`` in characters no line is longer: names take several lines, then long texts do, and columns that
    still do not fit stand in further tables, which repeat the first column, or the first two where the second is text.
    """
    wide = tabulate(rows, digits=digits)
    if width is None or _widest(wide.splitlines()) <= width:
        return wide
    columns = [_Column.of(name, [row.get(name) for row in rows], digits) for name in rows[0]]
    whole = list(columns)
    while _together(columns) > width:
        long = max((c for c in columns if c.text and c.width > c.least), key=lambda c: c.width, default=None)
        if long is None:
            break
        at = columns.index(long)
        columns[at] = whole[at].wrapped(long.width - 1)
    named = 2 if len(columns) > 1 and columns[1].text and not columns[0].text else 1
    blocks = [columns[:named]]
    for column in columns[named:]:
        if len(blocks[-1]) > named and _together([*blocks[-1], column]) > width:
            blocks.append(columns[:named])
        blocks[-1].append(column)
    return "\n\n".join(map(_lines, blocks))


@dataclass(frozen=True)
class _Column:
    """A column's name and cells, each over one or more lines."""

    name: list[str]
    cells: list[list[str]]
    text: bool

    @classmethod
    def of(cls, name: str, values: list[Any], digits: int) -> _Column:
        """A column whose name is as narrow as its words and its values allow."""
        plain = tabulate([{"": value} for value in values], digits=digits, form="tsv").split("\n")[1:]
        cells = [[cell.rstrip()] for cell in plain]
        text = any(isinstance(value, str) for value in values)
        words = _readable(name).replace("[", " [").split()
        most = max([_widest(lines) for lines in cells] + [len(word) for word in words])
        return cls(textwrap.wrap(" ".join(words), most), cells, text)

    @cached_property
    def width(self) -> int:
        return max(map(_widest, [self.name, *self.cells]))

    @cached_property
    def least(self) -> int:
        """The width of the longest word."""
        words = [word for lines in [self.name, *self.cells] for line in lines for word in line.split()]
        return min(_widest(words), LONGEST_WORD)

    def wrapped(self, width: int) -> _Column:
        """The same with texts over lines of at most so many characters."""
        cells = [textwrap.wrap(" ".join(cell), width, break_on_hyphens=False) or [""] for cell in self.cells]
        return _Column(textwrap.wrap(" ".join(self.name), width), cells, self.text)

    def aligned(self, lines: list[str], count: int, *, at_end: bool = False) -> list[str]:
        """Such lines, filled up to ``count``: texts at the left, numbers at the right."""
        more = [""] * (count - len(lines))
        put = str.ljust if self.text else str.rjust
        return [put(line, self.width) for line in (more + lines if at_end else lines + more)]


def _lines(columns: list[_Column]) -> str:
    """The table of columns that stand side by side."""
    top = max(len(column.name) for column in columns)
    blocks = [[column.aligned(column.name, top, at_end=True) for column in columns]]
    blocks.append([["-" * column.width] for column in columns])
    for cells in zip(*(column.cells for column in columns), strict=True):
        high = max(map(len, cells))
        blocks.append([column.aligned(cell, high) for column, cell in zip(columns, cells, strict=True)])
    return "\n".join("  ".join(line).rstrip() for block in blocks for line in zip(*block, strict=True))


def _together(columns: list[_Column]) -> int:
    return sum(column.width for column in columns) + 2 * (len(columns) - 1)


def _widest(lines: list[str]) -> int:
    return max(map(len, lines), default=0)


def _readable(name: str) -> str:
    return name.replace("_", " ")
