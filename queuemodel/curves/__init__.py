"""Throughput against the number of workers, and what follows from it.

Every prediction ends in a `ThroughputCurve`; `plan` and `next_measurement` start from one, as do figures and the page
of a report. `Convergence` is the other half of the time to a loss: examples until the target, by batch size.
"""

from .convergence import Convergence, fit_convergence, read_convergence, relative_convergence
from .curve import ThroughputCurve
from .figures import plot_comparison, plot_cost, plot_efficiency, plot_ratio, plot_step_time, plot_throughput
from .plan import Choice, Plan, plan
from .prediction import NextMeasurement, next_measurement
from .ratio import Ratio

__all__ = [
    "Choice", "Convergence", "NextMeasurement", "Plan", "Ratio", "ThroughputCurve", "fit_convergence",
    "next_measurement", "plan", "plot_comparison", "plot_cost", "plot_efficiency", "plot_ratio", "plot_step_time",
    "plot_throughput", "read_convergence", "relative_convergence",
]  # fmt: skip
