"""What people mistype, forget and interrupt: one line that says what to do, and the right exit status."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from refusals import refused

from queuemodel.cli import COMMANDS, main

DATA = Path(__file__).parent.parent / "data"
#: Commands that read a file, with what they need besides.
READERS = {
    "predict": "", "plan": "--min-efficiency 0.5", "fit": "", "next-measurement": "", "simulate": "--workers 2",
    "compare": "", "solve": "--population 2",
}  # fmt: skip
PREDICT, PLAN, COMPARE = (f"{command} alexnet-60.json" for command in ("predict", "plan", "compare"))
RANKS, COMPARE_RANKS = (f"{command} ddp-alexnet-40.json" for command in ("predict", "compare"))
AT_TWO = "simulate alexnet-60.json --workers 2"
RANKS_AT_TWO = "simulate ddp-alexnet-40.json --workers 2"
SCHEDULE = "schedule --workload jobs.csv --nodes 4 --policy"
STUDY = "schedule-study --policy fifo"

pytestmark = pytest.mark.usefixtures("examples")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("predit alexnet-60.json", "predict"), ("next-measurment", "next-measurement"),
        (f"{PREDICT} --strateg sync-ps", "--strategy"), (f"{PLAN} --node-price 2", "--price"),
        (f"{PLAN} --marginal-speedup 0.2", "--min-marginal-speedup"), (f"{AT_TWO} --trace t.json", "--chrome-trace"),
        (f"{PREDICT} --method simulaton", "trace"), (f"{PREDICT} --strategy synch-ps", "sync-ps"),
        (f"{RANKS} --collective halvingdoubling", "halving-doubling"), (f"{PREDICT} --format jsn", "json"),
        (f"{STUDY} --backend rai", "ray"), ("profile transfromer", "transformer"),
        (f"{RANKS_AT_TWO} --scheme hovorod", "horovod"), (f"{COMPARE_RANKS} --strategy localsgd", "local-sgd"),
        (f"{SCHEDULE} fiffo", "fifo"), (f"{SCHEDULE} greedy:flor=1", "floor"),
        (f"{PREDICT} --strategy bound", "bounded-staleness"),
    ],
)  # fmt: skip
def test_the_nearest_command_option_and_choice_is_suggested(run, typed, meant):
    refused(run(*shlex.split(typed)), f"did you mean '{meant}'")


@pytest.mark.parametrize("command", READERS)
def test_files_that_are_not_there_or_no_files(run, examples, command):
    (examples / "empty.json").write_text("")
    (examples / "folder").mkdir()
    options = READERS[command].split()
    refused(run(command, "nowhere.json", *options), "nowhere.json", "No such file", status=1)
    refused(run(command, "empty.json", *options), "empty.json", status=1)
    said = "directory" if command == "solve" else "recorded traces become one by queuemodel import-trace"
    refused(run(command, "folder", *options), "folder", said)
    refused(run(command, *options), "Missing argument", status=2)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (f"{PLAN} --wealth 100", "no such option '--wealth'; see "),
        (f"{PLAN} --budget 100", "give epochs and --price too"),
        (f"{PREDICT} --strategy hogwild", "k-batch-async, all-reduce\n"),
        ("simulate alexnet-60.json", "--workers"), ("report alexnet-60.json", "--output"), (SCHEDULE[:-9], "--policy"),
        ("schedule --workload jobs.csv --policy fifo", "--nodes"), ("schedule --nodes 4 --policy fifo", "--workload"),
        # files
        (f"{PLAN} --instances nowhere.csv --throughput 1", "nowhere.csv"),
        (f"{PLAN} --instances alexnet-60.json --throughput 1", "alexnet-60.json: line 1"),
        (f"{AT_TWO} --chrome-trace no/t.json", "there is no folder"),
        (f"{AT_TWO} --chrome-trace t.csv", "must end in one of .json, .json.gz"),
        (f"{RANKS_AT_TWO} --plot a.gif", "must end in"),
        (f"{STUDY} --output out.csv", "must end in one of .json, .json.gz"),
        ("profile mlp -o out.csv", "must end in one of .json, .json.gz"),
        ("profile --framework torch queuemodel.adapters.pytorch.examples:mlp -o out.csv", "must end in one of .json"),
        (f"{COMPARE} --problem logistic --plot losses.txt", "must end in"),
        ("schedule --workload nowhere.csv --nodes 4 --policy fifo", "nowhere.csv"),
        ("schedule --workload . --nodes 4 --policy fifo", "directory"),
        # questions
        (f"{PLAN} --instances a.csv --price 1", "goes with --deadline"),
        ("plan shakesmall-p100-throughputs.csv --throughput 9", "--batch-size: throughputs alone"),
        ("report shakesmall-p100-throughputs.csv -o r.html --dataset-size 9", "--batch-size"),
        (f"{PREDICT} --method mva --worker-bandwidth 5MB/s", "method 'trace'"),
        (f"{PREDICT} --method mva --transfer-order tic", "--transfer-order applies to the simulation only"),
        (f"{RANKS} --transfer-order tic", "--transfer-order applies to training on parameter servers"),
        (f"{AT_TWO} --straggler-probability 0.1", "give both"), (f"{AT_TWO} --plot a.png", "use --chrome-trace"),
        (f"{AT_TWO} --batch-size 64", "--batch-size does not apply"),
        (f"{AT_TWO} --scheme ddp", "scheme applies to strategy 'all-reduce'"),
        (f"{RANKS_AT_TWO} --worker-speeds 1,2", "--worker-speeds"),
        ("fit resnet50-t4-placements.csv --measured 4=1", "fitted alone"),
        ("fit resnet50-t4-placements.csv --strategy sync-ps", "fitted alone"),
        ("fit shakesmall-p100-throughputs.csv --strategy k-sync", "needs"),
        ("predict alexnet-60-throughputs.csv --strategy sync-ps --bandwidth 10Gbit/s", "requires a profile"),
        ("compare alexnet-60-throughputs.csv", "throughputs"), (f"{COMPARE} --plot losses.png", "--problem"),
        (f"{COMPARE} --target-loss 0.1", "--target-loss is for training a --problem"),
        (f"{COMPARE} --seed 0", "--seed is for training a --problem"),
        (f"{COMPARE} --chance 0.9", "--chance requires --deadline"),
        (f"{COMPARE_RANKS} --workers 2,4 --report page.html", "--report shows one number of workers"),
        (f"{COMPARE_RANKS} --strategy async-ps", "parameter server"),
        (f"{STUDY} --spread-speed 0.5", "without effect unless --nodes-per-machine"),
        (f"{STUDY} --checkpoint-seconds 5min", "without effect unless --mean-time-to-failure"),
        (f"{STUDY} --nodes-per-machine 4 --spread-speed 2", "must be between 0 and 1, got 2"),
        (f"{STUDY} --nodes-per-machine 65 --spread-speed 0.5", "nodes_per_machine must be at most 64"),
        (f"{STUDY} --backend foo", "backend 'foo' cannot be used"),
        # numbers
        (f"{PREDICT} --seed 1.5", "whole number of at least 0, got 1.5"), (f"{PREDICT} --seed {2**64}", "at most"),
        (f"{PREDICT} --workers 5:3", "the range is empty"),
        (f"{PREDICT} --workers 1:999999999", "numbers must be 1 to 10,000"),
        (f"{PREDICT} --workers 1:2:3", "is not like 8, 1:32 or 1,2,4,8"),
        (f"{PREDICT} --confidence 1", "between 0 and 1, both left out"),
        (f"{PREDICT} --confidence nan", "between 0 and 1"), (f"{PREDICT} --accelerator-speed 0", "finite and > 0"),
        (f"{PREDICT} --parameter-servers 0", "whole number of at least 1, got 0"),
        (f"{PREDICT} --bandwidth inf", "bandwidth"), (f"{PREDICT} --buffer 12h", "it must be at most 10 seconds"),
        (f"{PREDICT} --worker-speeds 1,0", "> 0"),
        (f"{PREDICT} --worker-speeds 1*0", "count must be a whole number of at least 1"),
        (f"{PLAN} --dataset-size 1{'0' * 400}", "at most"), (f"{PLAN} --throughput 0", "> 0"),
        (f"{PLAN} --deadline=-1h", "duration"), (f"{PLAN} --method mva --deadline 12s --epochs 0", "epochs"),
        (f"{PLAN} --deadline '12 parsecs' --epochs 1", "unknown unit"),
        (f"{PREDICT} --bandwidth 10MB", "write 10Mbit/s or 10MB/s"),
        (f"{SCHEDULE} greedy:power=abc", "power must be finite and >= 0, got 'abc'"),
        (f"{SCHEDULE} fifo --start-seconds inf", "duration must be a number > 0"),
        (f"{STUDY} --mean-time-to-failure 0", "must be a number > 0"),
        (f"{STUDY} --n-jobs 0", "whole number of at least 1, got 0"), (f"{STUDY} --load 0", "finite and > 0"),
        (f"{STUDY} --nodes 99999999", "at most"),
        # quantities without a unit, with their readings
        (f"{PREDICT} --worker-bandwidth 5*2,4MB/s", "has no unit; write 5Gbit/s or 5MB/s"),
        (f"{PREDICT} --measured 4@5=1.1", "has no unit; write 5Gbit/s or 5MB/s"),
        (f"{RANKS} --latency 50", "has no unit; write 50us or 50ms"),
        (f"{RANKS} --bucket-bytes 25", "has no unit; write 25MB or 25B"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_one_line_and_leaves_no_file(run, examples, typed, message):
    before = set(examples.iterdir())
    refused(run(*shlex.split(typed)), message)
    assert set(examples.iterdir()) == before


def test_unwritable_plots_are_refused_before_any_work_and_earlier_ones_stay(run, examples):
    asked, picture = ["predict", "alexnet-60.json", "--method", "mva", "--plot"], examples / "curve.png"
    for path, said in (("no/curve.png", "no folder"), ("curve.doc", "must end in"), (examples, "is a directory")):
        refused(run(*asked, path), said)
    picture.write_bytes(b"earlier")
    refused(run("predict", "missing.json", "--plot", picture), "missing.json", "No such file")
    assert picture.read_bytes() == b"earlier"
    assert run(*asked, picture)[0] == 0
    assert picture.stat().st_size > 1000


def test_import_trace_refuses_what_is_not_a_trace(run, tmp_path):
    target, empty = tmp_path / "p.json", tmp_path / "empty"
    target.write_text("earlier")
    empty.mkdir()

    def told(folder, *parts, batch_size=1, output=target):
        folders = folder if isinstance(folder, list) else [folder]
        refused(run("import-trace", *folders, "--batch-size", batch_size, "-o", output), *parts)

    told(tmp_path / "nowhere", "nowhere")
    told(empty, "empty")
    told(empty, "batch-size", batch_size=0)
    told(empty, "there is no folder", output=tmp_path / "no" / "p.json")
    told(empty, "p.csv", "must end in one of .json, .json.gz", output=tmp_path / "p.csv")
    (empty / "trace_rank0.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    told(empty, "trace_rank0.json", "end in .pt.trace.json")
    told(empty / "trace_rank0.json", "give the folder")
    told([DATA / "xplane-1ps", DATA / "xplane-2ps"], "2ps: no all-reduce", "--throughputs")
    told(DATA / "alexnet-60", f"give each run's folder: {DATA / 'alexnet-60' / 'trace'}")
    told(DATA / "ddp" / "ddp-alexnet-40", "ddp-alexnet-40/trace_n1 ", "trace_n2")
    assert target.read_text() == "earlier"
    (empty / "timeline.json").write_text('[{"name": "NEGOTIATE_ALLREDUCE", "ph": "B", "ts": 1}]')
    for name in ("trace_rank0.json", "timeline.json"):
        refused(run("predict", empty / name), "becomes a profile by queuemodel import-trace")
    for trace in (DATA / "alexnet-60" / "trace", DATA / "alexnet-60" / "trace" / "step_000.pb.gz"):
        refused(run("predict", trace), "become one by queuemodel import-trace FOLDER")


def test_an_interruption_is_one_line_and_its_own_status(capsys):
    @click.command()
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as stop:
        main(["now"], command=click.Group(commands={"now": interrupted}))
    assert (stop.value.code, *map(str.strip, capsys.readouterr())) == (130, "", "queuemodel: interrupted")


@pytest.mark.parametrize(("ignored", "code"), [(False, -signal.SIGINT), (True, 0)])
def test_an_interruption_of_the_start_is_no_traceback(ignored, code):
    """Ctrl-C when the command line begins to be loaded; not where it is ignored, as in the background."""
    program = f"""
import os, signal, sys
if {ignored}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "queuemodel.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv = ["queuemodel", "--version"]
from queuemodel.__main__ import start
start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, preexec_fn=_not_ignored)
    assert (done.returncode, done.stderr) == (code, "")
    assert ("version" in done.stdout) is ignored


def _not_ignored():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def completions(words):
    """What a shell is offered after these words."""
    program = "import sys; sys.argv[0] = 'queuemodel'; from queuemodel.cli import main; main()"
    asked = {"_QUEUEMODEL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | asked, check=True
    )
    assert done.stderr == ""
    return {line.removeprefix("plain,") for line in done.stdout.splitlines()}


def test_shells_complete_commands_options_and_choices():
    assert completions("queuemodel s") == {name for name in COMMANDS if name.startswith("s")}
    assert completions("queuemodel predict --strat") == {"--strategy"}
    assert completions("queuemodel predict --strategy k-b") == {"k-batch-sync", "k-batch-async"}


def test_a_report_refuses_goals_that_it_cannot_answer(run, examples):
    asked = ("report", "shakesmall-p100-throughputs.csv", "-o", "page.html", "--batch-size", 8)
    for more, what in ((("--budget", 9), "--budget: needs --price"), (("--deadline", "1h"), "--dataset-size: ")):
        code, out, err = run(*asked, *more)
        assert (code, out, err.count("\n"), Path("page.html").exists()) == (2, "", 1, False)
        assert what in err


def test_a_failed_demo_leaves_no_empty_folder(run, examples, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run("demo", "--framework", "torch", "-o", "new")[0] == 1
    assert not Path("new").exists()
    Path("own").mkdir()
    assert run("demo", "--framework", "torch", "-o", "own")[0] == 1
    assert Path("own").exists()
