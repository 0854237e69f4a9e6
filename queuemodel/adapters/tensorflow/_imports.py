"""Where TensorFlow is imported: only here, and only when asked for."""

from __future__ import annotations

import contextlib
import importlib
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
        raise MissingDependencyError(
            f"TensorFlow is needed here but cannot be imported ({error}): pip install 'queuemodel[tensorflow]'"
        ) from None


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
