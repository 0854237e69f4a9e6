"""`profile_live`: from a model to its profile."""

from __future__ import annotations

import datetime
import os
import socket
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ....checks import JSON, require_writable
from ....errors import DataError
from ....training.job import Throughput
from ....training.profile import Profile
from ...live.hosts import recorded_network
from ...live.run import ground
from .._imports import require_installed
from ..addresses import is_here, require_answer
from ..reading import read_traces
from .outcome import EndedEarlyError, outcome
from .plan import STYLES, Plan
from .run import JOBS, Run

ANSWER_LIMIT = 10.0  # seconds for a server elsewhere to answer


def profile_live(
    model: str | Callable[[], Any],
    *,
    steps: int = 50,
    warmup: int = 10,
    untraced_steps: int | None = None,
    style: Literal["graph", "strategy"] = "graph",
    ps: str | None = None,
    worker: str | None = None,
    time_limit: float = 600.0,
    batch_size: int | None = None,
    output: str | os.PathLike[str] | None = None,
    traces: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on_step: Callable[[str, int, int], None] | None = None,
) -> Profile:
    """
    Train a model on one parameter server and one worker for a short while, and record where its time goes.

    Parameters
    ----------
    model : str or function
        ``"package.module:function"`` (or the function itself, where a child process can import it) that returns a
        compiled Keras model and a `tf.data.Dataset` of ``(x, y)`` batches; or a built-in: ``"mlp"``, ``"cnn"``,
        ``"embedding"``, ``"transformer"``.
    steps : int
        Steps to trace: one record each.
    warmup : int
        Steps before, not recorded.
    untraced_steps : int, optional
        Steps to time without tracing, which slows them: their rate becomes the profile's throughput of one worker.
        As many as `steps` unless given; 0 for none.
    style : {"graph", "strategy"}
        A TensorFlow 1 session, or TensorFlow 2's `ParameterServerStrategy`.
    ps, worker : str, optional
        ``HOST:PORT`` of servers that already run (``queuemodel serve``). Without them, those of the environment's
        ``TF_CONFIG`` if set; else both are started here, on the loopback interface.
    time_limit : float
        Seconds for everything; what is recorded by then is the profile.
    batch_size : int, optional
        Examples per step; the data set's own unless given.
    output : path, optional
        Where to save the profile, also when the run fails or is interrupted.
    traces : path, optional
        A folder, new or empty, that keeps the recorded traces.
    progress : bool, optional
        A progress bar on standard error; where that is a terminal unless given.
    on_step : function, optional
        Called with what is going on, the steps done and all steps; what it raises ends the run.

    Raises
    ------
    DataError
        An argument that cannot be used, or an output that cannot be written (before anything starts).
    ProfilingError
        The model or a server fails, or the disk is full; as `EndedEarlyError` with the steps recorded so far.
    Interrupted
        Ctrl-C, SIGTERM or SIGHUP; likewise, and only after the steps are saved.

    Examples
    --------
    >>> profile = profile_live("mlp", steps=20)  # doctest: +SKIP
    """
    plan = Plan.of(
        model,
        style=style,
        steps=steps,
        warmup=warmup,
        untraced_steps=untraced_steps,
        batch_size=batch_size,
        ps=ps,
        worker=worker,
        time_limit=time_limit,
    )
    require_writable(output, suffixes=JSON)
    require_installed()
    for job, address in (plan.elsewhere or {}).items():
        require_answer(job, address, seconds=min(ANSWER_LIMIT, plan.time_limit))
    with ground(plan.total, traces=traces, progress=progress, on_step=on_step) as prepared:
        run = Run(plan, prepared)
        ended = run.train()
        run.progress.say("reading the traces")
        profile = _profile(run, failed=ended is not None)
        if profile is not None and output is not None:
            try:
                profile.save(output)
            except DataError as error:
                raise EndedEarlyError(str(error), profile) from None
    return outcome(run, ended, profile, output)


def _profile(run: Run, *, failed: bool) -> Profile | None:
    """What was recorded; None when that is nothing."""
    if not run.facts or not any(run.traces.rglob("*.pb")):
        return None
    job = run.facts["job"]
    known = {key: job[key] for key in ("name", "batch_size", "dataset_size", "parameter_bytes")}
    try:
        profile = read_traces(run.traces, **known)
    except DataError:
        if failed:  # cut off before the first whole step: the failure is what matters
            return None
        raise
    here = run.plan.elsewhere is None or any(map(is_here, run.plan.elsewhere.values()))
    hosts = run.plan.elsewhere or dict.fromkeys(JOBS, socket.gethostname())
    replace = msgspec.structs.replace
    return replace(
        profile,
        source=replace(
            profile.source,
            framework_version=run.facts["framework_version"],
            style=STYLES[run.plan.style][1],
            taken_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            hosts={f"{job}:0": host for job, host in hosts.items()},
        ),
        cluster=replace(profile.cluster, **(recorded_network() if here else {})),
        job=replace(
            profile.job,
            parameter_bytes=job["parameter_bytes"],
            tensors=job["tensors"],
            shard_bytes=[job["parameter_bytes"]],
        ),
        steps=profile.steps[: run.plan.steps],
        throughputs=[Throughput(workers=1, steps_per_second=len(run.untraced) / sum(run.untraced))]
        if run.untraced
        else [],
    )
