"""What the package promises about itself: layers, and a light import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "queuemodel"

#: Each layer may import itself and those before it.
LAYERS = [
    {"_version", "errors"},
    {"checks", "compiled", "files", "rows", "tables", "units"},
    {"drawing"},
    {"results"},
    {"network"},
    {"solvers"},
    {"training"},
    {"data"},
    {"traces", "scheduling"},
    {"prediction"},
    {"plotting", "adapters"},
    {"cli", "__main__", "__init__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports_of(path: Path) -> set[str]:
    """Parts of the package that a module imports when it is itself imported (not inside a function)."""
    found = set()
    package = path.relative_to(PACKAGE.parent).with_suffix("").parts[:-1]
    open_nodes: list[ast.AST] = [ast.parse(path.read_text())]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        open_nodes.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            names = [node.module.split(".")] if node.module else [[alias.name] for alias in node.names]
            found |= {[*base, *name][1] for name in names}
    return found - {"__version__"}


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert part in LEVEL, f"{part}: give it a place in LAYERS"
    if part != "__init__":
        later = {name for name in imports_of(path) if LEVEL[name] > LEVEL[part]}
        assert not later, f"{path.name} imports {later} from above"


def test_tensorflow_is_imported_only_by_its_adapter():
    users = {
        path.relative_to(PACKAGE).parts[:2]
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Import) and any(a.name.split(".")[0] in ("tensorflow", "keras") for a in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("tensorflow", "keras"))
    }
    assert users == {("adapters", "tensorflow")}


def test_import_is_light():
    heavy = ("tensorflow", "keras", "matplotlib", "sympy", "pandas", "numba", "tabulate", "click")
    code = f"import sys, queuemodel; print([m for m in {heavy!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
