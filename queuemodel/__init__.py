"""Throughput of distributed training against node count, from a short profile and a closed queueing network."""

import importlib
from typing import TYPE_CHECKING

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .public import *  # noqa: F403


def __getattr__(name: str) -> object:
    """Public names, and folders, when they are first asked for: the command line starts without all that they need."""
    public = importlib.import_module(".public", __name__)
    if name in globals():
        return globals()[name]
    if name == "__all__" or name in public.__all__:
        return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *importlib.import_module(".public", __name__).__all__})
