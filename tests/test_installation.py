"""What a user gets: a wheel, and one built from the sdist, in new environments outside the checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent


def python(place, *arguments, **settings):
    executable = str(place / "venv" / "bin" / "python") if place else sys.executable
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    asked = {"capture_output": True, "text": True, "timeout": 900, "check": False, "env": kept, "cwd": place}
    done = subprocess.run([executable, *map(str, arguments)], **asked | settings)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The repository's files, without anything that was compiled or installed there."""
    place = tmp_path_factory.mktemp("sources") / "queuemodel"
    left_out = shutil.ignore_patterns(".*", "*.so", "__pycache__", "build", "dist", "*.egg-info", "demo", "_build")
    shutil.copytree(ROOT, place, ignore=left_out)
    return place


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def installed(request, sources, tmp_path_factory):
    """A new environment with the package."""
    place = tmp_path_factory.mktemp(request.param)
    python(None, "-m", "venv", place / "venv", cwd=place)
    origin = sources
    if request.param == "sdist":
        python(place, "-m", "pip", "install", "--quiet", "build")
        python(place, "-m", "build", "--sdist", "--outdir", place, sources)
        (origin,) = place.glob("*.tar.gz")
    python(place, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", place, origin)
    python(place, "-m", "pip", "install", "--quiet", *place.glob("queuemodel-*.whl"))
    return place


def test_compiled_wheel_predicts_in_seconds(installed, sources):
    loops = [path.relative_to(sources).with_suffix("") for path in sources.glob("queuemodel/**/*.pyx")]
    imports = "; ".join(f"import {'.'.join(loop.parts)}" for loop in loops)
    assert len(loops) >= 5
    where = python(installed, "-c", f"{imports}; print(queuemodel.__file__)")
    assert Path(where.strip()).is_relative_to(installed / "venv")
    python(installed, sources / "benchmarks" / "startup.py", "--times", "3", "--most", "5")
