"""The one way to run many independent tasks: joblib, on whatever engine it is told to use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any

from .checks import nearest, one_line
from .errors import ModelError, QueueModelError
from .extras import extra

#: Names of those that people use; joblib may know more.
ENGINES = ("dask", "loky", "multiprocessing", "ray", "threading")


def run_tasks(
    tasks: Sequence[Callable[[], Any]], *, n_jobs: int, backend: str | None = None, what: str
) -> Iterator[tuple[int, Any]]:
    """Each task's number and result, as they end; all at the end from engines that cannot do otherwise.

    Parameters
    ----------
    tasks : sequence of function
        That can be pickled.
    n_jobs : int
        As joblib's; -1: all cores. Dask and Ray use all that they have.
    backend : str, optional
        joblib's: ``"loky"``, ``"threading"``, ``"dask"``, ...; or ``"ray"`` (`ray_tasks`); that of the surrounding
        ``joblib.parallel_config`` unless given.
    what : str
        Is run; begins the message when it cannot be.

    Raises
    ------
    ModelError
        For a backend that joblib does not know or that is not there.
    MissingDependencyError
        Without joblib.
    QueueModelError
        When a process of this machine is killed; Dask and Ray run its task again.
    """
    joblib = extra("joblib", "parallel", what=what)
    try:
        engine: Any = backend
        if backend == "ray":
            from .ray_tasks import RayTasks

            engine = RayTasks()
        with joblib.parallel_config(backend=engine) if engine else contextlib.nullcontext():
            try:
                parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
            except ValueError:
                parallel = joblib.Parallel(n_jobs=n_jobs)
    except Exception as error:  # Ray has nothing narrower for a cluster that does not answer
        hint = nearest(backend, ENGINES) if backend not in ENGINES else ""
        raise ModelError(f"{what}: backend {backend!r} cannot be used: {one_line(error)}{hint}") from None
    try:
        yield from parallel(joblib.delayed(_numbered)(number, task) for number, task in enumerate(tasks))
    except BrokenExecutor:
        raise QueueModelError(
            f"{what}: a process ended before its task (killed, or out of memory?); try again, with fewer at once"
        ) from None


def _numbered(number: int, task: Callable[[], Any]) -> tuple[int, Any]:
    return number, task()
