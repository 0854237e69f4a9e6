"""How long a person waits: the first prediction on a machine, later ones, and traces read, beside a peer's import.

python -m benchmarks.startup
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from queuemodel.profile import examples as data

PEER = ["-c", "import scipy.optimize"]
PREDICT = [
    "-m",
    "queuemodel",
    "predict",
    str(Path(data.__file__).parent / "data" / "alexnet-60.json"),
    "--workers",
    "1:8",
]
TRACES = Path(__file__).parent.parent / "tests" / "data" / "alexnet-60" / "trace"
IMPORT = ["-m", "queuemodel", "import-trace", str(TRACES), "--batch-size", "32", "-o"]


def seconds(arguments: list[str], caches: str) -> tuple[float, float]:
    """Wall-clock and processor time of a Python process that keeps bytecode in this folder."""
    own = {"PYTHONPYCACHEPREFIX": caches, "PYTHONDONTWRITEBYTECODE": ""}
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=os.environ | own, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - begun, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(times: int = 5) -> None:
    """Print medians, and the ratio of their processor times to the peer's."""
    with tempfile.TemporaryDirectory() as kept:
        later = {
            "import scipy.optimize": PEER,
            "a later prediction, 1 to 8 workers": PREDICT,
            "12 traced steps of TensorFlow read": [*IMPORT, f"{kept}/profile.json"],
        }
        found = {what: [seconds(asked, kept) for _ in range(times + 1)][1:] for what, asked in later.items()}
    found["the first prediction"] = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as fresh:
            found["the first prediction"].append(seconds(PREDICT, fresh))
    peer = statistics.median(used for _, used in found["import scipy.optimize"])
    for what, both in found.items():
        waited, used = (statistics.median(numbers) for numbers in zip(*both, strict=True))
        print(f"{what:36} {waited:6.2f} s, of processors {used:6.2f} s: {used / peer:4.1f} times the import")


if __name__ == "__main__":
    main()
