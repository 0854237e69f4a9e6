"""Option types and checks that several commands share."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

import click

from ..checks import require_count, require_number, require_seed, require_share
from ..errors import DataError, QueueModelError
from ..training.job import CONGESTION_CONTROLS
from ..units import parse_bandwidth, parse_duration, parse_size


class Quantity(click.ParamType):
    """A number with its unit, like 10Gbit/s or 90min."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The value in SI units."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except QueueModelError as error:
            self.fail(str(error), param, ctx)


#: More machines or customers than this are a typing mistake.
LARGEST = 1_000_000


class Counts(click.ParamType):
    """Numbers of machines or customers: ``8``, ``1:32`` (both ends included) or ``1,2,4,8``."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Sequence[int]:
        """Increasing whole numbers of at least 1."""
        if not isinstance(value, str):
            return value
        try:
            if ":" in value:
                first, last = map(int, value.split(":"))
                counts: Sequence[int] = range(first, last + 1)
            else:
                counts = sorted({int(part) for part in value.split(",")})
        except ValueError:
            self.fail(f"{value!r} is not like 8, 1:32 or 1,2,4,8", param, ctx)
        if not counts:
            self.fail(f"{value!r}: the range is empty, its first number must not exceed its last", param, ctx)
        if counts[0] < 1 or counts[-1] > LARGEST:
            self.fail(f"{value!r}: numbers must be 1 to {LARGEST:,}", param, ctx)
        return counts


class Runs(click.ParamType):
    """A run on the profiled machines: ``4`` workers, ``4@5Gbit/s`` on other links; with what came out ``4=1.74``."""

    def __init__(self, *, measured: bool) -> None:
        self.measured = measured
        self.name = "WORKERS[@BANDWIDTH]" + ("=STEPS/S" if measured else "")

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, float | None, float | None]:
        """Workers, bandwidth and steps per second; None for what is not told."""
        if not isinstance(value, str):
            return value
        run, equals, speed = value.partition("=")
        workers, at, bandwidth = run.partition("@")
        try:
            if bool(equals) != self.measured:
                raise DataError(f"must be like {'4=1.74 or 4@5Gbit/s=1.1' if self.measured else '4 or 4@5Gbit/s'}")
            return (
                require_count(_whole(workers), "workers", most=LARGEST),
                parse_bandwidth(bandwidth) if at else None,
                require_number(_real(speed), "steps per second", positive=True) if equals else None,
            )
        except QueueModelError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


def _whole(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text  # for the check to refuse


def _real(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


BANDWIDTH = Quantity("bandwidth", parse_bandwidth)
DURATION = Quantity("duration", parse_duration)
SIZE = Quantity("size", parse_size)
COUNTS = Counts()
COUNT = Quantity("count", lambda text: require_count(_whole(text), "it", most=LARGEST))
COUNT_OR_NONE = Quantity("count", lambda text: require_count(_whole(text), "it", least=0, most=LARGEST))
DATASET_SIZE = Quantity("count", lambda text: require_count(_whole(text), "it", most=10**15))
SEED = Quantity("seed", lambda text: require_seed(_whole(text), "it"))
NUMBER = Quantity("number", lambda text: require_number(_real(text), "it"))
POSITIVE = Quantity("number", lambda text: require_number(_real(text), "it", positive=True))
SHARE = Quantity("share", lambda text: require_share(_real(text), "it"))
INNER_SHARE = Quantity("share", lambda text: require_share(_real(text), "it", open_ended=True))

#: What a picture's name may end in.
PICTURES = (".png", ".svg", ".pdf")

format_option = click.option(
    "--format", "output_format", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True
)


CONGESTION_CONTROL = click.option(
    "--congestion-control", type=click.Choice(CONGESTION_CONTROLS), help="TCP's in the hosts, for the simulation."
)
BUFFER = click.option("--buffer", type=DURATION, help="How long a packet waits at a full link, like 12ms.")


THROUGHPUTS = click.option(
    "--throughputs",
    type=click.Path(dir_okay=False),
    multiple=True,
    help="Measured besides: a CSV, or a profile of several workers; may be repeated.",
)
MEASURED = click.option(
    "--measured",
    type=Runs(measured=True),
    multiple=True,
    help="Measured besides, on the profile's servers: 4=1.74; may be repeated.",
)


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV with a header."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().rstrip("\n")
