"""Examples until the target against batch size, on MLPerf's reference convergence points, leaving out whole benchmarks.

python -m validation.convergence [--learn]

``--learn`` writes queuemodel/convergence/convergence_prior.json, from all of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import queuemodel.convergence
from queuemodel import fit_convergence
from queuemodel.convergence.critical_batch import LOG_RATIOS, CriticalBatch
from queuemodel.convergence.prior import ConvergencePrior
from queuemodel.files import write_atomically

DATA = Path(__file__).parent / "data" / "convergence.json"
FILE = Path(queuemodel.convergence.__file__).with_name("convergence_prior.json")

#: Before anything is learnt, and how many benchmarks that is worth: a critical batch of ten smallest ones, and a
#: factor of four and a half either way.
START = ConvergencePrior(float(np.log(10.0)), 1.5, {0.02: 0.25, 0.05: 0.25, 0.1: 0.25, 0.2: 0.25})
PSEUDO_JOBS = 2.0

ABOUT = (
    "Prior of fit_convergence (queuemodel.convergence.prior says what the names mean), learnt by `python -m "
    "validation.convergence --learn` from the benchmarks below: MLPerf's reference convergence points "
    "(mlcommons/logging, Apache-2.0)."
)

SECTION = """## Examples until the target, leaving out each benchmark

MLPerf's reference convergence points (`validation/data/convergence.json`), by `queuemodel.fit_convergence` with a
prior of the seven other benchmarks. Errors are of the mean over seeds, over batch sizes; *covered* is the share
inside 90 % intervals. In sample the fit follows what was measured, deviations from the law included.
"""

Points = list[tuple[int, list[float]]]


def benchmarks() -> dict[str, Points]:
    """What was measured: batch sizes and what each seed needed."""
    told = json.loads(DATA.read_text())
    return {one["benchmark"]: [(point["batch_size"], point["values"]) for point in one["points"]] for one in told}


def learn(jobs: Sequence[Points]) -> ConvergencePrior:
    """The prior by expectation maximization around `START` (maximum a posteriori)."""
    tables = [np.logaddexp.reduce(_posterior(points).log_evidence(), axis=-1) for points in jobs]
    m, s, shares = START.centre, START.spread, np.array(list(START.deviations.values()))
    first = shares
    for _ in range(100):
        chances = []
        for table in tables:
            log_chance = table + np.log(shares) - 0.5 * ((LOG_RATIOS - m) / s)[:, None] ** 2
            chance = np.exp(log_chance - log_chance.max())
            chances.append(chance / chance.sum())
        ratio, count = sum(c.sum(axis=1) for c in chances), len(chances) + PSEUDO_JOBS
        m = float((ratio @ LOG_RATIOS + PSEUDO_JOBS * START.centre) / count)
        before = START.spread**2 + (START.centre - m) ** 2
        s = float(np.sqrt((ratio @ (LOG_RATIOS - m) ** 2 + PSEUDO_JOBS * before) / count))
        shares = (sum(c.sum(axis=0) for c in chances) + PSEUDO_JOBS * first) / count
    deviations = dict(zip(START.deviations, shares.round(4).tolist(), strict=True))
    return ConvergencePrior(round(m, 3), round(s, 3), deviations)


def _posterior(points: Points) -> CriticalBatch:
    return fit_convergence(points, prior=START)._posterior


def errors(points: Points, known: Sequence[int], asked: Sequence[int], prior: ConvergencePrior) -> np.ndarray:
    """Relative error and whether the interval holds what was measured, shape (asked, 2)."""
    fitted = fit_convergence([points[i] for i in known], prior=prior)
    found = []
    for i in asked:
        size, truth = points[i][0], float(np.mean(points[i][1]))
        lower, upper = fitted.interval(size)
        found.append((fitted.examples(size) / truth - 1, lower <= truth <= upper))
    return np.array(found, dtype=float).reshape(-1, 2)


def judge(jobs: Mapping[str, Points]) -> dict[str, dict[str, np.ndarray]]:
    """By benchmark and question, `errors` with a prior of the other benchmarks."""
    found = {}
    for name, points in jobs.items():
        prior = learn([other for own, other in jobs.items() if own != name])
        every = range(len(points))
        apart = [errors(points, [*every[:i], *every[i + 1 :]], [i], prior) for i in every]
        found[name] = {
            "in sample": errors(points, every, every, prior),
            "each from the others": np.concatenate(apart),
            "from the two smallest": errors(points, every[:2], every[2:], prior),
            "from the three smallest": errors(points, every[:3], every[3:], prior),
        }
    return found


def straight_line(points: Points) -> np.ndarray:
    """Relative errors of the line through the two smallest batch sizes: least squares of the law."""
    size, mean = np.array([(size, np.mean(values)) for size, values in points]).T
    slope = (mean[1] - mean[0]) / (size[1] - size[0])
    return np.asarray((mean[0] + slope * (size[2:] - size[0])) / mean[2:] - 1)


def convergence_section() -> str:
    """Markdown: how far off with a prior of the other benchmarks."""
    found = judge(benchmarks())
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


def main() -> int:
    """Print how far off, or write the prior."""
    jobs = benchmarks()
    if sys.argv[1:] == ["--learn"]:
        prior = learn(list(jobs.values()))
        told = {"about": ABOUT, "benchmarks": sorted(jobs), "centre": prior.centre, "spread": prior.spread,
                "deviations": prior.deviations}  # fmt: skip
        write_atomically(FILE, json.dumps(told, indent=1) + "\n")
        print(f"wrote {FILE.name}")
        return 0
    print(convergence_section())
    return 0


if __name__ == "__main__":
    sys.exit(main())
