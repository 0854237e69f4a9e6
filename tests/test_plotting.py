"""Figures show the numbers of their result, at the right place, and leave nothing behind."""

import base64
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

import queuemodel as qm
from queuemodel import curves, example_profile, example_throughputs, queueing
from queuemodel.base import drawing
from queuemodel.base.drawing import BOUND, finish, label_ends, new_axes


@pytest.fixture(scope="module")
def model():
    return qm.fit(example_profile("alexnet-60"))


@pytest.fixture(scope="module")
def curve(model):
    return model.throughput(range(1, 13))


def line(ax, label):
    (found,) = [artist for artist in ax.lines if artist.get_label() == label]
    return found


def stack(ax):
    """Bars as rows of (workers, bottom, height)."""
    return np.array([(bar.get_x() + bar.get_width() / 2, bar.get_y(), bar.get_height()) for bar in ax.patches])


def assert_readable(ax):
    """Quantity and unit on both axes, y from 0, and a legend that names everything once."""
    assert ax.get_xlabel()
    assert ("(" in ax.get_ylabel(), ax.get_ylim()[0]) == (True, 0)
    labels = [text.get_text() for text in (ax.get_legend().get_texts() if ax.get_legend() else ax.texts)]
    assert labels
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize(
    ("high", "written"),
    [(1.0, ["0.2", "0.3", "0.4", "0.6", "1"]), (20.0, ["0.3", "1", "3", "10"]), (20_000.0, ["1", "100", "10000"])],
)
def test_logarithmic_axes_have_plain_numbers(high, written):
    ax = new_axes()
    ax.set(yscale="log", ylim=(0.15, high))
    finish(ax, legend=None)
    ax.figure.draw_without_rendering()
    ticks = [*ax.yaxis.get_major_ticks(), *ax.yaxis.get_minor_ticks()]
    labels = {tick.label1.get_text(): tick.get_loc() for tick in ticks if 0.15 <= tick.get_loc() <= high}
    labels.pop("", None)
    assert set(written) <= set(labels)
    assert [float(label) for label in labels] == pytest.approx(list(labels.values()))


def test_throughput_shows_curve_band_bounds_knee_and_what_was_profiled(curve):
    ax = curves.plot_throughput(curve)
    assert_readable(ax)
    drawn = line(ax, curve.method)
    np.testing.assert_array_equal(drawn.get_xydata(), np.transpose([curve.workers, curve.steps_per_second]))
    (inside,) = ax.collections
    assert inside.get_paths()[0].vertices[:, 1].max() == pytest.approx(curve.upper.max())
    dashed = [artist for artist in ax.lines if artist.get_linestyle() == "--"]
    np.testing.assert_array_equal([artist.get_ydata() for artist in dashed], [curve.bound_upper, curve.bound_lower])
    assert {artist.get_color() for artist in dashed} == {BOUND}
    (shade,) = ax.patches
    assert (shade.get_x(), shade.get_width()) == (0, curve.profiled_workers + 0.5)
    texts = [text.get_text() for text in ax.texts]
    assert {"extrapolated →", f"knee {curve.saturation_workers:.3g}, {curve.bottleneck}"} <= set(texts)
    (knee,) = [artist for artist in ax.lines if artist.get_linestyle() == ":"]
    assert knee.get_xdata()[0] == curve.saturation_workers
    (right,) = ax.child_axes
    assert right.get_ylabel() == "throughput (examples/s)"
    ax.figure.draw_without_rendering()
    assert right.get_ylim() == pytest.approx(np.multiply(ax.get_ylim(), curve.batch_size))


def test_measured_points_are_black_markers_with_their_intervals():
    points = example_throughputs("alexnet-60")
    curve = qm.fit(points[:3]).throughput(range(1, 9))
    ax = curves.plot_throughput(curve, measured=[(8, 1.94, 1.85, 2.05)])
    (container,) = ax.containers
    markers, _, (bars,) = container.lines
    expected = [*((point.workers, point.steps_per_second) for point in points[:3]), (8, 1.94)]
    np.testing.assert_allclose(markers.get_xydata().astype(float), expected)
    assert markers.get_color() == "black"
    np.testing.assert_allclose(bars.get_segments()[-1], [(8, 1.85), (8, 2.05)])
    for point in ((8,), (8, 1.9, 1.8)):
        with pytest.raises(qm.ModelError, match="lower, upper"):
            curves.plot_throughput(curve, measured=[point])


@pytest.mark.parametrize("plot", [curves.plot_throughput, curves.plot_efficiency, curves.plot_step_time])
def test_one_number_of_workers_or_many_or_a_curve_without_stations_or_bounds(model, plot):
    for workers in ([4], range(1, 101)):
        assert_readable(plot(model.throughput(workers)))
    X = np.array([2.0, 3.5, 5.0])
    ax = plot(qm.ThroughputCurve(np.array([1, 2, 4]), X, 0.9 * X, 1.1 * X, single=2.0, method="simulated"))
    assert_readable(ax)
    assert not [artist for artist in ax.lines if artist.get_linestyle() == "--"]


@pytest.mark.parametrize("ends", [[1.0, 9.0, 5.0], [5.0, 5.0, 5.0, 5.0], [0.0, 0.1, 9.0, 9.1, 9.2], [3.0]])
def test_labels_stand_at_their_lines_and_never_on_each_other(ends):
    ax = drawing.new_axes()
    lines = [ax.plot([0, 1], [0, end], label=f"line {i}")[0] for i, end in enumerate(ends)]
    ax.set_ylim(0, 10)
    label_ends(ax, lines)
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    heights = [(box.y0 + box.y1) / 2 for box in boxes]
    assert np.diff(heights) == pytest.approx(np.maximum(np.diff(heights), boxes[0].height * 0.75))
    order = [int(text.get_text().split()[1]) for text in ax.texts]
    assert [ends[i] for i in order] == sorted(ends)
    wanted = [ax.transData.transform((1, ends[i]))[1] for i in order]
    assert np.mean(heights) == pytest.approx(np.mean(wanted), abs=2)


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_step_time_adds_up_to_the_step_also_in_the_areas_of_many_workers(model, servers):
    curve = model.what_if(parameter_servers=servers).throughput(range(1, 9))
    bars = stack(curves.plot_step_time(curve))
    top = np.array([(bars[np.isclose(bars[:, 0], n), 2]).sum() for n in curve.workers])
    step = curve.workers / curve.steps_per_second
    np.testing.assert_allclose(top, step, rtol=0.004)  # layers thinner than a line are left out
    curve = model.what_if(parameter_servers=servers).throughput(range(1, 101))
    areas = [area.get_paths()[0].vertices[:, 1] for area in curves.plot_step_time(curve).collections]
    step = curve.workers / curve.steps_per_second
    assert max(area.max() for area in areas) == pytest.approx(step.max(), rel=0.004)
    assert 0 <= min(area.min() for area in areas) < 0.004 * step.max()


def test_step_time_of_one_worker_is_without_waiting_and_servers_are_added_up(curve, model):
    ax = curves.plot_step_time(curve)
    bars = {container.get_label(): [bar.get_height() for bar in container] for container in ax.containers}
    assert {"worker", "transmit link", "transmit link, waiting", "receive link"} <= bars.keys()
    assert bars["transmit link, waiting"][0] == pytest.approx(0, abs=1e-12)
    assert bars["transmit link"] == pytest.approx([example_profile("alexnet-60").values("fetch").mean()] * 12)
    ax = curves.plot_step_time(model.what_if(parameter_servers=4).throughput(range(1, 5)))
    assert not any(character.isdigit() for text in ax.get_legend().get_texts() for character in text.get_text())
    assert "4 parameter servers" in ax.get_xlabel()


def test_comparison_draws_each_curve_once(model, curve):
    ax = curves.plot_comparison({"one": curve, "two": model.what_if(parameter_servers=2).throughput([1, 2, 4])})
    assert_readable(ax)
    drawn = [artist for artist in ax.lines if not artist.get_label().startswith("_")]
    assert [artist.get_label() for artist in drawn] == ["one", "two"]
    colors = {text.get_text(): text.get_color() for text in ax.texts}
    assert colors == {artist.get_label(): artist.get_color() for artist in drawn}
    assert len(set(colors.values())) == 2
    with pytest.raises(qm.ModelError, match="at least one curve"):
        curves.plot_comparison({})


NETWORK = qm.Network([qm.Station("cpu", service_time=0.2), qm.Station("disk", service_time=0.1)], think_time=1.0)


@pytest.mark.parametrize(
    ("population", "solver"),
    [(20, None), (6, qm.MarkovChain()), (6, qm.ApproximateMVA("bard-schweitzer")), (6, qm.Simulation(departures=2000))],
)
def test_a_network_solution_or_its_only_point_lies_between_its_bounds(population, solver):
    solution = qm.solve(NETWORK, population=population, solver=solver)
    ax = queueing.plot_network_solution(solution)
    assert_readable(ax)
    drawn = line(ax, solution.solver)
    assert (drawn.get_xdata()[-1], drawn.get_ydata()[-1]) == (population, solution.throughput)
    upper, lower = [artist.get_ydata() for artist in ax.lines if artist.get_linestyle() == "--"]
    assert len(upper) == population
    here = np.asarray(drawn.get_xdata(), dtype=int) - 1
    assert len(here) == (1 if solver else population)
    assert np.all(lower[here] <= drawn.get_ydata() + 1e-12)
    assert np.all(drawn.get_ydata() <= upper[here] + 1e-12)
    if not solver:
        assert "N* 6.5, cpu" in [text.get_text() for text in ax.texts]


def test_drawing_uses_given_axes_changes_no_global_and_loads_no_pyplot(curve):
    before, (left, right) = dict(matplotlib.rcParams), Figure().subplots(1, 2)
    assert curves.plot_throughput(curve, ax=left, color="red", label="mine") is left
    assert line(left, "mine").get_color() == "red"
    assert not right.lines
    html = drawing.svg_image(curve.plot)
    data = html.removeprefix('<img alt="plot" src="data:image/svg+xml;base64,').removesuffix('"/>')
    assert ElementTree.fromstring(base64.b64decode(data)).tag.endswith("svg")
    assert html in curve._repr_html_()
    assert dict(matplotlib.rcParams) == before
    code = (
        "import sys, queuemodel as qm; from queuemodel import example_profile; "
        "qm.fit(example_profile())._repr_html_(); qm.fit(example_profile()).throughput([1, 2])._repr_html_(); "
        "print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_saved_files_are_of_their_kind_the_same_each_time_or_not_there(curve, tmp_path):
    for name, start in (("plot.png", b"\x89PNG"), ("plot.svg", b"<?xml"), ("plot.PDF", b"%PDF")):
        qm.save_figure(curve.plot(), tmp_path / name)
        first = (tmp_path / name).read_bytes()
        assert first.startswith(start)
        qm.save_figure(curve.plot(), tmp_path / name)
        assert (tmp_path / name).read_bytes() == first
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "plot.gif").write_text("old")
    for name in ("plot.gif", "plot", "missing/plot.png", "folder.png"):
        with pytest.raises(qm.DataError, match=rf"\A.*{name}.*\Z"):
            qm.save_figure(curve.plot(), tmp_path / name)
    assert (tmp_path / "plot.gif").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 5
