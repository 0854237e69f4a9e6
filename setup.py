"""What setup.cfg cannot say: the inner loops are extension modules, written in Cython."""

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

RANDOM = f"{numpy.__path__[0]}/random/lib"
# As Python has it, but for what no loop needs: each looks after its own indices, and divides by 0 like NumPy.
DIRECTIVES = {
    "boundscheck": False, "wraparound": False, "initializedcheck": False, "cdivision": True, "cpow": True,
    "infer_types": True, "language_level": 3,
}  # fmt: skip

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"queuemodel.{name}",
                [f"queuemodel/{name.replace('.', '/')}.pyx"],
                include_dirs=[numpy.get_include()],
                library_dirs=[RANDOM],
                libraries=["npyrandom"],
                extra_compile_args=["-O3", "-g0", "-ffp-contract=off"],  # the same bits on every processor
            )
            for name in ("simulator.kernel.loop",)
        ],
        compiler_directives=DIRECTIVES,
    )
)
