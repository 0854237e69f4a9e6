"""Live profiling of data-parallel PyTorch with real ranks, and the ways in which it can end."""

import importlib.util

import pytest
import torch_jobs
from recording import check_rounds, recorded, refused

from queuemodel import Profile, ProfilingError
from queuemodel.adapters import DataParallel, read_pytorch

missing = importlib.util.find_spec("torch") is None
pytestmark = [pytest.mark.live, pytest.mark.skipif(missing, reason="needs PyTorch")]


def test_live_profile_of_three_ranks(family, tmp_path):
    seen = []
    options = {"ranks": 3, "steps": 6, "warmup": 3, "noise_steps": 400, "on_step": lambda *news: seen.append(news)}
    written = {"output": tmp_path / "ddp.json", "traces": tmp_path / "traces"}
    profile = recorded(DataParallel, "torch_jobs:regression", **options, **written)
    check_rounds(profile, ranks=(1, 2, 3), steps=6, parameter_bytes=4 * torch_jobs.LENGTH)
    assert (profile.job.batch_size, profile.job.parameter_bytes) == (30, 4 * torch_jobs.LENGTH)
    assert (profile.job.tensors, profile.source.style) == (1, "gloo")
    assert profile.source.framework_version
    assert Profile.load(tmp_path / "ddp.json") == profile
    runs = [tmp_path / "traces" / run for run in ("trace_n1", "trace_n2", "trace_n3")]
    assert read_pytorch(runs, batch_size=30).rounds == profile.rounds
    kinds = (["warmup"] * 3 + ["traced"] * 6 + ["untraced"] * 6) * 3 + ["noise"] * 400
    assert [kind for kind, _, _ in seen] == kinds
    assert seen[-1][1:] == (445, 445)
    low, high = profile.noise_scale().interval(0.99)
    assert low < torch_jobs.NOISE_SCALE < high < 1.8 * low
    assert [point.workers for point in profile.throughputs] == [1, 2, 3]
    assert len(profile.gradient_norms[0].workers) == 3


def test_same_examples_give_no_noise_scale(family, tmp_path, run):
    command = ("profile", "--framework", "torch", "torch_jobs:same_examples", "-o", tmp_path / "ddp.json")
    status, shown, _ = run(*command, "--steps", 2, "--warmup", 2, "--noise-steps", 3)
    assert (status, Profile.load(tmp_path / "ddp.json").gradient_norms) == (0, [])
    assert "all ranks trained on the same examples" in shown


@pytest.mark.parametrize(("model", "said"), [
    ("no_such_module:f", "No module named 'no_such_module'"),
    ("live_jobs:raises", r"KeyError: 'train.csv' \(live_jobs.py, line \d+\)"),
    ("torch_jobs:wrapped", r"process group.*; leave the module as it is: step is given it inside Distributed"),
    ("torch_jobs:grouped", "must return the module as it is, got a process group of its own besides"),
    ("torch_jobs:no_step", r"must return a pair \(module, step\), got Sequential"),
    ("torch_jobs:no_count", "step must return its number of examples, the same each time, got None"),
])  # fmt: skip
def test_a_users_mistakes_are_one_line(family, model, said):
    refused(recorded, DataParallel, model, said, error=ProfilingError)
