"""The figure of predictions held against measurements."""

import numpy as np
import pytest

import queuemodel as qm
from validation.figures import plot_validation


def line(ax, label):
    (found,) = [artist for artist in ax.lines if artist.get_label() == label]
    return found


@pytest.mark.parametrize("scale", [1, 1000])
def test_validation_puts_measured_on_x_and_predicted_on_y(scale):
    rows = [
        {"series": "a", "measured": 1.0, "predicted": 1.1, "lower": 1.0, "upper": 1.2},
        {"series": "a", "measured": 2.0, "predicted": 1.9, "lower": 1.8, "upper": 2.1},
        {"series": "b", "measured": 3.0 * scale, "predicted": 3.3 * scale},
    ]
    ax = plot_validation(rows, unit="steps/s")
    np.testing.assert_array_equal(line(ax, "a").get_xydata(), [(1.0, 1.1), (2.0, 1.9)])
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["within 10 %", "a", "b"]
    assert ax.get_xlabel() == "measured throughput (steps/s)"
    assert ax.get_ylabel() == "predicted throughput (steps/s)"
    assert ax.get_xlim() == ax.get_ylim()
    assert ax.get_xscale() == ("log" if scale > 1 else "linear")


GROUPS = {"mva": 1.1, "trace": 0.9, "cloud": 1.0}


def test_validation_gives_each_group_a_panel():
    rows = [{"series": "a", "measured": 1.0, "predicted": p, "group": g} for g, p in GROUPS.items()]
    panels = plot_validation(rows).figure.axes
    assert {panel.get_title(): line(panel, "a").get_ydata()[0] for panel in panels} == GROUPS


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"series": "a", "measured": 1.0}],
        [{"series": "a", "measured": 0.0, "predicted": 1.0}],
        [{"series": "a", "measured": 1.0, "predicted": float("nan")}],
    ],
)
def test_validation_refuses_rows_that_it_cannot_draw(rows):
    with pytest.raises(qm.ModelError, match="plot_validation"):
        plot_validation(rows)
