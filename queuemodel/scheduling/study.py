"""Many runs in parallel, every policy at every load on the same replications, and what they yield."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.checks import require_choice, require_count, require_known, require_seed, require_share
from ..base.drawing import band, finish_axes, label_ends, new_axes, require_style, styles
from ..base.errors import ModelError
from ..base.parallel import run_tasks
from ..base.results import Result, finite
from .engine import Engine
from .jobs import ClusterJob, Stream, Workload
from .nodes import Nodes
from .policy import Policy
from .result import FIGURE_SIZE, FIGURES, POLICY_COLORS, Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = ("mean_response_time", "mean_slowdown", "efficiency", "utilization", "mean_restarts")


def schedule(
    workload: Workload | Sequence[ClusterJob],
    policy: Policy,
    *,
    nodes: int | Nodes,
    seed: int = 0,
    warmup: float = 0.0,
    history: bool = False,
    progress: Callable[[int], Any] | None = None,
) -> Schedule:
    """Run a workload under a policy.

    Event-driven and exact: between changes of its allocation a job progresses at the constant speed of its curve.

    A number of ``nodes`` is without restart costs or failures, `Nodes` have them. ``seed`` is that of early ends (the
    same under every policy) and of failures. Means and quantiles leave out the share ``warmup`` of the jobs, first by
    arrival. ``history`` keeps every change of every allocation, for `plot_nodes`. ``progress`` is called at times with
    the number of jobs that have ended.

    Examples
    --------
    >>> from queuemodel.scheduling import FIFO, ClusterJob, schedule
    >>> jobs = [ClusterJob("a", arrival_time=0, steps=100, curve=lambda n: 2.0 * n, requested_nodes=2)]
    >>> schedule(jobs, FIFO(), nodes=4).mean_response_time
    25.0
    """
    if not isinstance(policy, Policy):
        raise ModelError(f"schedule: policy must be a Policy, got {type(policy).__name__}")
    if require_share(warmup, "schedule: warmup") == 1:
        raise ModelError("schedule: warmup must be below 1, or no job would be left to average over, got 1")
    require_seed(seed, "schedule: seed")
    jobs = workload if isinstance(workload, Workload) else Workload(workload)
    engine = Engine(jobs, policy, nodes if isinstance(nodes, Nodes) else Nodes(nodes), seed=seed, history=history)
    engine.run(progress)
    return engine.result(warmup=warmup, seed=seed)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Study(Result):
    """Figures of many runs."""

    runs: tuple[dict[str, Any], ...]  #: What was varied (``policy``, ``load``, ...), ``replication``, and the figures.
    varied: tuple[str, ...]  #: Names of what was varied.
    complete: bool = True  #: False when it was interrupted: only the runs that had ended are there.

    def table(self, *figures: str, confidence: float = 0.95) -> list[dict[str, Any]]:
        """Mean and half-width of the interval (Student's t over replications) of each figure, per combination."""
        from scipy.special import stdtrit

        level = (1 + require_share(confidence, "study: confidence", open_ended=True)) / 2
        for figure in figures:
            require_choice(figure, "study: figure", FIGURES)
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for run in self.runs:
            groups.setdefault(tuple(run[name] for name in self.varied), []).append(run)
        rows = []
        for key, members in groups.items():
            n = len(members)
            row = dict(zip(self.varied, key, strict=True)) | {"replications": n}
            for figure in figures or SHOWN:
                values = [run[figure] for run in members]
                error = float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan
                row[figure] = float(np.mean(values))
                row[f"{figure}_half_width"] = float(stdtrit(n - 1, level)) * error if n > 1 else math.nan
            rows.append(row)
        return rows

    def relative(self, figure: str, *, to: str, confidence: float = 0.95) -> list[dict[str, Any]]:
        """Ratio of a figure to that of the policy named ``to``, replication by replication: mean and half-width.

        All policies run the same replications, so ratios vary much less than the figures themselves.
        """
        require_choice(figure, "study: figure", FIGURES)
        others = [*(name for name in self.varied if name != "policy"), "replication"]
        cases = [tuple(run[name] for name in others) for run in self.runs]
        base = {case: run[figure] for case, run in zip(cases, self.runs, strict=True) if run.get("policy") == to}
        if not base:
            raise ModelError(f"study: no runs of a policy named {to!r}")
        paired = [(run, base[case]) for case, run in zip(cases, self.runs, strict=True) if case in base]
        ratios = Study(tuple(run | {figure: run[figure] / value} for run, value in paired), self.varied)
        names = {name: name for name in self.varied} | {"ratio": figure, "half_width": f"{figure}_half_width"}
        table = ratios.table(figure, confidence=confidence)
        return [{name: row[column] for name, column in names.items()} for row in table]

    def to_rows(self) -> list[dict[str, Any]]:
        return [dict(run) for run in self.runs]

    def _shown_rows(self) -> list[dict[str, Any]]:
        return self.table()

    def caption(self) -> str:
        """How many runs, whether they are all, and where they are too few for intervals."""
        text = f"Study of {len(self.runs)} runs{'' if self.complete else ' (interrupted)'}"
        single = any(row["replications"] == 1 for row in self.table())
        return f"{text}; one replication gives no interval: run several" if single else text

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the table (intervals of one replication are None) and the runs."""
        table = finite(self.table())
        return {"complete": self.complete, "table": table, "runs": self.to_rows()}


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run of a study: the origin of its workload, its policy and its cluster."""

    source: Stream | Workload
    policy: Policy
    nodes: Nodes
    seed: int
    varied: dict[str, Any]
    warmup: float = 0.1
    error: tuple[float, float] = (0.0, 0.0)

    def __call__(self) -> dict[str, Any]:
        """Simulate, and give the figures back."""
        workload = self.source.workload(self.seed) if isinstance(self.source, Stream) else self.source
        if any(self.error):
            level, scaling = self.error
            workload = workload.with_prediction_error(level=level, scaling=scaling, seed=self.seed)
        run = schedule(workload, self.policy, nodes=self.nodes, seed=self.seed, warmup=self.warmup)
        return self.varied | {"replication": self.seed} | run.summary()


def sweep(
    stream: Stream,
    policies: Sequence[Policy],
    *,
    loads: Iterable[float] | None = None,
    nodes: Nodes | None = None,
    replications: int = 5,
    seed: int = 0,
    warmup: float = 0.1,
    **engine: Any,
) -> Study:
    """Every policy at every load, on the same replications of a stream.

    Loads are by default the stream's own, and so are the nodes, without costs. ``seed`` is that of the first
    replication; the others follow. ``engine`` is what `run_all` takes.
    """
    require_known(engine, ("n_jobs", "backend", "progress", "loads", "replications"), "sweep")
    require_count(replications, "study: replications")
    require_seed(require_seed(seed, "study: seed") + replications, "study: last seed")
    where = nodes or Nodes(stream.nodes)
    different = tuple(dict.fromkeys(policies))
    names = [policy.name for policy in different]
    for name in names:
        if names.count(name) > 1:
            raise ModelError(
                f"study: different policies are named {name!r}, so that their runs would be mixed; distinguish "
                "them by fields or by `name`"
            )
    points = [replace(stream, load=load) for load in dict.fromkeys(loads or [stream.load])]
    runs = [
        StudyRun(source, policy, where, seed + number, {"load": source.load, "policy": policy.name}, warmup)
        for source, number, policy in itertools.product(points, range(replications), different)
    ]
    return run_all(runs, **engine)


def run_all(
    runs: Sequence[Callable[[], dict[str, Any]]], *, n_jobs: int = 1, backend: str | None = None, progress: bool = False
) -> Study:
    """Carry out runs in parallel; after Ctrl-C the study has those that had ended.

    ``n_jobs`` (-1: all cores) and ``backend`` (``"loky"``, ``"dask"``, ``"ray"``, ...) are joblib's, as of
    `queuemodel.base.parallel`. With ``progress`` a bar is shown on stderr.
    """
    if not runs:
        raise ModelError("study: nothing to run; give at least one policy, load and replication")
    if n_jobs != -1:
        require_count(n_jobs, "study: processes (-1: all cores)", most=1024)
    from tqdm import tqdm

    done: dict[int, dict[str, Any]] = {}
    complete = True
    try:
        results = run_tasks(runs, n_jobs=n_jobs, backend=backend, what="study")
        for number, figures in tqdm(results, total=len(runs), disable=not progress, unit="run"):
            done[number] = figures
    except KeyboardInterrupt:
        complete = False
    varied = tuple(getattr(runs[0], "varied", {"policy": ""}))
    return Study(tuple(done[number] for number in sorted(done)), varied, complete)


def plot_sweep(
    study: Study, *, figure: str = "mean_response_time", against: str = "load", ax: Axes | None = None, **kwargs: Any
) -> Axes:
    """A figure against the varied setting, one line per policy, with its interval over replications as a band."""
    if against not in study.varied or "policy" not in study.varied:
        raise ModelError(f"plot_sweep: the study varied {', '.join(study.varied)}, not policy and {against!r}")
    kwargs = require_style(kwargs, "lines.Line2D", "figure", "against", "ax")
    ax = ax or new_axes(FIGURE_SIZE)
    rows = study.table(figure)
    lines = []
    for policy, look in styles(dict.fromkeys(row["policy"] for row in rows), POLICY_COLORS).items():
        own = sorted((row for row in rows if row["policy"] == policy), key=lambda row: row[against])
        x = np.array([row[against] for row in own], dtype=float)
        y = np.array([row[figure] for row in own])
        half = np.nan_to_num([row[f"{figure}_half_width"] for row in own])
        style: dict[str, Any] = look | {"marker": "o", "markersize": 4} | kwargs
        lines += ax.plot(x, y, label=policy, **style)
        band(ax, x, np.maximum(y - half, 0), y + half, lines[-1].get_color())
    unit = " (s)" if figure.endswith(("time", "delay", "makespan")) else ""
    against = against.removesuffix("_seconds") + " (s)" if against.endswith("_seconds") else against
    ax.set(xlabel=against.replace("_", " "), ylabel=f"{figure.replace('_', ' ')}{unit}")
    ax.set_ylim(bottom=0)
    finish_axes(ax, legend=None)
    label_ends(ax, lines)
    return ax
