"""Small recorded examples, for documentation, tests and first steps; README.md here says how they were taken."""

from __future__ import annotations

import os
import shutil
from importlib import resources
from pathlib import Path

from ..errors import DataError
from ..training import Profile, Throughput, read_throughputs

__all__ = ["copy_examples", "example_profile", "example_throughputs", "examples"]


def examples() -> list[str]:
    """Names of the example files."""
    files = (entry.name for entry in resources.files(__name__).iterdir())
    return sorted(name for name in files if name.endswith((".json", ".csv")))


def example_profile(name: str = "alexnet-60") -> Profile:
    """A profile of real TensorFlow with emulated accelerators and shaped links on one machine, or of PyTorch.

    Parameters
    ----------
    name : {"alexnet-60", "resnet50-60", "ddp-alexnet-40"}
        Layers' shapes, and the bandwidth in Mbit/s; "ddp" is data-parallel PyTorch.

    Raises
    ------
    DataError
        When there is no such profile.

    Examples
    --------
    >>> profile = example_profile("alexnet-60")
    >>> len(profile.steps), profile.job.tensors
    (12, 8)
    """
    return Profile.from_json(_read(f"{name}.json"), where=f"example {name}.json")


def example_throughputs(name: str = "alexnet-60") -> list[Throughput]:
    """Throughputs measured on the same cluster with up to 8 workers, or in a cloud on 1 to 8.

    Parameters
    ----------
    name : {"alexnet-60", "resnet50-60", "ddp-alexnet-40", "shakesmall-p100"}

    Examples
    --------
    >>> [point.workers for point in example_throughputs("alexnet-60")]
    [1, 2, 4, 8]
    """
    _read(f"{name}-throughputs.csv")
    with resources.as_file(resources.files(__name__) / f"{name}-throughputs.csv") as path:
        return read_throughputs(path)


def copy_examples(folder: str | os.PathLike[str] = ".") -> list[Path]:
    """Copy the example files into ``folder``, to try the command line on; existing files of these names stay.

    Returns
    -------
    list of Path
        What was copied.

    Raises
    ------
    DataError
        When the folder cannot be written.
    """
    copied = []
    for name in examples():
        target = Path(folder) / name
        if target.exists():
            continue
        try:
            with resources.as_file(resources.files(__name__) / name) as source:
                shutil.copyfile(source, target)
        except OSError as error:
            raise DataError(f"{target}: cannot be written: {error.strerror or error}") from None
        copied.append(target)
    return copied


def _read(name: str) -> bytes:
    if name not in examples():
        raise DataError(f"example {name!r} is not there; the examples are {', '.join(examples())}")
    return (resources.files(__name__) / name).read_bytes()
