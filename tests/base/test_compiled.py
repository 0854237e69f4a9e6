"""Compiled loops: the same answers with a cache, without one, with a damaged one, and after a neighbour's change."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LOOP = """
from loops.constants import FACTOR
from queuemodel.base.compiled import compiled

@compiled()
def scaled(x):
    return FACTOR * x
"""


@pytest.fixture
def loop(tmp_path):
    """Runs a loop of a package of its own: what it gives, and how often the cache served it."""
    folder = tmp_path / "loops"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "loop.py").write_text(LOOP)

    def run(factor: int, home: Path = tmp_path) -> list[int]:
        (folder / "constants.py").write_text(f"FACTOR = {factor}\n")
        places = {"HOME": home, "XDG_CACHE_HOME": home, "NUMBA_CACHE_DIR": home / "cache"}
        paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
        environment = os.environ | {name: str(place) for name, place in places.items()}
        environment |= {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        code = "from loops.loop import scaled; print(scaled(3), len(scaled.stats.cache_hits))"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
        return [int(number) for number in done.stdout.split()]

    return run


def test_a_cache_serves_until_a_neighbour_changes_and_is_compiled_over_when_damaged(loop, tmp_path):
    assert loop(2) == [6, 0]
    assert loop(2) == [6, 1]
    assert loop(5) == [15, 0]
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert files
    for path in files:
        path.write_bytes(path.read_bytes()[:20])
    assert loop(5)[0] == 15


@pytest.mark.parametrize("full", ["/dev/null/nowhere", "/proc"])
def test_without_a_place_to_write_it_is_compiled_anew(loop, tmp_path, full):
    (tmp_path / "loops" / "__pycache__").touch()  # a file: no folder can be made beside the sources, even by root
    assert loop(2, Path(full)) == [6, 0]
    assert loop(2, Path(full)) == [6, 0]
