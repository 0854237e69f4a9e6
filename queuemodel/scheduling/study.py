"""Replications and sweeps, in parallel: figures with their intervals."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ModelError
from ..files import write_atomically
from ..tables import html_table, text_table
from .cluster import Cluster
from .jobs import Workload
from .policies.base import Policy
from .schedule import FIGURES
from .simulate import simulate
from .streams import Stream

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """Figures of many runs.

    Attributes
    ----------
    runs : tuple of dict
        One per run: what was varied (``policy``, ``load``, ...), ``replication``, and the figures.
    varied : tuple of str
        Names of what was varied.
    complete : bool
        False when it was interrupted: only the runs that had ended are there.
    """

    runs: tuple[dict[str, Any], ...]
    varied: tuple[str, ...]
    complete: bool = True

    def table(self, *figures: str, confidence: float = 0.95) -> list[dict[str, Any]]:
        """Mean and half-width of the interval (Student's t over replications) of each figure, per combination.

        Replications of one combination use different seeds, those of different policies the same ones.
        """
        from scipy.stats import t

        chosen = figures or ("mean_response_time", "mean_slowdown", "efficiency", "utilization", "mean_restarts")
        unknown = set(chosen) - set(FIGURES)
        if unknown:
            raise ModelError(f"study: figures must be of {', '.join(FIGURES)}, got {sorted(unknown)[0]!r}")
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for run in self.runs:
            groups.setdefault(tuple(run[name] for name in self.varied), []).append(run)
        rows = []
        for key, members in groups.items():
            row = dict(zip(self.varied, key, strict=True)) | {"replications": len(members)}
            for figure in chosen:
                values = np.array([member[figure] for member in members])
                row[figure] = float(values.mean())
                if len(values) > 1:
                    spread = values.std(ddof=1) / math.sqrt(len(values))
                    row[f"{figure}_half_width"] = float(t.ppf((1 + confidence) / 2, len(values) - 1) * spread)
                else:
                    row[f"{figure}_half_width"] = math.nan
            rows.append(row)
        return rows

    def relative(self, figure: str, *, to: str, confidence: float = 0.95) -> list[dict[str, Any]]:
        """Ratio of a figure to that of the policy named ``to``, replication by replication: mean and half-width.

        All policies run the same replications, so ratios vary much less than the figures themselves.
        """
        from scipy.stats import t

        others = [name for name in self.varied if name != "policy"]
        base = {self._case(run, others): run[figure] for run in self.runs if run["policy"] == to}
        if not base:
            raise ModelError(f"study: no runs of a policy named {to!r}")
        groups: dict[tuple[Any, ...], list[float]] = {}
        for run in self.runs:
            case = self._case(run, others)
            if case in base:
                groups.setdefault(tuple(run[name] for name in self.varied), []).append(run[figure] / base[case])
        rows = []
        for key, ratios in groups.items():
            n = len(ratios)
            spread = float(np.std(ratios, ddof=1)) / math.sqrt(n) if n > 1 else math.nan
            half = float(t.ppf((1 + confidence) / 2, n - 1)) * spread if n > 1 else math.nan
            rows.append(
                dict(zip(self.varied, key, strict=True)) | {"ratio": float(np.mean(ratios)), "half_width": half}
            )
        return rows

    @staticmethod
    def _case(run: dict[str, Any], others: list[str]) -> tuple[Any, ...]:
        return (*(run[name] for name in others), run["replication"])

    def to_rows(self) -> list[dict[str, Any]]:
        """The runs."""
        return [dict(run) for run in self.runs]

    def to_frame(self) -> pandas.DataFrame:
        """The runs as a DataFrame."""
        import pandas

        return pandas.DataFrame(self.to_rows())

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """JSON of the table and the runs; also written to ``path`` when one is given."""
        rows = [{name: _plain(value) for name, value in row.items()} for row in self.table()]
        text = json.dumps({"complete": self.complete, "table": rows, "runs": self.to_rows()}, indent=1)
        if path is not None:
            write_atomically(path, text + "\n")
        return text

    def __repr__(self) -> str:
        state = "" if self.complete else " (interrupted)"
        return f"Study of {len(self.runs)} runs{state}\n{text_table(self.table())}"

    def _repr_html_(self) -> str:
        return html_table(self.table(), caption=f"{len(self.runs)} runs")


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a study: where its workload comes from, and under what it runs."""

    source: Stream | Workload
    policy: Policy
    cluster: Cluster
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
        schedule = simulate(workload, self.policy, cluster=self.cluster, seed=self.seed, warmup=self.warmup)
        return self.varied | {"replication": self.seed} | schedule.summary()


def sweep(
    stream: Stream,
    policies: Sequence[Policy],
    *,
    loads: Iterable[float] | None = None,
    cluster: Cluster | None = None,
    replications: int = 5,
    seed: int = 0,
    warmup: float = 0.1,
    n_jobs: int = 1,
    backend: str | None = None,
    progress: bool = False,
) -> Study:
    """Every policy at every load, on the same replications of a stream.

    Parameters
    ----------
    stream : Stream
    policies : sequence of Policy
    loads : iterable of float, optional
        The stream's own unless given.
    cluster : Cluster, optional
        The stream's nodes without costs unless given.
    replications : int, default 5
    seed : int
        Of the first replication; the others follow.
    n_jobs, backend : int, str
        As joblib takes them (``"loky"``, ``"dask"``, ``"ray"``, ...); -1: all cores.
    progress : bool, default False
        Show a bar on stderr.

    Returns
    -------
    Study
        After Ctrl-C with what had ended by then.
    """
    where = cluster or Cluster(stream.nodes)
    runs = [
        Run(replace(stream, load=load), policy, where, seed + number, {"load": load, "policy": policy.name}, warmup)
        for load, number, policy in itertools.product(loads or [stream.load], range(replications), policies)
    ]
    return run_all(runs, n_jobs=n_jobs, backend=backend, progress=progress)


def run_all(
    runs: Sequence[Callable[[], dict[str, Any]]],
    *,
    n_jobs: int = 1,
    backend: str | None = None,
    progress: bool = False,
) -> Study:
    """Carry out runs in parallel; an interruption keeps those that have ended."""
    if not runs:
        raise ModelError("study: nothing to run; give at least one policy, load and replication")
    import joblib
    from tqdm import tqdm

    done: dict[int, dict[str, Any]] = {}
    complete = True
    try:
        parallel = joblib.Parallel(n_jobs=n_jobs, backend=backend, return_as="generator_unordered")
        results = parallel(joblib.delayed(_numbered)(number, run) for number, run in enumerate(runs))
        for number, figures in tqdm(results, total=len(runs), disable=not progress, unit="run"):
            done[number] = figures
    except KeyboardInterrupt:
        complete = False
    varied = tuple(getattr(runs[0], "varied", {"policy": ""}))
    return Study(tuple(done[number] for number in sorted(done)), varied, complete)


def _numbered(number: int, run: Callable[[], dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    return number, run()
