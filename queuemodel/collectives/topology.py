"""Topologies: nodes, directed links, and the way between two nodes."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from ..checks import require_count, require_number
from ..errors import ModelError


@dataclass(frozen=True, eq=False)
class Topology:
    """Nodes joined by directed links, over switches or directly.

    Attributes
    ----------
    nodes : int
        The first vertices; those after them are switches.
    links : tuple of (int, int)
        From vertex to vertex; both directions are listed.
    capacities : ndarray
        Of each link, relative to a node's own link.
    name : str
    """

    nodes: int
    links: tuple[tuple[int, int], ...]
    capacities: np.ndarray
    name: str = ""
    _routes: dict[int, dict[int, int]] = field(init=False, repr=False, default_factory=dict)
    _out: dict[int, list[tuple[int, int]]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.capacities.flags.writeable = False
        for index, (start, end) in enumerate(self.links):
            self._out.setdefault(start, []).append((end, index))

    def route(self, source: int, destination: int) -> tuple[int, ...]:
        """Links of a shortest way; among equally short ones always the same.

        Raises
        ------
        ModelError
            When there is no way.
        """
        if source not in self._routes:
            self._routes[source] = self._tree(source)
        came, at, way = self._routes[source], destination, []
        while at != source:
            if at not in came:
                raise ModelError(f"topology {self.name}: no way from node {source} to node {destination}")
            way.append(came[at])
            at = self.links[came[at]][0]
        return tuple(reversed(way))

    def _tree(self, source: int) -> dict[int, int]:
        """The link by which each vertex is reached first."""
        came: dict[int, int] = {}
        open_vertices = deque([source])
        while open_vertices:
            at = open_vertices.popleft()
            for end, index in self._out.get(at, ()):
                if end not in came and end != source:
                    came[end] = index
                    open_vertices.append(end)
        return came


def _undirected(nodes: int, pairs: list[tuple[int, int]], name: str, capacities: list[float] | None = None) -> Topology:
    links = tuple(link for a, b in pairs for link in ((a, b), (b, a)))
    shares = np.repeat(np.ones(len(pairs)) if capacities is None else np.array(capacities, dtype=float), 2)
    return Topology(nodes, links, shares, name)


def full_bisection(nodes: int) -> Topology:
    """Every node behind one link to a switch that never blocks."""
    n = require_count(nodes, "full_bisection: nodes")
    return _undirected(n, [(i, n) for i in range(n)], f"full bisection of {n}")


def complete(nodes: int) -> Topology:
    """A link of its own between any two nodes."""
    n = require_count(nodes, "complete: nodes")
    return _undirected(n, list(itertools.combinations(range(n), 2)), f"complete graph of {n}")


def ring(nodes: int) -> Topology:
    """Each node linked to two neighbours, in both directions."""
    n = require_count(nodes, "ring: nodes", least=2)
    pairs = [(i, (i + 1) % n) for i in range(n)] if n > 2 else [(0, 1)]
    return _undirected(n, pairs, f"ring of {n}")


def mesh(rows: int, columns: int) -> Topology:
    """A grid."""
    return _grid(rows, columns, wrap=False)


def torus(rows: int, columns: int) -> Topology:
    """A grid whose rows and columns are closed to rings (those of two nodes have one link)."""
    return _grid(rows, columns, wrap=True)


def _grid(rows: int, columns: int, *, wrap: bool) -> Topology:
    R, C = (require_count(n, f"grid: {what}") for n, what in ((rows, "rows"), (columns, "columns")))
    pairs = []
    for r, c in itertools.product(range(R), range(C)):
        if c + 1 < C or (wrap and C > 2):
            pairs.append((r * C + c, r * C + (c + 1) % C))
        if r + 1 < R or (wrap and R > 2):
            pairs.append((r * C + c, (r + 1) % R * C + c))
    return _undirected(R * C, pairs, f"{R}x{C} {'torus' if wrap else 'mesh'}")


def fat_tree(nodes: int, *, nodes_per_rack: int, oversubscription: float = 1.0) -> Topology:
    """Racks under one core: each rack's link up carries a full rack's bandwidth divided by ``oversubscription``.

    Raises
    ------
    ModelError
        When the numbers are not whole and positive, or the oversubscription is not > 0.
    """
    n = require_count(nodes, "fat_tree: nodes")
    per = require_count(nodes_per_rack, "fat_tree: nodes_per_rack")
    over = require_number(oversubscription, "fat_tree: oversubscription", positive=True)
    racks = -(-n // per)
    down = [(i, n + i // per) for i in range(n)]
    up = [(n + r, n + racks) for r in range(racks)]
    capacities = [1.0] * n + [per / over] * racks
    return _undirected(n, down + up, f"{n} nodes in racks of {per}, {over:g} to 1", capacities)
