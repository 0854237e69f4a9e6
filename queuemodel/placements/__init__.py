"""Data-parallel steps on nodes of several GPUs: from a table of placements to a curve over placements.

    measured  what was measured: a step's time on so many nodes and GPUs, and its table
    alone     steps on one GPU, which every placement repeats
    law       how long a step takes: computation, stragglers, and an all-reduce that partly hides behind it
    fit       the law's parameters from measurements, all batch sizes of a job at once
    model     the fitted law, asked for step times and for a `ThroughputCurve`

A worker of these curves is a GPU.
"""

from .fit import fit_placements
from .measured import PlacedStep, read_placements
from .model import PlacementModel

__all__ = ["PlacedStep", "PlacementModel", "fit_placements", "read_placements"]
