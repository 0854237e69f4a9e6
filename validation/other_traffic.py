"""Other traffic on the testbed's links, predicted from traces without it.

python -m validation.other_traffic
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from queuemodel.adapters import read_pytorch
from queuemodel.models import predict
from testbed.recordings import unpacked
from testbed.workload import read_workload

from .series import HERE, Comparison, folder_of_trace, read_measured, read_testbed

CHANGED = HERE / "data" / "testbed" / "changed"
#: Series of ranks with the traces, and all that were measured with other traffic.
TRACED = "ddp-gpt8-40-cubic-30ms-other"

SECTION = """## Other traffic on the links

Datagrams take 30 % (of ranks 50 %, too) of every link in both directions, or of the link of the server or of one node
alone (`-server`, `-link`). Predicted by `other_traffic` from traces of the same jobs without it, told TCP's control,
the buffers and the bandwidth; nothing was learnt from these series.

"""


def compare_other_traffic() -> list[Comparison]:
    """Every series with other traffic, by each method that has it."""
    found = []
    for folder in sorted(unpacked(CHANGED).iterdir()):
        workload = read_workload(folder / "workload.json")
        shares = sorted({change["other_traffic"] for change in workload.changes if "other_traffic" in change})
        if workload.other_traffic:
            found += [_on_servers(folder, workload.other_traffic, method) for method in ("trace", "mva")]
        found += [_on_ranks(folder, share) for share in shares]
    return found


def _on_servers(folder: Path, share: float, method: str) -> Comparison:
    workers, measured = read_measured(folder)
    curve = predict(
        read_testbed(folder_of_trace(folder)), workers=workers.tolist(), method=method, **_asked(folder, share)
    )
    return Comparison(folder.name, method, workers, measured, curve)


def _on_ranks(folder: Path, share: float) -> Comparison:
    workload, traces = read_workload(folder / "workload.json"), folder.parent / TRACED
    network = {"congestion_control": workload.congestion_control, "buffer": workload.buffer_ms / 1e3}
    recorded = read_pytorch([traces / f"trace_n{n}" for n in (1, 2)], batch_size=1, **network)
    rows = json.loads((folder / "changed.json").read_text())
    rates = {row["workers"]: row["group_steps_per_s"] for row in rows if row["change"]["other_traffic"] == share}
    workers, measured = np.array([*rates]), np.array([n * rate for n, rate in rates.items()])
    curve = predict(recorded, workers=workers.tolist(), **_asked(folder, share))
    return Comparison(f"{folder.name}, {share:.0%}", "all-reduce", workers, measured, curve)


def _asked(folder: Path, share: float) -> dict[str, Any]:
    return {"bandwidth": read_workload(folder / "workload.json").bandwidth_mbit * 125_000, "other_traffic": share}


if __name__ == "__main__":
    for one in compare_other_traffic():
        errors = ", ".join(f"{n}: {error:+.1%}" for n, error in zip(one.counts, one.errors, strict=True))
        print(f"{one.name}, {one.method}: {errors}")
