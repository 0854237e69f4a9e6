"""Write the answers, or say which differ: ``python tests/golden/answers.py [--write] [--tolerance 1e-9]``."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from questions import Question, questions

from queuemodel import QueueModelError, copy_examples, example_profile, simulate

ANSWERS = Path(__file__).parent / "answers.json"
#: Relative difference that another processor or linear algebra makes; that of printed numbers; absolute one.
RELATIVE, PRINTED, ABSOLUTE = 1e-5, 1e-3, 1e-12
#: The key of what tells processors apart.
BITS = "last bits"


@contextlib.contextmanager
def among_examples() -> Iterator[None]:
    """Within its block the working folder has the packaged examples, and a terminal has 80 columns."""
    before, columns = Path.cwd(), os.environ.get("COLUMNS")
    with tempfile.TemporaryDirectory() as folder:
        copy_examples(folder)
        os.chdir(folder)
        os.environ["COLUMNS"] = "80"
        try:
            yield
        finally:
            os.chdir(before)
            os.environ.pop("COLUMNS") if columns is None else os.environ.update(COLUMNS=columns)


def last_bits() -> str:
    """A simulation's throughput to the last bit: another processor's is another one."""
    return float(simulate(example_profile(), workers=4, steps=200).throughput).hex()


def answer(question: Question) -> Any:
    """What the package answers, or the name of the error that it refuses with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return question()
        except QueueModelError as error:
            return type(error).__name__


def differences(wanted: Any, got: Any, tolerance: float = RELATIVE, where: str = "") -> Iterator[str]:
    """Where two answers differ by more than ``tolerance``, relatively; what a command prints is rounded."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        tolerance = max(tolerance, wanted.get("tolerance", 0.0))
        for key in wanted.keys() | got.keys():
            if key != "tolerance":
                wide = max(tolerance, PRINTED) if key == "out" else tolerance
                yield from differences(wanted.get(key), got.get(key), wide, f"{where}.{key}")
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for number, pair in enumerate(zip(wanted, got, strict=True)):
            yield from differences(*pair, tolerance, f"{where}[{number}]")
    elif wanted != got:
        numbers = isinstance(wanted, float | int) and isinstance(got, float | int)
        close = numbers and math.isclose(wanted, got, rel_tol=tolerance, abs_tol=ABSOLUTE)
        if not close and not (numbers and math.isnan(wanted) and math.isnan(got)):
            yield f"{where}: {wanted!r} is now {got!r}"


def packed(answers: dict[str, Any]) -> str:
    """JSON with one line for each."""
    lines = (f"{json.dumps(key)}: {json.dumps(one, sort_keys=True)}" for key, one in sorted(answers.items()))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    """The exit status: whether anything differs, or nothing when it is written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--tolerance", type=float, default=RELATIVE)
    asked = parser.parse_args()
    wanted = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    with among_examples():
        got = {key: json.loads(json.dumps(answer(question))) for key, question in questions().items()}
    wanted.pop(BITS, None)
    found = {key: list(differences(wanted.get(key), got.get(key), asked.tolerance)) for key in sorted({*wanted, *got})}
    changed = {key: differing for key, differing in found.items() if differing}
    for key, differing in changed.items():
        print(key, *differing[:5], sep="\n    ")
    print(f"{len(got)} questions, {len(changed)} answers differ")
    if asked.write:
        ANSWERS.write_text(packed({BITS: last_bits(), **got}))
        return 0
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
