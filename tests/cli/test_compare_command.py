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


def test_a_law_of_convergence_from_a_table(folder):
    runs = folder / "runs.csv"
    runs.write_text("batch_size,examples\n32,20000\n32,22000\n256,30000\n")
    arguments = [folder / "ddp-alexnet-40.json", "--convergence", runs, "--strategy", "sync"]
    done = ask(*arguments, "--format", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["rows"][0]["probability_best"] == 1
    runs.write_text("batch_size,examples\n32,-1\n")
    done = ask(*arguments)
    assert "line 2" in str(done.exception)
    assert "examples" in str(done.exception)


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
