"""What the network does: how connections share a full link (`sharing`), and how n nodes combine their data.

An algorithm is a value with the time of a reduction on a `Link`, and what travels between which nodes.
"""

from .collectives import (
    Algorithm,
    DoubleBinaryTree,
    HalvingDoubling,
    Hierarchical,
    InRacks,
    Link,
    ParameterServers,
    RecursiveDoubling,
    Ring,
    SplitServers,
)
from .trees import COLLECTIVES, Hoplite, MultiTree, Topology, complete, mesh, ring, torus

__all__ = [
    "COLLECTIVES",
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
    "SplitServers",
    "Topology",
    "complete",
    "mesh",
    "ring",
    "torus",
]
