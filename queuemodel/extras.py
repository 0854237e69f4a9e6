"""Packages that not everybody needs: imported where they are used, and one line says how to get what is missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .errors import MissingDependencyError


def extra(module: str, name: str, *, what: str) -> Any:
    """A module of a package that is installed with the extra ``name`` (setup.cfg); ``what`` needs it.

    Examples
    --------
    >>> extra("no_such_module", "all", what="this example")
    Traceback (most recent call last):
    queuemodel.errors.MissingDependencyError: this example needs no_such_module: pip install 'queuemodel[all]'
    """
    try:
        return import_module(module)
    except ImportError:
        package = {"google": "protobuf"}.get(module.partition(".")[0], module.partition(".")[0])
        raise MissingDependencyError(f"{what} needs {package}: pip install 'queuemodel[{name}]'") from None
