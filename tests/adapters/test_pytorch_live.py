"""Live profiling of data-parallel PyTorch with real ranks, and recording of a job that torchrun starts."""

import importlib.util
import subprocess
import sys

import live_jobs
import pytest
from recording import check_rounds, recorded, refused

from queuemodel import Profile, ProfilingError
from queuemodel.adapters import DataParallel, read_pytorch

missing = importlib.util.find_spec("torch") is None
pytestmark = [pytest.mark.live, pytest.mark.skipif(missing, reason="needs PyTorch")]


def test_live_profile_of_three_ranks(family, tmp_path):
    seen = []
    options = {"ranks": 3, "steps": 6, "warmup": 3, "noise_steps": 400, "on_step": lambda *news: seen.append(news)}
    written = {"output": tmp_path / "ddp.json", "traces": tmp_path / "traces"}
    profile = recorded(DataParallel, "live_jobs:regression", **options, **written)
    check_rounds(profile, ranks=(1, 2, 3), steps=6, parameter_bytes=4 * live_jobs.LENGTH)
    assert (profile.job.batch_size, profile.job.parameter_bytes) == (30, 4 * live_jobs.LENGTH)
    assert (profile.job.tensors, profile.source.style) == (1, "gloo")
    assert profile.source.framework_version
    assert Profile.load(tmp_path / "ddp.json") == profile
    runs = [tmp_path / "traces" / run for run in ("trace_n1", "trace_n2", "trace_n3")]
    assert read_pytorch(runs, batch_size=30).rounds == profile.rounds
    kinds = (["warmup"] * 3 + ["traced"] * 6 + ["untraced"] * 6) * 3 + ["noise"] * 400
    assert [kind for kind, _, _ in seen] == kinds
    assert seen[-1][1:] == (445, 445)
    low, high = profile.noise_scale().interval(0.99)
    assert low < live_jobs.NOISE_SCALE < high < 1.8 * low
    assert [point.workers for point in profile.throughputs] == [1, 2, 3]
    assert len(profile.gradient_norms[0].workers) == 3


def test_same_examples_give_no_noise_scale(family, tmp_path, run):
    command = ("profile", "--framework", "torch", "live_jobs:same_examples", "-o", tmp_path / "ddp.json")
    status, shown, _ = run(*command, "--steps", 2, "--warmup", 2, "--noise-steps", 3)
    assert (status, Profile.load(tmp_path / "ddp.json").gradient_norms) == (0, [])
    assert "all ranks trained on the same examples" in shown


@pytest.mark.parametrize(("model", "said"), [
    ("no_such_module:f", "No module named 'no_such_module'"),
    ("live_jobs:raises", r"KeyError: 'train.csv' \(live_jobs.py, line \d+\)"),
    ("live_jobs:wrapped", r"process group.*; leave the module as it is: step is given it inside Distributed"),
    ("live_jobs:grouped", "must return the module as it is, got a process group of its own besides"),
    ("live_jobs:no_step", r"must return a pair \(module, step\), got Sequential"),
    ("live_jobs:no_count", "step must return its number of examples, the same each time, got None"),
])  # fmt: skip
def test_a_users_mistakes_are_one_line(family, model, said):
    refused(recorded, DataParallel, model, said, error=ProfilingError)


# A script as it is: real training over gloo, and what its traces become

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


def test_recorded_runs_become_a_profile(job, tmp_path):
    for ranks in (1, 2):
        done = job(ranks, 100_000, record=["--steps", "5", "-o", f"trace_n{ranks}"])
        assert done.returncode == 0, done.stderr
        assert f"recorded {ranks} rank" in done.stdout
        assert "trained to the end" not in done.stdout
    profile = read_pytorch([tmp_path / "trace_n1", tmp_path / "trace_n2"], batch_size=60)
    check_rounds(profile, ranks=(1, 2), steps=5, parameter_bytes=sum(BYTES))
    assert all(sorted(gradient.bytes for gradient in one.gradients) == BYTES for one in profile.rounds)


def test_a_script_that_records_trains_on(job, tmp_path):
    before = "from queuemodel.adapters import record_steps\nrecord_steps('trace_n2', steps=4, warmup=2)"
    done = job(2, 20, before=before)
    assert "trained to the end" in done.stdout, done.stderr
    check_rounds(read_pytorch([tmp_path / "trace_n2"], batch_size=60), ranks=(2,), steps=4, parameter_bytes=sum(BYTES))


def test_short_job_leaves_its_steps(job, tmp_path):
    done = job(2, 10, record=["-o", "trace_n2"])  # 1, 5 of warm-up, 4
    assert "trained to the end" in done.stdout, done.stderr
    check_rounds(read_pytorch([tmp_path / "trace_n2"], batch_size=60), ranks=(2,), steps=4, parameter_bytes=sum(BYTES))


def test_jobs_without_updates_are_refused(job):
    done = job(1, 0, record=["-o", "trace_n1"])
    assert done.returncode == 1
    assert "nothing was recorded in 6 updates by an optimizer" in done.stderr
