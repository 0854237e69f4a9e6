"""Files, read and written whole or not at all (.gz: compressed); quantities with units; rows of tables; constants."""

from __future__ import annotations

import codecs
import contextlib
import csv
import difflib
import gzip
import io
import math
import os
import re
import tempfile
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

from .checks import (
    JSON,
    LARGEST,
    SMALLEST_POSITIVE,
    require_count,
    require_file_name,
    require_number,
    require_share,
    require_writable,
)
from .errors import DataError
from .recognition import FOREIGN, HEAD, mistaken

MOST_UNPACKED = 2**31  # bytes; a file that unpacks to more is damaged, or a trap


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The contents of a file, unpacked if gzip'd, without a byte order mark (raises `DataError`)."""
    require_file_name(path)
    try:
        content = Path(path).read_bytes()
        if (packed := str(path).endswith(".gz") or content.startswith(b"\x1f\x8b")) and content:
            with gzip.open(path) as file:
                content = file.read(MOST_UNPACKED + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file: {error}") from None
    except (OSError, ValueError) as error:  # ValueError: no path at all
        raise DataError(f"{path}: cannot be read: {_reason(error)}") from None
    if len(content) > MOST_UNPACKED and packed:
        raise DataError(f"{path}: unpacks to more than {MOST_UNPACKED:,} bytes; is it what it should be?")
    for what in (what for begin, what in FOREIGN.items() if re.match(begin, content[:HEAD])):
        raise DataError(f"{path}: {what}")
    return content.removeprefix(codecs.BOM_UTF8)


def write_json(path: str | os.PathLike[str] | None, text: str) -> None:
    """Write JSON to ``path``, unless None, whole or not at all (raises `DataError`, also for other suffixes)."""
    require_writable(path, suffixes=JSON)
    if path is not None:
        write_atomically(path, text + "\n")


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replace the file at ``path``, or leave it untouched and raise `DataError`; pipes are written to."""
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
        os.umask(mask := os.umask(0))  # the only way to read it
        os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~mask)
        os.replace(temporary, target)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be written: {_reason(error)}") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


LARGEST_QUANTITY = 1e18  # bytes, bytes per second and seconds above it are mistakes

_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
_BYTES = {f"{prefix}B": scale for prefix, scale in _PREFIXES.items()}
_RATES = {
    f"{prefix}{unit}{second}": scale * size
    for prefix, scale in _PREFIXES.items()
    for unit, size in (("bits", 1 / 8), ("bit", 1 / 8), ("b", 1 / 8), ("B", 1.0))
    for second in ("/s", "ps")
}
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"\s*([-+0-9.eE]+)\s*([A-Za-zµ]*)\s*(/\s*s|ps)?\s*")


def parse_bandwidth(text: str | float) -> float:
    """Bytes per second, from ``"10Gbit/s"``, ``"1.25 GB/s"``, ``"800Mbps"`` or a number of bytes per second."""
    return _parse(text, "bandwidth", _RATES, "10Gbit/s or 1.25GB/s", "B/s", ("Gbit/s", "MB/s"))


def parse_size(text: str | float) -> float:
    """Bytes from ``"25 MB"``, ``"4MiB"`` or a number of bytes."""
    return _parse(text, "size", _BYTES, "25MB or 4MiB", "B", ("MB", "B"))


def parse_duration(text: str | float, *, likely: Sequence[str] = ("h", "min", "s")) -> float:
    """Seconds from ``"90 min"``, ``"2h"``, ``"250ms"`` or a number of seconds; ``likely``: units of one without."""
    return _parse(text, "duration", _SECONDS, "90min, 2h or 3d", "s", likely)


parse_latency = partial(parse_duration, likely=("us", "ms"))  # of a message or a packet


def _parse(
    text: str | float, what: str, units: Mapping[str, float], example: str, own: str, likely: Sequence[str]
) -> float:
    """A text in SI units; ``own`` is the unit of a number, ``likely`` are those that a refusal suggests."""
    match = _QUANTITY.fullmatch(text if isinstance(text, str) else f"{text}{own}")
    try:
        number = float(match[1]) if match else math.nan
    except ValueError:
        number = math.nan
    if match is None or not (0 < number < math.inf):
        raise DataError(f"{what} must be a number > 0 with its unit, like {example}, got {text!r}")
    unit = "".join(f"{match[2]}{match[3] or ''}".split())
    if not unit:
        *others, last = (f"{match[1]}{one}" for one in likely)
        raise DataError(f"{what} {text!r} has no unit; write {', '.join(others)} or {last}")
    if unit not in units:
        raise DataError(f"{what} {text!r}: unknown unit; write it like {example}")
    value = number * units[unit]
    if not SMALLEST_POSITIVE <= value <= LARGEST_QUANTITY:
        raise DataError(f"{what} {text!r}: must be {SMALLEST_POSITIVE:g} to {LARGEST_QUANTITY:g} in SI units")
    return value


def readable_rate(value: float) -> str:
    """A rate in bytes per second as text: ``"57.6 Mbit/s"``."""
    bits = 8 * value
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if bits >= scale:
            return f"{bits / scale:.3g} {prefix}bit/s"
    return f"{bits:.3g} bit/s"


MOST_COLUMNS = 1000

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table; every method checks the value that it reads (raises `DataError`).

    An empty or absent cell is the ``default``; without one the row is refused.
    """

    file: str
    line: int
    values: dict[str, str]

    @property
    def where(self) -> str:
        """File and line, for messages."""
        return f"{self.file}: line {self.line}"

    def given(self, column: str) -> bool:
        return bool(self.values.get(column, "").strip())

    def text(self, column: str, default: str | None = None, *, most: int = 200) -> str:
        """Printable text of at most ``most`` characters, stripped."""
        text = self.values.get(column, "").strip()
        if not text and default is not None:
            return default
        if not text or not text.isprintable():
            got = ascii(text[:60]) if text else "an empty cell"
            raise DataError(f"{self.where}: {column} must be printable text, got {got}")
        if len(text) > most:
            raise DataError(f"{self.where}: {column} must be at most {most} characters, got {len(text)}")
        return text

    def _read(self, column: str) -> float | str:
        """The number, or the text if it is none."""
        text = self.text(column)
        return float(text) if _NUMBER.fullmatch(text) else text

    def number(self, column: str, default: float | None = None, **limits: Any) -> float:
        """A finite number, within the limits of `require_number`."""
        if default is not None and not self.given(column):
            return default
        return require_number(self._read(column), f"{self.where}: {column}", error=DataError, **limits)

    def quantity(self, column: str, parse: Callable[[str], float], *, largest: float = LARGEST) -> float | None:
        """A number with its unit, read by ``parse``; None for an empty cell."""
        if not self.given(column):
            return None
        what = f"{self.where}: {column}"
        try:
            value = parse(self.text(column))
        except DataError as error:
            raise DataError(f"{what}: {error}") from None
        return require_number(value, what, positive=True, largest=largest, error=DataError)

    def count(self, column: str, default: int | None = None, *, least: int = 1, most: int = 1_000_000) -> int:
        """A whole number, also written ``4.0``, as in tables with gaps."""
        if default is not None and not self.given(column):
            return default
        value = self._read(column)
        whole = int(value) if isinstance(value, float) and value.is_integer() else self.text(column)
        return require_count(whole, f"{self.where}: {column}", least=least, most=most, error=DataError)

    def share(self, column: str, default: float | None = None) -> float:
        """A number between 0 and 1."""
        return require_share(self.number(column, default), f"{self.where}: {column}", error=DataError)


def read_rows(
    path: str | os.PathLike[str],
    *,
    required: Sequence[str],
    optional: Sequence[str] = (),
    what: str = "rows",
    others: bool = False,
    header: Sequence[str] | None = None,
    delimiter: str = ",",
    meanings: Mapping[str, str] | None = None,
) -> Iterator[Row]:
    """Rows of a table; refuses files without these columns, or that end within a row (raises `DataError`).

    ``what`` and ``meanings`` of columns are for messages; ``header``: columns of a file without a header; ``others``:
    skip further columns, unless spelt almost like an absent one.
    """
    file = str(path)
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: is not UTF-8 text, see byte {error.start}; save it as CSV in UTF-8") from None
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    columns, empty = list(header or ()), True
    try:
        for fields in lines:
            where = f"{file}: line {lines.line_num}"
            if not any(field.strip() for field in fields):  # spreadsheets write empty rows as commas
                continue
            if not columns:
                columns = [field.strip() for field in fields]
                if not (others and {*required} <= {*columns}) and (hint := mistaken(text, [*required, *optional])):
                    raise DataError(f"{file}: {hint}")
                _require_columns(where, columns, required, optional, others, meanings or {})
                continue
            if len(fields) != len(columns):
                raise DataError(
                    f"{where}: a row must have {len(columns)} values ({_listed(columns)}), got {len(fields)}; "
                    "the file may be truncated"
                )
            empty = False
            yield Row(file, lines.line_num, dict(zip(columns, fields, strict=True)))
    except csv.Error as error:
        hint = mistaken(text, required) or f"line {lines.line_num}: {error}; is this a CSV with {_listed(required)}?"
        raise DataError(f"{file}: {hint}") from None
    if empty:
        raise DataError(f"{file}: no {what} below the header")


def _require_columns(
    where: str, columns: list[str], required: Sequence[str], optional: Sequence[str], others: bool, meanings: Any
) -> None:
    for name, delimiter in (("semicolons", ";"), ("tabs", "\t")):  # as spreadsheets save them in some languages
        if len(columns) == 1 and delimiter in columns[0]:
            raise DataError(
                f"{where}: columns must be separated by commas, got {name}; save it with commas between columns and "
                "points in numbers"
            )
    known, means = [*required, *optional], {name: f" ({text})" for name, text in meanings.items()}
    if len(columns) > MOST_COLUMNS:
        raise DataError(f"{where}: a table must have at most {MOST_COLUMNS} columns, got {len(columns)}")
    if twice := [column for column in columns if columns.count(column) > 1]:
        raise DataError(f"{where}: column {twice[0][:60]!r} stands twice; leave one")
    absent = [column for column in known if column not in columns]
    unknown = [column for column in columns if column not in known]
    for column in unknown:
        for meant in difflib.get_close_matches(column.lower(), absent, 1, 0.75):
            meant = f"did you mean {meant!r}{means.get(meant, '')}?"
            raise DataError(f"{where}: unknown column {column[:60]!r}; {meant}")
    for column in required:
        if column in absent:
            raise DataError(
                f"{where}: column {column!r}{means.get(column, '')} is missing; the columns are {_listed(columns)}"
            )
    if unknown and not others:
        raise DataError(f"{where}: unknown column {unknown[0][:60]!r}; the known ones are {_listed(known)}")


def _listed(columns: Sequence[str]) -> str:
    text = ", ".join(columns)
    return ascii(text)[1:-1] if len(text) <= 120 else f"{ascii(text[:117])[1:-1]}..."


@cache
def constants(package: str, file: str = "constants.toml") -> dict[str, Any]:
    """Values of a folder's table of measured and assumed numbers, by name (and module)."""

    def values(table: dict[str, Any]) -> dict[str, Any]:
        return {name: one["value"] if "value" in one else values(one) for name, one in table.items()}

    return values(tomllib.loads((resources.files(package) / file).read_text(encoding="utf-8")))
