"""The Pollux artifact: its published results, what our policies reach on its workloads, and the reader of its files."""

import json
import re
import shutil

import pytest
from click.testing import CliRunner

from queuemodel import DataError, ModelError
from queuemodel.scheduling import FIFO, EqualShare, schedule
from validation.pollux import read_jobs, read_pollux, replay, state
from validation.pollux.__main__ import pollux as reproduce

WORKLOADS = [f"workload-{number}" for number in range(1, 9)]


@pytest.fixture(scope="module")
def pollux(public_data):
    return public_data / "pollux"


def outcome(pollux, workload, policy):
    return replay(read_jobs(pollux / "workloads" / f"{workload}.csv", pollux / "traces"), policy, gpus=64)


@pytest.mark.parametrize("policy", ["tiresias", "optimus"])
def test_published_completion_times(pollux, policy, monkeypatch):
    published = json.loads((pollux / "expected" / f"{policy}-1.0.json").read_text())
    for workload in WORKLOADS:
        result = outcome(pollux, workload, policy)
        found = {row["name"]: row["response_time"] for row in result.to_rows()}
        assert found == pytest.approx(published["jcts"][workload])
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


@pytest.fixture
def workload(tmp_path):
    rows = "a,1507532400,cifar10,1,128\nb,1507532430,cifar10,2,128\n"
    (path := tmp_path / "workload.csv").write_text("name,time,application,num_replicas,batch_size\n" + rows)
    return path


def test_pollux_jobs_as_measured(pollux, workload):
    first, second = read_pollux(workload, pollux / "traces")
    assert (first.arrival_time, second.arrival_time) == (0, 30)  # Unix time counts from the first arrival
    assert (first.most_nodes, second.requested) == (4, 2)  # 128 examples are cut into 32 at least
    assert second.curve(2) == pytest.approx(1 / 0.06547343730926514)  # 64 examples on each GPU of one machine
    files = (pollux / "traces" / "cifar10").glob("validation-*.csv")
    passes = min(float(path.read_text().splitlines()[100].split(",")[0]) for path in files)  # after 100 epochs
    assert first.steps == pytest.approx(passes)
    ends = [passes / first.curve(1), 30 + passes * 0.06547343730926514]
    assert schedule([first, second], FIFO(), nodes=4).end == pytest.approx(ends)


@pytest.mark.parametrize(("name", "old", "new", "message"), [
    ("placements.csv", "\n1,", "\n2,", "no rows of placement 1, one GPU alone"),
    ("placements.csv", "\n11,", "\n10,", "line 13: placement must be digits"),
    ("placements.csv", r"\n1,32,[\d.]*", "\n1,32,0.0001", "step_time must be at least sync_time"),
    ("scalability.csv", r"\n(\d+),(\d+),32,", r"\n\1,\2,32.5,", "local_bsz must be a whole number"),
    ("validation-128.csv", "\n782.0,", "\n391.0,", "progress and iteration must rise"),
    ("validation-128.csv", r"(?s)\n782\.0,.*", "\n", "expected at least 100 epochs, got 1"),
])  # fmt: skip
def test_damaged_measurements_are_one_line(pollux, workload, name, old, new, message):
    shutil.copytree(pollux / "traces", workload.parent / "traces")
    path = workload.parent / "traces" / "cifar10" / name
    path.write_text(re.sub(old, new, path.read_text()))
    with pytest.raises(DataError, match=message):
        read_pollux(workload, workload.parent / "traces")
