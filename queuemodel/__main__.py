"""``python -m queuemodel``."""

from .cli import main

main()
