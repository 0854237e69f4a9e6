"""The verbs: a profile or measurements, and a question, to a model, a curve or a simulation.

A question is read and refused here, once; its model follows from the data and from the way of training.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from ..base.checks import require_choice, require_count, require_seed
from ..base.errors import DataError, FitError, ModelError
from ..base.files import read_bytes
from ..curves.curve import ThroughputCurve, require_workers
from ..profile.job import Job
from ..profile.measurements import Measurement, read_measurements
from ..profile.profile import Profile
from ..profile.scenario import FIELDS, NUMBERS, Scenario, of_group
from ..profile.synchronization import Synchronization
from ..profile.throughputs import as_throughputs, on_profiled_links, require_measured, warn_of_rounds
from ..simulator.result import SimulatedRun
from ..simulator.runs import slowdowns
from ..simulator.simulate import simulate_operations
from .closed_network.calibration import fit_network
from .closed_network.demands import Form
from .closed_network.fit import own_scv
from .closed_network.model import TrainingModel
from .model import Model
from .rounds.fit import fit_rounds, rounds_of_steps
from .rounds.model import AllReduceModel
from .rounds.view import SimulatedRounds, simulate_rounds
from .scaling import ScalingModel, fit_scaling
from .scaling.model import Strategy as TableStrategy
from .simulation.model import SimulationModel

PathName: TypeAlias = str | os.PathLike[str]
Data: TypeAlias = Profile | Sequence[Measurement]
Measured: TypeAlias = PathName | Iterable[Measurement | Profile | PathName]

METHODS = ("auto", "mva", "trace")
UNTRACED = "needs a profile with recorded operations; import one from traces"
#: What is assumed of throughputs alone where no strategy is given.
ASSUMED = "assuming asynchronous parameter servers (async-ps), not data-parallel (all-reduce)"
#: What may be known of throughputs alone besides, by way of training.
KNOWN: dict[str, tuple[str, ...]] = {
    "async-ps": ("batch_size", "parameter_bytes"),
    "sync-ps": ("batch_size", "parameter_bytes", "sparse_gradients"),
    "all-reduce": ("batch_size", "parameter_bytes", "sparse_gradients", "ranks_per_node"),
}
#: What all-reduce has not.
OF_SERVERS = ("parameter_servers", "shards", "worker_speeds", *of_group("simulation"))
#: Fields of a scenario that are no change of a model's.
NO_MACHINES = (*of_group("job"), *of_group("form"), *of_group("throughputs"), *of_group("network"))


def fit(
    data: Data | PathName,
    scenario: Scenario | None = None,
    *,
    throughputs: Measured = (),
    seed: int = 0,
    **fields: Any,
) -> TrainingModel | AllReduceModel | ScalingModel:
    """Fit the model of a training job.

    Steps on parameter servers give a closed network (`TrainingModel`) of asynchronous workers, of a barrier (sync-ps)
    and of k-batch-async; other half-synchronous strategies are simulated by `predict` alone. Recorded rounds of
    data-parallel training give an `AllReduceModel`, and so do operations of steps on servers, for all-reduce. Of
    tables of measurements a `ScalingModel` is fitted, whose prior is learnt from published jobs.

    Parameters
    ----------
    data : Profile, or sequence of Measurement, or the path of a file that `load` reads
    scenario : Scenario, optional
        How the job trains (what the profile recorded unless given, and asynchronously for throughputs
        alone), and what differs from the profile.
    throughputs : sequence of Measurement
        Measured for other node counts, besides those in the profile; or paths of tables of them.
    seed : int
        Of the resampling.
    **fields
        Fields of `Scenario`. Of throughputs alone: ``batch_size`` (1 unless given) and ``parameter_bytes`` of the job,
        which give the approximate saturation point of asynchronous servers, better with the bandwidth of their links,
        which all throughputs may have; of synchronous training ``sparse_gradients``, that most parameters are
        embeddings, of which a step touches few rows, so that rounds grow with the group; and ``ranks_per_node`` of
        all-reduce, whose workers are ranks on whole nodes: most of what a ring sends crosses the network from the
        second node on, and grows little after.

    Returns
    -------
    TrainingModel, AllReduceModel or ScalingModel
        Each has ``what_if(...)`` and ``throughput(workers)``.

    Raises
    ------
    DataError
        For a throughput that the profile rules out.
    FitError
        When there is nothing to fit.
    ModelError
        For what is neither profile nor throughputs, an unknown strategy or form, a number that the strategy has not, or
        measurements that it is not distinguishable from.

    Warns
    -----
    QueueModelWarning
        Where throughputs of synchronous training look like rounds per second.
    """
    data = read_if_path(data)
    require_measured(data, "fit")
    measured = as_throughputs(measured_besides(data, throughputs))
    require_seed(seed, "fit: seed")
    question = (scenario or Scenario()).updated(**fields)
    strategy = require_answerable(data, question)
    return _fitted(cast("Profile | Sequence[Measurement]", data), question, strategy, measured, seed)


def _fitted(
    data: Profile | Sequence[Measurement],
    question: Scenario,
    strategy: str,
    throughputs: Sequence[Measurement],
    seed: int,
) -> TrainingModel | AllReduceModel | ScalingModel:
    """The model that is solved, of a question that belongs to the data."""
    profile = data if isinstance(data, Profile) else None
    if profile:
        profile, question = question.on(profile)
    stepped = profile is not None and bool(profile.steps)
    rounds = profile is not None and bool(profile.rounds)
    machines = {name: value for name, value in question.specified.items() if name not in NO_MACHINES}
    if question.form and (strategy == "all-reduce" or not stepped):
        raise ModelError("form applies to steps on parameter servers alone; leave it out")
    if rounds and not stepped and strategy != "all-reduce":
        raise ModelError("the profile has synchronous rounds only; use strategy 'all-reduce'")
    if not rounds and not stepped and strategy in KNOWN and not question.backup_workers:
        return _of_table(data, throughputs, question, strategy, seed)
    if profile and strategy == "all-reduce":
        fitted = fit_rounds(profile) if rounds else rounds_of_steps(profile)
        return AllReduceModel(fitted, measured=tuple(on_profiled_links(throughputs, profile))).what_if(**machines)
    what = "sync-ps with backup workers" if question.backup_workers else strategy
    if profile is None or not stepped:
        raise ModelError(f"strategy {what!r} needs a profile with recorded steps; import or record one")
    waiting = question.synchronization
    if not waiting.solvable:
        raise ModelError(f"strategy {what!r} is not a closed network; `predict` simulates recorded operations")
    form = cast("Form", question.form or "links")
    synchronized: list[Measurement] = []
    if waiting != Synchronization():  # one worker waits for nobody
        synchronized = on_profiled_links([point for point in throughputs if point.workers > 1], profile)
        throughputs = [point for point in (*profile.throughputs, *throughputs) if point.workers == 1]
        profile = msgspec.structs.replace(profile, throughputs=[])
    network = fit_network(profile, throughputs=throughputs, form=form, seed=seed)
    if waiting.together:
        network = replace(network, barrier=own_scv(profile))
    steps_per_round = 0 if waiting.together else waiting.number
    return replace(network, steps_per_round=steps_per_round, synchronized=tuple(synchronized)).what_if(**machines)


def _of_table(
    data: Profile | Sequence[Measurement],
    throughputs: Sequence[Measurement],
    question: Scenario,
    strategy: str,
    seed: int,
) -> ScalingModel:
    """Of a table of measurements, or of a profile that has no more."""
    profile = data if isinstance(data, Profile) else None
    if profile and (own := question.of(KNOWN["async-ps"])):
        raise ModelError(f"{next(iter(own))} applies to tables of measurements; a profile has its own")
    if of_network := question.of(of_group("network")):
        raise ModelError(f"{next(iter(of_network))} does not apply to measurements alone; leave it out")
    measured = as_throughputs([*(data.throughputs if isinstance(data, Profile) else data), *throughputs])
    if not measured:
        raise FitError("fit: at least one measurement is needed, got none")
    if profile:
        measured = on_profiled_links(measured, profile)
    links, profiled = {point.bandwidth for point in measured}, profile.cluster.bandwidth if profile else None
    if len(links) > 1 or (profiled is not None and links != {None}):
        raise FitError("fit: measurements alone do not determine the effect of bandwidth; give those of one bandwidth")
    link, ranks = next(iter(links), None) or profiled, question.ranks_per_node
    if ranks and (wrong := next((p for p in measured if p.nodes is None and p.workers % ranks), None)):
        raise FitError(
            f"fit: workers are ranks on whole nodes of {ranks} (ranks_per_node), got a measurement of {wrong.workers}; "
            "leave groups inside a node out, or give a column nodes"
        )
    sizes = {point.batch_size for point in measured if point.batch_size}
    sized, size = bool(sizes), question.batch_size or (min(sizes) if len(sizes) == 1 else None)
    g = ranks or question.gpus_per_node or max(p.fullest_node for p in measured)
    rows = [msgspec.structs.replace(p, bandwidth=None) for p in measured]
    if ranks or on_nodes(measured):  # those without nodes are on as few as they fit, with the batch that is asked for
        rows = [
            p if p.nodes else msgspec.structs.replace(
                p, nodes=-(-p.workers // g), gpus_per_node=min(p.workers, g), batch_size=p.batch_size or size
            )
            for p in rows
        ]  # fmt: skip
    job = profile.job if profile else None
    if job is None and not sized:
        bytes_known = int(question.parameter_bytes or 0)
        job = Job(batch_size=question.batch_size or 1, parameter_bytes=bytes_known, tensors=0)
    model = fit_scaling(
        rows,
        strategy=cast("TableStrategy", strategy),
        sparse_gradients=bool(question.sparse_gradients),
        parameter_bytes=(job.parameter_bytes if job else question.parameter_bytes) or None,
        link=link,
        seed=seed,
    )
    if strategy != "async-ps" and not getattr(data, "strategy", "") and not on_nodes(data):
        warn_of_rounds(rows)
    assumed = "" if question.strategy else ASSUMED if strategy == "async-ps" else getattr(data, "note", "")
    used = ("ranks_per_node", "parameter_bytes", "sparse_gradients", *(() if sized else ("batch_size",)))
    machines = {n: v for n, v in question.specified.items() if n not in (*NO_MACHINES, *used)}
    return replace(model, known_job=job, assumption=assumed).what_if(**machines)


def predict(
    data: Data | PathName,
    scenario: Scenario | None = None,
    *,
    workers: int | Iterable[int] = range(1, 33),
    method: str = "auto",
    throughputs: Measured = (),
    confidence: float = 0.9,
    seed: int = 0,
    progress: bool = False,
    **fields: Any,
) -> ThroughputCurve:
    """Predict throughput against the number of workers.

    Parameters
    ----------
    data : Profile, or sequence of Measurement
        A worker of measurements on nodes is a GPU. Or the path of a file with one of these, which `load` reads.
    scenario : Scenario, optional
        How the job trains, and what differs from the profile. Asynchronous workers on parameter servers, a barrier
        (``"sync-ps"`` without backup workers) and ``"k-batch-async"`` have a closed network; all half-synchronous
        strategies are simulated (docs/explanation/strategies); ``"all-reduce"`` trains in rounds that end in one,
        from recorded rounds, throughputs, or the operations of steps on servers.
    workers : iterable of int
    method : {"auto", "mva", "trace"}
        ``"mva"`` fits the closed network and solves it; ``"trace"`` simulates the recorded operations; ``"auto"`` takes
        the simulation when the profile holds operations of one worker alone and covers everything requested.
    throughputs : sequence of Measurement or Profile
        Measured besides the profile, or paths, of workers who wait for each other as in the scenario; of a profile of
        several workers, what its steps show. They condition what is predicted (`queuemodel.curves.prediction`).
    confidence : float
        Probability of the interval.
    seed : int
    progress : bool
        Show a progress bar on standard error.
    **fields
        Fields of `Scenario`; of throughputs alone see `fit`, of placements ``gpus_per_node`` and ``batch_size``, which
        they need where several were measured. ``worker_bandwidth`` and ``worker_speeds`` are for the largest number of
        workers or more.

    Raises
    ------
    ModelError
        For an unknown method, or a question that the data do not answer.
    """
    data = cast("Data", read_if_path(data))
    require_measured(data, "predict")
    throughputs = measured_besides(data, throughputs)
    require_choice(method, "predict: method", METHODS)
    counts = require_workers(workers).tolist()
    require_seed(seed, "predict: seed")
    question = (scenario or Scenario()).updated(**fields)
    measured, strategy = as_throughputs(throughputs), require_answerable(data, question)
    model: Model
    if isinstance(data, Profile) and data.steps and strategy != "all-reduce":
        waiting = question.synchronization
        waiting.require_workers(counts[0])
        if simulated(data, question, method):
            profile, question = question.on(data)
            alike = [p for p in data.throughputs if p.workers == 1 or waiting == Synchronization()]
            model = SimulationModel(profile, (*alike, *measured), waiting, {"progress": progress})
            return model.throughput(counts, confidence=confidence, seed=seed, **question.of(model.changes))
    elif method == "trace" or (method == "mva" and strategy == "all-reduce"):
        raise ModelError(f"predict: method {method!r} {UNTRACED}")
    for name in question.of(of_group("simulation")):
        raise ModelError(f"predict: {name} applies to the simulation only; use method 'trace'")
    model = _fitted(cast("Profile | Sequence[Measurement]", data), question, strategy, measured, seed)
    return model.throughput(counts, confidence=confidence, seed=seed)


def simulated(profile: Profile, question: Scenario, method: str) -> bool:
    """Whether the recorded operations are simulated, or else the closed network is solved.

    Raises
    ------
    ModelError
        Where the data allow neither.
    """
    reason, waiting = unsimulated(profile, question), question.synchronization
    if method == "mva" and not waiting.solvable:
        reason = "has no closed network; use method 'trace'"
    if reason and not waiting.solvable:
        raise ModelError(f"predict: strategy {waiting.name!r} {reason}")
    if reason and method == "trace":
        instead = "" if reason == UNTRACED else "; use method 'mva'"
        raise ModelError(f"predict: method 'trace' {reason}{instead}")
    return not reason and method != "mva"


def unsimulated(profile: Profile, question: Scenario) -> str:
    """Why the recorded operations cannot be simulated with these changes, or ""."""
    if not any(step.operations for step in profile.steps):
        return UNTRACED
    fields = question.on(profile)[1].specified
    solved_alone = {*TrainingModel.changes} - {*SimulationModel.changes}
    if unknown := sorted(solved_alone.intersection(fields)):
        return f"cannot change {', '.join(unknown)}"
    if question.form not in (None, "links"):
        return f"has no form {question.form!r}"
    if profile.cluster.workers != 1:
        return "requires a profile of one worker, without contention"
    return ""


def simulate(
    profile: Profile | PathName,
    scenario: Scenario | None = None,
    *,
    workers: int,
    steps: int = 200,
    seed: int = 0,
    confidence: float = 0.9,
    progress: bool = False,
    **settings: Any,
) -> SimulatedRun | SimulatedRounds:
    """Simulate a training job of so many workers, operation by operation or round by round.

    Parameters
    ----------
    profile : Profile, or path
        With recorded operations, or for ``"all-reduce"`` recorded rounds.
    scenario : Scenario, optional
        How the job trains, and what differs from the profile.
    workers : int
    steps : int
        Of each worker on average; of synchronous training, rounds.
    seed : int
    confidence : float
    progress : bool
        Show a progress bar on standard error, of a simulation of operations.
    **settings
        Fields of `Scenario`; of operations also settings of `queuemodel.simulator.simulate`.

    Raises
    ------
    ModelError
        For arguments that make no sense.

    Examples
    --------
    >>> from queuemodel import example_profile
    >>> simulate(example_profile("ddp-alexnet-40"), workers=4, steps=50).ranks
    4
    """
    if not isinstance(profile := read_if_path(profile), Profile):
        raise ModelError(f"simulate: expected a Profile, got {type(profile).__name__}; Profile.load reads one")
    fields = {name: settings.pop(name) for name in list(settings) if name in FIELDS}
    question = (scenario or Scenario()).updated(**fields)
    strategy = require_answerable(profile, question)
    if strategy == "all-reduce":
        if settings:
            raise ModelError(f"simulate: {next(iter(settings))} applies to recorded operations, not to all-reduce")
        model = cast("AllReduceModel", fit(profile, question.updated(strategy=strategy), seed=seed))
        return simulate_rounds(model, ranks=workers, rounds=steps, seed=seed, confidence=confidence)
    waiting = question.synchronization
    profile, question = question.on(profile)
    if wrong := next((n for n in question.specified if n not in (*of_group("job"), *SimulationModel.changes)), None):
        raise ModelError(f"simulate: {wrong} does not apply to a simulation of operations; use `predict`")
    require_count(workers, "simulate: workers")
    waiting.require_workers(workers)
    speeds = question.of(("worker_speeds", "accelerator_speed"))
    settings |= {name: value for name, value in question.of(SimulationModel.changes).items() if name not in speeds}
    if speeds:
        slower = slowdowns(workers, question.worker_speeds, question.accelerator_speed or 1.0)
        settings["slowdown"] = slower[:workers]
    return simulate_operations(
        profile,
        workers=workers,
        steps=steps,
        seed=seed,
        confidence=confidence,
        progress=progress,
        synchronization=waiting,
        **settings,
    )


def require_answerable(data: object, question: Scenario) -> str:
    """How the job trains, as specified, recorded, or else asynchronously; what belongs to other ways is refused."""
    recorded = isinstance(data, Profile) and data.rounds and not data.steps
    told = getattr(data, "strategy", "") or ("all-reduce" if recorded or on_nodes(data) else "async-ps")
    strategy = question.strategy or told
    alone = not isinstance(data, Profile) or not (data.steps or data.rounds)
    if on_nodes(data) and strategy != "all-reduce":
        raise ModelError(f"a table of GPUs on nodes is of strategy 'all-reduce', not {strategy!r}")
    if question.gpus_per_node is not None and not (alone and strategy == "all-reduce"):
        raise ModelError("gpus_per_node applies to tables of step times or rates of 'all-reduce'")
    for name in question.of(of_group("throughputs")):
        if not alone or name not in KNOWN.get(strategy, ()):
            kinds = " or ".join(kind for kind, names in KNOWN.items() if name in names)
            raise ModelError(f"{name} applies to throughputs of {kinds} alone; leave it out")
    for name in question.specified:
        others = [way for way, has in NUMBERS.items() if has == name]
        if name in of_group("rounds") and strategy != "all-reduce":
            raise ModelError(f"{name} applies to strategy 'all-reduce', not {strategy!r}")
        if name in OF_SERVERS and strategy == "all-reduce":
            raise ModelError(f"{name} applies to training on parameter servers, not to 'all-reduce'")
        if others and strategy not in others:
            raise ModelError(f"{name} applies to strategy {', '.join(others)}, not {strategy!r}")
    return strategy


def on_nodes(data: object) -> bool:
    """Whether it is a table that says on how many nodes GPUs were measured."""
    return isinstance(data, Sequence) and any(getattr(point, "nodes", None) is not None for point in data)


def load(path: PathName) -> Profile | Sequence[Measurement]:
    """Read a profile (JSON), or a table of measurements (a name in .csv or .csv.gz)."""
    if Path(path).is_dir() or Path(path).name.endswith((".pb", ".pb.gz")):
        raise DataError(f"{path}: not a profile; recorded traces become one by queuemodel import-trace FOLDER")
    if Path(path).name.endswith((".json", ".json.gz")) or read_bytes(path).lstrip()[:1] in (b"{", b"["):
        return Profile.load(path)
    if not Path(path).name.lower().endswith((".csv", ".csv.gz")):
        raise DataError(f"{path}: not a profile; tables of measurements are read from a .csv")
    return read_measurements(path)


def read_if_path(data: Any) -> Any:
    """What `load` reads, of a path; else the same."""
    return load(data) if isinstance(data, str | os.PathLike) else data


def measured_besides(
    data: Any, measured: Measured, points: Iterable[tuple[int, float | None, float]] = ()
) -> list[Measurement | Profile]:
    """What was measured besides, read where it is a path: throughputs, and profiles of several workers.

    Single ``points`` are workers, bandwidth (None: as profiled) and steps per second, on the servers of ``data``.
    """
    found = map(read_if_path, [measured] if isinstance(measured, str | os.PathLike) else measured)
    servers = getattr(data.cluster if isinstance(data, Profile) else data[0], "parameter_servers", 1) if points else 1
    return [one for some in found for one in (some if isinstance(some, Sequence) else [some])] + [
        Measurement(workers=n, steps_per_second=speed, bandwidth=bandwidth, parameter_servers=servers)
        for n, bandwidth, speed in points
    ]
