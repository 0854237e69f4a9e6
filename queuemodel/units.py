"""Human units at the edges ("10 Gbit/s", "25 MB", "90 min"); SI seconds and bytes inside.

A text has its unit, so that nobody's hours are read as seconds; a number is SI.
"""

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial

from .checks import SMALLEST_POSITIVE
from .errors import DataError

#: Bytes, bytes per second and seconds beyond this are mistakes.
LARGEST_QUANTITY = 1e18

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
    """Bytes per second from ``"10Gbit/s"``, ``"1.25 GB/s"``, ``"800Mbps"`` or a number of bytes per second."""
    return _parse(text, "bandwidth", _RATES, "10Gbit/s or 1.25GB/s", "B/s", ("Gbit/s", "MB/s"))


def parse_size(text: str | float) -> float:
    """Bytes from ``"25 MB"``, ``"4MiB"`` or a number of bytes."""
    return _parse(text, "size", _BYTES, "25MB or 4MiB", "B", ("MB", "B"))


def parse_duration(text: str | float, *, likely: Sequence[str] = ("h", "min", "s")) -> float:
    """Seconds from ``"90 min"``, ``"2h"``, ``"250ms"`` or a number of seconds; ``likely``: units of one without."""
    return _parse(text, "duration", _SECONDS, "90min or 2h", "s", likely)


#: A short duration, of a message or a packet.
parse_latency = partial(parse_duration, likely=("us", "ms"))


def _parse(
    text: str | float, what: str, units: Mapping[str, float], example: str, own: str, likely: Sequence[str]
) -> float:
    """A text in SI units; ``own`` is the unit of what is no text, ``likely`` are those of one without."""
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
    """A rate in bytes per second as network people say it: ``"57.6 Mbit/s"``."""
    bits = 8 * value
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if bits >= scale:
            return f"{bits / scale:.3g} {prefix}bit/s"
    return f"{bits:.3g} bit/s"
