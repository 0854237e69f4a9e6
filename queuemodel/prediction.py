"""One question, every method: throughput against node count from whatever was measured."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from .checks import require_choice, require_seed, require_share
from .errors import DataError, ModelError
from .files import read_bytes
from .placements import PlacedStep, fit_placements, read_placements
from .placements.law import holds_placements
from .strategies import AllReduceModel, HalfSynchronous, fit
from .strategies.fit import STRATEGIES, Strategy, recorded_strategy, require_numbers, require_told_of
from .strategies.half_synchronous import NUMBERS
from .strategies.round_changes import OWN
from .training import Profile, Throughput, ThroughputCurve, read_throughputs
from .training.curve import require_workers
from .training.job import CongestionControl, require_network
from .training.throughputs import as_throughputs, require_measured

Method = Literal["auto", "mva", "trace"]
#: What only the simulation can be asked.
ONLY_SIMULATED = ("policy", "sharding", "straggler_probability", "straggler_slowdown", "worker_bandwidth")
#: Changes that the simulation knows too.
SIMULATED = {"bandwidth", "parameter_servers", "worker_speeds", "accelerator_speed", *ONLY_SIMULATED}
METHODS: tuple[Method, ...] = ("auto", "mva", "trace")

#: What-ifs that all-reduce has not.
OF_SERVERS = {"parameter_servers", "shards", "worker_speeds", *ONLY_SIMULATED}


def predict(
    data: Profile | Sequence[Throughput] | Sequence[PlacedStep],
    *,
    workers: int | Iterable[int] = range(1, 33),
    strategy: Strategy | None = None,
    method: Method = "auto",
    throughputs: Sequence[Throughput | Profile] = (),
    form: Literal["links", "single"] = "links",
    confidence: float = 0.9,
    congestion_control: CongestionControl | None = None,
    buffer: float | None = None,
    seed: int = 0,
    progress: bool = False,
    k: int | None = None,
    backup_workers: int | None = None,
    staleness_bound: int | None = None,
    parameter_bytes: float | None = None,
    sparse_gradients: bool = False,
    gpus_per_node: int | None = None,
    **changes: Any,
) -> ThroughputCurve:
    """Predict throughput against the number of workers.

    Parameters
    ----------
    data : Profile, or sequence of Throughput or of PlacedStep
        A worker of the latter is a GPU.
    workers : iterable of int
    strategy : str, optional
        How the job trains: ``"async-ps"``, asynchronously on parameter servers; ``"sync-ps"``, ``"bounded-staleness"``,
        ``"k-sync"``, ``"k-batch-sync"``, ``"k-async"`` and ``"k-batch-async"``, half-synchronously on them, by
        simulation of recorded operations (docs/explanation/half-synchronous; sync-ps without backup workers and
        k-batch-async also by the closed network, sync-ps also from throughputs alone); ``"all-reduce"``, in
        rounds that end in one, from recorded rounds or throughputs, or from the operations of steps on servers. Unless
        given, what the profile recorded.
    method : {"auto", "mva", "trace"}
        ``"mva"`` fits the closed network and solves it; ``"trace"`` simulates the recorded operations; ``"auto"`` takes
        the simulation when the profile holds operations of one worker alone and neither a form of the network nor a
        change is asked for that it does not have.
    throughputs : sequence of Throughput or Profile
        Measured besides the profile; of a profile of several workers, what its steps show. They calibrate what is
        predicted: the closed network's demands, or the simulation's networks (`queuemodel.traces.calibrate`).
    form : {"links", "single"}
        Of the closed network; the simulation has separate links.
    confidence : float
        Probability of the interval.
    congestion_control : {"unknown", "cubic", "reno", "bbr"}, optional
        TCP's in the hosts; the profile's unless given.
    buffer : float, optional
        Seconds that a packet waits at a full link, likewise.
    seed : int
    progress : bool
        Show a progress bar on standard error.
    k : int, optional
        Results that the server waits for: k-sync, k-batch-sync, k-async, k-batch-async.
    backup_workers : int, optional
        Results of a round of sync-ps that it does not wait for.
    staleness_bound : int, optional
        Steps that a worker may be ahead of the slowest: bounded-staleness.
    parameter_bytes : float, optional
        Of throughputs alone, see `queuemodel.training.fit`.
    sparse_gradients : bool
        That most parameters are embeddings, see `queuemodel.training.fit`; for synchronous throughputs alone.
    gpus_per_node : int, optional
        Of a job measured by placement (`fit_placements`), which needs ``batch_size`` too where several were measured.
    **changes
        What-ifs, see `TrainingModel.what_if` and `AllReduceModel.what_if`; ``batch_size`` of throughputs alone is that
        which they had, 1 unless given, and ``ranks_per_node`` those of their nodes; for the simulation also ``policy``,
        ``sharding``, ``straggler_probability``, ``straggler_slowdown`` and ``worker_bandwidth`` of
        `queuemodel.traces.simulate`, the last one as a list for the largest number of workers or more.

    Raises
    ------
    ModelError
        For an unknown method, a simulation that the profile or the changes do not allow, or a network told of
        throughputs alone.
    """
    require_measured(data, "predict")
    require_choice(method, "predict: method", METHODS)
    counts = require_workers(workers).tolist()
    require_share(confidence, "predict: confidence", open_ended=True)
    require_seed(seed, "predict: seed")
    require_network(congestion_control, buffer, where="predict: ")
    told: dict[str, Any] = {"congestion_control": congestion_control, "buffer": buffer}
    told = {name: value for name, value in told.items() if value is not None}
    changes = {name: value for name, value in changes.items() if value is not None}
    numbers: dict[str, Any] = {"k": k, "backup_workers": backup_workers, "staleness_bound": staleness_bound}
    if not isinstance(data, Profile) and any(isinstance(point, PlacedStep) for point in data):
        others = {
            "strategy": strategy not in (None, "all-reduce"), "method": method != "auto", "form": form != "links",
            "throughputs": bool(throughputs), "sparse_gradients": sparse_gradients,
            "parameter_bytes": parameter_bytes is not None,
            **{name: number is not None for name, number in numbers.items()},
            **{name: name != "batch_size" for name in changes | told},
        }  # fmt: skip
        if asked_too := next((name for name, so in others.items() if so), None):
            raise ModelError(f"predict: {asked_too} does not apply to a job measured by placement; leave it out")
        return fit_placements(cast("Sequence[PlacedStep]", data)).throughput(
            counts, gpus_per_node=gpus_per_node, batch_size=changes.get("batch_size"), confidence=confidence, seed=seed
        )
    data = cast("Profile | Sequence[Throughput]", data)
    if gpus_per_node is not None:
        raise ModelError("predict: gpus_per_node is for a job measured by placement (step times by nodes and GPUs)")
    if isinstance(data, Profile):
        data = data.told(**told)
    elif told:
        raise ModelError(f"predict: {next(iter(told))} is told of a profile; throughputs alone have no use for it")
    measured = as_throughputs(throughputs)
    given, strategy = strategy, strategy or recorded_strategy(data)
    require_choice(strategy, "predict: strategy", STRATEGIES)
    if isinstance(data, Profile) and data.rounds and not data.steps and strategy != "all-reduce":
        raise ModelError("predict: the profile has synchronous rounds only; ask with strategy 'all-reduce'")
    stepped = isinstance(data, Profile) and bool(data.steps)
    in_rounds = strategy == "all-reduce" or (strategy == "sync-ps" and not stepped and not backup_workers)
    _require_fitting(strategy, changes, numbers, in_rounds=in_rounds)
    had: dict[str, Any] = {}
    if not isinstance(data, Profile):
        had = {"batch_size": changes.pop("batch_size", None), "parameter_bytes": parameter_bytes}
    elif parameter_bytes is not None:
        raise ModelError("predict: parameter_bytes is for throughputs alone; a profile has its own")
    require_told_of(data, {"sparse_gradients": sparse_gradients}, strategy, "predict")
    asked: dict[str, Any] = {"workers": counts, "confidence": confidence}
    if in_rounds:
        if method != "auto" or form != "links":
            raise ModelError(f"predict: method and form are for strategy 'async-ps', not {strategy!r}")
        had |= {"sparse_gradients": sparse_gradients}
        if not (isinstance(data, Profile) and (data.steps or data.rounds)):
            had["ranks_per_node"] = changes.pop("ranks_per_node", None)
        model = fit(data, strategy=strategy, throughputs=measured, **had).what_if(**changes)
        return model.throughput(**asked, **({"seed": seed} if isinstance(model, AllReduceModel) else {}))
    half = _waiting(data, strategy, numbers, counts)
    if isinstance(data, Profile):
        changes = really_changed(data, changes)
        run = {"seed": seed, "progress": progress, **told}
        curve = _simulated(data, measured, method, form, changes, asked | run, half)
        if curve is not None:
            return half.rounds_of(curve) if half else curve
    elif method == "trace":
        raise ModelError(f"predict: method 'trace' {UNTRACED}")
    if asked_too := next((name for name in ONLY_SIMULATED if name in changes), None):
        raise ModelError(
            f"predict: {asked_too} is for the simulation only, got {changes[asked_too]!r}; use method 'trace'"
        )
    fitted = fit(data, strategy=given, throughputs=measured, form=form, seed=seed, **had, **numbers)
    return fitted.what_if(**changes).throughput(**asked)


def _waiting(
    data: Profile | Sequence[Throughput], strategy: Strategy, numbers: dict[str, int | None], workers: list[int]
) -> HalfSynchronous | None:
    """How results or workers on the servers wait for others; None where nobody does."""
    if strategy == "async-ps":
        return None
    if not (isinstance(data, Profile) and data.steps):
        what = "sync-ps with backup workers" if numbers["backup_workers"] else strategy
        raise ModelError(f"predict: strategy {what!r} needs a profile with recorded steps; import or record one")
    half = HalfSynchronous(strategy, numbers[NUMBERS[strategy]])
    half.require_workers(workers)
    return half


def _require_fitting(
    strategy: Strategy, changes: dict[str, Any], numbers: dict[str, int | None], *, in_rounds: bool
) -> None:
    """Refuse questions that belong to another strategy, or to recorded steps."""
    for name in changes:
        if (name in OF_SERVERS and in_rounds) or (name in OWN and strategy != "all-reduce"):
            where = "all-reduce" if name in OWN else "async-ps"
            raise ModelError(f"predict: {name} is a question for strategy {where!r}, not {strategy!r}")
    require_numbers(strategy, numbers, "predict")


def really_changed(profile: Profile, changes: dict[str, Any]) -> dict[str, Any]:
    """Those of the changes that are none of what the profile has: naming its own machines asks for no others."""
    own: dict[str, Any] = {"bandwidth": profile.cluster.bandwidth, "batch_size": profile.job.batch_size}
    if "sharding" not in changes:
        own["parameter_servers"] = profile.cluster.parameter_servers
    return {
        name: value
        for name, value in changes.items()
        if name not in own or isinstance(value, bool) or value != own[name]
    }


UNTRACED = "needs a profile with recorded operations; import one from traces"


def _simulated(
    profile: Profile,
    throughputs: Sequence[Throughput],
    method: Method,
    form: str,
    changes: dict[str, Any],
    asked: dict[str, Any],
    half: HalfSynchronous | None,
) -> ThroughputCurve | None:
    """The curve by simulation of recorded operations, when that is asked for, or best and possible."""
    measured = [*profile.throughputs, *throughputs]
    reason = unsimulated(profile, changes, form)
    if method == "mva" and half and not half.solvable:
        reason = "has no closed network; use method 'trace'"
    if reason and half and not half.solvable:
        raise ModelError(f"predict: strategy {half.name!r} {reason}")
    if reason and method == "trace":
        instead = "" if reason == UNTRACED else "; use method 'mva'"
        raise ModelError(f"predict: method 'trace' {reason}{instead}")
    if reason or method == "mva":
        return None
    from .traces.curve import trace_curve

    return trace_curve(profile, measured=measured, **asked, **changes, **(half.simulated if half else {}))


def unsimulated(profile: Profile, changes: Iterable[str] = (), form: str = "links") -> str:
    """Why the recorded operations cannot be simulated with these changes, or ""."""
    if not any(step.operations for step in profile.steps):
        return UNTRACED
    if unknown := sorted(set(changes) - SIMULATED):
        return f"cannot change {', '.join(unknown)}"
    if form != "links":
        return f"has no form {form!r}"
    if profile.cluster.workers != 1:
        return "needs a profile of one worker, whose transfers nobody else slowed"
    return ""


def load(path: str | os.PathLike[str]) -> Profile | list[Throughput] | list[PlacedStep]:
    """Read a profile (JSON), or measured throughputs or step times by placement (a name in .csv or .csv.gz)."""
    if Path(path).is_dir() or Path(path).name.endswith((".pb", ".pb.gz")):
        raise DataError(f"{path}: no profile; recorded traces become one by queuemodel import-trace FOLDER")
    if not _is_table(path):
        named = Path(path).name.endswith((".json", ".json.gz"))
        if not named and Path(path).is_file() and read_bytes(path).lstrip()[:1] not in (b"{", b"["):
            raise DataError(f"{path}: no profile; throughputs and step times by placement are read from a .csv")
        return Profile.load(path)
    return read_placements(path) if holds_placements(path) else read_throughputs(path)


def _is_table(path: str | os.PathLike[str]) -> bool:
    return Path(path).name.lower().endswith((".csv", ".csv.gz"))


def measured_besides(
    data: Profile | Sequence[Throughput] | Sequence[PlacedStep],
    paths: Iterable[str | os.PathLike[str]],
    points: Iterable[tuple[int, float | None, float]] = (),
) -> list[Throughput | Profile]:
    """
    Read what was measured besides: tables of throughputs (.csv), and profiles of several workers.

    Single ``points`` are workers, bandwidth (None: as profiled) and steps per second, on the servers of ``data``.
    """
    found: list[Throughput | Profile] = []
    for path in paths:
        found += read_throughputs(path) if _is_table(path) else [Profile.load(path)]
    servers = getattr(data.cluster if isinstance(data, Profile) else data[0], "parameter_servers", 1)
    return found + [
        Throughput(workers=n, steps_per_second=speed, bandwidth=bandwidth, parameter_servers=servers)
        for n, bandwidth, speed in points
    ]
