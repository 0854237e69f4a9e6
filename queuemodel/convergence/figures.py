"""The figure of a fitted convergence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..drawing import MODEL, PROFILED, band, finish, mark_knee, measured_points, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .fit import Convergence


def plot_convergence(fitted: Convergence, *, ax: Axes | None = None, largest: int | None = None) -> Axes:
    """Draw examples until the target against batch size: measured means, the fit with its 90 % band.

    The fitted range is shaded; the critical batch is marked where it lies on the axes.

    Parameters
    ----------
    fitted : Convergence
    ax : Axes, optional
        Where to draw; a new figure unless given.
    largest : int, optional
        Batch size up to which; four times the largest measured one unless given.

    Returns
    -------
    Axes
    """
    ax = ax or new_axes()
    first, last = fitted.batch_size[[0, -1]]
    x = np.unique(np.geomspace(max(first / 2, 1), largest or 4 * last, 80).astype(int))
    y, (lower, upper) = fitted.examples(x), fitted.interval(x)
    ax.set_xscale("log", base=2)
    ax.axvspan(first, last, color=PROFILED, linewidth=0, label="fitted range")
    band(ax, x, lower, upper, MODEL)
    ax.plot(x, y, color=MODEL, linewidth=1.8, label="fitted, with its 90% band")
    measured_points(ax, list(zip(fitted.batch_size.tolist(), fitted.measured.tolist(), strict=True)))
    ax.set_ylim(0, 1.1 * max(float(upper.max()), float(fitted.measured.max())))
    ax.set_xlabel("batch size of a step")
    ax.set_ylabel("examples until the target")
    finish(ax, legend="upper left")
    mark_knee(ax, fitted.critical_batch, "critical batch")
    return ax
