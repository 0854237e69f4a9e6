"""`profile_live`: from a function to a profile of one rank and of two."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

from ....checks import JSON, require_count, require_writable
from ....errors import DataError, MissingDependencyError
from ....training.profile import Profile
from ...live.addresses import free_addresses, interface_to, split_address
from ...live.data_parallel import NOISE_STEPS, profile_ranks, ranks_settings
from ..traces import read_traces


def profile_live(
    model: str | Callable[[], Any],
    *,
    steps: int = 12,
    warmup: int = 5,
    untraced_steps: int | None = None,
    noise_steps: int = NOISE_STEPS,
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
    untraced_steps : int, optional
        Steps after each recording, timed without tracing, which slows them: the profile's throughputs. As many as
        `steps` unless given; 0 for none.
    noise_steps : int
        Steps of two ranks after these, in which each rank's gradient and their mean are measured: the profile's
        gradient noise scale. 0 for none; none is recorded where both ranks train on the same examples.
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
        Called with what is going on, the steps done and all steps; what it raises ends the run.

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
    settings = ranks_settings(
        model,
        steps=steps,
        warmup=warmup,
        untraced_steps=untraced_steps,
        noise_steps=noise_steps,
        time_limit=time_limit,
    )
    here = _ranks_here(master, rank)
    settings["master"] = master or free_addresses(1)[0]
    environment = _environment(settings["master"], alone=master is not None)
    require_writable(output, suffixes=JSON)
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError("PyTorch is needed here but is not installed: pip install 'queuemodel[torch]'")
    return profile_ranks(
        f"{__package__}.rank",
        settings,
        lambda folders, facts: read_traces(folders, batch_size=facts["batch_size"], name=settings["model"]),
        here=here,
        environment=environment,
        output=output,
        traces=traces,
        progress=progress,
        on_step=on_step,
    )


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
