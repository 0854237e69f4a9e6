"""The curve that every prediction ends in."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib import pyplot as plt

import queuemodel as qm
from queuemodel import queueing
from queuemodel.base.results import Note
from queuemodel.curves import plot_comparison, plot_efficiency, plot_step_time, plot_throughput
from tests.oracles.jobs_by_hand import profile

CURVE = qm.fit(profile()).throughput([1, 2, 4])


@pytest.mark.parametrize(("method", "value", "what"), [
    *[("faster", value, "factor must be") for value in (0, -1, float("nan"), float("inf"), "2")],
    *[
        ("epoch_time", {"dataset_size": value}, "dataset_size must be")
        for value in (0, -1, 1.5, True, "all", 10**400)
    ],
    *[(name, value, "one of 1, 2, 4, got") for value in (3, 0, 8) for name in ("at", "__getitem__")],
])  # fmt: skip
def test_what_no_curve_answers_is_refused(method, value, what):
    with pytest.raises(qm.ModelError, match=what):
        getattr(CURVE, method)(**value) if isinstance(value, dict) else getattr(CURVE, method)(value)


def test_arrays_are_read_only():
    for name in ("steps_per_second", "lower", "upper", "bound_lower", "bound_upper", "residence_time", "think_time"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(CURVE, name)[0] = 1.0


@pytest.mark.parametrize("changes", [{}, {"shards": [3, 1]}, {"accelerator_speed": 4.0}])
def test_bounds_and_knee_are_the_asymptotes(changes):
    model = qm.fit(profile()).what_if(**changes)
    curve, bounds = model.throughput([1, 4, 30]), queueing.bounds(model.network(), np.array([1, 4, 30]))
    np.testing.assert_allclose(curve.bound_lower, bounds.lower, rtol=1e-12)
    np.testing.assert_allclose(curve.bound_upper, bounds.upper, rtol=1e-12)
    assert curve.saturation_workers == pytest.approx(queueing.saturation_population(model.network()))


def test_efficiency_of_one_is_exact():
    """And no end of the interval is above the bound."""
    curve = qm.fit(profile()).throughput([1, 2, 8])
    assert curve.upper[0] > 1.05 * curve.steps_per_second[0]
    for end in (curve.lower, curve.steps_per_second, curve.upper):
        share = replace(curve, steps_per_second=end).efficiency
        assert share[0] == 1.0
        assert qm.plan(curve, min_efficiency=0.999).choices[0].workers_low == 1
    bands = [path.vertices for one in plot_efficiency(curve).collections for path in one.get_paths()]
    assert any(np.allclose(vertices[vertices[:, 0] == 1, 1], 1.0) for vertices in bands)


@pytest.mark.parametrize(("rounds", "synchronous"), [((), False), ((), True), ((3, 5, 9), False)])
def test_rows_and_json_hold_the_curve(rounds, synchronous):
    N, X = np.array([2, 4, 9]), np.array([3.0, 5.0, 7.0])
    each = {
        "utilization": np.array([[0.2, 0.3], [0.4, 0.5], [0.6, 0.7]]),
        "residence_time": np.arange(6.0).reshape(3, 2),
    }
    curve = qm.ThroughputCurve(
        N, X, 0.8 * X, 1.3 * X, single=1.7, batch_size=11, parameter_servers=2, workers_per_node=4, confidence=0.7,
        stations=("a", "b"), think_time=X, bound_lower=0.5 * X, bound_upper=1.1 * X, saturation_workers=3.5,
        bottleneck="b", profiled_workers=4, measured=((4, 5.1), (3, 2.0)), method="by hand", assumption="one",
        remarks=(Note("two"),), synchronous=synchronous, steps_per_round=np.array(rounds), dataset_size=770, **each,
    )  # fmt: skip
    per = X / rounds if rounds else X / N
    lists = {"workers": N, "steps_per_second": X, "lower": 0.8 * X, "upper": 1.3 * X, "examples_per_second": 11 * X}
    lists |= {"speedup": X / 1.7, "efficiency": X / (1.7 * N)}
    lists |= {"iterations_per_second": per} if rounds or synchronous else {}
    whole = {name: pytest.approx(values.tolist()) for name, values in lists.items()}
    for name, values in each.items():
        whole[name] = {"a": values[:, 0].tolist(), "b": values[:, 1].tolist()}
    whole |= {"method": "by hand", "confidence": 0.7, "bottleneck": "b", "saturation_workers": 3.5, "batch_size": 11}
    document = curve.to_dict()
    assert document.items() >= {
        "parameter_servers": 2, "profiled_workers": 4, "note": "one; two", "unit": "examples", "single": 1.7
    }.items()  # fmt: skip
    assert {name: document[name] for name in whole} == whole
    assert document["nodes"] == [3, 3, 5]
    assert qm.ThroughputCurve.from_json(curve.to_json()) == curve
    counted = X / per if curve.in_rounds else np.ones(3)  # steps of all workers in what a row counts
    if curve.in_rounds:
        del lists["steps_per_second"]
    lists |= {"gpus": lists.pop("workers"), "nodes": [3, 3, 5], "lower": 0.8 * X / counted, "upper": 1.3 * X / counted}
    for i, row in enumerate(curve.to_rows()):
        numbers = {name: values[i] for name, values in lists.items()}
        numbers |= {"utilization_a": 0.2 * (i + 1), "utilization_b": 0.2 * i + 0.3}
        assert {type(value) for value in row.values()} <= {int, float, type(None)}  # which every format prints
        assert row.pop("measured") == {1: pytest.approx(5.1 / counted[1])}.get(i)
        assert row == pytest.approx(numbers)
    faster, times = curve.faster(4.0), ("residence_time", "think_time")
    for name in ("steps_per_second", "lower", "upper", "single", "bound_lower", "bound_upper", *times):
        factor = 1 / 4 if name in times else 4
        np.testing.assert_allclose(getattr(faster, name), factor * getattr(curve, name))
    np.testing.assert_allclose(curve.marginal_speedup, [3 / 1.7 / 2, 2 / 1.7 / 2, 2 / 1.7 / 5])
    np.testing.assert_allclose(curve.epoch_time(), 70 / X)
    (cheapest,) = qm.plan(curve, epochs=2, price_per_node_hour=1.8).choices
    assert (cheapest.workers, cheapest.cost) == (4, pytest.approx(140 / 5 / 3600 * 1.8 * 3))


def of_ranks(*, per_node=1, accumulation=1, **others):
    """2, 4 and 16 ranks; each makes 3, 2.5 and 2 steps a second."""
    N, each = np.array([2, 4, 16]), np.array([3.0, 2.5, 2.0])
    several = {"steps_per_round": accumulation * N} if accumulation > 1 else {}
    about = {"batch_size": 10, "measured": ((4, 10.4), (8, 17.6))} | several | others
    return qm.ThroughputCurve(
        N, N * each, 0.8 * N * each, 1.5 * N * each, single=3.25, synchronous=True, parameter_servers=0,
        workers_per_node=per_node, profiled_workers=4, **about,
    )  # fmt: skip


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("per_node", [1, 4])
def test_ranks_count_iterations_by_nodes(per_node, accumulation):
    curve = of_ranks(per_node=per_node, accumulation=accumulation)
    rates = np.array([3.0, 2.5, 2.0]) / accumulation
    np.testing.assert_allclose(curve.iterations_per_second, rates)
    rows, sizes = curve.to_rows(), ["nodes", "gpus"] if per_node > 1 else ["workers"]
    rest = ["lower", "upper", "examples_per_second", "speedup", "efficiency", "measured"]
    assert list(rows[0]) == [*sizes, "iterations_per_second", *rest]
    assert [[row[name] for name in sizes] for row in rows] == (
        [[1, 2], [1, 4], [4, 16]] if per_node > 1 else [[2], [4], [16]]
    )
    for row, rate in zip(rows, rates, strict=True):
        ends = [row[name] for name in ("iterations_per_second", "lower", "upper")]
        assert ends == pytest.approx([rate, 0.8 * rate, 1.5 * rate])
    assert [row["measured"] for row in rows] == [None, pytest.approx(2.6 / accumulation), None]
    document = curve.to_dict()  # for machines: steps of all ranks, too
    assert document["iterations_per_second"] == pytest.approx(rates)
    assert [document[name] for name in ("steps_per_second", "lower")] == [[6, 10, 32], pytest.approx([4.8, 8, 25.6])]
    header, text = curve.to_text().splitlines()[1], curve.to_text()
    assert ("GPUs" in header, "workers" in header) == (per_node > 1, per_node == 1)
    assert "steps" not in text


def test_barriers_count_iterations():
    """Of 4 workers, a barrier makes a quarter of their steps an iteration, and k-sync one of k."""
    free, barrier = (qm.fit(profile(), strategy=name).throughput([2, 4]) for name in ("async-ps", "sync-ps"))
    k = qm.fit(profile(), strategy="k-batch-async", k=2).throughput([2, 4])
    for curve, steps in ((free, None), (barrier, 4), (k, 2)):
        row, name = curve.to_rows()[1], "iterations_per_second" if steps else "steps_per_second"
        assert row[name] == pytest.approx(curve.at(4) / (steps or 1))
        assert [key for key in row if key.endswith("_per_second")] == [name, "examples_per_second"]
        assert f": {curve[4].value:.3g} {'iterations' if steps else 'steps'}/s (" in curve.answer()
        document = curve.to_dict()
        assert ("iterations_per_second_low" in document) == bool(steps)
        assert document["lower"] == pytest.approx(curve.lower)
        assert plot_throughput(curve).get_ylabel() == f"throughput ({'examples' if steps else 'steps'}/s)"
    assert barrier.to_dict()["iterations_per_second_high"] == pytest.approx(barrier.upper / [2, 4])
    assert "iterations" in qm.plan(barrier, steps=1000, deadline="1h").assumed


def test_sequences_count_tokens():
    rows = {"nodes": [1, 2], "gpus_per_node": [8, 8], "step_time": [1.0, 1.1], "global_batch_size": [16, 32]}
    curve = qm.predict(rows | {"sequence_length": [4096, 4096]}, workers=[8, 16])
    assert [row["tokens_per_second"] for row in curve.to_rows()] == pytest.approx(4096 * curve.examples_per_second)
    assert curve.to_frame().attrs["units"]["tokens_per_second"] == "tokens/s"
    assert qm.ThroughputCurve.from_json(curve.to_json()) == curve
    (tokens,) = qm.plan(curve, tokens=4.096e9, deadline="90d").choices
    assert tokens.time == pytest.approx(qm.plan(curve, examples=1e6, deadline="90d").choices[0].time)
    assert "tokens_per_second" not in qm.predict(rows, workers=[8]).to_rows()[0]
    with pytest.raises(qm.ModelError, match="counts examples, not tokens"):
        qm.plan(qm.predict(rows, workers=[8]), tokens=1e9, deadline="1h")
    with pytest.raises(qm.DataError, match="the same unit and sequence_length"):
        qm.predict(rows | {"sequence_length": [4096, 2048]})


def test_unknown_batch_size_counts_no_examples():
    row, document = of_ranks(unit="", batch_size=1).to_rows()[0], of_ranks(unit="", batch_size=1).to_dict()
    assert not [name for name in row if name.endswith("_per_second") and name != "iterations_per_second"]
    assert "examples_per_second" not in document
    assert (document["batch_size"], document["unit"]) == (None, None)
    row, document = of_ranks(unit="tokens").to_rows()[0], of_ranks(unit="tokens").to_dict()
    assert row["tokens_per_second"] == pytest.approx(60)
    assert (document["batch_size"], document["unit"]) == (10, "tokens")


def test_answer_comes_first_in_job_units():
    assert of_ranks().answer() == "16 workers: 2 iterations/s (1.6 to 3), speedup 9.85 over 1 worker; 90 % intervals"
    on_nodes = of_ranks(per_node=4, base_workers=4, bottleneck="network", confidence=0.8)
    assert on_nodes.answer() == (
        "4 nodes (16 GPUs): 2 iterations/s (1.6 to 3), speedup 2.46 over 1 node; bottleneck network; 80 % intervals"
    )
    servers = qm.fit(profile()).throughput([1, 8])
    assert servers.answer().startswith(f"8 workers: {servers.at(8):.3g} steps/s (")
    assert f"saturation at {servers.saturation_workers:.3g} workers, {servers.bottleneck}" in servers.answer()
    alone = of_ranks(base_workers=16, per_node=4)  # no speedup over itself
    assert "speedup" not in alone.answer()
    assert servers.to_text().startswith(servers.answer())


def test_notes_in_order_of_use():
    clauses = {
        "a link is shared": "other", "latency is assumed": "assumed", "4 GPUs: +30 % off the fit, an outlier": "doubt",
        "8 GPUs: -9 % off the fit, unlike published jobs": "doubt",
        "2 GPUs: -8 % off the fit, unlike published jobs": "other",
    }  # fmt: skip
    curve = of_ranks(
        remarks=tuple(Note(*one) for one in clauses.items()), method="by hand", assumption="assuming a ring"
    )
    outlier, first, second = [*clauses][2:]
    assert curve.notes() == [
        outlier, first, "assumed: a ring", "latency is assumed", "method: by hand",
        "profiled up to 4 workers", "a link is shared", second,
    ]  # fmt: skip
    *_, last = curve.to_text().splitlines()
    assert last == "(5 more: to_text(explain=True))"
    assert curve.to_text().splitlines()[-4:-1] == [f"{outlier}.", f"{first}.", "Assumed: a ring."]
    assert curve.to_text(explain=True).endswith(f"Profiled up to 4 workers.\nA link is shared.\n{second}.")
    html = curve._repr_html_()
    assert html.index("16 workers: 2 iterations/s") < html.index("<table>") < html.index("Assumed: a ring")
    assert html.index("<details>") < html.index("Method: by hand")
    assert max(map(len, curve.to_text(60, explain=True).splitlines())) <= 60


def test_figures_of_ranks_show_work():
    """Iterations per second fall where nothing is lost; examples do not. Without a batch size, speedup."""
    for draw in (plot_throughput, plot_efficiency, plot_step_time):
        ax = draw(of_ranks(per_node=4))
        assert ax.get_xlabel() == "nodes of 4 GPUs"
        assert ax.get_xlim()[1] < 5
    curve = of_ranks(per_node=4)
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
    both = plot_comparison({"a": of_ranks(per_node=4), "b": of_ranks(per_node=4, accumulation=2)})
    assert (both.get_xlabel(), both.get_ylabel()) == ("nodes of 4 GPUs", "throughput (examples/s)")
    large = replace(curve, batch_size=2 * curve.batch_size)
    faster = replace(bare, single=2 * bare.single)
    for curves, rates in (({"a": curve, "b": large}, (curve.examples_per_second, large.examples_per_second)),
                          ({"a": bare, "b": faster}, (bare.speedup, bare.speedup))):  # fmt: skip
        drawn = {line.get_label(): line.get_ydata() for line in plot_comparison(curves).get_lines()}
        np.testing.assert_allclose([drawn["a"], drawn["b"]], rates)
    mixed = plot_comparison({"a": of_ranks(per_node=4), "b": CURVE})
    assert (mixed.get_xlabel(), mixed.get_ylabel()) == ("workers", "throughput (steps/s)")
    plt.close("all")
