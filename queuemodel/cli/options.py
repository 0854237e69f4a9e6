"""Types of options, and the options that all kinds of commands share."""

from __future__ import annotations

import csv
import inspect
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from io import StringIO
from typing import Any

import click

from ..base.checks import MOST_EXAMPLES, nearest, require_count, require_number, require_seed, require_share
from ..base.errors import DataError, QueueModelError
from ..base.files import count_in, number_in, or_zero, parse_bandwidth, parse_duration, parse_size, share_in
from ..base.results import Result, Rows
from ..profile.job import MOST_WORKERS
from ..profile.profile import Profile
from ..profile.scenario import FIELD_KINDS, FIELDS, FLAG, of_group

#: More customers or nodes than this are a typing mistake.
LARGEST_OPTION = 1_000_000


class Parsed(click.ParamType):
    """What ``parse`` makes of a text, in SI units; a refusal is one line."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.parse(value) if isinstance(value, str) else value
        except QueueModelError as error:
            self.fail(str(error), param, ctx)


class OneOf(click.Choice):
    """One of several names; a refusal suggests the nearest, also by its synonyms (``called``)."""

    def __init__(self, names: Sequence[str], called: Mapping[str, str] | None = None) -> None:
        super().__init__(names)
        self.called = called

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            near = nearest(value, self.choices, called=self.called)
            self.fail(f"{value!r} is not one of {', '.join(self.choices)}{near}", param, ctx)
        return str(value)


def _counts(text: str, most: int) -> Sequence[int]:
    """Increasing numbers of machines or customers: ``8``, ``1:32`` or ``1-32`` (both ends included), ``1,2,4:8``."""
    counts: set[int] = set()
    for part in text.strip("[]() ").split(","):
        ends = [number_in(end) for end in re.split(r"\s*(?::|-|–|\.\.|to)\s*", part.strip())]
        if len(ends) > 2 or not all(isinstance(end, int) for end in ends):
            raise DataError(f"{text!r} is not like 8, 1:32 or 1,2,4,8")
        if not 1 <= min(ends) <= max(ends) <= most:
            raise DataError(f"{text!r}: numbers must be 1 to {most:,}")
        if ends[0] > ends[-1]:
            raise DataError(f"{text!r}: the range is empty, its first number must not exceed its last")
        counts.update(range(ends[0], ends[-1] + 1))
    return sorted(counts)


def _number(read: Callable[[str], Any], require: Callable[..., Any], what: str = "it", **limits: Any) -> Any:
    """A reader of one number within limits."""
    return lambda text: require(read(text), what, **limits)


def each(parse: Callable[[str], float]) -> Callable[[str], Callable[[int], list[float]]]:
    """Values by worker, the last one for all that follow (``10Gbit/s*3,1Gbit/s``), as a function of their number."""
    counted = _number(count_in, require_count, "count", most=LARGEST_OPTION)

    def parse_each(text: str) -> Callable[[int], list[float]]:
        values: list[float] = []
        try:
            for part in text.split(","):
                one, times, count = part.partition("*")
                values += [parse(one)] * (counted(count) if times else 1)
        except QueueModelError as error:
            raise DataError(f"{text!r}: {error}") from None
        return lambda workers: (values + values[-1:] * workers)[:workers]

    return parse_each


def _run(text: str) -> tuple[int, float | None, float]:
    """Workers, bandwidth (None for the profiled one) and steps per second: ``4=1.74``, or ``4@5Gbit/s=1.1``."""
    run, equals, speed = text.partition("=")
    workers, at, bandwidth = run.partition("@")
    try:
        if not equals:
            raise DataError("must be like 4=1.74 or 4@5Gbit/s=1.1")
        return (
            _number(count_in, require_count, "workers", most=MOST_WORKERS)(workers),
            parse_bandwidth(bandwidth) if at else None,
            _number(number_in, require_number, "steps per second", positive=True)(speed),
        )
    except QueueModelError as error:
        raise DataError(f"{text!r}: {error}") from None


def _price(text: str) -> Any:
    """An amount of money, perhaps with its sign, and per hour."""
    return count_in(re.sub(r"^\s*[$€£]|([$€£]|[A-Z]{3})?\s*(/\s*h(ou)?r?)?\s*$", "", text))


BANDWIDTH = Parsed("bandwidth", parse_bandwidth)
DURATION = Parsed("duration", parse_duration)
DURATION_OR_NONE = Parsed("duration", or_zero(parse_duration))
SIZE_OPTION = Parsed("size", parse_size)
COUNTS, WORKERS = (Parsed("counts", partial(_counts, most=most)) for most in (LARGEST_OPTION, MOST_WORKERS))
COUNT = Parsed("count", _number(count_in, require_count, most=LARGEST_OPTION))
WORKER_COUNT = Parsed("count", _number(count_in, require_count, most=MOST_WORKERS))
#: For a check that follows.
WHOLE = Parsed("count", count_in)
AMOUNT = Parsed("count", _number(count_in, require_count, most=MOST_EXAMPLES))
RUNS = Parsed("WORKERS[@BANDWIDTH]=STEPS/S", _run)
SEED = Parsed("seed", _number(count_in, require_seed))
LOAD = Parsed("load", _number(share_in, require_number, positive=True, largest=10))
ABOVE_ZERO = Parsed("number", _number(number_in, require_number, positive=True))
PRICE = Parsed("price", _number(_price, require_number, positive=True))
FRACTION = Parsed("share", _number(share_in, require_share))
INNER_SHARE = Parsed("share", _number(share_in, require_share, open_ended=True))

FILE = click.Path(dir_okay=False)
PROFILE = click.argument("profile", type=click.Path())

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

#: Usage that is longer does not fit beside its help.
LONGEST_USAGE = 30


#: Sections of a command's help, with the parameters whose section is not their field's.
OTHER = "Options"
SECTIONS = {
    "Job": ("workload", "workload_format", "speeds", "throughputs", "measured", "epochs", "examples", "tokens",
            "dataset_size", "problem", "convergence", "kinds", "loads", "jobs"),
    "Cluster": ("workers", "nodes", "count", "restart_seconds", "start_seconds", "mean_time_to_failure",
                "checkpoint_seconds", "nodes_per_machine", "spread_speed", "policies"),
    "Network": (),
    "Synchronization": ("strategy",),
    "Goal": ("deadline", "chance", "price_per_node_hour", "currency", "budget", "throughput", "target_loss",
             "min_efficiency", "min_marginal_speedup", "instances"),
    "Simulation": ("method", "steps", "seeds", "seed", "replications", "warmup", "n_jobs", "backend", "arrivals"),
    "Output": ("output", "output_format", "explain", "confidence", "plot", "report", "records", "shown", "trace"),
    OTHER: (),
}  # fmt: skip


class Option(click.Option):
    """An option of a section of the help; one that is not common is shown by ``--help-all`` alone."""

    def __init__(self, *args: Any, section: str = "", common: bool = True, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.section = section or next((title for title, names in SECTIONS.items() if self.name in names), OTHER)
        self.common = common


class Command(click.Command):
    """A command whose help has the common options by section, all of them with ``--help-all``, and examples last."""

    def __init__(self, **settings: Any) -> None:
        text, mark, examples = inspect.cleandoc(settings.pop("help")).partition("\b\nExample")
        super().__init__(help=text.strip(), epilog=mark + examples, **settings)
        if not all(getattr(one, "common", True) for one in self.params):
            once: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False}
            click.option("--help-all", help="Show all options and exit.", callback=self._show_all, **once)(self)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; an error about a question names options, not the keywords of Python."""
        try:
            return super().invoke(ctx)
        except QueueModelError as error:
            every = [(one.name or "", flag) for one in self.params for flag in one.opts if flag.startswith("--")]
            flags = dict(every) | {flag[2:].replace("-", "_"): flag for _, flag in every}
            error.args = (in_options(str(error), flags, of_file=isinstance(error, DataError)),)
            raise

    @staticmethod
    def _show_all(context: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            context.meta[__name__] = True
            click.echo(context.get_help(), color=context.color)
            context.exit()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in SECTIONS}
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx) if isinstance(one, click.Option) else None
            if record and (getattr(one, "common", True) or __name__ in ctx.meta):
                sections[getattr(one, "section", OTHER)].append(record)
        for name, records in sections.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


def in_options(text: str, flags: Mapping[str, str], *, of_file: bool) -> str:
    """A message with the flags of keywords; words that may be no names only in lists, and where it is about them."""
    name = rf"(?:{'|'.join(sorted(flags, key=len, reverse=True))})\b"
    after = r"(?:(?<=needs )|(?<=requires )|(?<=give ))"
    about = rf"{name}(?= (?:must|applies|does not|needs|requires|is not)\b)|{after}{name}(?=;| too)"
    sure = rf"(?=\w+_\w){name}(?![=/.'])|{name}(?:(?:, | and | or ){name})+"
    return re.sub(
        rf"{'^' if of_file else ''}(?<![\w'/.-])(?:{sure}|{about})",
        lambda found: re.sub(r"\w+", lambda word: flags.get(word[0], word[0]), found[0]),
        text,
    )


def command(name: str | None = None) -> Callable[[Callable[..., Any]], click.Command]:
    return click.command(name, cls=Command)


def option(flags: str, type: Any = None, help: str = "", **settings: Any) -> Decorator:
    """An option by its flags, with a blank between them, and the name of its parameter where that is another."""
    return click.option(*flags.split(), cls=Option, type=type, help=help or None, **settings)


def one_of(
    flag: str, names: Sequence[str], help: str = "", called: Mapping[str, str] | None = None, **settings: Any
) -> Decorator:
    """An option of several names, listed in its usage, or in its help where they are long."""
    many = len("|".join(names)) > LONGEST_USAGE
    words = f"{help} One of {', '.join(names)}.".lstrip() if many else help
    return option(flag, OneOf(names, called), words, metavar="NAME" if many else None, **settings)


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator; help lists them in this order."""
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


format_option = one_of(
    "--format output_format", ["table", "json", "csv"], "Format.", default="table", show_default=True
)
#: The format, and how much a table says.
OUTPUT = together(
    format_option,
    option("--explain", None, "Print every note, not the first three.", is_flag=True, common=False),
)

#: Defaults.
UNLESS_GIVEN = {
    "strategy": "as recorded; of throughputs alone async-ps", "form": "links", "scheme": "as recorded",
    "collective": "of the recorded library", "bucket_bytes": "as recorded, or of the scheme", "latency": "as fitted",
    "transfer_order": "tensorflow", "sharding": "round-robin", "gpus_per_node": "1, or as in the table",
    **dict.fromkeys(("accelerator_speed", "accumulation"), "1"),
    **dict.fromkeys(("parameter_servers", "bandwidth", "batch_size", "congestion_control", "buffer"), "as recorded"),
}  # fmt: skip


#: Options that have two names: ranks are GPUs.
ALSO = {"gpus_per_node": " --ranks-per-node"}


def asking(name: str) -> Decorator:
    """The option of a scenario's field."""
    kind, field = FIELD_KINDS[name], FIELDS[name].metadata
    flag, words = f"--{name.replace('_', '-')}{ALSO.get(name, '')} {name}", field["help"]
    where = {key: field[key] for key in ("section", "common")} | {"show_default": UNLESS_GIVEN.get(name, False)}
    if kind.names:
        return one_of(flag, kind.names, words, kind.called, **where)
    if kind is FLAG:
        return option(flag, None, words, is_flag=True, **where)

    def one(text: str) -> Any:
        return kind.check(kind.read(text), "it")

    return option(flag, Parsed(kind.name, each(one) if kind.most else one), words, **where)


def options(*groups: str) -> Decorator:
    return together(*(asking(name) for group in groups for name in of_group(group)))


STRATEGY, FORM, GPUS_PER_NODE = options("job"), options("form"), asking("gpus_per_node")
THROUGHPUTS, MACHINES, ROUNDS = options("throughputs"), options("machines"), options("rounds", "sharded")
SIMULATION, NETWORK = options("simulation"), options("network")

METHOD = one_of(
    "--method", ["auto", "mva", "trace"],
    "mva: analysis of the closed network; trace: simulation of recorded operations; auto: as the profile allows.",
    {"simulation": "trace", "analysis": "mva", "exact": "mva"}, default="auto", show_default=True, common=False,
)  # fmt: skip
#: What was measured besides the profile.
MEASUREMENTS = together(
    option("--throughputs", FILE, "Further measurements: a CSV, or a profile of several workers; may be repeated.",
           multiple=True, common=False),
    option("--measured", RUNS, "A further measurement, like 4=1.74; may be repeated.", multiple=True),
)  # fmt: skip

INTERVALS = together(
    option("--confidence", INNER_SHARE, "Probability of the intervals.", default=0.9, show_default=True, common=False),
    option("--seed", SEED, "Of random numbers.", default=0, show_default=True, common=False),
)  # fmt: skip

#: What to predict from, and for which machines.
PREDICTION = together(
    PROFILE,
    option("--workers", WORKERS, "Numbers of workers, like 8, 1:32 or 1,2,4,8; or --nodes of GPUs.",
           show_default="1:32, or whole nodes"),
    option("--nodes", WORKERS, "Instead of workers: numbers of whole nodes of GPUs.", common=False),
    STRATEGY, THROUGHPUTS, METHOD, FORM, MEASUREMENTS, MACHINES, ROUNDS, SIMULATION, NETWORK, INTERVALS,
)  # fmt: skip

#: What is trained, one of these, and what a number of workers is chosen for.
GOAL_OPTIONS = together(
    option("--epochs", ABOVE_ZERO, "Passes over the data set."),
    option("--steps", AMOUNT, "Instead of epochs: steps of each worker, or iterations.", section="Job", common=False),
    option("--examples", AMOUNT, "Instead of epochs: examples, like 90M.", common=False),
    option("--tokens", AMOUNT, "Instead of epochs: tokens, like 15T; see also --steps and --examples."),
    option("--dataset-size", AMOUNT, "Examples per epoch, if the profile lacks them.", common=False),
    option("--deadline", DURATION, "Longest training time, like 12h or 90min."),
    option("--price price_per_node_hour", PRICE, "Price per node and hour."),
    option("--currency", str, "Of the price, like EUR.", metavar="NAME"),
    option("--budget", PRICE, "Largest cost of the training; needs --price."),
    option("--min-efficiency", FRACTION, "Least efficiency over one worker, or the smallest measured group, 0 to 1.",
           common=False),
)  # fmt: skip


def specified(options: dict[str, Any], workers: int) -> dict[str, Any]:
    """The options that have a value, those by worker as lists."""
    known = {name: value for name, value in options.items() if value is not None}
    return known | {name: known[name](workers) for name in ("worker_speeds", "worker_bandwidth") if name in known}


#: Of an unknown terminal.
TERMINAL_COLUMNS = 80


@dataclass(frozen=True, repr=False)
class Table(Result):
    """A command's own rows; ``document`` and ``shown`` replace them in JSON and in the printed table."""

    rows: Rows
    document: dict[str, Any] | None = None
    shown: Rows | None = None
    _digits: int = 4
    says: str = ""

    def to_rows(self) -> list[dict[str, Any]]:
        return list(self.rows)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() if self.document is None else self.document

    def _shown_rows(self) -> list[dict[str, Any]]:
        return list(self.rows if self.shown is None else self.shown)

    def caption(self) -> str:
        return self.says


def show(result: Result, output_format: str, *, explain: bool = False) -> None:
    """Print a result; on a terminal, unless NO_COLOR is set, its answer in bold and its notes dim."""
    if output_format == "json":
        click.echo(result.to_json())
    elif output_format == "csv":
        rows, text = result.to_rows(), StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        click.echo(text.getvalue(), nl=False)
    else:
        width = shutil.get_terminal_size((TERMINAL_COLUMNS, 0)).columns
        answer, tables, notes = result._paragraphs(width, explain=explain, how="--explain")
        parts = [answer and click.style(answer, bold=True), tables, notes and click.style(notes, dim=True)]
        click.echo("\n".join(filter(None, parts)), color=False if os.environ.get("NO_COLOR") else None)


def show_profile(profile: Profile, output_format: str) -> None:
    """Print the recorded fields, without the steps."""
    whole = {"name": profile.job.name, "batch_size": profile.job.batch_size, "fields": profile.summary()}
    show(profile if output_format == "table" else Table(profile.summary(), whole), output_format)


def watched() -> bool:
    """Whether a progress bar can be seen on standard error."""
    return sys.stderr.isatty()
