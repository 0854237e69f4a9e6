"""The command line as its user types it: every command answers what the interface answers."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.adapters import pytorch, tensorflow
from queuemodel.curves import fit_convergence
from queuemodel.models import plan_instances, read_instances, simulate
from queuemodel.scheduling import Nodes, Stream, measured_kinds, policy_named, sweep
from queuemodel.sgd import compare, plan_strategies
from queuemodel.simulator import simulate_operations
from tests.oracles.jobs_by_hand import profile
from tests.oracles.recorded import DATA
from tests.oracles.refusals import refused

pytestmark = pytest.mark.usefixtures("examples")


@pytest.fixture(autouse=True)
def files(examples):
    profile().save("profile.json")
    for name, text in {
        "throughputs.csv": "workers,steps_per_second\n1,2.0\n2,3.9\n4,6.0\n8,6.1\n",
        "nodes.csv": "nodes,gpus_per_node,batch_size,step_time_ms\n1,8,2,250\n3,8,2,270\n",
    }.items():
        Path(name).write_text(text)


@pytest.mark.parametrize(("words", "workers"), [
    ("predict nodes.csv", [8, 16, 24, 32, 64]),  # powers of two up to four times the measured nodes, and these
    ("predict nodes.csv --nodes 2,6", [16, 48]), ("predict throughputs.csv --strategy async-ps", range(1, 33)),
    ("report nodes.csv -o page.html", range(8, 97, 8)),  # of which a reader chooses, as plan does
    ("predict ddp-alexnet-40.json --nodes 4 --gpus-per-node 2 --inside-bandwidth 8GB/s", [8]),
])  # fmt: skip
def test_default_workers_fill_nodes(told, words, workers):
    assert told(words)["workers"] == [*workers]


@pytest.mark.parametrize("command", ["predict", "plan --min-efficiency 0.5", "fit", "report -o page.html"])
def test_assumed_strategy_leads_the_answer(run, command):
    assumed = "assuming asynchronous parameter servers (async-ps), not data-parallel (all-reduce)"
    code, out, _ = run(*command.split(), "throughputs.csv")
    assert code == 0
    shown = " ".join(out.split())
    assert shown.startswith(f"{assumed}; ") or assumed.replace("assuming", "Assumed:") in shown
    if "report" in command:
        assert assumed.removeprefix("assuming ") in Path("page.html").read_text()
    code, out, _ = run(*command.split(), "throughputs.csv", "--strategy", "async-ps")
    assert (code, "assum" in out.split("origin")[0].lower()) == (0, False)


@pytest.mark.filterwarnings("always::queuemodel.QueueModelWarning")
def test_scheduled_throughputs_state_the_assumption(run):
    asked = ("schedule", "--workload", "jobs.csv", "--nodes", 4, "--policy", "fifo")
    job = "name,arrival_time,steps,speeds\na,0,100,profile throughputs.csv{}\n"
    Path("jobs.csv").write_text(job.format(""))
    code, out, err = run(*asked)
    assert (code, err.count("\n")) == (0, 1)
    assert "throughputs.csv: assuming asynchronous parameter servers (async-ps), not data-parallel (all-reduce)" in err
    Path("jobs.csv").write_text(job.format(" strategy=async-ps"))
    assert run(*asked) == (0, out, "")


def test_published_workloads_are_read_by_name(run, told):
    Path("log.csv").write_text("timestamp,duration,num_gpus\n2017-10-09 07:00:00,60,2\n2017-10-09 07:00:30,60,2\n")
    Path("speeds.json").write_text(json.dumps({"v100": {"('lm', 2)": {"null": 2.0}}}))
    Path("old.trace").write_text("lm\tx\t-s\t0\t120\t0\t2\nlm\tx\t-s\t0\t120\t30\t2\n")
    asked, speeds = "schedule --nodes 2 --policy fifo --workload {} --workload-format {}", " --speeds speeds.json"
    for words, more in ((asked.format("log.csv", "philly"), ""), (asked.format("old.trace", "gavel"), speeds)):
        assert told(words + more)["policies"]["fifo"]["mean_response_time"] == pytest.approx((60 + 90) / 2)
        refused(run(*words.split(), *("" if more else speeds).split()), "--speeds", status=2)


def test_empty_jobs_are_dropped_on_request(run, told):
    rows = ("submit_time,gpu_num,duration", *(f"2020-06-09 18:41:01,{job}" for job in ("{},60", "2,{}", "2,60")))
    asked = "schedule --workload log.csv --nodes 4 --policy fifo --workload-format"
    for gpus, seconds, left in ((0, 60, 2), (2, 0, 2), (0, 0, 1)):
        Path("log.csv").write_text("\n".join(rows).format(gpus, seconds) + "\n")
        refused(run(*asked.split(), "helios"), "--drop-empty", status=1)
        assert told(f"{asked} helios --drop-empty")["policies"]["fifo"]["jobs"] == left
    for wrong in ("csv", "elasticflow --speeds ."):
        said = f"--drop-empty: a workload of format {wrong.split()[0]} has no such jobs"
        refused(run(*f"{asked} {wrong} --drop-empty".split()), said, status=2)


def test_recorded_gradient_noise_is_used(run, told):
    noisy = json.loads(Path("ddp-alexnet-40.json").read_text())
    noisy["gradient_norms"] = [{"workers": [9.0, 9.1], "mean": 5.0}, {"workers": [9.1, 8.9], "mean": 4.9}]
    Path("noisy.json").write_text(json.dumps(noisy))
    assert 0 < told("compare noisy.json --strategy sync")["rows"][0]["time_vs_one"] < 1
    Path("run.csv").write_text("batch_size,examples\n32,20000\n")
    known, unknown = (told(f"compare {name}.json --strategy sync --convergence run.csv")["rows"][0]["steps_to_target"]
                      for name in ("noisy", "ddp-alexnet-40"))  # fmt: skip
    assert known > 1.05 * unknown  # its noise scale is small: 250 examples
    Path("run.csv").write_text("batch_size,examples\n32,-1\n")
    refused(run("compare", "noisy.json", "--convergence", "run.csv"), "line 2", "examples")


def test_changes_and_goals_reach_the_comparison(run, told):
    rounds = "--latency 1ms --scheme horovod --ranks-per-node 2 --inside-bandwidth 1GB/s"
    changes = {"latency": 1e-3, "scheme": "horovod", "ranks_per_node": 2, "inside_bandwidth": 1e9}
    recorded = example_profile("ddp-alexnet-40")
    Path("run.csv").write_text("batch_size,examples\n32,20000\n128,30000\n")
    law = fit_convergence([(32, [20000]), (128, [30000])], noise_scale=recorded.noise_scale())
    asked = f"compare ddp-alexnet-40.json --workers 2,4 --strategy sync --confidence 0.5 {rounds} --convergence run.csv"
    truth = [compare(recorded, workers=n, strategies=["sync"], confidence=0.5, convergence=law, **changes)
             for n in (2, 4)]  # fmt: skip
    for words, chance in (("", 0.5), ("--chance 0.9", 0.9)):
        status, out, _ = run(*f"{asked} --deadline 175s {words} --format json".split())
        document = json.loads(out)
        assert (status, document["plan"]["choices"][1]["workers"]) == ((0, 2) if chance == 0.5 else (3, None))
        assert document["plan"] == json.loads(plan_strategies(truth, deadline=175.0, chance=chance).to_json())
    assert document["comparisons"] == [json.loads(one.to_json()) for one in truth]
    plan = plan_strategies([replace(one, price_per_node_hour=3.0) for one in truth], price_per_node_hour=3.0)
    assert told(f"{asked} --price 3")["plan"] == json.loads(plan.to_json())


def test_every_option_reaches_its_question(told):
    alexnet, ranks = example_profile("alexnet-60"), example_profile("ddp-alexnet-40")
    Path("i.csv").write_text("name,price,bandwidth,accelerator_speed\na,1.5,1Gbit/s,1\nb,4,10Gbit/s,2.5\n")
    more = [qm.Measurement(workers=2, steps_per_second=1.15)]
    machines = {
        "nodes_per_machine": 4, "spread_speed": 0.6, "mean_time_to_failure": 18000.0, "checkpoint_seconds": 600.0,
    }  # fmt: skip
    stream = Stream(measured_kinds(most=8), jobs=12, nodes=8, arrivals="bursty")
    points = [*more, qm.Measurement(workers=4, steps_per_second=0.9, bandwidth=5e6)]
    speeds = {"worker_speeds": [1.0, 0.5, 0.5, 0.5], "accelerator_speed": 2.0, "congestion_control": "cubic"}
    changes = {"bandwidth": 1e7, "parameter_servers": 2, "accelerator_speed": 0.5, "batch_size": 7, "form": "single"}
    asked = "--bandwidth 10MB/s --parameter-servers 2 --accelerator-speed 0.5 --batch-size 7 --form single"
    for words, truth in (
        ("predict alexnet-60.json --workers 2,4 --seed 4 --method mva --worker-speeds 1,0.5 --accelerator-speed 2 "
         "--confidence 0.5 --congestion-control cubic --measured 2=1.15 --measured 4@5MB/s=0.9",
         qm.predict(alexnet, workers=[2, 4], seed=4, method="mva", confidence=0.5, throughputs=points, **speeds)),
        ("predict profile.json --throughputs throughputs.csv --workers 1:16",
         qm.predict(profile(), workers=range(1, 17), throughputs=qm.read_measurements("throughputs.csv"))),
        ("predict throughputs.csv --strategy all-reduce --workers 6",
         qm.predict(qm.read_measurements("throughputs.csv"), workers=[6], strategy="all-reduce")),
        (f"plan alexnet-60.json --workers 2:5 --method mva {asked} --epochs 2 --dataset-size 999 --price 3 "
         "--min-marginal-speedup 0.3 --throughput 5 --currency EUR --deadline 1h --budget 3k --min-efficiency 0.2",
         qm.plan(qm.predict(alexnet, workers=range(2, 6), method="mva", **changes), epochs=2, dataset_size=999,
                 price_per_node_hour=3.0, min_marginal_speedup=0.3, throughput=5.0, currency="EUR", deadline=3600.0,
                 budget=3000.0, min_efficiency=0.2)),
        *((f"plan alexnet-60.json --workers 2:5 --method mva --price 3 --{work} 7k",
           qm.plan(qm.predict(alexnet, workers=range(2, 6), method="mva"), price_per_node_hour=3.0, **{work: 7000}))
          for work in ("steps", "examples")),
        ("plan alexnet-60.json --workers 1:6 --method mva --throughput 2 --instances i.csv --confidence 0.5",
         plan_instances(alexnet, workers=range(1, 7), method="mva", throughput=2.0, confidence=0.5,
                        instances=read_instances("i.csv"))),
        ("fit alexnet-60.json --measured 2=1.15 --form single --seed 3",
         qm.fit(alexnet, throughputs=more, form="single", seed=3)),
        ("next-measurement alexnet-60.json --workers 6 --measured 2=1.15",
         qm.next_measurement(qm.predict(alexnet, workers=[6], throughputs=more))),
        ("compare ddp-alexnet-40.json --workers 3 --strategy sync --strategy local-sgd --problem least-squares "
         "--steps 60 --seeds 2 --seed 5 --target-loss 0.9 --price 2 --confidence 0.8 --plot losses.png",
         compare(ranks, workers=3, strategies=["sync", "local-sgd"], problem="least-squares", steps=60, seeds=2, seed=5,
                 target=0.9, price_per_node_hour=2.0, confidence=0.8)),
        ("compare alexnet-60.json --strategy async-ps --worker-speeds 1*2,0.5 --workers 3",
         compare(alexnet, workers=3, strategies=["async-ps"], worker_speeds=[1.0, 1.0, 0.5])),
        ("simulate ddp-alexnet-40.json --workers 3 --steps 7 --seed 2 --latency 2ms --bucket-bytes 3MB "
         "--bandwidth 5MB/s --scheme horovod --chrome-trace rounds.json --plot round.png",
         simulate(ranks, workers=3, steps=7, seed=2, latency=2e-3, bucket_bytes=3e6, scheme="horovod", bandwidth=5e6)),
        ("simulate alexnet-60.json --workers 3 --steps 10 --seed 4 --accelerator-speed 2 --transfer-order tic "
         "--sharding greedy --worker-speeds 1*2,0.5 --straggler-slowdown 3 --worker-bandwidth 7MB/s,5MB/s "
         "--straggler-probability 0.2 --parameter-servers 2 --congestion-control cubic --buffer 5ms "
         "--bandwidth 70Mbit/s --chrome-trace steps.json --strategy sync-ps",
         simulate_operations(
             alexnet, workers=3, steps=10, seed=4, transfer_order="tic", slowdown=[0.5, 0.5, 1.0], sharding="greedy",
             worker_bandwidth=[7e6, 5e6, 5e6], straggler_probability=0.2, straggler_slowdown=3.0, parameter_servers=2,
             congestion_control="cubic", buffer=5e-3, bandwidth=70e6 / 8, synchronization="sync-ps")),
        ("schedule-study --policy equi --policy fifo --policy equi --load 0.4 --load 0.8 --kinds measured --nodes 8 "
         "--jobs 12 --replications 2 --arrivals bursty --restart-seconds 7s --start-seconds 0ms --warmup 0.2 --seed 5 "
         "--mean-time-to-failure 5h --checkpoint-seconds 10min --nodes-per-machine 4 --spread-speed 0.6",
         sweep(stream, [policy_named("equi"), policy_named("fifo")], loads=(0.4, 0.8), replications=2, seed=5,
               warmup=0.2, nodes=Nodes(8, restart_seconds=7.0, start_seconds=0.0, **machines))),
    ):  # fmt: skip
        assert told(words) == json.loads(truth.to_json()), words
    assert all(Path(f"{name}.png").read_bytes().startswith(b"\x89PNG") for name in ("losses", "round"))
    rounds, steps = (json.loads(Path(f"{name}.json").read_text())["traceEvents"] for name in ("rounds", "steps"))
    assert {event["pid"] for event in rounds} == {event["pid"] for event in steps} == {0, 1, 2}
    assert {"fetch", "compute", "push"} <= {event.get("cat") for event in steps}


def test_import_trace_keeps_given_values(run):
    job = {"batch_size": 9, "name": "x", "bandwidth": 1e7, "dataset_size": 777, "congestion_control": "bbr",
           "buffer": 0.012}  # fmt: skip
    options = ("--batch-size 9 --name x --bandwidth 10MB/s --dataset-size 777 --congestion-control bbr --buffer 12ms "
               "-o o.json")  # fmt: skip
    tiny, ddp = ([DATA / name / f"trace_n{n}" for n in (1, 2)] for name in ("mirrored/tiny", "ddp/ddp-alexnet-40"))
    for folders, more, truth in (
        ([DATA / "xplane-2ps"], ["--parameter-bytes", "800kB", "--workers", "3"],
         tensorflow.read_tensorflow(DATA / "xplane-2ps", parameter_bytes=800_000, workers=3, **job)),
        (tiny, ["--parameter-bytes", "244.5kB"], tensorflow.read_mirrored(tiny, parameter_bytes=244_500, **job)),
        (ddp, [], pytorch.read_pytorch(ddp, **job)),
    ):  # fmt: skip
        code, out, _ = run("import-trace", *folders, *options.split(), *more, "--format", "json")
        assert code == 0
        assert qm.Profile.load("o.json") == truth
        assert json.loads(out) == {"name": "x", "batch_size": 9, "fields": truth.summary()}
    _, out, _ = run("import-trace", ddp[1], *options.split())
    used = "used 12 steps of all 2 ranks: 3,047,988 bytes of 8 gradients in 3 all-reduces a step"
    assert out.splitlines()[-2:] == [used, "ignored nothing"]


def test_profile_prints_tracing_overhead(run, monkeypatch):
    measured = [qm.Measurement(workers=1, steps_per_second=4.0)]
    recorded = msgspec.structs.replace(example_profile("alexnet-60"), throughputs=measured)
    monkeypatch.setattr("queuemodel.cli.profile.profile_live", lambda backend, **settings: recorded)
    code, out, _ = run("profile", "mlp", "-o", "mlp.json")
    times = recorded.values("step_time").mean() / 0.25
    said = f"takes 0.25 s; with tracing {times:.2f} times as long"
    assert (code, said in out, "wrote mlp.json" in out) == (0, True, True)


@pytest.mark.parametrize(("framework", "said"), [("tensorflow", "saturation at"), ("torch", "all-reduce")])
def test_demo_profiles_predicts_and_draws(framework, said):
    """The first command that a new user types, for real."""
    pytest.importorskip(framework, reason=f"a live run needs {framework}")
    command = [sys.executable, "-m", "queuemodel", "demo", "--framework", framework, "--steps", "5", "-o", "demo"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=True).stdout
    recorded = qm.Profile.load("demo/profile.json")
    assert said in " ".join(shown.split())  # lines break anywhere
    rows = re.findall(r"^ +(\d+) +(\S+) +(\S+) +(\S+)", shown, re.MULTILINE)  # captions may wrap before a number
    assert [int(workers) for workers, *_ in rows[:6]] == [1, 2, 4, 8, 16, 32]
    assert Path("demo/throughput.png").read_bytes().startswith(b"\x89PNG")
    if framework == "tensorflow":
        assert len(recorded.steps) == 5
        _, predicted, low, high = map(float, rows[0])
        assert 0.99 * low < recorded.throughputs[0].steps_per_second < 1.01 * high  # steps of a busy machine vary
        assert low < predicted < high
    else:
        assert {one.ranks for one in recorded.rounds} == {1, 2}
