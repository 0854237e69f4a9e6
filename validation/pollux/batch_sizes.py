"""The Pollux artifact's applications as jobs that may choose their batch size."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from queuemodel.base.errors import DataError
from queuemodel.scheduling import BatchSizes, TableCurve

from .artifact import Application

#: Batch sizes that are tried, per doubling.
PER_OCTAVE = 4


@lru_cache(maxsize=32)
def application_batch_sizes(
    application: Application,
    predicted: Callable[[Application, int], TableCurve] | None = None,
    *,
    profiled: bool = False,
) -> BatchSizes:
    """Batch sizes from the smallest to the largest validated; noise scales as measured in each epoch at each of them.

    Parameters
    ----------
    application : Application
    predicted : callable, optional
        ``predicted(application, batch_size)``: the curve that policies see instead.
    profiled : bool, default False
        Noise scales as measured at the smallest batch size, for all: as they are known before others are tried.
    """
    first, last = application.initial_batch, application.largest_batch
    count = max(1, round(PER_OCTAVE * math.log2(last / first))) + 1
    sizes = [int(size) for size in np.unique(np.geomspace(first, last, count).round())]
    true = {size: curve for size in sizes if (curve := _curve(application, size))}
    seen = None if predicted is None else {size: predicted(application, size) for size in true}
    scales = [noise_scales(application, first if profiled else size).tolist() for size in true]
    steps = np.diff(application.progress, prepend=0.0).tolist()
    by_epoch = [dict(zip(true, epoch, strict=True)) for epoch in zip(*scales, strict=True)]
    return BatchSizes(true, list(zip(steps, by_epoch, strict=True)), predicted=seen)


def _curve(application: Application, batch_size: int) -> TableCurve | None:
    try:
        return application.curve(batch_size)
    except DataError:  # no step time of such a batch on one GPU
        return None


def noise_scales(application: Application, total_batch: int) -> np.ndarray:
    """Gradient noise scale in each epoch of a run at a total batch size, in examples, shape (epochs,)."""
    _, _, sqr, var = application.at_batch(total_batch).T
    return np.divide(application.initial_batch * var, sqr, out=np.full(len(sqr), math.inf), where=sqr > 0)
