"""The knee: the number of nodes on which a job loses a tenth of its rate per worker, with its uncertainty."""

from __future__ import annotations

import numpy as np

from ..base.estimates import Parameter

LOST, MOST_NODES = 0.1, 16_384  #: Lost share of the rate per worker, a definition; most nodes of a search for it.


def knee_of(nodes: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Nodes (B,) of each draw on which `LOST` of the best rate per worker on fewer is lost; inf where it never is.

    ``nodes`` (n,) increase, ``rate`` (n, B) are draws of its logarithm.
    """
    lost = rate < np.maximum.accumulate(rate) + np.log1p(-LOST)  # r(k) < (1 - LOST) max r(j), j <= k
    return np.where(lost.any(axis=0), nodes[lost.argmax(axis=0)], np.inf)


def knee_parameter(knee: np.ndarray, measured: float) -> Parameter:
    """The knee as a parameter, identified where it is among the ``measured`` nodes."""
    # one standard error either way, as of a normal law; "nearest", since inf cannot be interpolated
    quantiles = np.quantile(knee, [0.15866, 0.5, 0.84134], method="nearest")
    low, median, high = np.where(quantiles < np.inf, quantiles, np.nan).tolist()
    error, note = (high - low) / 2, "10 % of the rate per GPU is lost"
    known = median <= measured
    return Parameter("knee", median, "nodes", standard_error=error, origin="derived", identified=known, note=note)


def knee_note(knee: np.ndarray, most: int = MOST_NODES) -> str:
    """The knee's median and 90 % interval as a clause; ``most``: nodes up to which it is looked for."""
    low, median, high = (
        f"{nodes:,.0f}" if nodes < np.inf else f"over {most:,}"
        for nodes in np.quantile(knee, [0.05, 0.5, 0.95], method="nearest").tolist()
    )
    return f"knee (10 % per GPU lost) on {median} nodes, 90 % between {low} and {high}"
