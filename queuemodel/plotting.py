"""Every figure in one place to import from; each stands beside the result that it draws.

Each function draws on an `Axes` and gives it back; nothing is shown, no global is changed.
"""

from .comparison.result import plot_losses, plot_time_to_target
from .drawing import new_axes, save_figure, svg_image
from .scheduling.figures import plot_nodes, plot_response_times, plot_sweep
from .solvers.figures import plot_network_solution
from .strategies.figures import plot_round
from .traces.figures import plot_timeline
from .training.figures import plot_comparison, plot_efficiency, plot_step_time, plot_throughput

__all__ = [
    "new_axes", "plot_comparison", "plot_efficiency", "plot_losses", "plot_network_solution", "plot_nodes",
    "plot_response_times", "plot_round", "plot_step_time", "plot_sweep", "plot_throughput", "plot_time_to_target",
    "plot_timeline", "save_figure", "svg_image",
]  # fmt: skip
