"""Where the output goes: a reader that left, a disk that is full, and numbers that no command takes."""

import contextlib
import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import refused

from queuemodel.cli import COMMANDS, main
from queuemodel.data import copy_examples
from queuemodel.scheduling import Cluster, EqualShare, simulate
from queuemodel.scheduling.workloads import read_workload

NETWORK = '{"format": "queuemodel-network", "version": 1, "stations": [{"name": "a", "service_time": 0.1}]}'
JOBS = "name,arrival_time,steps,speeds\na,0,100,power 0.8 2.5\n"
CURVE = "workers,steps_per_second\n1,2.0\n2,3.9\n4,6.0\n8,6.1\n"

#: Commands that print results without TensorFlow, on the files below.
WORK = {
    "predict": ["throughputs.csv", "--workers", "1:4"],
    "plan": ["throughputs.csv", "--min-efficiency", "0.5"],
    "fit": ["throughputs.csv"],
    "solve": ["network.json", "--population", "1:4"],
    "schedule": ["--workload", "jobs.csv", "--nodes", "4", "--policy", "fifo"],
    "schedule-study": ["--policy", "fifo", "--nodes", "4", "--jobs", "5", "--replications", "1", "--load", "0.5"],
}


DATA = Path(__file__).parent.parent / "data"
READ = ["--batch-size", "32", "-o", "profile.json"]


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    for name, content in (("network.json", NETWORK), ("jobs.csv", JOBS), ("throughputs.csv", CURVE)):
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)


def printed(capsys, *arguments):
    """What a command that succeeds writes to standard output."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert stop.value.code in (0, None)
    return capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in sorted(COMMANDS))], ids=str)
def test_help_fits_a_terminal_of_80_columns(arguments, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["queuemodel"])
    assert max(map(len, printed(capsys, *arguments).splitlines())) <= 80


@pytest.mark.parametrize(("command", "columns"), [("predict", 40), ("schedule", 80), ("solve", 200)])
def test_tables_fit_the_terminal(command, columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = printed(capsys, command, *WORK[command]).splitlines()
    assert columns / 2 < max(map(len, lines)) <= columns


@pytest.mark.parametrize("command", WORK)
def test_every_format_holds_the_same(command, capsys):
    rows = list(csv.DictReader(io.StringIO(printed(capsys, command, *WORK[command], "--format", "csv"))))
    document = json.loads(printed(capsys, command, *WORK[command], "--format", "json"), parse_constant=no_number)
    told = set(re.findall(r"-?\d+\.\d{6,}(?:e-?\d+)?", json.dumps(document)))
    assert rows
    assert {cell for row in rows for cell in row.values() if re.fullmatch(r"-?\d+\.\d{6,}(?:e-?\d+)?", cell)} <= told


def test_failures_and_machines_reach_the_cluster(capsys, tmp_path):
    (tmp_path / "many.csv").write_text(JOBS + "".join(f"b{n},{10 * n},4000,1:1 2:1.9 4:3.5 6:4.9\n" for n in range(9)))
    options = ["--restart-seconds", "20s", "--start-seconds", "5s",
               "--mean-time-to-failure", "2h", "--checkpoint-seconds", "5min", "--nodes-per-machine", "4",
               "--spread-speed", "0.7"]  # fmt: skip
    text = printed(capsys, "schedule", "--workload", "many.csv", "--nodes", "8", "--policy", "equi", "--format", "json",
                   *options, "--records", "--seed", "3")  # fmt: skip
    cluster = Cluster(8, restart_seconds=20.0, start_seconds=5.0, mean_time_to_failure=7200.0,
                      checkpoint_seconds=300.0, nodes_per_machine=4, spread_speed=0.7)  # fmt: skip
    truth = simulate(read_workload("many.csv", nodes=8), EqualShare(), cluster=cluster, seed=3)
    told = json.loads(text)["policies"]["equi"]
    assert told["mean_response_time"] == truth.mean_response_time
    assert sum(record["failures"] for record in told["records"]) == truth.failures.sum() > 0


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["schedule-study", *WORK["schedule-study"]], rb"1/1 .*(run/s|s/run)"),
        (["import-trace", DATA / "alexnet-60" / "trace", *READ], rb"reading: .*file/s.*deriving phases: .*step/s"),
        (["import-trace", DATA / "xplane-1ps", *READ, "--parameter-bytes", "788992B"],
         rb"reading: .*0/2 .*file/s.*deriving phases: .*step/s"),
        *((["import-trace", DATA / job / "trace_n1", DATA / job / "trace_n2", *READ, *more],
           rb"reading trace_n1: .*0/1 .*file/s.*reading trace_n2: .*0/2 .*file/s")
          for job, *more in (["ddp/ddp-alexnet-40"], ["mirrored/tiny", "--parameter-bytes", "3MB"])),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)  # fmt: skip
def test_a_bar_with_a_rate_is_for_terminals_only(arguments, shown):
    command = [sys.executable, "-m", "queuemodel", *map(str, arguments)]
    termios = pytest.importorskip("termios", reason="there are no pseudo-terminals")
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL) as run:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # how a terminal ends
            while more := os.read(ours, 4096):
                seen += more
    os.close(ours)
    assert run.returncode == 0
    assert re.search(shown, seen, re.DOTALL)
    assert subprocess.run(command, capture_output=True, check=True).stderr == b""


@pytest.fixture(scope="module")
def promised():
    """The keys that the reference page promises of each command's JSON."""
    page = (Path(__file__).parent.parent.parent / "docs" / "reference" / "command-line.md").read_text()
    rows = page.split("## What JSON holds")[1].split("\n## ")[0].splitlines()
    cells = [row.strip("| ").split(" | ") for row in rows if row.startswith("| `")]
    return {
        command: set(re.findall(r"`([^`]+)`", keys))
        for commands, keys in cells
        for command in re.findall(r"`([^`]+)`", commands)
    }


def keys_of(document):
    """Of an object and of the first object in each of its lists; ``*`` stands for stations."""
    rows = [value[0] for value in document.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
    names = [name for row in [document, *rows] for name in row if not name.endswith("_half_width")]
    return {re.sub(r"\[.*\]", "[*]", re.sub(r"^utilization_.*", "utilization_*", name)) for name in names}


@pytest.mark.parametrize(
    ("row", "arguments"),
    [
        *((name, [name, *arguments]) for name, arguments in WORK.items()),
        ("predict", ["predict", "alexnet-60.json", "--method", "mva", "--workers", "2", "--strategy", "sync-ps"]),
        (
            "plan --instances",
            ["plan", "alexnet-60.json", "--method", "mva", "--throughput", "30", "--instances", "i.csv"],
        ),
        ("simulate", ["simulate", "ddp-alexnet-40.json", "--workers", "2", "--steps", "5"]),
        ("simulate", ["simulate", "alexnet-60.json", "--workers", "2", "--steps", "5"]),
        ("compare", ["compare", "ddp-alexnet-40.json", "--strategy", "sync"]),
    ],
)
def test_json_holds_what_the_reference_promises(row, arguments, promised, capsys, tmp_path):
    copy_examples(tmp_path)
    (tmp_path / "i.csv").write_text("name,price\na,1\n")
    document = json.loads(printed(capsys, *arguments, "--format", "json"), parse_constant=no_number)
    assert keys_of(document) <= promised[row]
    if row in ("fit", "plan", "plan --instances", "next-measurement", "solve"):  # others have keys for some questions
        assert keys_of(document) == promised[row]


def no_number(name):
    raise AssertionError(f"{name} is no JSON")


def printing_to(path, arguments, monkeypatch, capsys):
    """Exit status and standard error with standard output there."""
    with open(path, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        monkeypatch.undo()
    return stop.value.code, capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a disk that is always full")
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["predict", "--help"], ["solve", *WORK["solve"]], ["fit", *WORK["fit"], "--format", "json"],
     ["schedule", *WORK["schedule"], "--format", "csv"]],
    ids=" ".join,
)  # fmt: skip
def test_a_full_disk_is_one_line(arguments, monkeypatch, capsys):
    with open("/dev/full", "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        monkeypatch.undo()
    assert stop.value.code == 1
    assert capsys.readouterr().err == "queuemodel: error: standard output: No space left on device\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a disk that is always full")
def test_nothing_is_said_again_when_python_ends():
    command = [sys.executable, "-m", "queuemodel", "schedule", *WORK["schedule"]]
    with open("/dev/full", "w") as output:
        ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (1, "queuemodel: error: standard output: No space left on device\n")


def test_a_reader_that_left_is_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "queuemodel", "solve", *WORK["solve"]]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writer)
    assert ended.returncode not in (0, None)
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("command", "option", "value", "message"),
    [
        ("predict", "--seed", "-1", "whole number of at least 0, got -1"),
        ("predict", "--seed", "1.5", "whole number of at least 0, got '1.5'"),
        ("predict", "--seed", str(2**64), "at most"),
        ("predict", "--workers", "0", "numbers must be 1 to"),
        ("predict", "--workers", "5:3", "the range is empty"),
        ("predict", "--workers", "1:999999999", "workers"),
        ("predict", "--workers", "1:2:3", "is not like 8, 1:32 or 1,2,4,8"),
        ("predict", "--workers", "nan", "is not like 8, 1:32 or 1,2,4,8"),
        ("predict", "--bandwidth", "fast", "bandwidth"),
        ("predict", "--format", "xml", "format"),
        ("predict", "--workers", "2.0", "is not like 8, 1:32 or 1,2,4,8"),
        ("predict", "--confidence", "1", "between 0 and 1, both left out"),
        ("predict", "--confidence", "nan", "between 0 and 1"),
        ("predict", "--accelerator-speed", "0", "finite and > 0"),
        ("predict", "--accelerator-speed", "nan", "finite and > 0"),
        ("predict", "--parameter-servers", "0", "whole number of at least 1, got 0"),
        ("predict", "--batch-size", "-3", "whole number of at least 1, got -3"),
        ("predict", "--bandwidth", "inf", "bandwidth"),
        ("plan", "--dataset-size", "1" + "0" * 400, "at most"),
        ("plan", "--epochs", "nan", "epochs"),
        ("plan", "--deadline", "-1h", "duration"),
        ("solve", "--population", "0", "numbers must be 1 to"),
        ("solve", "--population", "5:1", "the range is empty"),
        ("schedule", "--seed", "-1", "whole number of at least 0, got -1"),
        ("schedule", "--policy", "greedy:power=abc", "power must be finite and >= 0, got 'abc'"),
        ("schedule", "--start-seconds", "inf", "duration must be"),
        ("schedule-study", "--workers", "0", "whole number of at least 1, got 0"),
        ("schedule-study", "--backend", "foo", "backend 'foo' cannot be used"),
        ("schedule-study", "--seed", "-1", "whole number of at least 0, got -1"),
        ("schedule-study", "--load", "0", "finite and > 0"),
        ("schedule-study", "--replications", "0", "whole number of at least 1, got 0"),
        ("schedule-study", "--nodes", "99999999", "at most"),
    ],
)
def test_numbers_out_of_range_are_one_line(command, option, value, message, run):
    refused(run(command, *WORK[command], option, value), message)
