"""The one way to run many independent tasks: joblib, on whatever engine it is told to use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .errors import ModelError
from .extras import extra


def run_tasks(
    tasks: Sequence[Callable[[], Any]], *, jobs: int, backend: str | None = None, what: str
) -> Iterator[tuple[int, Any]]:
    """Each task's number and result, as they end; all at the end from engines that cannot do otherwise (Ray).

    Parameters
    ----------
    tasks : sequence of function
        That can be pickled.
    jobs : int
        As joblib's ``n_jobs``; -1: all cores.
    backend : str, optional
        joblib's: ``"loky"``, ``"threading"``, ``"dask"``, ``"ray"``, ...; that of the surrounding
        ``joblib.parallel_config`` unless given.
    what : str
        Is run; begins the message when it cannot be.

    Raises
    ------
    ModelError
        For a backend that joblib does not know or that is not there.
    MissingDependencyError
        Without joblib.
    """
    joblib = extra("joblib", "parallel", what=what)
    try:
        if backend == "ray":
            from ray.util.joblib import register_ray

            register_ray()
        with joblib.parallel_config(backend=backend) if backend else contextlib.nullcontext():
            try:
                parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
            except ValueError:
                parallel = joblib.Parallel(n_jobs=jobs)
    except (ValueError, ImportError) as error:
        raise ModelError(f"{what}: backend {backend!r} cannot be used: {' '.join(str(error).split())}") from None
    yield from parallel(joblib.delayed(_numbered)(number, task) for number, task in enumerate(tasks))


def _numbered(number: int, task: Callable[[], Any]) -> tuple[int, Any]:
    return number, task()
