"""The picture of a step shows every operation, on the station that the fitted network names."""

import sys

import pytest

from queuemodel import DataError, fit
from queuemodel.data import example_profile
from queuemodel.traces.figures import LANES, plot_timeline


def test_every_operation_is_a_bar_that_ends_when_it_ended():
    profile = example_profile("alexnet-60")
    ax = plot_timeline(profile, step=3)
    for lane, bars in enumerate(ax.containers):
        operations = [o for o in profile.steps[3].operations if o.kind == list(LANES)[lane]]
        assert [bar.get_x() + bar.get_width() for bar in bars] == pytest.approx([o.end for o in operations])
    labels = [label.get_text() for label in ax.get_yticklabels()]
    stations = list(fit(profile).servers.stations)
    assert [labels[0], labels[2], labels[3]] == stations
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_a_step_that_is_not_there_is_refused():
    with pytest.raises(DataError, match="step must be 0 to 11, got 12"):
        plot_timeline(example_profile("alexnet-60"), step=12)
