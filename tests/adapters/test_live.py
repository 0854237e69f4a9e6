"""Live profiling with real servers, and every way in which it can end."""

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from recording import at, recorded

from queuemodel import Cluster, Profile
from queuemodel.adapters import EndedEarlyError, ParameterServer, processes

busy = "ignore:.* is waiting for the data set"
pytestmark = [pytest.mark.live, pytest.mark.filterwarnings(busy)]


def profiled(*model, **settings):
    """A live profile whose times are of this run: all of its steps fit into it, and none is sooner than 0.1 ms."""
    begun = time.monotonic()
    profile = recorded(ParameterServer, *model, **settings)
    took = time.monotonic() - begun
    traced = profile.values("step_time")
    untraced = [1 / point.steps_per_second for point in profile.throughputs]
    assert min(*traced, *untraced) > 1e-4
    assert sum(traced) + settings["steps"] * sum(untraced) < took
    return profile


def check(profile, *, steps, batch_size):
    assert (len(profile.steps), profile.job.batch_size) == (steps, batch_size)
    assert profile.source.framework_version
    assert set(profile.source.hosts) == {"ps:0", "worker:0"}
    assert profile.cluster == Cluster(**processes.recorded_network())
    (untraced,) = profile.throughputs
    assert untraced.workers == 1
    for step in profile.steps:
        assert 0 < step.compute <= step.step_time
        assert min(step.fetched_bytes, step.pushed_bytes) > 0


def test_a_built_in_model(family, tmp_path):
    output = tmp_path / "mlp.json"
    seen = []
    profile = profiled("mlp", steps=8, warmup=3, output=output, on_step=lambda *news: seen.append(news))
    check(profile, steps=8, batch_size=64)
    assert Profile.load(output) == profile
    assert profile.source.style == "parameter-server-strategy"
    weights = 4 * (784 * 1024 + 1024 + 1024 * 512 + 512 + 512 * 10 + 10)
    assert (profile.job.parameter_bytes, profile.job.tensors, profile.job.dataset_size) == (weights, 6, 2048)
    for moved in ("fetched_bytes", "pushed_bytes"):  # every parameter travels once each way
        assert profile.values(moved) == pytest.approx(weights, rel=0.02)
    assert [done for _, done, _ in seen] == list(range(1, 20))


def test_user_model_with_another_batch_size(family):
    import live_jobs

    profile = profiled(live_jobs.dropout_and_normalization, steps=5, warmup=2, batch_size=12)
    check(profile, steps=5, batch_size=12)
    assert profile.job.name == "live_jobs:dropout_and_normalization"
    assert profile.job.tensors == 2 * 2 + 4 + 3  # dense layers; scale, shift, two moving averages; the LSTM's


def test_profiling_on_one_processor(family, request, tmp_path):
    """TensorFlow then takes one thread of a kind."""
    request.addfinalizer(partial(os.sched_setaffinity, 0, os.sched_getaffinity(0)))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    profile = profiled("live_jobs:subclassed", steps=8, warmup=4, traces=tmp_path / "traces")
    check(profile, steps=8, batch_size=30)
    assert profile.job.parameter_bytes == 4 * (300 * 512 + 512 + 512 * 3 + 3)
    assert list((tmp_path / "traces").rglob("*.xplane.pb"))


def test_command_saves_steps_at_second_interrupt(family, tmp_path):
    output = tmp_path / "profile.json"
    command = [sys.executable, "-m", "queuemodel", "profile", "mlp", "--steps", "5000", "--progress", "-o", str(output)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    said = b""
    for doing in (rb"tracing[^\r]*[1-9]\d{2}/", b"reading the traces"):  # a hundred steps are done
        while not re.search(doing, said) and (more := os.read(process.stderr.fileno(), 4096)):
            said += more
        process.send_signal(signal.SIGINT)
    said += process.communicate(timeout=600)[1]
    assert process.returncode == 130, said
    steps = len(Profile.load(output).steps)
    assert 0 < steps < 5000
    assert f"queuemodel: interrupted; saved {steps} steps to {output}" in said.decode()
    assert "Traceback" not in said.decode()


def test_servers_that_run_elsewhere(family, addresses):
    ps, worker = addresses
    serve = [sys.executable, "-m", "queuemodel", "serve", "--ps", ps, "--worker", worker, "--job"]
    servers = [subprocess.Popen([*serve, job], stdout=subprocess.PIPE) for job in ("ps", "worker")]
    try:
        for server, address in zip(servers, (ps, worker), strict=True):
            assert address in server.stdout.readline().decode()
        profile = profiled("live_jobs:subclassed", steps=4, warmup=2, ps=ps, worker=worker)
        check(profile, steps=4, batch_size=30)
        assert profile.source.hosts == {"ps:0": ps, "worker:0": worker}
        killed, said = at(30, servers[0].kill), f"ps {ps}: no answer|UnavailableError|AbortedError"
        with pytest.raises(EndedEarlyError, match=said) as caught:
            recorded(
                ParameterServer, "live_jobs:subclassed", steps=50_000, warmup=2, ps=ps, worker=worker, on_step=killed
            )
        assert len(caught.value.profile.steps) > 10
    finally:
        for server in servers:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=600)
    assert servers[1].returncode == 130
