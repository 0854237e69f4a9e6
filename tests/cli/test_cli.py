"""The command line as its user types it: what it prints, what it refuses, and what it leaves alone."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from refusals import refused

import queuemodel as qm
from queuemodel.cli import COMMANDS

DATA = Path(__file__).parent.parent / "data"
STEP = qm.Step(
    step_time=0.75, fetch=0.2, compute=0.5, push=0.1, update=0.0, fetched_bytes=2 * 10**6, pushed_bytes=10**6
)


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "profile.json"
    qm.Profile(
        source=qm.Source(framework="test"),
        job=qm.Job(batch_size=32, parameter_bytes=2 * 10**6, tensors=4, dataset_size=32_000),
        steps=[STEP] * 4,
    ).save(path)
    return path


@pytest.fixture
def throughputs(tmp_path):
    path = tmp_path / "throughputs.csv"
    path.write_text("workers,steps_per_second\n1,2.0\n2,3.9\n4,6.0\n8,6.1\n")
    return path


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_help_has_an_example(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"queuemodel {command}" in out.split("Options:")[0].split("Usage:")[1].split("\n", 1)[1]


def test_help_lists_the_commands(run):
    code, out, _ = run("--help")
    assert code == 0
    assert all(command in out for command in COMMANDS)
    assert run() == (0, out, "")


def test_predict_json_has_the_promised_fields(run, profile):
    code, out, err = run("predict", profile, "--workers", "1:8", "--format", "json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["workers"] == list(range(1, 9))
    for name in ("steps_per_second", "lower", "upper", "examples_per_second", "efficiency"):
        assert len(document[name]) == 8
    assert np.all(np.array(document["lower"]) <= document["steps_per_second"])
    assert np.all(np.array(document["steps_per_second"]) <= document["upper"])
    assert document["bottleneck"] == "transmit link"
    assert document["saturation_workers"] == pytest.approx(0.75 / 0.2)
    assert document["steps_per_second"][0] == pytest.approx(1 / 0.75)
    assert document["examples_per_second"][0] == pytest.approx(32 / 0.75)


def test_predict_table_and_csv_agree(run, profile):
    _, table, _ = run("predict", profile, "--workers", "1,2,4")
    _, text, _ = run("predict", profile, "--workers", "1,2,4", "--format", "csv")
    lines = text.strip().split("\n")
    assert lines[0].startswith("workers,steps_per_second,lower,upper")
    assert [line.split(",")[0] for line in lines[1:]] == ["1", "2", "4"]
    for line, printed in zip(lines[1:], table.splitlines()[-3:], strict=True):
        np.testing.assert_allclose(
            [float(x) for x in printed.split()[:4]], [float(x) for x in line.split(",")[:4]], 5e-3
        )


def test_predict_what_ifs(run, profile):
    def saturated(*arguments):
        _, out, _ = run("predict", profile, "--workers", "200", "--format", "json", *arguments)
        return json.loads(out)["steps_per_second"][0]

    plain = saturated()
    assert saturated("--bandwidth", "10Gbit/s") > 5 * plain
    assert saturated("--parameter-servers", 2) > 1.5 * plain
    assert saturated("--batch-size", 64) == pytest.approx(plain, rel=0.02)


@pytest.mark.parametrize(
    "options",
    [
        "sync-ps", "sync-ps --backup-workers 1", "bounded-staleness --staleness-bound 0", "k-sync --k 2",
        "k-batch-sync --k 5", "k-async --k 2", "k-batch-async --k 2",
    ],
)  # fmt: skip
def test_strategies_on_servers(run, operations, options):
    asked = [operations, "--workers", "2,3", "--strategy", *options.split()]
    code, out, _ = run("predict", *asked, "--format", "json")
    curve = json.loads(out)
    assert code == 0
    counted = {"sync-ps": [2, 3], "sync-ps --backup-workers 1": [1, 2], "bounded-staleness --staleness-bound 0": [2, 3]}
    k = counted.get(options, [int(options[-1])] * 2 if options[-1].isdigit() else None)
    np.testing.assert_allclose(np.array(curve["rounds_per_second"]) * k, curve["steps_per_second"])
    assert run("plan", *asked, "--min-efficiency", "0.1")[0] == 0


@pytest.fixture
def operations(tmp_path):
    """A step's operations, in a profile."""
    path = tmp_path / "operations.json"
    operations = [
        qm.Operation("fetch", "w", 0.0, 0.2, 2 * 10**6),
        qm.Operation("compute", "all", 0.2, 0.65, after=[0]),
        qm.Operation("push", "g", 0.65, 0.75, 10**6, after=[1]),
    ]
    job = qm.Job(batch_size=32, parameter_bytes=2 * 10**6, tensors=4)
    step = msgspec.structs.replace(STEP, operations=operations)
    qm.Profile(source=qm.Source(framework="test"), job=job, steps=[step] * 2).save(path)
    return path


def test_strategies_on_servers_meet_in_their_limits(run, operations):
    """Where all count, or nobody is ahead, they are synchronous training, and where nobody waits asynchronous."""

    def rate(strategy):
        asked = f"--workers 3 --format json --method trace --buffer 0 --strategy {strategy}"
        code, out, _ = run("predict", operations, *asked.split())
        assert code == 0
        return json.loads(out)["steps_per_second"][0]

    sync, free = rate("sync-ps"), rate("async-ps")
    assert free > 1.3 * sync
    alike = ["k-sync --k 3", "k-async --k 3", "sync-ps --backup-workers 0", "bounded-staleness --staleness-bound 0"]
    for strategy in alike:
        assert rate(strategy) == pytest.approx(sync), strategy
    for strategy in ("k-async --k 1", "k-batch-async --k 2", "bounded-staleness --staleness-bound 1000"):
        assert rate(strategy) == pytest.approx(free, rel=0.02), strategy


def test_predict_from_throughputs_and_from_both(run, profile, throughputs):
    code, out, _ = run("predict", throughputs, "--workers", "1:16", "--format", "json")
    assert code == 0
    assert json.loads(out)["steps_per_second"][-1] == pytest.approx(6.1, rel=0.05)
    _, out, _ = run("predict", profile, "--throughputs", throughputs, "--workers", "1:16", "--format", "json")
    assert json.loads(out)["profiled_workers"] == 8


def test_plan(run, profile):
    arguments = ("plan", profile, "--epochs", 10, "--deadline", "1h", "--price", 2, "--min-efficiency", 0.5)
    code, out, _ = run(*arguments, "--format", "json")
    assert code == 0
    deadline, cheapest, both, efficient = json.loads(out)["choices"]
    assert deadline["time"] <= 3600 < 10 * 1000 * 0.75  # one worker is too slow
    assert cheapest["cost"] <= both["cost"]
    assert efficient["workers"] > 1
    assert "cheapest" in run(*arguments)[1]
    assert run(*arguments, "--format", "csv")[1].startswith("goal,")


def test_solve(run, tmp_path):
    file = tmp_path / "network.json"
    qm.Network([qm.Station("server", service_time=0.3)], think_time=2.0).save(file)
    code, out, _ = run("solve", file, "--population", "1:20", "--format", "json")
    assert code == 0
    solved = json.loads(out)
    truth = qm.solve(qm.Network.load(file), population=20)
    assert solved["throughput"] == pytest.approx(truth.throughputs.tolist())
    assert solved["utilization[server]"][-1] == pytest.approx(truth.utilization[0])
    assert [line.split()[0] for line in run("solve", file, "--population", "1:3")[1].splitlines()[-3:]] == [
        "1",
        "2",
        "3",
    ]
    assert run("solve", file, "--population", "1:3", "--format", "csv")[1].count("\n") == 4


def test_solve_with_classes(run, tmp_path):
    file = tmp_path / "classes.json"
    network = qm.Network(
        [qm.Station("server", service_time={"fast": 0.1, "slow": 0.4})],
        classes=[qm.JobClass("fast", population=2, think_time=1.0), qm.JobClass("slow", population=3, think_time=2.0)],
    )
    network.save(file)
    code, out, _ = run("solve", file, "--format", "json")
    assert code == 0
    assert json.loads(out)["throughput"] == pytest.approx(qm.solve(network).throughput)
    assert run("solve", file, "--format", "csv")[1].count("\n") >= 3
    assert "slow" in run("solve", file)[1]
    refused(run("solve", file, "--population", 5), "populations of their own")
    qm.Network([qm.Station("server", service_time=0.3)]).save(file)
    refused(run("solve", file), "--population is needed")


def test_unwritable_plots_are_refused_before_any_work(run, profile, tmp_path):
    refused(run("predict", profile, "--plot", tmp_path / "no" / "curve.png"), "there is no folder")
    refused(run("predict", profile, "--plot", tmp_path / "curve.doc"), "must end in")
    refused(run("predict", profile, "--plot", tmp_path), "is a directory")
    picture = tmp_path / "curve.png"
    picture.write_bytes(b"earlier")
    refused(run("predict", tmp_path / "missing.json", "--plot", picture), "missing.json", "No such file")
    assert picture.read_bytes() == b"earlier"
    assert run("predict", profile, "--plot", picture)[0] == 0
    assert picture.stat().st_size > 1000


def test_import_trace_refuses_what_is_not_a_trace(run, tmp_path):
    target = tmp_path / "p.json"
    target.write_text("earlier")
    refused(run("import-trace", tmp_path / "nowhere", "--batch-size", 1, "-o", target), "nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    refused(run("import-trace", empty, "--batch-size", 1, "-o", target), "empty")
    (empty / "trace_rank0.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    refused(run("import-trace", empty, "--batch-size", 1, "-o", target), "trace_rank0.json", "end in .pt.trace.json")
    refused(run("import-trace", empty / "trace_rank0.json", "--batch-size", 1, "-o", target), "give the folder")
    refused(run("predict", empty / "trace_rank0.json"), "becomes a profile by queuemodel import-trace")
    (empty / "timeline.json").write_text('[{"name": "NEGOTIATE_ALLREDUCE", "ph": "B", "ts": 1}]')
    refused(run("predict", empty / "timeline.json"), "becomes a profile by queuemodel import-trace")
    for trace in (DATA / "alexnet-60" / "trace", DATA / "alexnet-60" / "trace" / "step_000.pb.gz"):
        refused(run("predict", trace), "become one by queuemodel import-trace FOLDER")
    several = [DATA / "xplane-1ps", DATA / "xplane-2ps"]
    refused(run("import-trace", *several, "--batch-size", 1, "-o", target), "2ps: no all-reduce", "--throughputs")
    job = DATA / "alexnet-60"
    refused(run("import-trace", job, "--batch-size", 1, "-o", target), f"give each run's folder: {job / 'trace'}")
    (empty / "trace_rank0.json").unlink()
    refused(run("import-trace", empty, "--batch-size", 0, "-o", target), "batch-size")
    job = DATA / "ddp" / "ddp-alexnet-40"
    refused(run("import-trace", job, "--batch-size", 1, "-o", target), "ddp-alexnet-40/trace_n1 ", "trace_n2")
    refused(run("import-trace", empty, "--batch-size", 1, "-o", tmp_path / "no" / "p.json"), "there is no folder")
    assert target.read_text() == "earlier"
    table = tmp_path / "p.csv"
    refused(run("import-trace", empty, "--batch-size", 1, "-o", table), "p.csv", "must end in one of .json, .json.gz")
    assert not table.exists()


@pytest.mark.parametrize(
    "arguments",
    [("profile", "mlp", "-o"), ("profile", "mlp", "--strategy", "all-reduce", "-o"),
     ("profile", "--framework", "torch", "queuemodel.adapters.pytorch.examples:mlp", "-o"),
     ("schedule-study", "--policy", "fifo", "--output"),
     ("simulate", "profile.json", "--workers", 2, "--chrome-trace")],
)  # fmt: skip
def test_json_is_not_written_under_another_name(run, tmp_path, arguments):
    refused(run(*arguments, tmp_path / "out.csv"), "out.csv", "must end in one of .json, .json.gz")


def test_contention_is_an_option(run, examples):
    asked = ("predict", "alexnet-60.json", "--workers", "8", "--format", "json")

    def at(*options):
        code, out, _ = run(*asked, *options)
        assert code in (0, None)
        curve = json.loads(out)
        return curve["steps_per_second"][0], curve["lower"][0], curve["note"]

    bbr, cubic, unknown = (at("--congestion-control", told) for told in ("bbr", "cubic", "unknown"))
    assert at() == bbr  # as the profile says
    assert at("--buffer", "40ms")[0] < 0.97 * bbr[0]
    assert unknown[0] == cubic[0] > 1.03 * bbr[0]
    assert unknown[1] < 0.97 * cubic[1]
    assert "--congestion-control" in unknown[2]
    refused(run(*asked, "--congestion-control", "vegas"), "congestion-control", "bbr")
    refused(run(*asked, "--buffer", "12h"), "buffer must be at most 10 seconds")
    assert at("--method", "mva") == at("--method", "mva", "--congestion-control", "bbr")
    assert at("--method", "mva", "--congestion-control", "cubic")[0] > 1.02 * at("--method", "mva")[0]


def test_closed_pipe_is_no_error(profile):
    asked = [sys.executable, "-m", "queuemodel", "predict", profile, "--workers", "1:2000", "--format", "csv"]
    command = f"{shlex.join(map(str, asked))} | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("workers,")
    assert done.stderr == ""


def test_absent_protobuf_is_one_line(tmp_path):
    (tmp_path / "google").mkdir()
    (tmp_path / "google" / "__init__.py").write_text("raise ImportError('hidden by the test')\n")
    traces = tmp_path / "traces"
    traces.mkdir()
    (traces / "step.pb").write_bytes(b"\n\x02\n\x00")
    done = subprocess.run(
        [sys.executable, "-m", "queuemodel", "import-trace", traces, "--batch-size", "1", "-o", tmp_path / "p.json"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "queuemodel[traces]" in done.stderr


def test_synchronous_throughputs_are_rounds(run, throughputs):
    code, out, _ = run("predict", throughputs, "--strategy", "all-reduce", "--workers", "6", "--format", "json")
    curve = json.loads(out)
    assert code == 0
    assert curve["method"] == "all-reduce rounds (learnt growth)"
    assert curve["lower"][0] < curve["steps_per_second"][0] < curve["upper"][0]
    refused(
        run("predict", throughputs, "--strategy", "sync-ps", "--bandwidth", "10Gbit/s"), "needs a profile", status=1
    )


@pytest.mark.filterwarnings("always::queuemodel.QueueModelWarning")
def test_rounds_that_are_called_steps_are_one_line(run, tmp_path):
    path = tmp_path / "ddp.csv"
    asked = ("predict", path, "--strategy", "all-reduce", "--workers", "2", "--format", "csv")
    path.write_text("workers,steps_per_second\n1,4\n2,3.7\n")
    code, _, err = run(*asked)
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith("queuemodel: warning: 2 workers make 0.925 times")
    path.write_text("workers,step_time\n1,0.25\n2,0.27\n")
    code, told, err = run(*asked)
    assert (code, err) == (0, "")
    assert float(told.split("\n")[1].split(",")[1]) == pytest.approx(2 / 0.27, rel=0.05)


@pytest.mark.parametrize(
    "command",
    [("predict",), ("plan", "--min-efficiency", "0.5"), ("fit",), ("report", "-o", "page.html")],
)
def test_answers_from_throughputs_begin_with_the_strategy_that_is_assumed(run, throughputs, monkeypatch, command):
    monkeypatch.chdir(throughputs.parent)
    name, *options = command
    assumed = "assuming asynchronous parameter servers (strategy async-ps)"
    code, out, _ = run(name, throughputs, *options)
    assert code == 0
    assert out.startswith(f"{assumed}; ")
    if name == "report":
        assert assumed in Path("page.html").read_text()
    code, out, _ = run(name, throughputs, *options, "--strategy", "async-ps")
    assert (code, "assuming" in out) == (0, False)


def test_what_a_plan_rests_on_is_its_caption(run, profile, throughputs):
    for path, options in ((profile, ()), (throughputs, ("--strategy", "all-reduce"))):
        curve, plan = (run(*asked, path, *options)[1] for asked in (["predict"], ["plan", "--min-efficiency", 1]))
        assert curve.split("\n")[:2] == plan.split("\n")[:2]


@pytest.mark.filterwarnings("always::queuemodel.QueueModelWarning")
def test_jobs_of_throughputs_are_scheduled_by_the_strategy_that_is_assumed(run, throughputs):
    jobs = throughputs.parent / "jobs.csv"
    asked = ("schedule", "--workload", jobs, "--nodes", 4, "--policy", "fifo")
    jobs.write_text("name,arrival_time,steps,speeds\na,0,100,profile throughputs.csv\n")
    code, out, err = run(*asked)
    assert (code, err.count("\n")) == (0, 1)
    assert "throughputs.csv: assuming asynchronous parameter servers (strategy async-ps)" in err
    jobs.write_text("name,arrival_time,steps,speeds\na,0,100,profile throughputs.csv strategy=async-ps\n")
    assert run(*asked) == (0, out, "")
