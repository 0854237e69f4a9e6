"""Predict every measured series; write validation/results.md, and docs/validation.md with its figure.

python -m validation
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from tqdm import tqdm

from queuemodel import QueueModelError
from queuemodel.base.drawing import save_figure
from queuemodel.base.files import write_atomically
from testbed.recordings import unpacked

from . import other_traffic, scaling
from .added_measurements import added_measurements_section
from .convergence import convergence_section
from .data_parallel import compare_data_parallel
from .figures import plot_validation
from .half_synchronous import half_synchronous, half_synchronous_section
from .held_out import held_out_section, in_between_folders, predicted_then
from .intervals import intervals_section
from .model_errors import errors_of, waiting_errors
from .nccl import compare_aws, nccl_section
from .noise_floor import NoiseFloor, noise_floor, noise_floor_section
from .published import compare_cloud
from .series import (
    Comparison,
    compare_testbed,
    compare_unusual,
    kind_of,
    read_testbed,
    series_folders,
    untraced_folders,
)
from .sharded import sharded_section
from .training_runs import SERIES, plot_training_runs, training_runs, training_runs_section
from .unknown_control import unknown_control, unknown_control_section

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"

HEAD = """# Predicted against measured: every series

[The summary](../docs/validation.md) says what the figures mean. Written by `make validate` (`python -m validation`).
Errors are of steps per second, relative to the measurement; a series' error is the mean of their absolute values.
*Floor* is what a perfect model would err by, as measurements err too ([below](#what-measuring-errs-by)). *Covered* is
the share of measurements inside the 90 % interval; windows of as many workers count as one.

"""

REAL = """## Real machines, measured by others

No machine of these was at hand, and no accelerator: nothing here is a run of our own. What was predicted from what
stands in each section.

"""

TESTBED = """## The testbed: real frameworks, emulated accelerators

"""

SOURCES = """
What is predicted from what, told what, and learnt where (`validation/data/README.md` and
`testbed/README.md` say where the data come from):

- **Testbed**: real TensorFlow with emulated accelerators and shaped links on one machine, on parameter servers, from
  the traces of one worker alone, once by mean-value analysis of the fitted network and once by simulation of the
  recorded operations, and judged on all measured numbers of workers. The simulation is told TCP's congestion control
  and the buffers as recorded (BBR and 12 ms unless the name says otherwise). We measured those marked *ours* with
  `python -m testbed`; how connections share a link was learnt on them, so that they are no blind test of
  the simulation.
- **Barrier and unequal machines**: the same with a barrier (synchronous SGD), one slow worker, one slow link, or
  parameters fetched in the order of layers; simulated only, told which worker or link is slow.
- **Data-parallel**: PyTorch over gloo, and TensorFlow's ring over gRPC (`mirrored`), from the traces of one and two
  ranks, told TCP's control and the buffers, and judged on more. How rounds overlap was learnt on those in
  `tests/data/ddp`, and on `ddp-vgg16-60-bbr`, 9 % off before, that a network is told by all its busy periods.
  `mirrored-resnet50-60-packs` and `mirrored-alexnet-60-bbr` were predicted 13 to 20 % and 4 to 20 % too fast before it
  was found what TCP's control and the buffers make of them
  ([why](../docs/explanation/time.md#network-sharing)); nothing was learnt from them, nor from their repetitions,
  and `mirrored-resnet50-40-packs-10ms` was predicted blind. So were the four later ones of `ddp` under BBR, and 3 of 8
  measurements were outside; what two ranks leave open of such links was learnt from them.
- **Cloud**: asynchronous training on cloud GPUs, fitted on throughputs of 1 to 4 workers, and judged on 5 to 8. The
  prior of these fits was learnt on them too; the section on few throughputs leaves them out.
- **Half-synchronous** strategies and networks **never measured before** have sections of their own.

![Predicted against measured throughput](../docs/images/validation.png)

"""


def table(comparisons: Sequence[Comparison], floors: Sequence[NoiseFloor] = ()) -> str:
    """A Markdown table with one row per series and one for all; and what measuring alone would err by, where known."""
    columns = ["series", "method", "errors", "mean absolute error", *(["floor"] if floors else []), "covered"]
    least = [one.errors.mean() for one in floors]
    rows = [columns, ["---"] * len(columns)]
    for i, c in enumerate(comparisons):
        errors = ", ".join(f"{n}: {e:+.1%}" for n, e in zip(c.counts, c.errors, strict=True))
        floor_too = [f"{one:.1%}" for one in least[i : i + 1]]
        rows.append([c.name, c.method, errors, f"{c.error:.1%}", *floor_too, f"{c.coverage:.0%}"])
    total, worst = np.mean([c.error for c in comparisons]), max(c.error for c in comparisons)
    floor_too = [f"{np.mean(least):.1%}"] if floors else []
    covered = np.mean([c.coverage for c in comparisons])
    every = [f"worst {worst:.1%}", f"**{total:.1%}**", *floor_too, f"{covered:.0%}"]
    return "".join(f"| {' | '.join(row)} |\n" for row in [*rows, ["**all**", "", *every]])


class Judged(Protocol):
    """A series that was predicted: mean absolute relative error, and share of measurements inside the interval."""

    @property
    def error(self) -> float: ...
    @property
    def coverage(self) -> float: ...


class Cluster(NamedTuple):
    """All jobs of a cluster."""

    error: float
    coverage: float


def summary(groups: Mapping[str, Sequence[Judged]]) -> str:
    """A Markdown table with one row per group."""
    lines = ["| predictions | series | mean absolute error | of the worst | covered |", "|---" * 5 + "|"]
    for title, own in groups.items():
        error, covered = np.mean([(c.error, c.coverage) for c in own], axis=0)
        worst = max(c.error for c in own)
        lines.append(f"| {title} | {len(own)} | {error:.1%} | {worst:.1%} | {covered:.0%} |")
    return "\n".join(lines) + "\n"


def by_method(title: str, comparisons: Sequence[Comparison]) -> dict[str, list[Comparison]]:
    """Groups of one method each."""
    methods = dict.fromkeys(c.method for c in comparisons)
    return {f"{title}, {method}": [c for c in comparisons if c.method == method] for method in methods}


def _tables(groups: Mapping[str, Sequence[Comparison]], floors: Mapping[str, Sequence[NoiseFloor]]) -> list[str]:
    return [f"## {title}\n\n{table(comparisons, floors.get(title, ()))}\n" for title, comparisons in groups.items()]


def real_points() -> Iterator[dict[str, Any]]:
    """Rows of the figure that real machines measured: NCCL, jobs by placement, published and cloud throughputs."""
    for nccl in compare_aws():
        label = {"P2": "nodes of K80 (EC2)", "P3": "nodes of V100 (EC2)"}[nccl.name[:2]]
        yield point("NCCL rounds on 4 nodes, from 1 and 2", label, nccl)
    for row, found in scaling.judged().items():
        cluster = {"Pollux": "nodes of 4 T4", "Sia": "nodes of 8 RTX"}.get(row.removeprefix("placements, "))
        if cluster or row == "all-reduce, published":
            title = "Jobs by placement, from 1 and 2 nodes" if cluster else "All-reduce, from 2 throughputs"
            unit = "steps/s" if cluster else "smallest group = 1"
            yield from (point(title, cluster or "106 published series", one, unit=unit) for one in found)
    for cloud in compare_cloud():
        yield point("Cloud, fitted on 1 to 4 workers", "cloud, asynchronous", cloud)


def testbed_points(groups: Mapping[str, Sequence[Comparison]]) -> Iterator[dict[str, Any]]:
    """Rows of the figure that the testbed measured, labelled by the job: "alexnet" of "ddp-alexnet-40"."""
    data_parallel = [(c, "Testbed: data-parallel, from 1 and 2 ranks") for c in groups["Data-parallel, from few ranks"]]
    simulated = [*groups["Parameter server, trace-driven simulation"], *groups["Barrier and unequal machines"]]
    for one, title in [*data_parallel, *((c, "Testbed: parameter server, simulated") for c in simulated)]:
        yield point(title, re.sub("^(ddp|mirrored)-", "", one.name).split("-")[0], one)


def point(title: str, label: str, judged: Comparison | scaling.Judged, unit: str = "steps/s") -> dict[str, Any]:
    """A row of `plot_validation`."""
    numbers = {"measured": judged.measured, "predicted": judged.predicted}
    return {"group": title, "label": label, "unit": unit} | numbers


def main() -> int:
    """Write both pages and the pictures; print the tables."""
    try:
        profiles = [(folder, read_testbed(folder)) for folder in tqdm(series_folders(), desc="reading traces")]
        groups = {
            f"Parameter server, {title}": [compare_testbed(f, p, method) for f, p in tqdm(profiles, desc=title)]
            for title, method in (("mean-value analysis", "mva"), ("trace-driven simulation", "trace"))
        }
        others = [(folder, read_testbed(folder)) for folder in tqdm(series_folders(usual=False), desc="reading traces")]
        groups["Barrier and unequal machines"] = [compare_unusual(f, p) for f, p in tqdm(others, desc="unusual")]
        groups["Data-parallel, from few ranks"] = compare_data_parallel()
        floors = [noise_floor(f, p) for f, p in tqdm([*profiles, *others], desc="floor")]
        usual, unusual_ones = floors[: len(profiles)], floors[len(profiles) :]
        of_groups = dict(zip(groups, (usual, usual, unusual_ones), strict=False))
        real = {"Cloud, fitted on 1 to 4 workers": compare_cloud()}
        on_machines = [
            nccl_section(),
            scaling.scaling_section(),
            *_tables(real, {}),
            convergence_section(),
        ]
        body = "".join(_tables(groups, of_groups))
        kinds = [kind_of(folder) for folder, _ in [*profiles, *others]]
        mva, trace, unusual = list(groups.values())[:3]
        errors = {
            "mean-value analysis": [errors_of(c, kind) for c, kind in zip(mva, kinds, strict=False)],
            "simulation": [errors_of(c, kind) for c, kind in zip([*trace, *unusual], kinds, strict=True)],
        }
        hidden = [unknown_control(folder, profile) for folder, profile in tqdm(profiles, desc="control not told")]
        waiting, later = half_synchronous(untraced_folders()), half_synchronous(in_between_folders())
        taught = by_method("half-synchronous", [*waiting, *later])
        held = {name: waiting_errors(own) for name, own in taught.items()}
        traffic = other_traffic.compare_other_traffic()
        sections = [
            noise_floor_section(floors),
            sharded_section(),
            half_synchronous_section(waiting, table),
            held_out_section(table),
            other_traffic.SECTION + table(traffic),
        ]
        sections += [intervals_section(groups | real, errors, held), unknown_control_section(hidden)]
        ways = {
            folder.name: training_runs(folder) for folder in tqdm(sorted(unpacked(SERIES).iterdir()), desc="learning")
        }
        sections += [training_runs_section(ways), added_measurements_section()]
        body += "\n".join(sections)
        unseen = scaling.judged()
        placed = {row: found for row, found in unseen.items() if row.startswith("placements")}
        shown = {
            "NCCL rounds on 4 nodes, from 1 and 2": compare_aws(),
            "Jobs by placement, cluster left out": [
                Cluster(*np.mean([(one.error, one.coverage) for one in found], axis=0)) for found in placed.values()
            ],
            "Batch sizes beyond those measured": [
                one for row, found in unseen.items() if row.endswith("batch size left out") for one in found
            ],
            "All-reduce, from 2 throughputs": unseen["all-reduce, published"],
            "Synchronous parameter server, from 2 throughputs": unseen["sync-ps"],
            "Asynchronous parameter server, from 2 throughputs": unseen["async-ps, cloud and published"],
            **real,
        }
        blind, other_queues, in_between = predicted_then()
        more = by_method("Half-synchronous", waiting) | by_method("Predicted before measured", blind)
        more |= by_method("Predicted before measured, half-synchronous", in_between)
        more |= by_method("Predicted before measured, other queues", other_queues)
        more |= by_method("Other traffic, from traces without it", traffic)
        tables = {"real": summary(shown), "testbed": summary(groups | more)}
        least = np.mean([one.errors.mean() for one in floors])
        page = (HERE / "page.md").read_text().format(**tables, floor=f"{least:.1%}")
        real_part = f"{REAL}{tables['real']}\n{chr(10).join(on_machines)}\n"
        results = f"{HEAD}{real_part}{TESTBED}{tables['testbed']}{SOURCES}{body}"
        save_figure(plot_validation([*real_points(), *testbed_points(groups)]), DOCS / "images" / "validation.png")
        save_figure(plot_training_runs(ways), DOCS / "images" / "learned.png")
        for path, text in {HERE / "results.md": results, DOCS / "validation.md": page}.items():
            write_atomically(path, re.sub(r"(?<=\d)%", " %", text))
    except QueueModelError as error:
        print(f"validation: {error}", file=sys.stderr)
        return 1
    print(page)
    print("wrote docs/validation.md with its figure, and validation/results.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
