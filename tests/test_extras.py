"""A prediction with nothing but what every installation has; what an extra is missing for says so in one line."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import queuemodel
from tests.oracles.recorded import DATA as RECORDED

ROOT, DATA = Path(__file__).parent.parent, Path(queuemodel.__file__).parent / "profile" / "data"
CONFIGURATION = configparser.ConfigParser()
CONFIGURATION.read(ROOT / "setup.cfg")
EXTRAS = CONFIGURATION["options.extras_require"]

#: Run the command line where these modules cannot be imported.
HIDING = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r} or name == "google.protobuf":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
from queuemodel.cli import main
main({arguments!r})
"""
HIDDEN = ["joblib", "matplotlib", "pandas", "sympy", "tensorflow", "torch"]


def without(hidden, *arguments):
    code = HIDING.format(hidden=hidden, arguments=[str(argument) for argument in arguments])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_prediction_needs_no_extra():
    asked = ("predict", DATA / "alexnet-60.json", "--workers", "1:8", "--format", "csv")
    bare, whole = without(HIDDEN, *asked), without([], *asked)
    assert (bare.returncode, bare.stderr) == (0, "")
    assert bare.stdout == whole.stdout
    assert bare.stdout.count("\n") == 9


def test_a_missing_extra_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    plotted = f"predict {DATA}/alexnet-60-throughputs.csv --plot x.svg"
    imported = f"import-trace {RECORDED}/alexnet-60/trace --batch-size 1 -o x.json"
    for words, package, name in ((plotted, "matplotlib", "plots"), (imported, "protobuf", "traces")):
        done = without(HIDDEN, *words.split())
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert f"needs {package}: pip install {package}, or '.[{name}]' in a checkout" in done.stderr
        assert package in EXTRAS[name]


def test_all_extra_and_page_list_extras():
    (named,) = re.findall(r"queuemodel\[(.*)\]", EXTRAS["all"])
    assert set(named.split(",")) == set(EXTRAS) - {"all", "tensorflow", "torch", "notebook", "docs", "test"}
    page = (ROOT / "docs/how-to/install.md").read_text()
    assert all(f"`{name}`" in page or f"[{name}]" in page for name in EXTRAS)
