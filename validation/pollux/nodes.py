"""Full nodes of 1, 2 and 4 GPUs in the Pollux artifact's traces: from 1 and 2 to 6 to 16, from throughputs alone.

python -m validation.pollux.nodes
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from queuemodel import RoundModel, Throughput
from queuemodel.training.prior import RoundPrior, round_prior

from ..prior import NO_JOB
from .placements import applications


def jobs(gpus: int) -> Iterator[dict[int, float]]:
    """Seconds of a step by number of nodes of so many GPUs, for each application and batch size."""
    for points in applications().values():
        times: dict[int, dict[int, float]] = defaultdict(dict)
        for point in points:
            if point.gpus_per_node == gpus and point.gpus == gpus * point.nodes:
                times[point.batch_size][point.nodes] = point.step_time
        yield from (own for own in times.values() if {1, 2} < set(own))


def errors(gpus: int, prior: RoundPrior | None, *, told: bool = False) -> np.ndarray:
    """Relative errors of throughput on 6 nodes and more: learnt, told of the GPUs or not; without prior a ring's."""
    found = []
    for T in jobs(gpus):
        ahead = sorted(n for n in T if n >= 6)
        if prior is None:
            predicted = [gpus * n / (T[1] + max(T[2] - T[1], 0.0) * 2 * (n - 1) / n) for n in ahead]
        else:
            points = tuple(Throughput(workers=gpus * n, steps_per_second=gpus * n / T[n]) for n in (1, 2))
            model = RoundModel(points, "all-reduce", NO_JOB, prior, gpus if told else None)
            predicted = model.throughput([gpus * n for n in ahead]).steps_per_second.tolist() if ahead else []
        found += [x * T[n] / (gpus * n) - 1 for x, n in zip(predicted, ahead, strict=True)]
    return np.array(found)


def main() -> None:
    """Print the mean errors of each form."""
    learnt = round_prior("all-reduce")
    for gpus in (1, 2, 4):
        forms = {
            "learnt": errors(gpus, learnt),
            "learnt, told how many": errors(gpus, learnt, told=True),
            "learnt, costs of any size for every law": errors(gpus, replace(learnt, growing_cost=None)),
            "ring, bandwidth": errors(gpus, None),
        }
        for name, error in forms.items():
            off = np.abs(error)
            print(
                f"{gpus} GPU(s) per node, {name}: {off.mean():.1%}, bias {error.mean():+.1%}, "
                f"95th percentile {np.quantile(off, 0.95):.1%}, {len(off)} measurements"
            )


if __name__ == "__main__":
    main()
