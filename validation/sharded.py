"""Sharded series: rounds per second of many ranks from the traces of one node and of two.

python -m validation.sharded
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from queuemodel import Measurement, Profile, QueueModelError, ThroughputCurve
from queuemodel.adapters import pytorch
from queuemodel.models import fit, predict
from queuemodel.profile.gathers import Gather
from testbed.recordings import unpacked

from .series import HERE, Comparison

#: Measured elsewhere with a testbed of the same kind, and with ours.
GIVEN, OURS = HERE.parent / "tests" / "data" / "sharded", HERE / "data" / "testbed" / "sharded"
#: Over NCCL, by `testbed.rounds.nccl_job`.
NCCL = HERE / "data" / "testbed" / "nccl"
TABLES = ("nccl-fsdp", "nccl-fsdp-mixed", "nccl-fsdp1")


#: Bytes per second.
MBIT = 125_000
#: What a change of a workload is as a what-if, of n ranks, of which the second is the slow one.
WHAT_IFS: dict[str, Callable[[Any, int], dict[str, Any]]] = {
    "accumulation": lambda k, n: {"accumulation": k},
    "precision": lambda name, n: {"gradient_precision": name},
    "bandwidth_mbit": lambda rate, n: {"bandwidth": rate * MBIT},
    "other_traffic": lambda share, n: {"other_traffic": share},
    "accelerator": lambda speed, n: {"accelerator_speed": speed},
    "slow_worker": lambda factor, n: {"worker_speeds": [1.0, 1.0 / factor, *[1.0] * (n - 2)]},
}


class Changed(NamedTuple):
    """A measured change of a series, and its prediction from the traces before it; rounds per second."""

    name: str
    change: dict[str, Any]
    workers: int
    measured: float
    curve: ThroughputCurve

    @property
    def error(self) -> float:
        """Relative error."""
        return float(self.curve.iterations_per_second[0]) / self.measured - 1


class Sharded(NamedTuple):
    """A series that was predicted, and what the efficiency of the recorded ranks says, kept."""

    comparison: Comparison
    kept: np.ndarray  # Relative errors at its numbers of ranks


def series(*places: Path) -> list[Path]:
    """Folders of the recorded series of these places, of emulated accelerators without."""
    return [folder for place in places or (unpacked(GIVEN), unpacked(OURS)) for folder in sorted(place.iterdir())]


def read_shards(folder: Path, *, nodes: int = 2) -> Profile:
    """The profile of a recorded series from its traces of so many nodes at most."""
    job = json.loads((folder / "job.json").read_text())
    most = nodes * job["ranks_per_node"]
    runs = [run for run in sorted(folder.glob("trace_n*")) if int(run.name.removeprefix("trace_n")) <= most]
    network = {"congestion_control": job["tcp"], "buffer": job["latency_ms"] / 1e3} if "tcp" in job else {}
    return pytorch.read_pytorch(runs, batch_size=1, bandwidth=job["bandwidth_mbit"] * MBIT, **network)


def compare_sharded(folder: Path) -> Sharded:
    """A series predicted from its traces, and judged on more ranks."""
    profile = read_shards(folder)
    recorded = profile.cluster.workers
    rates = {one["workers"]: one["group_steps_per_s"] for one in json.loads((folder / "measured.json").read_text())}
    workers = np.array([n for n in sorted(rates) if n > recorded])
    measured = workers * np.array([rates[n] for n in workers.tolist()])
    curve = predict(profile, workers=workers.tolist())
    name = f"{folder.name} (ours)" if folder.parent == unpacked(OURS) else folder.name
    return Sharded(
        Comparison(name, profile.strategy, workers, measured, curve), workers * rates[recorded] / measured - 1
    )


def compare_changes(folder: Path) -> list[Changed]:
    """Each measured change of a series, predicted from its traces."""
    file = folder / "changed.json"
    if not file.exists():
        return []
    model, found = fit(read_shards(folder)), []
    for row in json.loads(file.read_text()):
        n = row["workers"]
        what_if = {}
        for name, value in row["change"].items():
            what_if |= WHAT_IFS[name](value, n)
        curve = model.throughput([n], **what_if)
        found.append(Changed(folder.name, row["change"], n, row["group_steps_per_s"], curve))
    return found


def compare_gathers(folder: Path) -> dict[str, float]:
    """Errors on 8 ranks from the measured rates of 1, 2 and 4 alone, and with the cluster's all-gathers on 2 and 4."""
    rates = {one["workers"]: one["group_steps_per_s"] for one in json.loads((folder / "measured.json").read_text())}
    job = json.loads((folder / "job.json").read_text())
    table = [Measurement(workers=n, steps_per_second=n * rates[n]) for n in (1, 2, 4)]
    with (NCCL / "collectives.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "all-gather" and int(row["nodes"]) <= 4]
    gathers = tuple(Gather(float(r["bytes"]), int(r["nodes"]), 1e-6 * float(r["time_us"])) for r in rows)
    model = {name: job[name] for name in ("parameters", "layers", "precision")} | {"strategy": "fsdp", "workers": [8]}
    return {
        name: float(predict(table, **model, **known).iterations_per_second[0]) / rates[8] - 1
        for name, known in (("alone", {}), ("with gathers", {"gathers": gathers}))
    }


def gathers_table(folders: Sequence[Path]) -> str:
    """A Markdown table with one row per series."""
    rows = [
        f"| {folder.name} | {' | '.join(f'{e:+.1%}' for e in compare_gathers(folder).values())} |" for folder in folders
    ]
    return "\n".join(["| series | rates alone | with gathers |", "|---|---|---|", *rows]) + "\n"


def changes_table(found: Sequence[Changed]) -> str:
    """A Markdown table with one row per change and one for all."""
    lines = ["| series | change | ranks | error |", "|---|---|---|---|"]
    lines += [f"| {c.name} | {json.dumps(c.change)} | {c.workers} | {c.error:+.1%} |" for c in found]
    errors = np.abs([c.error for c in found])
    return "\n".join([*lines, f"| **all** | | | **{errors.mean():.1%}**, worst {errors.max():.1%} |"]) + "\n"


def table(found: Sequence[Sharded]) -> str:
    """A Markdown table with one row per series and one for all."""
    lines = [
        "| series | errors | mean absolute error | efficiency kept | covered |",
        "|---|---|---|---|---|",
    ]
    for one, kept in found:
        errors, said = (
            ", ".join(f"{n}: {e:+.1%}" for n, e in zip(one.counts, own, strict=True)) for own in (one.errors, kept)
        )
        lines.append(f"| {one.name} | {errors} | {one.error:.1%} | {said} | {one.coverage:.0%} |")
    errors, kept = (np.abs(np.concatenate(own)) for own in ([c.errors for c, _ in found], [kept for _, kept in found]))
    inside = np.concatenate([c.inside for c, _ in found])
    kept_too = f"mean {kept.mean():.1%}, worst {kept.max():.1%}"
    lines.append(f"| **all** | worst {errors.max():.1%} | **{errors.mean():.1%}** | {kept_too} | {inside.mean():.0%} |")
    return "\n".join(lines) + "\n"


def _tables(folders: Sequence[Path]) -> str:
    changed = [one for folder in folders for one in compare_changes(folder)]
    return f"""{table([compare_sharded(folder) for folder in folders])}
What-ifs, from the same traces:

{changes_table(changed)}"""


def sharded_section() -> str:
    """The tables, with what they are of."""
    emulated, nccl = map(_tables, (series(), series(unpacked(NCCL))))
    return f"""## Sharded training, from the traces of one node and of two

FSDP2 and HSDP over gloo on emulated accelerators, told TCP's control and the buffers. *Efficiency kept* is the one-line
law beside it: the rate of the recorded ranks, times as many ranks. What two ranks lose by sending both ways over one
connection was learnt on `fsdp-gpt8-60`, `fsdp-gpt12-40-cubic-40ms`, `fsdp-stages-25-cubic-20ms` and
`fsdp-gpt8-30-cubic-30ms-kept`; `fsdp-gpt8-30-cubic-30ms-changed` and its what-ifs were predicted blind. Another under
BBR, `fsdp-bert6-20-bbr-20ms-half`, was 23 % too slow before it taught what two ranks lose there.

{emulated}
### Over NCCL

PyTorch 2.11 with NCCL 2.28 on 2 to 8 ranks that share one H200, each with 8 % of it, as nodes that talk over TCP paced
to 4 Gbit/s (`testbed.rounds.nccl_job`); of HSDP, nodes of two ranks. Eight ranks, on 16 cores, also slow each other
down: training alone, without communication, they take 14 % longer per step than one. All were predicted blind but
`nccl-fsdp-clipped`, which was refused until a collective's waiting was judged by its last rank.

{nccl}
Without traces, from a table of the rates on 1, 2 and 4 ranks, and with the all-gathers that were measured on 2 and 4
(`--gathers`), 8 ranks are predicted with these errors:

{gathers_table([unpacked(NCCL) / name for name in TABLES])}"""


if __name__ == "__main__":
    try:
        print(sharded_section().replace("%", " %"))
    except QueueModelError as error:
        sys.exit(f"validation: {error}")
