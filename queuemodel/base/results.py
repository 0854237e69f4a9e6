"""Results: rows, as text as wide as a terminal, as HTML, JSON and DataFrames."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from .checks import extra
from .errors import MissingDependencyError
from .files import write_json

if TYPE_CHECKING:
    import pandas

#: Columns of text are not made narrower than their longest word, nor because of longer ones than this.
LONGEST_WORD = 24

#: Notes below the tables; the others are printed on request.
SHOWN_NOTES = 3

Rows = Sequence[dict[str, Any]]
#: Kinds of notes in the order of their use: what contradicts the data; what is assumed, or estimated; what would
#: narrow the interval.
NoteKind = Literal["doubt", "assumed", "narrow", "other"]


class Note(NamedTuple):
    """A clause on what an answer rests on."""

    text: str
    kind: NoteKind = "other"


def joined(notes: Iterable[Note]) -> str:
    """Their clauses in one text."""
    return "; ".join(note.text for note in notes if note.text)


def ranked(notes: Iterable[Note]) -> list[str]:
    """Their clauses in the order of their use."""
    return [note.text for note in sorted(notes, key=lambda note: get_args(NoteKind).index(note.kind)) if note.text]


def counted(number: int | float, noun: str) -> str:
    """``1 worker``, ``8 workers``."""
    return f"{number:g} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


def significant(value: float, digits: int = 3) -> str:
    """``0.123``, ``1,230``: a number of so many digits, without an exponent where it is large."""
    return f"{float(f'{value:.{digits}g}'):,.15g}"


def percent(share: float, digits: int = 0) -> str:
    """``90 %``."""
    return f"{100 * share:.{digits}f} %"


def tabulate(rows: Rows, *, digits: int, form: str = "simple") -> str:
    """Rows in a format of the tabulate library; None and NaN are dashes."""
    import tabulate as library  # a quarter of the package's import time, and only needed to print

    def shown(value: Any) -> Any:
        return None if value != value else float(f"{value:.{digits}g}") if isinstance(value, float) else value

    readable = [{name.replace("_", " "): shown(value) for name, value in row.items()} for row in rows]
    return library.tabulate(readable, headers="keys", floatfmt=".6g", missingval="-", tablefmt=form)


def text_table(rows: Rows, *, digits: int = 4, width: int | None = None) -> str:
    """Aligned columns under their names, no line longer than ``width`` characters.

    Names are wrapped, then long texts; columns that still do not fit go into further tables, which repeat the first
    column (two, where the second is text).
    """
    plain = tabulate(rows, digits=digits)
    if width is None or _widest(plain) <= width:
        return plain
    whole = {name: _column(name, [row.get(name) for row in rows], digits) for name in rows[0]}
    texts = [name for name in whole if any(isinstance(row.get(name), str) for row in rows)]
    columns = dict(whole)
    while _together(columns) > width:
        wrappable = [name for name in texts if _width(columns[name]) > _least(columns[name])]
        if not wrappable:
            break
        long = max(wrappable, key=lambda name: _width(columns[name]))
        narrower = _width(columns[long]) - 1
        columns[long] = [textwrap.fill(cell, narrower, break_on_hyphens=False) for cell in whole[long]]
    first, *others = columns
    repeated = [first, others.pop(0)] if first not in texts and others and others[0] in texts else [first]
    blocks = [{name: columns[name] for name in repeated}]
    for name in others:
        if len(blocks[-1]) > len(repeated) and _together(blocks[-1] | {name: columns[name]}) > width:
            blocks.append({name: columns[name] for name in repeated})
        blocks[-1][name] = columns[name]
    return "\n\n".join(_side_by_side(block, texts) for block in blocks)


def _column(name: str, values: list[Any], digits: int) -> list[str]:
    """A column's name, as narrow as its words and its values allow, and its cells."""
    table = tabulate([{"": value} for value in values], digits=digits, form="tsv")
    cells = [cell.rstrip() for cell in table.split("\n")]
    words = name.replace("_", " ").replace("[", " [").split()
    return [textwrap.fill(" ".join(words), max(map(len, [*cells[1:], *words]))), *cells[1:]]


def _side_by_side(columns: dict[str, list[str]], texts: list[str]) -> str:
    """Columns as a table: texts at the left, numbers at the right, names down to the rule."""
    lines = []
    for number, cells in enumerate(zip(*columns.values(), strict=True)):
        high = 1 + max(cell.count("\n") for cell in cells)
        filled = []
        for cell, (name, column) in zip(cells, columns.items(), strict=True):
            blank = "\n" * (high - 1 - cell.count("\n"))
            put = str.ljust if name in texts else str.rjust
            padded = cell + blank if number else blank + cell
            filled.append([put(line, _width(column)) for line in padded.split("\n")])
        lines += ["  ".join(line).rstrip() for line in zip(*filled, strict=True)]
        if number == 0:
            lines.append("  ".join("-" * _width(column) for column in columns.values()))
    return "\n".join(lines)


def _together(columns: dict[str, list[str]]) -> int:
    return sum(map(_width, columns.values())) + 2 * (len(columns) - 1)


def _width(column: list[str]) -> int:
    return max(map(_widest, column))


def _least(column: list[str]) -> int:
    return min(max(len(word) for cell in column for word in cell.split()), LONGEST_WORD)


def _widest(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)


def rows_of(columns: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Columns of one length, by name, as rows of plain numbers."""
    lists = [np.ravel(column).tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, arrays by their numbers and dataclasses by their compared fields."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if not is_dataclass(one):
        return bool(one == other) or one is other
    return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one) if f.compare)


def finite(value: Any) -> Any:
    """The value, with None for NaN and infinity, which JSON lacks, in whatever it contains."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Result:
    """Text, HTML, JSON and DataFrame of a result's own `to_rows`, `caption`, `answer` and `notes`.

    Text and HTML have the answer first, then the tables, then notes. A subclass may replace `_shown_rows` or `_tables`
    (printed) and `to_dict` (JSON), and have a `plot` (Jupyter). As a dataclass it needs ``repr=False``.
    """

    __slots__ = ()
    _digits = 4  # significant, of printed numbers
    _index = ""  # the column that identifies rows

    def __post_init__(self) -> None:
        """Make the arrays of a dataclass read-only."""
        for name in self.__dataclass_fields__:  # type: ignore[attr-defined]
            if isinstance(value := getattr(self, name), np.ndarray):
                value.flags.writeable = False

    def to_rows(self) -> list[dict[str, Any]]:
        """The result as rows with the same keys."""
        raise NotImplementedError

    def caption(self) -> str:
        """The result in one text: by default the answer and the notes."""
        return "; ".join(filter(None, [self.answer(), *self.notes()]))

    def answer(self) -> str:
        """The sentence above the tables; by default the `caption` of a result that has one."""
        return "" if type(self).caption is Result.caption else self.caption()

    def notes(self) -> list[str]:
        """What the answer rests on and what limits it, a clause each; the first three are printed below the tables."""
        return []

    def _details(self) -> list[str]:
        """Further clauses, which are printed on request alone."""
        return []

    def _shown_rows(self) -> list[dict[str, Any]]:
        """The rows that print shows."""
        return self.to_rows()

    def _tables(self) -> list[list[dict[str, Any]]]:
        """The printed tables, in their order."""
        return [self._shown_rows()]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"rows": self.to_rows()}

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """JSON of `to_dict`, also written to ``path``, whole or not at all."""
        text = json.dumps(finite(self.to_dict()), indent=1)
        write_json(path, text)
        return text

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a DataFrame, whose ``attrs["units"]`` has the units of columns."""
        frame = extra("pandas", "frames", what="a DataFrame").DataFrame(self.to_rows())
        frame.attrs["units"] = {name: unit for name, unit in self._units().items() if name in frame}
        return frame.set_index(self._index) if self._index else frame

    def _units(self) -> dict[str, str]:
        """Units of columns, by name."""
        return {}

    def to_text(self, width: int | None = None, *, explain: bool = False) -> str:
        """Answer, tables and notes, in lines of at most ``width`` characters; with ``explain`` every note."""
        return "\n".join(filter(None, self._paragraphs(width, explain=explain)))

    def _paragraphs(
        self, width: int | None = None, *, explain: bool = False, how: str = "to_text(explain=True)"
    ) -> tuple[str, str, str]:
        """Answer, tables and notes as texts; the last note says ``how`` to see those that are left out."""

        def wrapped(text: str) -> str:
            return text if width is None else textwrap.fill(text, width, break_on_hyphens=False)

        shown, others = self._sentences(explain)
        more = [f"({len(others)} more: {how})"] if others else []
        tables = "\n".join(text_table(rows, digits=self._digits, width=width) for rows in self._tables())
        return wrapped(self.answer()), tables, "\n".join(map(wrapped, [*shown, *more]))

    def _sentences(self, explain: bool) -> tuple[list[str], list[str]]:
        """Notes as sentences: those to show, and the others."""
        every = [f"{clause[:1].upper()}{clause[1:]}{'' if clause.endswith(('.', '?')) else '.'}"
                 for clause in (*self.notes(), *self._details())]  # fmt: skip
        most = len(every) if explain else min(SHOWN_NOTES, len(self.notes()))
        return every[:most], every[most:]

    def __repr__(self) -> str:
        """As wide as the terminal it is printed to, elsewhere as its widest line."""
        return self.to_text(shutil.get_terminal_size().columns if sys.stdout and sys.stdout.isatty() else None)

    def _repr_html_(self) -> str:
        tables = [tabulate(rows, digits=self._digits, form="html") for rows in self._tables()]
        picture = ""
        if draw := getattr(self, "plot", None):
            from .drawing import svg_image

            with suppress(MissingDependencyError):  # without matplotlib tables only
                picture = svg_image(draw)
        shown, others = ("".join(f"<p>{escape(one)}</p>" for one in part) for part in self._sentences(False))
        more = f"<details><summary>more</summary>{others}</details>" if others else ""
        return f"<div><p>{escape(self.answer())}</p>{''.join(tables)}{shown}{more}</div>{picture}"
