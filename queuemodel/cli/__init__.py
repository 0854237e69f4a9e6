"""The command line: a thin skin over the API."""

import contextlib
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Sequence

import click

from .. import __version__
from ..errors import QueueModelError, QueueModelWarning

#: Command to the module that holds it, imported when the command is used: help stays instant.
COMMANDS = {
    "compare": "compare",
    "demo": "demo",
    "import-trace": "import_trace",
    "next-measurement": "next_measurement",
    "plan": "predict",
    "predict": "predict",
    "profile": "profile",
    "report": "report",
    "schedule": "schedule",
    "schedule-study": "schedule",
    "serve": "profile",
    "simulate": "simulate",
    "solve": "solve",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f".{COMMANDS[name]}", __name__)
        return getattr(module, name.replace("-", "_"))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__)
def cli() -> None:
    """Throughput of distributed training against node count, from a two-node profile.

    \b
    queuemodel demo                                          try it on this machine
    queuemodel profile cnn -o cnn.json                       profile a real parameter server and worker
    queuemodel import-trace traces/ --batch-size 32 -o p.json
    queuemodel predict cnn.json --workers 1:32 --plot cnn.png
    queuemodel next-measurement cnn.json --workers 16        which minute of training would tell most
    queuemodel plan cnn.json --epochs 10 --dataset-size 50000 --deadline 2h
    queuemodel simulate cnn.json --workers 8 --trace timeline.json
    queuemodel compare cnn.json --workers 8 --problem logistic
    queuemodel solve network.json --population 1:100
    queuemodel schedule --workload jobs.csv --nodes 64 --policy rank-priced
    """


def main(arguments: Sequence[str] | None = None, *, command: click.Command = cli) -> None:
    """Run the command line; a user's mistake is one line on standard error, never a traceback."""
    warnings.showwarning = _show_warning
    status: int | None = 0
    try:
        status = command.main(args=None if arguments is None else list(arguments), standalone_mode=False)
    except click.exceptions.Exit as request:
        status = request.exit_code
    except click.ClickException as error:
        _say(f"error: {error.format_message()}")
        status = error.exit_code
    except QueueModelError as error:
        _say(f"error: {error}")
        status = 1
    except (click.Abort, KeyboardInterrupt) as interrupt:
        _say(str(interrupt) or str(interrupt.__cause__ or "") or "interrupted")
        status = 130
    except OSError as error:  # what could not be written must not be tried again when Python ends
        with contextlib.suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            status = 141  # the reader of our output went away
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
