"""The command line: a thin skin over the API."""

import contextlib
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Sequence

import click

from ..base import __version__
from ..base.checks import nearest
from ..base.errors import QueueModelError, QueueModelWarning

#: By command, its module, imported when the command is used, and its short help.
COMMANDS = {
    "compare": ("compare", "Compare strategies by the time to a loss."),
    "demo": ("profile", "Profile a small model on this machine, and predict."),
    "examples": ("profile", "List the packaged examples, or copy them into a folder."),
    "fit": ("predict", "Fit a profile, and show its parameters."),
    "import-trace": ("profile", "Make a profile of recorded traces."),
    "next-measurement": ("predict", "Recommend the workers or nodes to measure next."),
    "plan": ("predict", "Choose the number of workers for a deadline or a price."),
    "predict": ("predict", "Predict throughput against the number of workers."),
    "profile": ("profile", "Train a function of yours, and record it."),
    "record": ("profile", "Record a few steps of a PyTorch job, as it is."),
    "report": ("predict", "Write a prediction as a page that computes what-ifs."),
    "schedule": ("schedule", "Run jobs on a simulated cluster under policies."),
    "schedule-study": ("schedule", "Compare policies over load, with replications."),
    "serve": ("profile", "Run a TensorFlow server, to profile across machines."),
    "simulate": ("solve", "Simulate one cluster, with its timeline."),
    "solve": ("solve", "Solve a network from a JSON or .jmva file."),
}


class _Lazy(click.Group):
    """Loads only the command that is used."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"no such command {args[0]!r}{nearest(args[0], COMMANDS) or '; see queuemodel --help'}")
        name, command, rest = super().resolve_command(ctx, args)
        if name:
            module = importlib.import_module(f".{COMMANDS[name][0]}", __name__)
            command = getattr(module, name.replace("-", "_") + "_command")
        return name, command, rest


@click.group(
    cls=_Lazy,
    commands=[click.Command(name, short_help=does) for name, (_, does) in COMMANDS.items()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__)
def cli() -> None:
    """Throughput of distributed training against node count, from two nodes.

    \b
    queuemodel demo                                  try it on this machine
    queuemodel predict steps.csv --workers 8,64      from a table of step times
    queuemodel record -o trace_n2 -- torchrun --nproc-per-node 2 train.py
    queuemodel import-trace trace_n1/ trace_n2/ --batch-size 32 -o cnn.json
    queuemodel fit cnn.json                          its parameters
    queuemodel predict cnn.json --workers 1:32 --plot cnn.png
    queuemodel next-measurement cnn.json             what to measure next
    queuemodel plan cnn.json --epochs 10 --deadline 2h
    queuemodel simulate cnn.json --workers 8 --chrome-trace timeline.json
    queuemodel compare cnn.json --workers 8 --problem logistic
    queuemodel solve network.json --population 1:100
    queuemodel schedule --workload jobs.csv --nodes 64 --policy rank-priced
    """


def main(arguments: Sequence[str] | None = None, *, command: click.Command = cli) -> None:
    """Run the command line; a user's mistake is one line on standard error, never a traceback."""
    warnings.showwarning = _show_warning
    status: int | None = 0
    try:
        args = sys.argv[1:] if arguments is None else list(arguments)
        status = command.main(args=args or ["--help"], standalone_mode=False)  # that of an Exit, else None
    except click.NoSuchOption as error:
        ctx = error.ctx or click.Context(command)
        known = [name for one in ctx.command.get_params(ctx) for name in one.opts if name.startswith("--")]
        near = nearest(error.option_name, known) or f"; see {ctx.command_path} --help"
        _say(f"error: no such option {error.option_name!r}{near}")
        status = error.exit_code
    except click.ClickException as error:
        _say(f"error: {error.format_message()}")
        status = error.exit_code
    except QueueModelError as error:
        _say(f"error: {error}")
        status = 1
    except (click.Abort, KeyboardInterrupt) as interrupt:
        _say(str(interrupt) or str(interrupt.__cause__ or "") or "interrupted")
        status = 130
    except SystemExit as ended:  # click's, of 1 where the reader of our output went away, else of completion
        status = 141 if ended.code == 1 else ended.code  # type: ignore[assignment]
    except OSError as error:  # what could not be written must not be tried again when Python ends
        with contextlib.suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            status = 141
        else:
            _say(f"error: {error.filename or 'standard output'}: {error.strerror or error}")
            status = 1
    if arguments is None:  # all that is left is Python's own end, whose status a second Ctrl-C must not take
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status if isinstance(status, int) else 0)


def _say(message: str) -> None:
    with contextlib.suppress(OSError):
        print(f"queuemodel: {message}", file=sys.stderr)


def _show_warning(message: Warning | str, category: type[Warning], *args: object, **kwargs: object) -> None:
    if issubclass(category, QueueModelWarning):
        _say(f"warning: {message}")
