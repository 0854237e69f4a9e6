"""``queuemodel compare``, as its user would."""

import json

import pytest
from refusals import refused

from queuemodel.comparison import compare
from queuemodel.data import example_profile


@pytest.fixture
def told(run, examples):
    """What a comparison that succeeds says in JSON."""

    def asked(*arguments):
        code, out, _ = run("compare", *arguments, "--format", "json")
        assert code == 0
        return json.loads(out)

    return asked


def test_a_table_a_picture_and_json(run, told, examples):
    asked = ["alexnet-60.json", "--workers", 4, "--problem", "least-squares", "--seeds", 2, "--steps", 200,
             "--strategy", "sync", "--strategy", "top-k"]  # fmt: skip
    code, out, _ = run("compare", *asked, "--plot", "losses.png", "--price-per-node-hour", 2)
    assert code == 0
    assert "top-k" in out
    assert "cost" in out
    assert (examples / "losses.png").read_bytes().startswith(b"\x89PNG")
    rows = told(*asked)["rows"]
    assert [row["strategy"] for row in rows] == ["top-k", "sync"]
    assert sum(row["probability_best"] for row in rows) == pytest.approx(1)


def test_a_law_of_convergence_from_a_table(run, told, examples):
    table = examples / "runs.csv"
    table.write_text("batch_size,examples\n32,20000\n32,22000\n256,30000\n")
    arguments = ["ddp-alexnet-40.json", "--convergence", table, "--strategy", "sync"]
    assert told(*arguments)["rows"][0]["probability_best"] == 1
    table.write_text("batch_size,examples\n32,-1\n")
    refused(run("compare", *arguments), "line 2", "examples")


def test_the_noise_in_the_profile_is_used_with_and_without_a_run(told, examples):
    profile = json.loads((examples / "ddp-alexnet-40.json").read_text())
    profile["gradient_norms"] = [{"workers": [9.0, 9.1], "mean": 5.0}, {"workers": [9.1, 8.9], "mean": 4.9}]
    (examples / "noisy.json").write_text(json.dumps(profile))
    assert 0 < told("noisy.json", "--strategy", "sync")["rows"][0]["time_vs_one"] < 1
    (examples / "run.csv").write_text("batch_size,examples\n32,20000\n")
    known, unknown = (
        told(name, "--strategy", "sync", "--convergence", "run.csv")["rows"][0]
        for name in ("noisy.json", "ddp-alexnet-40.json")
    )
    assert known["steps_to_target"] > 1.05 * unknown["steps_to_target"]  # its noise scale is small: 250 examples


def test_other_machines_and_networks_reach_the_comparison(told):
    rounds = ["--latency", "1ms", "--scheme", "horovod", "--ranks-per-node", 2, "--inside-bandwidth", "1GB/s"]
    changes = {"latency": 1e-3, "scheme": "horovod", "ranks_per_node": 2, "inside_bandwidth": 1e9}
    profile = example_profile("ddp-alexnet-40")
    asked = ["--workers", "2,4", "--strategy", "sync", "--confidence", 0.5]
    for one in told("ddp-alexnet-40.json", *asked, *rounds)["comparisons"]:
        truth = compare(profile, workers=one["workers"], strategies=["sync"], confidence=0.5, **changes)
        assert one == json.loads(truth.to_json())
    truth = compare(example_profile("alexnet-60"), workers=3, strategies=["async-ps"], worker_speeds=[1.0, 1.0, 0.5])
    asked = ["--strategy", "async-ps", "--worker-speeds", "1*2,0.5", "--workers", 3]
    assert told("alexnet-60.json", *asked) == json.loads(truth.to_json())


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
def test_mistakes_are_one_line(run, examples, arguments, words):
    refused(run("compare", *arguments), words)
    assert not (examples / "losses.txt").exists()
