"""Independent tasks at the same time, by joblib on any of its engines, or by Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any

from .checks import extra, nearest, one_line
from .errors import ModelError, QueueModelError

#: Names of those that people use; joblib may know more.
ENGINES = ("dask", "loky", "multiprocessing", "ray", "threading")

Task = Callable[[], Any]


def run_tasks(
    tasks: Sequence[Task], *, n_jobs: int, backend: str | None = None, what: str
) -> Iterator[tuple[int, Any]]:
    """Each task's number and result, as they end; from some engines all at the end.

    ``n_jobs`` (-1: all cores) and ``backend`` are joblib's (None: of the surrounding ``parallel_config``), or
    ``"ray"``; ``what`` begins the messages.
    """
    joblib = None if backend == "ray" else extra("joblib", "parallel", what=what)
    try:
        if joblib is None:
            parallel: Any = _Ray()
        else:
            with joblib.parallel_config(backend=backend) if backend else contextlib.nullcontext():
                try:
                    parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
                except ValueError:
                    parallel = joblib.Parallel(n_jobs=n_jobs)
    except Exception as error:  # Ray has nothing narrower for a cluster that does not answer
        hint = nearest(backend, ENGINES) if backend not in ENGINES else ""
        raise ModelError(f"{what}: backend {backend!r} cannot be used: {one_line(error)}{hint}") from None
    try:
        yield from parallel([(_numbered, numbered, {}) for numbered in enumerate(tasks)])  # as joblib.delayed has them
    except BrokenExecutor:
        raise QueueModelError(
            f"{what}: a process ended before its task (killed, or out of memory?); try again, with fewer at once"
        ) from None


def _numbered(number: int, task: Task) -> tuple[int, Any]:
    return number, task()


class _Ray:
    """As `joblib.Parallel`, whose own engine for Ray ends with the first of its actors."""

    def __init__(self) -> None:
        import ray

        if not ray.is_initialized():
            ray.init()  # the cluster of ``RAY_ADDRESS``, else one of its own
        self.ray = ray

    def __call__(self, calls: Sequence[tuple[Any, tuple[int, Task], Any]]) -> Iterator[tuple[int, Any]]:
        call = self.ray.remote(_numbered)
        waiting = [call.remote(*arguments) for _, arguments, _ in calls]
        try:
            while waiting:
                (ended,), waiting = self.ray.wait(waiting)
                yield self.ray.get(ended)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self.ray.exceptions.RayError as error:
            raise BrokenExecutor(one_line(error)) from error
        finally:
            for task in waiting:
                self.ray.cancel(task)
