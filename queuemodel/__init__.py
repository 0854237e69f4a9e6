"""Throughput of distributed training against node count, from a short profile and a closed queueing network."""

from importlib import import_module as _import
from typing import TYPE_CHECKING

from .base import __version__ as __version__

#: The public names, by the module that they come from, which is imported when the first of them is asked for.
_NAMES = {
    "base.drawing": "save_figure",
    "base.errors": """
        DataError FitError MissingDependencyError ModelError ProfilingError QueueModelError QueueModelWarning
    """,
    "base.estimates": "Parameter",
    "curves": """
        Convergence NextMeasurement Plan ThroughputCurve fit_convergence next_measurement plan
    """,
    "models": """
        GrowthModel Instance InstancePlan PlacedStep PlacementModel TrainingModel fit fit_placements load plan_instances
        predict read_instances read_placements simulate
    """,
    "profile": """
        Cluster Job NoiseScale Operation Profile Scenario Source Step Throughput copy_examples example_profile
        example_throughputs noise_scale read_throughputs
    """,
    "queueing": """
        ApproximateMVA BatchSolution Bounds ExactMVA JobClass MarkovChain Network PhaseType Sensitivity Simulation
        SimulationResult Solution Station SymbolicSolution barrier_time bounds knee_throughput knee_width
        marginal_distribution read_jmva saturation_population sensitivity solve solve_batch solve_symbolic write_jmva
    """,
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from .base.drawing import save_figure as save_figure
    from .base.errors import *  # noqa: F403
    from .base.estimates import Parameter as Parameter
    from .curves import *  # noqa: F403
    from .models import *  # noqa: F403
    from .profile import *  # noqa: F403
    from .queueing import *  # noqa: F403


def __getattr__(name: str) -> object:
    """A public name, when it is first asked for: the command line starts without all that others need."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(_import(f".{_HOME[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})
