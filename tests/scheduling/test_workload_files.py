"""Workload files, public formats and the command line."""

import json

import pytest

from queuemodel import DataError, copy_examples, example_profile
from queuemodel import scheduling as qs
from queuemodel.models import curve_of, predict
from tests.oracles.refusals import refused

HEADER = "name,arrival_time,steps,speeds,least_nodes,most_nodes,requested_nodes,kind,end_probability\n"
GOOD = HEADER + "a,0,100,1:2.0 2:3.7 4:6.0,1,4,2,image,\nb,5,50,power 0.8 2.5,,,3,text,0.25\n"
EPOCHS = "name,arrival_time,epochs,dataset_size,batch_size,speeds\n"


@pytest.fixture
def written(tmp_path):
    """Write a text to a file in a folder of its own, and give its path."""

    def write(text, name="jobs.csv"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_workload_file_is_read(written):
    a, b = qs.read_workload(written(GOOD))
    assert (a.requested, a.most_nodes, a.curve(3), a.kind) == (2, 4, pytest.approx(4.85), "image")
    assert (b.curve(4), b.most_nodes, b.end_probability) == (pytest.approx(2.5 * 4**0.8), None, 0.25)
    assert (a.end_probability, b.arrival_time, b.requested, b.least_nodes) == (0.0, 5.0, 3, 1)
    (work,) = qs.read_workload(written(EPOCHS + "a,0,1,3e12,4e6,2:1 3:2\n"))
    assert (work.steps, work.least_nodes, work.most_nodes) == (750_000, 2, 3)


BATCHES = "name,arrival_time,speeds,batch_size,noise_scales,steps,most_nodes,epochs,dataset_size\n"
SPEEDS = "32=1:4.0 2:6.0;64=1:2.2 2:4.0 4:7.0"


def test_workload_of_adaptive_batch_sizes(written):
    cells = ["a,0,{},64,96,300,,,", "b,0,{},64,96,,,3,6400", "c,0,{},64,inf,300,,,", "d,0,{},32,96,300,3,,",
             "e,0,{},64,96,300,3,,"]  # fmt: skip
    steps, epochs, plain, near, few = qs.read_workload(written(BATCHES + "\n".join(cells).format(*[SPEEDS] * 5)))
    assert (steps.steps, epochs.steps) == pytest.approx((300, 300))
    # a step of 64 examples does what 2 (96 + 32) / (96 + 64) of 32 do
    assert steps.batch_sizes.steps(32) == pytest.approx(300 * 1.6)
    assert plain.batch_sizes.steps(32) == pytest.approx(600)
    # the user's table ends at two nodes where the batch size is 32
    assert [(job.most_nodes, job.batch_sizes.limit(8)) for job in (steps, near, few)] == [(4, 4), (2, 3), (3, 3)]
    (read,) = qs.read_workload(written(BATCHES + f"a,0,{SPEEDS},64,500:32 500:1000,,,,\n"))
    sizes = qs.BatchSizes({32: {1: 4.0, 2: 6.0}, 64: {1: 2.2, 2: 4.0, 4: 7.0}}, [(500, 32.0), (500, 1000.0)])
    made = qs.ClusterJob.adaptive("a", arrival_time=0, batch_sizes=sizes, batch_size=64, most_nodes=4)
    assert (read.steps, read.most_nodes) == (made.steps, made.most_nodes)
    for policy in (qs.Goodput(), qs.RankPriced()):
        assert qs.schedule([read], policy, nodes=4).end == pytest.approx(qs.schedule([made], policy, nodes=4).end)


PLAIN = "name,arrival_time,steps,speeds\n"
BAD = [
    (GOOD.replace("a,0,100", "a,9,100"), "workload: job 'b' arrives at 5 s, after 'a' at 9 s"),
    (GOOD.replace("b,5", "a,5"), "workload: two jobs are named 'a'"),
    (GOOD.replace("2:3.7", "2:nan"), "line 2: speed table: speed at 2 nodes must be finite and > 0"),
    (GOOD.replace(",1,4,2,", ",1,8,2,"), "line 2: speeds are given for 1 to 4 nodes, but the job may run on 1 to 8"),
    (GOOD.replace(",1,4,2,", ",4,2,2,"), r"line 2: job 'a': least_nodes \(4\) must not exceed most_nodes \(2\)"),
    (GOOD.replace("1:2.0 ", "one:2.0 "), "line 2: speeds must be a table such as"),
    ("name,arrival_time,steps,batch_size,speeds\na,0,2,10,1:1 2:2\n", "line 2: steps and epochs, .* exclude"),
    (EPOCHS + "a,0,1,,4e6,2:1 3:2\n", "line 2: a job needs work"),
    (BATCHES + f"a,0,{SPEEDS},48,96,300,,,\n", r"batch_size must be one of \[32, 64\], whose speeds .*, got 48"),
    (BATCHES + f"a,0,{SPEEDS},64,500:32,300,,,\n", "line 2: .*leave steps and epochs empty"),
    (BATCHES + f"a,0,{SPEEDS},64,500:,300,,,\n", "line 2: noise_scales must be a number of examples, or"),
    (BATCHES + "a,0,32=1:4.0;32=1:2.0,32,96,300,,,\n", "line 2: .*each size once, got '32=1:2.0'"),
    (BATCHES + "a,0,1:4.0,32,96,300,,,\n", "line 2: noise_scales go with speeds by batch size"),
    (PLAIN + "a,0,9,profile nowhere.json\n", r"line 2: speeds: .*nowhere.json: cannot be read"),
    (PLAIN + "a,0,9,profile ddp-alexnet-40.json speed=2\n", "speed is not a setting of a prediction"),
    (PLAIN + "a,0,9,profile ddp-alexnet-40.json speed\n", "speeds must be 'profile FILE NAME=VALUE ...'"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_workloads_name_their_row(tmp_path, written, text, message):
    copy_examples(tmp_path)
    path = written(text)
    with pytest.raises(DataError, match=message) as caught:
        qs.read_workload(path, nodes=16, predicted=curve_of)
    assert str(path) in str(caught.value)


def test_speeds_from_profiles_beside_workloads(tmp_path, written):
    """As `predict` says."""
    copy_examples(tmp_path)
    path = written(
        "name,arrival_time,steps,speeds,most_nodes\n"
        "a,0,9,profile alexnet-60.json strategy=k-sync k=3 method=trace congestion_control=bbr buffer=40ms,4\n"
        "b,1,9,profile ddp-alexnet-40.json bandwidth=100Mbit/s scheme=tf-ring,\n"
        "c,2,9,profile alexnet-60.json strategy=k-batch-async k=3,4\n"
    )
    a, b, c = qs.read_workload(path, nodes=12, predicted=curve_of)
    network = {"congestion_control": "bbr", "buffer": 0.04}
    asked = predict(example_profile("alexnet-60"), strategy="k-sync", k=3, method="trace", workers=[3, 4], **network)
    assert a.curve(4) == pytest.approx(asked.at(4))
    assert (a.least_nodes, a.most_nodes, b.most_nodes) == (3, 4, 12)
    asked = predict(example_profile("ddp-alexnet-40"), workers=range(1, 13), bandwidth=12.5e6, scheme="tf-ring")
    assert b.curve(12) == pytest.approx(asked.at(12))
    solved = predict(example_profile("alexnet-60"), strategy="k-batch-async", k=3, method="mva", workers=range(1, 5))
    assert [c.curve(n) for n in range(1, 5)] == pytest.approx(solved.steps_per_second)
    for known, message in (({"predicted": curve_of}, "need most_nodes"), ({"nodes": 12}, "need predicted")):
        with pytest.raises(DataError, match=message):
            qs.read_workload(path, **known)


def test_public_workloads_are_read(public_data):
    folder = public_data / "gavel"
    speeds, old = folder / "simulation_throughputs.json", folder / "msr_seed0" / "0e4a51.trace"
    for path in sorted((folder / "physical_cluster").glob("*.trace")):
        assert len(qs.read_job_trace(path, "gavel", speeds)) == len(path.read_text().strip().splitlines())
    with pytest.raises(DataError, match=r"line 42: .* no speed of .*--drop-empty"):
        qs.read_job_trace(old, "gavel", speeds)
    assert 900 < len(qs.read_job_trace(old, "gavel", speeds, drop_empty=True, elastic=True)) < 1181


PHILLY = "timestamp,duration,num_gpus\n2017-10-09 07:01:55,66.0,1\n2017-10-09 07:00:55,100,8\n"
ZONES = "timestamp,duration,num_gpus\n2017-10-09 07:01:55+00:00,66.0,1\n2017-10-09 09:02:55+02:00,100,8\n"
HELIOS = "gpu_num,state,submit_time,duration\n1,X,2017-10-09 07:01:55,66\n8,FAILED,2017-10-09 07:00:55,100\n"
TASK = "{},worker,{},{},{},{},600,29,{},V100\n"
TASKS = (
    TASK.format("j1", 4, "Terminated", 1583107200, 1583107500, 50)
    + TASK.format("j2", 1, "Failed", 50, 60, 100)
    + TASK.format("j3", 2, "Terminated", 1583107230, 1583107330, 200)
)
#: Jobs without duration or GPUs.
EMPTY = PHILLY + "2017-10-09 07:02:55,0,1\n2017-10-09 07:02:55,5,0\n"
NO_GPUS = HELIOS + "0,X,2017-10-09 07:01:55,66\n1,X,2017-10-09 07:01:55,0\n"
NOTHING = TASKS + TASK.format("j4", 1, "Terminated", 9, 9, 100) + TASK.format("j5", 1, "Terminated", 1, 9, 0)
BACK = TASK.format("j1", 4, "Terminated", 500, 400, 50)
GAVEL = "job\tpython train.py\t/home\t--steps\t0\t{}\t2\t1\t-1\t{}\n"
TWO = GAVEL.format(70, 1507532515) + GAVEL.format(7, 1507532575.5)
TABLE = json.dumps({"v100": {"('job', 1)": {"null": 2.0}, "('job', 2)": {"null": 3.5}, "x": {}}})
FLOW = "job_id,submit_time,iteration,model_name,batch_size,num_gpu,ddl\n0,1507532515,900,vgg,256,1,9\n"


def gavel(written, text, speeds=TABLE, **options):
    return qs.read_job_trace(written(text, "jobs.trace"), "gavel", written(speeds, "speeds.json"), **options)


def elasticflow(written, rows):
    folder = written("global_batch_size,1,2,4\n256,10.0,18.0,nan\n512,,6,11\n", "vgg.csv").parent
    return qs.read_job_trace(written(FLOW + rows), "elasticflow", folder)


LOGGED = [(0, 100, 8, 1, None, {8: 1, 2: 0.5}), (60, 66, 1, 1, None, {1: 1})]
#: What a reader makes of two jobs: arrival (Unix time counts from the first), steps, requested, least and most nodes,
#: and speeds. Of logs a step is a second on the GPUs that the job had.
READ = {
    "philly": (lambda w: qs.read_jobs(w(EMPTY), "philly", exponent=0.5, drop_empty=True), LOGGED),
    "philly, 07:01:55 and 07:02:55 in Greenwich": (
        lambda w: qs.read_jobs(w(ZONES), "philly"), [(0, 66, 1, 1, None, {}), (60, 100, 8, 1, None, {})]),
    "helios": (lambda w: qs.read_jobs(w(NO_GPUS), "helios", exponent=0.5, drop_empty=True), LOGGED),
    "alibaba": (lambda w: qs.read_jobs(w(NOTHING), "alibaba", drop_empty=True),
                [(0, 300, 2, 1, None, {2: 1, 1: 0.5**0.8}), (30, 100, 4, 1, None, {4: 1})]),
    "gavel": (lambda w: gavel(w, TWO), [(0, 70, 2, 2, 2, {2: 3.5}), (60.5, 7, 2, 2, 2, {2: 3.5})]),
    "gavel, elastic": (lambda w: gavel(w, TWO, elastic=True),
                       [(0, 70, 2, 1, 2, {1: 2.0, 2: 3.5}), (60.5, 7, 2, 1, 2, {})]),
    "elasticflow": (lambda w: elasticflow(w, "1,1507532525,60,vgg,512,8,9\n"),
                    [(0, 900, 1, 1, 2, {2: 18}), (10, 60, 4, 2, 4, {2: 6, 4: 11})]),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_public_formats_give_their_jobs(written, case):
    read, expected = READ[case]
    for job, (*numbers, speeds) in zip(read(written), expected, strict=True):
        assert [job.arrival_time, job.steps, job.requested, job.least_nodes, job.most_nodes] == numbers
        assert {n: job.curve(n) for n in speeds} == pytest.approx(speeds)


@pytest.mark.parametrize(("read", "message"), [
    (lambda w: qs.read_jobs(w(EMPTY), "philly"), "line 4: the job ran for 0 s"),
    (lambda w: qs.read_jobs(w(NO_GPUS), "helios"), r"line 4: .* 66 s on 0 GPUs.*--drop-empty \(drop_empty=True\)"),
    (lambda w: qs.read_jobs(w(HELIOS), "philly"), "a log of jobs; .* --workload-format helios takes it"),
    (lambda w: qs.read_jobs(w(PHILLY.replace("2017-10-09 07:00:55", "yesterday")), "philly"), "line 3: timestamp"),
    (lambda w: qs.read_jobs(w(ZONES + "2017-10-09 07:05:55,10,1\n"), "philly"), "a time zone in one of lines 2 and 4"),
    (lambda w: qs.read_jobs(w(NOTHING), "alibaba"), "line 4: the job ran for 0 s"),
    (lambda w: qs.read_jobs(w(BACK), "alibaba", drop_empty=True), "line 1: the job ran for -100 s .*; correct it"),
    (lambda w: gavel(w, TWO.replace("job", "gpt")), "has no speeds of 'gpt' on v100"),
    (lambda w: gavel(w, TWO, '{"v100": {"(\'job\', 2)": {"null": 1e400}}}'), "speed at 2 nodes"),
    (lambda w: gavel(w, TWO, '{"k80": {}}'), "expected JSON"),
    (lambda w: elasticflow(w, "1,9,60,vgg,64,8,9\n"), "no speeds of 'vgg' with a batch of 64"),
    (lambda w: elasticflow(w, "0,1507532525,60,vgg,256,8,9\n"), "two jobs are named 'vgg-0'"),
])  # fmt: skip
def test_bad_public_files_are_one_line(written, read, message):
    with pytest.raises(DataError, match=message):
        read(written)


def test_command_draws_and_names_rows(run, written, tmp_path):
    base = ["schedule", "--workload", written(GOOD), "--nodes", "8", "--policy", "fifo", "--policy", "rank-priced"]
    assert "rank-priced" in run(*base, "--plot", tmp_path / "a.png")[1]
    assert (tmp_path / "a.png").stat().st_size > 5000
    refused(run(*base, "--nodes", "2"), "line 3: job 'b': requested_nodes must be at most the cluster's 2 nodes, got 3")
    refused(run(*base, "--records"), "--records goes with --format json or csv")
