"""``queuemodel simulate`` as somebody types it."""

import json

import pytest
from refusals import refused

import queuemodel as qm
from queuemodel.data import example_profile
from queuemodel.strategies import simulate
from queuemodel.traces import simulate as simulate_operations

pytestmark = pytest.mark.usefixtures("examples")


def test_rounds_of_ranks(run, tmp_path):
    words = ("--workers", 4, "--steps", 20, "--format", "json", "--chrome-trace", "t.json", "--plot", "round.png")
    _, out, _ = run("simulate", "ddp-alexnet-40.json", *words)
    truth = simulate(example_profile("ddp-alexnet-40"), workers=4, steps=20)
    assert json.loads(out)["rows"][0]["steps_per_second"] == truth.throughput
    assert {event["pid"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]} == {0, 1, 2, 3}
    assert (tmp_path / "round.png").read_bytes().startswith(b"\x89PNG")


def test_operations_of_workers(run, tmp_path):
    words = ("--workers", 2, "--steps", 10, "--strategy", "sync-ps", "--chrome-trace", "t.json")
    assert "sync" in run("simulate", "alexnet-60.json", *words)[1]
    kinds = {event.get("cat") for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]}
    assert {"fetch", "compute", "push"} <= kinds


def test_every_question_reaches_the_simulation(run):
    words = ["--workers", "3", "--steps", "10", "--seed", "4", "--format", "json", "--accelerator-speed", "2"]
    # fmt: off
    _, out, _ = run(
        "simulate", "alexnet-60.json", *words, "--policy", "tic", "--worker-speeds", "1*2,0.5", "--straggler-slowdown",
        "3", "--worker-bandwidth", "7MB/s,5MB/s", "--straggler-probability", "0.2", "--parameter-servers", "2",
        "--sharding", "greedy", "--congestion-control", "cubic", "--buffer", "5ms", "--bandwidth", "70Mbit/s",
    )
    truth = simulate_operations(
        example_profile("alexnet-60"), workers=3, steps=10, seed=4, policy="tic", slowdown=[0.5, 0.5, 1.0],
        worker_bandwidth=[7e6, 5e6, 5e6], straggler_probability=0.2, straggler_slowdown=3.0, parameter_servers=2,
        sharding="greedy", congestion_control="cubic", buffer=5e-3, bandwidth=70e6 / 8,
    )
    # fmt: on
    told = json.loads(out)
    assert (told["throughput"], told["policy"]) == (truth.throughput, "tic")
    assert told["staleness_distribution"] == truth.staleness.tolist()


def test_slow_links_and_stragglers_of_a_curve():
    """A slow link costs at most its worker; the curve takes the first workers of the list."""
    profile = example_profile("alexnet-60")
    ask = {"workers": [1, 2], "method": "trace", "seed": 1}
    fair, slow, late = (
        qm.predict(profile, **ask, **more)
        for more in (
            {"worker_bandwidth": [7.2e6, 7.2e6]},
            {"worker_bandwidth": [7.2e6, 1e6]},
            {"straggler_probability": 0.5, "straggler_slowdown": 5.0},
        )
    )
    assert slow.single == pytest.approx(fair.single)
    assert fair.single < slow.at(2) < 0.95 * fair.at(2)
    assert late.single < 0.8 * fair.single
    assert (slow.steps_per_second <= slow.bound_upper).all()
    with pytest.raises(qm.ModelError, match="worker_bandwidth must be 2 or more numbers"):
        qm.predict(profile, **ask, worker_bandwidth=[1e6])


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("alexnet-60-throughputs.csv", "--workers", "2"), "throughputs alone cannot be simulated"),
        (("alexnet-60.json", "--workers", "2", "--plot", "a.png"), "use --chrome-trace"),
        (("alexnet-60.json", "--workers", "2", "--batch-size", "64"), "batch_size is no question"),
        (("alexnet-60.json", "--workers", "2", "--scheme", "ddp"), "scheme is a question for strategy 'all-reduce'"),
        (("ddp-alexnet-40.json", "--workers", "2", "--parameter-servers", "2"), "training on parameter servers"),
        (("ddp-alexnet-40.json", "--workers", "2", "--plot", "a.gif"), "must end in"),
    ],
)
def test_what_makes_no_sense_is_one_line(run, words, match):
    refused(run("simulate", *words), match)
