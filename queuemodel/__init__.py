"""Throughput of distributed training against node count, from a short profile and a closed queueing network."""

from importlib import import_module as _import
from typing import TYPE_CHECKING

from .base import __version__ as __version__

#: The public names, by the module that they come from, which is imported when the first of them is used.
_NAMES = {
    "base.drawing": "save_figure",
    "base.errors": """
        DataError FitError MissingDependencyError ModelError ProfilingError QueueModelError QueueModelWarning
    """,
    "curves": "ThroughputCurve fit_convergence next_measurement plan",
    "models": """
        Instance fit load plan_instances predict read_instances simulate
    """,
    "profile": """
        Cluster Job Measurement Operation Profile Scenario Source Step copy_examples example_profile example_throughputs
        noise_scale read_measurements
    """,
}
#: Folders with more: networks and their solvers, clusters and their policies, training strategies.
_FOLDERS = ("queueing", "scheduling", "sgd")
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from . import queueing as queueing
    from . import scheduling as scheduling
    from . import sgd as sgd
    from .base.drawing import save_figure as save_figure
    from .base.errors import *  # noqa: F403
    from .curves import *  # noqa: F403
    from .models import *  # noqa: F403
    from .profile import *  # noqa: F403


def __getattr__(name: str) -> object:
    """A public name, when it is first used: the command line starts without all that others need."""
    if name in _FOLDERS:
        return _import(f".{name}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(_import(f".{_HOME[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_FOLDERS, "__version__"})
