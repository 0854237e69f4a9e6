"""`profile_live`: from a function to a profile of one rank, of two, and of more."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any

from ....checks import JSON, require_count, require_writable
from ....errors import DataError, MissingDependencyError
from ....training.profile import Profile
from ...live.addresses import interface_to, own_addresses, split_address
from ...live.data_parallel import NOISE_STEPS, profile_ranks, ranks_settings
from ..traces import read_traces


def profile_live(
    model: str | Callable[[], Any],
    *,
    ranks: int = 2,
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
    Train on one rank, then on two and more with `DistributedDataParallel` over gloo, and record where the time goes.

    Parameters
    ----------
    model : str or function
        ``"package.module:function"`` (or the function itself, where a child process can import it) that returns
        ``(module, step)``: a `torch.nn.Module`, and a function that trains the module it is given on one batch (loss,
        backward pass, optimizer) and returns the batch's number of examples.
    ranks : int
        Most to train together: two, three and so on up to these are recorded, each number by itself. Rank 0 decides
        for all.
    steps : int
        To trace, on one rank, on two and so on; likewise.
    warmup : int
        Steps before each recording; two at least, since the first ones fill the buckets anew.
    untraced_steps : int, optional
        Steps after each recording, timed without tracing, which slows them: the profile's throughputs. As many as
        `steps` unless given; 0 for none.
    noise_steps : int
        Steps of all ranks after these, in which each rank's gradient and their mean are measured: the profile's
        gradient noise scale. 0 for none; none is recorded where all ranks train on the same examples.
    master : str, optional
        ``HOST:PORT`` at which rank 0 waits for the others; all on this machine unless given.
    rank : int, optional
        Which one this machine is, below ``ranks``; needed with ``master``.
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
        None on other ranks, which send what they recorded to rank 0.

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
        ranks=ranks,
        steps=steps,
        warmup=warmup,
        untraced_steps=untraced_steps,
        noise_steps=noise_steps,
        time_limit=time_limit,
    )
    here = _ranks_here(master, rank, settings["ranks"])
    with own_addresses(1) as (own,):
        settings["master"] = master or own
        environment = _environment(settings["master"], len(here))
        require_writable(output, suffixes=JSON)
        if importlib.util.find_spec("torch") is None:
            raise MissingDependencyError("PyTorch is needed here but is not installed: pip install 'queuemodel[torch]'")
        return profile_ranks(
            f"{__package__}.rank",
            settings,
            lambda folders, facts: read_traces(folders, batch_size=facts["batch_size"], name=settings["model"]),
            here=here,
            train=lambda run: run.train(here, environment),
            output=output,
            traces=traces,
            progress=progress,
            on_step=on_step,
        )


def _ranks_here(master: str | None, rank: int | None, ranks: int) -> Sequence[int]:
    if master is None and rank is None:
        return range(ranks)
    if master is None or rank is None:
        given, missing = ("rank", "master") if master is None else ("master", "rank")
        raise DataError(f"{given}: give {missing} too, or neither to train all ranks here")
    split_address(master, where="master")
    if require_count(rank, "rank", least=0, error=DataError) >= ranks:
        raise DataError(f"rank: {rank} is not among {ranks} ranks, which begin at 0; give more ranks")
    return (rank,)


def _environment(master: str, here: int) -> dict[str, str]:
    """Gloo's own guess at the interface is often wrong; ranks on one machine share its processors."""
    environment = {} if here == 1 else {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // here))}
    if interface := interface_to(master):
        environment["GLOO_SOCKET_IFNAME"] = interface
    return {name: value for name, value in environment.items() if name not in os.environ}
