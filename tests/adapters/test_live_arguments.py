"""What live profiling refuses before it starts anything."""

import errno
import socket

import pytest
from click.testing import CliRunner
from recording import recorded

from queuemodel import DataError, ProfilingError, QueueModelError
from queuemodel.adapters.live.child import cause, function_name
from queuemodel.adapters.live.machine import own_addresses, split_address
from queuemodel.adapters.tensorflow import ParameterServer
from queuemodel.adapters.tensorflow.children.models import BUILT_IN
from queuemodel.adapters.tensorflow.children.serve import serve
from queuemodel.adapters.tensorflow.live import is_here, servers_elsewhere


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a process was started")

    monkeypatch.setattr("subprocess.Popen", refuse)
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("steps", 0), ("steps", -1), ("steps", 2.5), ("steps", True), ("steps", "ten"), ("steps", 10**9),
        ("warmup", -1), ("warmup", None), ("untraced_steps", -1), ("batch_size", 0), ("batch_size", float("nan")),
        ("time_limit", 0), ("time_limit", -5), ("time_limit", float("nan")), ("time_limit", float("inf")),
        ("style", "horovod"), ("style", None),
    ],
)  # fmt: skip
def test_bad_values(argument, value):
    with pytest.raises(DataError, match=f"^{argument} must be .* got {value!r}$"):
        recorded(ParameterServer, "mlp", **{argument: value})


@pytest.mark.parametrize(
    "model", ["", "resnet", "train.py", "train:", ":f", "a b:c", "train:make()", "train:f:g", 7, None]
)
def test_bad_models(model):
    with pytest.raises(DataError, match=r"model: must be 'package.module:function' or one of mlp, cnn, embedding"):
        recorded(ParameterServer, model)


def test_a_function_must_be_importable_elsewhere():
    with pytest.raises(DataError, match="put it at the top level of a module"):
        function_name(lambda: None, BUILT_IN)


@pytest.mark.parametrize(
    "address",
    ["", "host", "host:", ":2222", "host:port", "host:0", "host:65536", "host:-1", "http://host:1", "a b:1", 5],
)
def test_bad_addresses(address):
    with pytest.raises(DataError, match=r"^--ps: .*got "):
        split_address(address, where="--ps")


def test_good_addresses():
    assert split_address("10.0.0.5:2222", where="") == ("10.0.0.5", 2222)
    assert split_address("[::1]:2222", where="") == ("[::1]", 2222)


def test_own_addresses_are_given_to_nobody_else_and_a_server_of_ours_may_listen_there():
    def bound(address, *, ours):
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(ours))
        try:
            server.bind(split_address(address, where=""))
            server.listen()
        except OSError as error:
            server.close()
            return errno.errorcode[error.errno]
        return server

    with own_addresses(3) as addresses:
        assert len(set(addresses)) == 3
        assert bound(addresses[0], ours=False) == "EADDRINUSE"
        with bound(addresses[0], ours=True) as server, socket.create_connection(server.getsockname()):
            server.accept()[0].close()
    with bound(addresses[1], ours=False):
        assert bound(addresses[1], ours=True) == "EADDRINUSE"  # the control: who listens needs no reservation


@pytest.mark.parametrize(
    ("ps", "worker", "said"),
    [
        ("a:1", None, "worker: give both"),
        (None, "a:1", "ps: give both"),
        ("a:1", "a:1", "must not be the parameter server's address"),
        ("a:1", "b", "worker: must be HOST:PORT"),
    ],
)
def test_servers_come_in_pairs(ps, worker, said):
    with pytest.raises(DataError, match=said):
        recorded(ParameterServer, "mlp", ps=ps, worker=worker)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "TF_CONFIG: not the JSON"),
        ("[]", "TF_CONFIG: not the JSON"),
        ("{}", "TF_CONFIG: cluster needs"),
        ('{"cluster": {"ps": ["a:1"]}}', "TF_CONFIG: cluster needs"),
        ('{"cluster": {"ps": "a:1", "worker": 3}}', "TF_CONFIG"),
        ('{"cluster": {"ps": ["a"], "worker": ["b:1"]}}', "ps: must be HOST:PORT"),
    ],
)
def test_bad_tf_config(monkeypatch, text, said):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(DataError, match=said):
        recorded(ParameterServer, "mlp")


def test_tf_config_names_the_servers_and_arguments_win(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"ps": ["a:1", "b:1"], "worker": ["c:1"], "chief": ["d:1"]}}')
    assert servers_elsewhere(None, None) == {"ps": "a:1", "worker": "c:1"}
    assert servers_elsewhere("x:1", "y:1") == {"ps": "x:1", "worker": "y:1"}


def test_unwritable_output(tmp_path):
    for output in (tmp_path, tmp_path / "absent" / "p.json", "/proc/p.json"):
        with pytest.raises(DataError, match="cannot be written"):
            recorded(ParameterServer, "mlp", output=output)


def test_traces_go_to_an_empty_folder(tmp_path):
    (tmp_path / "old.pb").write_text("x")
    with pytest.raises(DataError, match="is not empty"):
        recorded(ParameterServer, "mlp", traces=tmp_path)


def test_nobody_answers(monkeypatch, addresses):
    monkeypatch.setattr("queuemodel.adapters.tensorflow.live.ANSWER_LIMIT", 0.6)
    ps, worker = addresses
    with pytest.raises(ProfilingError, match=rf"ps {ps}: no answer within 0.6 s \(Connection refused\)"):
        recorded(ParameterServer, "mlp", ps=ps, worker=worker)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--job", "ps"],
        ["--job", "chief", "--ps", "a:1", "--worker", "b:1"],
        ["--job", "ps", "--ps", "a", "--worker", "b:1"],
        ["--job", "ps", "--ps", "a:1", "--worker", "b:1", "--task", "1"],
    ],
)
def test_serve_refuses(arguments):
    result = CliRunner().invoke(serve, arguments)
    assert result.exit_code != 0
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit | QueueModelError)


@pytest.mark.parametrize(
    ("address", "here"),
    [("127.0.0.1:1", True), ("[::1]:1", None), ("192.0.2.7:1", False), ("no.such.invalid:1", False)],
)
def test_only_this_machine_speaks_for_itself(address, here):
    assert is_here(address) in ({True, False} if here is None else {here})  # IPv6 may be off


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n one\ntwo", "one"),
        (
            "Exception encountered when calling Bad.call().\n\n\x1b[1mshapes 5 and 7\nmore\x1b[0m\n\nArguments: x",
            "shapes 5 and 7",
        ),
        (
            "Graph execution error:\n\nDetected at node a defined at (most recent call last):\n  File x, line 10\n\n"
            "indices[0,0] = 99 is not in [0, 10)\n\t [[{{node a/GatherV2}}]] [Op:__inference]",
            "indices[0,0] = 99 is not in [0, 10)",
        ),
    ],
)
def test_the_cause_is_found_in_what_frameworks_write_around_it(text, said):
    assert cause(ValueError(text)) == f"ValueError: {said}"
    assert cause(ValueError()) == "ValueError"
