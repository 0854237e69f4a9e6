"""The runner of live profiling, on processes that follow a script: how a run is followed, and how it ends."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from types import SimpleNamespace

import msgspec
import pytest
from recording import at, recorded

from queuemodel import DataError, Profile, ProfilingError, QueueModelWarning
from queuemodel.adapters import Backend, EndedEarlyError, Interrupted, ParameterServer, RanksBackend, read_tensorflow

JOB = {"job": {"framework_version": "1.2"}}
STEP, WARMUP = {"step": "traced"}, {"step": "warmup"}
THREE = [JOB, WARMUP, *["record", STEP] * 3]


def started(backend, run):
    """Each of its children, named and in order."""
    script = {"environment": {}, "model": ""}
    return [run.start(name, "scripted:follow_script", acts=acts, **script) for name, acts in backend.children]


@dataclass(frozen=True, kw_only=True)
class Server(Backend):
    """Trains on a server: the last child leads, and what it recorded counts however it ends."""

    steps: int = 3
    warmup: int = 1
    children: tuple = ()

    partial = True

    def require(self, time_limit):
        pass

    def train(self, run):
        run.follow(started(self, run)[-1:])

    def read(self, run):
        if not any(run.traces.iterdir()):
            raise DataError("no step was recorded")
        return msgspec.structs.replace(read_tensorflow(run.traces, batch_size=1), throughputs=[])

    def hosts(self):
        return {"worker:0": "here"}


@dataclass(frozen=True, kw_only=True)
class Ranks(RanksBackend):
    """Ranks; the first leads."""

    children: tuple = ()

    def require(self, time_limit):
        pass

    def train(self, run):
        run.follow(started(self, run))

    def read(self, run):
        return read_tensorflow(run.traces, batch_size=1)


def server(*acts, others=(), **settings):
    return recorded(Server, "a.b:c", children=(*others, ("worker", list(acts))), **settings)


def ranks(*acts, **settings):
    return recorded(Ranks, "a.b:c", children=tuple((f"rank {i}", list(own)) for i, own in enumerate(acts)), **settings)


@pytest.fixture(autouse=True)
def _as_in_a_terminal(family):
    """Whoever runs the tests may ignore signals, as nohup does."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def kill(number):
    return lambda: os.kill(os.getpid(), number)


def test_leading_process_reports_the_run(tmp_path):
    seen = []
    timed = [{"step": "untraced", "seconds": seconds} for seconds in (0.5, 0.25, 0.75)]
    profile = server(*THREE, *timed, output=tmp_path / "p.json", on_step=lambda *news: seen.append(news))
    assert Profile.load(tmp_path / "p.json") == profile
    assert len(profile.steps) == 3
    assert [(one.workers, one.steps_per_second) for one in profile.throughputs] == [(1, pytest.approx(3 / 1.5))]
    assert profile.source.framework_version == "1.2"
    assert profile.source.hosts == {"worker:0": "here"}
    kinds = ["warmup", *["traced"] * 3, *["untraced"] * 3]
    assert seen == [(kind, done, 7) for done, kind in enumerate(kinds, 1)]


def test_first_rank_reports_for_all():
    norms = [{"workers": [2.0, other], "mean": 1.0} for other in (3.0, float("inf"))]
    timed = [{"seconds": 0.2, "ranks": 2}, {"seconds": 0.1, "ranks": 1}]
    leading = [JOB, *["record"] * 3, STEP, *timed, {"gradient_norms": norms}, {"done": True}, "hang"]
    profile = ranks(leading, [STEP, {"seconds": 9.0, "ranks": 2}, {"step": "noise"}])
    assert [(one.workers, one.steps_per_second) for one in profile.throughputs] == [(1, 10.0), (2, 10.0)]
    assert [one.workers for one in profile.gradient_norms] == [[2.0, 3.0]]  # those that are numbers
    assert set(profile.source.hosts) == {"rank:0", "rank:1"}
    alike = {"gradient_norms": [{"workers": [2.0, 2.0], "mean": 2.0}]}
    assert ranks([JOB, *["record"] * 3, alike], []).gradient_norms == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGTERM, 143)])
def test_a_signal_saves_what_is_recorded(tmp_path, number, status):
    with pytest.raises(Interrupted, match=r"interrupted; saved 3 steps to .*p.json$") as caught:
        server(*THREE, "train on", untraced_steps=10**6, output=tmp_path / "p.json", on_step=at(6, kill(number)))
    assert caught.value.status == status
    saved = Profile.load(tmp_path / "p.json")
    assert saved == caught.value.profile
    assert saved.throughputs[0].steps_per_second == pytest.approx(1 / 0.01)


def test_interrupted_reading_loses_nothing(tmp_path, monkeypatch):
    """A signal before any step saves nothing."""
    output, early = tmp_path / "p.json", at(1, kill(signal.SIGINT))
    output.write_text("earlier")
    with pytest.raises(Interrupted, match="interrupted; recorded 0 steps") as caught:
        server(JOB, WARMUP, "hang", output=output, on_step=early)
    assert caught.value.profile is None
    with pytest.raises(Interrupted, match="interrupted; nothing is saved"):
        ranks([JOB, "record", STEP, "hang"], ["hang"], output=output, on_step=early)
    assert output.read_text() == "earlier"
    whole = Server.read
    monkeypatch.setattr(Server, "read", lambda *asked: [kill(signal.SIGTERM)() for _ in range(2)] and whole(*asked))
    with pytest.raises(Interrupted, match="interrupted; saved 3 steps to") as caught:
        server(*THREE, output=output)
    assert (caught.value.status, len(Profile.load(output).steps)) == (143, 3)


def test_what_was_ignored_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert len(server(*THREE, on_step=at(2, kill(signal.SIGHUP))).steps) == 3
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


#: How frameworks wrap what went wrong.
KERAS = "Exception encountered when calling Bad.call().\n\n\x1b[1mshapes 5 and 7\nmore\x1b[0m\n\nArguments: x"
GRAPH = "Graph execution error:\n\nDetected at node a\n  File x\n\nindices[0,0] = 99\n\t [[{{node a/G}}]] [Op:__x]"


@pytest.mark.parametrize(("acts", "said"), [
    (["die"], r"^the worker was killed by SIGKILL \(was memory short\?\); recorded 3 steps$"),
    ([{"failed": "no room"}], "^no room; recorded 3 steps$"),
    (["oh"], r"^SystemExit: oh \(scripted.py, line \d+\); recorded 3 steps$"),
    *((["raise " + text], rf"^ValueError: {said} \(scripted.py, line \d+\); recorded 3 steps$")
      for text, said in (("\n one\ntwo", "one"), (KERAS, "shapes 5 and 7"), (GRAPH, r"indices\[0,0\] = 99"))),
])  # fmt: skip
def test_failed_run_keeps_its_steps(acts, said):
    with pytest.raises(EndedEarlyError, match=said) as caught:
        server(*THREE, *acts)
    assert len(caught.value.profile.steps) == 3


def test_dead_server_or_rank_is_named():
    late = ["await another's end", "raise who was killed?"]
    with pytest.raises(EndedEarlyError, match=r"^the parameter server was killed by SIGKILL"):
        server(JOB, WARMUP, *late, others=[("parameter server", ["die"])])
    for acts, other in ((["hang"], []), (late, ["end late"])):
        with pytest.raises(EndedEarlyError, match=r"^the parameter server ended with exit status 0$"):
            server(JOB, WARMUP, *acts, others=[("parameter server", other)])
    with pytest.raises(ProfilingError, match=r"^the rank 1 was killed by SIGKILL"):
        ranks([JOB, *late], ["die"])
    with pytest.raises(ProfilingError, match=r"^ValueError: who was killed?"):
        ranks([JOB, late[1]], [JOB])


@pytest.fixture
def ahead(monkeypatch):
    """How far the runner's clock is set ahead, at last."""
    ahead = [0.0]
    now = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[-1])
    monkeypatch.setattr("queuemodel.adapters.live.time", now)
    return ahead


def test_time_limit_keeps_recorded_steps(ahead):
    """A tenth of an hour is for reading what is recorded."""
    settings = {"time_limit": 3600, "untraced_steps": 1}
    assert len(server(*THREE, on_step=at(4, lambda: ahead.append(3230.0)), **settings).steps) == 3
    ahead.append(0.0)
    message = "time_limit of 3600 s reached after 3 of 3 steps, 0 of 1 untraced; recorded 3 steps"
    with pytest.warns(QueueModelWarning, match=message):
        profile = server(*THREE, "hang", on_step=at(4, lambda: ahead.append(3250.0)), **settings)
    assert len(profile.steps) == 3


def test_time_limit_before_the_first_step(ahead):
    with pytest.raises(EndedEarlyError, match=r"^time_limit: it was over before any step was recorded; give more s"):
        server(JOB, WARMUP, "hang", on_step=at(1, lambda: ahead.append(595.5)))
    ahead.append(0.0)
    steps = []  # however much the ranks have said
    with pytest.raises(ProfilingError, match=r"^time_limit: it was over while training; give more seconds"):
        ranks([JOB, *[WARMUP] * 100, "hang"], [], on_step=lambda *_: steps.append(1) or ahead.append(541.0))
    assert len(steps) == 1


def test_children_die_with_their_parent(family):
    parent = subprocess.Popen([sys.executable, "-c", "import test_runner; test_runner.server('hang')"])
    deadline = time.monotonic() + 60
    while len(family()) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(family()) == 2
    parent.kill()
    parent.wait()  # and the fixture looks for orphans


@pytest.mark.parametrize("command", ["profile mlp", "demo --framework tensorflow"])
def test_the_exit_status_tells_the_signal(monkeypatch, tmp_path, run, command):
    def train(*_):
        kill(signal.SIGTERM)()
        raise KeyboardInterrupt

    monkeypatch.setattr(ParameterServer, "train", train)
    monkeypatch.setattr(ParameterServer, "require", lambda *_: None)
    monkeypatch.setattr("warnings.showwarning", None)
    monkeypatch.chdir(tmp_path)
    assert run(*command.split()) == (143, "", "queuemodel: interrupted; recorded 0 steps\n")
