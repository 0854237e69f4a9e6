"""The recorded runs of ``tests/data``, unpacked."""

from pathlib import Path

from testbed.recordings import unpacked

DATA = unpacked(Path(__file__).parents[1] / "data")
