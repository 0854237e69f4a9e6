"""One question, every method: throughput against node count from whatever was measured."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from .checks import require_choice, require_seed, require_share
from .errors import ModelError
from .strategies import AllReduceModel, fit_rounds
from .training import Profile, Throughput, ThroughputCurve, fit, read_throughputs
from .training.calibration import untraced_throughput
from .training.curve import require_workers

Method = Literal["auto", "mva", "trace"]
#: Changes that the simulation knows too.
SIMULATED = {"bandwidth", "parameter_servers", "worker_speeds", "accelerator_speed"}
METHODS: tuple[Method, ...] = ("auto", "mva", "trace")

Strategy = Literal["async-ps", "all-reduce"]
STRATEGIES = ("async-ps", "all-reduce")

#: What-ifs that belong to one strategy.
ONLY = dict.fromkeys(("latency", "bucket_bytes", "collective"), "all-reduce")
ONLY |= dict.fromkeys(("parameter_servers", "shards", "worker_speeds"), "async-ps")


def predict(
    data: Profile | Sequence[Throughput],
    *,
    workers: int | Iterable[int] = range(1, 33),
    strategy: Strategy | None = None,
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
    strategy : {"async-ps", "all-reduce"}, optional
        How the job trains: asynchronously on parameter servers, or in rounds that end in an all-reduce. Unless given,
        what the profile recorded.
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
        What-ifs, see `TrainingModel.what_if` and `AllReduceModel.what_if`.

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
    if strategy is None:
        strategy = "all-reduce" if profile and profile.rounds and not profile.steps else "async-ps"
    require_choice(strategy, "predict: strategy", STRATEGIES)
    if foreign := [name for name in changes if name in ONLY and ONLY[name] != strategy]:
        raise ModelError(f"predict: {foreign[0]} is a question for strategy {ONLY[foreign[0]]!r}, not {strategy!r}")
    if strategy == "all-reduce":
        if profile is None or not profile.rounds:
            raise ModelError(
                "predict: strategy 'all-reduce' needs a profile with recorded rounds; import traces of torch.profiler"
            )
        if method != "auto" or form != "links" or throughputs:
            raise ModelError("predict: method, form and throughputs are for strategy 'async-ps', not 'all-reduce'")
        model = AllReduceModel(fit_rounds(profile)).what_if(**changes)
        return model.throughput(workers, confidence=confidence, seed=seed)
    if profile and not (profile.steps or profile.throughputs or throughputs):
        raise ModelError("predict: the profile has rounds of synchronous training only; ask with strategy 'all-reduce'")
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
    fitted = fit(data, throughputs=throughputs, form=form, seed=seed).what_if(**changes)
    return fitted.throughput(workers, confidence=confidence)


def load(path: str | os.PathLike[str]) -> Profile | list[Throughput]:
    """Read a profile (JSON) or measured throughputs (a file whose name ends in .csv)."""
    return read_throughputs(path) if Path(path).suffix.lower() == ".csv" else Profile.load(path)
