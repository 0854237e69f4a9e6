"""``queuemodel compare``, as its user would."""

import json

import pytest
from click.testing import CliRunner

from queuemodel.cli.compare import compare
from queuemodel.data import copy_examples


@pytest.fixture
def folder(tmp_path):
    copy_examples(tmp_path)
    return tmp_path


def ask(*arguments):
    return CliRunner().invoke(compare, [str(a) for a in arguments])


def test_a_table_a_picture_and_json(folder):
    few = ["--workers", 4, "--problem", "least-squares", "--seeds", 2, "--steps", 200]
    chosen = ["--strategy", "sync", "--strategy", "top-k"]
    done = ask(folder / "alexnet-60.json", *few, *chosen, "--plot", folder / "losses.png", "--price-per-node-hour", 2)
    assert done.exit_code == 0, done.output
    assert "top-k" in done.output
    assert "cost" in done.output
    assert (folder / "losses.png").read_bytes().startswith(b"\x89PNG")
    rows = json.loads(ask(folder / "alexnet-60.json", *few, *chosen, "--format", "json").output)["rows"]
    assert [row["strategy"] for row in rows] == ["top-k", "sync"]
    assert sum(row["probability_best"] for row in rows) == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["alexnet-60-throughputs.csv"], "throughputs"),
        (["alexnet-60.json", "--plot", "losses.png"], "--problem"),
        (["alexnet-60.json", "--target-loss", "0.1"], "--problem"),
        (["ddp-alexnet-40.json", "--strategy", "async-ps"], "parameter server"),
        (["alexnet-60.json", "--problem", "logistic", "--plot", "losses.txt"], "must end in"),
    ],
)
def test_mistakes_are_one_line(folder, arguments, words, monkeypatch):
    monkeypatch.chdir(folder)
    done = ask(*arguments)
    assert done.exit_code
    assert words in str(done.exception)
    assert not (folder / "losses.txt").exists()
