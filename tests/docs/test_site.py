"""The documentation builds without a warning, says everything that it must, and shows pictures that a script made."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import queuemodel as qm
from queuemodel.cli import COMMANDS

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path):
    """In a plain theme: the site's own spends two thirds of the time on the menus of 400 pages."""
    for package in ("sphinx", "furo"):
        pytest.importorskip(package)
    site = tmp_path / "site"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-D", "html_theme=basic", "-b", "html"]
    settings = ["-d", str(tmp_path / "doctrees"), str(DOCS), str(site)]
    done = subprocess.run([*command, *settings], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert "Predict throughput against the number of workers" in (site / "reference/command-line.html").read_text()


def kinds_of(info):
    """The types of a JSON's objects, that of a file and those in it."""
    found = {info.cls} if isinstance(info, msgspec.inspect.StructType) else set()
    inside = [field.type for field in info.fields] if found else [getattr(info, "item_type", None)]
    inside += getattr(info, "types", ())
    return found.union(*map(kinds_of, filter(None, inside)))


KINDS = sorted(kinds_of(msgspec.inspect.type_info(qm.Profile)), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", KINDS)
def test_profile_fields_are_documented(kind):
    text = (DOCS / "reference" / "profile-json.md").read_text()
    documented = set(re.findall(r"`(\w+)`", "\n".join(row for row in text.splitlines() if row[:1] == "|")))
    assert {field.name for field in msgspec.structs.fields(kind)} <= documented
    assert len(KINDS) >= 8


def test_reference_lists_names_and_commands():
    assert set(qm.__all__) - {"__version__"} <= set((DOCS / "reference" / "api.rst").read_text().split())
    text = (DOCS / "reference" / "command-line.md").read_text()
    assert {name for name in COMMANDS if f"| `{name}` |" not in text} == set()


def test_pictures_come_from_the_script():
    """Those of validation.md come with their measurements; no page names a private folder."""
    figures = (DOCS / "scripts" / "figures.py").read_text()
    for page in [*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "queuemodel" / "profile" / "data").glob("*.md")]:
        assert not re.search(r"(?<![\w.])/(work|home|root|Users)/", page.read_text()), page
        for target in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text() if "_build" not in page.parts else ""):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
            if Path(target).parent.name == "images" and page.name != "validation.md":
                assert f'"{Path(target).stem}"' in figures, f"{page.name}: {target} is not made by docs/scripts"
