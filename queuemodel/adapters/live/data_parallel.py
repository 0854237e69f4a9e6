"""Live profiling of data-parallel training, whatever the framework: ranks train, and their traces become a profile."""

from __future__ import annotations

import datetime
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...checks import require_count, require_number
from ...errors import DataError
from ...training.gradient_norms import GradientNorms
from ...training.job import Throughput
from ...training.profile import Profile
from .functions import function_name
from .hosts import recorded_network
from .ranks import RanksRun
from .run import LONGEST_RUN, ground

#: Steps for the gradient noise scale.
NOISE_STEPS = 10

READING = 0.1  # of the time limit


def ranks_settings(
    model: str | Callable[[], Any],
    built_in: Sequence[str] = (),
    *,
    ranks: int,
    steps: int,
    warmup: int,
    untraced_steps: int | None,
    noise_steps: int,
    time_limit: float,
) -> dict[str, Any]:
    """Check what every framework's ranks are told (raises DataError)."""
    require_number(time_limit, "time_limit", unit="seconds", positive=True, largest=LONGEST_RUN, error=DataError)
    traced = require_count(steps, "steps", error=DataError)
    return {
        "model": function_name(model, built_in),
        "ranks": require_count(ranks, "ranks", least=2, error=DataError),
        "steps": traced,
        "warmup": require_count(warmup, "warmup", least=2, error=DataError),
        "untraced_steps": require_count(
            traced if untraced_steps is None else untraced_steps, "untraced_steps", least=0, error=DataError
        ),
        "noise_steps": require_count(noise_steps, "noise_steps", least=0, error=DataError),
        "until": time.monotonic() + (1 - READING) * time_limit,
        "path": sys.path,
    }


def profile_ranks(
    rank: str,
    settings: dict[str, Any],
    read: Callable[[Sequence[Path], dict[str, Any]], Profile],
    *,
    here: Sequence[int],
    train: Callable[[RanksRun], None],
    output: str | os.PathLike[str] | None,
    traces: str | os.PathLike[str] | None,
    progress: bool | None,
    on_step: Callable[[str, int, int], None] | None,
) -> Profile | None:
    """Train the ranks that are ``here``; rank 0's machine reads the traces of all and makes the profile.

    Parameters
    ----------
    rank : str
        Module of a rank's process.
    settings : dict
        What `ranks_settings` checked, and what else the module needs.
    read : function
        From the folders of one rank, of two and so on, and what rank 0 told of the job, to a profile.
    here : sequence of int
        Ranks on this machine.
    train : function
        Starts them, with another and then with more.
    output, traces, progress, on_step
        As of every ``profile_live``.

    Raises
    ------
    ProfilingError, Interrupted
        Nothing is saved.
    """
    each = settings["warmup"] + settings["steps"] + settings["untraced_steps"]
    total = each * (settings["ranks"] - here[0]) + settings["noise_steps"]
    with ground(total, traces=traces, progress=progress, on_step=on_step) as prepared:
        run = RanksRun(rank, settings, prepared)
        train(run)
        if 0 not in here:
            return None
        run.progress.say("reading the traces")
        profile = read([run.traces / f"trace_n{n}" for n in range(1, settings["ranks"] + 1)], run.facts)
        replace = msgspec.structs.replace
        profile = replace(
            profile,
            source=replace(
                profile.source,
                framework_version=run.facts["version"],
                taken_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                hosts={f"rank:{one}": socket.gethostname() for one in here},
            ),
            cluster=replace(profile.cluster, **recorded_network()),
            throughputs=[
                Throughput(workers=ranks, steps_per_second=ranks / seconds)
                for ranks, seconds in sorted(run.untraced.items())
            ],
            gradient_norms=_recorded(run.gradient_norms),
        )
        if output is not None:
            profile.save(output)
    return profile


def _recorded(steps: Sequence[dict[str, Any]]) -> list[GradientNorms]:
    """Norms of the steps whose gradients were numbers, unless the ranks had the same examples in each."""
    numbers = [GradientNorms(**step) for step in steps if math.isfinite(sum(step["workers"]) + step["mean"])]
    return [] if all(one.alike for one in numbers) else numbers
