"""How n nodes combine V bytes so that each has the sum of all: the collectives of synchronous training.

An algorithm is a value (`Ring`, `HalvingDoubling`, `MultiTree`, ...). It says its time on n nodes in closed form, from
what a message, a byte on a link and a byte of reduction cost (`Link`), and how much travels between which nodes:

    algorithms  the costs of a link; rings, recursive algorithms, the double binary tree, servers; ranks on nodes, racks
    trees       algorithms that build trees: MultiTree and the topologies that it serves, Hoplite
"""

from .algorithms import (
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
from .trees import Hoplite, MultiTree, Topology, complete, mesh, ring, torus

#: Those that need nothing but their name.
COLLECTIVES: dict[str, Algorithm] = {
    "ring": Ring(),
    "recursive-doubling": RecursiveDoubling(),
    "halving-doubling": HalvingDoubling(),
    "double-binary-tree": DoubleBinaryTree(),
    "hoplite": Hoplite(),
    "parameter-servers": ParameterServers(),
    "split-servers": SplitServers(),
}

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
