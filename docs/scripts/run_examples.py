"""Run the examples of the pages and compare what they print with what the pages say; ``--write`` puts it there.

    python docs/scripts/run_examples.py [--write] [PAGE ...]

In ```python blocks each ``>>>`` example runs, and in ```console blocks each ``$ queuemodel`` or ``$ python`` command,
in a folder that holds the packaged examples; a page's examples share it, and their names. Commands that need TensorFlow
are only checked for their options. Numbers may differ in the last digit that rounding leaves open; those of a
simulation, whose caption or whose comment ``# simulated`` says so, by its sampling error.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import io
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

DOCS = Path(__file__).parents[1]
#: Commands that start TensorFlow, or read its traces.
LIVE = {"demo", "import-trace", "profile", "serve"}

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.(\d+)(?:e[-+]?\d+)?(?![\w.])|(?= ?%))")
#: In a table of a simulation a trailing zero is left out, so that a whole number is one, too.
ANY_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.(\d+)(?:e[-+]?\d+)?)?(?![\w.])")
#: What says that an example's numbers are a simulation's, or of draws from a posterior.
SIMULATED = re.compile(r"# simulated|trace-driven\s+simulation|fitted\s+table")
#: Largest relative difference of two simulations with one seed on two machines, of throughputs and their intervals.
SAMPLING = 0.05
FENCE = re.compile(r"```(?P<language>\w*)$")


@dataclass
class Page:
    """A page's text with its examples' outputs as they came out, and what differs from the text as it was."""

    path: Path
    text: str = ""
    failures: list[str] = field(default_factory=list)
    examples: int = 0


def run_page(path: Path) -> Page:
    """Run all examples of one page."""
    from queuemodel import copy_examples

    page = Page(path)
    lines = path.read_text().splitlines()
    names: dict[str, object] = {"__name__": "__main__"}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        copy_examples(folder)
        os.chdir(folder)
        os.environ["COLUMNS"] = "80"
        try:
            written = _run_lines(page, lines, names)
        finally:
            os.chdir(before)
    page.text = "\n".join(written) + "\n"
    return page


def _run_lines(page: Page, lines: list[str], names: dict[str, object]) -> list[str]:
    written: list[str] = []
    number = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        written.append(lines[number])
        number += 1
        if not fence or not fence["language"]:
            continue
        end = next(n for n in range(number, len(lines)) if lines[n] == "```")
        block = lines[number:end]
        if fence["language"] in ("python", "console"):
            block = _run_block(page, number + 1, block, fence["language"], names)
        written += block
        number = end
        written.append(lines[end])
        number += 1
    return written


def _run_block(page: Page, first: int, block: list[str], language: str, names: dict[str, object]) -> list[str]:
    """The block with its outputs as they came out."""
    prompt, more = (">>> ", "... ") if language == "python" else ("$ ", "> ")
    written: list[str] = []
    number = 0
    while number < len(block):
        line = block[number]
        number += 1
        written.append(line)
        if not line.startswith(prompt):
            continue
        where, source = f"{page.path.name}:{first + number - 1}", [line.removeprefix(prompt)]
        while number < len(block) and (block[number] + " ").startswith(more):
            source.append(block[number][len(more) :])
            written.append(block[number])
            number += 1
        start = number
        while number < len(block) and not block[number].startswith(prompt):
            number += 1
        expected = block[start:number]
        gap = [""] if expected and not expected[-1].strip() else []  # a blank line before the next example
        expected = expected[: len(expected) - len(gap)]
        try:
            got = _run_python(source, where, names) if language == "python" else _run_command(source)
        except Exception as error:
            page.failures.append(f"{where}: {''.join(traceback.format_exception(error))}")
            got = "\n".join(expected)
        if got is None:
            written += expected + gap
            continue
        page.examples += 1
        wanted = "\n".join(line.rstrip() for line in expected)
        got = "\n".join(line.rstrip() for line in got.rstrip().splitlines())
        if _same(wanted, got, simulated=bool(SIMULATED.search("\n".join([*source, wanted])))):
            got = wanted
        if got != wanted:
            page.failures.append(f"{where}: expected\n{wanted}\ngot\n{got}")
        written += (got.splitlines() if got else []) + gap
    return written


def _same(wanted: str, got: str, *, simulated: bool) -> bool:
    """Whether outputs agree; ``...`` stands for anything.

    The last bits of ``exp``, ``log`` and linear algebra differ between processors, which rounding may turn into the
    last digit shown. A simulation then takes another path: its numbers agree within their sampling error.
    """
    if "..." in wanted and doctest.OutputChecker().check_output(wanted, got, doctest.ELLIPSIS):
        return True
    relative, units = (SAMPLING, 2.1) if simulated else (1e-9, 0.0)
    number = ANY_NUMBER if simulated else NUMBER
    texts = [re.sub(r"[ +-]+", " ", number.sub("#", text)) for text in (wanted, got)]
    if texts[0] != texts[1]:
        return False
    for one, other in zip(number.finditer(wanted), number.finditer(got), strict=True):
        counted = one[1] is None and one.string[one.end() : one.end() + 1] != "%"  # workers, say, not per cent
        last = 0.0 if counted else units * 10.0 ** -len(one[1] or "")
        if not math.isclose(float(one[0]), float(other[0]), rel_tol=relative, abs_tol=max(last, 1e-12)):
            return False
    return True


def _run_python(source: list[str], where: str, names: dict[str, object]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(compile("\n".join(source) + "\n", f"<{where}>", "single"), names)
        except Exception as error:
            from queuemodel import QueueModelError

            if not isinstance(error, QueueModelError):
                raise
            kind = type(error)
            print(f"Traceback (most recent call last):\n  ...\n{kind.__module__}.{kind.__qualname__}: {error}")
    return out.getvalue()


def _run_command(source: list[str]) -> str | None:
    """What a command printed; None for one that is not run."""
    words = shlex.split(" ".join(line.removesuffix("\\") for line in source), comments=True)
    if words[0] == "python":
        done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout
    if words[0] == "cat":
        return "".join(Path(name).read_text() for name in words[1:])
    if words[0] != "queuemodel":
        return None
    import click

    from queuemodel.cli import cli, main

    if len(words) > 1 and words[1] in LIVE and "--help" not in words:
        parent = click.Context(cli, **cli.context_settings)
        name, command, options = cli.resolve_command(parent, words[1:])
        command.make_context(name, options, parent=parent)
        return None
    out = io.StringIO()
    status: object = 0
    program, sys.argv = sys.argv, ["queuemodel"]
    with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        warnings.simplefilter("default")
        try:
            main(words[1:])
        except SystemExit as exit:
            status = exit.code
    sys.argv = program
    if bool(status) != ("queuemodel: error:" in out.getvalue()):
        raise RuntimeError(f"exit status {status}: {out.getvalue()}")
    return re.sub(r"^Usage: .*?queuemodel ", "Usage: queuemodel ", out.getvalue())  # under pytest, click adds its name


def pages() -> list[Path]:
    """Every page of the documentation that may hold examples, and the README."""
    own = [path for path in sorted(DOCS.rglob("*.md")) if not {"_build", "generated"} & set(path.parts)]
    return [*own, DOCS.parent / "README.md"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help="put the outputs into the pages")
    arguments = parser.parse_args()
    failed = False
    for path in [page.resolve() for page in arguments.page] or pages():
        page = run_page(path)
        print(f"{path.name}: {page.examples} examples, {len(page.failures)} differ")
        for failure in page.failures:
            print(failure)
        failed |= bool(page.failures)
        if arguments.write and page.text != path.read_text():
            path.write_text(page.text)
    return int(failed and not arguments.write)


if __name__ == "__main__":
    sys.exit(main())
