"""What two ranks leave open of links under BBR: the bandwidth that explains more ranks, over theirs.

python -m validation.bbr_bandwidth

prints it for each series of PyTorch over gloo, and the error that the table of the models has for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import stdtrit

from queuemodel.base.estimates import normal_quantile
from queuemodel.models import fit
from testbed.recordings import unpacked

from .data_parallel import OURS, of_two, read_ranks
from .training_runs import SERIES

#: Logarithms of the factors on the bandwidth that are tried.
TRIED = np.linspace(-0.25, 0.25, 51)


def factors() -> dict[str, np.ndarray]:
    """By series the logarithms of those factors that explain each number of ranks beyond two."""
    found = {}
    for folder in [*sorted(unpacked(OURS).iterdir()), *sorted(unpacked(SERIES).iterdir())]:
        job = json.loads((folder / "job.json").read_text())
        if job["tcp"] != "bbr" or job["framework"].startswith("tensorflow"):
            continue
        model = fit(of_two(read_ranks(folder)))
        rows = [row for row in json.loads((folder / "measured.json").read_text()) if row["workers"] > 2]
        ranks = [row["workers"] for row in rows]
        measured = np.log([row["workers"] * row["group_steps_per_s"] for row in rows])
        curves = [
            replace(model, fitted=replace(model.fitted, bandwidth=model.fitted.bandwidth * np.exp(factor)))
            for factor in TRIED
        ]
        logs = np.log([curve.throughput(ranks).steps_per_second for curve in curves])
        found[folder.name] = np.array([np.interp(x, own, TRIED) for x, own in zip(measured, logs.T, strict=True)])
    return found


def error(series: Sequence[np.ndarray]) -> float:
    """Standard error for another series, so that 90 % intervals are those of Student's t for so few."""
    n = len(series)
    spread = np.sqrt(np.mean([np.mean(own) ** 2 for own in series]))
    return float(spread * stdtrit(n, 0.95) * np.sqrt(1 + 1 / n) / normal_quantile(0.9))


if __name__ == "__main__":
    found = factors()
    for name, own in found.items():
        others = error([other for key, other in found.items() if key != name])
        print(f"{name:28} {np.round(own, 3)}, with the error of the others {others:.3f}")
    print(f"error of the logarithm of the bandwidth: {error(list(found.values())):.3f}")
