"""Operation graphs from recorded steps (graph, links), and the simulation of many workers that repeat them (kernel).

`simulate_operations` is one run, `trace_runs` several of each number of workers.
"""

from .links import LinkRate, LinkRates, estimate_links
from .result import SimulatedRun, plot_timeline
from .simulate import simulate_operations, trace_runs

__all__ = [
    "LinkRate", "LinkRates", "SimulatedRun", "estimate_links", "plot_timeline", "simulate_operations", "trace_runs",
]  # fmt: skip
