"""Sharded series: rounds per second of many ranks from the traces of one node and of two.

python -m validation.sharded
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from queuemodel import Profile, QueueModelError, ThroughputCurve
from queuemodel.adapters import pytorch
from queuemodel.models import fit, predict
from testbed.recordings import unpacked

from .series import HERE, Comparison

#: Measured elsewhere with a testbed of the same kind, and with ours.
GIVEN, OURS = HERE.parent / "tests" / "data" / "sharded", HERE / "data" / "testbed" / "sharded"

#: Bytes per second.
MBIT = 125_000
#: What a change of a workload is as a what-if, of n ranks, of which the second is the slow one.
WHAT_IFS: dict[str, Callable[[Any, int], dict[str, Any]]] = {
    "accumulation": lambda k, n: {"accumulation": k},
    "precision": lambda name, n: {"gradient_precision": name},
    "bandwidth_mbit": lambda rate, n: {"bandwidth": rate * MBIT},
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


def series() -> list[Path]:
    """Folders of all recorded series."""
    return [folder for place in (GIVEN, OURS) for folder in sorted(unpacked(place).iterdir())]


def read_shards(folder: Path, *, nodes: int = 2) -> Profile:
    """The profile of a recorded series from its traces of so many nodes at most."""
    job = json.loads((folder / "job.json").read_text())
    most = nodes * job["ranks_per_node"]
    runs = [run for run in sorted(folder.glob("trace_n*")) if int(run.name.removeprefix("trace_n")) <= most]
    network = {"congestion_control": job["tcp"], "buffer": job["latency_ms"] / 1e3}
    return pytorch.read_pytorch(runs, batch_size=1, bandwidth=job["bandwidth_mbit"] * MBIT, **network)


def compare_sharded(folder: Path) -> Sharded:
    """A series predicted from its traces, and judged on more ranks."""
    profile = read_shards(folder)
    recorded = profile.cluster.workers
    rates = {one["workers"]: one["group_steps_per_s"] for one in json.loads((folder / "measured.json").read_text())}
    workers = np.array([n for n in sorted(rates) if n > recorded])
    measured = workers * np.array([rates[n] for n in workers.tolist()])
    curve = predict(profile, workers=workers.tolist())
    name = folder.name if folder.parent == unpacked(GIVEN) else f"{folder.name} (ours)"
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


def sharded_section() -> str:
    """The tables, with what they are of."""
    changed = [one for folder in series() for one in compare_changes(folder)]
    what_ifs = f"\nWhat-ifs, from the same traces:\n\n{changes_table(changed)}" if changed else ""
    return f"""## Sharded training, from the traces of one node and of two

FSDP2 and HSDP over gloo on emulated accelerators, told TCP's control and the buffers. *Efficiency kept* is the one-line
law beside it: the rate of the recorded ranks, times as many ranks. What two ranks lose by sending both ways over one
connection was learnt on `fsdp-gpt8-60`, `fsdp-gpt12-40-cubic-40ms`, `fsdp-stages-25-cubic-20ms` and
`fsdp-gpt8-30-cubic-30ms-kept`; `fsdp-gpt8-30-cubic-30ms-changed` and its what-ifs were predicted blind. Another under
BBR, `fsdp-bert6-20-bbr-20ms-half`, was 23 % too slow before it taught what two ranks lose there.

{table([compare_sharded(folder) for folder in series()])}{what_ifs}"""


if __name__ == "__main__":
    try:
        print(sharded_section().replace("%", " %"))
    except QueueModelError as error:
        sys.exit(f"validation: {error}")
