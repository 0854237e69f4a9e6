"""The one way to compile a loop with numba: cached where a cache can be written, and right wherever it cannot.

Import it only inside functions: numba takes half a second to load.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from numba import njit

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[Loop], Loop]:
    """Decorate a function to be compiled when it is first called; ``options`` are those of `numba.njit`.

    The machine code is kept beside the sources or in numba's own folder. Where neither can be written (a container
    without a home), or the disk is full, it is compiled anew in each process. It is taken for outdated as soon as any
    source file of the function's folder changes, not only its own: constants and callees live in its neighbours.

    Examples
    --------
    >>> @compiled()
    ... def double(x):
    ...     return 2 * x
    >>> double(3)
    6
    """

    def compile_later(function: Loop) -> Loop:
        dispatcher = njit(**options)(function)
        try:
            dispatcher.enable_caching()
            kept = dispatcher._cache
            kept._cache_file._source_stamp = _digest(Path(function.__code__.co_filename).parent)
        except (AttributeError, OSError, RuntimeError):  # nowhere to write, or a numba that keeps its cache differently
            return njit(**options)(function)
        kept.load_overload = _or_none(kept.load_overload)
        kept.save_overload = _or_none(kept.save_overload)
        return dispatcher

    return compile_later


@cache
def _digest(folder: Path) -> str:
    sources = (path.name.encode() + path.read_bytes() for path in sorted(folder.glob("*.py")))
    return hashlib.sha256(b"".join(sources)).hexdigest()


def _or_none(step: Callable[..., Any]) -> Callable[..., Any]:
    """A damaged or unwritable cache is no cache; it never stops the work."""

    def attempt(*arguments: Any) -> Any:
        try:
            return step(*arguments)
        except Exception:
            return None

    return attempt
