"""Every benchmark, one after the other: ``python -m benchmarks``."""

import runpy
import sys
from pathlib import Path

sys.argv = sys.argv[:1]
for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
    print(f"\n== {path.stem}", flush=True)
    runpy.run_path(str(path), run_name="__main__")
