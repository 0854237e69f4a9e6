"""Reading whole files with one clear error, and writing them all or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path

from .errors import DataError


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The contents of a file; a `DataError` that names it when it cannot be read or is empty."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not content.strip():
        raise DataError(f"{path}: the file is empty")
    return content


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replace the file at ``path`` by ``content``, or leave what was there untouched and raise `DataError`."""
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        os.replace(temporary, target)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
