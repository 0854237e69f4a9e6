"""The verbs `fit`, `predict` and `simulate`: from data and a question to a model, a curve or a simulation.

A question is read and refused here, once; its model is the first of `MODELS` that does not refuse it.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, Unpack, cast

from ..base.checks import require_choice, require_count, require_seed
from ..base.errors import DataError, ModelError, QueueModelWarning
from ..base.files import count_in, read_bytes
from ..curves.curve import ThroughputCurve, require_workers
from ..profile.measurements import Measurement, read_measurements
from ..profile.profile import Profile
from ..profile.scenario import FIELD_KINDS, FIELDS, NUMBERS, SHARDED, SYNONYMS, Changes, Scenario, of_group
from ..profile.synchronization import SYNCHRONIZATIONS
from ..profile.throughputs import as_throughputs, require_measured
from ..queueing.solve import Solver
from ..simulator.links import LinkRates
from ..simulator.result import SimulatedRun
from ..simulator.simulate import simulate_operations, slowdowns
from . import closed_network, rounds, scaling, sharded, simulation
from .closed_network import ClosedNetworkModel
from .model import OTHER_DATA, Data, Model, ModelKind, on_nodes, strategy_of
from .rounds import RoundModel, SimulatedRounds, simulate_rounds
from .scaling.table import TABLE_FIELDS
from .simulation.model import SimulationModel, on_links

PathName: TypeAlias = str | os.PathLike[str]
Measured: TypeAlias = PathName | Iterable[Measurement | Profile | PathName]
MODELS: tuple[ModelKind, ...] = (sharded, simulation, closed_network, rounds, scaling)  #: In order of preference.
METHODS = ("auto", *(kind.METHOD for kind in MODELS if kind.METHOD))
ON_NODES = ("all-reduce", *SHARDED)  #: Strategies without parameter servers.
OF_SERVERS = ("parameter_servers", "shards", *of_group("simulation"))  #: Fields that apply to parameter servers only.


class PredictionSettings(Changes, total=False):
    """What `predict` takes besides data and workers."""

    method: str | Solver
    throughputs: Measured
    confidence: float
    seed: int
    progress: bool


class SimulationSettings(Changes, total=False):
    """Fields of `Scenario`, and settings of `queuemodel.simulator.simulate_operations`."""

    in_phase: bool
    trace_steps: int
    links: LinkRates | None
    slowdown: Sequence[float] | None
    loaded_trip: float | None
    unfairness: float | None
    window_kept: float | None


def fit(
    data: Data | PathName,
    scenario: Scenario | None = None,
    *,
    throughputs: Measured = (),
    seed: int = 0,
    **fields: Unpack[Changes],
) -> Model:
    """Fit the model of a training job.

    Steps on parameter servers give a `ClosedNetworkModel` of asynchronous workers, of a barrier (sync-ps) and of
    k-batch-async; other half-synchronous strategies are simulated by `predict` alone. Recorded rounds of
    data-parallel training give an `AllReduceModel`, and so do operations of steps on servers, for all-reduce. Of
    tables of measurements a `ScalingModel` is fitted, whose prior is learnt from published jobs.

    Parameters
    ----------
    data : Profile, or measurements
        Or the path of one; measurements also as a DataFrame, a dict of columns, or a list of dicts.
    scenario : Scenario, optional
        The strategy (the profile's unless given, and asynchronous servers for throughputs alone), and what differs from
        the profile.
    throughputs : sequence of Measurement
        Measured for other node counts, besides those in the profile; or paths of tables of them.
    seed : int
        Of the resampling.
    **fields
        Fields of `Scenario`. Of throughputs alone: ``batch_size`` (1 unless given) and ``parameter_bytes`` of the job,
        which give the approximate saturation point of asynchronous servers, better with the bandwidth of their links,
        which all throughputs may have; of synchronous training ``sparse_gradients``, that most parameters are
        embeddings, of which a step touches few rows, so that rounds grow with the group; and ``gpus_per_node`` of
        all-reduce, whose workers are ranks on whole nodes: most of what a ring sends crosses the network from the
        second node on, and grows little after.

    Returns
    -------
    ClosedNetworkModel, AllReduceModel or ScalingModel
        Each has ``what_if(...)`` and ``throughput(workers)``.

    Raises
    ------
    DataError
        For a throughput that the profile rules out.
    FitError
        When there is nothing to fit.
    ModelError
        For data that are neither profile nor throughputs, an unknown strategy or form, a parameter that the strategy
        does not have, or data that do not identify the strategy.

    Warns
    -----
    QueueModelWarning
        Where throughputs of synchronous training look like rounds per second.

    Examples
    --------
    >>> model = fit({"nodes": [1, 2, 4], "gpus_per_node": [8, 8, 8], "step_time_ms": [250, 262, 270]})
    >>> model.parameters["step"].interval()
    0.257 s (0.246 to 0.268), 90 % interval
    """
    data, question, measured = _question_of("fit", data, scenario, throughputs, seed, fields)
    kind = kind_of_model(data, question, [kind for kind in MODELS if kind is not simulation])
    return kind.of(data, question, measured, seed=seed)


def _question_of(
    verb: str, source: Data | PathName, scenario: Scenario | None, throughputs: Measured, seed: int, fields: Any
) -> tuple[Data, Scenario, list[Measurement]]:
    """Data, question and measured throughputs of a verb's arguments."""
    data = cast(Data, as_data(source))
    require_measured(data, verb)
    measured = as_throughputs(further_measurements(data, throughputs))
    require_seed(seed, f"{verb}: seed")
    question = (scenario or Scenario()).updated(**fields)
    require_answerable(data, question)
    return data, question, measured


def kind_of_model(data: Data, question: Scenario, kinds: Sequence[ModelKind] = MODELS) -> ModelKind:
    """The first kind of model that has an answer; else a `ModelError` has the first reason, and another method."""
    reasons = [kind.refuses(data, question) for kind in kinds]
    if "" in reasons:
        return kinds[reasons.index("")]
    method = f"method {kinds[0].METHOD!r}" if len(kinds) == 1 else ""
    reason = next((reason for reason in reasons if reason != OTHER_DATA), f"needs {kinds[0].NEEDS}")
    answering = [kind.METHOD for kind in MODELS if kind not in kinds and not kind.refuses(data, question)]
    other = next(filter(None, answering), "")  # a method of another kind that has an answer
    instead = f"; use method {other!r}{'' if method else ' of predict'}" if other else ""
    raise ModelError(f"{method or f'strategy {strategy_of(data, question)!r}'} {reason}{instead}")


def predict(
    data: Data | PathName,
    scenario: Scenario | None = None,
    *,
    workers: int | Iterable[int] = range(1, 33),
    method: str | Solver = "auto",
    throughputs: Measured = (),
    confidence: float = 0.9,
    seed: int = 0,
    progress: bool = False,
    **fields: Unpack[Changes],
) -> ThroughputCurve:
    """Predict throughput against the number of workers.

    Parameters
    ----------
    data : Profile, or measurements
        As for `fit`. A worker of measurements on nodes is a GPU.
    scenario : Scenario, optional
        How the job trains, and what differs from the profile. Asynchronous workers on parameter servers, a barrier
        (``"sync-ps"`` without backup workers) and ``"k-batch-async"`` have a closed network; all half-synchronous
        strategies are simulated (docs/explanation/strategies); ``"all-reduce"`` trains in rounds that end in one,
        from recorded rounds, throughputs, or the operations of steps on servers.
    workers : iterable of int
    method : {"auto", "mva", "trace"}, or a solver of closed networks
        ``"mva"`` fits the closed network and solves it; ``"trace"`` simulates the recorded operations; ``"auto"`` takes
        the simulation when the profile holds operations of one worker alone and covers everything requested. A solver
        of `queuemodel.queueing`, or one of your own, solves the closed network in place of its rule.
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

    Returns
    -------
    ThroughputCurve
        ``curve[8]`` is that of 8 workers; it prints, draws, saves and gives rows.

    Raises
    ------
    ModelError
        For an unknown method, or a question that the data do not answer.

    Examples
    --------
    >>> rows = {"nodes": [1, 2, 4], "gpus_per_node": [8, 8, 8], "step_time_ms": [250, 262, 270]}
    >>> predict(rows, batch_size=32, workers=[8, 64])[64]
    3.7 iterations/s (3.06 to 4.13), 90 % interval
    """
    counts, kinds = require_workers(workers).tolist(), list[ModelKind]([closed_network])
    data, question, measured = _question_of("predict", data, scenario, throughputs, seed, fields)
    if isinstance(method, str):
        require_choice(method, "predict: method", METHODS)
        kinds = [kind for kind in MODELS if method in ("auto", kind.METHOD)]
    kind = kind_of_model(data, question, kinds)
    if kind.METHOD:  # workers on parameter servers
        question.synchronization.require_workers(counts[0])
    if kind is not simulation and (name := next(iter(question.of(of_group("simulation"))), "")):
        raise ModelError(f"predict: {name} applies to the simulation only; use method 'trace'")
    model = kind.of(data, question, measured, seed=seed)
    if isinstance(model, SimulationModel):
        model = replace(model, settings={"progress": progress})
    if isinstance(model, ClosedNetworkModel) and not isinstance(method, str):
        model = replace(model, solver=method)
    return model.throughput(counts, confidence=confidence, seed=seed)


def simulate(
    profile: Profile | PathName,
    scenario: Scenario | None = None,
    *,
    workers: int,
    steps: int = 200,
    seed: int = 0,
    confidence: float = 0.9,
    progress: bool = False,
    **given: Unpack[SimulationSettings],
) -> SimulatedRun | SimulatedRounds:
    """Simulate a training job, operation by operation or round by round.

    Parameters
    ----------
    profile : Profile, or path
        With recorded operations, or recorded rounds of data-parallel or sharded training.
    scenario : Scenario, optional
        How the job trains, and what differs from the profile.
    workers : int
    steps : int
        Of each worker on average; of synchronous training, rounds.
    seed : int
    confidence : float
    progress : bool
        Show a progress bar on standard error, of a simulation of operations.
    **given
        Fields of `Scenario`; of operations also settings of `queuemodel.simulator.simulate_operations`.

    Examples
    --------
    >>> from queuemodel import example_profile
    >>> simulate(example_profile("ddp-alexnet-40"), workers=4, steps=50).ranks
    4
    """
    if not isinstance(profile := as_data(profile), Profile):
        raise ModelError(f"simulate: expected a Profile, got {type(profile).__name__}; Profile.load reads one")
    settings: dict[str, Any] = {**given}
    fields = cast(Changes, {name: settings.pop(name) for name in given if name in (*FIELDS, *SYNONYMS)})
    question = (scenario or Scenario()).updated(**fields)
    strategy = require_answerable(profile, question)
    if strategy in ON_NODES:
        if settings:
            raise ModelError(f"simulate: {next(iter(settings))} applies to recorded operations, not to {strategy}")
        model = cast(RoundModel, fit(profile, question.updated(strategy=strategy), seed=seed))
        return simulate_rounds(model, ranks=workers, rounds=steps, seed=seed, confidence=confidence)
    require_count(workers, "simulate: workers")
    question.synchronization.require_workers(workers)
    profile, question = question.on(profile)
    supported = (*of_group("job"), *SimulationModel.changes)
    if unsupported := [name for name in question.specified if name not in supported]:
        raise ModelError(f"simulate: {unsupported[0]} does not apply to a simulation of operations; use `predict`")
    settings |= on_links(question, profile).of(SimulationModel.changes)
    each, every = (settings.pop(name, None) for name in ("worker_speeds", "accelerator_speed"))
    if each or every:  # a slowdown is the inverse of a speed
        settings["slowdown"] = slowdowns(workers, each, every or 1.0)[:workers]
    return simulate_operations(
        profile, workers=workers, steps=steps, seed=seed, confidence=confidence, progress=progress,
        synchronization=question.synchronization, **settings,
    )  # fmt: skip


def require_answerable(data: Data, question: Scenario) -> str:
    """The strategy; fields that do not apply to it are refused."""
    strategy = strategy_of(data, question)
    throughputs_only = not isinstance(data, Profile) or not (data.steps or data.rounds)
    if strategy in SHARDED and isinstance(data, Profile) and not (throughputs_only or data.strategy):
        raise ModelError(f"strategy {strategy!r} needs a table of step times or rates, not a profile of other training")
    if on_nodes(data) and strategy not in ON_NODES:
        raise ModelError(f"a table of GPUs on nodes is of strategy {', '.join(ON_NODES)}, not {strategy!r}")
    for name in question.of(of_group("throughputs")):
        if not throughputs_only or name not in TABLE_FIELDS.get(strategy, ()):
            strategies = " or ".join(kind for kind, names in TABLE_FIELDS.items() if name in names)
            raise ModelError(f"{name} applies to throughputs of {strategies} alone; leave it out")
    for name in question.specified:
        owners = [kind for kind, parameter in NUMBERS.items() if parameter == name]  # strategies with this parameter
        if name in of_group("rounds") and strategy not in ON_NODES:
            raise ModelError(f"{name} applies to strategy 'all-reduce', not {strategy!r}")
        if name in of_group("sharded") and strategy not in SHARDED:
            raise ModelError(f"{name} applies to strategy {', '.join(SHARDED)}, not {strategy!r}")
        if name in OF_SERVERS and strategy in ON_NODES:
            raise ModelError(f"{name} applies to training on parameter servers, not to {strategy!r}")
        if owners and strategy not in owners:
            raise ModelError(f"{name} applies to strategy {', '.join(owners)}, not {strategy!r}")
    return strategy


def load(path: PathName) -> Profile | Sequence[Measurement] | ThroughputCurve:
    """Read a profile or a saved curve (JSON), or a table of measurements (a name in .csv or .csv.gz)."""
    if Path(path).is_dir() or Path(path).name.endswith((".pb", ".pb.gz")):
        raise DataError(f"{path}: not a profile; recorded traces become one by queuemodel import-trace FOLDER")
    if Path(path).name.endswith((".json", ".json.gz")) or read_bytes(path).lstrip()[:1] in (b"{", b"["):
        content = read_bytes(path)
        if re.match(rb'\s*{\s*"format":\s*"queuemodel-curve"', content):
            return ThroughputCurve.from_json(content, where=str(path))
        return Profile.from_json(content, where=str(path))
    if not Path(path).name.lower().endswith((".csv", ".csv.gz")):
        raise DataError(f"{path}: not a profile; tables of measurements are read from a .csv")
    return read_measurements(path)


def load_data(path: PathName) -> Profile | Sequence[Measurement]:
    """Read the data of a prediction: as `load`, but no curve."""
    data = load(path)
    if isinstance(data, ThroughputCurve):
        raise DataError(f"{path}: printed by queuemodel predict; give the file that it was made of")
    return data


def as_data(data: Any) -> Any:
    """Data of a path; measurements of a file, a DataFrame, a dict of columns or a list of dicts."""
    if isinstance(data, str | os.PathLike):
        return load_data(data)
    rows = isinstance(data, list | tuple) and bool(data) and all(isinstance(row, Mapping) for row in data)
    # by attributes: pandas is not imported for it
    table = rows or isinstance(data, Mapping) or hasattr(data, "columns") or hasattr(data, "read")
    return read_measurements(data) if table else data


def further_measurements(
    data: Any, measured: Measured, points: Iterable[tuple[int, float | None, float]] = ()
) -> list[Measurement | Profile]:
    """Throughputs measured besides data, and profiles of several workers, read where they are paths.

    Single ``points`` are workers, bandwidth (None: as profiled) and steps per second, on the servers of ``data``.
    """
    table = as_data(measured)
    sources = [table] if isinstance(measured, str | os.PathLike) else map(as_data, table)
    servers = getattr(data.cluster if isinstance(data, Profile) else data[0], "parameter_servers", 1) if points else 1
    return [item for source in sources for item in (source if isinstance(source, Sequence) else [source])] + [
        Measurement(workers=n, steps_per_second=speed, bandwidth=bandwidth, parameter_servers=servers)
        for n, bandwidth, speed in points
    ]


def curve_of(path: Path, most: int, settings: dict[str, str]) -> ThroughputCurve:
    """Predict a job's speeds on 1 to ``most`` nodes, each worker or rank on one, from the data at ``path``.

    ``settings`` are those of `predict`, as text: ``{"strategy": "sync-ps", "bandwidth": "10Gbit/s"}``. Recorded steps
    are solved as a closed network, if that covers the strategy, unless ``method`` specifies otherwise. An assumed
    strategy of throughputs is a warning.
    """
    known: dict[str, Callable[[str], Any]] = {name: partial(kind, what=name) for name, kind in FIELD_KINDS.items()}
    known |= {"method": str, "seed": count_in}
    for name in (name for name in settings if name not in known):
        raise ModelError(f"{name} is not a setting of a prediction; specify some of {', '.join(known)}")
    fields = {name: known[name](text) for name, text in settings.items()}
    data, min_workers = load(path), 1
    if isinstance(data, Profile) and data.steps and fields.get("strategy", "async-ps") in SYNCHRONIZATIONS:
        numbers = {name: value for name, value in fields.items() if name in ("strategy", *NUMBERS.values())}
        waiting = Scenario(**numbers).synchronization
        min_workers = waiting.least_workers  # a server that takes k gradients at once needs k workers
        if waiting.solvable:  # milliseconds a curve, where simulations take seconds
            fields.setdefault("method", "mva")
    curve = predict(cast(Data, data), workers=range(min_workers, most + 1), **fields)
    if curve.assumption:
        warnings.warn(f"{path}: {curve.assumption}", QueueModelWarning, stacklevel=2)
    return curve
