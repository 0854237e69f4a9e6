"""What the network does: connections that share a full link (`sharing`), and algorithms that combine nodes' data."""

from .collectives import (
    NCCL,
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
    "COLLECTIVES", "NCCL", "Algorithm", "DoubleBinaryTree", "HalvingDoubling", "Hierarchical", "Hoplite", "InRacks",
    "Link", "MultiTree", "ParameterServers", "RecursiveDoubling", "Ring", "SplitServers", "Topology", "complete",
    "mesh", "ring", "torus",
]  # fmt: skip
