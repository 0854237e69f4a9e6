"""What the report of a comparison shows (`queuemodel.reporting`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..descent import Descent
    from .result import Comparison

#: Points of each strategy's losses: as many as a screen shows.
POINTS = 100


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """Plain values of everything that the page of a comparison shows."""
    on = f" on {comparison.problem}, which stands in for the job" if comparison.problem else ""
    return {
        "title": f"Ways of training on {comparison.workers} workers",
        "caption": comparison.caption(),
        "nodes": comparison.nodes,
        "target": comparison.target,
        "price_per_node_hour": comparison.price_per_node_hour,
        "confidence": comparison.confidence,
        "relative": comparison.relative,
        "note": comparison.note,
        "headline": f"Most probably first{on}: {comparison.best.name}." if comparison.best is not None else "",
        "rows": comparison.to_rows(),
        "losses": [
            {"strategy": one.name, **_losses(one.descent)} for one in comparison.rows if one.descent is not None
        ],
    }


def _losses(run: Descent) -> dict[str, list[float]]:
    """Mean seconds, and mean, least and largest loss over the seeds: what is drawn, to five digits."""
    seconds = run.times.mean(axis=0)
    shown = np.unique(np.geomspace(1, len(seconds) - 1, POINTS).astype(int))  # the start has no logarithm
    columns = {
        "seconds": seconds,
        "mean": run.losses.mean(axis=0),
        "least": run.losses.min(axis=0),
        "largest": run.losses.max(axis=0),
    }
    return {name: [float(f"{value:.5g}") for value in column[shown]] for name, column in columns.items()}
