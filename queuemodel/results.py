"""One way to show a result: rows under a caption, as text, as HTML, as a DataFrame, as JSON."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import MissingDependencyError
from .extras import extra
from .files import write_json
from .tables import tabulate, text_table

if TYPE_CHECKING:
    import pandas


def rows_of(columns: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Columns of one length, by name, as rows of plain numbers."""
    lists = [np.ravel(column).tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def finite(value: Any) -> Any:
    """The value; None for a number that is not known or without end, which no JSON and no table has."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Result:
    """What every result of the package can do, from the rows and the caption that it has of its own.

    A subclass gives `to_rows` and `caption`; `shown_rows` where print shows less than there is, `tables` where it shows
    several tables, `to_dict` where JSON holds more than the rows, and `draw` where a picture belongs below the table in
    Jupyter. Dataclasses say ``repr=False``, or theirs would replace this one.
    """

    __slots__ = ()

    #: Significant digits of printed numbers.
    digits = 4

    def __post_init__(self) -> None:
        """Make the arrays of a dataclass read-only."""
        for name in self.__dataclass_fields__:  # type: ignore[attr-defined]
            if isinstance(value := getattr(self, name), np.ndarray):
                value.flags.writeable = False

    def to_rows(self) -> list[dict[str, Any]]:
        """The result as rows with the same keys."""
        raise NotImplementedError

    def caption(self) -> str:
        """What the rows are of, in a line; empty for nothing."""
        return ""

    def shown_rows(self) -> list[dict[str, Any]]:
        """The rows that print shows."""
        return self.to_rows()

    def tables(self) -> list[list[dict[str, Any]]]:
        """The tables that print shows, one after the other."""
        return [self.shown_rows()]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"rows": self.to_rows()}

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """JSON of `to_dict`; also written to ``path``, whole or not at all, when one is given."""
        text = json.dumps(self.to_dict(), indent=1)
        write_json(path, text)
        return text

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a DataFrame."""
        return extra("pandas", "frames", what="a DataFrame").DataFrame(self.to_rows())

    def to_text(self, width: int | None = None) -> str:
        """Caption and tables, with a ``width`` in characters in lines no longer than that."""
        caption = self.caption() if width is None else textwrap.fill(self.caption(), width, break_on_hyphens=False)
        tables = [text_table(rows, digits=self.digits, width=width) for rows in self.tables()]
        return "\n".join(filter(None, [caption, *tables]))

    def __repr__(self) -> str:
        """As wide as it is, or as the terminal that it is printed to."""
        return self.to_text(shutil.get_terminal_size().columns if sys.stdout and sys.stdout.isatty() else None)

    def _repr_html_(self) -> str:
        tables = [tabulate(rows, digits=self.digits, form="html") for rows in self.tables()]
        draw = getattr(self, "plot", None)
        picture = ""
        if draw is not None:
            from .drawing import svg_image

            with suppress(MissingDependencyError):  # without matplotlib the tables say it
                picture = svg_image(draw)
        return f"<div><p>{escape(self.caption())}</p>{''.join(tables)}</div>{picture}"
