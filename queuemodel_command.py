"""The command ``queuemodel``: Ctrl-C ends it in one line from the start, also while the package is being imported."""

import os
import signal


def main() -> None:
    """Import the command line and run it."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # a shell's background job ignores Ctrl-C
        signal.signal(signal.SIGINT, _end)  # an exception would be lost, or shown, wherever imports call back
    from queuemodel.cli import main

    signal.signal(signal.SIGINT, usual)
    main()


def _end(*_: object) -> None:
    os.write(2, b"\nqueuemodel: interrupted\n")
    os._exit(130)
