"""The command line as its user types it: every command answers what the interface answers."""

import json
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

import queuemodel as qm
from queuemodel import example_profile
from queuemodel import queueing as qn
from queuemodel.adapters import pytorch, tensorflow
from queuemodel.curves import fit_convergence
from queuemodel.models import plan_instances, read_instances, simulate
from queuemodel.scheduling import Nodes, Stream, measured_kinds, policy_named, sweep
from queuemodel.sgd import compare, plan_strategies
from queuemodel.simulator import simulate_operations
from tests.oracles.recorded import DATA
from tests.oracles.refusals import refused

pytestmark = pytest.mark.usefixtures("examples")
STEP = qm.Step(step_time=0.75, fetch=0.2, compute=0.5, push=0.1, update=0.0, fetched_bytes=2 * 10**6,
               pushed_bytes=10**6)  # fmt: skip


@pytest.fixture
def told(run):
    """What a command that succeeds says in JSON."""

    def asked(words, *more):
        code, out, _ = run(*words.split(), *more, "--format", "json")
        assert code == 0
        return json.loads(out)

    return asked


def saved(path, steps):
    job = qm.Job(batch_size=32, parameter_bytes=2 * 10**6, tensors=4, dataset_size=32_000)
    qm.Profile(source=qm.Source(framework="test"), job=job, steps=steps).save(path)
    return path.name


@pytest.fixture
def profile(examples):
    return saved(examples / "profile.json", [STEP] * 4)


@pytest.fixture
def throughputs(examples):
    (examples / "throughputs.csv").write_text("workers,steps_per_second\n1,2.0\n2,3.9\n4,6.0\n8,6.1\n")
    return "throughputs.csv"


@pytest.fixture
def nodes(examples):
    (examples / "nodes.csv").write_text("nodes,gpus_per_node,batch_size,step_time_ms\n1,8,2,250\n3,8,2,270\n")
    return "nodes.csv"


@pytest.mark.parametrize(
    ("words", "counts"),
    [
        ("predict nodes.csv", [1, 2, 3, 4, 8]),  # powers of two up to four times the measured ones, and these
        ("predict nodes.csv --nodes 2,6", [2, 6]),
        ("report nodes.csv -o page.html", range(1, 13)),  # of which a reader chooses, as plan does
    ],
)
def test_tables_answer_in_whole_nodes(told, nodes, words, counts):
    assert told(words)["workers"] == [8 * n for n in counts]


def test_nodes_need_gpus_per_node(run, told, nodes, throughputs):
    assert told("predict ddp-alexnet-40.json --nodes 4 --gpus-per-node 2 --inside-bandwidth 8GB/s")["workers"] == [8]
    assert told(f"predict {throughputs} --strategy async-ps")["workers"] == list(range(1, 33))
    refused = {
        f"{throughputs} --nodes 4": "give --gpus-per-node, or --workers",
        "nodes.csv --nodes 1 --workers 8": "give one",
    }
    for words, said in refused.items():
        code, _, err = run("predict", *words.split())
        assert code == 2
        assert said in err


def test_predict_from_throughputs_and_from_both(told, profile, throughputs):
    assert told(f"predict {throughputs} --workers 16")["steps_per_second"] == [pytest.approx(6.1, rel=0.05)]
    assert told(f"predict {profile} --throughputs {throughputs} --workers 1:16")["profiled_workers"] == 8
    curve = told(f"predict {throughputs} --strategy all-reduce --workers 6")
    assert curve["method"] == "all-reduce (fitted table)"
    assert curve["lower"][0] < curve["steps_per_second"][0] < curve["upper"][0]


def test_solve_with_and_without_classes(run, told, examples):
    network = qn.Network(
        [qn.Station("server", service_time=0.3), qn.Station("disk", service_time=0.2)], think_time=2.0, name="both"
    )
    network.save(examples / "network.json")
    solved, populations = told("solve network.json --population 1,2,5,20"), [1, 2, 5, 20]
    truth = [qn.solve(network, population=n) for n in populations]
    X = [one.throughput for one in truth]
    for column, values in {
        "population": populations, "throughput": X, "cycle_time": [n / x for n, x in zip(populations, X, strict=True)],
        "bound_upper": [min(n / 2.5, 1 / 0.3) for n in populations],
        "bound_lower": [n / (2.0 + 0.5 * n) for n in populations],
        **{f"{name}[{one['station']}]": [solution.to_rows()[k][name] for solution in truth]
           for k, one in enumerate(truth[0].to_rows()) for name in ("utilization", "queue_length", "residence_time")},
        "utilization[disk]": [0.2 * x for x in X],
    }.items():  # fmt: skip
        assert solved.pop(column) == pytest.approx(values), column
    assert solved.pop("saturation_population") == pytest.approx(2.5 / 0.3)
    assert (solved.pop("exact"), solved.pop("expected_error")) == (True, 0.0)
    assert solved == {"name": "both", "solver": truth[0].solver, "bottleneck": "server"}
    qn.Network([qn.Station("delay", service_time=0.3, servers=float("inf"))]).save(examples / "delay.json")
    assert told("solve delay.json --population 2")["saturation_population"] is None
    few = ("solve", "network.json", "--population", "1:3")
    assert [line.split()[0] for line in run(*few)[1].splitlines()[-3:]] == list("123")
    assert run(*few, "--format", "csv")[1].count("\n") == 4
    refused(run("solve", "network.json"), "--population is needed")


def test_solve_prints_percentiles(told, examples):
    """In closed form where there is one, else simulated with intervals."""
    queue = qn.Station("server", service_time=0.2, discipline="fcfs")
    qn.Network([queue], think_time=1.0).save(examples / "queue.json")
    exact, simulated = (told(f"solve queue.json --population 4 --percentiles {s}")["rows"] for s in ("server", "cycle"))
    assert [row["share"] for row in exact] == [0.5, 0.9, 0.95, 0.99]
    for closed, row in zip(exact, simulated, strict=True):
        assert row["seconds"] == pytest.approx(closed["seconds"], rel=0.03)
        assert row["lower"] <= row["seconds"] <= row["upper"]


def test_solve_tables_state_exactness(run, told, examples):
    """Constant repair: by the integral over the idle time 0.1672, for which it prints 0.1648."""
    repair = qn.Station("repair", service_time=5.0, scv=0.0, discipline="fcfs")
    qn.Network([repair], think_time=10.0).save(examples / "constant.json")
    crowd = [qn.JobClass(name, population=20) for name in "ab"]
    qn.Network([repair], think_time=10.0, classes=crowd).save(examples / "classes.json")
    varied = qn.Network([qn.Station("q", service_time=5.0, scv=4.0, discipline="fcfs")], think_time=10.0)
    varied.save(examples / "varied.json")
    plain = "parameter-server-network.json --population 3"
    for asked, exact, said in (
        ("constant.json --population 3", False, "approximate"), ("classes.json", False, "approximate"),
        ("varied.json --population 1,3", True, "Markov chain, 7 states, exact"), (plain, True, "exact MVA, exact"),
    ):  # fmt: skip
        text, rows = run("solve", *asked.split())[1], run("solve", *asked.split(), "--format", "csv")[1].splitlines()
        assert said in " ".join(text.split())
        assert all(row.endswith(f",{exact}") for row in rows[1:])
        assert rows[0].endswith(",solver,exact")
        assert told(f"solve {asked}")["exact"] is exact
    truth = qn.solve(varied, population=3, solver=qn.MarkovChain())
    assert told("solve varied.json --population 1,3")["throughput"] == pytest.approx([1 / 15, truth.throughput])


def test_single_class_populations_are_solved(run, told, examples):
    users = qn.JobClass("users", population=10, think_time=1.0)
    qn.Network([qn.Station("server", service_time={"users": 0.25})], classes=[users]).save(examples / "one.json")
    same = qn.Network([qn.Station("server", service_time=0.25)], think_time=1.0)
    same.save(examples / "same.json")
    solved, plain = (told(f"solve {name}.json --population 1,2,5") for name in ("one", "same"))
    assert solved["throughput"] == pytest.approx([0.8, 1 / 0.65, 3.2037], rel=1e-4)
    assert solved.keys() == plain.keys()
    for name in solved.keys() - {"solver"}:
        assert solved[name] == (plain[name] if isinstance(plain[name], str | bool) else pytest.approx(plain[name])), (
            name
        )
    assert told("solve one.json")["throughput"] == pytest.approx(3.9788, rel=1e-4)


@pytest.mark.parametrize("command", ["predict", "plan --min-efficiency 0.5", "fit", "report -o page.html"])
def test_assumed_strategy_leads_the_answer(run, throughputs, command):
    assumed = "assuming asynchronous parameter servers (async-ps), not data-parallel (all-reduce)"
    code, out, _ = run(*command.split(), throughputs)
    assert code == 0
    shown = " ".join(out.split())
    assert shown.startswith(f"{assumed}; ") or assumed.replace("assuming", "Assumed:") in shown
    if "report" in command:
        assert assumed.removeprefix("assuming ") in Path("page.html").read_text()
    code, out, _ = run(*command.split(), throughputs, "--strategy", "async-ps")
    assert (code, "assum" in out.split("origin")[0].lower()) == (0, False)


def test_plan_caption_names_its_basis(run, profile, throughputs):
    for path, options in ((profile, ()), (throughputs, ("--strategy", "all-reduce"))):
        goals = "--min-efficiency 1 --price 2 --epochs 1 --dataset-size 320 --currency EUR"
        curve, plan = (" ".join(run(*words.split(), "--batch-size", 32, path, *options)[1].split())
                       for words in ("predict", f"plan {goals}"))  # fmt: skip
        assert re.search(r"Method: (.*?)\. (?=Profiled|Not)", curve)[1] in plan
        assert "320 examples to train" in plan
        assert " to a node, at 2 EUR per node and hour" in plan


@pytest.mark.filterwarnings("always::queuemodel.QueueModelWarning")
def test_scheduled_throughputs_state_the_assumption(run, throughputs):
    jobs = Path("jobs.csv")
    asked = ("schedule", "--workload", jobs, "--nodes", 4, "--policy", "fifo")
    jobs.write_text("name,arrival_time,steps,speeds\na,0,100,profile throughputs.csv\n")
    code, out, err = run(*asked)
    assert (code, err.count("\n")) == (0, 1)
    assert "throughputs.csv: assuming asynchronous parameter servers (async-ps), not data-parallel (all-reduce)" in err
    jobs.write_text("name,arrival_time,steps,speeds\na,0,100,profile throughputs.csv strategy=async-ps\n")
    assert run(*asked) == (0, out, "")


def test_published_workloads_are_read_by_name(run):
    Path("log.csv").write_text("timestamp,duration,num_gpus\n2017-10-09 07:00:00,60,2\n2017-10-09 07:00:30,60,2\n")
    speeds = {"v100": {"('lm', 2)": {"null": 2.0}}}
    Path("speeds.json").write_text(json.dumps(speeds))
    Path("old.trace").write_text("lm\tx\t-s\t0\t120\t0\t2\nlm\tx\t-s\t0\t120\t30\t2\n")
    cluster = ("--nodes", 2, "--policy", "fifo", "--format", "json")
    for path, name, more in (("log.csv", "philly", ()), ("old.trace", "gavel", ("--speeds", "speeds.json"))):
        code, out, _ = run("schedule", "--workload", path, "--workload-format", name, *more, *cluster)
        assert code == 0
        assert json.loads(out)["policies"]["fifo"]["mean_response_time"] == pytest.approx((60 + 90) / 2)
        wrong = () if more else ("--speeds", "speeds.json")
        code, _, err = run("schedule", "--workload", path, "--workload-format", name, *wrong, *cluster)
        assert (code, "--speeds" in err) == (2, True)


def test_empty_jobs_are_dropped_on_request(run):
    rows = ("submit_time,gpu_num,duration", *(f"2020-06-09 18:41:01,{job}" for job in ("{},60", "2,{}", "2,60")))
    log = "\n".join(rows) + "\n"
    asked = ("schedule", "--workload", "log.csv", "--workload-format", "helios", "--nodes", 4, "--policy", "fifo")
    for gpus, seconds, left in ((0, 60, 2), (2, 0, 2), (0, 0, 1)):
        Path("log.csv").write_text(log.format(gpus, seconds))
        refused(run(*asked), "--drop-empty", status=1)
        code, out, _ = run(*asked, "--drop-empty", "--format", "json")
        assert (code, json.loads(out)["policies"]["fifo"]["jobs"]) == (0, left)
    for wrong in ("csv", "gavel"):
        refused(run(*asked[:4], wrong, *asked[5:], "--drop-empty", *(["--speeds", "s.json"] * (wrong == "gavel"))),
                f"--drop-empty: a workload of format {wrong} has no such jobs", status=2)  # fmt: skip


def test_comparison_as_table_figure_json(run, told):
    words = "compare alexnet-60.json --workers 4 --problem least-squares --seeds 2 --steps 200"
    asked = f"{words} --strategy sync --strategy top-k"
    code, out, _ = run(*asked.split(), "--plot", "losses.png", "--price", 2)
    assert code == 0
    assert "top-k" in out
    assert "cost" in out
    assert Path("losses.png").read_bytes().startswith(b"\x89PNG")
    rows = told(asked)["rows"]
    assert [row["strategy"] for row in rows] == ["top-k", "sync"]
    assert sum(row["probability_best"] for row in rows) == pytest.approx(1)


def test_recorded_gradient_noise_is_used(run, told, examples):
    profile = json.loads((examples / "ddp-alexnet-40.json").read_text())
    profile["gradient_norms"] = [{"workers": [9.0, 9.1], "mean": 5.0}, {"workers": [9.1, 8.9], "mean": 4.9}]
    (examples / "noisy.json").write_text(json.dumps(profile))
    assert 0 < told("compare noisy.json --strategy sync")["rows"][0]["time_vs_one"] < 1
    (examples / "run.csv").write_text("batch_size,examples\n32,20000\n")
    known, unknown = (
        told(f"compare {name} --strategy sync --convergence run.csv")["rows"][0]
        for name in ("noisy.json", "ddp-alexnet-40.json")
    )
    assert known["steps_to_target"] > 1.05 * unknown["steps_to_target"]  # its noise scale is small: 250 examples
    (examples / "run.csv").write_text("batch_size,examples\n32,-1\n")
    refused(run("compare", "noisy.json", "--convergence", "run.csv"), "line 2", "examples")


def test_changes_and_goals_reach_the_comparison(told, examples):
    rounds = "--latency 1ms --scheme horovod --ranks-per-node 2 --inside-bandwidth 1GB/s"
    changes = {"latency": 1e-3, "scheme": "horovod", "ranks_per_node": 2, "inside_bandwidth": 1e9}
    profile = example_profile("ddp-alexnet-40")
    (examples / "run.csv").write_text("batch_size,examples\n32,20000\n128,30000\n")
    law = fit_convergence([(32, [20000]), (128, [30000])], noise_scale=profile.noise_scale())
    asked = f"compare ddp-alexnet-40.json --workers 2,4 --strategy sync --confidence 0.5 {rounds} --convergence run.csv"
    truth = [compare(profile, workers=n, strategies=["sync"], confidence=0.5, convergence=law, **changes)
             for n in (2, 4)]  # fmt: skip
    for words, chance in (("", 0.5), ("--chance 0.9", 0.9)):
        document = told(f"{asked} --deadline 175s {words}")
        plan = plan_strategies(truth, deadline=175.0, chance=chance)
        assert document["plan"]["choices"][1]["workers"] == (2 if chance == 0.5 else None)
        assert document["plan"] == json.loads(plan.to_json())
    assert document["comparisons"] == [json.loads(one.to_json()) for one in truth]
    plan = plan_strategies([replace(one, price_per_node_hour=3.0) for one in truth], price_per_node_hour=3.0)
    assert told(f"{asked} --price 3")["plan"] == json.loads(plan.to_json())
    truth = compare(example_profile("alexnet-60"), workers=3, strategies=["async-ps"], worker_speeds=[1.0, 1.0, 0.5])
    asked = "compare alexnet-60.json --strategy async-ps --worker-speeds 1*2,0.5 --workers 3"
    assert told(asked) == json.loads(truth.to_json())


def test_rounds_and_operations_are_simulated(run, told):
    asked = "simulate ddp-alexnet-40.json --workers 4 --steps 20 --chrome-trace t.json --plot round.png"
    truth = simulate(example_profile("ddp-alexnet-40"), workers=4, steps=20)
    assert told(asked)["rows"][0]["iterations_per_second"] == pytest.approx(1 / truth.times.mean())
    assert {event["pid"] for event in json.loads(Path("t.json").read_text())["traceEvents"]} == {0, 1, 2, 3}
    assert Path("round.png").read_bytes().startswith(b"\x89PNG")
    asked = "simulate alexnet-60.json --workers 2 --steps 10 --strategy sync-ps --chrome-trace t.json"
    assert "sync" in run(*asked.split())[1]
    kinds = {event.get("cat") for event in json.loads(Path("t.json").read_text())["traceEvents"]}
    assert {"fetch", "compute", "push"} <= kinds


def test_every_question_reaches_the_simulation(told):
    simulated = told(
        "simulate alexnet-60.json --workers 3 --steps 10 --seed 4 --accelerator-speed 2 --transfer-order tic "
        "--sharding greedy --worker-speeds 1*2,0.5 --straggler-slowdown 3 --worker-bandwidth 7MB/s,5MB/s "
        "--straggler-probability 0.2 "
        "--parameter-servers 2 --congestion-control cubic --buffer 5ms --bandwidth 70Mbit/s"
    )
    truth = simulate_operations(
        example_profile("alexnet-60"), workers=3, steps=10, seed=4, transfer_order="tic", slowdown=[0.5, 0.5, 1.0],
        worker_bandwidth=[7e6, 5e6, 5e6], straggler_probability=0.2, straggler_slowdown=3.0, parameter_servers=2,
        sharding="greedy", congestion_control="cubic", buffer=5e-3, bandwidth=70e6 / 8,
    )  # fmt: skip
    assert (simulated["throughput"], simulated["transfer_order"]) == (truth.throughput, "tic")
    assert simulated["staleness_distribution"] == truth.staleness.tolist()


def test_every_option_reaches_its_question(told, examples):
    alexnet, ranks = example_profile("alexnet-60"), example_profile("ddp-alexnet-40")
    (examples / "i.csv").write_text("name,price,bandwidth,accelerator_speed\na,1.5,1Gbit/s,1\nb,4,10Gbit/s,2.5\n")
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
                        instances=read_instances(examples / "i.csv"))),
        ("fit alexnet-60.json --measured 2=1.15 --form single --seed 3",
         qm.fit(alexnet, throughputs=more, form="single", seed=3)),
        ("next-measurement alexnet-60.json --workers 6 --measured 2=1.15",
         qm.next_measurement(qm.predict(alexnet, workers=[6], throughputs=more))),
        ("compare ddp-alexnet-40.json --workers 3 --strategy sync --strategy local-sgd --problem least-squares "
         "--steps 60 --seeds 2 --seed 5 --target-loss 0.9 --price 2 --confidence 0.8",
         compare(ranks, workers=3, strategies=["sync", "local-sgd"], problem="least-squares", steps=60, seeds=2, seed=5,
                 target=0.9, price_per_node_hour=2.0, confidence=0.8)),
        ("simulate ddp-alexnet-40.json --workers 3 --steps 7 --seed 2 --latency 2ms --bucket-bytes 3MB "
         "--bandwidth 5MB/s --scheme horovod",
         simulate(ranks, workers=3, steps=7, seed=2, latency=2e-3, bucket_bytes=3e6, scheme="horovod", bandwidth=5e6)),
        ("schedule-study --policy equi --policy fifo --policy equi --load 0.4 --load 0.8 --kinds measured --nodes 8 "
         "--jobs 12 --replications 2 --arrivals bursty --restart-seconds 7s --start-seconds 0ms --warmup 0.2 --seed 5 "
         "--mean-time-to-failure 5h --checkpoint-seconds 10min --nodes-per-machine 4 --spread-speed 0.6",
         sweep(stream, [policy_named("equi"), policy_named("fifo")], loads=(0.4, 0.8), replications=2, seed=5,
               warmup=0.2, nodes=Nodes(8, restart_seconds=7.0, start_seconds=0.0, **machines))),
    ):  # fmt: skip
        assert told(words) == json.loads(truth.to_json()), words


def test_import_trace_keeps_given_values(run, examples):
    job = {
        "batch_size": 9, "name": "x", "bandwidth": 1e7, "dataset_size": 777, "congestion_control": "bbr",
        "buffer": 0.012,
    }  # fmt: skip
    options = (
        "--batch-size 9 --name x --bandwidth 10MB/s --dataset-size 777 --congestion-control bbr --buffer 12ms -o o.json"
    )
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


def test_largest_population_is_the_limit(run, told):
    asked, many = "solve parameter-server-network.json --population", 10**6
    found, (busiest, *others) = told(f"{asked} {many}"), np.array([0.12, 0.10, 0.04])  # seconds; workers: 0.6
    assert (found["population"], found["throughput"]) == ([many], pytest.approx([1 / busiest]))
    for name, own in zip(("receive link", "server update"), others, strict=True):  # open queues at the busiest's rate
        assert found[f"residence_time[{name}]"] == pytest.approx([own / (1 - own / busiest)])
    assert found["cycle_time"] == pytest.approx([many * busiest])
    refused(run(*asked.split(), many + 1), "numbers must be 1 to 1,000,000", status=2)


def test_profile_prints_tracing_overhead(run, examples, monkeypatch):
    recorded = msgspec.structs.replace(
        example_profile("alexnet-60"), throughputs=[qm.Measurement(workers=1, steps_per_second=4.0)]
    )
    monkeypatch.setattr("queuemodel.cli.profile.profile_live", lambda backend, **settings: recorded)
    code, out, _ = run("profile", "mlp", "-o", "mlp.json")
    times = recorded.values("step_time").mean() / 0.25
    said = f"takes 0.25 s; with tracing {times:.2f} times as long"
    assert (code, said in out, "wrote mlp.json" in out) == (0, True, True)
