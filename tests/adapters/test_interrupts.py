"""What asks for an end waits until the recorded steps are saved."""

import gzip
import importlib.util
import os
import signal
import tempfile
import time
import warnings
from pathlib import Path
from unittest.mock import Mock

import pytest

from queuemodel import Profile, ProfilingError
from queuemodel.adapters.live.interrupts import Interrupts
from queuemodel.adapters.live.ranks import RanksRun
from queuemodel.adapters.live.run import LiveRun, ground
from queuemodel.adapters.tensorflow.children.worker import _Writer
from queuemodel.adapters.tensorflow.live import Interrupted, profile_live, profiling
from queuemodel.cli import main

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(autouse=True)
def _as_in_a_terminal():
    """Whoever runs the tests may ignore signals, as nohup does."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", Interrupts.SIGNALS)
def test_signals_are_noted_and_their_handlers_come_back(number):
    woken = []
    before = signal.getsignal(number)
    with Interrupts(wake=lambda: woken.append(1)) as interrupts:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        assert interrupts.received == [number, number]
    assert woken == [1, 1]
    assert signal.getsignal(number) is before


def test_what_was_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts(wake=lambda: None) as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.received == []
    finally:
        signal.signal(signal.SIGHUP, before)


class Recorded(profiling.Run):
    """A run that has recorded three steps, and was no run."""

    def train(self):
        self.traces.mkdir(exist_ok=True)
        for path in sorted((DATA / "alexnet-60" / "trace").iterdir())[:3]:
            (self.traces / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        job = {"name": "x", "batch_size": 1, "dataset_size": None, "parameter_bytes": 3_047_988, "tensors": 16}
        self.facts, self.untraced = {"job": job, "framework_version": "0"}, [0.5, 0.25]


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="reading needs its protocol buffers")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGTERM, 143)])
def test_an_interrupt_while_traces_are_read_loses_nothing(monkeypatch, tmp_path, number, status):
    def read(*arguments, **settings):
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        return whole(*arguments, **settings)

    whole = profiling.read_traces
    monkeypatch.setattr(profiling, "Run", Recorded)
    monkeypatch.setattr(profiling, "read_traces", read)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    output = tmp_path / "p.json"
    with pytest.raises(Interrupted, match="interrupted; saved 3 steps to") as caught:
        profile_live("mlp", output=output)
    assert caught.value.status == status
    saved = Profile.load(output)
    assert len(saved.steps) == 3
    assert [(point.workers, point.steps_per_second) for point in saved.throughputs] == [(1, pytest.approx(2 / 0.75))]
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


@pytest.mark.parametrize("command", ["profile", "demo"])
def test_the_exit_status_tells_the_signal(monkeypatch, tmp_path, capsys, command):
    def interrupted(*_, **__):
        raise Interrupted("interrupted; saved 3 steps to p.json", None, status=143)

    monkeypatch.setattr("queuemodel.adapters.tensorflow.live.profile_live", interrupted)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main([command, "mlp"] if command == "profile" else [command])
    assert caught.value.code == 143
    assert capsys.readouterr() == ("", "queuemodel: interrupted; saved 3 steps to p.json\n")


def test_processes_that_cannot_be_started_are_one_line(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("subprocess.Popen", refuse)
    monkeypatch.setattr(profiling, "require_installed", lambda: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ProfilingError, match=r"^a process: cannot be started: Cannot allocate memory$"):
        profile_live("mlp")
    assert list(tmp_path.iterdir()) == []


def train_ranks(model, *, on_step):
    with ground(3, traces=None, progress=False, on_step=on_step) as prepared:
        RanksRun(model, {"until": time.monotonic() + 9}, prepared).train([0, 1], {})


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), TimeoutError("timed out")], ids=repr)
@pytest.mark.parametrize("style", ["servers", "ranks"])
def test_what_the_callers_own_function_raises_is_theirs(monkeypatch, tmp_path, style, error):
    def start(run, *_):
        child = Mock()
        run.children.append(child)
        run.inbox.put((child, {"step": "warmup"}))
        return child

    def failing(*_):
        raise error

    monkeypatch.setattr(LiveRun, "start", start)
    monkeypatch.setattr(profiling, "require_installed", lambda: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(type(error)) as caught:
        (profile_live if style == "servers" else train_ranks)("mlp", on_step=failing)
    assert caught.value is error
    assert list(tmp_path.iterdir()) == []


def test_a_time_limit_is_over_however_much_the_ranks_have_said(monkeypatch, tmp_path):
    def start(run, *_):
        child = Mock()
        run.children.append(child)
        for _ in range(100):
            run.inbox.put((child, {"step": "warmup"}))
        return child

    def slow(kind, done, total):
        late.append(60.0)

    late, true = [0.0], time.monotonic
    monkeypatch.setattr(LiveRun, "start", start)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(time, "monotonic", lambda: true() + late[-1])
    with pytest.raises(ProfilingError, match="time_limit: it was over while training; give more seconds"):
        train_ranks("mlp", on_step=slow)
    assert len(late) == 2


class Metadata:
    def SerializeToString(self):
        return b"trace"


def test_a_writer_that_fails_says_so_to_whoever_hands_it_traces(tmp_path):
    said = []
    with (
        pytest.raises(ProfilingError, match=r"gone: traces cannot be written there: No such file or directory"),
        _Writer(tmp_path / "gone", lambda **message: said.append(message)) as writer,
    ):
        writer.put(Metadata())
    assert said == []
    with _Writer(tmp_path, lambda **message: said.append(message)) as writer:
        writer.put(Metadata())
    assert said == [{"step": "traced", "traced_bytes": 5}]
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000.pb"]
