"""What setup.cfg cannot say: the simulation's loop and the recursion are compiled while the package is installed.

Where that fails (no C compiler, no numba while building, or one that has replaced `pycc`, as numba means to since 0.57)
the package works all the same: numba compiles a loop when it is first used. So no newest version of numba is named.
"""

import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError


class CompileAhead(build_ext):
    def build_extension(self, ext):
        path = Path(self.get_ext_fullpath(ext.name)).resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", ext.name.replace(".kernels.", ".").replace(".kernel.", "."), path]
        if subprocess.run(command, cwd=Path(__file__).parent).returncode:
            raise CompileError(f"{ext.name}: its loop will be compiled when it is first used")


setup(
    ext_modules=[
        Extension("queuemodel.simulator.kernel.ahead", sources=[], optional=True),
        Extension("queuemodel.queueing.kernels.ahead", sources=[], optional=True),
    ],
    cmdclass={"build_ext": CompileAhead},
)
