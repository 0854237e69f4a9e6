"""How n nodes combine V bytes so that each has the sum of all: the collectives of synchronous training.

An algorithm is a value (`Ring`, `HalvingDoubling`, `MultiTree`, ...). It says its time on n nodes in closed form, from
what a message, a byte on a link and a byte of reduction cost (`Link`); and who sends what to whom, as data
(`Schedule`). A schedule is proven by running it on numbers (`Schedule.combine`) and timed by running it on the links of
a topology that share their bandwidth max-min fairly (`execute`), so that formula and schedule check each other:

    link      the three costs
    topology  nodes and directed links: full bisection, ring, mesh, torus, fat tree
    schedule  transfers as data, what an algorithm offers; execution: their time on a topology
    exchange  algorithms by which equal nodes exchange pieces: rings, recursive ones, several ranks on a node
    trees     algorithms along trees: the double binary tree; multitree and hoplite beside it
    servers   algorithms through servers: parameter servers, BytePS' split
    placement racks under a core that carries less than all of them
"""

from .exchange import HalvingDoubling, Hierarchical, RecursiveDoubling, Ring
from .execution import execute
from .hoplite import Hoplite
from .link import Link
from .multitree import MultiTree
from .placement import InRacks
from .schedule import Algorithm, Schedule, Transfer
from .servers import ParameterServers, SplitServers
from .topology import Topology, complete, fat_tree, full_bisection, mesh, ring, torus
from .trees import DoubleBinaryTree

__all__ = [
    "Algorithm",
    "DoubleBinaryTree",
    "HalvingDoubling",
    "Hierarchical",
    "Hoplite",
    "InRacks",
    "Link",
    "MultiTree",
    "ParameterServers",
    "RecursiveDoubling",
    "Ring",
    "Schedule",
    "SplitServers",
    "Topology",
    "Transfer",
    "complete",
    "execute",
    "fat_tree",
    "full_bisection",
    "mesh",
    "ring",
    "torus",
]
