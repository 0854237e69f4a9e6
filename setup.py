"""What setup.cfg cannot say: the inner loops are extension modules, written in Cython."""

import hashlib
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

HERE = Path(__file__).parent
SOURCES = sorted(str(path.relative_to(HERE)) for path in HERE.glob("queuemodel/**/*.p[yx][xi]"))
DIGEST = hashlib.sha256(b"".join(sorted(HERE.joinpath(path).read_bytes() for path in SOURCES))).hexdigest()
# What Python looks for, and loops look after themselves: indices, and division by 0, which gives what NumPy gives.
DIRECTIVES = {
    "boundscheck": False, "wraparound": False, "initializedcheck": False, "cdivision": True, "cpow": True,
    "infer_types": True, "language_level": 3,
}  # fmt: skip


def module(path: str) -> Extension:
    return Extension(
        path.removesuffix(".pyx").replace("/", "."),
        [path],
        include_dirs=[numpy.get_include()],
        define_macros=[("SOURCES", f'"{DIGEST}"')],  # `base.built` shows it
        depends=[*SOURCES, "setup.py"] if path.endswith("/built.pyx") else [],
        library_dirs=[f"{numpy.__path__[0]}/random/lib"],
        libraries=["npyrandom"],
        extra_compile_args=["-O3", "-g0", "-ffp-contract=off"],  # the same bits on every processor
    )


setup(
    ext_modules=cythonize(
        [module(path) for path in SOURCES if path.endswith(".pyx")], compiler_directives=DIRECTIVES, build_dir="build"
    )
)
