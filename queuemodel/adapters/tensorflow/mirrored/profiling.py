"""`profile_live`: from a model to the profile of its data-parallel training."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ....checks import JSON, require_count, require_writable
from ....errors import DataError
from ....training.profile import Profile
from ...live.addresses import own_addresses
from ...live.data_parallel import NOISE_STEPS, profile_ranks, ranks_settings
from ...live.ranks import RanksRun
from .._imports import require_installed
from ..children.models import BUILT_IN
from ..environment import child_environment
from ..reading import read_mirrored


def profile_live(
    model: str | Callable[[], Any],
    *,
    ranks: int = 2,
    steps: int = 12,
    warmup: int = 5,
    untraced_steps: int | None = None,
    noise_steps: int = NOISE_STEPS,
    time_limit: float = 600.0,
    batch_size: int | None = None,
    output: str | os.PathLike[str] | None = None,
    traces: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on_step: Callable[[str, int, int], None] | None = None,
) -> Profile | None:
    """
    Train on one rank, then on more with `MultiWorkerMirroredStrategy` on this machine, and record where the time goes.

    Parameters
    ----------
    model : str or function
        As for parameter servers (`tensorflow.live.profile_live`); each rank trains on all of the data set.
    ranks, steps, warmup, untraced_steps, time_limit, output, traces, progress, on_step
        As of `pytorch.live.profile_live`.
    noise_steps : int
        Likewise, but without updates, and on batches of each rank's own.
    batch_size : int, optional
        Examples per step and rank; the data set's own unless given.

    Raises
    ------
    DataError
        An argument that cannot be used, or an output that cannot be written (before anything starts).
    MissingDependencyError
        Without TensorFlow.
    ProfilingError
        The model or a rank fails, or the time is over; nothing is saved.
    Interrupted
        Ctrl-C, SIGTERM or SIGHUP; likewise.

    Examples
    --------
    >>> profile = profile_live("mlp")  # doctest: +SKIP
    """
    settings = ranks_settings(
        model,
        tuple(BUILT_IN),
        ranks=ranks,
        steps=steps,
        warmup=warmup,
        untraced_steps=untraced_steps,
        noise_steps=noise_steps,
        time_limit=time_limit,
    )
    settings["batch_size"] = None if batch_size is None else require_count(batch_size, "batch_size", error=DataError)
    require_writable(output, suffixes=JSON)
    require_installed()

    def read(folders: Sequence[Path], facts: dict[str, Any]) -> Profile:
        known = {key: facts[key] for key in ("batch_size", "parameter_bytes", "dataset_size")}
        profile = read_mirrored(folders, name=facts["name"], **known)
        return msgspec.structs.replace(profile, job=msgspec.structs.replace(profile.job, tensors=facts["tensors"]))

    def train(run: RanksRun) -> None:
        """The ranks of each number anew: TensorFlow does not let any join."""
        environment = child_environment(gpu=False)  # ranks on one accelerator would be no nodes
        for number in range(2, settings["ranks"] + 1):
            noise = settings["noise_steps"] if number == settings["ranks"] else 0
            with own_addresses(number) as addresses:
                run.train(range(number), environment, addresses=addresses, noise_steps=noise)

    return profile_ranks(
        f"{__package__}.rank",
        settings,
        read,
        here=range(settings["ranks"]),
        train=train,
        output=output,
        traces=traces,
        progress=progress,
        on_step=on_step,
    )
