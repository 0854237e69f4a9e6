"""The Pollux artifact: its published results, what our policies reach on its workloads, and the reader of its files."""

import json

import pytest
from click.testing import CliRunner

from queuemodel import DataError, ModelError
from queuemodel.scheduling import FIFO, EqualShare, schedule
from validation.pollux import read_jobs, read_pollux, replay, state
from validation.pollux.__main__ import pollux as reproduce

WORKLOADS = [f"workload-{number}" for number in range(1, 9)]


def outcome(pollux, workload, policy, curves="true", folder="workloads"):
    return replay(read_jobs(pollux / folder / f"{workload}.csv", pollux / "traces"), policy, gpus=64, curves=curves)


@pytest.mark.parametrize("policy", ["tiresias", "optimus"])
def test_published_completion_times(pollux, policy, monkeypatch):
    published = json.loads((pollux / "expected" / f"{policy}-1.0.json").read_text())
    for workload in WORKLOADS:
        result = outcome(pollux, workload, policy)
        assert {row["name"]: row["response_time"] for row in result.to_rows()} == pytest.approx(
            published["jcts"][workload]
        )
        assert result.mean_response_time == pytest.approx(published["avgs"][workload])
    monkeypatch.setattr(state, "RESTART", 31)  # the control: one second more per restart
    assert outcome(pollux, WORKLOADS[5], policy).mean_response_time != pytest.approx(published["avgs"][WORKLOADS[5]])


def test_command_of_the_reproduction(pollux, tmp_path):
    arguments = [str(pollux / "workloads" / "workload-6.csv"), "--traces", str(pollux / "traces"), "--format", "json"]
    found = json.loads(CliRunner().invoke(reproduce, [*arguments, "--policy", "tiresias"]).stdout)["policies"]
    assert found["tiresias"]["mean_response_time"] == pytest.approx(3469.69375)
    first, second, *_, late = (pollux / "workloads" / "workload-6.csv").read_text().splitlines()
    for lines, message in [
        ([first, late, second], "line 3: time must not fall"),
        ([first, second, second], "line 3: the name 'cifar10-0' is already that of line 2"),
        ([first, second.replace("53,cifar10", "53,gpt")], "line 2: application must be one of"),
        ([first, second.replace("2048", "99999")], "line 2: .*batch size must be 128 to 4096"),
    ]:
        (path := tmp_path / "jobs.csv").write_text("\n".join(lines))
        with pytest.raises(DataError, match=rf"jobs\.csv: {message}"):
            read_jobs(path, pollux / "traces")
    with pytest.raises(ModelError, match="fractions of a GPU"):
        outcome(pollux, "workload-6", EqualShare(divisible=True))


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


def test_pollux_jobs_as_measured(traces, workload):
    first, second = read_pollux(workload, traces)
    assert (first.arrival_time, second.arrival_time) == (0, 30)  # Unix time counts from the first arrival
    assert first.steps == pytest.approx(120)
    assert first.curve(1) == pytest.approx(1)
    assert first.curve(2) == pytest.approx(1 / (12 / 24 + 0.1))
    assert (first.most_nodes, second.requested) == (4, 2)  # 24 examples are cut into 6 at least
    assert schedule(read_pollux(workload, traces), FIFO(), nodes=4).end == pytest.approx([120, 30 + 120 * 0.6])


@pytest.mark.parametrize(("name", "old", "new", "message"), [
    ("placements.csv", "\n1,", "\n2,", "no rows of placement 1, one GPU alone"),
    ("placements.csv", "11,", "10,", "line 8: placement must be digits"),
    ("placements.csv", "1.0,0.01", "0.001,0.01", "step_time must be at least sync_time"),
    ("scalability.csv", "6,6,6,", "6,6,6.5,", "local_bsz must be a whole number"),
    ("validation-24.csv", "120,", "60,", "progress and iteration must rise"),
    ("validation-24.csv", "120,120,1.0,2.0,50\n", "", "expected at least 2 epochs, got 1"),
])  # fmt: skip
def test_damaged_measurements_are_one_line(traces, workload, name, old, new, message):
    path = traces / "bert" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DataError, match=message):
        read_pollux(workload, traces)
