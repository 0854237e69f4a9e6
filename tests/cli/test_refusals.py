"""What people mistype, forget and interrupt: one line that says what to do, and the right exit status."""

import gzip
import os
import pickle
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from queuemodel.cli import COMMANDS, main
from queuemodel.cli.options import in_options
from tests.oracles.recorded import DATA
from tests.oracles.refusals import refused

#: Commands that read a file, with what they need besides.
READERS = {
    "predict": "", "plan": "--min-efficiency 0.5", "fit": "", "next-measurement": "", "simulate": "--workers 2",
    "compare": "", "solve": "--population 2",
}  # fmt: skip
PREDICT, PLAN, COMPARE = (f"{command} alexnet-60.json" for command in ("predict", "plan", "compare"))
RANKS, COMPARE_RANKS = (f"{command} ddp-alexnet-40.json" for command in ("predict", "compare"))
AT_TWO = "simulate alexnet-60.json --workers 2"
SCHEDULE, STUDY = "schedule --workload jobs.csv --nodes 4", "schedule-study --policy fifo"

pytestmark = pytest.mark.usefixtures("examples")


@pytest.mark.parametrize("command", READERS)
def test_missing_empty_and_folder_inputs(run, examples, command):
    (examples / "empty.json").write_text("")
    (examples / "folder").mkdir()
    options = READERS[command].split()
    refused(run(command, "nowhere.json", *options), "nowhere.json", "No such file", status=1)
    refused(run(command, "empty.json", *options), "empty.json", status=1)
    said = "directory" if command == "solve" else "recorded traces become one by queuemodel import-trace"
    refused(run(command, "folder", *options), "folder", said)
    refused(run(command, *options), "Missing argument", status=2)


#: Careless inputs by command, with what the one line says (status 1 or 2), or None where there is one reading.
CARELESS = {
    "predict t.csv": {
        "--workers '1, 2, 4'": None, "--workers [1,2,4]": None, "--workers 4-1": "range is empty",
        "--workers 8,": "is not like", "--workers 0": "must be 1 to 10,000",
        "--workers=8 extra": "unexpected extra argument", "--nodes 4": "give --gpus-per-node, or --workers",
        "--Workers 8": "did you mean '--workers'", "--format JSON": "did you mean 'json'",
        "--strategy ddp": "did you mean 'all-reduce'", "--strategy fsdp": None,
        "--strategy zero": "give fsdp for stage 3", "--parameters 7e9": "--parameters applies to throughputs of fsdp",
        "--strategy ps": "give async-ps, or sync-ps for rounds", "--strategy k-sync": "needs a profile",
        "--confidence 95": "write 0.95 for 95 %", "--confidence 0,9": "a decimal with a point",
        f"--seed {2**64}": "at most", "--seed abc": "got 'abc'", "--batch-size 1k": None,
        "--parameter-bytes 98": "write 98MB or 98B", "--measured 4": "must be like 4=1.74", "--measured 4=-1": "> 0",
        "--measured 20000=1": "at most 10,000",
        "--measured 4@5=1.1": "write 5Gbit/s or 5MB/s", "--throughputs nowhere.csv": "nowhere.csv: cannot be read",
        "--plot x.jpg": "must end in one of .png", "--plot ''": "must not be empty", "--deadline 3h": "no such option",
        "--help-al": "mean '--help-all'", "--collective ring": "--collective applies to strategy 'all-reduce'",
        "--k 3": "--k applies to strategy k-sync", "--bandwidth 25G": "write 25Gbit/s or 25GB/s",
        "--bandwidth 1b/s": "at least 1000 bytes per second", "--worker-speeds 1x4": "got '1x4'",
    },
    PREDICT: {
        "--method simulaton": "did you mean 'trace'", "--strategy hogwild": "all-reduce, fsdp, hsdp, zero-1\n",
        "--method mva --worker-bandwidth 5MB/s": "method 'trace'",
        "--worker-bandwidth 5*2,4MB/s": "write 5Gbit/s or 5MB/s", "--buffer 12h": "it must be at most 10 seconds",
        "--method mva --transfer-order tic": "--transfer-order applies to the simulation only",
        "--accelerator-speed 0": "finite and > 0",
    },
    "predict alexnet-60-throughputs.csv": {"--strategy sync-ps --bandwidth 10Gbit/s": "is not a change"},
    "predict resnet50-t4-placements.csv": {"--nodes 1 --workers 8": "give one"},
    "plan t.csv --batch-size 32 --epochs 1 --dataset-size 1e6": {
        "--deadline 3m": "write 3min", "--price $2.50": None, "--price '2.50 USD'": None, "--price free": "got 'free'",
        "--budget 100": "give --price too", "--throughput 0": "> 0", "": "give a goal, like --deadline",
        "--instances t.csv --throughput 5": "throughputs; queuemodel predict",
        "--instances a.csv --price 1": "goes with --deadline",
    },
    "plan t.csv": {
        "--price 1": "give --epochs and --dataset-size too",
        "--examples 1M --deadline 3h": "--batch-size: throughputs alone", "--steps 1M --deadline 3000h": None,
        "--steps 1 --price 1 --currency ''": None, "--throughput 9": "--batch-size: throughputs alone",
    },
    PLAN: {
        "--node-price 2": "did you mean '--price'", "--wealth 100": "no such option '--wealth'; see ",
        "--method mva --budget 100": "give --epochs and --price too",
    },
    "report t.csv": {
        "": "Missing option", "-o page": "must end in", "-o page.html --show 99999": "at most 10,000",
        "-o page.html --dataset-size 9": "--batch-size",
    },
    "fit t.csv": {"--workers 8": "no such option", "--form single": "--form applies to", "--strategy fsdp": None},
    "fit resnet50-t4-placements.csv": {"--strategy sync-ps": "is of strategy all-reduce, fsdp, hsdp, zero-1, not"},
    RANKS: {
        "--strategy fsdp": "'fsdp' needs a table of step times or rates",
        "--ranks-per-node 8": "--inside-bandwidth, that between two ranks of a node, like 300GB/s",
        "--inside-bandwidth 8GB/s": "--inside-bandwidth requires --gpus-per-node", "--oversubscription 2": "give both",
        "--nodes-per-rack 4": "--nodes-per-rack requires --oversubscription;", "--other-traffic 150%": "below 100 %",
        "--parameter-servers 2": "--parameter-servers applies to", "--bucket-bytes 25MB/s": "write 25MB\n",
        "--collective halvingdoubling": "'halving-doubling'",
        "--transfer-order tic": "--transfer-order applies to training on parameter servers",
    },
    "simulate alexnet-60.json": {"": "--workers"},
    AT_TWO: {
        "--steps 1e12": "at most", "--trace t.json": "did you mean '--chrome-trace'",
        "--batch-size 64": "does not apply", "--chrome-trace t.csv": "must end in one of .json, .json.gz",
        "--straggler-probability 0.1": "give both", "--plot a.png": "use --chrome-trace",
        "--scheme ddp": "scheme applies to strategy 'all-reduce'",
    },
    COMPARE: {
        "--plot losses.png": "--problem", "--problem logistic --plot losses.txt": "must end in",
        "--target-loss 0.1": "--target-loss is for training a --problem", "--seed 0": "--seed is for training",
        "--chance 0.9": "--chance requires --deadline",
    },
    COMPARE_RANKS: {
        "--strategy all-reduce": "did you mean 'sync'", "--strategy fsdp": "squarm-ring\n",
        "--strategy async-ps": "parameter server", "--price 2": "needs a time",
        "--convergence t.csv": "throughputs; queuemodel predict",
        "--workers 2,4 --report page.html": "--report shows one number of workers",
    },
    "compare t.csv": {"": "throughputs"},
    "solve parameter-server-network.json": {
        "--population 0": "1 to 1,000,000", f"--population {10**6 + 1}": "numbers must be 1 to 1,000,000",
    },
    SCHEDULE: {
        "": "--policy", "--policy fiffo": "did you mean 'fifo'", "--policy greedy:flor=1": "did you mean 'floor'",
        "--policy greedy:power=abc": "power must be finite and >= 0, got 'abc'",
    },
    "schedule --policy fifo": {
        "--workload jobs.csv": "--nodes", "--nodes 4": "--workload", "--workload nowhere.csv --nodes 4": "nowhere.csv",
    },
    f"{STUDY} --jobs 5 --nodes 4 --replications 2": {
        "--load 70": "at most 10", "--n-jobs x": "got 'x'", "--restart-seconds 30": "write 30h, 30min or 30s",
        "--output out.csv": "must end in one of .json, .json.gz", "--backend rai": "did you mean 'ray'",
        "--mean-time-to-failure 0": "must be a number > 0",
        "--spread-speed 0.5": "without effect unless --nodes-per-machine",
        "--checkpoint-seconds 5min": "without effect unless --mean-time-to-failure",
        "--nodes-per-machine 65 --spread-speed 0.5": "must be at most",
    },
    "profile mlp": {"-o out.csv": "must end in one of .json, .json.gz"},
    "profile": {"--framework torch queuemodel.adapters.pytorch.examples:mlp -o out.csv": "must end in one of .json"},
    "predict": {
        "''": "", "folder": "not a profile", "empty.csv": "the file is empty", "help": "cannot be read",
        "": "Missing argument",
    },
    "": {
        "help predict": "no such command 'help'", "predit alexnet-60.json": "did you mean 'predict'",
        "next-measurment": "did you mean 'next-measurement'",
    },
}  # fmt: skip


@pytest.mark.parametrize("command", CARELESS)
def test_careless_inputs_are_one_line(run, examples, command):
    """And no file is left or changed."""
    (examples / "folder").mkdir()
    (examples / "empty.csv").write_text("")
    (examples / "t.csv").write_text("workers,steps_per_second\n1,2\n2,3.9\n4,7\n")
    before = {path: path.read_bytes() for path in examples.iterdir() if path.is_file()}
    for options, message in CARELESS[command].items():
        result = run(*shlex.split(f"{command} {options}"))
        if message is None:
            assert result[0] == 0, (options, result)
        else:
            refused(result, message)
    assert {path: path.read_bytes() for path in examples.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(("careless", "plain"), [
    ("--workers 1-4", "--workers 1:4"), ("--workers 2..4", "--workers 2,3,4"), ("--seed 1e3", "--seed 1000"),
    ("--confidence 80%", "--confidence 0.8"), ("--batch-size 1,024", "--batch-size 1024"),
    ("--bandwidth 10mbps", "--bandwidth 10Mbit/s"),
])  # fmt: skip
def test_careless_and_plain_options_agree(run, careless, plain):
    one, other = (run(*shlex.split(f"{PREDICT} --method mva --workers 1:4 {words}")) for words in (careless, plain))
    assert one == other
    assert one[0] == 0


@pytest.mark.parametrize(("goal", "status"), [
    ("--deadline 5h", 0), ("--deadline 1min", 3), ("--price 1 --budget 0.01", 3), ("--throughput 1e6", 3),
    ("--instances types.csv --deadline 5h", 0), ("--instances types.csv --deadline 1min", 3),
])  # fmt: skip
def test_unmet_goal_has_its_own_status(run, examples, goal, status):
    (examples / "types.csv").write_text("name,price\nsmall,0.2\n")
    code, out, err = run(*shlex.split(f"{PLAN} --method mva --workers 1-8 --epochs 2 {goal}"))
    assert (code, err) == (status, "")
    assert ("within 1 min" in " ".join(out.split())) is ("1min" in goal)


def test_error_keywords_become_options():
    flags = {"price_per_node_hour": "--price", **{name: f"--{name.replace('_', '-')}"
             for name in ("batch_size", "workers", "epochs")}}  # fmt: skip
    for text, said in {
        "plan: give epochs and price_per_node_hour too": "plan: give --epochs and --price too",
        "throughput: batch_size must be given": "throughput: --batch-size must be given",
        "curve: workers must increase": "curve: --workers must increase", "give epochs; x": "give --epochs; x",
        "one of workers, batch_size": "one of --workers, --batch-size", "2 workers make 'batch_size'": None,
        "/tmp/batch_size/a.json: no": None, "at batch_size=4": None,
    }.items():  # fmt: skip
        assert in_options(text, flags, of_file=False) == (said or text)
    assert in_options("a.csv: line 2: batch_size must be", flags, of_file=True) == "a.csv: line 2: batch_size must be"
    assert in_options("batch_size must be", flags, of_file=True) == "--batch-size must be"


def test_failures_keep_earlier_files(run, examples, monkeypatch):
    picture = examples / "curve.png"
    picture.write_bytes(b"earlier")
    refused(run("predict", "missing.json", "--plot", picture), "missing.json", "No such file")
    assert picture.read_bytes() == b"earlier"
    assert run(*PREDICT.split(), "--method", "mva", "--plot", picture)[0] == 0
    assert picture.stat().st_size > 1000
    monkeypatch.setitem(sys.modules, "torch", None)
    Path("own").mkdir()
    for folder in ("new", "own"):
        assert run("demo", "--framework", "torch", "-o", folder)[0] == 1
    assert (Path("new").exists(), Path("own").exists()) == (False, True)


def test_import_trace_refuses_other_files(run, tmp_path):
    target, empty = tmp_path / "p.json", tmp_path / "empty"
    target.write_text("earlier")
    empty.mkdir()

    def told(folder, *parts, batch_size=1, output=target):
        folders = folder if isinstance(folder, list) else [folder]
        refused(run("import-trace", *folders, "--batch-size", batch_size, "-o", output), *parts)

    told(tmp_path / "nowhere", "nowhere")
    told(empty, "empty: no traces in it; PyTorch's *.pt.trace.json[.gz] expected, or TensorFlow's *.pb[.gz]")
    told(empty, "batch-size", batch_size=0)
    (empty / "trace_rank0.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    told(empty, "trace_rank0.json", "end in .pt.trace.json")
    told(empty / "trace_rank0.json", "give the folder")
    told([DATA / "xplane-1ps", DATA / "xplane-2ps"], "2ps: no all-reduce", "--throughputs")
    told(DATA / "alexnet-60", f"give each run's folder: {DATA / 'alexnet-60' / 'trace'}")
    told(DATA / "ddp" / "ddp-alexnet-40", "ddp-alexnet-40/trace_n1 ", "trace_n2")
    assert target.read_text() == "earlier"
    refused(run("predict", empty / "trace_rank0.json"), "become a profile by queuemodel import-trace")
    (empty / "trace_rank0.json").rename(empty / "z.txt")
    for name in ("timeline.json", "timeline.pt.trace.json"):  # as Horovod writes it, which never ends the list
        (empty / name).write_text('[\n{"name": "NEGOTIATE_ALLREDUCE", "ph": "B", "ts": 1},\n')
        said = f"{name}: a list of events, as Horovod's timeline, and no trace of torch.profiler"
        refused(run("predict", empty / name), said)
        told(empty, said, "queuemodel predict steps.csv")
        (empty / name).unlink()
    (empty / "report.sqlite").write_bytes(b"SQLite format 3\0" + bytes(100))
    told(empty, "report.sqlite: an SQLite database, as of Nsight Systems; record with torch.profiler")
    for trace in (DATA / "alexnet-60" / "trace", DATA / "alexnet-60" / "trace" / "step_000.pb.gz"):
        refused(run("predict", trace), "become one by queuemodel import-trace FOLDER")


@pytest.mark.parametrize(("text", "message"), [
    ("<archive><sim/></archive>", "got <archive>; JMT exports a simulation model (.jsimg) to JMVA"),
    ("workers,steps_per_second\n1,2\n", "throughputs; queuemodel predict takes them"),
    ('<model><parameters><classes><closedclass name="a" population="1"/></classes></parameters>'
     '<whatIf type="Service Demands" className="a" values="1;2"/></model>', "'Service Demands' of 'a'; take it out"),
])  # fmt: skip
def test_solve_names_what_is_no_network(run, examples, text, message):
    (examples / "other").write_text(text)
    refused(run("solve", "other", "--population", 2), "other: ", message)


PRINTED = "printed by queuemodel predict; give the file that it was made of"
#: Files of this package and of others, and what is said of each where another is expected; a text, or what prints it.
WRONG = {
    "network.json": ('{"format": "queuemodel-network", "version": 1, "stations": []}',
                     "a queueing network; queuemodel solve takes it"),
    "curve.json": (f"{PREDICT} --workers 1:2 --method mva", PRINTED),
    "curve.csv": (f"{PREDICT} --workers 1:2 --method mva", PRINTED),
    "model.json": ("fit alexnet-60.json", "printed by queuemodel fit"),
    "plan.json": (f"{PLAN} --workers 1:2 --method mva --min-efficiency 0.5", "printed by queuemodel plan"),
    "comparison.json": (f"{COMPARE} --workers 2", "printed by queuemodel compare"),
    "jobs.csv": ("name,arrival_time,steps,speeds\na,0,9,1:2.0\n", "a workload; queuemodel schedule --workload takes"),
    "schedule.json": (f"{SCHEDULE} --policy fifo", "printed by queuemodel schedule"),
    "measure.json": ("next-measurement alexnet-60.json", "printed by queuemodel simulate or next-measurement"),
    "prices.csv": ("name,price\na,1\n", "machines and prices; queuemodel plan --instances takes them"),
    "examples.csv": ("batch_size,examples\n8,100\n", "examples to a target; queuemodel compare --convergence takes"),
    "alexnet-60.json": ("", "a profile; queuemodel predict takes it"),
    "shakesmall-p100-throughputs.csv": ("", "throughputs; queuemodel predict takes them"),
    "resnet50-t4-placements.csv": ("", "step times by placement; queuemodel predict takes them"),
    "philly.csv": ("timestamp,duration,num_gpus\n2017-10-09 07:01:55,66.0,1\n",
                   "a log of jobs; queuemodel schedule --workload-format philly takes it"),
    "helios.csv": ("job_id,user,gpu_num,submit_time,duration\n1,u,2,2020-06-09 18:41:01,9\n",
                   "a log of jobs; queuemodel schedule --workload-format helios takes it"),
    "philly.json": ('[{"status": "Pass", "jobid": "a", "attempts": []}]',
                    "Philly's JSON log; make a CSV of timestamp, duration (in seconds), num_gpus"),
    "nothing.json": ("{ }\n", "JSON with nothing in it that is known"),
    "list.json": ("[]", "JSON with nothing in it that is known"),
    "execution.json": ('{"schema": "1.0.1", "pid": 1, "nodes": []}',
                       "an execution trace of PyTorch, which has no times; record with torch.profiler"),
}  # fmt: skip


def test_files_of_other_commands_are_named(run, examples):
    for file, (text, _) in WRONG.items():
        if text.partition(" ")[0] in COMMANDS:
            text = run(*text.split(), "--format", file.split(".")[1])[1]
        if text:
            Path(file).write_text(text)
    for command, own in (
        ("predict {}", "predict takes"), ("compare alexnet-60.json --convergence {}", "--convergence"),
        ("plan alexnet-60.json --throughput 1 --instances {}", "--instances"),
        ("schedule --nodes 4 --policy fifo --workload {}", "--workload takes"),
    ):  # fmt: skip
        for file, (_, said) in WRONG.items():
            if own not in said:
                refused(run(*command.format(file).split()), f"{file}: {said}", status=1)


@pytest.mark.parametrize(("content", "said"), [
    (b"PK\x03\x04" + bytes(99), "spreadsheet or zip"), (b"\xd0\xcf\x11\xe0" + bytes(99), "save its table as CSV"),
    (b"PAR1" + bytes(99), "a Parquet, HDF5"), (pickle.dumps([1]), "a Python pickle; write it as JSON or CSV"),
    (b"SQLite format 3\0" + bytes(99), "an SQLite database"), (b"<!DOCTYPE html><html></html>", "an HTML page"),
    ("workers,step_time\n1,2\n".encode("utf-16"), "UTF-16 text; save it in UTF-8"),
    (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"), (b"BZh9" + bytes(99), "unpack it"),
    (gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0), "unpack it"),
    (gzip.compress(bytes(257) + b"ustar", mtime=0), "unpack it"), (b"\n", "the file is empty"),
])  # fmt: skip
def test_unreadable_formats_are_named_everywhere(run, tmp_path, content, said):
    for name in ("a.json", "a.csv", "a.pt.trace.json", "a"):
        (tmp_path / name).write_bytes(content)
    for command in ("predict a.json", "predict a.csv", "predict a", "solve a.json --population 1", "compare a.json",
                    f"{SCHEDULE.replace('jobs', 'a')} --policy fifo"):  # fmt: skip
        refused(run(*command.split()), said, status=1)
    refused(run("import-trace", tmp_path, "--batch-size", 1, "-o", "p.json"), said, status=1)


def test_contents_decide_the_kind_of_file(run, examples):
    packed = Path("packed.json")
    packed.write_bytes(gzip.compress(Path("alexnet-60.json").read_bytes()))
    Path("profile.csv").write_text(Path("alexnet-60.json").read_text())
    asked = ("--workers", 2, "--method", "mva")
    assert run("predict", packed, *asked) == run("predict", "profile.csv", *asked) == run(*PREDICT.split(), *asked)


def test_examples_are_copied_to_new_folders(run, tmp_path):
    code, out, _ = run("examples", tmp_path / "new" / "folder")
    assert (code, len(out.splitlines())) == (0, len(list((tmp_path / "new" / "folder").iterdir())))
    (tmp_path / "file").write_text("")
    refused(run("examples", tmp_path / "file"), "cannot be written", status=1)


def test_interruption_has_its_own_status(capsys):
    @click.command()
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as stop:
        main(["now"], command=click.Group(commands={"now": interrupted}))
    assert (stop.value.code, *map(str.strip, capsys.readouterr())) == (130, "", "queuemodel: interrupted")


def python(program, **settings):
    """What a program prints in a new process, in which Ctrl-C has its usual effect."""
    usual = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, **usual, **settings)


@pytest.mark.parametrize(("ignored", "code"), [(False, -signal.SIGINT), (True, 0)])
def test_interruption_at_start_is_no_traceback(ignored, code):
    """Ctrl-C when the command line begins to be loaded; not where it is ignored, as in the background."""
    done = python(f"""
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
""")
    assert (done.returncode, done.stderr) == (code, "")
    assert ("version" in done.stdout) is ignored


@pytest.mark.parametrize(("words", "offered"), [
    ("s", {name for name in COMMANDS if name.startswith("s")}), ("predict --strat", {"--strategy"}),
    ("predict --strategy k-b", {"k-batch-sync", "k-batch-async"}),
])  # fmt: skip
def test_shells_complete_commands_options_choices(words, offered):
    asked = {"_QUEUEMODEL_COMPLETE": "bash_complete", "COMP_WORDS": f"queuemodel {words}",
             "COMP_CWORD": str(len(words.split()))}  # fmt: skip
    program = "import sys; sys.argv[0] = 'queuemodel'; from queuemodel.cli import main; main()"
    done = python(program, env=os.environ | asked, check=True)
    assert done.stderr == ""
    assert {line.removeprefix("plain,") for line in done.stdout.splitlines()} == offered
