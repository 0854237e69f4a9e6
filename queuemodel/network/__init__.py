"""The language of closed queueing networks; no numerics."""

from .forkjoin import ForkJoin
from .jmva_reading import read_jmva
from .jmva_writing import write_jmva
from .jobclass import LARGEST_POPULATION, JobClass
from .network import Network
from .phasetype import PhaseType
from .place import Place
from .solution import Solution
from .station import Station

__all__ = [
    "LARGEST_POPULATION",
    "ForkJoin",
    "JobClass",
    "Network",
    "PhaseType",
    "Place",
    "Solution",
    "Station",
    "read_jmva",
    "write_jmva",
]
