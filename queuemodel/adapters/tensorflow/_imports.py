"""Where TensorFlow is imported: only here, and only when asked for."""

from __future__ import annotations

import importlib
import os
from typing import Any

from ...errors import MissingDependencyError


def require_tensorflow() -> Any:
    """The ``tensorflow`` module, its start-up messages silenced; `MissingDependencyError` without it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        return importlib.import_module("tensorflow")
    except ImportError as error:
        raise MissingDependencyError(
            f"TensorFlow is needed here but cannot be imported ({error}): pip install 'queuemodel[tensorflow]'"
        ) from None
