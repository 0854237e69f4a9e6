"""The recursion of one class compiled at installation: ``python -m queuemodel.queueing.ahead MODULE.so``."""

import sys
from pathlib import Path

from ..base.compiled import compile_ahead
from .kernels import product_form

if __name__ == "__main__":
    signature = "Tuple((f8[::1], f8[:, ::1]))(f8[::1], f8, i8)"
    compile_ahead(product_form, "recursion", signature, Path(sys.argv[1]).resolve())
