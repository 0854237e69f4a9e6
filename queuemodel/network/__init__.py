"""The language of closed queueing networks, and what solving one yields; no numerics.

A `Network` is made of stations, of classes and of a routing. It comes from arrays, JSON (`json_format`) or JMT's files
(`jmva`) and is written there.

`lower` turns it into numbers for those who solve, bound or write it (`lowered`: demands of chains, delays as think
time, speeds, why not product form). A `Solution` is what comes back: throughputs and residence times, all else derived.
"""

from .jmva import read_jmva, write_jmva
from .network import Network
from .phasetype import PhaseType
from .solution import Solution
from .stations import LARGEST_POPULATION, JobClass, Station

__all__ = [
    "LARGEST_POPULATION",
    "JobClass",
    "Network",
    "PhaseType",
    "Solution",
    "Station",
    "read_jmva",
    "write_jmva",
]
