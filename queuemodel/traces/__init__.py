"""Operation graphs from recorded steps, and the simulation of many workers that repeat them."""

from .links import Link, Links, estimate_links
from .result import SimulatedRun
from .simulate import simulate

__all__ = ["Link", "Links", "SimulatedRun", "estimate_links", "simulate"]
