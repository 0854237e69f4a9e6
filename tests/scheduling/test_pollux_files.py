"""The reader of the Pollux artifact's files, on a folder made up here: without the published ones."""

import shutil

import numpy as np
import pytest

from queuemodel.errors import DataError, ModelError
from queuemodel.scheduling import FIFO, simulate
from queuemodel.scheduling.workloads import read_pollux
from queuemodel.scheduling.workloads.pollux import read_application
from validation.pollux import predicted_curve, read_jobs, replay

HEADER = "placement,local_bsz,step_time,sync_time\n"
#: Seconds that each placement adds to the computation.
NETWORK = {"1": 0.0, "2": 0.1, "11": 0.2, "4": 0.3}


@pytest.fixture
def traces(tmp_path):
    """One application of two epochs: on one GPU an update of 24 examples takes a second, 60 updates are an epoch."""
    folder = tmp_path / "traces" / "bert"
    folder.mkdir(parents=True)
    rows = [
        f"{name},{local},{local / 24 + seconds},0.01\n" for name, seconds in NETWORK.items() for local in (6, 12, 24)
    ]
    (folder / "placements.csv").write_text(HEADER + "".join(rows))
    (folder / "scalability.csv").write_text(
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
        + "".join(f"{n},{n * g},{local},{1.5 + local / 24},0.5\n" for n in (6, 16) for g in (1, 4) for local in (6, 24))
    )
    for batch in (24, 96):
        progress = "".join(f"{60 * k},{60 * k * 24 // batch},1.0,2.0,50\n" for k in (1, 2))
        (folder / f"validation-{batch}.csv").write_text("progress,iteration,grad_sqr,grad_var,metric\n" + progress)
    return folder.parent


@pytest.fixture
def workload(tmp_path):
    path = tmp_path / "workload.csv"
    path.write_text("name,time,application,num_replicas,batch_size\na,1507532400,bert,1,24\nb,1507532430,bert,2,24\n")
    return path


def test_jobs_have_the_work_and_the_curve_that_were_measured(traces, workload):
    first, second = read_pollux(workload, traces)
    assert (first.arrival_time, second.arrival_time) == (0, 30)  # Unix time counts from the first arrival
    assert first.steps == pytest.approx(120)
    assert first.curve(1) == pytest.approx(1)
    assert first.curve(2) == pytest.approx(1 / (12 / 24 + 0.1))
    assert (first.most_nodes, second.requested) == (4, 2)  # 24 examples are cut into 6 at least
    assert simulate(read_pollux(workload, traces), FIFO(), nodes=4).end == pytest.approx([120, 30 + 120 * 0.6])


def test_gains_of_a_larger_batch_are_those_of_the_noise_scale(traces):
    application = read_application(traces, "bert")
    # McCandlish et al.: (var + sqr) / (var / 4 + sqr) with a variance of 2 and a squared norm of 1.
    assert application.gains(96) == pytest.approx(np.full(2, 3 / 1.5))
    assert application.gains(24) == pytest.approx(np.ones(2))
    with pytest.raises(DataError, match=r"batch size must be 24 to 96 \(validated\), got 97"):
        application.gains(97)


def test_batches_are_cut_as_the_artifact_cuts_them(traces):
    application = read_application(traces, "bert")
    cuts = {key: application.cut(*key) for key in ((24, 1), (48, 1), (30, 1), (48, 2), (96, 2))}
    # One GPU makes two passes for more than the initial batch; else there are as many as the memory (24) asks for.
    assert {key: (cut.local, cut.passes) for key, cut in cuts.items()} == {
        (24, 1): (24, 0),
        (48, 1): (24, 1),
        (30, 1): (15, 1),
        (48, 2): (24, 0),
        (96, 2): (24, 1),
    }
    # Passes after the first cost the computation again, not the synchronization.
    assert application.step_seconds((1,), cuts[48, 1]) == pytest.approx(1.0 + (1.0 - 0.01))


def test_the_artifacts_conventions_on_one_job(traces, workload):
    workload.write_text("name,time,application,num_replicas,batch_size\na,0,bert,1,24\n")
    for policy in ("tiresias", FIFO()):
        result = replay(read_jobs(workload, traces), policy, gpus=4)
        # Seen at the end of the first step of 60 s, 30 s for the start, then 120 updates of a second.
        assert result.response_time.tolist() == [60 + 30 + 120]
        assert result.to_rows()[0]["attained_service"] == 150
    workload.write_text("name,time,application,num_replicas,batch_size\na,1507532400,bert,1,24\n")
    with pytest.raises(DataError, match="line 2: time must be at most 10000000 seconds from the stream's start"):
        read_jobs(workload, traces)


def test_predicted_curves_are_right_where_they_were_profiled(traces):
    application = read_application(traces, "bert")
    seen, curve = predicted_curve(application, 24), application.curve(24)
    assert seen(1) == pytest.approx(curve(1))
    assert seen(2) == pytest.approx(curve(2), rel=0.01)


def damage(traces, name, change):
    path = traces / "bert" / name
    path.write_text(change(path.read_text()))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("placements.csv", lambda text: text.replace("\n1,", "\n2,"), "no rows of placement 1, one GPU alone"),
        ("placements.csv", lambda text: text.replace("11,", "10,"), "line 8: placement must be digits"),
        ("placements.csv", lambda text: text.replace("1.0,0.01", "0.001,0.01"), "step_time must be at least sync_time"),
        ("placements.csv", lambda text: text.replace("1.0,0.01", "nan,0.01"), "step_time must be finite"),
        ("placements.csv", lambda text: text.replace("sync_time", "sync_tme"), "did you mean 'sync_time'"),
        ("placements.csv", lambda text: text.replace("1,24,1.0,0.01\n", "").replace("1,12,0.5,0.01\n", ""),
         "line 2: .*no step time on one GPU is measured for a batch of 24"),
        ("scalability.csv", lambda text: text.replace("6,6,6,", "6,6,6.5,"), "local_bsz must be a whole number"),
        ("validation-24.csv", lambda text: text.replace("120,", "60,"), "progress and iteration must rise"),
        ("validation-24.csv", lambda text: text.replace("1.0", "1e400"), "grad_sqr must be finite"),
        ("validation-24.csv", lambda text: text.replace("2.0", "0"), "grad_var must be finite and > 0"),
        ("validation-24.csv", lambda text: text[: text.index("120")], "expected at least 2 epochs, got 1"),
    ],
)  # fmt: skip
def test_damaged_measurements_are_one_line(traces, workload, name, change, message):
    damage(traces, name, change)
    with pytest.raises(DataError, match=message) as caught:
        read_pollux(workload, traces)
    assert "\n" not in str(caught.value)


def test_copies_of_measurements_are_refused_by_name(traces, workload):
    shutil.copy(traces / "bert" / "validation-24.csv", traces / "bert" / "validation-24 (copy).csv")
    with pytest.raises(DataError, match=r"validation-24 \(copy\)\.csv: such files are named validation-BATCH\.csv"):
        read_pollux(workload, traces)


def test_what_is_not_measured_is_said_where_it_is_needed(traces, workload):
    workload.write_text("name,time,application,num_replicas,batch_size\na,0,bert,8,24\n")
    with pytest.raises(DataError, match="no step time is measured for a batch of 3 on each of 8 GPUs"):
        replay(read_jobs(workload, traces), "tiresias", gpus=8)
    damage(traces, "scalability.csv", lambda text: text.splitlines()[0] + "\n6,6,6,1.5,0.5\n")
    damage(traces, "placements.csv", lambda text: HEADER + "1,6,1.0,0.01\n1,24,2.0,0.01\n")
    with pytest.raises(DataError, match="too few placements are measured to interpolate"):
        replay(read_jobs(workload, traces), "tiresias", gpus=8)
    workload.write_text(f"name,time,application,num_replicas,batch_size\na,0,{'9' * 200},1,24\n")
    with pytest.raises(DataError, match=r"csv: line 2: application must be one of bert, cifar10") as caught:
        read_pollux(workload, traces)
    assert "\n" not in str(caught.value)
    workload.write_text("name,time,application,num_replicas,batch_size\na,0,bert,8,24\n")
    with pytest.raises(ModelError, match="num_replicas must be at most the 4 GPUs, got 8"):
        replay(read_jobs(workload, traces), "tiresias", gpus=4)
    with pytest.raises(ModelError, match="curves must be one of true, predicted, got 'guessed'"):
        replay(read_jobs(workload, traces), "optimus", gpus=4, curves="guessed")
