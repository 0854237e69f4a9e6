"""Mutation testing on samples: ``python -m verification.mutants queueing`` (needs ``pip install cosmic-ray``).

Each mutant is one small change to the code (an operator, a number, a condition, as cosmic-ray makes them), tried in a
copy of the repository against the tests of its part. A mutant that no test notices is printed as a diff: either the
change has no effect on any answer, or a test is missing.
"""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from cosmic_ray.ast import get_ast_from_path
from cosmic_ray.mutating import apply_mutation
from cosmic_ray.plugins import get_operator, operator_names
from tqdm import tqdm

ROOT = Path(__file__).parent.parent

#: Which tests judge which folder, or module, of the package; tests of documents do not count.
JUDGES = {
    "queueing": ["tests/queueing", "tests/test_plotting.py"],
    "transport": ["tests/transport", "tests/simulator/test_transport.py"],
    "profile": ["tests/profile", "tests/models", "tests/test_prediction.py"],
    "curves": ["tests/curves", "tests/models", "tests/test_plotting.py"],
    "simulator": ["tests/simulator", "tests/models"],
    "models": ["tests/models", "tests/simulator", "tests/test_prediction.py"],
    "scheduling": ["tests/scheduling"],
    "sgd": ["tests/sgd"],
}
COPIED = (
    "queuemodel", "tests", "testbed", "validation", "verification", "docs", "pyproject.toml", "setup.cfg", "README.md",
)  # fmt: skip

#: The changes tried: those that the code survives running, so that a test has to look at the answer.
ARITHMETIC = "(Add|Sub|Mul|Div)"
TRIED = re.compile(
    rf"core/(ReplaceBinaryOperator_{ARITHMETIC}_{ARITHMETIC}|NumberReplacer|AddNot|ReplaceTrueWithFalse"
    "|ReplaceFalseWithTrue|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceUnaryOperator_USub_UAdd"
    "|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Lt_Gt|Gt_Lt|LtE_GtE|GtE_LtE))"
)


@click.command()
@click.argument("part", type=click.Choice(sorted(JUDGES)))
@click.option("--sample", type=click.IntRange(1), default=40, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--limit", type=click.IntRange(1), default=600, show_default=True, help="Seconds for one mutant's tests.")
@click.option("--files", default="*.py", show_default=True, help="Pattern of the mutated files' names.")
def main(part: str, sample: int, seed: int, limit: int, files: str) -> None:
    """Count how many of a sample of mutants of one PART of the package its tests notice."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
        began = time.monotonic()
        if not passes(copy, JUDGES[part], 10 * limit):
            raise click.ClickException("the tests fail without any mutant")
        click.echo(f"{part}: tests pass in {time.monotonic() - began:.0f} s")
        folder = copy / "queuemodel" / part
        every = mutants(sorted(folder.rglob(files)) if folder.is_dir() else [folder.with_suffix(".py")])
        drawn = random.Random(seed).sample(every, len(every))
        killed, survivors = 0, []
        with tqdm(total=sample, desc=part, disable=not sys.stderr.isatty()) as bar:
            for path, operator, occurrence in drawn:
                if killed + len(survivors) == sample:
                    break
                before = path.read_text()
                apply_mutation(path, get_operator(operator)(), occurrence)
                try:
                    if not is_another(path.read_text(), before):
                        continue
                    if passes(copy, JUDGES[part], limit):
                        survivors.append(difference(path, before, copy))
                        click.echo(survivors[-1])
                    else:
                        killed += 1
                    bar.update()
                finally:
                    path.write_text(before)
    total = killed + len(survivors)
    click.echo(f"{part}: {killed} of {total} mutants noticed ({killed / total:.0%}), {len(every)} possible")


def mutants(paths: list[Path]) -> list[tuple[Path, str, int]]:
    """Every mutation of the files: path, operator, occurrence."""
    found = []
    for path in paths:
        tree = get_ast_from_path(path)
        for name in operator_names():
            if not TRIED.fullmatch(name):
                continue
            operator, nodes, places = get_operator(name)(), [tree], 0
            while nodes:
                node = nodes.pop()
                places += sum(1 for _ in operator.mutation_positions(node))
                nodes += getattr(node, "children", [])
            found += [(path, name, occurrence) for occurrence in range(places)]
    return found


def is_another(source: str, before: str) -> bool:
    """Whether the change is Python, and more than a text or an annotation."""
    try:
        return meaning(source) != meaning(before)
    except SyntaxError:
        return False


def meaning(source: str) -> str:
    """The code without annotations, documentation and texts, which change no answer."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if getattr(node, name, None) is not None:
                setattr(node, name, ast.Constant(value=None))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = [ast.Pass()]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
        if isinstance(node, ast.FormattedValue):
            node.format_spec = None
    return ast.dump(tree)


def passes(copy: Path, tests: list[str], limit: float) -> bool:
    """Whether the tests pass in time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not live", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(copy), "HYPOTHESIS_STORAGE_DIRECTORY": str(copy / ".hypothesis")}
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def difference(path: Path, before: str, copy: Path) -> str:
    """The lines that differ, with where they are."""
    old, new = before.splitlines(), path.read_text().splitlines()
    changed = [i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]]
    lines = [f"  - {old[i].strip()}\n  + {new[i].strip()}" for i in changed[:3]]
    return f"{path.relative_to(copy)}:{changed[0] + 1 if changed else '?'}\n" + "\n".join(lines)


if __name__ == "__main__":
    main()
