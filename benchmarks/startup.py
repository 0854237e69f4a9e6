"""How long a person waits: the first prediction on a machine, later ones, and traces read, beside a peer's import.

python -m benchmarks.startup [--times N] [--most RATIO]
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from queuemodel.profile import examples as data

PEER, FIRST = "numpy, scipy.stats", "the first prediction"
PREDICT = [
    "-m",
    "queuemodel",
    "predict",
    str(Path(data.__file__).parent / "data" / "alexnet-60.json"),
    "--workers",
    "1:8",
]
TRACES = Path(__file__).parent.parent / "tests" / "data" / "alexnet-60.tar.xz"


def seconds(arguments: list[str], caches: str) -> tuple[float, float]:
    """Wall-clock and processor time of a Python process that keeps bytecode in this folder."""
    own = {"PYTHONPYCACHEPREFIX": caches, "PYTHONDONTWRITEBYTECODE": ""}
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=os.environ | own, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - begun, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print medians, and the ratio of their processor times to the peer's; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="of which the median is taken (default 5)")
    parser.add_argument("--most", type=float, default=math.inf, help="times the import that a prediction may take")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as kept:
        shutil.unpack_archive(TRACES, f"{kept}/traces", filter="data")
        imported = ["-m", "queuemodel", "import-trace", f"{kept}/traces/trace", "--batch-size", "32", "-o"]
        later = {
            f"import {PEER}": ["-c", f"import {PEER}"],
            "a later prediction, 1 to 8 workers": PREDICT,
            "12 traced steps of TensorFlow read": [*imported, f"{kept}/profile.json"],
        }
        if not importlib.util.find_spec("google"):  # protobuf, of the extra "traces"
            later.popitem()
        found = {what: [seconds(command, kept) for _ in range(asked.times + 1)][1:] for what, command in later.items()}
    found[FIRST] = []
    for _ in range(asked.times):
        with tempfile.TemporaryDirectory() as fresh:
            found[FIRST].append(seconds(PREDICT, fresh))
    waited, used = (
        {what: statistics.median(numbers[part] for numbers in both) for what, both in found.items()} for part in (0, 1)
    )
    peer = used[f"import {PEER}"]
    for what in found:
        ratio = f"{used[what] / peer:4.1f} times the import"
        print(f"{what:36} {waited[what]:6.2f} s, of processors {used[what]:6.2f} s: {ratio}")
    return int(used[FIRST] > asked.most * peer)


if __name__ == "__main__":
    sys.exit(main())
