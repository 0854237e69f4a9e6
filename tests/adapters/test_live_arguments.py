"""What live profiling refuses before it starts anything, and what a machine says of itself."""

import json
import socket
import sys

import pytest
import recording

from queuemodel import Cluster, DataError, MissingDependencyError, ProfilingError
from queuemodel.adapters import pytorch, tensorflow
from queuemodel.adapters.live import machine
from queuemodel.cli import main

PS, RANKS, TORCH = tensorflow.ParameterServer, tensorflow.Mirrored, pytorch.DataParallel


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch):
    monkeypatch.setattr("queuemodel.adapters.live.runner.Child", lambda *_, **__: pytest.fail("a process was started"))
    monkeypatch.delenv("TF_CONFIG", raising=False)


def refused(backend, said, *model, error=DataError, **settings):
    recording.refused(recording.recorded, backend, *model, said=said, error=error, **settings)


@pytest.mark.parametrize(
    ("backend", "argument", "value"),
    [
        (PS, "steps", 0), (PS, "steps", 2.5), (PS, "steps", True), (PS, "steps", "ten"), (PS, "steps", 10**9),
        (PS, "warmup", -1), (PS, "warmup", None), (PS, "untraced_steps", -1), (PS, "batch_size", 0),
        (PS, "batch_size", float("nan")), (PS, "time_limit", 0), (PS, "time_limit", float("nan")),
        (PS, "time_limit", float("inf")), (PS, "style", "horovod"), (PS, "style", None),
        (RANKS, "ranks", 1), (RANKS, "warmup", 1), (RANKS, "noise_steps", -1), (RANKS, "batch_size", 0),
        (TORCH, "steps", 0), (TORCH, "noise_steps", 1.5), (TORCH, "time_limit", -1),
    ],
)  # fmt: skip
def test_bad_values(backend, argument, value):
    refused(backend, f"^{argument} must be .* got {value!r}$", "a.b:c", **{argument: value})


@pytest.mark.parametrize("model", ["", "train.py", "train:", ":f", "a b:c", "train:make()", "train:f:g", 7, None])
def test_bad_models(model):
    for backend, known in ((PS, " or one of mlp, cnn, embedding, transformer"), (TORCH, "")):
        refused(backend, rf"model: must be 'package.module:function'{known}, got", model)


def test_a_model_is_a_function_that_other_processes_can_import():
    refused(PS, "put it at the top level of a module", lambda: None)
    refused(PS, "one of mlp.*did you mean 'mlp'", "mpl")
    assert PS(json.dumps).model == "json:dumps"
    assert TORCH("train.jobs:make").model == "train.jobs:make"


@pytest.mark.parametrize(
    ("backend", "settings", "said"),
    [
        (PS, {"ps": "a:1"}, "worker: give both ps and worker"),
        (PS, {"worker": "a:1"}, "ps: give both"),
        (PS, {"ps": "a:1", "worker": "a:1"}, "must not be the parameter server's address"),
        (TORCH, {"rank": 0}, "rank: give master too"),
        (TORCH, {"master": "localhost:29500"}, "master: give rank too"),
        (TORCH, {"master": "localhost:29500", "rank": 2}, "rank: 2 is not among 2 ranks, .* give more ranks"),
        (TORCH, {"master": "no-such-host.invalid:29500", "rank": 1}, "cannot be resolved"),
        *((PS, {"ps": "a:1", "worker": wrong}, r"^worker: .*got ")
          for wrong in ("", "host", "host:", ":2222", "host:port", "host:0", "host:65536", "x://h:1", "a b:1", 5)),
    ],
)  # fmt: skip
def test_bad_addresses(backend, settings, said):
    refused(backend, said, "a.b:c", **settings)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "TF_CONFIG: not the JSON"),
        ("[]", "TF_CONFIG: not the JSON"),
        ('{"cluster": {"ps": ["a:1"]}}', "TF_CONFIG: cluster needs"),
        ('{"cluster": {"ps": "a:1", "worker": 3}}', "TF_CONFIG"),
        ('{"cluster": {"ps": ["a"], "worker": ["b:1"]}}', "ps: must be HOST:PORT"),
    ],
)
def test_bad_tf_config(monkeypatch, text, said):
    monkeypatch.setenv("TF_CONFIG", text)
    refused(PS, said, "mlp")


def test_tf_config_names_the_servers_and_arguments_win(monkeypatch):
    assert PS("mlp").elsewhere == {}
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"ps": ["a:1", "b:1"], "worker": ["[::1]:9"], "chief": ["d:1"]}}')
    assert PS("mlp").elsewhere == {"ps": "a:1", "worker": "[::1]:9"}
    assert PS("mlp").hosts() == {"ps:0": "a:1", "worker:0": "[::1]:9"}
    assert PS("mlp", ps="x:1", worker="y:1").elsewhere == {"ps": "x:1", "worker": "y:1"}


def test_only_this_machine_speaks_for_itself():
    elsewhere = "192.0.2.7:1", "no.such.invalid:1"
    assert PS("mlp").is_here()
    assert PS("mlp", ps=elsewhere[0], worker="127.0.0.1:1").is_here()
    assert not PS("mlp", ps=elsewhere[0], worker=elsewhere[1]).is_here()


def test_what_cannot_be_written(tmp_path):
    for output in (tmp_path, tmp_path / "absent" / "p.json", "/proc/p.json"):
        refused(PS, "cannot be written", "mlp", output=output)
    (tmp_path / "old.pb").write_text("x")
    refused(PS, "traces: .* is not empty", "mlp", traces=tmp_path)
    refused(PS, "traces: .* cannot be made: Not a directory", "mlp", traces=tmp_path / "old.pb" / "x")


def test_nobody_answers(monkeypatch, addresses):
    monkeypatch.setattr("queuemodel.adapters.tensorflow.live.ANSWER_LIMIT", 0.6)
    ps, worker = addresses
    said = rf"ps {ps}: no answer within 0.6 s \(Connection refused\)"
    refused(PS, said, "mlp", ps=ps, worker=worker, error=ProfilingError)


@pytest.mark.parametrize(("backend", "package"), [(PS, "tensorflow"), (RANKS, "tensorflow"), (TORCH, "torch")])
def test_a_missing_framework_is_named_with_its_extra(monkeypatch, backend, package):
    monkeypatch.setitem(sys.modules, package, None)
    refused(backend, rf"needs {package}: pip install 'queuemodel\[{package}\]'", "a.b:c", error=MissingDependencyError)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serve", "--job", "ps"], "--ps"),
        (["serve", "--job", "chief", "--ps", "a:1", "--worker", "b:1"], "chief"),
        (["serve", "--job", "ps", "--ps", "a", "--worker", "b:1"], "--ps: must be HOST:PORT"),
        (["serve", "--job", "ps", "--ps", "a:1", "--worker", "b:1", "--task", "1"], "--task: ps has 1 address"),
        (["profile", "a:b", "--framework", "torch", "--ps", "a:1"], "--ps: not for --framework torch"),
        (["profile", "a:b", "--framework", "torch", "--batch-size", "3"], "--batch-size: not for --framework torch"),
        (["profile", "a:b", "--rank", "0"], "--rank: not for --framework tensorflow"),
        (["profile", "a:b", "--noise-steps", "3"], "--noise-steps: not for --framework tensorflow"),
        (["profile", "a:b", "--strategy", "all-reduce", "--ps", "a:1"],
         "--ps: not for --framework tensorflow --strategy all-reduce"),
        (["profile", "a:b", "--strategy", "async-ps", "--framework", "torch"],
         "--strategy: async-ps is not for --framework torch"),
    ],
)  # fmt: skip
def test_commands_refuse_what_is_not_for_them(monkeypatch, capsys, words, said):
    monkeypatch.setattr("warnings.showwarning", None)
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code
    assert said in (shown := capsys.readouterr().err)
    assert "Traceback" not in shown


# the machine: internals, since no public function can be told another machine


def test_own_addresses_are_given_to_nobody_else_and_a_server_of_ours_may_listen_there():
    with machine.own_addresses(3) as addresses:
        host, port = machine.split_address(addresses[0], where="")
        assert len(set(addresses)) == 3
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, port))
        with socket.create_server((host, port)) as ours, socket.create_connection((host, port)):
            ours.accept()[0].close()


def test_the_loopback_interface_is_found():
    assert machine.interface_to("127.0.0.1:29500") == "lo"


BUCKET = {"kind": "tbf", "handle": "1:", "dev": "eth0", "root": True, "options": {"rate": 7500000, "lat": 12000}}
FAIR = {"kind": "fq_codel", "handle": "10:", "dev": "eth0", "parent": "1:1", "options": {"target": 4999}}
QUEUE = {"kind": "pfifo_fast", "dev": "eth1", "root": True, "options": {"bands": 3}}


@pytest.mark.parametrize(
    ("said", "buffer"),
    [
        ([QUEUE, BUCKET], 0.012),  # as `tc -j qdisc show` of iproute2 6.1 says it
        ([BUCKET, FAIR], 0.0),
        ([BUCKET, FAIR | {"parent": "8001:1", "dev": "eth1"}], 0.012),  # not behind the bucket
        ([QUEUE, FAIR], None),  # nothing limits the rate here
        ([BUCKET, BUCKET], None),
        ([BUCKET | {"options": {}}], None),
        ([BUCKET | {"options": {"lat": 0}}], None),
        ("no JSON", None),
    ],
)
@pytest.mark.parametrize(("control", "known"), [("cubic\n", "cubic"), ("vegas\n", None), (None, None)])
def test_a_machine_says_what_its_network_does(tmp_path, monkeypatch, said, buffer, control, known):
    """A program of its own stands for tc."""
    tc, path = tmp_path / "tc", tmp_path / "tcp_congestion_control"
    tc.write_text(f"#!/bin/sh\ncat <<'END'\n{said if isinstance(said, str) else json.dumps(said)}\nEND\n")
    tc.chmod(0o755)
    if control is not None:
        path.write_text(control)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    cluster = Cluster(**machine.recorded_network(path))
    assert (cluster.congestion_control, cluster.buffer) == (known or "unknown", buffer)
    found = {"congestion_control": known, "buffer": buffer}
    assert cluster.origins == {name: "recorded" for name, value in found.items() if value is not None}
