"""The language of closed queueing networks; no numerics."""

from .jmva import read_jmva, write_jmva
from .jobclass import LARGEST_POPULATION, JobClass
from .network import Network
from .phasetype import PhaseType
from .solution import Solution
from .station import ForkJoin, Station

__all__ = [
    "LARGEST_POPULATION",
    "ForkJoin",
    "JobClass",
    "Network",
    "PhaseType",
    "Solution",
    "Station",
    "read_jmva",
    "write_jmva",
]
