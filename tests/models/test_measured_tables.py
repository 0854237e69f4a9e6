"""Predictions from tables of measurements through the public API: inputs that people have, with the right answers."""

import re
import warnings

import numpy as np
import pytest

import queuemodel as qm
from queuemodel.curves import plot_efficiency


def table(text, **asked):
    """A curve of rows of "nodes gpus step_time" or "workers rate", with a batch of 32."""
    rows = [tuple(map(float, line.split())) for line in text.strip().splitlines()]
    if len(rows[0]) == 3:
        points = [
            qm.Measurement(nodes=int(k), workers=int(n), batch_size=32, steps_per_second=n / t) for k, n, t in rows
        ]
    else:
        points = [qm.Measurement(workers=int(n), steps_per_second=x) for n, x in rows]
    return qm.predict(points, **asked)


def parameters(curve):
    return {one.name: one for one in curve.model.parameters}


def test_unmeasured_growth_is_assumed():
    curve = table("1 1 1.0\n1 4 1.25\n2 16 1.36", workers=[16, 64], gpus_per_node=8)
    assert "growth beyond two nodes is estimated from published jobs" in curve.note
    assert {parameters(curve)[name].origin for name in ("growth", "latency", "latency growth")} == {"assumed"}
    assert curve.at(16) == pytest.approx(16 / 1.36, rel=0.03)
    width = curve.upper[1] / curve.lower[1]
    assert width > max(1.4, curve.upper[0] / curve.lower[0])
    more = table("1 1 1.0\n1 4 1.25\n2 16 1.36\n8 64 1.5", workers=[64], gpus_per_node=8)
    assert "growth beyond" not in more.note
    assert more.upper[0] / more.lower[0] < 0.8 * width


def test_two_rows_of_one_node():
    curve = table("1 1 1.0\n1 8 1.6", workers=[1, 8], gpus_per_node=8)
    assert curve.steps_per_second == pytest.approx([1.0, 5.0], rel=0.03)
    assert curve.efficiency == pytest.approx([1.0, 0.625], rel=0.03)
    assert [parameters(curve)[name].identified for name in ("inside a node", "between nodes")] == [True, False]


def test_efficiency_relates_to_smallest_group():
    curve = table("8 50\n16 82", strategy="all-reduce", ranks_per_node=8, workers=[8, 16, 32])
    assert curve.efficiency[:2] == pytest.approx([1.0, 0.82], rel=0.02)
    assert curve.speedup[:2] == pytest.approx([1.0, 1.64], rel=0.02)
    assert curve.marginal_speedup[:2] == pytest.approx([1.0, 0.64], rel=0.05)  # in workers of the base
    assert "relate to 1 node (8 GPUs), the smallest measured group" in curve.note
    assert "speedup over 1 node" in curve._shown_rows()[0]
    assert curve.to_dict()["base_workers"] == 8
    assert plot_efficiency(curve).get_ylabel() == "efficiency over 1 node (%)"
    (choice,) = qm.plan(curve, min_efficiency=0.6).choices
    assert choice.workers_low < choice.workers_high
    assert choice.goal == "efficiency >= 0.6 over 1 node"
    one = table("1 8\n2 14", strategy="all-reduce", workers=[1, 2])  # control: a base of one worker is not named
    assert one.base == ""
    assert "speedup" in one._shown_rows()[0]
    assert one.to_dict()["base_workers"] == 1


def test_fast_growth_is_no_outlier():
    rows = qm.read_measurements({"workers": [2, 4, 6], "step_time": [1.0, 3.0, 6.0]})
    curve = qm.predict(rows, workers=[2, 4, 6, 8])
    assert "outlier" not in curve.note
    assert "faster than in most published jobs" in curve.note
    off = 100 * (1.0 / curve.at(6) - 1)
    assert f"6 workers: {off:+.0f} % off the fit" in curve.note or abs(off) < 6
    assert curve.steps_per_second[:3] == pytest.approx([2.0, 1.33, 1.0], rel=0.12)


def test_work_has_the_table_unit():
    tokens = {"nodes": [1, 2], "gpus": [8, 16], "tokens_per_second": [8e4, 15e4], "bs": [4, 4], "seqlen": [512, 512]}
    curve = qm.predict(qm.read_measurements(tokens), workers=[8, 32])
    assert curve.unit == curve.to_dict()["unit"] == "tokens"
    assert curve.examples_per_second[0] == pytest.approx(8e4, rel=0.03)
    row = curve._shown_rows()[0]
    assert row["tokens_/s"] == pytest.approx(8e4, rel=0.03)
    assert "examples_/s" not in row
    assert curve.plot().get_ylabel() == "throughput (tokens/s)"
    assert curve.to_rows()[0]["tokens_per_second"] == row["tokens_/s"]
    assert qm.plan(curve, throughput=1e5).choices[0].goal == "at least 100,000 tokens/s"
    images = qm.predict(qm.read_measurements({"gpus": [1, 2], "img/s": [100, 190], "bs": [32, 32]}), workers=[4])
    assert "images_/s" in images._shown_rows()[0]


def test_unknown_batch_shows_no_examples():
    curve = table("1 8\n2 14", strategy="all-reduce", workers=[1, 2])
    assert curve.unit == ""
    assert not [name for name in curve._shown_rows()[0] if "examples" in name]
    assert [name for name in curve.to_rows()[0] if "per_second" in name] == ["iterations_per_second"]
    known = table("1 8\n2 14", strategy="all-reduce", workers=[1, 2], batch_size=16)  # control
    assert known._shown_rows()[0]["examples_/s"] == pytest.approx(16 * known.steps_per_second[0])


def test_outliers_are_named():
    rows = [(1, 8, 1.0), (2, 16, 1.05), (4, 32, 1.6), (8, 64, 1.15), (16, 128, 1.2)]
    curve = table("\n".join(f"{k} {n} {t}" for k, n, t in rows), workers=[8, 32])
    note, alike = curve.note, table("1 8 1.0\n2 16 1.05\n8 64 1.15\n16 128 1.2", workers=[32])
    assert curve.at(32) == pytest.approx(alike.at(32), rel=0.04)  # it counts little
    assert re.search(r"4 nodes \(32 GPUs\), batch 32: -3\d % off the fit, an outlier", note)
    points = [
        qm.Measurement(workers=n, steps_per_second=n / t, standard_error=0.3 * n / t if t == 1.6 else None)
        for _, n, t in rows
    ]
    assert "off the fit" not in qm.fit(points, strategy="all-reduce").note  # control: within its noise
    erratic = "\n".join(f"{k} {8 * k} {1 + 0.4 * (k % 2)}" for k in range(1, 13))
    note = table(erratic, workers=[8]).note
    assert note.count("off the fit") == 3
    assert re.search(r"\d+ more measurements off by up to \d+ %", note)
    uneven = qm.Measurement(workers=5, nodes=2, gpus_per_node=4, steps_per_second=1.0)
    assert uneven.group == "2 nodes (5 GPUs, 4 on one)"


@pytest.mark.parametrize("rows", ["1 8 0.5\n2 16 0.55\n4 32 0.6", "2 16 0.55\n4 32 0.6", "1 8 0.5"], ids=len)
def test_whole_nodes_give_a_curve(rows):
    curve = table(rows, workers=[8, 16, 32, 64])
    assert np.all(np.diff(curve.steps_per_second) > 0)
    assert np.all((curve.lower < curve.steps_per_second) & (curve.steps_per_second < curve.upper))
    for nodes, gpus, seconds in (map(float, row.split()) for row in rows.splitlines()):
        assert curve.at(int(gpus)) == pytest.approx(gpus / seconds, rel=0.05), nodes


def test_columns_say_how_a_job_trains(tmp_path):
    for text, strategy in (
        ("workers,step_time\n1,0.5\n4,0.6\n", "all-reduce"),
        ("workers,iterations_per_second\n1,2\n4,1.7\n", "all-reduce"),
        ("workers,steps_per_second\n1,2\n4,6.8\n", "async-ps"),
    ):  # fmt: skip
        (tmp_path / "t.csv").write_text(text)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            curve = qm.predict(tmp_path / "t.csv", workers=[1, 4])
        assert curve.method.startswith(strategy)
        assert "assum" in curve.assumption


def test_smaller_parameters_are_never_slower():
    points = [qm.Measurement(workers=1, steps_per_second=0.5)]
    rates = [
        qm.predict(points, strategy="async-ps", parameter_bytes=size, workers=[1, 64]).at(64)
        for size in (1e7, 1e6, 1e5)
    ]
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(32, rel=0.05)


def test_server_curve_keeps_its_bounds():
    curve = table("1 2.0\n4 7.9", strategy="async-ps", workers=[1, 4, 8, 16, 32])
    assert np.all(curve.bound_lower <= curve.steps_per_second)
    assert np.all(curve.steps_per_second <= curve.bound_upper)
    assert np.all(np.diff(curve.steps_per_second) >= 0)
    assert np.isfinite(curve.saturation_workers)
    spent = curve.residence_time.sum(axis=1) + curve.think_time
    np.testing.assert_allclose(spent, curve.workers / curve.steps_per_second, rtol=1e-6)  # Little's law


@pytest.mark.parametrize("strategy", ["async-ps", "sync-ps", "all-reduce"])
def test_standard_errors_weigh(strategy):
    def width(error):
        points = [
            qm.Measurement(workers=n, steps_per_second=x, standard_error=error and error * x)
            for n, x in ((1, 2.0), (2, 3.7), (4, 6.0))
        ]
        curve = qm.predict(points, workers=[4], strategy=strategy)
        return np.log(curve.upper[0] / curve.lower[0])

    assert width(0.001) < width(None) < width(0.3)


def test_halving_all_times_doubles_the_rate():
    slow, fast = (table(f"1 1 {t}\n1 8 {1.4 * t}\n2 16 {1.7 * t}", workers=[1, 16, 64]) for t in (0.5, 0.25))
    assert fast.steps_per_second == pytest.approx(2 * slow.steps_per_second, rel=0.02)
    assert fast.efficiency == pytest.approx(slow.efficiency, rel=0.02)


def test_extra_measurement_counts_as_row():
    rows = "1 1 1.0\n1 8 1.3\n2 16 1.5"
    before = table(rows, workers=[32], batch_size=32)
    after = table(
        rows, workers=[32], batch_size=32, throughputs=[qm.Measurement(workers=32, steps_per_second=before.at(32))]
    )
    assert after.at(32) == pytest.approx(before.at(32), rel=0.03)
    assert after.upper[0] / after.lower[0] < before.upper[0] / before.lower[0]
    assert after.profiled_workers == 32
