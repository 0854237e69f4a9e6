"""``queuemodel simulate`` as somebody types it."""

import json

import pytest
from click.testing import CliRunner

import queuemodel as qm
from queuemodel.cli import cli
from queuemodel.data import copy_examples, example_profile
from queuemodel.strategies import simulate


@pytest.fixture
def run(tmp_path, monkeypatch):
    copy_examples(tmp_path)
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(cli, ["simulate", *words], catch_exceptions=True)


def test_rounds_of_ranks(run, tmp_path):
    done = run("ddp-alexnet-40.json", "--workers", "4", "--steps", "20", "--format", "json", "--chrome-trace", "t.json",
               "--plot", "round.png")  # fmt: skip
    truth = simulate(example_profile("ddp-alexnet-40"), workers=4, steps=20)
    assert json.loads(done.stdout)["rows"][0]["steps_per_second"] == truth.throughput
    assert {event["pid"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]} == {0, 1, 2, 3}
    assert (tmp_path / "round.png").read_bytes().startswith(b"\x89PNG")


def test_operations_of_workers(run, tmp_path):
    words = ("alexnet-60.json", "--workers", "2", "--steps", "10", "--strategy", "sync-ps", "--chrome-trace", "t.json")
    assert "sync" in run(*words).stdout
    kinds = {event.get("cat") for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]}
    assert {"fetch", "compute", "push"} <= kinds


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("alexnet-60-throughputs.csv", "--workers", "2"), "throughputs alone cannot be simulated"),
        (("alexnet-60.json", "--workers", "2", "--plot", "a.png"), "use --chrome-trace"),
        (("alexnet-60.json", "--workers", "2", "--scheme", "ddp"), "scheme is a question for strategy 'all-reduce'"),
        (("ddp-alexnet-40.json", "--workers", "2", "--parameter-servers", "2"), "no change of all-reduce"),
        (("ddp-alexnet-40.json", "--workers", "2", "--plot", "a.gif"), "must end in"),
    ],
)
def test_what_makes_no_sense_is_one_line(run, words, match):
    error = run(*words).exception
    assert isinstance(error, qm.QueueModelError)
    assert match in str(error)
    assert "\n" not in str(error)
