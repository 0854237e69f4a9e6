"""A report that one can mail: one HTML file with its data, its style and its scripts, which needs nothing else.

A result gathers what its page shows as plain values, and `report_page` puts them into one file with the scripts beside
this module: chart.js draws, page.js has what all pages share. grid.js interpolates between Python's curves, plan.js
chooses workers, and figures.js and curve.js show both; comparison.js is the page of a comparison.
"""

from __future__ import annotations

import os
import re
from html import escape
from importlib import resources
from typing import Any, Literal

import msgspec

from ..base import __version__
from ..base.checks import require_writable
from ..base.drawing import COLORS, KNEE, MODEL, PLACES
from ..base.errors import ModelError
from ..base.files import write_atomically

__all__ = ["SUFFIXES", "report_page"]

#: What a page's name may end in.
SUFFIXES = (".html", ".htm")

#: Bytes; a page is to be mailed.
LARGEST = 300_000

#: Scripts of each kind of page, in the order in which they build on each other.
SCRIPTS = {
    "curve": ("chart", "page", "grid", "plan", "figures", "curve"),
    "comparison": ("chart", "page", "comparison"),
}


def report_page(
    kind: Literal["curve", "comparison"], data: dict[str, Any], *, path: str | os.PathLike[str] | None
) -> str:
    """The page of ``data``, whose ``title`` it carries; also written to ``path``, all of it or nothing.

    What is not finite becomes null, and no text of the data can end the script that holds it. A page too large to be
    mailed is refused.
    """
    require_writable(path, suffixes=SUFFIXES)
    parts = {
        "title": escape(data["title"]),
        "style": _filled("page.css", {"model": MODEL, "knee": KNEE}),
        "script": "\n".join(_part(f"{name}.js") for name in SCRIPTS[kind]),
        "data": embedded(data | {"version": __version__, "look": {"colors": COLORS, "places": PLACES}}),
    }
    page = _filled("page.html", parts)
    size = len(page.encode())
    if size > LARGEST:
        raise ModelError(
            f"report: the page would have {size / 1000:.0f} kB, more than {LARGEST / 1000:.0f}; "
            "predict fewer numbers of workers, like 1,2,4,8,16"
        )
    if path is not None:
        write_atomically(path, page)
    return page


def embedded(data: Any) -> str:
    """JSON that may stand inside a script element."""
    text = msgspec.json.encode(data, enc_hook=lambda value: value.tolist()).decode()
    return re.sub("[<>&\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _filled(name: str, parts: dict[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]], _part(name))


def _part(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
