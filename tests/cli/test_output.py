"""Where the output goes: terminals, formats that hold the same, a reader that left, a disk that is full."""

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

from queuemodel.cli import COMMANDS
from tests.oracles.recorded import DATA

JOBS = "name,arrival_time,steps,speeds\na,0,100,power 0.8 2.5\n"
FILES = {
    "network.json": '{"format": "queuemodel-network", "version": 1, "stations": [{"name": "a", "service_time": 0.1}]}',
    "jobs.csv": JOBS, "throughputs.csv": "workers,steps_per_second\n1,2.0\n2,3.9\n4,6.0\n8,6.1\n",
    "i.csv": "name,price\na,1\n",
}  # fmt: skip

#: Commands that print results without TensorFlow, on the files below.
WORK = {
    "predict": "throughputs.csv --workers 1:4", "plan": "throughputs.csv --min-efficiency 0.5",
    "fit": "throughputs.csv", "solve": "network.json --population 1:4",
    "schedule": "--workload jobs.csv --nodes 4 --policy fifo",
    "schedule-study": "--policy fifo --nodes 4 --jobs 5 --replications 1 --load 0.5",
}  # fmt: skip
READ = ["--batch-size", "32", "-o", "profile.json"]
FULL = "queuemodel: error: standard output: No space left on device\n"
PYTHON = [sys.executable, "-m", "queuemodel"]
AS_TEXT = {"stderr": subprocess.PIPE, "text": True, "timeout": 600}


@pytest.fixture(autouse=True)
def files(examples):
    for name, content in FILES.items():
        (examples / name).write_text(content)


@pytest.fixture
def printed(run):
    """What a command that succeeds writes to standard output."""

    def call(*arguments):
        code, out, _ = run(*arguments)
        assert code in (0, None)
        return out

    return call


@pytest.mark.parametrize("command", ["", *sorted(COMMANDS)])
def test_help_fits_80_columns(printed, command, monkeypatch):
    """And has an example, last, of options that it lists; those of few users are in a longer one."""
    monkeypatch.setattr(sys, "argv", ["queuemodel"])
    short = printed(*command.split(), "--help")
    long = printed(command, "--help-all") if "--help-all" in short else short
    assert max(map(len, (short + long).splitlines())) <= 80
    if not command:
        assert all(f"\n  {name} " in short for name in COMMANDS)
        assert printed() == short
        return
    options, _, examples = short.rpartition("Example")
    assert f"queuemodel {command}" in examples
    assert f"queuemodel {command}" in long.rpartition("Example")[2]
    listed = set(re.findall(r"(?<!\S)-{1,2}[a-z][\w-]*", re.sub(r",$", "", options.replace(", --", " --"))))
    own = re.sub(r" -- .*?(?=queuemodel|\Z)", "", examples, flags=re.DOTALL)  # without the command that is recorded
    assert set(re.findall(r"(?<!\S)-{1,2}[a-z][\w-]*", own)) <= listed
    if long != short:
        few, every = (set(re.findall(r"^  (--[\w-]+)", text, re.M)) for text in (short, long))
        assert few < every
        assert 5 <= len(few) <= 15
        assert "--strategy" not in every or {"--bucket-bytes", "--k"} & (every - few)
        assert not {"--bucket-bytes", "--k", "--buffer"} & few


def test_notes_are_three_unless_explained(printed):
    short, whole = (printed("fit", "alexnet-60.json", *more) for more in ([], ["--explain"]))
    left_out = int(re.search(r"\((\d+) more: --explain\)\n$", short)[1])
    assert left_out >= 1
    assert "more:" not in whole
    assert len(whole) > len(short)
    assert "\x1b" not in short + whole
    assert "note" not in short


def on_terminal(command, *, stream, **settings):
    """What a command that succeeds writes to a terminal of 80 columns."""
    termios = pytest.importorskip("termios", reason="there are no pseudo-terminals")
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with subprocess.Popen(command, **{stream: theirs} | settings) as run:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # how a terminal ends
            while more := os.read(ours, 4096):
                seen += more
    os.close(ours)
    assert run.returncode == 0
    return seen


@pytest.mark.parametrize("setting", ["", "1"])
def test_terminal_answer_is_bold(setting):
    """Unless NO_COLOR is set."""
    env = os.environ | {"NO_COLOR": setting, "TERM": "xterm"}
    seen = on_terminal([*PYTHON, "fit", "throughputs.csv"], stream="stdout", env=env)
    assert (seen.startswith(b"\x1b[1m"), b"\x1b" in seen) == (not setting, not setting)


@pytest.mark.parametrize("command", WORK)
def test_formats_agree_and_tables_fit(printed, told, command, monkeypatch):
    columns, words = {"predict": 40, "solve": 200}.get(command, 80), f"{command} {WORK[command]}"
    monkeypatch.setenv("COLUMNS", str(columns))
    assert columns / 2 < max(map(len, printed(*words.split()).splitlines())) <= columns
    number = r"-?\d+\.\d{6,}(?:e-?\d+)?"
    rows, document = rows_of(printed(*words.split(), "--format", "csv")), json.dumps(told(words))
    assert rows
    assert {cell for row in rows for cell in row.values() if re.fullmatch(number, cell)} <= {
        *re.findall(number, document)
    }


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize(("arguments", "shown"), [
    (["schedule-study", *WORK["schedule-study"].split()], rb"1/1 .*(run/s|s/run)"),
    (["import-trace", DATA / "alexnet-60" / "trace", *READ], rb"reading: .*file/s.*deriving phases: .*step/s"),
    (["import-trace", DATA / "mirrored/tiny/trace_n2", DATA / "mirrored/tiny/trace_n1", *READ, "--parameter-bytes",
      "3MB"], rb"reading trace_n2: .*0/2 .*file/s.*reading trace_n1: .*0/1 .*file/s"),
], ids=lambda value: value[0] if isinstance(value, list) else "")  # fmt: skip
def test_progress_is_for_terminals_only(arguments, shown):
    command = [*PYTHON, *map(str, arguments)]
    seen = on_terminal(command, stream="stderr", stdout=subprocess.DEVNULL)
    assert re.search(shown, seen, re.DOTALL)
    assert subprocess.run(command, capture_output=True, check=True).stderr == b""


@pytest.fixture(scope="module")
def promised():
    """The keys that the reference page promises of each command's JSON."""
    page = (Path(__file__).parent.parent.parent / "docs" / "reference" / "command-line.md").read_text()
    rows = page.split("## What JSON holds")[1].split("\n## ")[0].splitlines()
    cells = [row.strip("| ").split(" | ") for row in rows if row.startswith("| `")]
    found = [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in cells]
    return {command: set(keys) for commands, keys in found for command in commands}


def keys_of(document):
    """Of an object and of the first object in each of its lists; ``*`` stands for stations."""
    rows = [value[0] for value in document.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
    names = [name for row in [document, *rows] for name in row if not name.endswith("_half_width")]
    return {re.sub(r"\[.*\]", "[*]", re.sub(r"^utilization_.*", "utilization_*", name)) for name in names}


@pytest.mark.parametrize(("row", "words"), [
    *((name, f"{name} {words}") for name, words in WORK.items()),
    ("predict", "predict alexnet-60.json --method mva --workers 2 --strategy sync-ps"),
    ("plan --instances", "plan alexnet-60.json --method mva --throughput 30 --instances i.csv"),
    ("simulate", "simulate ddp-alexnet-40.json --workers 2 --steps 5"),
    ("simulate", "simulate alexnet-60.json --workers 2 --steps 5"),
    ("compare", "compare ddp-alexnet-40.json --strategy sync"),
])  # fmt: skip
def test_json_holds_what_the_reference_promises(told, row, words, promised):
    keys = keys_of(told(words))
    assert keys <= promised[row]
    if row in ("fit", "plan", "plan --instances", "next-measurement", "solve"):  # others have keys for some questions
        assert keys == promised[row]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a disk that is always full")
@pytest.mark.parametrize("words", ["predict --help", "fit throughputs.csv --format json"])
def test_full_disk_is_one_line(words):
    with open("/dev/full", "w") as output:
        ended = subprocess.run([*PYTHON, *words.split()], stdout=output, **AS_TEXT)
    assert (ended.returncode, ended.stderr) == (1, FULL)


def test_closed_pipe_gives_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run([*PYTHON, "predict", "throughputs.csv", "--workers", "1:2000"], stdout=writer, **AS_TEXT)
    os.close(writer)
    assert (ended.returncode == 0, ended.stderr) == (False, "")
