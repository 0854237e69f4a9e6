"""What the package promises about itself: layers, a light import, and extras that nothing else needs."""

import ast
import configparser
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import queuemodel
from queuemodel.base import files as units
from tests.oracles.recorded import DATA as RECORDED

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "queuemodel"
DATA = PACKAGE / "profile" / "data"

#: Each layer may import itself and those before it.
LAYERS = [
    "base", "queueing", "transport", "profile", "report", "curves", "simulator", "models", "scheduling", "sgd",
    "adapters", "cli", "__main__", "__init__",
]  # fmt: skip
LEVEL = {name: level for level, name in enumerate(LAYERS)}
MODULES = {path: path.relative_to(PACKAGE.parent).with_suffix("").parts for path in sorted(PACKAGE.rglob("*.py"))}
KNOWN = {name[:-1] if name[-1] == "__init__" else name for name in MODULES.values()}


def imports_of(path: Path, *, anywhere: bool) -> set[tuple[str, ...]]:
    """Modules of the package that one needs when it is imported, or ``anywhere``, but not those for types only."""
    found = set()
    package = MODULES[path][:-1]
    open_nodes: list[ast.AST] = [ast.parse(path.read_text())]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not anywhere:
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        open_nodes.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1] + tuple(node.module.split(".") if node.module else ())
            members = {(*base, alias.name) for alias in node.names}
            found |= {member if member in KNOWN else base for member in members}
    return found & KNOWN


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert part in LEVEL, f"{part}: give it a place in LAYERS"
    if part != "__init__":
        parts = {name[1] for name in imports_of(path, anywhere=True) if len(name) > 1}
        later = {name for name in parts if LEVEL[name] > LEVEL[part]}
        assert not later, f"{path.name} imports {later} from above"


def test_no_module_needs_itself():
    """Not inside a folder either, and not by an import inside a function; a folder's ``__init__`` only collects."""
    edges = {MODULES[path]: imports_of(path, anywhere=True) for path in MODULES if path.name != "__init__.py"}
    TopologicalSorter({name: needs & set(edges) - {name} for name, needs in edges.items()}).prepare()


@pytest.mark.parametrize(("modules", "folder"), [({"tensorflow", "keras"}, "tensorflow"), ({"torch"}, "pytorch")])
def test_frameworks_stay_in_their_adapter(modules, folder):
    users = set()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if modules & {name.split(".")[0] for name in names}:
                users.add(path.relative_to(PACKAGE).parts[:2])
    assert users == {("adapters", folder)}


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_import_is_light():
    heavy = ("tensorflow", "keras", "torch", "matplotlib", "sympy", "pandas", "tabulate", "click")
    started = "import sys, queuemodel; print('numpy' in sys.modules)"
    code = f"{started}; queuemodel.queueing.Network; print([m for m in {heavy!r} if m in sys.modules])"
    assert python(code).stdout == "False\n[]\n"


def test_package_attributes_load_on_demand():
    assert {*queuemodel.__all__, "queueing", "scheduling", "sgd"} <= set(dir(queuemodel))
    assert not {"importlib", "TYPE_CHECKING", "solve", "Network", "Parameter"} & set(dir(queuemodel))
    assert queuemodel.base.files is units
    assert queuemodel.fit is vars(queuemodel)["fit"]  # nothing is looked up twice
    with pytest.raises(AttributeError, match="module 'queuemodel' has no attribute 'slove'"):
        queuemodel.slove  # noqa: B018


def test_profile_predictions_load_no_scipy():
    """SciPy's part that it would need takes longer to load than all else."""
    data, goal = f"{DATA}/alexnet-60.json", "--epochs 1 --dataset-size 1000 --deadline 1h"
    asked = f"{data} --workers 1:2"
    commands = ["--help", f"predict {asked}", f"predict {asked} --method mva", f"plan {asked} {goal}", f"fit {data}"]
    code = (
        "import sys, contextlib; from queuemodel.cli import main\n"
        f"for command in {commands!r}:\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr): main(command.split())\n"
        "print([m for m in ('scipy', 'pandas', 'matplotlib', 'joblib') if m in sys.modules])"
    )
    done = python(code)
    assert (done.stdout, "error:" in done.stderr) == ("[]\n", False)


def test_test_file_names_are_unique():
    """Pytest imports them by it."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)


# A prediction with nothing but what every installation has; what is missing says so in one line

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


def without(hidden, words):
    return python(HIDING.format(hidden=hidden, arguments=words.split()))


def test_prediction_needs_no_extra():
    asked = f"predict {DATA}/alexnet-60.json --workers 1:8 --format csv"
    bare, whole = without(HIDDEN, asked), without([], asked)
    assert (bare.returncode, bare.stderr, bare.stdout.count("\n")) == (0, "", 9)
    assert bare.stdout == whole.stdout


def test_a_missing_extra_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    plotted = f"predict {DATA}/alexnet-60-throughputs.csv --plot x.svg"
    imported = f"import-trace {RECORDED}/alexnet-60/trace --batch-size 1 -o x.json"
    for words, package, name in ((plotted, "matplotlib", "plots"), (imported, "protobuf", "traces")):
        done = without(HIDDEN, words)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert f"needs {package}: pip install {package}, or '.[{name}]' in a checkout" in done.stderr
        assert package in EXTRAS[name]


def test_all_extra_and_page_list_extras():
    (named,) = re.findall(r"queuemodel\[(.*)\]", EXTRAS["all"])
    assert set(named.split(",")) == set(EXTRAS) - {"all", "tensorflow", "torch", "notebook", "docs", "test"}
    page = (ROOT / "docs/how-to/install.md").read_text()
    assert all(f"`{name}`" in page or f"[{name}]" in page for name in EXTRAS)
