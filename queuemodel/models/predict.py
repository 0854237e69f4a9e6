"""One question, every method: throughput against node count from whatever was measured."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from ..base.checks import require_choice
from ..base.errors import DataError, ModelError
from ..base.files import read_bytes
from ..curves.curve import ThroughputCurve, require_workers
from ..profile.job import Throughput
from ..profile.profile import Profile
from ..profile.scenario import Scenario, of_group
from ..profile.throughputs import as_throughputs, read_throughputs, require_measured
from .closed_network import TrainingModel
from .fit import fit, require_answerable, strategy_of
from .half_synchronous import HalfSynchronous
from .placements import PlacedStep, PlacementModel, fit_placements, holds_placements, read_placements
from .simulation import SimulationModel

METHODS = ("auto", "mva", "trace")
#: What the simulation of recorded operations can be asked.
SIMULATED = (*of_group("simulation"), "bandwidth", "parameter_servers", "worker_speeds", "accelerator_speed")

UNTRACED = "needs a profile with recorded operations; import one from traces"


def predict(
    data: Profile | Sequence[Throughput] | Sequence[PlacedStep],
    scenario: Scenario | None = None,
    *,
    workers: int | Iterable[int] = range(1, 33),
    method: str = "auto",
    throughputs: Sequence[Throughput | Profile] = (),
    confidence: float = 0.9,
    seed: int = 0,
    progress: bool = False,
    **asked: Any,
) -> ThroughputCurve:
    """Predict throughput against the number of workers.

    Parameters
    ----------
    data : Profile, or sequence of Throughput or of PlacedStep
        A worker of the latter is a GPU.
    scenario : Scenario, optional
        How the job trains, and what differs from the profile. Asynchronous workers on parameter servers, a barrier
        (``"sync-ps"`` without backup workers) and ``"k-batch-async"`` have a closed network; all half-synchronous
        strategies are simulated (docs/explanation/half-synchronous); ``"all-reduce"`` trains in rounds that end in one,
        from recorded rounds, throughputs, or the operations of steps on servers.
    workers : iterable of int
    method : {"auto", "mva", "trace"}
        ``"mva"`` fits the closed network and solves it; ``"trace"`` simulates the recorded operations; ``"auto"`` takes
        the simulation when the profile holds operations of one worker alone and nothing is asked that it does not have.
    throughputs : sequence of Throughput or Profile
        Measured besides the profile; of a profile of several workers, what its steps show. They calibrate what is
        predicted: the closed network's demands, or the simulation's networks (`queuemodel.models.calibrate`).
    confidence : float
        Probability of the interval.
    seed : int
    progress : bool
        Show a progress bar on standard error.
    **asked
        Fields of `Scenario`; of throughputs alone see `fit`, of placements ``gpus_per_node`` and ``batch_size``, which
        they need where several were measured. ``worker_bandwidth`` and ``worker_speeds`` are for the largest number of
        workers or more.

    Raises
    ------
    ModelError
        For an unknown method, or a question that the data do not answer.
    """
    require_measured(data, "predict")
    require_choice(method, "predict: method", METHODS)
    counts = require_workers(workers).tolist()
    question = (scenario or Scenario()).and_also(**asked)
    if not isinstance(data, Profile) and any(isinstance(point, PlacedStep) for point in data):
        placed = _of_placements(cast("Sequence[PlacedStep]", data), question, method, throughputs)
        return placed.what_if(**question.of(placed.changes)).throughput(counts, confidence=confidence, seed=seed)
    if question.gpus_per_node is not None:
        raise ModelError("predict: gpus_per_node is for a job measured by placement (step times by nodes and GPUs)")
    measured, strategy = as_throughputs(throughputs), strategy_of(data, question)
    require_answerable(data, question, strategy)
    stepped = isinstance(data, Profile) and bool(data.steps)
    if stepped and strategy != "all-reduce":
        profile = cast("Profile", data)
        half, question = HalfSynchronous.of(question, strategy), question.relative_to(profile)
        if half:
            half.require_workers(counts)
        reason = unsimulated(profile, question)
        if simulated(reason, half, method):
            measured = [*profile.throughputs, *measured]
            told = profile.told(**question.of(of_group("network")))
            simulation = SimulationModel(told, tuple(measured), half, {"progress": progress})
            asked = question.of(simulation.changes)
            return simulation.what_if(**asked).throughput(counts, confidence=confidence, seed=seed)
    elif method == "trace" or (method == "mva" and strategy == "all-reduce"):
        raise ModelError(f"predict: method {method!r} {UNTRACED}")
    for name in question.of(of_group("simulation")):
        raise ModelError(f"predict: {name} is for the simulation only; use method 'trace'")
    model = fit(cast("Profile | Sequence[Throughput]", data), question, throughputs=measured, seed=seed)
    return model.throughput(counts, confidence=confidence, seed=seed)


def _of_placements(
    data: Sequence[PlacedStep], question: Scenario, method: str, throughputs: Sequence[Any]
) -> PlacementModel:
    others = [name for name in question.asked if name not in ("strategy", "batch_size", "gpus_per_node")]
    others += ["strategy"] * (question.strategy not in (None, "all-reduce"))
    others += ["method"] * (method != "auto") + ["throughputs"] * bool(throughputs)
    if others:
        raise ModelError(f"predict: {others[0]} does not apply to a job measured by placement; leave it out")
    return fit_placements(data)


def simulated(reason: str, half: HalfSynchronous | None, method: str) -> bool:
    """Whether a prediction is a simulation, by why it cannot be (empty: it can), the strategy and what is asked for.

    Raises
    ------
    ModelError
        Where the data allow neither.
    """
    solvable = half is None or half.solvable
    if method == "mva" and not solvable:
        reason = "has no closed network; use method 'trace'"
    if reason and half and not solvable:
        raise ModelError(f"predict: strategy {half.name!r} {reason}")
    if reason and method == "trace":
        instead = "" if reason == UNTRACED else "; use method 'mva'"
        raise ModelError(f"predict: method 'trace' {reason}{instead}")
    return not reason and method != "mva"


def unsimulated(profile: Profile, question: Scenario) -> str:
    """Why the recorded operations cannot be simulated with these changes, or ""."""
    if not any(step.operations for step in profile.steps):
        return UNTRACED
    if unknown := [
        name for name in TrainingModel.changes if name not in SIMULATED and name in question.relative_to(profile).asked
    ]:
        return f"cannot change {', '.join(sorted(unknown))}"
    if question.form not in (None, "links"):
        return f"has no form {question.form!r}"
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
