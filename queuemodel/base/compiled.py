"""Loops compiled at installation, or by numba at their first call; import them inside functions: numba loads slowly."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

Loop = TypeVar("Loop", bound=Callable[..., Any])

AHEAD = "ahead"  # name of the extension module of a folder's loops


def compiled(**options: Any) -> Callable[[Loop], Loop]:
    """`numba.njit` with a cache that any changed source file of the folder outdates: loops use their neighbours."""
    from numba import njit

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


def ready(module: str, name: str) -> Callable[..., Any]:
    """A loop as compiled at installation, or that of ``module`` where its folder has changed since."""
    folder, _, _ = module.rpartition(".")
    sources = Path(__file__).parents[2].joinpath(*folder.split("."))
    try:
        ahead = import_module(f"{folder}.{AHEAD}")
    except ImportError:
        ahead = None
    if ahead is None or ahead.sources() != stamp(sources):
        return getattr(import_module(module), name)
    return getattr(ahead, name)


def compile_ahead(source: ModuleType, name: str, signature: Any, path: Path) -> None:
    """Compile a module's loop into an extension module (numba's `pycc`) that runs without numba."""
    from numba.core.compiler import Flags
    from numba.core.errors import NumbaPendingDeprecationWarning

    warnings.simplefilter("ignore", NumbaPendingDeprecationWarning)
    from numba.pycc import CC, compiler

    def flags() -> Any:  # stands for ``nogil=True``, which `pycc` does not take: threads run loops at the same time
        own: Any = Flags()
        own.release_gil = True
        return own

    compiler.Flags = flags  # type: ignore[assignment, misc]
    sources = stamp(Path(str(source.__file__)).parent)
    module = CC(AHEAD, source_module=source)
    module.output_dir, module.output_file = str(path.parent), path.name
    module.export(name, signature)(getattr(source, name).py_func)
    module.export("sources", "i8()")(lambda: sources)
    module.compile()


def stamp(folder: Path) -> int:
    """A number that changes when any source file of the folder does."""
    return int(_digest(folder)[:15], 16)


@cache
def _digest(folder: Path) -> str:
    files = sorted([*folder.glob("*.py"), *folder.glob("*.toml")])
    sources = (path.name.encode() + path.read_bytes() for path in files)
    return hashlib.sha256(b"".join(sources)).hexdigest()


def _or_none(step: Callable[..., Any]) -> Callable[..., Any]:
    """A damaged or unwritable cache never stops the work."""

    def attempt(*arguments: Any) -> Any:
        try:
            return step(*arguments)
        except Exception:
            return None

    return attempt
