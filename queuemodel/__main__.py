"""``queuemodel`` and ``python -m queuemodel``."""

import signal


def start() -> None:
    """Load the command line and run it; until it is loaded and answers in one line, Ctrl-C ends it without a word."""
    answered = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not ignored, as in the background
    if answered:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .cli import main

    if answered:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


if __name__ == "__main__":
    start()
