"""Nodes of one GPU each in the Pollux artifact's traces: from 1 and 2 to 6, 8, 12 and 16, from throughputs alone.

python -m validation.pollux.nodes FOLDER     (the folder that holds bert/, cifar10/, ...)
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from queuemodel import RoundModel, Throughput
from queuemodel.training.prior import RoundPrior, round_prior

from ..prior import NO_JOB
from .placements import asked, predicted


def jobs(folder: Path) -> Iterator[dict[int, float]]:
    """Seconds of a step by number of nodes, for each application and batch size."""
    for application in sorted(path for path in folder.iterdir() if path.is_dir()):
        times: dict[str, dict[int, float]] = defaultdict(dict)
        with (application / "placements.csv").open() as placements, (application / "scalability.csv").open() as many:
            for row in csv.DictReader(placements):
                if row["placement"] in ("1", "11"):
                    times[row["local_bsz"]][len(row["placement"])] = float(row["step_time"])
            for row in csv.DictReader(many):
                if row["num_nodes"] == row["num_replicas"]:
                    times[row["local_bsz"]][int(row["num_nodes"])] = float(row["step_time"])
        yield from (own for own in times.values() if {1, 2} < set(own))


def errors(folder: Path, prior: RoundPrior | None) -> np.ndarray:
    """Relative errors of throughput on 6 nodes and more: learnt, or by the ring's bandwidth form."""
    found = []
    for T in jobs(folder):
        ahead = sorted(n for n in T if n >= 6)
        if prior is None:
            predicted = [n / (T[1] + max(T[2] - T[1], 0.0) * 2 * (n - 1) / n) for n in ahead]
        else:
            points = tuple(Throughput(workers=n, steps_per_second=n / T[n]) for n in (1, 2))
            predicted = RoundModel(points, "all-reduce", NO_JOB, prior).throughput(ahead).steps_per_second.tolist()
        found += [x * T[n] / n - 1 for x, n in zip(predicted, ahead, strict=True)]
    return np.array(found)


def main() -> None:
    """Print the mean errors of each form."""
    folder, learnt = Path(sys.argv[1]), round_prior("all-reduce")
    forms = {"learnt": learnt, "learnt, costs of any size for every law": replace(learnt, growing_cost=None)}
    for name, prior in {**forms, "ring, bandwidth": None}.items():
        error = np.abs(errors(folder, prior))
        _print(name, error)
    models, far = asked("one GPU per node")
    joint = [predicted(model, far[key]) for key, model in models.items()]
    _print("all batch sizes of an application together", np.abs(np.concatenate(joint)))


def _print(name: str, error: np.ndarray) -> None:
    print(f"{name}: {error.mean():.1%}, 95th percentile {np.quantile(error, 0.95):.1%}, {len(error)} measurements")


if __name__ == "__main__":
    main()
