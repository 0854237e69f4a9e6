"""The recursion of one class compiled while the package is installed: ``python -m queuemodel.solvers.ahead MODULE.so``.

Whoever installs the package then waits for numba, and nobody who solves a network (`queuemodel.compiled.ready`).
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from ..compiled import AHEAD, stamp
from .kernels import recursion


def compile_to(path: Path) -> None:
    """Compile it into an extension module (numba's `pycc`), which needs no numba when it is used."""
    from numba.core.errors import NumbaPendingDeprecationWarning

    warnings.simplefilter("ignore", NumbaPendingDeprecationWarning)
    from numba.pycc import CC

    sources = stamp(Path(recursion.__file__).parent)
    module = CC(AHEAD, source_module=recursion)
    module.output_dir, module.output_file = str(path.parent), path.name
    signature = "Tuple((f8[::1], f8[:, ::1]))(f8[::1], f8, i8)"
    module.export("recursion", signature)(recursion.recursion.py_func)  # type: ignore[attr-defined]
    module.export("sources", "i8()")(lambda: sources)
    module.compile()


if __name__ == "__main__":
    compile_to(Path(sys.argv[1]).resolve())
