"""The command line: a thin skin over the API (a stand-in for the group that the main branch holds)."""

import sys

import click

from ..errors import QueueModelError
from .schedule import schedule, schedule_study


@click.group()
def cli() -> None:
    """Throughput of distributed training, and what follows from it."""


cli.add_command(schedule)
cli.add_command(schedule_study)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; a user's mistake is one line on stderr and exit status 1."""
    try:
        cli.main(args=arguments, standalone_mode=False)
    except QueueModelError as error:
        click.echo(f"queuemodel: {error}", err=True)
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("queuemodel: interrupted", err=True)
        sys.exit(130)
