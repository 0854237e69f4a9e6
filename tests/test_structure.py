"""What the package promises about itself: layers, and a light import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import queuemodel
from queuemodel.base import files as units

PACKAGE = Path(__file__).parent.parent / "queuemodel"

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


def circles(edges: dict[tuple[str, ...], set[tuple[str, ...]]]) -> list[list[str]]:
    """Groups of modules that need each other, by repeatedly taking away those that need none or are needed by none."""
    left = {name: set(needs) & set(edges) - {name} for name, needs in edges.items()}
    while True:
        needed = set().union(*left.values())
        gone = {name for name, needs in left.items() if not needs or name not in needed}
        if not gone:
            return [sorted(".".join(name) for name in left)] if left else []
        left = {name: needs - gone for name, needs in left.items() if name not in gone}


def test_no_module_needs_itself():
    """Not inside a folder either, and not by an import inside a function; a folder's ``__init__`` only collects."""
    edges = {MODULES[path]: imports_of(path, anywhere=True) for path in MODULES if path.name != "__init__.py"}
    assert circles(edges) == []
    assert circles({("a",): {("b",)}, ("b",): {("c",)}, ("c",): {("a",)}, ("d",): {("a",)}}) == [["a", "b", "c"]]


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


def test_import_is_light():
    heavy = ("tensorflow", "keras", "torch", "matplotlib", "sympy", "pandas", "tabulate", "click")
    started = "import sys, queuemodel; print('numpy' in sys.modules)"
    code = f"{started}; queuemodel.queueing.Network; print([m for m in {heavy!r} if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded == "False\n[]\n"


def test_package_attributes_load_on_demand():
    assert set(queuemodel.__all__) <= set(dir(queuemodel))
    assert not {"importlib", "TYPE_CHECKING"} & set(dir(queuemodel))
    assert queuemodel.base.files is units
    assert queuemodel.fit is vars(queuemodel)["fit"]  # nothing is looked up twice
    assert {"queueing", "scheduling", "sgd"} <= set(dir(queuemodel))
    assert not {"solve", "Network", "Parameter"} & set(dir(queuemodel))  # nor is everything in one place
    with pytest.raises(AttributeError, match="module 'queuemodel' has no attribute 'slove'"):
        queuemodel.slove  # noqa: B018


def test_profile_predictions_load_no_scipy():
    """SciPy's part that it would need takes longer to load than all else."""
    profile = str(PACKAGE / "profile" / "data" / "alexnet-60.json")
    goal = ["--epochs", "1", "--dataset-size", "1000", "--deadline", "1h"]
    asked = ["--workers", "1:2"]
    commands = [["--help"], ["predict", profile, *asked], ["predict", profile, *asked, "--method", "mva"],
                ["plan", profile, *asked, *goal], ["fit", profile]]  # fmt: skip
    code = (
        "import sys, contextlib; from queuemodel.cli import main\n"
        f"for command in {commands!r}:\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr): main(command)\n"
        "print([m for m in ('scipy', 'pandas', 'matplotlib', 'joblib') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
    assert "error:" not in result.stderr


def test_test_file_names_are_unique():
    """Pytest imports them by it."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)
