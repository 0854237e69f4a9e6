"""The scheduling study: run it, and write its page.

    python docs/scripts/scheduling_study.py [--processes N] [--quick]

Writes validation/notes/scheduling-results.md. The part on the Pollux workloads needs the public files of the
Pollux artifact (QUEUEMODEL_SCHEDULING_DATA names the folder above `pollux`).
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from queuemodel.scheduling import (
    FIFO,
    SRPT,
    EqualShare,
    FitnessMaximization,
    Goodput,
    GreedyGain,
    HeSRPT,
    LeastAttainedService,
    ModelBased,
    Nodes,
    Optimus,
    Policy,
    RankPriced,
    ShortestJobFirst,
    Stream,
    Study,
    StudyRun,
    example_kinds,
    run_all,
)

DOCS = Path(__file__).parents[1]
sys.path.insert(0, str(DOCS.parent))  # validation/ is beside the package, not in it
from validation.pollux import read_jobs, replay  # noqa: E402

QUICK = "--quick" in sys.argv  # only to see that all of it runs, without the public files
NODES, JOBS, REPLICATIONS = 64, 20 if QUICK else 300, 1 if QUICK else 5
BEST = ModelBased("gain", "marginal", 0.5)
FEW: list[Policy] = [EqualShare(), SRPT(), BEST, GreedyGain(0.5), HeSRPT(), RankPriced(), RankPriced(0.5, floor=0.5)]
MANY: list[Policy] = [FIFO(), ShortestJobFirst(), LeastAttainedService(), *FEW, Optimus(), FitnessMaximization()]
LOADS = {"0.5": "workloads-0.5", "1.0": "workloads", "2.0": "workloads-2.0"}
NAMED: list[str | Policy] = [
    "tiresias", "optimus", FIFO(), ShortestJobFirst(), EqualShare(), SRPT(), HeSRPT(), FitnessMaximization(), BEST,
    GreedyGain(0.5), RankPriced(), RankPriced(0.5, floor=0.5), Goodput(),
]  # fmt: skip


@dataclass(frozen=True)
class PolluxRun:
    """The eight workloads of one load under one policy, in the compatibility mode."""

    data: str
    load: str
    policy: str | Policy
    curves: str

    def __call__(self) -> dict[str, Any]:
        """Mean of the average completion times, and of the restarts."""
        means, restarts = [], []
        for number in range(1, 9):
            path = Path(self.data) / LOADS[self.load] / f"workload-{number}.csv"
            outcome = replay(read_jobs(path, Path(self.data) / "traces"), self.policy, gpus=NODES, curves=self.curves)
            means.append(outcome.mean_response_time)
            restarts.append(outcome.summary()["mean_restarts"])
        name = f"{self.policy.title()} (artifact)" if isinstance(self.policy, str) else self.policy.name
        return {
            "policy": name,
            "load": self.load,
            "curves": self.curves,
            "mean": float(np.mean(means)),
            "restarts": float(np.mean(restarts)),
        }


def pollux_data() -> str:
    """The folder of the artifact's files."""
    place = Path(os.environ.get("QUEUEMODEL_SCHEDULING_DATA", "")) / "pollux"
    if not place.is_dir():
        sys.exit("no Pollux artifact; set QUEUEMODEL_SCHEDULING_DATA to the folder above pollux")
    return str(place)


def pollux(processes: int) -> list[str]:
    """The table of the published workloads."""
    data = pollux_data()
    cases = [PolluxRun(data, load, policy, "true") for load in LOADS for policy in NAMED]
    cases += [PolluxRun(data, load, policy, "predicted") for load in LOADS for policy in NAMED if _uses_curves(policy)]
    runs = run_all(cases, n_jobs=processes).runs
    found = {(run["policy"], run["load"], run["curves"]): run for run in runs}
    rows = ["| policy | 0.5 | 1.0 | 2.0 | 0.5, predicted | 1.0, predicted | 2.0, predicted | restarts at 1.0 |"]
    rows.append("|---|--:|--:|--:|--:|--:|--:|--:|")
    for name in dict.fromkeys(run["policy"] for run in runs):
        cells = [
            f"{found[name, load, curves]['mean']:,.0f}" if (name, load, curves) in found else ""
            for curves in ("true", "predicted")
            for load in LOADS
        ]
        rows.append(f"| {name} | {' | '.join(cells)} | {found[name, '1.0', 'true']['restarts']:.2f} |")
    return rows


def _uses_curves(policy: str | Policy) -> bool:
    return isinstance(policy, Policy) and "curve" in policy.knows


def stream(load: float = 0.7, **rest: Any) -> Stream:
    """The package's example kinds on the study's cluster."""
    return Stream(example_kinds(most=NODES), jobs=JOBS, nodes=NODES, load=load, **rest)


def runs(
    source: Stream, policies: Sequence[Policy], varied: dict[str, Any], *, restart: float = 30.0, **rest: Any
) -> list[StudyRun]:
    """Replications of one point of a sweep."""
    cluster = Nodes(NODES, restart_seconds=restart, start_seconds=restart)
    return [
        StudyRun(source, policy, cluster, seed, {"policy": policy.name, **varied}, **rest)
        for policy, seed in itertools.product(policies, range(REPLICATIONS))
    ]


def load_study(processes: int) -> Study:
    """Response time against load."""
    points = [runs(stream(load), MANY, {"load": load}) for load in (0.2, 0.4, 0.6, 0.8)]
    return run_all(list(itertools.chain.from_iterable(points)), n_jobs=processes)


def restart_study(processes: int) -> Study:
    """What a restart costs."""
    points = [
        runs(stream(0.6), FEW, {"restart_seconds": cost}, restart=cost) for cost in (0.0, 30.0, 120.0, 300.0, 600.0)
    ]
    return run_all(list(itertools.chain.from_iterable(points)), n_jobs=processes)


def error_study(processes: int) -> Study:
    """What wrong curves cost."""
    points = [
        runs(stream(0.6), FEW, {"error_of_the_exponent": error}, error=(error, error)) for error in (0.0, 0.1, 0.2, 0.4)
    ]
    return run_all(list(itertools.chain.from_iterable(points)), n_jobs=processes)


def pivot(study: Study, across: str, figure: str = "mean_response_time") -> list[str]:
    """A table of policies by what was varied: the mean, and its ratio to EQUI's with its 95 % interval."""
    rows = study.table(figure)
    ratios = {(row["policy"], row[across]): row for row in study.relative(figure, to="EqualShare")}
    values = sorted({row[across] for row in rows})
    lines = [f"| policy | {' | '.join(f'{value:g}' for value in values)} |", "|---|" + "--:|" * len(values)]
    for name in dict.fromkeys(row["policy"] for row in rows):
        own = {row[across]: row for row in rows if row["policy"] == name}
        cells = [
            f"{own[value][figure]:,.0f} ({ratios[name, value]['ratio']:.2f}±{ratios[name, value]['half_width']:.2f})"
            for value in values
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    processes = parser.parse_args().processes
    began = time.monotonic()
    sections: dict[str, list[str]] = {"pollux": [] if QUICK else pollux(processes)}
    print(f"pollux {time.monotonic() - began:.0f} s", flush=True)
    studies = {
        "load": (load_study(processes), "load"),
        "restart": (restart_study(processes), "restart_seconds"),
        "error": (error_study(processes), "error_of_the_exponent"),
    }
    for name, (study, across) in studies.items():
        sections[name] = pivot(study, across)
    template = (DOCS / "scripts" / "scheduling_results.txt").read_text()
    for name, lines in sections.items():
        template = template.replace(f"<!-- {name} -->", "\n".join(lines))
    (DOCS.parent / "validation" / "notes" / "scheduling-results.md").write_text(template)
    print(f"all {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
