"""One way to show a result: rows under a caption, as text, as HTML, as a DataFrame, as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from .files import write_atomically

if TYPE_CHECKING:
    import pandas


class Result:
    """What every result of the package can do, from the rows and the caption that it has of its own.

    A subclass gives `to_rows` and `caption`; `shown_rows` where print shows less than there is, `tables` where it shows
    several tables, `to_dict` where JSON holds more than the rows, and `draw` where a picture belongs below the table in
    Jupyter. Dataclasses say ``repr=False``, or theirs would replace this one.
    """

    __slots__ = ()

    #: Significant digits of printed numbers.
    digits = 4

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
        if path is not None:
            write_atomically(path, text + "\n")
        return text

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a DataFrame."""
        import pandas

        return pandas.DataFrame(self.to_rows())

    def __repr__(self) -> str:
        tables = [text_table(rows, digits=self.digits) for rows in self.tables()]
        return "\n".join(filter(None, [self.caption(), *tables]))

    def _repr_html_(self) -> str:
        tables = [_tabulate(rows, self.digits, "html") for rows in self.tables()]
        draw = getattr(self, "plot", None)
        picture = ""
        if draw is not None:
            from .drawing import svg_image

            picture = svg_image(draw)
        return f"<div><p>{escape(self.caption())}</p>{''.join(tables)}</div>{picture}"


def text_table(rows: Sequence[dict[str, Any]], *, digits: int = 4) -> str:
    """Aligned columns under their names."""
    return _tabulate(rows, digits, "simple")


def _tabulate(rows: Sequence[dict[str, Any]], digits: int, form: str) -> str:
    import tabulate  # a quarter of the package's import time, and only needed to print

    readable = [{name.replace("_", " "): value for name, value in row.items()} for row in rows]
    return tabulate.tabulate(readable, headers="keys", floatfmt=f".{digits}g", missingval="-", tablefmt=form)
