"""Recording a job as it is: real training over gloo, started by torchrun, and what its traces become."""

import importlib.util
import subprocess
import sys
from functools import partial

import pytest
from recording import check_rounds

from queuemodel.adapters import read_pytorch

missing = importlib.util.find_spec("torch") is None
pytestmark = [pytest.mark.live, pytest.mark.skipif(missing, reason="needs PyTorch")]

TRAIN = """
import sys
from contextlib import nullcontext
import torch
from torch import distributed, nn

distributed.init_process_group("gloo")
module = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 10)))
optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
other = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.01)
BEFORE
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    for last in (False, True):  # two passes are accumulated
        with nullcontext() if last else module.no_sync():
            nn.functional.cross_entropy(module(torch.rand(30, 300)), torch.randint(10, (30,))).backward()
    optimizer.step()
    other.step()
print("trained to the end")
"""
BYTES = [4 * size for size in (10, 400, 400 * 10, 300 * 400)]


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Writes the script, with a line before training, and runs it on some ranks."""
    monkeypatch.chdir(tmp_path)

    def started(ranks, steps, *, before="", record=()):
        (tmp_path / "train.py").write_text(TRAIN.replace("BEFORE", before))
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
                   "train.py", str(steps)]  # fmt: skip
        recorder = [sys.executable, "-m", "queuemodel", "record", *record, "--"] if record else []
        return subprocess.run([*recorder, *command], capture_output=True, text=True, timeout=1800, check=False)

    return started


check = partial(check_rounds, parameter_bytes=sum(BYTES))


def test_recorded_runs_become_a_profile(job, tmp_path):
    for ranks in (1, 2):
        done = job(ranks, 100_000, record=["--steps", "5", "-o", f"trace_n{ranks}"])
        assert done.returncode == 0, done.stderr
        assert f"recorded {ranks} rank" in done.stdout
        assert "trained to the end" not in done.stdout
    profile = read_pytorch([tmp_path / "trace_n1", tmp_path / "trace_n2"], batch_size=60)
    check(profile, ranks=(1, 2), steps=5)
    assert all(sorted(gradient.bytes for gradient in one.gradients) == BYTES for one in profile.rounds)


def test_a_script_that_records_trains_on(job, tmp_path):
    before = "from queuemodel.adapters import record_steps\nrecord_steps('trace_n2', steps=4, warmup=2)"
    done = job(2, 20, before=before)
    assert "trained to the end" in done.stdout, done.stderr
    check(read_pytorch([tmp_path / "trace_n2"], batch_size=60), ranks=(2,), steps=4)


def test_short_job_leaves_its_steps(job, tmp_path):
    done = job(2, 10, record=["-o", "trace_n2"])  # 1, 5 of warm-up, 4
    assert "trained to the end" in done.stdout, done.stderr
    check(read_pytorch([tmp_path / "trace_n2"], batch_size=60), ranks=(2,), steps=4)


def test_jobs_without_updates_are_refused(job):
    done = job(1, 0, record=["-o", "trace_n1"])
    assert done.returncode == 1
    assert "nothing was recorded in 6 updates by an optimizer" in done.stderr
