"""Checks of what people and files hand in; a refusal is one line: where, what was expected, got, and what to do."""

from __future__ import annotations

import difflib
import functools
import json
import math
import numbers
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

from .errors import DataError, MissingDependencyError, ModelError, QueueModelError

LARGEST_NUMBER = 1e9  # times and ratios above it are mistakes of units; below it no product overflows
MOST_EXAMPLES = 10**15  # of an epoch, of a batch, or until a target: tokens are examples, too
SLOWEST_LINK, FASTEST_LINK = 1e3, 1e15  # bytes per second; what lies outside is in another unit
SMALLEST_POSITIVE = 1e-15  # what must be above 0 is above it by more than rounding
LARGEST_SEED = 2**64 - 1  # as NumPy's bit generators take them

#: What the name of a JSON file may end in; "" allows /dev/stdout.
JSON = (".json", ".json.gz", "")

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def by_keyword(call: F) -> F:
    """Have a function, or a class, refuse arguments that do not fit by a `ModelError` that lists its own."""
    inner: Any = call.__init__ if isinstance(call, type) else call  # type: ignore[misc]

    @functools.wraps(inner)
    def called(*args: Any, **named: Any) -> Any:
        try:
            return inner(*args, **named)
        except TypeError as error:
            within = error.__traceback__ and error.__traceback__.tb_next
            if within and "multiple values for keyword argument" not in str(error):
                raise
            taken = [p for p in signature(call).parameters.values() if p.name != "cls"]
            own = [f"{p.name}=" if p.kind is p.KEYWORD_ONLY else str(p).split(":")[0] for p in taken]
            said = str(error).replace(".__init__", "")
            raise ModelError(f"{said}; write {call.__qualname__}({', '.join(own)})") from None

    if isinstance(call, type):
        call.__init__ = called  # type: ignore[misc]
    return call if isinstance(call, type) else called  # type: ignore[return-value]


def require_number(
    value: Any,
    what: str,
    *,
    unit: str = "",
    positive: bool = False,
    largest: float = LARGEST_NUMBER,
    error: type[QueueModelError] = ModelError,
) -> float:
    """The value as a finite float >= 0 (``positive``: > 0), or raise an ``error`` that names it."""
    if type(value) is float and SMALLEST_POSITIVE <= value <= largest:  # the usual case, kept fast
        return value
    number = _float(value)
    unit = f" {unit}" if unit else ""
    if not math.isfinite(number) or number < 0 or (positive and number == 0):
        raise error(f"{what} must be finite and {'> 0' if positive else '>= 0'}{unit}, {got(value)}")
    if positive and number < SMALLEST_POSITIVE:
        raise error(f"{what} must be at least {SMALLEST_POSITIVE:g}{unit}, {got(value)}")
    if number > largest:
        raise error(f"{what} must be at most {largest:g}{unit}, {got(value, share=largest == 1)}")
    return number


def _float(value: Any) -> float:
    """NaN for what is no number."""
    try:
        return math.nan if isinstance(value, (bool, str, bytes, complex)) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def require_count(
    value: Any, what: str, *, least: int = 1, most: int = 1_000_000, error: type[QueueModelError] = ModelError
) -> int:
    """The value as an int of ``least`` to ``most``, or raise an ``error`` that names it; 2.0 is refused."""
    if type(value) is int and least <= value <= most:  # the usual case, kept fast
        return value
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < least:
        raise error(f"{what} must be a whole number of at least {least:,}, {got(value)}")
    if value > most:
        raise error(f"{what} must be at most {most:,}, {got(value)}")
    return int(value)


def require_seed(value: Any, what: str = "seed") -> int:
    return require_count(value, what, least=0, most=LARGEST_SEED)


def require_share(
    value: Any, what: str, *, open_ended: bool = False, error: type[QueueModelError] = ModelError
) -> float:
    """The value as a float between 0 and 1 (``open_ended``: strictly), or raise an ``error``."""
    number = _float(value)
    if not (0 < number < 1 if open_ended else 0 <= number <= 1):
        left_out = ", both left out" if open_ended else ""
        raise error(f"{what} must be between 0 and 1{left_out}, {got(value, share=True)}")
    return number


def require_choice(
    value: T,
    what: str,
    choices: Iterable[T],
    *,
    error: type[QueueModelError] = ModelError,
    called: Mapping[str, str] | None = None,
) -> T:
    """The value if it is one of ``choices``, or raise an ``error`` that lists them; ``called``: synonyms."""
    known = list(choices)
    if not any(type(value) is type(one) and value == one for one in known):
        listed = ", ".join(map(str, known))
        raise error(f"{what} must be one of {listed}, got {_shown(value)}{nearest(value, known, called=called)}")
    return value


def require_known(names: Iterable[str], known: Sequence[str], what: str) -> None:
    """Refuse a keyword that ``what`` has not."""
    for unknown in (name for name in names if name not in known):
        raise ModelError(f"{what}: {unknown} is not an argument{nearest(unknown, known)}")


def nearest(value: Any, known: Iterable[Any], *, called: Mapping[str, str] | None = None) -> str:
    """The end of a refusal: the name that begins so, has these words or is spelt so; ``called``: synonyms or advice."""
    known = list(known)
    words = {_words(one): meant for one, meant in (dict(called or {}) | {str(one): str(one) for one in known}).items()}
    spelt = {"".join(parts): meant for parts, meant in words.items()}
    typed = "".join(_words(value))
    begun = [one for one in spelt if len(typed) > 1 and one.startswith(typed)]
    found = begun or ["".join(parts) for parts in words if typed and set(_words(value)) <= set(parts)]
    alike = difflib.get_close_matches(typed, found or spelt, 1, 0.0 if found else 0.6)
    meant = spelt[alike[0]] if alike else ""
    return f"; did you mean {meant!r}?" if meant in map(str, known) else f"; {meant}" if meant else ""


def _words(text: Any) -> tuple[str, ...]:
    return tuple(re.findall("[a-z0-9]+", str(text).lower()))


def require_name(name: Any, what: str) -> str:
    """Refuse what is not a short printable text (raises `ModelError`)."""
    if not isinstance(name, str) or not name:
        raise ModelError(f"{what}: name must be a text that is not empty, got {_shown(name)}")
    if not name.isprintable() or len(name) > 200:
        raise ModelError(f"{what}: name must be at most 200 printable characters, got {name[:200]!r}")
    return name


def require_file_name(path: str | os.PathLike[str]) -> None:
    """Refuse the empty name, which `pathlib.Path` takes for the working folder (raises `DataError`)."""
    if not os.fspath(path):
        raise DataError("'': a file's name must not be empty")


def require_writable(path: str | os.PathLike[str] | None, *, suffixes: Sequence[str] = ()) -> None:
    """Refuse an output of another suffix, or that cannot be written, before long work (raises `DataError`)."""
    if path is None:
        return
    require_file_name(path)
    target, named = Path(path), tuple(filter(None, suffixes))
    folder = target.parent
    if named and not target.name.lower().endswith(named) and (target.suffix or "" not in suffixes):
        raise DataError(f"{path}: the file name must end in one of {', '.join(named)}")
    if target.is_dir():
        raise DataError(f"{path}: cannot be written: is a folder")
    if not folder.is_dir():
        raise DataError(f"{path}: cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise DataError(f"{path}: cannot be written: permission denied")
    try:
        if target.is_file() or not target.exists():
            with tempfile.TemporaryFile(dir=folder):  # what access does not show: a full disk, /proc, ...
                pass
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from None


def got(value: Any, *, share: bool = False) -> str:
    """The end of a refusal, with what may be meant: commas in numbers, percent of a ``share``."""
    if isinstance(value, str) and re.search(r"\d,\d", value):
        return f"got {_shown(value)}; write it without commas, a decimal with a point"
    percent = _float(value) if share else 0
    return f"got {_shown(value)}" + (f"; write {percent / 100:g} for {percent:g} %" if 5 <= percent < 100 else "")


def _shown(value: Any) -> str:
    """``repr`` of bearable length, also of integers with more digits than Python prints."""
    try:
        text = repr(value)
    except ValueError:
        return "a whole number of thousands of digits"
    return text if len(text) <= 200 else f"{text[:197]}..."


def require_distinct_keys(text: str | bytes) -> None:
    """Refuse JSON in which an object repeats a key (raises `DataError`): readers silently take the last one."""

    def distinct(pairs: list[tuple[str, Any]]) -> None:
        counts = Counter(key for key, _ in pairs)
        for twice in (key for key, count in counts.items() if count > 1):
            raise DataError(f"key {_shown(twice)} stands twice in an object; leave one")

    json.loads(text, object_pairs_hook=distinct, parse_int=len)


def one_line(text: object) -> str:
    """A message of another library on one line of bearable length."""
    line = " ".join(str(text).split())
    return line if len(line) <= 300 else f"{line[:297]}..."


def extra(module: str, name: str, *, what: str) -> Any:
    """A module of a package that is installed with the extra ``name`` (setup.cfg); ``what`` needs it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0].replace("google", "protobuf")
        hint = f"pip install {package}, or '.[{name}]' in a checkout of queuemodel"
        raise MissingDependencyError(f"{what} needs {package}: {hint}") from None
