"""Reading whole files with one clear error, and writing them all or not at all; names that end in .gz are gzip'd."""

import codecs
import contextlib
import gzip
import os
import tempfile
import zlib
from pathlib import Path

from .checks import JSON, require_file_name, require_writable
from .errors import DataError

#: A file that unpacks to more is taken for damaged, or for a trap.
MOST_UNPACKED = 2**31


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The contents of a file, unpacked where its name ends in .gz, without the byte order mark of some editors."""
    require_file_name(path)
    try:
        content = Path(path).read_bytes()
        if str(path).endswith(".gz") and content:
            with gzip.open(path) as file:
                content = file.read(MOST_UNPACKED + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file: {error}") from None
    except (OSError, ValueError) as error:  # ValueError: no path at all
        raise DataError(f"{path}: cannot be read: {_reason(error)}") from None
    if len(content) > MOST_UNPACKED and str(path).endswith(".gz"):
        raise DataError(f"{path}: unpacks to more than {MOST_UNPACKED:,} bytes; is it what it should be?")
    if not content.strip():
        raise DataError(f"{path}: the file is empty")
    return content.removeprefix(codecs.BOM_UTF8)


def write_json(path: str | os.PathLike[str] | None, text: str) -> None:
    """Write JSON to ``path``, if one is given, whole or not at all; raises `DataError` for names of other formats."""
    require_writable(path, suffixes=JSON)
    if path is not None:
        write_atomically(path, text + "\n")


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replace the file at ``path`` by ``content``, or leave what was there untouched and raise `DataError`.

    What is no regular file, such as /dev/stdout or a pipe, is written to instead of being replaced.
    """
    data = content.encode() if isinstance(content, str) else content
    if str(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    temporary = None
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(data)
            return
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        os.replace(temporary, target)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be written: {_reason(error)}") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
