"""Data-parallel steps on nodes of several GPUs: from a table of placements to a curve over placements.

    law    what was measured, and how long a step takes: computation, stragglers, an all-reduce that partly hides
    model  the law fitted to all batch sizes of a job at once, asked for step times and for a `ThroughputCurve`

A worker of these curves is a GPU.
"""

from .law import PlacedStep, read_placements
from .model import PlacementModel, fit_placements

__all__ = ["PlacedStep", "PlacementModel", "fit_placements", "read_placements"]
