"""Throughput of distributed training against node count, from a short profile and a closed queueing network."""

from importlib import import_module as _import
from typing import TYPE_CHECKING

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .public import *  # noqa: F403


def __getattr__(name: str) -> object:
    """Public names, and folders, when they are first asked for: the command line starts without all that they need."""
    public = _import(".public", __name__)
    if name not in globals():
        if name != "__all__" and name not in public.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(public, name)
    return globals()[name]


def __dir__() -> list[str]:
    public = _import(".public", __name__)
    folders = (name for name, value in globals().items() if isinstance(value, type(public)) and name[0] != "_")
    return sorted({*folders, *public.__all__, "__version__"})
