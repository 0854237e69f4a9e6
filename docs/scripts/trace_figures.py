"""Make the pictures of the pages about traces: ``python docs/scripts/trace_figures.py``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from queuemodel import example_profile
from queuemodel.base.drawing import COLORS, band, finish_axes, save_figure
from queuemodel.simulator import simulate_operations
from queuemodel.simulator.result import plot_timeline

IMAGES = Path(__file__).parents[1] / "images"


def timeline() -> Axes:
    """One recorded step."""
    return plot_timeline(example_profile("alexnet-60"), step=3)


def phase() -> Axes:
    """Throughput while workers that started together drift apart, and that of workers that did not."""
    axes = Figure(figsize=(8, 3), layout="constrained").subplots(1, 3, sharey=True)
    fair = {"loaded_trip": 0.0, "unfairness": 0.0}
    cases = (
        ("equal shares, fixed order", {"transfer_order": "in-order", **fair}),
        ("equal shares, TensorFlow's order", fair),
        ("shares as measured", {}),
    )
    bins = np.arange(0, 841, 60.0)
    for ax, (title, settings) in zip(axes, cases, strict=True):
        for together, color in ((True, COLORS[5]), (False, COLORS[0])):
            runs = [
                simulate_operations(
                    example_profile("alexnet-60"), workers=4, in_phase=together, steps=480, seed=seed, **settings
                )
                for seed in range(12)
            ]
            rates = np.array([4 * np.histogram(run.times, bins)[0] / 60 for run in runs])  # a time per 4 steps
            middle = (bins[:-1] + bins[1:]) / 2
            ax.plot(middle, rates.mean(axis=0), color=color, label="started together" if together else "out of phase")
            band(ax, middle, *np.quantile(rates, [0.1, 0.9], axis=0), color)
        ax.set_title(title, fontsize="medium")
        ax.set(xlabel="time (s)", ylim=(0, None))
        finish_axes(ax, legend=None)
    axes[0].set_ylabel("throughput of 4 workers (steps/s)")
    finish_axes(axes[0], legend="lower right")
    return axes[0]


if __name__ == "__main__":
    for make in (timeline, phase):
        save_figure(make(), IMAGES / f"trace-{make.__name__}.png")
