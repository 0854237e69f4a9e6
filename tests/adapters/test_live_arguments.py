"""What live profiling refuses before it starts anything, and what a machine says of itself."""

import json
import socket
import sys

import pytest
import recording

from queuemodel import Cluster, DataError, MissingDependencyError, ProfilingError
from queuemodel.adapters import DataParallel, Mirrored, ParameterServer, processes

PS, RANKS, TORCH = ParameterServer, Mirrored, DataParallel


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch):
    monkeypatch.setattr("queuemodel.adapters.live.Child", lambda *_, **__: pytest.fail("a process was started"))


def refused(backend, said, *model, error=DataError, **settings):
    recording.refused(recording.recorded, backend, *model, said, error=error, **settings)


NAMES = ["", "train.py", "train:", ":f", "a b:c", "train:make()", "train:f:g", 7, None]
ADDRESSES = ["", "host", "host:", ":2222", "host:port", "host:0", "host:65536", "x://h:1", "a b:1", 5]
OPTIONS = [
    *((PS, "steps", value) for value in (0, 2.5, True, "ten", 10**9)), (PS, "warmup", -1), (PS, "warmup", None),
    (PS, "untraced_steps", -1), (PS, "batch_size", 0), (PS, "batch_size", float("nan")),
    *((PS, "time_limit", value) for value in (0, float("nan"), float("inf"))), (PS, "warmup", 0),
    (RANKS, "ranks", 1), (RANKS, "warmup", 1), (RANKS, "noise_steps", -1), (RANKS, "batch_size", 0),
    (TORCH, "steps", 0), (TORCH, "noise_steps", 1.5), (TORCH, "time_limit", -1),
]  # fmt: skip


@pytest.mark.parametrize(("backend", "settings", "said"), [
    *((backend, {name: bad}, f"^{name} must be .* got {bad!r}$") for backend, name, bad in OPTIONS),
    *((PS, {"model": bad}, r"^model: .* or one of mlp, cnn, embedding, transformer, got") for bad in NAMES),
    *((TORCH, {"model": bad}, "^model: must be 'package.module:function', got") for bad in NAMES),
    (PS, {"model": "mpl"}, "one of mlp.*did you mean 'mlp'"),
    *((PS, {"ps": "a:1", "worker": bad}, r"^worker: .*got ") for bad in ADDRESSES),
    (PS, {"ps": "a:1"}, "worker: give both ps and worker"), (PS, {"worker": "a:1"}, "ps: give both"),
    (PS, {"ps": "a:1", "worker": "a:1"}, "must not be the parameter server's address"),
])  # fmt: skip
def test_bad_options_are_refused(backend, settings, said):
    refused(backend, said, **{"model": "a.b:c"} | settings)


def test_models_are_importable_functions():
    refused(PS, "put it at the top level of a module", lambda: None)
    assert PS(json.dumps).model == "json:dumps"
    assert TORCH("train.jobs:make").model == "train.jobs:make"


def test_step_totals_by_number_of_ranks():
    counts = {"steps": 6, "warmup": 3, "noise_steps": 7}
    last = TORCH("a.b:c", ranks=4, untraced_steps=2, **counts)
    every = [PS("mlp"), PS("mlp", steps=7, warmup=1), RANKS("mlp"), RANKS("mlp", ranks=3, **counts), last]
    assert [backend.total for backend in every] == [110, 15, 2 * 29 + 10, 3 * 15 + 7, 4 * 11 + 7]
    assert [*every[3].hosts()] == ["rank:0", "rank:1", "rank:2"]


def test_servers_elsewhere_are_named_by_address():
    assert PS("mlp").elsewhere == {}
    assert PS("mlp", ps="a:1", worker="[::1]:9").elsewhere == {"ps": "a:1", "worker": "[::1]:9"}
    assert PS("mlp", ps="a:1", worker="[::1]:9").hosts() == {"ps:0": "a:1", "worker:0": "[::1]:9"}


def test_only_this_machine_is_here():
    hosts = (socket.gethostname(), "127.0.0.1:1", "192.0.2.7:1", "no.such.invalid:1")
    assert [processes.is_here(host) for host in hosts] == [True, True, False, False]


def test_unwritable_outputs_and_silent_servers(tmp_path, monkeypatch, addresses):
    for output in (tmp_path, tmp_path / "absent" / "p.json", "/proc/p.json"):
        refused(PS, "cannot be written", "mlp", output=output)
    (tmp_path / "old.pb").write_text("x")
    refused(PS, "traces: .* is not empty", "mlp", traces=tmp_path)
    refused(PS, "traces: .* cannot be made: Not a directory", "mlp", traces=tmp_path / "old.pb" / "x")
    monkeypatch.setattr("queuemodel.adapters.tensorflow.live.ANSWER_LIMIT", 0.6)
    ps, worker = addresses
    said = rf"ps {ps}: no answer within 0.6 s \(Connection refused\)"
    refused(PS, said, "mlp", ps=ps, worker=worker, error=ProfilingError)


@pytest.mark.parametrize(("backend", "package"), [(PS, "tensorflow"), (RANKS, "tensorflow"), (TORCH, "torch")])
def test_missing_framework_names_its_extra(monkeypatch, backend, package):
    monkeypatch.setitem(sys.modules, package, None)
    refused(
        backend, rf"needs {package}: pip install {package}, or '.\[{package}\]'", "a.b:c", error=MissingDependencyError
    )


SERVE = "serve --ps a:1 --worker b:1 --job"


@pytest.mark.parametrize(("words", "said"), [
    ("serve --job ps", "--ps"), (f"{SERVE} chief", "chief"), (f"{SERVE} ps --ps a", "--ps: must be HOST:PORT"),
    ("profile a:b --framework torch --ps a:1", "--ps: not for --framework torch"),
    ("profile a:b --framework torch --batch-size 3", "--batch-size: not for --framework torch"),
    ("profile a:b --ranks 3", "--ranks: not for --framework tensorflow"),
    ("profile a:b --noise-steps 3", "--noise-steps: not for --framework tensorflow"),
    ("profile a:b --strategy all-reduce --ps a:1", "--ps: not for --framework tensorflow --strategy all-reduce"),
    ("profile a:b --strategy async-ps --framework torch", "--strategy: async-ps is not for --framework torch"),
])  # fmt: skip
def test_commands_refuse_options_of_others(monkeypatch, run, words, said):
    monkeypatch.setattr("warnings.showwarning", None)
    status, _, shown = run(*words.split())
    assert status
    assert said in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(("control", "known"), [("cubic\n", "cubic"), ("vegas\n", None), (None, None)])
def test_congestion_control_is_recorded(tmp_path, control, known):
    path = tmp_path / "tcp_congestion_control"
    if control is not None:
        path.write_text(control)
    cluster = Cluster(**processes.recorded_network(path))
    assert cluster.congestion_control == (known or "unknown")
    assert cluster.origins == ({"congestion_control": "recorded"} if known else {})
