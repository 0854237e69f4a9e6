"""Examples until the target against batch size, on MLPerf's reference convergence points.

python -m validation.convergence
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from queuemodel import fit_convergence

DATA = Path(__file__).parent / "data" / "convergence.json"

SECTION = """## Examples until the target

MLPerf's reference convergence points (`validation/data/convergence.json`), by `queuemodel.fit_convergence`, whose wide
prior is the same for all. Errors are of the mean over seeds, over batch sizes; *covered* is the share inside 90 %
intervals.
"""

Points = list[tuple[int, list[float]]]


def benchmarks() -> dict[str, Points]:
    """What was measured: batch sizes and what each seed needed."""
    told = json.loads(DATA.read_text())
    return {one["benchmark"]: [(point["batch_size"], point["values"]) for point in one["points"]] for one in told}


def errors(points: Points, known: Sequence[int], asked: Sequence[int]) -> np.ndarray:
    """Relative error and whether the interval holds what was measured, shape (asked, 2)."""
    fitted = fit_convergence([points[i] for i in known])
    size = [points[i][0] for i in asked]
    truth = np.array([np.mean(points[i][1]) for i in asked])
    lower, upper = fitted.interval(size)
    return np.column_stack([fitted.examples(size) / truth - 1, (lower <= truth) & (truth <= upper)])


def judge(points: Points) -> dict[str, np.ndarray]:
    """By question, `errors` of a benchmark."""
    every = range(len(points))
    return {
        "in sample": errors(points, every, every),
        "each from the others": np.concatenate([errors(points, [*every[:i], *every[i + 1 :]], [i]) for i in every]),
        "from the two smallest": errors(points, every[:2], every[2:]),
        "from the three smallest": errors(points, every[:3], every[3:]),
    }


def straight_line(points: Points) -> np.ndarray:
    """Relative errors of the line through the two smallest batch sizes: least squares of the law."""
    size, mean = np.array([(size, np.mean(values)) for size, values in points]).T
    return np.polyval(np.polyfit(size[:2], mean[:2], 1), size[2:]) / mean[2:] - 1


def convergence_section() -> str:
    """Markdown: how far off."""
    found = {name: judge(points) for name, points in benchmarks().items()}
    lines = ["| from | points | mean error | median | covered | by benchmark |", "|---" * 6 + "|"]
    for question in next(iter(found.values())):
        each = {name: answers[question] for name, answers in found.items() if len(answers[question])}
        off, held = np.concatenate(list(each.values())).T
        by = ", ".join(f"{name} {abs(one[:, 0]).mean():.1%}" for name, one in each.items())
        told = f"{abs(off).mean():.1%} | {np.median(abs(off)):.1%} | {held.mean():.0%} | {by}"
        lines.append(f"| {question} | {len(off)} | {told} |")
    line = np.abs(np.concatenate([straight_line(points) for points in benchmarks().values()]))
    lines.append(f"| a line through the two smallest | {len(line)} | {line.mean():.1%} | {np.median(line):.1%} | | |")
    return "\n".join([SECTION, *lines]) + "\n"


if __name__ == "__main__":
    print(convergence_section())
