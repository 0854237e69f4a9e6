"""Ray's tasks as an engine of joblib: each result as it ends, and a worker that dies loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from typing import Any

import ray
from joblib.parallel import ParallelBackendBase

from .checks import one_line


class RayTasks(ParallelBackendBase):
    """For `joblib.parallel_config`: as many tasks at once as the Ray cluster has cores.

    That cluster is the one connected to, else that of the environment's ``RAY_ADDRESS``, else one is started here.
    Ray's own ``register_ray`` makes a pool of actors, which ends with the first of them and hands over its results at
    the end. Tasks are run again where their worker died, three times unless Ray is told otherwise.

    Raises
    ------
    concurrent.futures.BrokenExecutor
        When that was not enough.

    Examples
    --------
    >>> import joblib
    >>> with joblib.parallel_config(RayTasks()):  # doctest: +SKIP
    ...     runs = trace_runs(profile, workers=range(1, 65), n_jobs=-1)
    """

    supports_retrieve_callback = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if not ray.is_initialized():
            ray.init()
        self.call = ray.remote(_call)
        self.waiting: set[ray.ObjectRef] = set()

    def effective_n_jobs(self, n_jobs: int) -> int:
        """The cluster's cores, whatever is asked, as with Dask."""
        return int(ray.cluster_resources()["CPU"])

    def submit(self, func: Callable[[], Any], callback: Callable[[Future], Any]) -> Future:
        """Send a task; ``callback`` takes its future when it has ended."""
        task = self.call.remote(func)
        self.waiting.add(task)
        future = task.future()
        future.add_done_callback(lambda _: self.waiting.discard(task))
        future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future) -> Any:
        """What a task gave, or raised."""
        try:
            return out.result()
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayError as error:
            raise BrokenExecutor(one_line(error)) from error

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel what has not ended."""
        for task in tuple(self.waiting):
            ray.cancel(task)


def _call(func: Callable[[], Any]) -> Any:
    return func()
