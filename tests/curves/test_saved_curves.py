"""Curves at a prompt: one number of workers, frames, saved files, equality."""

import gzip
import json
from dataclasses import replace

import pytest

import queuemodel as qm
from tests.oracles.jobs_by_hand import profile

ROUNDS, STEPS = qm.fit(qm.example_profile("ddp-alexnet-40")), qm.fit(profile())
TABLE = qm.fit({"nodes": [1, 2, 4], "gpus_per_node": [8, 8, 8], "step_time_ms": [250, 262, 270]}, batch_size=32)
CURVES = {"ranks": ROUNDS.throughput([1, 2, 4]), "servers": STEPS.throughput([1, 3]),
          "nodes": TABLE.throughput([8, 16, 64])}  # fmt: skip


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
@pytest.mark.parametrize("name", ["curve.json", "curve.json.gz"])
def test_saved_curve_is_equal(curve, name, tmp_path):
    path = tmp_path / name
    path.write_bytes(gzip.compress(curve.to_json().encode()) if name.endswith("gz") else curve.to_json().encode())
    read = qm.load(path)
    assert read == curve
    assert hash(read) == hash(curve)
    assert read.to_json() == curve.to_json()
    assert read.notes() == [note for note in curve.notes() if "to narrow it" not in note]  # which needs the model
    assert read != replace(curve, confidence=0.5)
    assert read != replace(curve, upper=1.01 * curve.upper)


@pytest.mark.parametrize("change", [
    {"workers": [3, 2, 1]}, {"workers": ["a"]}, {"lower": 1.0}, {"measured": [[1]]}, {"single": "fast"},
    {"remarks": [["words", "of another kind"]]}, {"version": 2}, {"utilization": 3}, {"steps_per_second": [1.0]},
])  # fmt: skip
def test_a_damaged_curve_is_one_line(change, tmp_path):
    path = tmp_path / "curve.json"
    path.write_text(json.dumps(CURVES["ranks"].to_dict() | change))
    with pytest.raises(qm.DataError, match=r"curve\.json: not a curve: "):
        qm.load(path)


def test_a_saved_curve_is_not_data(tmp_path):
    CURVES["ranks"].to_json(tmp_path / "curve.json")
    with pytest.raises(qm.DataError, match="printed by queuemodel predict; give the file that it was made of"):
        qm.predict(tmp_path / "curve.json")


def test_frames_have_index_and_units():
    frames = {name: curve.to_frame() for name, curve in CURVES.items()}
    assert {name: frame.index.name for name, frame in frames.items()} == {
        "ranks": "workers", "servers": "workers", "nodes": "nodes",
    }  # fmt: skip
    assert frames["nodes"].loc[8, "gpus"] == 64
    assert frames["servers"].loc[3, "steps_per_second"] == CURVES["servers"].at(3)
    units = frames["nodes"].attrs["units"]
    assert (units["iterations_per_second"], units["examples_per_second"]) == ("iterations/s", "examples/s")
    assert units["lower"] == "iterations/s"
    assert frames["nodes"].attrs["confidence"] == 0.9
    inside = TABLE.throughput([4, 8, 16]).to_frame()  # two sizes of one node
    assert inside.index.name == "gpus"


def test_frames_of_rounds_and_of_parameters():
    rounds = qm.example_profile("ddp-alexnet-40")
    frame = rounds.to_frame()
    assert len(frame) == len(rounds.rounds)
    assert frame["round_time"].tolist() == [one.round_time for one in rounds.rounds]
    assert frame.attrs["units"]["computed"] == "s"
    parameters = ROUNDS.parameters.to_frame()
    assert parameters.loc["latency", "value"] == ROUNDS.parameters["latency"].value


def test_parameters_by_name_with_intervals():
    bandwidth = ROUNDS.parameters["bandwidth"]  # the only one with this word
    assert bandwidth is ROUNDS.parameters["bandwidth"] or bandwidth == ROUNDS.parameters["effective bandwidth"]
    found = bandwidth.interval(0.9)
    assert found.upper - found.value == pytest.approx(1.6449 * bandwidth.standard_error, rel=1e-4)
    assert ROUNDS.parameters["latency"].interval().lower == 0.0  # a time is not negative
    row = next(row for row in ROUNDS.summary(confidence=0.5).to_rows() if row["parameter"] == bandwidth.name)
    assert (row["upper"] - row["value"]) / bandwidth.standard_error == pytest.approx(0.6745, rel=1e-3)
    for name in ("nothing", "effective"):  # none, and two
        with pytest.raises(qm.ModelError, match="parameters: must be one of transmit link demand, "):
            STEPS.parameters[name]
