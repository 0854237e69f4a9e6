"""``queuemodel compare``, as its user would."""

import json

import pytest
from click.testing import CliRunner

from queuemodel.cli import cli
from queuemodel.comparison import compare
from queuemodel.data import copy_examples, example_profile


@pytest.fixture
def folder(tmp_path):
    copy_examples(tmp_path)
    return tmp_path


def ask(*arguments):
    return CliRunner().invoke(cli, ["compare", *map(str, arguments)])


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


def test_the_noise_in_the_profile_is_used_with_and_without_a_run(folder):
    told = json.loads((folder / "ddp-alexnet-40.json").read_text())
    told["gradient_norms"] = [{"workers": [9.0, 9.1], "mean": 5.0}, {"workers": [9.1, 8.9], "mean": 4.9}]
    (folder / "noisy.json").write_text(json.dumps(told))
    asked = ["--strategy", "sync", "--format", "json"]
    alone = json.loads(ask(folder / "noisy.json", *asked).output)
    assert 0 < alone["rows"][0]["time_vs_one"] < 1
    (folder / "run.csv").write_text("batch_size,examples\n32,20000\n")
    known, unknown = (
        json.loads(ask(folder / name, *asked, "--convergence", folder / "run.csv").output)["rows"][0]
        for name in ("noisy.json", "ddp-alexnet-40.json")
    )
    assert known["steps_to_target"] > 1.05 * unknown["steps_to_target"]  # its noise scale is small: 250 examples


def test_other_machines_and_networks_reach_the_comparison(folder):
    rounds = ["--latency", "1ms", "--scheme", "horovod", "--ranks-per-node", 2, "--inside-bandwidth", "1GB/s"]
    done = ask(folder / "ddp-alexnet-40.json", "--workers", "2,4", "--strategy", "sync", "--format", "json",
               "--confidence", 0.5, *rounds)  # fmt: skip
    told = json.loads(done.output)["comparisons"]
    changes = {"latency": 1e-3, "scheme": "horovod", "ranks_per_node": 2, "inside_bandwidth": 1e9}
    profile = example_profile("ddp-alexnet-40")
    for one in told:
        truth = compare(profile, workers=one["workers"], strategies=["sync"], confidence=0.5, **changes)
        assert one == json.loads(truth.to_json())
    done = ask(folder / "alexnet-60.json", "--strategy", "async-ps", "--worker-speeds", "1*2,0.5", "--workers", 3,
               "--format", "json")  # fmt: skip
    truth = compare(example_profile("alexnet-60"), workers=3, strategies=["async-ps"], worker_speeds=[1.0, 1.0, 0.5])
    assert json.loads(done.output) == json.loads(truth.to_json())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["alexnet-60-throughputs.csv"], "throughputs"),
        (["alexnet-60.json", "--plot", "losses.png"], "--problem"),
        (["alexnet-60.json", "--target-loss", "0.1"], "--target-loss is for training a --problem"),
        (["alexnet-60.json", "--convergence", "nowhere.csv", "--seeds", "3"], "--seeds is for training a --problem"),
        (["alexnet-60.json", "--seed", "0"], "--seed is for training a --problem"),
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
