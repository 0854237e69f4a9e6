"""Operation graphs from recorded steps, and the simulation of many workers that repeat them.

A `Profile` with operations becomes arrays (links: what the hosts' links carry; graph: operations, the order in which
a connection sends tensors, and which server holds which), and with the cluster's rules goes into the compiled loop
(kernel). `simulate_operations` is one run, `trace_runs` several of each number of workers; a result keeps an estimate
with an interval, what the stations were doing, and single steps for viewers.
"""

from .links import LinkRate, LinkRates, estimate_links
from .result import SimulatedRun, plot_timeline
from .runs import trace_runs
from .simulate import simulate_operations

__all__ = [
    "LinkRate",
    "LinkRates",
    "SimulatedRun",
    "estimate_links",
    "plot_timeline",
    "simulate_operations",
    "trace_runs",
]
