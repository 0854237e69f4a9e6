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
    LARGEST_NUMBER,
    SMALLEST_POSITIVE,
    got,
    require_count,
    require_file_name,
    require_number,
    require_share,
    require_writable,
)
from .errors import DataError, ModelError
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

_POWERS = {"k": "e3", "K": "e3", "M": "e6", "G": "e9", "B": "e9", "T": "e12"}  # of counts; B: billions
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30}
_BYTES = {f"{prefix}B": scale for prefix, scale in _PREFIXES.items()}
_RATES = {f"{prefix}{unit}": scale * size for prefix, scale in _PREFIXES.items()
          for unit, size in (("b", 1 / 8), ("b/s", 1 / 8), ("B/s", 1.0))}  # fmt: skip
#: How else units of data are written; B is bytes and b bits, so that what is all in capitals may be either.
_SPELT = {
    "(?i)bytes?": "B", "(?i)bits?": "b", "(?i)g(ig|b)?e$": "Gb/s", "(?<=[bB])(ps|s|persecond)$|/sec(ond)?$": "/s",
    "(?i)(?<=^[kmgt])(ilo|ega|iga|era)": "",
}  # fmt: skip
_SECONDS = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0,
    "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0,
    "week": 604800.0,
}  # fmt: skip
_QUANTITY = re.compile(r"\s*([-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)([^\d.]*)", re.ASCII)
_PARTS = re.compile(r"(\d+\.?\d*)\s*([a-zµμ]+)\s*", re.IGNORECASE)


def number_in(text: str) -> Any:
    """The number in a text, like 8, 1e8 or 100M, a whole one as an int; the text, for a check to refuse, if none."""
    text = text.strip()
    power = _POWERS.get(text[-1:], "")
    try:
        number = float(text[:-1].rstrip() + power if power else text)
        return int(text) if text.isdecimal() else int(number) if number.is_integer() else number
    except ValueError:
        return text


def count_in(text: str) -> Any:
    """The same of a count, or of money, which may have commas between thousands: 100,000,000."""
    return number_in(text.replace(",", "") if re.match(r"\s*[1-9]\d{0,2}(,\d{3})+(?![\d,])", text) else text)


def share_in(text: str) -> Any:
    """The same of a share, which may be in percent."""
    number = number_in(text.strip().removesuffix("%"))
    return text if isinstance(number, str) else number / 100 if "%" in text else number


def parse_bandwidth(text: str | float) -> float:
    """Bytes per second, from ``"10Gbit/s"``, ``"1.25 GB/s"``, ``"10gbps"``, ``"10GbE"`` or a number of bytes/s."""
    return _parse(text, "bandwidth", _RATES, "10Gbit/s or 1.25GB/s", "B/s", ("Gbit/s", "MB/s"))


def parse_size(text: str | float) -> float:
    """Bytes from ``"25 MB"``, ``"4MiB"`` or a number of bytes."""
    return _parse(text, "size", _BYTES, "25MB or 4MiB", "B", ("MB", "B"))


def parse_duration(text: str | float, *, likely: Sequence[str] = ("h", "min", "s")) -> float:
    """Seconds from ``"90 min"``, ``"1h30m"``, ``"12:00:00"`` or a number; ``likely``: units of a text without one."""
    plain = re.sub(r"^\s*(\d+):(\d\d):(\d\d)\s*$", r"\1h\2m\3s", str(text))
    parts = [] if _PARTS.sub("", plain).strip() else _PARTS.findall(plain)
    if len(parts) > 1:  # m is minutes beside hours or seconds
        sizes = [_SECONDS.get(_spelt("min" if unit in "mM" else unit), math.nan) for _, unit in parts]
        total = math.fsum(float(number) * size for (number, _), size in zip(parts, sizes, strict=True))
        text = total if total > 0 else text
    return _parse(text, "duration", _SECONDS, "90min, 2h or 3d", "s", likely)


def duration_in(value: Any, what: str) -> Any:
    """Seconds of a text like ``"90min"`` or of a timedelta; other values, for a check to refuse or pass."""
    try:
        return parse_duration(value) if isinstance(value, str) else value.total_seconds()
    except DataError as error:
        raise ModelError(f"{what}: {error}") from None
    except AttributeError:
        return value


parse_latency = partial(parse_duration, likely=("us", "ms"))  # of a message or a packet


def or_zero(parse: Callable[[str], float]) -> Callable[[str], float]:
    """The same reader, for which 0 needs no unit."""
    return lambda text: 0.0 if re.fullmatch(r"\s*0*\.?0+\s*[a-zA-Zµμ/]*\s*", text) else parse(text)


def _spelt(unit: str) -> str:
    """A unit as the tables have it."""
    if (time := unit.lower().removesuffix("s" if len(unit) > 2 else "")) in _SECONDS:
        return time
    for pattern, word in _SPELT.items():
        unit = re.sub(pattern, word, unit)
    return re.sub("^[KMGT]", lambda prefix: prefix[0].lower(), unit)


def _parse(
    text: str | float, what: str, units: Mapping[str, float], example: str, own: str, likely: Sequence[str]
) -> float:
    """A text in SI units; ``own`` is the unit of a number, ``likely`` are those that a refusal suggests."""
    match = _QUANTITY.fullmatch(text if isinstance(text, str) else f"{text}{own}")
    number = number_in(match[1]) if match else math.nan
    if match is None or isinstance(number, str) or not (0 < number < math.inf):
        raise DataError(f"{what} must be a number > 0 with its unit, like {example}, {got(text)}")
    written = "".join(match[2].split())
    if (unit := _spelt(written)) not in units:
        prefix = {"k": "k", "m": "M", "g": "G", "t": "T"}.get(unit[:1], "") if len(unit) < 5 else ""
        near = [prefix + one[1:] for one in likely if prefix and one[0] in "GM" and "it" not in written]
        near = near or [one for one in likely if one[0] == unit]
        meant = [match[1] + one for one in (near if written else likely)]
        *others, last = meant or [f"it like {example}"]
        wrong = ": unknown unit" if written else " has no unit"
        raise DataError(f"{what} {text!r}{wrong}; write {' or '.join(filter(None, [', '.join(others), last]))}")
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


def readable_duration(seconds: float, digits: int = 4) -> str:
    """Seconds as text: ``"1.5 min"``."""
    unit = next((name for name in ("h", "min") if seconds >= _SECONDS[name]), "s")
    return f"{seconds / _SECONDS[unit]:.{digits}g} {unit}"


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

    def quantity(self, column: str, parse: Callable[[str], float], *, largest: float = LARGEST_NUMBER) -> float | None:
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
    path: str | os.PathLike[str] | Any,
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
    skip further columns, unless spelt almost like an absent one; ``path`` may be an open file; ``delimiter``: "" for
    the commonest of the header.
    """
    opened: Any = path if hasattr(path, "read") else None
    file = str(getattr(path, "name", "table") if opened else path)
    try:
        text = opened.read() if opened else read_bytes(path).decode()
        text = text.decode() if isinstance(text, bytes) else text.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: is not UTF-8 text, see byte {error.start}; save it as CSV in UTF-8") from None
    delimiter = delimiter or max(",;\t", key=text.lstrip().partition("\n")[0].count)
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
        hint = mistaken(text, required) if text.lstrip()[:1] in ("{", "[") else ""
        raise DataError(f"{file}: {hint or f'no {what} below the header'}")


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
