"""What to measure next: the run that narrows is the one that is recommended, with the command that uses it."""

import json
import re
import shlex

import msgspec
import numpy as np
import pytest
from refusals import refused
from scipy import stats

import queuemodel as qm
from queuemodel.data import example_profile
from queuemodel.measuring import Run, next_measurement
from queuemodel.prediction import predict
from queuemodel.training.changes import Changes
from queuemodel.training.predictive import CONTENTION, THROUGHPUT_ERROR, TWO_WORKERS_ERROR, of_steps, predictive
from queuemodel.training.throughputs import traced_throughput

DDP = example_profile("ddp-alexnet-40")
POINTS = [qm.Throughput(workers=n, steps_per_second=x) for n, x in ((1, 10.0), (2, 19.0))]


@pytest.fixture(scope="module")
def model():
    return qm.fit(POINTS)


def test_what_a_fit_thinks_is_what_its_curve_says(model):
    thought = predictive(model, [(1, None), (4, None)], [16])
    curve = model.throughput([1, 4, 16])
    middle, lower, upper = thought.interval(0.9, range(3))
    assert lower == pytest.approx(curve.lower, rel=0.12)  # errors are added there as if both were normal
    assert upper == pytest.approx(curve.upper, rel=0.12)
    assert middle == pytest.approx(np.median(model.drawn(curve.workers), axis=1), rel=0.15)
    faster = qm.fit([qm.Throughput(workers=p.workers, steps_per_second=1.15 * p.steps_per_second) for p in POINTS])
    assert predictive(faster, [(1, None), (4, None)], [16]).interval(0.9, [0])[1] > 1.1 * lower[0]


def test_contention_is_students_above_none_and_normal_below():
    thought = of_steps(qm.fit(example_profile("alexnet-60")).fitted, [(Changes(), 4)])
    z, at = np.unique(thought.contention / CONTENTION, return_inverse=True)
    density = np.bincount(at, thought.ensemble.models) / np.gradient(z)
    law = np.where(z > 0, stats.t.pdf(z, df=3) / stats.t.pdf(0, df=3), stats.norm.pdf(z) / stats.norm.pdf(0))
    assert density[1:-1] / density[1:-1].max() == pytest.approx(law[1:-1] / law[1:-1].max(), rel=0.03)


def test_one_worker_shares_nothing_and_two_are_measured_badly():
    thought = of_steps(qm.fit(example_profile("alexnet-60")).fitted, [(Changes(), n) for n in (1, 2, 4)])
    assert thought.ensemble.noise.tolist() == [THROUGHPUT_ERROR, TWO_WORKERS_ERROR, THROUGHPUT_ERROR]
    by_contention = np.ptp(thought.ensemble.logs[0, thought.worker == 0], axis=0)
    assert by_contention[0] < 1e-9
    assert (by_contention[1:] > 0.5).all()


def test_more_workers_tell_more_of_a_job_whose_saturation_nobody_saw(model):
    found = next_measurement(model, 16)
    assert found.recommended == Run(8)  # half of what is asked about
    assert [run.workers for run in found.runs][1:] == [2, 1]
    assert found.expected[0] < 0.6 * found.width
    assert sorted(found.expected) == list(found.expected)
    row = found.to_rows()[0]
    assert row["machines"] == 9
    assert found.width * (1 - row["narrower_by"]) == pytest.approx(row["expected_width"])
    assert row["command"] == "queuemodel predict profile.json --workers 16 --measured 8=STEPS_PER_SECOND"
    assert "interval at 16 worker(s)" in repr(found)
    assert next_measurement(POINTS, 16).runs == found.runs
    assert Run(8) in next_measurement(POINTS, [2, 16]).runs


def test_what_was_measured_already_tells_less(model):
    twice = [*POINTS, qm.Throughput(workers=8, steps_per_second=74.0)]
    again = next_measurement(twice, 16, runs=[Run(8)])
    first = next_measurement(model, 16, runs=[Run(8)])
    assert first.width - first.expected[0] > 2 * (again.width - again.expected[0])


def test_an_unknown_network_is_told_by_the_workers_at_which_networks_differ():
    profile = example_profile("alexnet-60")
    choice = [Run(1), Run(4)]
    found = next_measurement(profile, 6, runs=choice, congestion_control="unknown")
    assert found.recommended == Run(4)
    gain = found.width - np.array(found.expected)
    assert gain[0] > 3 * gain[1]  # one worker shares no link
    known = next_measurement(profile, 6, runs=choice)
    assert known.width < 0.9 * found.width


def test_slower_links_tell_of_links(run, examples):
    profile = example_profile("alexnet-60")
    options = ["--method", "mva", "--workers", "4", "--parameter-servers", "2", "--bandwidth", "40Mbit/s"]
    rows = json.loads(run("next-measurement", "alexnet-60.json", *options, "--format", "json")[1])["rows"]
    (command,) = [row["command"] for row in rows if row["run"] == "2 worker(s), links of 30Mbit/s"]
    said = json.loads(run(*command.replace("STEPS_PER_SECOND", "0.9").split()[1:], "--format", "json")[1])
    measured = qm.Throughput(workers=2, steps_per_second=0.9, bandwidth=profile.cluster.bandwidth / 2)
    asked = {"workers": [4], "method": "mva", "parameter_servers": 2, "bandwidth": 5e6}
    curve = predict(profile, throughputs=[measured], **asked)
    assert said["steps_per_second"] == pytest.approx(curve.steps_per_second)
    assert curve.at(4) != predict(profile, **asked).at(4)


@pytest.fixture
def answer(run):
    """What a command of a row says once 0.9 steps/s came out of its run."""

    def ask(row):
        words = shlex.split(row["command"].replace("STEPS_PER_SECOND", "0.9"))
        return json.loads(run(*words[1:], "--format", "json")[1])

    return ask


@pytest.mark.parametrize(
    "asked",
    [
        {"method": "mva", "batch_size": 64, "bandwidth": 1.23456e7, "confidence": 0.5},
        {"method": "mva", "worker_speeds": np.array([1.0, 1.0, 0.5, 0.25]), "accelerator_speed": 1 / 3},
        {"method": "mva", "congestion_control": "cubic", "buffer": 0.0123,
         "throughputs": [qm.Throughput(workers=2, steps_per_second=1.6, bandwidth=3.3333e6)]},
        {"policy": "tic", "straggler_probability": 0.1, "straggler_slowdown": 3.0, "seed": 1},
        {"worker_bandwidth": [5e6, 5e6, 5e6, 2.5e6]},
    ],
    ids=lambda asked: ", ".join(asked),
)  # fmt: skip
def test_the_command_asks_the_same_again(answer, examples, asked):
    profile = example_profile("alexnet-60")
    (row,) = next_measurement(profile, 4, runs=[Run(1)], source="alexnet-60.json", **asked).to_rows()
    points = [*asked.pop("throughputs", []), qm.Throughput(workers=1, steps_per_second=0.9)]
    curve = predict(profile, workers=[4], throughputs=points, **asked)
    said = answer(row)
    for name in ("steps_per_second", "lower", "upper", "examples_per_second"):
        assert said[name] == pytest.approx(getattr(curve, name))


def test_the_command_asks_the_same_of_a_fit(answer, examples):
    profile, changes = example_profile("alexnet-60"), {"batch_size": 64, "worker_speeds": [1.0, 1.0, 1.0, 0.25]}
    model = qm.fit(profile, form="single").what_if(**changes)
    (row,) = next_measurement(model, 4, runs=[Run(1)], source="alexnet-60.json").to_rows()
    curve = predict(
        profile, workers=[4], throughputs=[qm.Throughput(workers=1, steps_per_second=0.9)],
        method="mva", form="single", **changes,
    )  # fmt: skip
    assert answer(row)["steps_per_second"] == pytest.approx(curve.steps_per_second)
    assert answer(row)["examples_per_second"] == pytest.approx(curve.examples_per_second)


def test_a_report_asks_the_same_again(run, answer, examples):
    asked = [
        "alexnet-60.json",
        "--method",
        "mva",
        "--form",
        "single",
        "--batch-size",
        "64",
        "--worker-speeds",
        "1*3,0.5",
    ]
    measured = ["--throughputs", "more.csv", "--measured", "3=1.5"]
    (examples / "more.csv").write_text("workers,steps_per_second,standard_error\n2,1.5,0.1\n")
    assert run("predict", *asked, *measured, "--workers", "4", "--report", "page.html")[0] == 0
    data = json.loads(re.search(r'id="data">(.*?)</script>', (examples / "page.html").read_text())[1])
    row = next(row for row in data["next"]["rows"] if row["run"] == "1 worker(s)")
    truth = run("predict", *asked, *measured, "--workers", "4", "--measured", "1=0.9", "--format", "json")
    assert answer(row) == json.loads(truth[1])


def test_a_run_on_links_as_profiled_is_a_run_on_the_profiled_ones():
    profile = example_profile("alexnet-60")
    for method in ("mva", "trace"):
        runs = [Run(4), Run(4, profile.cluster.bandwidth)]
        found = next_measurement(profile, 16, runs=runs, method=method, bandwidth=profile.cluster.bandwidth)
        assert found.expected[0] == pytest.approx(found.expected[1])
        of_network = next_measurement(qm.fit(profile), 16, runs=runs)
        assert (found.width == pytest.approx(of_network.width)) == (method == "mva")


def test_a_profile_of_several_workers_is_a_measurement_besides():
    profile = example_profile("alexnet-60")
    several = msgspec.structs.replace(profile, cluster=msgspec.structs.replace(profile.cluster, workers=4))
    asked = {"workers": 8, "runs": [Run(4)], "method": "mva"}
    found = next_measurement(profile, throughputs=[several], **asked)
    assert found.expected == next_measurement(profile, throughputs=[traced_throughput(several)], **asked).expected
    assert found.width != next_measurement(profile, **asked).width
    with pytest.raises(qm.ModelError, match="of one worker alone"):
        next_measurement(several, method="trace")


def test_links_of_any_bandwidth_can_be_slowed_down():
    profile = example_profile("alexnet-60")
    fast = msgspec.structs.replace(profile, cluster=msgspec.structs.replace(profile.cluster, bandwidth=50e9))
    assert Run(2, 25e9) in next_measurement(fast, 8, method="mva").runs


@pytest.mark.parametrize(("asked", "most"), [(16, 5), (8, 4), (2, 3)])
def test_most_workers_of_a_cheap_run_are_twice_those_that_saturate_or_half_of_those_asked_about(asked, most):
    profile = example_profile("alexnet-60")
    assert 4 < 2 * qm.fit(profile).throughput([1]).saturation_workers < 5
    assert max(run.workers for run in next_measurement(profile, asked, method="mva").runs) == most


def test_ranks_that_two_tell_of_are_worth_recording_only_where_they_are_asked_about():
    """gloo has two buckets under way: beyond the recorded ranks its errors are those of two."""
    near, far = (next_measurement(DDP, asked, runs=[Run(3)]) for asked in (3, 8))
    assert near.expected[0] < 0.7 * near.width
    assert far.expected[0] == pytest.approx(far.width)
    curve = predict(DDP, workers=[8])
    assert far.width == pytest.approx((curve.upper - curve.lower)[0] / curve.steps_per_second[0])
    (row,) = far.to_rows()
    assert row["machines"] == 3
    assert row["command"] == "queuemodel import-trace trace_n1 trace_n2 trace_n3 --batch-size 32 -o profile.json"
    assert {*next_measurement(DDP, 8).runs} == {Run(3), Run(4)}  # one more than recorded, and twice as many
    live = msgspec.structs.replace(DDP.source, hosts={"rank:0": "here"})
    (row,) = next_measurement(msgspec.structs.replace(DDP, source=live), 8, runs=[Run(3)], source="p.json").to_rows()
    assert row["command"] == "queuemodel profile MODEL --framework torch --strategy all-reduce --ranks 3 -o p.json"


def test_the_command_line_says_the_same(run, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("workers,steps_per_second\n1,10\n2,19\n")
    arguments = ["next-measurement", path, "--workers", "8", "--run", "1", "--run", "4", "--format", "json"]
    rows = json.loads(run(*arguments)[1])["rows"]
    assert [row["run"] for row in rows] == ["4 worker(s)", "1 worker(s)"]
    assert rows[0]["command"] == f"queuemodel predict {path} --workers 8 --measured 4=STEPS_PER_SECOND"


@pytest.mark.parametrize(
    ("data", "settings", "says"),
    [
        (POINTS, {"workers": [0]}, "workers must be"),
        (POINTS, {"method": "trace"}, "method 'trace' needs a profile with recorded operations"),
        (POINTS, {"runs": []}, "runs must be one or more to choose from"),
        (POINTS, {"runs": [4]}, "such as [Run(1), Run(4)], got [4]"),
        (POINTS, {"runs": [Run(2, 1e9)]}, "bandwidth needs the bytes per step"),
        (POINTS, {"congestion_control": "bbr"}, "congestion_control is told of a profile"),
        (DDP, {"runs": [Run(2)]}, "of more ranks than are recorded"),
        (DDP, {"runs": [Run(3, 1e9)]}, "on the same links, such as [Run(3)], got [Run(workers=3"),
        (DDP, {"throughputs": POINTS}, "throughputs does not apply to a profile of rounds"),
        (DDP, {"bandwidth": 1e9}, "bandwidth does not apply to a profile of rounds"),
        (3, {}, "asynchronous job on parameter servers, got int"),
        (qm.fit(POINTS), {"throughputs": POINTS}, "give them to `fit`"),
    ],
)
def test_refusals(data, settings, says):
    with pytest.raises(qm.ModelError) as error:
        next_measurement(data, **settings)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("told", ["4", "4@x=3", "4=-3", "0=1", "4=3=2", "=3", "4@=3"])
def test_what_is_no_measurement_is_refused_in_one_line(run, told):
    refused(run("predict", "p.json", "--measured", told), f"'{told}'", status=2)
