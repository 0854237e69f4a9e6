"""One question, every method: throughput against node count from whatever was measured."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from .checks import require_choice, require_seed, require_share
from .errors import ModelError
from .training import Profile, Throughput, ThroughputCurve, fit, read_throughputs
from .training.calibration import untraced_throughput
from .training.curve import require_workers

Method = Literal["auto", "mva", "trace"]
#: Changes that the simulation knows too.
SIMULATED = {"bandwidth", "parameter_servers", "worker_speeds", "accelerator_speed"}
METHODS: tuple[Method, ...] = ("auto", "mva", "trace")


def predict(
    data: Profile | Sequence[Throughput],
    *,
    workers: int | Iterable[int] = range(1, 33),
    method: Method = "auto",
    throughputs: Sequence[Throughput] = (),
    form: Literal["links", "single"] = "links",
    confidence: float = 0.9,
    seed: int = 0,
    progress: bool = False,
    **changes: Any,
) -> ThroughputCurve:
    """Predict throughput against the number of workers.

    Parameters
    ----------
    data : Profile, or sequence of Throughput
    workers : iterable of int
    method : {"auto", "mva", "trace"}
        ``"mva"`` fits the closed network and solves it; ``"trace"`` simulates the recorded operations; ``"auto"`` takes
        the simulation when the profile holds operations of one worker alone, is not calibrated by throughputs of
        several workers and neither a form of the network nor a change is asked for that it does not have.
    throughputs : sequence of Throughput
        Measured besides the profile.
    form : {"links", "single"}
        Of the closed network; the simulation has separate links.
    confidence : float
        Probability of the interval.
    seed : int
    progress : bool
        Show a progress bar on standard error.
    **changes
        What-ifs, see `TrainingModel.what_if`.

    Raises
    ------
    ModelError
        For an unknown method, or a simulation that the profile or the changes do not allow.
    """
    require_choice(method, "predict: method", METHODS)
    workers = require_workers(workers).tolist()
    require_share(confidence, "predict: confidence", open_ended=True)
    require_seed(seed, "predict: seed")
    changes = {name: value for name, value in changes.items() if value is not None}
    profile = data if isinstance(data, Profile) else None
    traced = profile is not None and any(step.operations for step in profile.steps)
    alone = profile is not None and profile.cluster.workers == 1
    measured = [*(data.throughputs if isinstance(data, Profile) else data), *throughputs]
    unknown = sorted(set(changes) - SIMULATED)
    obstacles = {
        "needs a profile with recorded operations; import one from traces": not traced,
        f"cannot change {', '.join(unknown)}; use method 'mva'": bool(unknown),
        f"has no form {form!r}; use method 'mva'": form != "links",
        "needs a profile of one worker, whose transfers nobody else slowed; use method 'mva'": not alone,
    }
    simulable = not any(obstacles.values())
    if method == "trace" and not simulable:
        raise ModelError(f"predict: method 'trace' {next(why for why, so in obstacles.items() if so)}")
    calibrated = any(point.workers > 1 for point in measured)
    if profile and simulable and (method == "trace" or (method == "auto" and not calibrated)):
        from .traces.curve import trace_curve

        untraced = untraced_throughput(measured, profile.cluster.parameter_servers)
        return trace_curve(
            profile, workers=workers, confidence=confidence, seed=seed, progress=progress, untraced=untraced, **changes
        )
    model = fit(data, throughputs=throughputs, form=form, seed=seed).what_if(**changes)
    return model.throughput(workers, confidence=confidence)


def load(path: str | os.PathLike[str]) -> Profile | list[Throughput]:
    """Read a profile (JSON) or measured throughputs (a file whose name ends in .csv)."""
    return read_throughputs(path) if Path(path).suffix.lower() == ".csv" else Profile.load(path)
