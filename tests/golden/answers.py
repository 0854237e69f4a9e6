"""Write the answers, or say which differ: ``python tests/golden/answers.py [--write]``."""

from __future__ import annotations

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

from questions import NUMBER, Question, questions

from queuemodel import QueueModelError, copy_examples, example_profile, simulate

ANSWERS = Path(__file__).parent / "answers.json"
#: Relative difference of what is not simulated, on a processor with the same last bits, on others, and of what is
#: printed; absolute one.
EXACT, NEARLY, PRINTED, NOTHING = 1e-9, 1e-6, 1e-3, 1e-12
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
    """What the package answers, or why it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return question()
        except QueueModelError as error:
            return f"{type(error).__name__}: {error}"


def differences(wanted: Any, got: Any, tolerance: float = EXACT, where: str = "") -> Iterator[str]:
    """Where two answers differ by more than ``tolerance``, relatively; ends of intervals by as much of their value."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        tolerance = max(tolerance, wanted.get("tolerance", 0.0))
        for key in wanted.keys() | got.keys():
            if key != "tolerance":
                wide = max(tolerance, PRINTED) if key == "says" else tolerance
                yield from differences(wanted.get(key), got.get(key), wide, f"{where}.{key}")
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for number, pair in enumerate(zip(wanted, got, strict=True)):
            yield from differences(*pair, tolerance, f"{where}[{number}]")
    elif isinstance(wanted, float | int) and isinstance(got, float | int):
        if not (
            math.isclose(wanted, got, rel_tol=tolerance, abs_tol=NOTHING) or (math.isnan(wanted) and math.isnan(got))
        ):
            yield f"{where}: {wanted!r} is now {got!r}"
    elif isinstance(wanted, str) and isinstance(got, str):
        numbers = [[float(one) for one in NUMBER.findall(text)] for text in (wanted, got)]
        if NUMBER.sub("#", wanted) != NUMBER.sub("#", got):
            yield f"{where}:\n{wanted}\nis now\n{got}"
        else:  # printed numbers: the last digit may be rounded otherwise
            yield from differences(*numbers, max(tolerance, PRINTED), where)
    elif wanted != got:
        yield f"{where}: {wanted!r} is now {got!r}"


def packed(answers: dict[str, Any]) -> str:
    """JSON with one line for each."""
    lines = (f"{json.dumps(key)}: {json.dumps(one, sort_keys=True)}" for key, one in sorted(answers.items()))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    """The exit status: whether anything differs, or nothing when it is written."""
    wanted = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    with among_examples():
        got = {key: json.loads(json.dumps(answer(question))) for key, question in questions().items()}
    wanted.pop(BITS, None)
    changed = [key for key in wanted.keys() | got.keys() if any(differences(wanted.get(key), got.get(key)))]
    for key in sorted(changed):
        print(key, *list(differences(wanted.get(key), got.get(key)))[:5], sep="\n    ")
    print(f"{len(got)} questions, {len(changed)} answers differ")
    if "--write" in sys.argv[1:]:
        ANSWERS.write_text(packed({BITS: last_bits(), **got}))
        return 0
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
