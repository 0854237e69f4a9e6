"""What-ifs as widgets in a notebook: sliders, and the curve redrawn as one drags."""

from __future__ import annotations

import math
import warnings
from html import escape
from typing import Any

from ..base.checks import extra, require_count
from ..base.drawing import svg_image
from ..base.errors import ModelError, QueueModelWarning
from ..base.results import tabulate
from ..curves.figures import plot_comparison

MOST_WORKERS, MOST_SERVERS, MOST_ACCUMULATION = 128, 8, 16
GBIT = 1.25e8  # bytes per second
USUAL = 10 * GBIT  # where the profile does not tell the links' bandwidth
COLUMNS = ("workers", "steps_per_second", "lower", "upper", "speedup", "efficiency")


class Explorer:
    """A model's what-ifs under one's hands; made by a model's ``explore``, shown as the last value of a cell.

    The curve is an output of its own below the sliders, redrawn in place: JupyterLab and VS Code keep it in the
    notebook, so that whatever is exported shows the last one, without a kernel and without the widgets.

    Raises
    ------
    ModelError
        When ``workers`` is no whole number from 1.
    MissingDependencyError
        Without ipywidgets.
    """

    def __init__(self, model: Any, *, workers: int, batch_size: int, bandwidth: float | None) -> None:
        ipywidgets = extra("ipywidgets", "notebook", what="explore")
        require_count(workers, "explore: workers")
        self._given, self._handle = model, None
        batches = sorted({max(1, round(batch_size * 2.0**k)) for k in range(-4, 5)})
        link = math.log10((bandwidth if bandwidth is not None and math.isfinite(bandwidth) else USUAL) / GBIT)
        style = {"style": {"description_width": "11em"}, "layout": ipywidgets.Layout(width="32em")}
        log = {"base": 10, "step": 0.01, "readout_format": ".3g", **style}
        whole, decades = ipywidgets.IntSlider, ipywidgets.FloatLogSlider
        servers = getattr(model, "parameter_servers", 1)
        possible = {  # of each what-if its slider, and a change that only models refuse that do not know it
            "parameter_servers": (whole(servers, 1, MOST_SERVERS, description="servers", **style), 2),
            "bandwidth": (decades(10**link, min=link - 1, max=link + 1, description="bandwidth (Gbit/s)", **log), GBIT),
            "accelerator_speed": (decades(1.0, min=-1, max=1, description="accelerator speed", **log), 2.0),
            "batch_size": (
                ipywidgets.SelectionSlider(value=batch_size, options=batches, description="batch size", **style),
                2 * batch_size,
            ),
            "accumulation": (whole(1, 1, MOST_ACCUMULATION, description="accumulated steps", **style), 2),
        }
        most = max(MOST_WORKERS, workers)
        self.controls = {"workers": whole(workers, 1, most, description="workers", **style)} | {
            name: control for name, (control, other) in possible.items() if _answered(model, name, other)
        }
        self._start = {name: control.value for name, control in self.controls.items()}
        for control in self.controls.values():
            control.observe(self._redraw, "value")
        self._box = ipywidgets.VBox(list(self.controls.values()))
        self._predict()

    def _predict(self) -> None:
        asked = {name: control.value for name, control in self.controls.items()}
        workers = asked.pop("workers")
        changes = {
            name: value * (GBIT if name == "bandwidth" else 1)
            for name, value in asked.items()
            if value != self._start[name]
        }
        self.message = ""
        said = f"what_if({', '.join(f'{name}={value:.4g}' for name, value in changes.items())})"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", QueueModelWarning)  # the curve's caption says it too
                model = self._given.what_if(**changes)
                curve = model.throughput(range(1, workers + 1))
                before = self._given.throughput(range(1, workers + 1)) if changes else None
        except ModelError as error:
            self.message = f"{said}: {error}"
            return
        self.model, self.curve, self._before = model, curve, before
        self._said = said if changes else "as given"

    def _redraw(self, _: object) -> None:
        self._predict()
        if self._handle is not None:
            self._handle.update(self._shown())

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self._box)
        self._handle = display(self._shown(), display_id=True)

    def _shown(self) -> Any:
        from IPython.display import HTML

        def draw() -> Any:
            return self.curve.plot() if self._before is None else plot_comparison(curves)

        curves = {"as given": self._before, "changed": self.curve}
        shown = _few(len(self.curve.workers))
        rows = [{name: row[name] for name in COLUMNS} for row in self.curve.to_rows() if row["workers"] in shown]
        lines = "".join(f"<p>{escape(line)}</p>" for line in (self.message, self._said, self.curve.caption()) if line)
        return HTML(f"{lines}{svg_image(draw)}{tabulate(rows, digits=4, form='html')}")


def _answered(model: Any, name: str, value: float) -> bool:
    """Whether the model knows what such a change does."""
    try:
        model.what_if(**{name: value})
    except (ModelError, TypeError):  # it refuses the value, or has no such what-if
        return False
    return True


def _few(most: int) -> set[int]:
    """Numbers of workers to show: 1, 2, 4, ... and the last one."""
    return {2**k for k in range(most.bit_length())} | {most}
