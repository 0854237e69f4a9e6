"""`profile_live`: from a function to a profile of one rank and of two."""

from __future__ import annotations

import datetime
import importlib.util
import os
import queue
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ....checks import require_count, require_number, require_writable
from ....errors import DataError, MissingDependencyError
from ....training.profile import Profile
from ...live.addresses import free_addresses, interface_to, split_address
from ...live.functions import function_name
from ...live.interrupts import Interrupts
from ...live.progress import Progress
from ...live.scratch import empty_folder, scratch_folder
from ..traces import read_traces
from .run import Run

LONGEST_RUN = 7 * 24 * 3600.0
READING = 0.1  # of the time limit


def profile_live(
    model: str | Callable[[], Any],
    *,
    steps: int = 12,
    warmup: int = 5,
    master: str | None = None,
    rank: int | None = None,
    time_limit: float = 600.0,
    output: str | os.PathLike[str] | None = None,
    traces: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on_step: Callable[[str, int, int], None] | None = None,
) -> Profile | None:
    """
    Train on one rank, then on two with `DistributedDataParallel` over gloo, and record where the time goes.

    Parameters
    ----------
    model : str or function
        ``"package.module:function"`` (or the function itself, where a child process can import it) that returns
        ``(module, step)``: a `torch.nn.Module`, and a function that trains the module it is given on one batch (loss,
        backward pass, optimizer) and returns the batch's number of examples.
    steps : int
        To trace, on one rank and on two. Rank 0 decides for both.
    warmup : int
        Steps before each recording; two at least, since the first ones fill the buckets anew.
    master : str, optional
        ``HOST:PORT`` at which rank 0 waits for rank 1; both on this machine unless given.
    rank : 0 or 1, optional
        Which one this machine is; needed with ``master``.
    time_limit : float
        Seconds for everything.
    output : path, optional
        Where to save the profile.
    traces : path, optional
        A folder, new or empty, that keeps the recorded traces.
    progress : bool, optional
        A progress bar on standard error; where that is a terminal unless given.
    on_step : function, optional
        Called with what is going on, the steps done and all steps.

    Returns
    -------
    Profile or None
        None on rank 1, which sends what it recorded to rank 0.

    Raises
    ------
    DataError
        An argument that cannot be used, or an output that cannot be written (before anything starts).
    MissingDependencyError
        Without PyTorch.
    ProfilingError
        The function or a rank fails, or the time is over; nothing is saved.
    Interrupted
        Ctrl-C, SIGTERM or SIGHUP; likewise.

    Examples
    --------
    >>> profile = profile_live("queuemodel.adapters.pytorch.examples:mlp")  # doctest: +SKIP
    """
    require_number(time_limit, "time_limit", unit="seconds", positive=True, largest=LONGEST_RUN, error=DataError)
    settings: dict[str, Any] = {
        "model": function_name(model),
        "steps": require_count(steps, "steps", error=DataError),
        "warmup": require_count(warmup, "warmup", least=2, error=DataError),
        "until": time.monotonic() + (1 - READING) * time_limit,
        "path": sys.path,
    }
    here = _ranks_here(master, rank)
    settings["master"] = master or free_addresses(1)[0]
    environment = _environment(settings["master"], alone=master is not None)
    require_writable(output)
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError("PyTorch is needed here but is not installed: pip install 'queuemodel[torch]'")
    show = sys.stderr.isatty() if progress is None else progress
    total = (settings["warmup"] + settings["steps"]) * (2 if 0 in here else 1)
    inbox: queue.SimpleQueue = queue.SimpleQueue()
    with (
        Interrupts(wake=lambda: inbox.put((None, {}))) as interrupts,
        scratch_folder() as folder,
        Progress(total, show=show, on_step=on_step) as bar,
    ):
        kept = empty_folder(traces) if traces is not None else Path(folder, "traces")
        run = Run(settings, Path(folder), kept, inbox=inbox, progress=bar, interrupts=interrupts)
        run.train(here, environment)
        if 0 not in here:
            return None
        bar.say("reading the traces")
        profile = _profile(run, here)
        if output is not None:
            profile.save(output)
    return profile


def _ranks_here(master: str | None, rank: int | None) -> tuple[int, ...]:
    if master is None and rank is None:
        return (0, 1)
    if master is None or rank is None:
        given, missing = ("rank", "master") if master is None else ("master", "rank")
        raise DataError(f"{given}: give {missing} too, or neither to train both ranks here")
    split_address(master, where="master")
    return (require_count(rank, "rank", least=0, most=1, error=DataError),)


def _environment(master: str, *, alone: bool) -> dict[str, str]:
    """Gloo's own guess at the interface is often wrong; two ranks on one machine share its processors."""
    environment = {} if alone else {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // 2))}
    if interface := interface_to(master):
        environment["GLOO_SOCKET_IFNAME"] = interface
    return {name: value for name, value in environment.items() if name not in os.environ}


def _profile(run: Run, here: Sequence[int]) -> Profile:
    profile = read_traces(
        [run.traces / "trace_n1", run.traces / "trace_n2"],
        batch_size=run.facts["batch_size"],
        name=run.settings["model"],
    )
    source = msgspec.structs.replace(
        profile.source,
        framework_version=run.facts["version"],
        taken_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        hosts={f"rank:{rank}": socket.gethostname() for rank in here},
    )
    return msgspec.structs.replace(profile, source=source)
