"""Types of options, and the options that all kinds of commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from ..checks import nearest, require_count, require_number, require_seed, require_share
from ..errors import DataError, QueueModelError
from ..training.job import CONGESTION_CONTROLS
from ..units import parse_bandwidth, parse_duration, parse_latency, parse_size


class Quantity(click.ParamType):
    """A number with its unit, like 10Gbit/s or 90min; 0, where it may be that, needs none."""

    def __init__(self, name: str, parse: Callable[[str], float], *, zero: bool = False) -> None:
        self.name, self.parse, self.zero = name, parse, zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The value in SI units."""
        if not isinstance(value, str):
            return value
        try:
            return 0.0 if self.zero and value.strip() in ("0", "0s", "0ms") else self.parse(value)
        except QueueModelError as error:
            self.fail(str(error), param, ctx)


class OneOf(click.Choice):
    """One of several names; a wrong one is told the nearest, by other words for them too (``called``)."""

    def __init__(self, names: Sequence[str], called: Mapping[str, str] | None = None) -> None:
        super().__init__(names)
        self.called = called

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name itself."""
        if value not in self.choices:
            near = nearest(value, self.choices, called=self.called)
            self.fail(f"{value!r} is not one of {', '.join(self.choices)}{near}", param, ctx)
        return str(value)


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


class EachWorker(click.ParamType):
    """A value of each worker in turn, the last one of all that follow: ``10Gbit/s*3,1Gbit/s``."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name, self.parse = f"{name}[*COUNT],...", parse

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Callable[[int], list[float]]:
        """From a number of workers to the value of each."""
        if not isinstance(value, str):
            return value
        told: list[float] = []
        try:
            for part in value.split(","):
                one, times, count = part.partition("*")
                told += [self.parse(one)] * (require_count(_whole(count), "count", most=LARGEST) if times else 1)
        except QueueModelError as error:
            self.fail(f"{value!r}: {error}", param, ctx)
        return lambda workers: (told + told[-1:] * workers)[:workers]


class Runs(click.ParamType):
    """A measured run on the profiled machines: ``4=1.74``, or ``4@5Gbit/s=1.1`` on other links."""

    name = "WORKERS[@BANDWIDTH]=STEPS/S"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, float | None, float]:
        """Workers, bandwidth (None for the profiled one) and steps per second."""
        if not isinstance(value, str):
            return value
        run, equals, speed = value.partition("=")
        workers, at, bandwidth = run.partition("@")
        try:
            if not equals:
                raise DataError("must be like 4=1.74 or 4@5Gbit/s=1.1")
            return (
                require_count(_whole(workers), "workers", most=LARGEST),
                parse_bandwidth(bandwidth) if at else None,
                require_number(_real(speed), "steps per second", positive=True),
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
DURATION_OR_NONE = Quantity("duration", parse_duration, zero=True)
LATENCY = Quantity("duration", parse_latency)
LATENCY_OR_NONE = Quantity("duration", parse_latency, zero=True)
SIZE = Quantity("size", parse_size)
COUNTS = Counts()
COUNT = Quantity("count", lambda text: require_count(_whole(text), "it", most=LARGEST))
COUNT_OR_NONE = Quantity("count", lambda text: require_count(_whole(text), "it", least=0, most=LARGEST))
DATASET_SIZE = Quantity("count", lambda text: require_count(_whole(text), "it", most=10**15))
SPEEDS = EachWorker("speed", lambda text: require_number(_real(text), "it", positive=True))
BANDWIDTHS = EachWorker("bandwidth", parse_bandwidth)
SEED = Quantity("seed", lambda text: require_seed(_whole(text), "it"))
POSITIVE = Quantity("number", lambda text: require_number(_real(text), "it", positive=True))
SHARE = Quantity("share", lambda text: require_share(_real(text), "it"))
INNER_SHARE = Quantity("share", lambda text: require_share(_real(text), "it", open_ended=True))

FILE = click.Path(dir_okay=False)

#: What a picture's name may end in.
PICTURES = (".png", ".svg", ".pdf")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

#: Usage that is longer does not fit beside its help.
LONGEST_USAGE = 30


def one_of(
    flag: str, names: Sequence[str], help: str = "", called: Mapping[str, str] | None = None, **settings: Any
) -> Decorator:
    """An option that takes one of several names, which stand in its usage, or in its help where they are many."""
    many = len("|".join(names)) > LONGEST_USAGE
    told = " ".join(filter(None, [help, f"One of {', '.join(names)}." if many else ""]))
    return click.option(
        flag, type=OneOf(names, called), help=told or None, metavar="NAME" if many else None, **settings
    )


def together(*options: Decorator) -> Decorator:
    """Options that go together, as one decorator; help lists them in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


format_option = click.option(
    "--format", "output_format", type=OneOf(["table", "json", "csv"]), default="table", show_default=True
)
REPORT = click.option("--report", type=FILE, help="Write a page that one can mail (.html).")
CONGESTION_CONTROL = one_of("--congestion-control", CONGESTION_CONTROLS, "TCP's in the hosts.")
BUFFER = click.option(
    "--buffer",
    type=LATENCY_OR_NONE,
    help="How long a packet waits at a full link, like 12ms; 0 where each connection has its own queue (fq_codel).",
)
