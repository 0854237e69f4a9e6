"""Operation graphs from recorded steps, and the simulation of many workers that repeat them.

A `Profile` with operations goes through `prepare` (links: what the hosts' links carry; policies: whom a connection
serves first, and which server holds which tensor; graph: all of it packed into arrays) and, with the cluster's rules
(rules), into the compiled loop (kernel). `simulate` is one run: its result (result) keeps an estimate with an interval,
what the stations were doing, and single steps for viewers. `trace_runs` (runs) repeats it for several numbers of
workers, `trace_curve` (curve) makes a `ThroughputCurve` of that; `calibrate` (calibration) holds simulations of many
networks (variants) against measured throughputs. figures draws a recorded step.
"""

from .calibration import Calibration, calibrate
from .curve import trace_curve, trace_throughput
from .links import Link, Links, estimate_links
from .result import SimulatedRun
from .runs import trace_runs
from .simulate import simulate

__all__ = [
    "Calibration",
    "Link",
    "Links",
    "SimulatedRun",
    "calibrate",
    "estimate_links",
    "simulate",
    "trace_curve",
    "trace_runs",
    "trace_throughput",
]
