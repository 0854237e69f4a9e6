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
from .training.job import TOLD, CongestionControl, require_network
from .training.prior import STRATEGIES, Strategy

Method = Literal["auto", "mva", "trace"]
#: Changes that the simulation knows too.
SIMULATED = {"bandwidth", "parameter_servers", "worker_speeds", "accelerator_speed", *TOLD}
METHODS: tuple[Method, ...] = ("auto", "mva", "trace")

#: What-ifs that belong to one strategy.
ONLY = dict.fromkeys(("latency", "bucket_bytes", "collective"), "all-reduce")
ONLY |= dict.fromkeys(("parameter_servers", "shards", "worker_speeds", *TOLD), "async-ps")


def predict(
    data: Profile | Sequence[Throughput],
    *,
    workers: int | Iterable[int] = range(1, 33),
    strategy: Strategy | None = None,
    method: Method = "auto",
    throughputs: Sequence[Throughput] = (),
    form: Literal["links", "single"] = "links",
    confidence: float = 0.9,
    congestion_control: CongestionControl | None = None,
    buffer: float | None = None,
    seed: int = 0,
    progress: bool = False,
    **changes: Any,
) -> ThroughputCurve:
    """Predict throughput against the number of workers.

    Parameters
    ----------
    data : Profile, or sequence of Throughput
    workers : iterable of int
    strategy : {"async-ps", "sync-ps", "all-reduce"}, optional
        How the job trains: asynchronously on parameter servers, or in rounds that end at the servers (from throughputs
        alone) or in an all-reduce (from recorded rounds or throughputs). Unless given, what the profile recorded.
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
    congestion_control : {"unknown", "cubic", "reno", "bbr"}, optional
        TCP's in the hosts, for the simulation; the profile's unless given.
    buffer : float, optional
        Seconds that a packet waits at a full link, likewise.
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
    require_network(congestion_control, buffer, where="predict: ")
    changes |= {"congestion_control": congestion_control, "buffer": buffer}
    changes = {name: value for name, value in changes.items() if value is not None}
    if strategy is None:
        strategy = "all-reduce" if isinstance(data, Profile) and data.rounds and not data.steps else "async-ps"
    require_choice(strategy, "predict: strategy", STRATEGIES)
    if foreign := [name for name in changes if name in ONLY and ONLY[name] != strategy]:
        raise ModelError(f"predict: {foreign[0]} is a question for strategy {ONLY[foreign[0]]!r}, not {strategy!r}")
    asked: dict[str, Any] = {"workers": workers, "confidence": confidence}
    if strategy != "async-ps":
        if method != "auto" or form != "links":
            raise ModelError(f"predict: method and form are for strategy 'async-ps', not {strategy!r}")
        if isinstance(data, Profile) and data.rounds and strategy == "all-reduce":
            if throughputs:
                raise ModelError("predict: throughputs besides recorded rounds are not used; leave them out")
            return AllReduceModel(fit_rounds(data)).what_if(**changes).throughput(**asked, seed=seed)
        return fit(data, throughputs=throughputs, strategy=strategy).what_if(**changes).throughput(**asked)
    if isinstance(data, Profile):
        if not (data.steps or data.throughputs or throughputs):
            raise ModelError("predict: the profile has synchronous rounds only; ask with strategy 'all-reduce'")
        curve = _simulated(data, throughputs, method, form, changes, asked | {"seed": seed, "progress": progress})
        if curve is not None:
            return curve
    elif method == "trace":
        raise ModelError(f"predict: method 'trace' {UNTRACED}")
    if told := [name for name in TOLD if name in changes]:
        raise ModelError(f"predict: {told[0]} is for the simulation only, got {changes[told[0]]!r}; use method 'trace'")
    return fit(data, throughputs=throughputs, form=form, seed=seed).what_if(**changes).throughput(**asked)


UNTRACED = "needs a profile with recorded operations; import one from traces"


def _simulated(
    profile: Profile,
    throughputs: Sequence[Throughput],
    method: Method,
    form: str,
    changes: dict[str, Any],
    asked: dict[str, Any],
) -> ThroughputCurve | None:
    """The curve by simulation of recorded operations, when that is asked for, or best and possible."""
    measured = [*profile.throughputs, *throughputs]
    unknown = sorted(set(changes) - SIMULATED)
    obstacles = {
        UNTRACED: not any(step.operations for step in profile.steps),
        f"cannot change {', '.join(unknown)}; use method 'mva'": bool(unknown),
        f"has no form {form!r}; use method 'mva'": form != "links",
        "needs a profile of one worker, whose transfers nobody else slowed; use method 'mva'": (
            profile.cluster.workers != 1
        ),
    }
    reasons = [why for why, so in obstacles.items() if so]
    if method == "trace" and reasons:
        raise ModelError(f"predict: method 'trace' {reasons[0]}")
    calibrated = any(point.workers > 1 for point in measured)
    if reasons or method == "mva" or (method == "auto" and calibrated):
        return None
    from .traces.curve import trace_curve

    untraced = untraced_throughput(measured, profile.cluster.parameter_servers)
    return trace_curve(profile, untraced=untraced, **asked, **changes)


def load(path: str | os.PathLike[str]) -> Profile | list[Throughput]:
    """Read a profile (JSON) or measured throughputs (a file whose name ends in .csv)."""
    return read_throughputs(path) if Path(path).suffix.lower() == ".csv" else Profile.load(path)
