"""Which measurement to make next: what each is expected to narrow the interval of a prediction by."""

from __future__ import annotations

import inspect
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import groupby
from typing import Any

from .checks import require_choice, require_count, require_seed, require_share
from .errors import ModelError
from .prediction import METHODS, SIMULATED, UNTRACED, Method, predict, really_changed
from .results import Result
from .strategies import AllReduceModel, fit_rounds
from .training import Profile, Throughput, TrainingModel, fit
from .training.curve import require_workers
from .training.ensemble import Ensemble
from .training.job import MOST_WORKERS, TOLD, require_bandwidth, require_network
from .training.predictive import predictive
from .training.throughputs import as_throughputs
from .units import parse_bandwidth, readable_rate

#: To which share of its bandwidth a link is slowed down, where one run is on slower links.
SLOWER = 0.5


def _short(bandwidth: float) -> str:
    return readable_rate(bandwidth).replace(" ", "")


def _exact(bandwidth: float) -> str:
    short = _short(bandwidth)
    return short if math.isclose(parse_bandwidth(short), bandwidth) else f"{bandwidth:.12g}B/s"


def _point(run: Run | Throughput, speed: str) -> str:
    at = "" if run.bandwidth is None else f"@{_exact(run.bandwidth)}"
    return f"{run.workers}{at}={speed}"


#: How options that have a unit, or several values, are written.
WRITTEN: dict[str, Callable[[Any], str]] = {
    "bandwidth": _exact,
    "worker_bandwidth": _exact,
    "buffer": lambda seconds: f"{1e3 * seconds:.12g}ms",
    "parameter_bytes": lambda size: f"{size:.12g}B",
    "measured": lambda point: _point(point, f"{point.steps_per_second:.12g}"),
}


def options_of(asked: Mapping[str, Any]) -> str:
    """Arguments of `predict`, and throughputs ``measured`` besides, as options of its command; nothing for defaults."""
    usual = {name: one.default for name, one in inspect.signature(predict).parameters.items()}
    words = []
    for name, value in asked.items():
        values = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
        if values in ([], [None], [usual.get(name)]):
            continue
        option = f"--{name.replace('_', '-')}"
        texts = list(map(WRITTEN.get(name, _plain), values))
        if name in ("measured", "throughputs"):
            words += [f"{option} {text}" for text in texts]
        else:
            counts = [(text, len(list(same))) for text, same in groupby(texts)]
            words.append(f"{option} {','.join(f'{text}*{n}' if n > 1 else text for text, n in counts)}")
    return " ".join(words)


def _plain(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else shlex.quote(str(value))


@dataclass(frozen=True)
class Run:
    """A run of the job that one could make, on the machines that were profiled.

    Attributes
    ----------
    workers : int
    bandwidth : float or None
        Nominal bytes per second of each host's link, where it is slowed down or another one.
    """

    workers: int
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        require_count(self.workers, "run: workers", most=MOST_WORKERS)
        if self.bandwidth is not None:
            require_bandwidth(self.bandwidth, "run: bandwidth", error=ModelError)

    def __str__(self) -> str:
        slow = "" if self.bandwidth is None else f", links of {_short(self.bandwidth)}"
        return f"{self.workers} worker(s){slow}"

    @property
    def option(self) -> str:
        """How to tell `queuemodel predict` what came out."""
        return f"--measured {_point(self, 'STEPS_PER_SECOND')}"


@dataclass(frozen=True, eq=False, repr=False)
class NextMeasurement(Result):
    """What runs of a minute are expected to narrow intervals by, the one that narrows most first.

    Attributes
    ----------
    workers : tuple of int
        Numbers of workers that are asked about.
    width : float
        Of the interval there now, relative to what is predicted (the mean over `workers`).
    runs : tuple of Run
    expected : tuple of float
        Width that is expected after each.
    confidence : float
    parameter_servers : int
        Machines that every run needs besides its workers.
    source : str
        The file that is predicted from, with the options of what is asked.
    recording : str
        The command that makes a profile of RANKS ranks; of data-parallel rounds, where throughputs would add nothing.
    assumption : str
        What nobody told of how the job trains.
    """

    workers: tuple[int, ...]
    width: float
    runs: tuple[Run, ...]
    expected: tuple[float, ...]
    _: KW_ONLY
    confidence: float
    parameter_servers: int
    source: str
    recording: str = ""
    assumption: str = ""
    digits = 2

    @property
    def recommended(self) -> Run:
        """The run that is expected to narrow most."""
        return self.runs[0]

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per run."""
        asked = ",".join(map(str, self.workers))
        predicted = f"queuemodel predict {self.source} --workers {asked}"
        return [
            {
                "run": str(run),
                "machines": run.workers + self.parameter_servers,
                "expected_width": width,
                "narrower_by": 1 - width / self.width,
                "command": self.recording.replace("RANKS", str(run.workers)) or f"{predicted} {run.option}",
            }
            for run, width in zip(self.runs, self.expected, strict=True)
        ]

    def caption(self) -> str:
        """What is known now, and how to go on."""
        asked = ", ".join(map(str, self.workers))
        after = (
            "once so many ranks are recorded besides:"
            if self.recording
            else "after a minute of training, whose steps of all workers per second go into the command:"
        )
        now = f"{self.confidence:.0%} interval at {asked} worker(s): {self.width:.1%} wide; expected {after}"
        return "; ".join(filter(None, [self.assumption, now]))


def next_measurement(
    model: Profile | Sequence[Throughput] | TrainingModel,
    workers: int | Iterable[int] = 16,
    *,
    throughputs: Sequence[Throughput | Profile] = (),
    runs: Iterable[Run] | None = None,
    method: Method = "auto",
    confidence: float = 0.9,
    seed: int = 0,
    source: str = "profile.json",
    progress: bool = False,
    **changes: Any,
) -> NextMeasurement:
    """
    Say which cheap run would narrow the interval at so many workers most.

    Of data-parallel rounds runs are those that record more ranks, which says more of the network than throughputs do:
    what is expected is the interval that the model has from so many, as its errors are known.

    For each run that one could make, what may come out of it is drawn from what is thought now, the prediction is
    updated by each outcome, and the widths of the intervals that follow are averaged: preposterior analysis (Raiffa and
    Schlaifer, 1961; Lindley, 1956; Chaloner and Verdinelli, 1995). What is thought is the ensemble of simulations that
    `queuemodel.traces.calibrate` weighs, or the draws of the fitted network. That is exact for these and their law of
    errors, but the width now may differ from that of `predict`, which has another form of the same errors.

    Parameters
    ----------
    model : Profile, sequence of Throughput, or TrainingModel
        Of an asynchronous job on parameter servers; or a profile of data-parallel rounds.
    workers : int or iterable of int
        Where the interval is to be narrow.
    throughputs : sequence of Throughput or Profile
        Measured besides the profile.
    runs : iterable of Run, optional
        To choose from. Unless given: one worker, two, about twice the saturation population (at most half of the
        workers asked about), and two workers on links of half the bandwidth, where a profile says what that is; of
        rounds, one rank more than recorded, and twice as many.
    method : {"auto", "mva", "trace"}
        As for `predict`.
    confidence : float
    seed : int
    source : str
        The file that the commands name.
    progress : bool
        Show progress bars of simulations on standard error.
    **changes
        What-ifs of the machines asked about, as for `predict`; runs are on the profiled ones.

    Returns
    -------
    NextMeasurement

    Raises
    ------
    ModelError
        For a job that is not asynchronous, or a method that the data do not allow.

    Examples
    --------
    >>> import queuemodel as qm
    >>> from queuemodel.measuring import next_measurement
    >>> points = [qm.Throughput(workers=1, steps_per_second=2.0), qm.Throughput(workers=2, steps_per_second=3.9)]
    >>> next_measurement(qm.fit(points), workers=8, runs=[Run(1), Run(4)]).recommended
    Run(workers=4, bandwidth=None)
    """
    where = "next_measurement"
    asked = require_workers(workers).tolist()
    require_share(confidence, f"{where}: confidence", open_ended=True)
    require_seed(seed, f"{where}: seed")
    require_choice(method, f"{where}: method", METHODS)
    changes = {name: value for name, value in changes.items() if value is not None}
    told = {name: changes.pop(name) for name in TOLD if name in changes}
    if isinstance(model, Profile):
        require_network(**told, where=f"{where}: ")
        model = model.told(**told)
    elif told:
        raise ModelError(f"{where}: {next(iter(told))} is told of a profile; throughputs alone have no use for it")
    if isinstance(model, Profile) and model.rounds and not model.steps:
        others = {"throughputs": throughputs, "method": method != "auto", **changes}
        return _ranks(model, asked, runs, others, told, confidence=confidence, seed=seed, source=source)
    if not isinstance(model, Profile | TrainingModel | Sequence) or (isinstance(model, Profile) and not _steps(model)):
        raise ModelError(
            f"{where}: model must be a profile with steps, throughputs, or a fit of an asynchronous job on parameter "
            f"servers, got {type(model).__name__}"
        )
    if throughputs and isinstance(model, TrainingModel):
        raise ModelError(f"{where}: throughputs belong to the fit; give them to `fit`, or the profile itself here")
    measured = as_throughputs(throughputs)
    if isinstance(model, Profile):
        changes = really_changed(model, changes)
    simulated = isinstance(model, Profile) and _simulated(model) and set(changes) <= SIMULATED
    if method == "trace" and not simulated:
        raise ModelError(f"{where}: method 'trace' {UNTRACED}, of one worker alone, and changes that it knows")
    network = model if isinstance(model, TrainingModel) else fit(model, throughputs=measured, seed=seed)
    choice = _runs(network, asked) if runs is None else list(dict.fromkeys(runs))
    if not choice or not all(isinstance(run, Run) for run in choice):
        raise ModelError(f"{where}: runs must be one or more to choose from, such as [Run(1), Run(4)], got {choice!r}")
    recorded = network.fitted.recorded
    own = recorded.bandwidth if recorded else None
    said = {"method": method, **told, **changes}
    if isinstance(model, TrainingModel):
        now = model.what_if(**changes)
        said = {name: getattr(now.changes, name) for name in now.changes.other_machines(now.fitted)}
        said |= {"parameter_servers": now.servers.count} if now.servers.count != now.fitted.servers.count else {}
        said |= {"method": "mva", "form": now.servers.form} if recorded else {}
    plain = all((p.parameter_servers, p.standard_error) == (network.fitted.servers.count, None) for p in measured)
    said |= {"measured": measured} if plain else {"throughputs": "THROUGHPUTS.csv"}
    said |= {"confidence": confidence, "seed": seed}
    places = [(run.workers, None if run.bandwidth == own else run.bandwidth) for run in choice]
    if isinstance(model, Profile) and simulated and method != "mva":
        from .traces.calibration import calibrate

        found = calibrate(
            model,
            [*model.throughputs, *measured],
            workers=asked,
            runs=places,
            seed=seed,
            progress=progress,
            **told,
            **changes,
        )
        thought: Ensemble = found.after
        at_runs, at_asked = [found.at_run(*place) for place in places], [found.at_asked(n) for n in asked]
    else:
        thought = predictive(network.what_if(**changes), places, asked)
        at_runs, at_asked = list(range(len(places))), list(range(len(places), len(places) + len(asked)))
    expected = [thought.expected_width(confidence, at_asked, measured=at) for at in at_runs]
    order = sorted(range(len(choice)), key=lambda i: (round(expected[i], 4), choice[i].workers))
    return NextMeasurement(
        tuple(asked),
        thought.width(confidence, at_asked),
        tuple(choice[i] for i in order),
        tuple(expected[i] for i in order),
        confidence=confidence,
        parameter_servers=network.fitted.servers.count,
        source=" ".join(filter(None, [source, options_of(said)])),
        assumption=network.fitted.assumption,
    )


def _ranks(
    profile: Profile,
    asked: Sequence[int],
    runs: Iterable[Run] | None,
    others: dict[str, Any],
    told: dict[str, Any],
    *,
    confidence: float,
    seed: int,
    source: str,
) -> NextMeasurement:
    """The same of data-parallel rounds."""
    if wrong := [name for name, value in others.items() if value]:
        raise ModelError(f"next_measurement: {wrong[0]} does not apply to a profile of rounds; leave it out")
    now = AllReduceModel(fit_rounds(profile))
    ranks = now.fitted.ranks
    choice = [Run(ranks + 1), Run(2 * ranks)] if runs is None else list(dict.fromkeys(runs))
    if not choice or any(type(run) is not Run or run.bandwidth or run.workers <= ranks for run in choice):
        raise ModelError(
            f"next_measurement: runs must be one or more of more ranks than are recorded, on the same links, such as "
            f"[Run({ranks + 1})], got {choice!r}"
        )

    def width(model: AllReduceModel) -> float:
        curve = model.throughput(asked, confidence=confidence, seed=seed)
        return float(((curve.upper - curve.lower) / curve.steps_per_second).mean())

    expected = {run: width(now.once_recorded(run.workers)) for run in choice}
    choice.sort(key=lambda run: (round(expected[run], 4), run.workers))
    if profile.source.hosts:  # a live run
        framework = "torch" if profile.source.framework == "pytorch" else "tensorflow"
        recording = f"queuemodel profile MODEL --framework {framework} --strategy all-reduce --ranks RANKS -o {source}"
    else:
        folders = " ".join(f"trace_n{n}" for n in sorted({one.ranks for one in profile.rounds}))
        options = options_of({"batch_size": profile.job.batch_size, **told})
        recording = f"queuemodel import-trace {folders} trace_nRANKS {options} -o {source}"
    return NextMeasurement(
        tuple(asked),
        width(now),
        tuple(choice),
        tuple(expected[run] for run in choice),
        confidence=confidence,
        parameter_servers=0,
        source=source,
        recording=recording,
    )


def _steps(profile: Profile) -> bool:
    """Whether it is of a job whose steps, or throughputs, are asynchronous."""
    return bool(profile.steps or (profile.throughputs and not profile.rounds))


def _simulated(profile: Profile) -> bool:
    return profile.cluster.workers == 1 and any(step.operations for step in profile.steps)


def _runs(network: TrainingModel, asked: Sequence[int]) -> list[Run]:
    """The cheap runs: few workers, about twice those that saturate the servers, slower links."""
    saturation = network.throughput([1]).saturation_workers
    many = min(2 * saturation, asked[-1] / 2)  # as many as are asked about are no cheap run
    found = [Run(1), Run(2), Run(max(3, math.ceil(many)))]
    recorded = network.fitted.recorded
    bandwidth = recorded.bandwidth if recorded and any(recorded.transferred) else None
    if bandwidth is not None and math.isfinite(bandwidth):
        found.append(Run(2, SLOWER * bandwidth))
    return found
