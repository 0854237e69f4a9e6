"""Which files of a folder are recordings: each step once, and of one kind."""

from __future__ import annotations

import os
from pathlib import Path

from ....errors import DataError

RUN_METADATA = (".pb", ".pb.gz")
XPLANE = (".xplane.pb", ".xplane.pb.gz")


def run_metadata_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The `RunMetadata` files in a folder, in the order of their names; those of `tf.profiler` and hidden ones not."""
    paths = [p for p in Path(folder).glob("*") if p.name.endswith(RUN_METADATA) and not p.name.endswith(XPLANE)]
    return _each_once(folder, paths)


def xplane_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The files of `tf.profiler` in a folder and below it; hidden ones not."""
    return _each_once(folder, [p for p in Path(folder).rglob("*") if p.name.endswith(XPLANE)])


def _each_once(folder: str | os.PathLike[str], paths: list[Path]) -> list[Path]:
    visible = sorted(p for p in paths if not any(part.startswith(".") for part in p.relative_to(folder).parts))
    for path in visible:
        if (packed := Path(f"{path}.gz")) in visible:
            raise DataError(f"{path}: the same recording as {packed.name} beside it; remove one of them")
    return visible
