"""Curves predicted from profiles of one and of two GPUs, to schedule without having measured the rest.

What is used: step times on one GPU, on two GPUs of one machine and on two machines with one GPU each, at the local
batch sizes that were profiled. Computation is read from the first. The time on the network is taken to overlap with
it as a p-norm (Qiao et al., OSDI 2021) and to grow with the GPUs as a ring all-reduce moves data, by 2 (n - 1) / n
(Patarasuk and Yuan, 2009); its length on two GPUs and the overlap are fitted. Everything beyond two GPUs is
extrapolation.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from queuemodel.base.errors import DataError
from queuemodel.scheduling import TableCurve

from .artifact import GPUS_PER_MACHINE, MOST_GPUS, Application

_OVERLAPS = np.concatenate([np.linspace(1, 3, 17), [4, 5, 7, 10]])


def predicted_curve(application: Application, batch_size: int) -> TableCurve:
    """Updates per second against GPUs as predicted from one and two GPUs; see the module."""
    points = []
    for gpus in range(1, min(application.most_gpus(batch_size), MOST_GPUS) + 1):
        batch = application.cut(batch_size, gpus)
        if batch.local < application.smallest_local:
            break
        alone = _profile(application, (1,))
        compute = float(np.interp(batch.local, alone[:, 0], alone[:, 1]))
        network, overlap = _network(application, (1, 1) if gpus > GPUS_PER_MACHINE else (2,))
        network *= 2 * (gpus - 1) / gpus
        step = (compute**overlap + network**overlap) ** (1 / overlap) if gpus > 1 else compute
        points.append((gpus, 1 / (step + batch.passes * compute)))
    return TableCurve(points)


def _profile(application: Application, placement: tuple[int, ...]) -> np.ndarray:
    rows = application.placements.get(placement)
    if rows is None:
        shown = "".join(map(str, placement))
        raise DataError(
            f"application {application.name!r}: placements.csv has no rows of placement {shown!r} to profile"
        )
    return rows


@cache
def _network(application: Application, placement: tuple[int, ...]) -> tuple[float, float]:
    """Seconds on the network between two GPUs and the exponent of the overlap: least squares of logarithms."""
    alone, pair = _profile(application, (1,)), _profile(application, placement)
    local = pair[pair[:, 0] <= alone[-1, 0], 0]
    compute = np.interp(local, alone[:, 0], alone[:, 1])
    step = pair[: len(local), 1]
    lengths = np.geomspace(1e-4, 1.5, 400) * step.max()
    norm = _OVERLAPS[:, None, None]
    error = np.log((compute**norm + lengths[:, None] ** norm) ** (1 / norm) / step)
    best = np.unravel_index(np.argmin((error**2).mean(axis=-1)), (len(_OVERLAPS), len(lengths)))
    return float(lengths[best[1]]), float(_OVERLAPS[best[0]])
