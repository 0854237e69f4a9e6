"""The curve that every prediction ends in: what it refuses, its rows, answers, files, figures; ratios of two."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib import pyplot as plt

import queuemodel as qm
from queuemodel import queueing
from queuemodel.base.results import Note
from queuemodel.curves import plot_comparison, plot_efficiency, plot_step_time, plot_throughput
from queuemodel.curves.prediction import OTHER_MACHINES, Prediction
from tests.oracles.jobs_by_hand import profile

MODEL, ROUNDS = qm.fit(profile()), qm.fit(qm.example_profile("ddp-alexnet-40"))
TABLE = qm.fit({"nodes": [1, 2, 4], "gpus_per_node": [8, 8, 8], "step_time_ms": [250, 262, 270]}, batch_size=32)
COUNTS = [1, 2, 4, 8]
BASE, FASTER = (model.throughput(COUNTS) for model in (MODEL, MODEL.what_if(accelerator_speed=2.0)))
CURVES = {"ranks": ROUNDS.throughput([1, 2, 4]), "servers": MODEL.throughput([1, 3]),
          "nodes": TABLE.throughput([8, 16, 64])}  # fmt: skip


@pytest.mark.parametrize(("method", "values", "what"), [
    ("faster", [0, -1, float("nan"), float("inf"), "2"], "factor must be"),
    ("epoch_time", [{"dataset_size": value} for value in (0, -1, 1.5, True, "all", 10**400)], "dataset_size must be"),
    ("at", [3, 0, 16], "one of 1, 2, 4, 8, got"), ("__getitem__", [3, 0, 16], "one of 1, 2, 4, 8, got"),
])  # fmt: skip
def test_what_no_curve_answers_is_refused(method, values, what):
    for value in values:
        with pytest.raises(qm.ModelError, match=what):
            getattr(BASE, method)(**value) if isinstance(value, dict) else getattr(BASE, method)(value)


def test_arrays_are_read_only():
    for name in ("steps_per_second", "lower", "upper", "bound_lower", "bound_upper", "residence_time", "think_time"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(BASE, name)[0] = 1.0


@pytest.mark.parametrize("changes", [{}, {"shards": [3, 1]}, {"accelerator_speed": 4.0}])
def test_bounds_and_knee_are_the_asymptotes(changes):
    model = MODEL.what_if(**changes)
    curve, bounds = model.throughput([1, 4, 30]), queueing.bounds(model.network(), np.array([1, 4, 30]))
    np.testing.assert_allclose([curve.bound_lower, curve.bound_upper], [bounds.lower, bounds.upper], rtol=1e-12)
    assert curve.saturation_workers == pytest.approx(queueing.saturation_population(model.network()))


def test_efficiency_of_one_is_exact():
    """And no end of the interval is above the bound."""
    assert BASE.upper[0] > 1.05 * BASE.steps_per_second[0]
    for end in (BASE.lower, BASE.steps_per_second, BASE.upper):
        share = replace(BASE, steps_per_second=end).efficiency
        assert share[0] == 1.0
        assert qm.plan(BASE, min_efficiency=0.999).choices[0].workers_low == 1
    bands = [path.vertices for one in plot_efficiency(BASE).collections for path in one.get_paths()]
    assert any(np.allclose(vertices[vertices[:, 0] == 1, 1], 1.0) for vertices in bands)


@pytest.mark.parametrize(("rounds", "synchronous", "per_node"), [
    ((), False, 4), ((), True, 4), ((3, 5, 9), False, 4), ((), True, 1), ((8, 16, 36), True, 1),
])  # fmt: skip
def test_rows_and_json_hold_the_curve(rounds, synchronous, per_node):
    N, X = np.array([2, 4, 9]), np.array([3.0, 5.0, 7.0])
    each = {"utilization": np.array([[0.2, 0.3], [0.4, 0.5], [0.6, 0.7]]),
            "residence_time": np.arange(6.0).reshape(3, 2)}  # fmt: skip
    curve = qm.ThroughputCurve(
        N, X, 0.8 * X, 1.3 * X, single=1.7, batch_size=11, parameter_servers=2, workers_per_node=per_node,
        stations=("a", "b"), think_time=X, bound_lower=0.5 * X, bound_upper=1.1 * X, saturation_workers=3.5,
        bottleneck="b", profiled_workers=4, measured=((4, 5.1), (3, 2.0)), method="by hand", assumption="one",
        remarks=(Note("two"),), synchronous=synchronous, steps_per_round=np.array(rounds), dataset_size=770,
        confidence=0.7, **each,
    )  # fmt: skip
    per, nodes = X / rounds if rounds else X / N, -(-N // per_node) + 2
    lists = {"workers": N, "steps_per_second": X, "lower": 0.8 * X, "upper": 1.3 * X, "examples_per_second": 11 * X}
    lists |= {"speedup": X / 1.7, "efficiency": X / (1.7 * N)}
    lists |= {"iterations_per_second": per} if rounds or synchronous else {}
    whole = {name: pytest.approx(values.tolist()) for name, values in lists.items()}
    for name, values in each.items():
        whole[name] = {"a": values[:, 0].tolist(), "b": values[:, 1].tolist()}
    whole |= {"method": "by hand", "confidence": 0.7, "bottleneck": "b", "saturation_workers": 3.5, "batch_size": 11}
    whole |= {"parameter_servers": 2, "profiled_workers": 4, "note": "one; two", "unit": "examples", "single": 1.7}
    document = curve.to_dict()
    assert {name: document[name] for name in whole} == whole
    assert document["nodes"] == nodes.tolist()
    assert qm.ThroughputCurve.from_json(curve.to_json()) == curve
    counted = X / per if curve.in_rounds else np.ones(3)  # steps of all workers in what a row counts
    if curve.in_rounds:
        del lists["steps_per_second"]
    lists |= {"gpus": lists.pop("workers"), "nodes": nodes} if per_node > 1 else {}
    lists |= {"lower": 0.8 * X / counted, "upper": 1.3 * X / counted}
    for i, row in enumerate(curve.to_rows()):
        numbers = {name: values[i] for name, values in lists.items()}
        numbers |= {"utilization_a": 0.2 * (i + 1), "utilization_b": 0.2 * i + 0.3}
        assert {type(value) for value in row.values()} <= {int, float, type(None)}  # which every format prints
        assert row.pop("measured") == {1: pytest.approx(5.1 / counted[1])}.get(i)
        assert row == pytest.approx(numbers)
    header = curve.to_text().splitlines()[1]
    assert ("GPUs" in header, "workers" in header) == (per_node > 1, per_node == 1)
    faster, times = curve.faster(4.0), ("residence_time", "think_time")
    for name in ("steps_per_second", "lower", "upper", "single", "bound_lower", "bound_upper", *times):
        factor = 1 / 4 if name in times else 4
        np.testing.assert_allclose(getattr(faster, name), factor * getattr(curve, name))
    np.testing.assert_allclose(curve.marginal_speedup, [3 / 1.7 / 2, 2 / 1.7 / 2, 2 / 1.7 / 5])
    np.testing.assert_allclose(curve.epoch_time(), 70 / X)
    (cheapest,) = qm.plan(curve, epochs=2, price_per_node_hour=1.8).choices
    n = np.argmin(nodes / X)
    assert (cheapest.workers, cheapest.cost) == (N[n], pytest.approx(140 / X[n] / 3600 * 1.8 * nodes[n]))


def test_sequences_count_tokens():
    rows = {"nodes": [1, 2], "gpus_per_node": [8, 8], "step_time": [1.0, 1.1], "global_batch_size": [16, 32]}
    curve = qm.predict(rows | {"sequence_length": [4096, 4096]}, workers=[8, 16])
    assert [row["tokens_per_second"] for row in curve.to_rows()] == pytest.approx(4096 * curve.examples_per_second)
    assert curve.to_frame().attrs["units"]["tokens_per_second"] == "tokens/s"
    assert qm.ThroughputCurve.from_json(curve.to_json()) == curve
    (tokens,) = qm.plan(curve, tokens=4.096e9, deadline="90d").choices
    assert tokens.time == pytest.approx(qm.plan(curve, examples=1e6, deadline="90d").choices[0].time)
    with pytest.raises(qm.ModelError, match="counts examples, not tokens"):
        qm.plan(qm.predict(rows, workers=[8]), tokens=1e9, deadline="1h")
    with pytest.raises(qm.DataError, match="the same unit and sequence_length"):
        qm.predict(rows | {"sequence_length": [4096, 2048]})


def of_ranks(*, per_node=1, **others):
    """2, 4 and 16 ranks; each makes 3, 2.5 and 2 steps a second."""
    N, each = np.array([2, 4, 16]), np.array([3.0, 2.5, 2.0])
    about = {"batch_size": 10, "measured": ((4, 10.4), (8, 17.6))} | others
    return qm.ThroughputCurve(
        N, N * each, 0.8 * N * each, 1.5 * N * each, single=3.25, synchronous=True, parameter_servers=0,
        workers_per_node=per_node, profiled_workers=4, **about,
    )  # fmt: skip


def test_unknown_batch_size_counts_no_examples():
    for curve, rates, about in (
        (of_ranks(unit="", batch_size=1), ["iterations_per_second"], (None, None)),
        (of_ranks(unit="tokens"), ["iterations_per_second", "tokens_per_second"], (10, "tokens")),
    ):
        row, document = curve.to_rows()[0], curve.to_dict()
        assert [name for name in row if name.endswith("_per_second")] == rates
        assert ("examples_per_second" in document) == bool(curve.unit)
        assert (document["batch_size"], document["unit"]) == about
    assert row["tokens_per_second"] == pytest.approx(60)


def test_answer_comes_first_in_job_units():
    assert of_ranks().answer() == "16 workers: 2 iterations/s (1.6 to 3), speedup 9.85 over 1 worker; 90 % intervals"
    on_nodes = of_ranks(per_node=4, base_workers=4, bottleneck="network", confidence=0.8)
    assert on_nodes.answer() == (
        "4 nodes (16 GPUs): 2 iterations/s (1.6 to 3), speedup 2.46 over 1 node; bottleneck network; 80 % intervals"
    )
    assert BASE.answer().startswith(f"8 workers: {BASE.at(8):.3g} steps/s (")
    assert f"saturation at {BASE.saturation_workers:.3g} workers, {BASE.bottleneck}" in BASE.answer()
    assert "saturation at 1 worker, " in replace(BASE, saturation_workers=0.551).answer()  # no group is smaller
    assert "speedup" not in of_ranks(base_workers=16, per_node=4).answer()  # none over itself
    assert BASE.to_text().startswith(BASE.answer())


def test_notes_in_order_of_use():
    clauses = {
        "a link is shared": "other", "latency is assumed": "assumed", "4 GPUs: +30 % off the fit, an outlier": "doubt",
        "8 GPUs: -9 % off the fit, unlike published jobs": "doubt",
        "2 GPUs: -8 % off the fit, unlike published jobs": "other",
    }  # fmt: skip
    remarks = tuple(Note(*one) for one in clauses.items())
    curve = of_ranks(remarks=remarks, method="by hand", assumption="assuming a ring")
    outlier, first, second = [*clauses][2:]
    assert curve.notes() == [
        outlier, first, "assumed: a ring", "latency is assumed", "method: by hand",
        "profiled up to 4 workers", "a link is shared", second,
    ]  # fmt: skip
    assert curve.to_text().splitlines()[-4:] == [
        f"{outlier}.", f"{first}.", "Assumed: a ring.", "(5 more: to_text(explain=True))",
    ]  # fmt: skip
    assert curve.to_text(explain=True).endswith(f"Profiled up to 4 workers.\nA link is shared.\n{second}.")
    html = curve._repr_html_()
    assert html.index("16 workers: 2 iterations/s") < html.index("<table>") < html.index("Assumed: a ring")
    assert html.index("<details>") < html.index("Method: by hand")
    assert max(map(len, curve.to_text(60, explain=True).splitlines())) <= 60


def test_figures_of_ranks_show_work():
    """Iterations per second fall where nothing is lost; examples do not. Without a batch size, speedup."""
    curve = of_ranks(per_node=4)
    for draw in (plot_throughput, plot_efficiency, plot_step_time):
        ax = draw(curve)
        assert ax.get_xlabel() == "nodes of 4 GPUs"
        assert ax.get_xlim()[1] < 5
    bare = replace(curve, unit="")
    for shown, label, per in ((curve, "throughput (examples/s)", 1 / curve.batch_size),
                              (bare, "speedup over 1 worker", bare.single)):  # fmt: skip
        ax = plot_throughput(shown)
        lines = {line.get_label(): line for line in ax.get_lines()}
        assert ax.get_ylabel() == label
        drawn = np.column_stack([curve.workers / 4, curve.steps_per_second / per])
        np.testing.assert_allclose(lines["predicted"].get_xydata(), drawn)
        (points,) = ax.containers
        np.testing.assert_allclose(points.lines[0].get_xydata(), [[n / 4, x / per] for n, x in curve.measured])
    large, faster = replace(curve, batch_size=2 * curve.batch_size), replace(bare, single=2 * bare.single)
    for other, rates, names in (
        (curve, large.examples_per_second, ("nodes of 4 GPUs", "throughput (examples/s)")),
        (bare, bare.speedup, ("nodes of 4 GPUs", "speedup")), (curve, None, ("workers", "throughput (steps/s)")),
    ):  # fmt: skip
        second = BASE if rates is None else large if other is curve else faster
        ax = plot_comparison({"a": other, "b": second})
        assert (ax.get_xlabel(), ax.get_ylabel()[: len(names[1])]) == names
        drawn = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
        assert rates is None or drawn["b"] == pytest.approx(rates)
    plt.close("all")


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_indexing_gives_rate_and_interval(curve):
    most = int(curve.workers[-1])
    rate = curve.iterations_per_second if curve.synchronous else curve.steps_per_second
    found, per = curve[most], curve.steps_per_second[-1] / rate[-1]
    assert [found.value, found.lower, found.upper] == pytest.approx(
        [rate[-1], curve.lower[-1] / per, curve.upper[-1] / per]
    )
    unit = "iterations/s" if curve.synchronous else "steps/s"
    assert repr(found) == f"{found.value:.3g} {unit} ({found.lower:.3g} to {found.upper:.3g}), 90 % interval"
    assert str(found) in curve.answer()
    with pytest.raises(TypeError):
        iter(curve)


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_saved_curve_is_equal(curve, tmp_path):
    text = curve.to_json().encode()
    for name, content in (("curve.json", text), ("curve.json.gz", gzip.compress(text))):
        (tmp_path / name).write_bytes(content)
        read = qm.load(tmp_path / name)
        assert (read, hash(read), read.to_json()) == (curve, hash(curve), text.decode())
        assert read.notes() == [note for note in curve.notes() if "to narrow it" not in note]  # which needs the model
        assert read not in (replace(curve, confidence=0.5), replace(curve, upper=1.01 * curve.upper))
        with pytest.raises(qm.DataError, match="printed by queuemodel predict; give the file that it was made of"):
            qm.predict(tmp_path / name)


@pytest.mark.parametrize("change", [
    {"workers": [3, 2, 1]}, {"workers": ["a"]}, {"lower": 1.0}, {"measured": [[1]]}, {"single": "fast"},
    {"remarks": [["words", "of another kind"]]}, {"version": 2}, {"utilization": 3}, {"steps_per_second": [1.0]},
])  # fmt: skip
def test_a_damaged_curve_is_one_line(change, tmp_path):
    path = tmp_path / "curve.json"
    path.write_text(json.dumps(CURVES["ranks"].to_dict() | change))
    with pytest.raises(qm.DataError, match=r"curve\.json: not a curve: "):
        qm.load(path)


def test_frames_have_index_and_units():
    frames = {name: curve.to_frame() for name, curve in CURVES.items()}
    assert [frame.index.name for frame in frames.values()] == ["workers", "workers", "nodes"]
    assert frames["nodes"].loc[8, "gpus"] == 64
    assert frames["servers"].loc[3, "steps_per_second"] == CURVES["servers"].at(3)
    units = frames["nodes"].attrs["units"]
    assert [units[name] for name in ("iterations_per_second", "examples_per_second", "lower")] == [
        "iterations/s", "examples/s", "iterations/s",
    ]  # fmt: skip
    assert frames["nodes"].attrs["confidence"] == 0.9
    assert TABLE.throughput([4, 8, 16]).to_frame().index.name == "gpus"  # two sizes of one node
    assert ROUNDS.parameters.to_frame().loc["latency", "value"] == ROUNDS.parameters["latency"].value


def test_parameters_by_name_with_intervals():
    bandwidth = ROUNDS.parameters["bandwidth"]  # the only one with this word
    assert bandwidth == ROUNDS.parameters["effective bandwidth"]
    found = bandwidth.interval(0.9)
    assert found.upper - found.value == pytest.approx(1.6449 * bandwidth.standard_error, rel=1e-4)
    assert ROUNDS.parameters["latency"].interval().lower == 0.0  # a time is not negative
    row = next(row for row in ROUNDS.summary(confidence=0.5).to_rows() if row["parameter"] == bandwidth.name)
    assert (row["upper"] - row["value"]) / bandwidth.standard_error == pytest.approx(0.6745, rel=1e-3)
    for name in ("nothing", "effective"):  # none, and two
        with pytest.raises(qm.ModelError, match="parameters: must be one of transmit link demand, "):
            MODEL.parameters[name]


def test_ratio_interval_agrees_with_simulation():
    rng, draws, N = np.random.default_rng(0), 500, np.array([1, 4])
    shared, own = rng.normal(0.0, 0.3, (2, draws)), rng.normal(0.0, 0.05, (2, draws))
    effects, error = np.array([[0.1, 0.0], [0.2, 0.05]]), 0.04
    one, other = (
        Prediction.drawn(N, mean, error=error, noise=0.5, spread=spread)
        for mean, spread in ((1.0 + shared + own, effects), (0.4 + shared, 0.5 * effects))
    )
    ratio = one.joined(other).over(np.array([0, 1]), np.array([2, 3])).interval(0.9)
    u, pick = rng.normal(size=(2, 200_000)), rng.integers(draws, size=200_000)
    errors = rng.multivariate_normal([0, 0], error**2 * np.array([[1, OTHER_MACHINES], [OTHER_MACHINES, 1]]), 200_000).T
    log = 0.6 + own[:, pick] + 0.5 * effects @ u + errors[0] - errors[1]
    np.testing.assert_allclose(ratio, np.exp(np.quantile(log, [0.5, 0.05, 0.95], axis=1)), rtol=0.01)


def test_common_errors_of_ratios_cancel():
    """Those of two fits do not: as of independent log-normal errors, which are nearly symmetric here."""
    ratio, apart = FASTER / BASE, FASTER / replace(BASE, model=None)
    assert (ratio.common, apart.common) == (True, False)
    np.testing.assert_allclose(ratio.value, FASTER.steps_per_second / BASE.steps_per_second)
    assert np.all(np.log(ratio.upper / ratio.lower) < np.log(apart.upper / apart.lower))
    above, below = FASTER.upper / FASTER.steps_per_second, BASE.steps_per_second / BASE.lower
    reach = np.exp(np.hypot(np.log(above), np.log(below)))
    np.testing.assert_allclose([apart.lower, apart.upper], [apart.value / reach, apart.value * reach], rtol=0.3)
    again = qm.predict(profile(), workers=COUNTS, method="mva", accelerator_speed=2.0)
    assert (again / BASE).common  # another fit of the same data
    other = qm.fit(qm.example_profile("alexnet-60"))
    assert not (other.throughput(COUNTS) / BASE).common  # control
    itself, inverse = BASE / MODEL.throughput(COUNTS), BASE / FASTER
    np.testing.assert_allclose([itself.value, itself.lower, itself.upper], 1.0)
    np.testing.assert_allclose(1 / inverse.value, ratio.value)
    np.testing.assert_allclose([1 / inverse.upper, 1 / inverse.lower], [ratio.lower, ratio.upper], rtol=0.01)


def test_measurements_weigh_both_curves_together():
    model = qm.fit(profile(), throughputs=[qm.Measurement(workers=8, steps_per_second=0.8 * BASE.at(8))])
    both = model.what_if(accelerator_speed=2.0).throughput(COUNTS), model.throughput(COUNTS)
    ratio = both[0] / both[1]
    assert ratio.common
    assert ratio.lower[-1] <= both[0].at(8) / both[1].at(8) <= ratio.upper[-1]


def test_ratio_as_value_table_figure():
    ratio = FASTER / BASE
    assert repr(ratio[8]).startswith(f"{ratio.value[3]:.3g} (")
    assert float(ratio[8]) == ratio.value[3] == ratio.to_frame().loc[8, "ratio"]
    assert ratio.answer().startswith("8 workers: ")
    ax = ratio.plot(label="twice as fast")
    (BASE / FASTER).plot(ax=ax, label="half")
    assert [line.get_label() for line in ax.get_lines() if line.get_gid()] == ["twice as fast", "half"]


@pytest.mark.parametrize(("other", "message"), [
    (MODEL.throughput([3]), "numbers of workers in common"), (replace(BASE, unit="tokens"), "the same unit"),
    (MODEL.throughput(COUNTS, confidence=0.5), "the same confidence"),
])  # fmt: skip
def test_ratios_of_other_questions_are_refused(other, message):
    with pytest.raises(qm.ModelError, match=message):
        BASE / other
    with pytest.raises(qm.ModelError, match="must be one of 1, 2, 4, 8, got 3"):
        (BASE / FASTER)[3]
    with pytest.raises(TypeError):
        BASE / 2
