"""The simulation's loop compiled while the package is installed: ``python -m queuemodel.traces.ahead MODULE.so``.

Whoever installs the package then waits for numba, and nobody who uses it (`queuemodel.compiled.ready`).
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..compiled import AHEAD, stamp
from ..data import example_profile
from .contention import contentions
from .graph import prepare
from .kernel import loop
from .kernel.state import new_state
from .rules import cluster_rules


def arguments() -> tuple:
    """What `simulate` calls the loop with; all simulations do so with the same types."""
    graphs = prepare(example_profile())
    kind, *_ = contentions(graphs.profile)
    rules = cluster_rules(workers=1, policy=graphs.policy, **kind.settings)
    state = new_state(graphs.steps, links=np.ones((2, graphs.parameter_servers + 1)), starts=np.zeros(1), rules=rules)
    return graphs.steps, state, rules, np.random.default_rng(0), 1, 1


def compile_to(path: Path) -> None:
    """Compile the loop into an extension module (numba's `pycc`), which needs no numba when it is used."""
    from numba import typeof, types
    from numba.core.errors import NumbaPendingDeprecationWarning

    warnings.simplefilter("ignore", NumbaPendingDeprecationWarning)
    from numba.pycc import CC, compiler

    compiler.Flags = _flags  # type: ignore[assignment, misc]
    sources = stamp(Path(loop.__file__).parent)
    module = CC(AHEAD, source_module=loop)
    module.output_dir, module.output_file = str(path.parent), path.name
    module.export("run", types.boolean(*map(typeof, arguments())))(loop.run.py_func)  # type: ignore[attr-defined]
    module.export("sources", types.int64())(lambda: sources)
    module.compile()


def _flags() -> Any:
    """What stands for ``nogil=True``, which `pycc` cannot be told: threads run loops at the same time."""
    from numba.core.compiler import Flags

    flags: Any = Flags()
    flags.release_gil = True
    return flags


if __name__ == "__main__":
    compile_to(Path(sys.argv[1]).resolve())
