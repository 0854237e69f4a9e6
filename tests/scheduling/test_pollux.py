"""The compatibility mode against the results that the Pollux artifact published, and what our policies reach on it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from queuemodel.errors import DataError, ModelError
from queuemodel.scheduling import FIFO, EqualShare, GreedyGain, RankPriced, simulate
from queuemodel.scheduling.workloads import read_pollux
from queuemodel.scheduling.workloads.pollux import read_application
from validation.pollux import predicted_curve, read_jobs, replay, state

WORKLOADS = [f"workload-{number}" for number in range(1, 9)]


def outcome(pollux, workload, policy, curves="true", folder="workloads"):
    return replay(read_jobs(pollux / folder / f"{workload}.csv", pollux / "traces"), policy, gpus=64, curves=curves)


@pytest.mark.parametrize("policy", ["tiresias", "optimus"])
def test_every_published_completion_time_is_reproduced(pollux, policy):
    published = json.loads((pollux / "expected" / f"{policy}-1.0.json").read_text())
    for workload in WORKLOADS:
        result = outcome(pollux, workload, policy)
        assert {row["name"]: row["response_time"] for row in result.to_rows()} == pytest.approx(
            published["jcts"][workload]
        )
        assert result.mean_response_time == pytest.approx(published["avgs"][workload])


def test_the_comparison_notices_another_convention(pollux, monkeypatch):
    published = json.loads((pollux / "expected" / "tiresias-1.0.json").read_text())
    monkeypatch.setattr(state, "RESTART", 31)  # one second more per restart
    assert outcome(pollux, "workload-6", "tiresias").mean_response_time != pytest.approx(
        published["avgs"]["workload-6"]
    )


@pytest.mark.parametrize("folder", ["workloads-0.5", "workloads-2.0"])
def test_the_other_loads_run(pollux, folder):
    for policy in ("tiresias", "optimus"):
        result = outcome(pollux, "workload-1", policy, folder=folder)
        assert len(result.jobs) == {"workloads-0.5": 80, "workloads-2.0": 320}[folder]
        assert (result.response_time > 0).all()


@pytest.mark.parametrize(("curves", "bound"), [("true", 3100), ("predicted", 3300)])
def test_rank_prices_reach_the_target(pollux, curves, bound):
    means = [outcome(pollux, workload, RankPriced(), curves).mean_response_time for workload in WORKLOADS]
    assert np.mean(means) < bound


def test_predictions_use_one_and_two_gpus_and_are_near_the_truth_there(pollux):
    errors = []
    for name, batch in [("cifar10", 2048), ("imagenet", 6400), ("deepspeech2", 320), ("yolov3", 64), ("bert", 192)]:
        application = read_application(pollux / "traces", name)
        truth, predicted = (
            dict(application.curve(batch).points),
            dict(predicted_curve(application, batch).points),
        )
        assert predicted[1] == pytest.approx(truth[1], rel=0.02)
        errors += [predicted[n] / truth[n] - 1 for n in (4, 8, 16) if n in truth and n in predicted]
        near = {placement: rows for placement, rows in application.placements.items() if sum(placement) <= 2}
        blind = replace(application, placements=near)
        assert dict(predicted_curve(blind, batch).points) == pytest.approx(predicted)  # from no more than two GPUs
    assert np.median(np.abs(errors)) < 0.15


def test_the_exact_simulation_of_the_same_jobs_comes_close(pollux):
    """Without the grid, the rounding and the scattered placements, but with the same restart costs."""
    from queuemodel.scheduling import Cluster

    cluster = Cluster(64, restart_seconds=30, start_seconds=30)
    jobs = read_pollux(pollux / "workloads" / "workload-6.csv", pollux / "traces")
    for policy in (EqualShare(), GreedyGain(), RankPriced()):
        exact = simulate(jobs, policy, cluster=cluster).mean_response_time
        assert outcome(pollux, "workload-6", policy).mean_response_time == pytest.approx(exact, rel=0.2)


def test_bad_input_is_refused_with_file_and_row(pollux, tmp_path):
    text = (pollux / "workloads" / "workload-6.csv").read_text()
    lines = text.splitlines()
    cases = {
        "truncated": ("\n".join([*lines[:5], "bert-4,735"]), "line 6: a row must have 5 values"),
        "foreign": ("a,b\n1,2\n", "line 1: column 'name' is missing"),
        "binary": ("\x00\x01\xff", "is not UTF-8 text"),
        "unsorted": ("\n".join([lines[0], lines[5], lines[1]]), "line 3: time must not fall"),
        "twice": ("\n".join([lines[0], lines[1], lines[1]]), "line 3: the name 'cifar10-0' is already that of line 2"),
        "application": (text.replace("cifar10-0,53,cifar10", "cifar10-0,53,gpt"), "line 2: application must be one of"),
        "batch": (text.replace("6,2048", "6,99999", 1), "line 2: .*batch size must be 128 to 4096"),
        "negative": (
            text.replace("cifar10-0,53", "cifar10-0,-53"),
            "line 2: time must be a whole number",
        ),
        "no jobs": (lines[0] + "\n", "no jobs below the header"),
    }
    for name, (content, message) in cases.items():
        path = tmp_path / f"{name}.csv"
        path.write_text(content, encoding="latin-1")
        with pytest.raises(DataError, match=message) as caught:
            read_jobs(path, pollux / "traces")
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)
    with pytest.raises(DataError, match="no such folder"):
        read_jobs(pollux / "workloads" / "workload-6.csv", tmp_path / "nowhere")
    with pytest.raises(ModelError, match="multiple of 4, got 63"):
        replay(read_jobs(pollux / "workloads" / "workload-6.csv", pollux / "traces"), FIFO(), gpus=63)
    with pytest.raises(ModelError, match="fractions of a GPU"):
        outcome(pollux, "workload-6", EqualShare(divisible=True))


def test_a_truncated_measurement_is_refused(pollux, tmp_path):
    folder = tmp_path / "ncf"
    folder.mkdir()
    for path in (pollux / "traces" / "ncf").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    whole = (folder / "validation-256.csv").read_text().splitlines()
    (folder / "validation-256.csv").write_text("\n".join(whole[:4]) + "\n")
    with pytest.raises(DataError, match="expected at least 10 epochs, got 3; the file is truncated"):
        read_application(tmp_path, "ncf")
    (folder / "validation-256.csv").write_text("\n".join(whole)[:-30] + "\n")
    with pytest.raises(DataError, match=r"validation-256\.csv: line"):
        read_application(tmp_path, "ncf")
