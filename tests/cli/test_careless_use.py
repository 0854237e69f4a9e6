"""What people mistype, forget and interrupt: one line that says what to do, and the right exit status."""

import os
import signal
import subprocess
import sys

import pytest
from refusals import refused

import queuemodel.cli.predict
from queuemodel.cli import COMMANDS

STUDY = ["schedule-study", "--policy", "fifo"]
#: Commands that read a file, with what they need besides.
READERS = {
    "predict": [],
    "plan": ["--min-efficiency", "0.5"],
    "fit": [],
    "next-measurement": [],
    "simulate": ["--workers", "2"],
    "compare": [],
    "solve": ["--population", "2"],
}


pytestmark = pytest.mark.usefixtures("examples")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["predit", "alexnet-60.json"], "did you mean 'predict'"),
        (["next-measurment"], "did you mean 'next-measurement'"),
        (["frobnicate"], "see queuemodel --help"),
        (["predict", "alexnet-60.json", "--strateg", "sync-ps"], "did you mean '--strategy'"),
        (["plan", "alexnet-60.json", "--budget", "100"], "no such option '--budget'; see "),
        (["plan", "alexnet-60.json", "--node-price", "2"], "did you mean '--price'"),
        (["plan", "alexnet-60.json", "--marginal-speedup", "0.2"], "did you mean '--min-marginal-speedup'"),
        (["simulate", "alexnet-60.json", "--workers", "2", "--trace", "t.json"], "did you mean '--chrome-trace'"),
        (["predict", "alexnet-60.json", "--method", "simulaton"], "did you mean 'trace'"),
        (["predict", "alexnet-60.json", "--strategy", "synch-ps"], "did you mean 'sync-ps'"),
        (["predict", "alexnet-60.json", "--strategy", "async"], "did you mean 'async-ps'"),
        (["predict", "alexnet-60.json", "--strategy", "allreduce"], "did you mean 'all-reduce'"),
        (["predict", "ddp-alexnet-40.json", "--collective", "halvingdoubling"], "did you mean 'halving-doubling'"),
        (["predict", "alexnet-60.json", "--format", "jsn"], "did you mean 'json'"),
        (["schedule-study", "--policy", "fifo", "--backend", "rai"], "did you mean 'ray'"),
        (["profile", "transfromer"], "did you mean 'transformer'"),
        (["simulate", "alexnet-60.json", "--workers", "2", "--policy", "inorder"], "did you mean 'in-order'"),
        (["simulate", "ddp-alexnet-40.json", "--workers", "2", "--scheme", "hovorod"], "did you mean 'horovod'"),
        (["compare", "ddp-alexnet-40.json", "--strategy", "localsgd"], "did you mean 'local-sgd'"),
        (["compare", "alexnet-60.json", "--strategy", "async"], "did you mean 'async-ps'"),
        (["predict", "alexnet-60.json", "--strategy", "hogwild"], "k-batch-async, all-reduce\n"),
        (["schedule", "--workload", "jobs.csv", "--nodes", "4", "--policy", "fiffo"], "did you mean 'fifo'"),
        (["schedule", "--workload", "jobs.csv", "--nodes", "4", "--policy", "greedy:flor=1"], "did you mean 'floor'"),
    ],
)
def test_the_nearest_command_option_and_choice_is_suggested(run, typed, meant):
    refused(run(*typed), meant)


@pytest.mark.parametrize("command", READERS)
def test_files_that_are_not_there_or_no_files(run, examples, command):
    (examples / "empty.json").write_text("")
    (examples / "folder").mkdir()
    refused(run(command, "nowhere.json", *READERS[command]), "nowhere.json", "No such file", status=1)
    refused(run(command, "empty.json", *READERS[command]), "empty.json", status=1)
    said = "directory" if command == "solve" else "recorded traces become one by queuemodel import-trace"
    refused(run(command, "folder", *READERS[command]), "folder", said)
    refused(run(command, *READERS[command]), "Missing argument", status=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "alexnet-60.json", "--instances", "nowhere.csv", "--throughput", "1"], "nowhere.csv"),
        (["plan", "alexnet-60.json", "--instances", "alexnet-60.json", "--throughput", "1"], "alexnet-60.json: line 1"),
        (["plan", "alexnet-60.json", "--instances", "a.csv", "--price", "1"], "goes with --deadline"),
        (["plan", "alexnet-60.json", "--method", "mva", "--deadline", "12s", "--epochs", "0"], "epochs"),
        (["plan", "shakesmall-p100-throughputs.csv", "--throughput", "9"], "--batch-size: throughputs alone"),
        (["report", "shakesmall-p100-throughputs.csv", "-o", "r.html", "--dataset-size", "9"], "--batch-size"),
        (["plan", "alexnet-60.json", "--deadline", "12 parsecs", "--epochs", "1"], "unknown unit"),
        (["plan", "alexnet-60.json", "--throughput", "0"], "> 0"),
        (["predict", "alexnet-60.json", "--bandwidth", "10Gbit"], "write it like 10Gbit/s"),
        (["predict", "alexnet-60.json", "--bandwidth", "10MB"], "write it like 10Gbit/s"),
        (["predict", "alexnet-60.json", "--worker-speeds", "1,0"], "> 0"),
        (["predict", "alexnet-60.json", "--worker-speeds", "1*0"], "count must be a whole number of at least 1"),
        (["predict", "alexnet-60.json", "--method", "mva", "--worker-bandwidth", "5MB/s"], "method 'trace'"),
        (["predict", "alexnet-60.json", "--method", "mva", "--policy", "tic"], "policy is for the simulation only"),
        (
            ["predict", "ddp-alexnet-40.json", "--policy", "tic"],
            "policy is a question for training on",
        ),
        (["simulate", "alexnet-60.json", "--workers", "0"], "at least 1"),
        (["simulate", "alexnet-60.json", "--workers", "2", "--straggler-probability", "0.1"], "go together"),
        (["simulate", "alexnet-60.json", "--workers", "2", "--chrome-trace", "no/t.json"], "there is no folder"),
        (["simulate", "ddp-alexnet-40.json", "--workers", "2", "--worker-speeds", "1,2"], "worker_speeds"),
        (["fit", "resnet50-t4-placements.csv", "--measured", "4=1"], "fitted alone"),
        (["fit", "shakesmall-p100-throughputs.csv", "--strategy", "k-sync"], "needs"),
        (["schedule", "--workload", "nowhere.csv", "--nodes", "4", "--policy", "fifo"], "nowhere.csv"),
        (["schedule", "--workload", ".", "--nodes", "4", "--policy", "fifo"], "directory"),
        ([*STUDY, "--nodes-per-machine", "4", "--spread-speed", "2"], "spread_speed must be at most 1"),
        ([*STUDY, "--spread-speed", "0.5"], "without effect unless --nodes-per-machine"),
        ([*STUDY, "--checkpoint-seconds", "5min"], "without effect unless --mean-time-to-failure"),
        ([*STUDY, "--mean-time-to-failure", "0"], "must be a number > 0"),
        ([*STUDY, "--nodes-per-machine", "65", "--spread-speed", "0.5"], "nodes_per_machine must be at most 64"),
    ],
)
def test_what_makes_no_sense(run, arguments, message):
    refused(run(*arguments), message)


@pytest.mark.parametrize(
    ("arguments", "readings"),
    [
        (["plan", "alexnet-60.json", "--epochs", "1", "--deadline", "3"], "3h, 3min or 3s"),
        (["report", "alexnet-60.json", "-o", "r.html", "--deadline", "3"], "3h, 3min or 3s"),
        (["predict", "alexnet-60.json", "--bandwidth", "10"], "10Gbit/s or 10MB/s"),
        (["predict", "alexnet-60.json", "--worker-bandwidth", "5*2,4MB/s"], "5Gbit/s or 5MB/s"),
        (["predict", "alexnet-60.json", "--measured", "4@5=1.1"], "5Gbit/s or 5MB/s"),
        (["predict", "alexnet-60.json", "--buffer", "12"], "12us or 12ms"),
        (["predict", "ddp-alexnet-40.json", "--latency", "50"], "50us or 50ms"),
        (["predict", "ddp-alexnet-40.json", "--bucket-bytes", "25"], "25MB or 25B"),
        ([*STUDY, "--restart-seconds", "30"], "30h, 30min or 30s"),
    ],
)
def test_quantities_without_a_unit_are_refused_with_their_readings(run, arguments, readings):
    refused(run(*arguments), arguments[-2], f"has no unit; write {readings}")


def test_nothing_needs_no_unit(run):
    asked = ["predict", "alexnet-60.json", "--workers", "4", "--format", "json"]
    assert run(*asked, "--buffer", "0")[:2] == run(*asked, "--buffer", "0ms")[:2]


def test_an_interruption_is_one_line_and_its_own_status(run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(queuemodel.cli.predict, "predict_curve", interrupted)
    code, out, err = run("predict", "alexnet-60.json")
    assert (code, out, err.strip()) == (130, "", "queuemodel: interrupted")  # below the terminal's ^C


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
from queuemodel.__main__ import main
main()
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
