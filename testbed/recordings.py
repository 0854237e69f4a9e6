"""Recorded series: each a folder of files, kept as one compressed file of its name."""

from __future__ import annotations

import atexit
import functools
import shutil
import tarfile
import tempfile
from pathlib import Path

PACKED = ".tar.xz"


def pack(folder: Path) -> None:
    """Replace the folder of a series by its file, in which equal folders are equal."""
    whole, part = Path(f"{folder}{PACKED}"), Path(f"{folder}{PACKED}.part")
    with tarfile.open(part, "w:xz") as packed:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(str(path.relative_to(folder)))
            member.size = path.stat().st_size
            with path.open("rb") as content:
                packed.addfile(member, content)
    part.replace(whole)
    shutil.rmtree(folder)


def unpack(file: Path, place: Path) -> None:
    """Make the folder of a series of its file."""
    shutil.unpack_archive(file, place / file.name.removesuffix(PACKED), filter="data")


@functools.cache
def unpacked(place: Path) -> Path:
    """A folder with the folders of all series below a place, for as long as this process lives."""
    scratch = tempfile.mkdtemp(prefix="queuemodel-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    folder = Path(scratch, place.name)
    for file in place.rglob(f"*{PACKED}"):
        unpack(file, folder / file.parent.relative_to(place))
    return folder
