"""Rows (a list of dicts with the same keys) as text and as HTML, for every result that prints itself."""

from collections.abc import Sequence
from html import escape
from typing import Any


def text_table(rows: Sequence[dict[str, Any]], *, digits: int = 4) -> str:
    """Aligned columns under their names."""
    return _tabulate(rows, digits, "simple")


def html_table(rows: Sequence[dict[str, Any]], *, caption: str = "", digits: int = 4) -> str:
    """A table for Jupyter, with what it shows above it."""
    return f"<div><p>{escape(caption)}</p>{_tabulate(rows, digits, 'html')}</div>"


def _tabulate(rows: Sequence[dict[str, Any]], digits: int, form: str) -> str:
    import tabulate  # a quarter of the package's import time, and only needed to print

    readable = [{name.replace("_", " "): value for name, value in row.items()} for row in rows]
    return tabulate.tabulate(readable, headers="keys", floatfmt=f".{digits}g", missingval="-", tablefmt=form)
