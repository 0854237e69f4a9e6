"""Where TensorFlow is imported: only here, and only when asked for."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from ...errors import MissingDependencyError

# what TensorFlow says on every start: nothing that its user can act on
NOISE = ("I0000 ", "WARNING: All log messages before absl::InitializeLog()")


def require_tensorflow() -> Any:
    """The ``tensorflow`` module, its start-up messages silenced; `MissingDependencyError` without it."""
    if loaded := sys.modules.get("tensorflow"):
        return loaded
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        with _without_noise():
            return importlib.import_module("tensorflow")
    except ImportError as error:
        raise _missing(error) from None


def require_installed() -> None:
    """Refuse to go on without TensorFlow (`MissingDependencyError`), without the seconds that importing it takes."""
    if _location() is None:
        raise _missing("no module named 'tensorflow'")


def _location() -> list[str] | None:
    """Where TensorFlow is installed; None where it is not, or is being hidden."""
    if "tensorflow" in sys.modules:
        return list(getattr(sys.modules["tensorflow"], "__path__", [])) or None
    spec = importlib.util.find_spec("tensorflow")
    return list(spec.submodule_search_locations or []) if spec else None


def _missing(reason: object) -> MissingDependencyError:
    return MissingDependencyError(
        f"TensorFlow is needed here but cannot be imported ({reason}): pip install 'queuemodel[tensorflow]'"
    )


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """Hold back what native code writes to standard error, and pass on what is not noise."""
    try:
        stderr = os.dup(2)
    except OSError:  # closed
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            held.seek(0)
            for line in held.read().decode(errors="replace").splitlines(keepends=True):
                if not line.startswith(NOISE):
                    os.write(stderr, line.encode())
            os.close(stderr)
