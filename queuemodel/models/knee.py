"""The knee: on how many nodes a job loses a tenth of its rate per worker, which two points before it do not show."""

from __future__ import annotations

import numpy as np

from ..base.estimates import Parameter

#: Share of the rate per worker that is lost there, a definition; most nodes on which it is looked for.
LOST, MOST_NODES = 0.1, 16_384


def knee_of(nodes: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Nodes (B,) of each draw on which `LOST` of the best rate per worker on fewer is lost; inf where it never is.

    ``nodes`` (n,) increase, ``rate`` (n, B) are draws of its logarithm.
    """
    lost = rate < np.maximum.accumulate(rate) + np.log1p(-LOST)
    return np.where(lost.any(axis=0), nodes[lost.argmax(axis=0)], np.inf)


def knee_parameter(knee: np.ndarray, measured: float) -> Parameter:
    """As a parameter, identified where it is among the ``measured`` nodes."""
    ends = np.quantile(knee, [0.15866, 0.5, 0.84134], method="nearest")
    low, middle, high = np.where(ends < np.inf, ends, np.nan).tolist()
    return Parameter(
        "knee", middle, "nodes", standard_error=(high - low) / 2, origin="derived", identified=middle <= measured,
        note="10 % of the rate per GPU is lost",
    )  # fmt: skip


def knee_note(knee: np.ndarray, most: int = MOST_NODES) -> str:
    """Its median and 90 % interval, in words; ``most``: nodes up to which it was looked for."""
    low, middle, high = (
        f"{nodes:,.0f}" if nodes < np.inf else f"over {most:,}"
        for nodes in np.quantile(knee, [0.05, 0.5, 0.95], method="nearest").tolist()
    )
    return f"knee (10 % per GPU lost) on {middle} nodes, 90 % between {low} and {high}"
