"""Stations in a ring with arrows where customers go, as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

BOX_WIDTH, BOX_HEIGHT = 132, 46


def moves(routing: Any, visits: np.ndarray) -> np.ndarray:
    """What is drawn as arrows, shape (K, K): the routing, or the order of the stations visited where there is none."""
    if isinstance(routing, Mapping):
        return np.max([np.array(m) for m in routing.values()], axis=0)
    if routing is not None:
        return np.array(routing)
    P = np.zeros((len(visits), len(visits)))
    visited = np.flatnonzero(visits > 0)
    P[visited, np.roll(visited, -1)] = 1.0
    return P


def diagram(stations: Sequence[tuple[str, str, bool]], P: np.ndarray, title: str) -> str:
    """Stations (name, kind, whether a delay) around a ring, and arrows P."""
    K = len(stations)
    radius = max(130.0, K * (BOX_WIDTH + 36) / (2 * math.pi))
    height = 2 * radius * (0.75 if K > 2 else 0.2) + BOX_HEIGHT + 60
    width = 2 * radius + BOX_WIDTH + 60
    centre = np.array([width / 2, height / 2 + 8])
    stretch = np.array([radius, radius * 0.75])
    angles = math.pi + 2 * math.pi * np.arange(K) / K
    at = centre + stretch * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>',
    ]
    parts += [_arrow(at, i, j, P[i, j], K) for i in range(K) for j in range(K) if P[i, j] > 0]
    parts += [_box(*station, at[k]) for k, station in enumerate(stations)]
    return "".join(parts) + "</svg>"


def _arrow(at: np.ndarray, i: int, j: int, p: float, K: int) -> str:
    style = 'fill="none" stroke="#555" stroke-width="1.2" marker-end="url(#arrow)"'
    label = "" if p == 1 else f"{p:.3g}"
    if i == j:
        x, y = at[i] - [0, BOX_HEIGHT / 2]
        path = f"M{x + 20:.1f} {y:.1f}c8 -26 -48 -26 -40 0"
        return f'<path d="{path}" {style}/><text x="{x + 14:.1f}" y="{y - 14:.1f}" fill="#555">{label}</text>'
    way = at[j] - at[i]
    side = np.array([-way[1], way[0]]) / max(float(np.hypot(*way)), 1e-9)
    bend = (at[i] + at[j]) / 2 - side * (22 if K > 1 else 0)
    start, end = _edge(at[i], bend), _edge(at[j], bend)
    path = f"M{start[0]:.1f} {start[1]:.1f}Q{bend[0]:.1f} {bend[1]:.1f} {end[0]:.1f} {end[1]:.1f}"
    text = (start + 2 * bend + end) / 4 - side * 6
    return f'<path d="{path}" {style}/><text x="{text[0]:.1f}" y="{text[1]:.1f}" fill="#555">{label}</text>'


def _edge(box: np.ndarray, towards: np.ndarray) -> np.ndarray:
    """Where the line from a box's centre leaves the box."""
    way = towards - box
    scale = max(abs(way[0]) / (BOX_WIDTH / 2 + 3), abs(way[1]) / (BOX_HEIGHT / 2 + 3), 1e-9)
    return box + way / scale


def _box(name: str, kind: str, is_delay: bool, centre: np.ndarray) -> str:
    x, y = centre - [BOX_WIDTH / 2, BOX_HEIGHT / 2]
    name = name if len(name) <= 18 else name[:17] + "…"
    corner = BOX_HEIGHT / 2 if is_delay else 4
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="{corner}" fill="#f4f6fa" '
        f'stroke="#234"/><text x="{centre[0]:.1f}" y="{centre[1] - 3:.1f}" text-anchor="middle" '
        f'font-weight="bold">{escape(name)}</text><text x="{centre[0]:.1f}" y="{centre[1] + 14:.1f}" '
        f'text-anchor="middle" fill="#555">{escape(kind)}</text>'
    )
