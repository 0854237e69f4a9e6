"""Small recorded examples, for documentation, tests and first steps; data/README.md gives their recording."""

from __future__ import annotations

import os
import shutil
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from ..base.checks import nearest
from ..base.errors import DataError
from .measurements import Measurement, read_measurements
from .profile import Profile

FOLDER = resources.files(__package__) / "data"


def example_files() -> list[str]:
    """Names of the example files."""
    files = (entry.name for entry in FOLDER.iterdir())
    return sorted(name for name in files if name.endswith((".json", ".csv")))


def example_profile(name: str = "alexnet-60") -> Profile:
    """A profile of TensorFlow with emulated accelerators and shaped links on one machine, or of PyTorch.

    Names are the layers' shapes and the bandwidth in Mbit/s: "alexnet-60" and "resnet50-60" on a parameter server,
    "ddp-alexnet-40" of data-parallel ranks.

    Examples
    --------
    >>> example_profile("alexnet-60").job.tensors
    8
    """
    return Profile.from_json(_file(f"{name}.json").read_bytes(), where=f"example {name}.json")


def example_throughputs(name: str = "alexnet-60") -> list[Measurement]:
    """Throughputs measured on the same cluster with up to 8 workers, or in a cloud ("shakesmall-p100") on 1 to 8.

    Examples
    --------
    >>> [point.workers for point in example_throughputs("alexnet-60")]
    [1, 2, 4, 8]
    """
    with resources.as_file(_file(f"{name}-throughputs.csv")) as path:
        return [*read_measurements(path)]


def copy_examples(folder: str | os.PathLike[str] = ".") -> list[Path]:
    """Copy the example files into ``folder``, made if absent, and list the copies; files of these names stay."""
    copied = []
    for target in (Path(folder, name) for name in example_files()):
        if target.exists():
            continue
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with resources.as_file(_file(target.name)) as source:
                shutil.copyfile(source, target)
        except OSError as error:
            raise DataError(f"{target}: cannot be written: {error.strerror or error}") from None
        copied.append(target)
    return copied


def _file(name: str) -> Traversable:
    if name not in example_files():
        end = "-throughputs.csv" if name.endswith("-throughputs.csv") else ".json"
        known = [file.removesuffix(end) for file in example_files() if file.endswith(end)]
        asked = name.removesuffix(end)
        raise DataError(f"example {asked!r} must be one of {', '.join(known)}{nearest(asked, known)}")
    return FOLDER / name
