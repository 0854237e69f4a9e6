"""What commands print: every result as a table that fits the terminal, as JSON or as CSV."""

from __future__ import annotations

import csv
import shutil
import sys
from dataclasses import dataclass
from io import StringIO
from typing import Any

import click

from ..results import Result
from ..tables import Rows
from ..training import Profile

#: Columns where nobody says how wide the terminal is.
COLUMNS = 80


@dataclass(frozen=True, repr=False)
class Table(Result):
    """Rows that a command puts together itself; what its JSON holds and its table shows, where that is not they.

    ``says`` stands above the table.
    """

    rows: Rows
    document: dict[str, Any] | None = None
    shown: Rows | None = None
    digits: int = 4
    says: str = ""

    def to_rows(self) -> list[dict[str, Any]]:
        return list(self.rows)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() if self.document is None else self.document

    def shown_rows(self) -> list[dict[str, Any]]:
        return list(self.rows if self.shown is None else self.shown)

    def caption(self) -> str:
        return self.says


def show(result: Result, output_format: str) -> None:
    """Print a result to standard output."""
    if output_format == "json":
        click.echo(result.to_json())
    elif output_format == "csv":
        rows, text = result.to_rows(), StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        click.echo(text.getvalue(), nl=False)
    else:
        click.echo(result.to_text(shutil.get_terminal_size((COLUMNS, 0)).columns))


def show_profile(profile: Profile, output_format: str) -> None:
    """Print what was recorded, field by field; the steps themselves are in the profile."""
    whole = {"name": profile.job.name, "batch_size": profile.job.batch_size, "fields": profile.summary()}
    show(profile if output_format == "table" else Table(profile.summary(), whole), output_format)


def watched() -> bool:
    """Whether somebody sees a progress bar on standard error."""
    return sys.stderr.isatty()
