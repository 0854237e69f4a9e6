"""Figures show the numbers of their result, at the right place, and leave nothing behind."""

import base64
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

import queuemodel as qm
from queuemodel import curves, example_profile, example_throughputs
from queuemodel.base.drawing import BOUND
from queuemodel.models import plot_round
from queuemodel.simulator import plot_timeline


@pytest.fixture(scope="module")
def model():
    return qm.fit(example_profile("alexnet-60"))


@pytest.fixture(scope="module")
def curve(model):
    return model.throughput(range(1, 13))


LEGEND = ["predicted", "90 % interval", "upper bound", "lower bound", "profiled"]


def line(ax, label):
    (found,) = [artist for artist in ax.lines if artist.get_label() == label]
    return found


def labels(ax):
    """A legend, or names beside the lines, where each stands once; quantity and unit on both axes, y from 0."""
    found = [text.get_text() for text in (ax.get_legend().get_texts() if ax.get_legend() else ax.texts)]
    assert ax.get_xlabel()
    assert ("(" in ax.get_ylabel(), ax.get_ylim()[0]) == (True, 0)
    assert 0 < len(found) == len(set(found))
    return found


def test_throughput_figure_shows_the_curve(curve):
    ax = curves.plot_throughput(curve, ideal=True)
    drawn, (inside,), (shade,), (right,) = line(ax, "predicted"), ax.collections, ax.patches, ax.child_axes
    np.testing.assert_array_equal(drawn.get_xydata(), np.transpose([curve.workers, curve.steps_per_second]))
    assert inside.get_paths()[0].vertices[:, 1].max() == pytest.approx(curve.upper.max())
    bounds = [line(ax, "upper bound"), line(ax, "lower bound")]
    np.testing.assert_array_equal([artist.get_ydata() for artist in bounds], [curve.bound_upper, curve.bound_lower])
    np.testing.assert_allclose(line(ax, "ideal").get_ydata(), curve.workers * curve.single)
    assert {artist.get_color() for artist in bounds} == {BOUND}
    assert (shade.get_x(), shade.get_width()) == (0, curve.profiled_workers + 0.5)
    assert [text.get_text() for text in ax.texts] == ["saturation point N* = 2.16, receive link"]
    assert curve.saturation_workers in [one.get_xdata()[0] for one in ax.lines if one.get_linestyle() == ":"]
    assert set(labels(ax)) == {*LEGEND, "ideal"}
    assert right.get_ylabel() == "throughput (examples/s)"
    ax.figure.draw_without_rendering()
    assert right.get_ylim() == pytest.approx(np.multiply(ax.get_ylim(), curve.batch_size))
    ax = curves.plot_efficiency(curve)
    assert labels(ax)
    np.testing.assert_allclose(
        line(ax, "predicted").get_ydata(), drawn.get_ydata() / curve.workers / drawn.get_ydata()[0]
    )
    assert [ax.yaxis.get_major_formatter()(share, 0).strip() for share in (0.5, 1.0)] == ["50", "100"]


def test_measured_points_have_their_intervals():
    points = example_throughputs("alexnet-60")[:3]
    curve = qm.fit(points).throughput(range(1, 9))
    (container,) = curves.plot_throughput(curve, measured=[(8, 1.94, 1.85, 2.05)]).containers
    markers, _, (bars,) = container.lines
    expected = [*((point.workers, point.steps_per_second) for point in points), (8, 1.94)]
    np.testing.assert_allclose(markers.get_xydata().astype(float), expected)
    assert markers.get_color() == "black"
    np.testing.assert_allclose(bars.get_segments()[-1], [(8, 1.85), (8, 2.05)])
    for point in ((8,), (8, 1.9, 1.8)):
        with pytest.raises(qm.ModelError, match="lower, upper"):
            curves.plot_throughput(curve, measured=[point])


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_step_time_figure_adds_up(model, servers):
    few, curve = (model.what_if(parameter_servers=servers).throughput(range(1, most)) for most in (9, 101))
    step, bars = curve.workers / curve.steps_per_second, curves.plot_step_time(few).patches
    bars = np.array([(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in bars])
    top = [bars[np.isclose(bars[:, 0], n), 1].sum() for n in few.workers]
    np.testing.assert_allclose(top, step[:8], rtol=0.004)  # layers thinner than a line are left out
    areas = [area.get_paths()[0].vertices[:, 1] for area in curves.plot_step_time(curve).collections]
    assert max(area.max() for area in areas) == pytest.approx(step.max(), rel=0.004)
    assert 0 <= min(area.min() for area in areas) < 0.004 * step.max()


def test_compared_curves_are_named(model):
    fast, given = model.what_if(accelerator_speed=3.0), Figure().subplots()
    asked = {"as given": model.throughput(range(1, 9)), "faster": fast.throughput(range(1, 13))}
    assert curves.plot_comparison(asked, ax=given) is given
    assert set(labels(given)) == set(asked)
    assert 12 < given.get_xlim()[1] < 13
    for band, (name, one) in zip(given.collections, asked.items(), strict=True):
        drawn, ends = line(given, name).get_xydata(), band.get_paths()[0].get_extents().intervaly
        np.testing.assert_array_equal(drawn, np.transpose([one.workers, one.steps_per_second]))
        np.testing.assert_allclose(ends, [one.lower.min(), one.upper.max()])
    with pytest.raises(qm.ModelError, match="at least one curve"):
        curves.plot_comparison({})


def test_shared_axes_have_one_legend(model, curve):
    ax, faster = curve.plot(label="as given"), model.what_if(accelerator_speed=3.0).throughput(range(1, 33))
    assert faster.plot(ax=ax, label="faster") is ax
    assert len({line(ax, name).get_color() for name in ("as given", "faster")}) == 2
    np.testing.assert_array_equal(line(ax, "faster").get_ydata(), faster.steps_per_second)
    assert labels(ax) == ["as given", *LEGEND[1:], "faster"]
    assert ax.get_ylim()[1] >= faster.upper.max()
    assert ax.get_xlim()[1] >= 32
    model.what_if(parameter_servers=2).throughput([1, 5]).plot(ax=ax)
    assert not ax.child_axes  # examples per second would be those of one batch size
    with pytest.raises(qm.ModelError, match="the axes show throughput"):
        curves.plot_efficiency(curve, ax=ax)


def test_powers_of_two_are_logarithmic(model):
    curve = model.throughput([1, 2, 4, 8])
    for draw in (curves.plot_throughput, curves.plot_efficiency, curves.plot_step_time):
        ax = draw(curve)
        assert (ax.get_xscale(), ax.xaxis.get_transform().base) == ("log", 2)
        assert ax.xaxis.get_major_formatter()(8, 0) == "8"
    assert curves.plot_comparison({"a": curve, "b": curve}).get_yscale() == "log"
    for one in (curves.plot_throughput(curve, log=False), model.throughput([1, 2, 3, 4]).plot()):
        assert one.get_xscale() == "linear"


def test_cost_figure_shows_the_choice(curve):
    asked = {"epochs": 3, "dataset_size": 10**6, "deadline": "20d"}
    plan = qm.plan(curve, price_per_node_hour=2.0, currency="EUR", **asked)
    ax, hours = plan.plot(), 3 * 10**6 / curve.examples_per_second / 3600
    assert labels(ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("workers", "cost (EUR)")
    np.testing.assert_allclose(line(ax, "predicted").get_ydata(), 2.0 * hours * curve.nodes)
    (inside,), dearest = ax.collections, (2.0 * hours * curve.nodes * curve.steps_per_second / curve.lower).max()
    assert inside.get_paths()[0].vertices[:, 1].max() == pytest.approx(dearest)
    assert [text.get_text() for text in ax.texts] == [plan.choices[0].goal]
    np.testing.assert_allclose(line(qm.plan(curve, **asked).plot(), "predicted").get_ydata(), hours)
    assert qm.plan(curve, throughput=30.0).plot().get_ylabel() == "throughput (steps/s)"
    types = [qm.Instance("a", price=1.0), qm.Instance("b", price=2.0, accelerator_speed=2.0)]
    both = qm.plan_instances(example_profile("alexnet-60"), types, workers=[1, 2, 3], method="mva", epochs=1).plot()
    assert [one.get_label() for one in both.get_lines() if one.get_gid()] == ["a", "b"]


def test_drawing_changes_no_global_state(curve):
    before, (left, right) = dict(matplotlib.rcParams), Figure().subplots(1, 2)
    assert curves.plot_throughput(curve, ax=left, color="red", label="mine") is left
    assert line(left, "mine").get_color() == "red"
    assert not right.lines
    (data,) = re.findall('<img alt="plot" src="data:image/svg.xml;base64,(.*?)"/>', curve._repr_html_())
    assert ElementTree.fromstring(base64.b64decode(data)).tag.endswith("svg")
    assert dict(matplotlib.rcParams) == before
    code = (
        "import sys, queuemodel as qm; qm.fit(qm.example_profile()).throughput([1, 2])._repr_html_(); "
        "print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_saved_figures_are_reproducible(curve, tmp_path):
    for name, start in (("plot.png", b"\x89PNG"), ("plot.svg", b"<?xml"), ("plot.PDF", b"%PDF")):
        saved = [(qm.save_figure(curve.plot(), tmp_path / name), (tmp_path / name).read_bytes())[1] for _ in range(2)]
        assert saved[0] == saved[1]
        assert saved[0].startswith(start)
    assert imread(tmp_path / "plot.png")[..., 3].min() == 1  # no black text on a dark page
    (tmp_path / "folder.png").mkdir()
    for name in ("plot.gif", "plot", "missing/plot.png", "folder.png"):
        with pytest.raises(qm.DataError, match=name):
            qm.save_figure(curve.plot(), tmp_path / name)
    assert len(list(tmp_path.iterdir())) == 4


def test_unknown_plot_arguments_are_named(curve):
    for keyword, said in (("measure", "; did you mean 'measured'"), ("colour", "; did you mean 'color'"), ("zz", "$")):
        with pytest.raises(qm.ModelError, match=f"plot: {keyword} is not an argument{said}"):
            curve.plot(**{keyword: 1})
    curve.plot(lw=3, color="red", drawstyle="steps")
    round_ = next(one for one in example_profile("ddp-alexnet-40").rounds if one.buckets)
    for draw, one in ((plot_timeline, example_profile()), (plot_round, round_), (curves.plot_efficiency, curve)):
        with pytest.raises(qm.ModelError, match="plot: colr is not an argument; did you mean 'color'"):
            draw(one, colr="red")
