"""Operation graphs from recorded steps, and the simulation of many workers that repeat them."""

from .curve import trace_curve, trace_throughput
from .links import Link, Links, estimate_links
from .result import SimulatedRun
from .runs import trace_runs
from .simulate import simulate

__all__ = [
    "Link",
    "Links",
    "SimulatedRun",
    "estimate_links",
    "simulate",
    "trace_curve",
    "trace_runs",
    "trace_throughput",
]
