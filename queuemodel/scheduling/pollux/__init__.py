"""The Pollux artifact's workloads, measurements and conventions (Qiao et al., OSDI 2021)."""

from .applications import Application, read_application
from .named import Outcome, run_named
from .predict import predicted_curve
from .rule import PolicyRule, measured_curve
from .simulate import run
from .state import RunningJob
from .workload import read_jobs, read_pollux

__all__ = [
    "Application",
    "Outcome",
    "PolicyRule",
    "RunningJob",
    "measured_curve",
    "predicted_curve",
    "read_application",
    "read_jobs",
    "read_pollux",
    "run",
    "run_named",
]
