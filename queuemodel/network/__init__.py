"""The language of closed queueing networks, and what solving one yields; no numerics.

A `Network` is made of stations (`Station`, `ForkJoin`: each a `Place` that answers for itself), of classes and of a
routing; `values`, `consistency` and `routing` check what is said. It comes from `arrays`, JSON (`json_reading`) or
JMT's files (`jmva_reading`) and is written there (`json_writing`, `jmva_writing`); `diagram` draws it.

`lower` turns it into numbers for those who solve, bound or write it (`lowered`: demands of chains, delays as think
time, speeds, why not product form). A `Solution` is what comes back: throughputs and residence times, all else derived.
"""

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
