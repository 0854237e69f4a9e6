"""Sliders of what-ifs in a notebook: those of a report, computed by the model itself."""

from __future__ import annotations

import warnings
from html import escape
from typing import Any

import numpy as np

from ..base.checks import extra, require_count
from ..base.drawing import svg_image
from ..base.errors import QueueModelError, QueueModelWarning
from ..curves.curve import ThroughputCurve
from ..curves.figures import plot_comparison
from ..curves.page import what_ifs_of
from ..curves.plan import plan


class Explorer:
    """Sliders of a model's ``explore``, above an output that an exported notebook keeps.

    ``controls`` are what-ifs by name, ``goals`` those of `plan`; ``kept`` curves are drawn beside ``curve``.
    """

    def __init__(self, model: Any, *, workers: int) -> None:
        widgets = extra("ipywidgets", "notebook", what="explore")
        self._notebook = extra("IPython.display", "notebook", what="explore")
        max_workers = require_count(workers, "explore: workers")
        self.controls = {"workers": widgets.IntSlider(max_workers, 1, max(128, max_workers), description="workers")}
        for what_if in what_ifs_of(model.throughput(np.unique([1, max_workers])), every=True):  # two points are enough
            options, start = [(what_if.worded(x), x) for x in what_if.choices], what_if.choices.index(what_if.value)
            slider = widgets.SelectionSlider(options=options, index=start, description=what_if.label)
            self.controls[what_if.name] = slider
        self._start = {name: control.value for name, control in self.controls.items()}
        self.goals = {
            "epochs": widgets.FloatText(1.0, description="epochs"),
            "deadline": widgets.Text("", description="deadline", placeholder="12h"),
            "price_per_node_hour": widgets.FloatText(0.0, description="price of a node and hour"),
        }
        self.keep, self.kept = widgets.Button(description="keep to compare"), dict[str, ThroughputCurve]()
        self.keep.on_click(self._keep)
        controls = [*self.controls.values(), *self.goals.values()]
        self._model, self._handle, self._box = model, None, widgets.VBox([*controls, self.keep])
        for control in controls:
            control.style.description_width, control.layout.width = "14em", "34em"
            control.observe(self._predict, "value")
        self._predict()

    def _keep(self, _: object = None) -> None:
        """Keep this curve in the figure of all later ones."""
        self.kept[self.message] = self.curve
        self._predict()

    def _predict(self, _: object = None) -> None:
        """Predict the curve, and plan by the goals, as controls are."""
        changes = {name: slider.value for name, slider in self.controls.items() if slider.value != self._start[name]}
        counts = range(1, 1 + (changes.pop("workers", None) or self.controls["workers"].value))
        self.message = ", ".join(f"{name}={value:.4g}" for name, value in changes.items()) or "as given"
        try:
            with warnings.catch_warnings(action="ignore", category=QueueModelWarning):  # the caption has it
                curve = self._model.what_if(**changes).throughput(counts)
                baseline = {"as given": self._model.throughput(counts)} if changes else {}
            goals = {name: control.value for name, control in self.goals.items() if control.value}
            self.plan = plan(curve, **goals) if goals.keys() - {"epochs"} else None  # epochs alone are no goal
            self.curve, self._curves = curve, baseline | self.kept | {self.message: curve}
        except QueueModelError as error:  # the last curve stays, under the reason
            self.message += f": {error}"
        if self._handle is not None:
            self._handle.update(self._shown())

    def _ipython_display_(self) -> None:
        self._notebook.display(self._box)
        self._handle = self._notebook.display(self._shown(), display_id=True)

    def _shown(self) -> Any:
        draw = self.curve.plot if len(self._curves) == 1 else lambda: plot_comparison(self._curves)
        planned = "" if self.plan is None else f"<p>{escape(self.plan.answer())}</p>"
        return self._notebook.HTML(
            f"<p>{escape(self.message)}</p>{svg_image(draw)}{planned}<p>{escape(self.curve.caption())}</p>"
        )
