"""A user's ``package.module:function``: named here, imported in a child process."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ...checks import nearest
from ...errors import DataError, ProfilingError


def function_name(model: str | Callable[[], Any], built_in: Collection[str] = ()) -> str:
    """
    The name under which a child process finds ``model``.

    Raises
    ------
    DataError
        Neither a built-in nor the form ``package.module:function``, or a function that no other process can import.
    """
    if callable(model):
        module, function = getattr(model, "__module__", None), getattr(model, "__qualname__", "<locals>")
        if module in (None, "__main__") or not function.isidentifier():
            raise DataError(
                f"model: a child process must be able to import the function, got {module}:{function}; "
                "put it at the top level of a module of its own"
            )
        return f"{module}:{function}"
    if not isinstance(model, str) or not (
        model in built_in or re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", model)
    ):
        others = f" or one of {', '.join(built_in)}" if built_in else ""
        raise DataError(f"model: must be 'package.module:function'{others}, got {model!r}{nearest(model, built_in)}")
    return model


def imported(name: str) -> Callable[[], Any]:
    """Import what `function_name` named (raises ProfilingError)."""
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and not module_name.startswith(error.name):
            raise
        raise ProfilingError(
            f"model {name!r}: no module named {error.name!r}; start from the folder that holds it, or install it"
        ) from None
    function = getattr(module, function_name, None)
    if not callable(function):
        there = sorted(
            k for k, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module_name
        )
        raise ProfilingError(
            f"model {name!r}: {module_name} has no function {function_name!r}; it has {', '.join(there) or 'none'}"
        )
    return function


def extend_path(entries: Sequence[str]) -> None:
    """Let a child import what its parent could."""
    sys.path.extend(entry for entry in entries if entry not in sys.path)
