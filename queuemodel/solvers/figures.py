"""The figure of a solved network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..drawing import BOUND, MODEL, dots, finish, mark_knee, new_axes, whole_numbers
from ..network import Solution
from ..network.lowered import lower
from .bounds import bounds, saturation_population

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_network_solution(solution: Solution, *, ax: Axes | None = None) -> Axes:
    """Draw a network's throughput against its population, with asymptotic and balanced-job bounds.

    Solvers that keep only the measures at the population asked for are drawn as one point between the bounds.
    """
    ax = ax or new_axes()
    network, X = solution.network, solution.throughputs
    N = np.arange(1, solution.population + 1)
    loose = bounds(network, N)
    ax.plot(N, loose.upper, "--", color=BOUND, linewidth=1.2, label="asymptotic bounds")
    ax.plot(N, loose.lower, "--", color=BOUND, linewidth=1.2)
    low = lower(network)
    if not (low.why_not_plain() or low.why_not_product_form()):
        tight = bounds(network, N, kind="balanced-job")
        ax.fill_between(N, tight.lower, tight.upper, color=BOUND, alpha=0.25, linewidth=0, label="balanced-job bounds")
    ax.plot(solution.populations, X, color=MODEL, label=solution.solver, **dots(len(X)))
    ax.set_ylim(0, 1.15 * float(X.max()))
    ax.set_xlim(0, 1.02 * solution.population + 0.5)
    ax.set_xlabel("population (customers)")
    ax.set_ylabel("throughput (cycles/s)")
    knee = saturation_population(network)
    mark_knee(ax, knee, f"N* {knee:.3g}" + (f", {solution.bottleneck}" if solution.bottleneck else ""))
    whole_numbers(ax)
    finish(ax)
    return ax
