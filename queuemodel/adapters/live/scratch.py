"""Folders of a run: one that ends with it, one that the user keeps."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ...errors import DataError


def scratch_folder() -> tempfile.TemporaryDirectory:
    """A temporary folder, to be entered (raises DataError)."""
    try:
        return tempfile.TemporaryDirectory(prefix="queuemodel-", ignore_cleanup_errors=True)
    except OSError as error:
        raise DataError(f"{tempfile.gettempdir()}: cannot be written: {error.strerror or error}") from None


def empty_folder(folder: str | os.PathLike[str]) -> Path:
    """Make a folder for traces, or take an empty one (raises DataError)."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        used = any(Path(folder).iterdir())
    except OSError as error:
        raise DataError(f"traces: {folder}: cannot be made: {error.strerror or error}") from None
    if used:
        raise DataError(f"traces: {folder} is not empty; name a new folder")
    return Path(folder)
