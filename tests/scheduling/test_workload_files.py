"""Workload files, public formats and the command line."""

import json

import pytest
from click.testing import CliRunner
from refusals import refused

from queuemodel.data import copy_examples, example_profile
from queuemodel.errors import DataError, ModelError
from queuemodel.prediction import predict
from queuemodel.scheduling import FIFO, BatchSizes, Goodput, Job, RankPriced, Workload, simulate
from queuemodel.scheduling.workloads import (
    read_alibaba,
    read_elasticflow,
    read_gavel,
    read_philly,
    read_workload,
)
from queuemodel.speeds import curve_of
from validation.pollux.__main__ import pollux as reproduce

HEADER = "name,arrival_time,steps,speeds,least_nodes,most_nodes,requested_nodes,kind,end_probability\n"
GOOD = HEADER + "a,0,100,1:2.0 2:3.7 4:6.0,1,4,2,image,\nb,5,50,power 0.8 2.5,,,3,text,0.25\n"


@pytest.fixture
def workload(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(GOOD)
    return path


def test_a_workload_is_read(workload):
    a, b = read_workload(workload)
    assert (a.requested, a.most_nodes, a.curve(2), a.kind) == (2, 4, 3.7, "image")
    assert (b.curve(1), b.most_nodes, b.end_probability) == (2.5, None, 0.25)


def test_a_misspelt_column_would_have_changed_the_answer(workload):
    """Why it is refused: without the nodes that b asked for, it runs on one."""
    (right,) = [simulate(read_workload(workload), FIFO(), nodes=8).end[1]]
    assert right == pytest.approx(5 + 50 / (2.5 * 3**0.8))
    rows = [line.split(",") for line in GOOD.splitlines()]
    place = rows[0].index("requested_nodes")
    workload.write_text("\n".join(",".join(row[:place] + row[place + 1 :]) for row in rows))
    assert simulate(read_workload(workload), FIFO(), nodes=8).end[1] == pytest.approx(5 + 50 / 2.5)


def test_two_ways_to_say_the_work_are_refused_together(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("name,arrival_time,steps,batch_size,speeds\na,0,2,10,1:1 2:2\n")
    with pytest.raises(DataError, match="line 2: steps and epochs, dataset_size, batch_size are two ways"):
        read_workload(path)


def test_epochs_instead_of_steps(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("name,arrival_time,epochs,dataset_size,batch_size,speeds\na,0,2,1000,10,1:1 2:2\n")
    assert read_workload(path).jobs[0].steps == 200
    path.write_text("name,arrival_time,epochs,dataset_size,batch_size,speeds\na,0,1,3e12,4e6,1:1 2:2\n")  # tokens
    assert read_workload(path).jobs[0].steps == 750_000


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("a,0,100", "a,0,0", "line 2: steps must be finite and > 0, got 0.0"),
        ("a,0,100", "a,0,", "line 2: a job needs work"),
        ("a,0,100", "a,-1,100", "line 2: arrival_time must be finite and >= 0"),
        ("a,0,100", "a,9,100", "line 3: arrival_time must not fall, got 5 after 9"),
        ("b,5", "a,5", "line 3: the name 'a' is already that of line 2"),
        ("b,5", ",5", "line 3: name must be printable text, got an empty cell"),
        ("2:3.7", "2:nan", "line 2: speeds: speed table: speed at 2 nodes must be finite and > 0"),
        ("2:3.7", "2:-1", "line 2: speeds: speed table: speed at 2 nodes must be finite and > 0"),
        ("2:3.7", "2:0", "line 2: speeds: speed table: speed at 2 nodes must be finite and > 0"),
        ("2:3.7", "two", "line 2: speeds must be a table such as"),
        (",1,4,2,", ",1,8,2,", "line 2: speeds are given for 1 to 4 nodes, but the job may run on 1 to 8"),
        (",1,4,2,", ",4,2,2,", r"line 2: job 'a': least_nodes \(4\) must not exceed most_nodes \(2\)"),
        (",1,4,2,", ",1.5,4,2,", "line 2: least_nodes must be a whole number"),
        ("0.25", "2", "line 3: end_probability must be between 0 and 1"),
        ("power 0.8 2.5", "power 1.8 2.5", "line 3: speeds: power-law curve: exponent must be 0 to 1"),
        (",text,0.25", "", "line 3: a row must have 9 values"),
        ("arrival_time", "time", "line 1: column 'arrival_time' is missing"),
        (
            "requested_nodes",
            "requested_node",
            "unknown column 'requested_node'; did you mean 'requested_nodes'",
        ),
        ("end_probability", "end_probabilty", "did you mean 'end_probability'"),
        ("kind,", "steps,", "line 1: column 'steps' stands twice"),
        ("kind,", "owner,", "line 1: unknown column 'owner'"),
        ("b,5", "b,1507532515", r"line 3: arrival_time must be at most 1e\+09 seconds from the stream's start"),
        ("1:2.0 2:3.7", "1" + "0" * 400 + ":2.0", "line 2: speeds"),
        ("1:2.0 2:3.7", "0:2.0 2:3.7", "line 2: speeds: speed table: node counts must be at least 1, got 0"),
        ("power 0.8 2.5", "power 0.8 1e400", "line 3: speeds: power-law curve: speed must be finite"),
    ],
)
def test_bad_workloads_are_refused_with_file_and_row(workload, old, new, message):
    workload.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(DataError, match=message) as caught:
        read_workload(workload)
    assert str(workload) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_none(tmp_path):
    empty, binary = tmp_path / "empty.csv", tmp_path / "binary.csv"
    empty.write_text("")
    binary.write_bytes(bytes(range(256)))
    for path, message in [
        (tmp_path / "no.csv", "cannot be read"),
        (empty, "file is empty"),
        (binary, "is not UTF-8 text"),
    ]:
        with pytest.raises(DataError, match=message):
            read_workload(path)
    header = tmp_path / "header.csv"
    header.write_text(HEADER)
    with pytest.raises(DataError, match="no jobs below the header"):
        read_workload(header)


def test_alibaba(tmp_path):
    path = tmp_path / "pai_task_table.csv"
    path.write_text(
        "j1,worker,4,Terminated,100,400,600,29,50,V100\n"
        "j2,tensorflow,1,Failed,50,60,600,29,100,V100\n"
        "j3,worker,2,Terminated,130,230,600,29,200,T4\n"
    )
    first, second = read_alibaba(path)
    assert (first.requested, first.arrival_time, first.steps) == (2, 0, 300)
    assert (second.requested, second.arrival_time) == (4, 30)
    assert first.steps / first.curve(2) == pytest.approx(300)


def test_public_formats(public_data):
    speeds = public_data / "gavel" / "simulation_throughputs.json"
    for path in sorted((public_data / "gavel" / "physical_cluster").glob("*.trace")):
        jobs = read_gavel(path, speeds)
        assert len(jobs) == len(path.read_text().strip().splitlines())
    old = public_data / "gavel" / "msr_seed0" / "0e4a51.trace"
    with pytest.raises(DataError, match=r"line 42: .* no speed of .* drop_unmeasured=True"):
        read_gavel(old, speeds)
    jobs = read_gavel(old, speeds, drop_unmeasured=True, elastic=True)
    assert 900 < len(jobs) < 1181
    assert (simulate(jobs, RankPriced(), nodes=64).end > 0).all()
    with pytest.raises(DataError, match="expected JSON"):
        read_gavel(old, speeds, gpu="h100")
    elastic = read_elasticflow(
        public_data / "elasticflow" / "philly_103959.csv", public_data / "elasticflow" / "throughputs_A100"
    )
    assert len(elastic) == 876
    with pytest.raises(DataError, match=r"is missing|unknown column|must have|separated by commas"):
        read_elasticflow(old, public_data / "elasticflow" / "throughputs_A100")


def test_philly(tmp_path):
    path = tmp_path / "philly.csv"
    rows = "timestamp,duration,num_gpus\n2017-10-09 07:01:55,66.0,1\n2017-10-09 07:00:55,100,8\n"
    path.write_text(rows)
    first, second = read_philly(path)
    assert (first.requested, first.arrival_time, second.arrival_time) == (8, 0, 60)
    path.write_text(rows + "2017-10-09 07:02:55,0,1\n")
    with pytest.raises(DataError, match="line 4: the job ran for 0 s"):
        read_philly(path)
    assert len(read_philly(path, drop_empty=True)) == 2
    path.write_text(rows.replace("2017-10-09 07:00:55", "yesterday"))
    with pytest.raises(DataError, match="line 3: timestamp"):
        read_philly(path)


def test_philly_with_time_zones(tmp_path):
    path = tmp_path / "philly.csv"
    rows = "timestamp,duration,num_gpus\n2017-10-09 07:01:55+00:00,66.0,1\n2017-10-09 09:02:55+02:00,100,8\n"
    path.write_text(rows)
    assert [job.arrival_time for job in read_philly(path)] == [0, 60]  # 07:01:55 and 07:02:55 in Greenwich
    path.write_text(rows + "2017-10-09 07:05:55,10,1\n")
    with pytest.raises(DataError, match=r"line 4: timestamp .* of line 2: one has a time zone and the other none"):
        read_philly(path)


GAVEL = "job\tpython train.py\t/home\t--steps\t0\t{steps}\t2\t1\t-1\t{time}\n"


@pytest.fixture
def gavel(tmp_path):
    speeds = tmp_path / "speeds.json"
    speeds.write_text(json.dumps({"v100": {"('job', 1)": {"null": 2.0}, "('job', 2)": {"null": 3.5}, "x": {}}}))
    return tmp_path / "jobs.trace", speeds


def test_gavel(gavel):
    path, speeds = gavel
    path.write_text(GAVEL.format(steps=70, time=1507532515) + GAVEL.format(steps=7, time=1507532575.5))
    first, second = read_gavel(path, speeds)  # Unix time counts from the first arrival
    assert (first.arrival_time, second.arrival_time) == (0, 60.5)
    assert (first.steps, first.curve(2), first.least_nodes, first.most_nodes) == (70, 3.5, 2, 2)
    (one, _) = read_gavel(path, speeds, elastic=True)
    assert (one.least_nodes, one.most_nodes, one.requested, one.curve(1)) == (1, 2, 2, 2.0)
    assert simulate(read_gavel(path, speeds), FIFO(), nodes=2).end.tolist() == [20, 62.5]


@pytest.mark.parametrize(
    ("content", "speeds", "message"),
    [
        (GAVEL.format(steps=70, time="soon"), None, "line 1: arrival_time must be finite and >= 0"),
        (GAVEL.format(steps=0, time=0), None, "line 1: total_steps must be finite and > 0"),
        (GAVEL.format(steps=1e12, time=0), None, "line 1: total_steps must be at most"),
        ("a\tb\n", None, "line 1: a row must have 10 values"),
        (GAVEL.replace("job", "gpt"), None, "has no speeds of 'gpt' on v100"),
        (GAVEL.format(steps=1, time=0), '{"v100": {"(\'job\', 2)": {"null": 1e400}}}', "speed at 2 nodes"),
        (GAVEL.format(steps=1, time=0), '{"v100": {"(\'job\', 0)": {"null": 1}}}', "node counts must be at least 1"),
        (GAVEL.format(steps=1, time=0), '{"v100": {"(\'job\', 2)": {"null": "fast"}}}', "expected JSON"),
        (GAVEL.format(steps=1, time=0), "[" * 100_000, "expected JSON"),
        (GAVEL.format(steps=1, time=0), '{"k80": {}}', "expected JSON"),
    ],
)
def test_bad_gavel_files_are_one_line(gavel, content, speeds, message):
    gavel[0].write_text(content)
    if speeds is not None:
        gavel[1].write_text(speeds)
    with pytest.raises(DataError, match=message) as caught:
        read_gavel(*gavel)
    assert "\n" not in str(caught.value)


def test_elasticflow(tmp_path):
    (tmp_path / "vgg.csv").write_text("global_batch_size,1,2,4\n256,10.0,18.0,nan\n512,,6,11\n")
    path = tmp_path / "jobs.csv"
    rows = "job_id,submit_time,iteration,model_name,batch_size,num_gpu,ddl\n0,1507532515,900,vgg,256,1,9\n"
    path.write_text(rows + "1,1507532525,60,vgg,512,8,9\n")
    first, second = read_elasticflow(path, tmp_path)
    assert (first.arrival_time, first.steps, first.requested, first.most_nodes, first.curve(2)) == (0, 900, 1, 2, 18)
    assert (second.arrival_time, second.least_nodes, second.requested) == (10, 2, 4)
    for row, message in [
        ("1,9,60,vgg,64,8,9", "no speeds of 'vgg' with a batch of 64"),
        ("1,9,60,../vgg,64,8,9", "model_name must be the name of a file"),
        ("1,9,60,resnet,64,8,9", "resnet.csv: cannot be read"),
        ("0,1507532525,60,vgg,256,8,9", "two jobs are named 'vgg-0'"),
    ]:
        path.write_text(rows + row + "\n")
        with pytest.raises(DataError, match=message):
            read_elasticflow(path, tmp_path)
    (tmp_path / "vgg.csv").write_text(f"global_batch_size,1,{'9' * 5000}\n256,10.0,18.0\n")
    with pytest.raises(DataError, match="speed table: node counts"):
        read_elasticflow(path, tmp_path)


def test_alibaba_in_unix_time(tmp_path):
    path = tmp_path / "pai_task_table.csv"
    path.write_text(
        "j1,worker,4,Terminated,1583107200,1583107500,600,29,50,V100\n"
        "j3,worker,2,Terminated,1583107230,1583107230,600,29,200,T4\n"
    )
    with pytest.raises(DataError, match="line 2: the job ran for 0 s"):
        read_alibaba(path)
    (job,) = read_alibaba(path, drop_empty=True)
    assert (job.arrival_time, job.steps) == (0, 300)
    path.write_text("j1,worker,4,Terminated,400,500,600,29,0,V100\n")
    with pytest.raises(DataError, match="line 1: plan_gpu must be finite and > 0"):
        read_alibaba(path)
    path.write_text("j1,worker,4,Terminated,500,400,600,29,50,V100\n")
    with pytest.raises(DataError, match="line 1: the job ran for -100 s"):
        read_alibaba(path, drop_empty=True)


def test_command_line(run, workload, tmp_path):
    base = ["schedule", "--workload", workload, "--nodes", "8", "--policy", "fifo", "--policy", "rank-priced"]
    code, out, _ = run(*base, "--format", "json", "--plot", tmp_path / "a.png")
    assert code == 0
    policies = json.loads(out)["policies"]
    assert set(policies) == {"fifo", "rank-priced"}
    assert policies["rank-priced"]["mean_response_time"] < policies["fifo"]["mean_response_time"]
    assert (tmp_path / "a.png").stat().st_size > 5000
    assert run(*base, "--format", "csv", "--records")[1].count("\n") == 5
    assert "rank-priced" in run(*base)[1]
    # fmt: off
    study = ["--policy", "fifo", "--policy", "equi", "--load", "0.5", "--nodes", "16", "--jobs", "30",
             "--replications", "2", "--output", tmp_path / "s.json", "--plot", tmp_path / "s.svg"]
    # fmt: on
    assert run("schedule-study", *study)[0] == 0
    assert len(json.loads((tmp_path / "s.json").read_text())["runs"]) == 4


def test_the_command_of_the_reproduction(pollux):
    arguments = [str(pollux / "workloads" / "workload-6.csv"), "--traces", str(pollux / "traces"), "--format", "json"]
    arguments += ["--policy", "tiresias", "--policy", "optimus"]
    policies = json.loads(CliRunner().invoke(reproduce, arguments).stdout)["policies"]
    assert policies["tiresias"]["mean_response_time"] == pytest.approx(3469.69375)
    assert policies["optimus"]["mean_response_time"] == pytest.approx(5301.875)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "lottery"], "policy: must be one of"),
        (["--policy", "fifo", "--nodes", "0"], "must be a whole number of at least 1, got 0"),
        (["--policy", "fifo", "--nodes", "2.5"], "must be a whole number of at least 1, got '2.5'"),
        (["--policy", "fifo", "--seed", "-1"], "must be a whole number of at least 0, got -1"),
        (["--policy", "fifo", "--warmup", "1.5"], "must be between 0 and 1"),
        (["--policy", "fifo", "--warmup", "1"], "warmup must be below 1"),
        (["--policy", "fifo", "--interval", "0"], "must be a number > 0"),
        (["--policy", "fifo", "--restart-seconds", "nan"], "must be a number > 0"),
        (["--policy", "fifo", "--curves", "predicted"], "no such option"),
        (["--policy", "fifo", "--records"], "--records goes with --format json or csv"),
        (["--policy", "fifo", "--plot", "no/such/folder.png"], "cannot be written"),
        (["--policy", "fifo", "--plot", "jobs.xyz"], "must end in one of"),
        (["--policy", "tiresias", "--nodes", "2"], "line 2: least_nodes must be at most the cluster's 2 nodes, got 3"),
        (["--policy", "tiresias", "--nodes", "3"], "line 2: requested_nodes must be at most the cluster's 3 nodes"),
    ],
)
def test_a_users_mistake_is_one_line(run, workload, arguments, message):
    if arguments[-1] in ("2", "3"):
        workload.write_text(GOOD.replace(",1,4,2,", ",3,4,4,"))
    refused(run("schedule", "--workload", workload, "--nodes", "8", *arguments), message)


def test_plots_need_what_they_draw(workload):
    from queuemodel.scheduling.figures import plot_nodes, plot_sweep
    from queuemodel.scheduling.study import Study

    with pytest.raises(ModelError, match="history=True"):
        plot_nodes(simulate(read_workload(workload), RankPriced(), nodes=8))
    with pytest.raises(ModelError, match="not policy and 'load'"):
        plot_sweep(Study(({"a": 1},), ("a",)))


def test_speeds_come_from_profiles_beside_the_workload(tmp_path):
    """Every way of training, as `predict` says."""
    copy_examples(tmp_path)
    rows = [
        "name,arrival_time,steps,speeds,most_nodes",
        "a,0,9,profile alexnet-60.json strategy=k-sync k=3 congestion_control=bbr buffer=40ms,8",
        "b,1,9,profile ddp-alexnet-40.json bandwidth=100Mbit/s scheme=tf-ring,",
        "c,2,9,profile ddp-alexnet-40-throughputs.csv strategy=all-reduce,6",
    ]
    (tmp_path / "jobs.csv").write_text("\n".join(rows) + "\n")
    a, b, c = read_workload(tmp_path / "jobs.csv", nodes=12, predicted=curve_of)
    profile, rounds = example_profile("alexnet-60"), example_profile("ddp-alexnet-40")
    network = {"congestion_control": "bbr", "buffer": 0.04}
    asked = predict(profile, strategy="k-sync", k=3, workers=range(3, 9), **network)
    assert a.curve(5) == pytest.approx(asked.at(5))
    assert (a.least_nodes, a.most_nodes, b.most_nodes) == (3, 8, 12)
    asked = predict(rounds, workers=range(1, 13), bandwidth=12.5e6, scheme="tf-ring")
    assert b.curve(12) == pytest.approx(asked.at(12))
    assert c.curve(6) > c.curve(1)


@pytest.mark.parametrize(
    ("speeds", "match"),
    [
        ("profile", "profile FILE NAME=VALUE"),
        ("profile nowhere.json", r"line 2: speeds: .*nowhere.json: cannot be read"),
        ("profile ddp-alexnet-40.json strategy=ring", "strategy must be one of"),
        ("profile ddp-alexnet-40.json speed", "NAME=VALUE"),
        ("profile ddp-alexnet-40.json speed=2", "speed is no setting of a prediction"),
        ("profile ddp-alexnet-40.json k=two", "k must be a number, got 'two'"),
    ],
)
def test_speeds_that_cannot_be_predicted_are_refused_with_their_line(tmp_path, speeds, match):
    copy_examples(tmp_path)
    (tmp_path / "jobs.csv").write_text(f"name,arrival_time,steps,speeds\na,0,9,{speeds}\n")
    with pytest.raises(DataError, match=match) as error:
        read_workload(tmp_path / "jobs.csv", nodes=4, predicted=curve_of)
    assert "\n" not in str(error.value)


def test_speeds_from_a_profile_need_somebody_who_predicts(tmp_path):
    (tmp_path / "jobs.csv").write_text("name,arrival_time,steps,speeds\na,0,9,profile p.json\n")
    with pytest.raises(DataError, match="need predicted"):
        read_workload(tmp_path / "jobs.csv", nodes=4)
    with pytest.raises(DataError, match="need most_nodes"):
        read_workload(tmp_path / "jobs.csv", predicted=curve_of)


BATCHES = "name,arrival_time,speeds,batch_size,noise_scales,steps,most_nodes,epochs,dataset_size\n"
SPEEDS = "32=1:4.0 2:6.0;64=1:2.2 2:4.0 4:7.0"


def batches(folder, cells):
    path = folder / "jobs.csv"
    path.write_text(BATCHES + cells + "\n")
    return path


def test_batch_sizes_are_read_as_they_are_made(tmp_path):
    (read,) = read_workload(batches(tmp_path, f"a,0,{SPEEDS},64,500:32 500:1000,,,,"))
    sizes = BatchSizes({32: {1: 4.0, 2: 6.0}, 64: {1: 2.2, 2: 4.0, 4: 7.0}}, [(500, 32.0), (500, 1000.0)])
    made = Job.adaptive("a", arrival_time=0, batch_sizes=sizes, batch_size=64, most_nodes=4)
    assert (read.steps, read.most_nodes) == (made.steps, made.most_nodes)
    for policy in (Goodput(), RankPriced()):
        ends = [simulate(Workload([job]), policy, nodes=4).end[0] for job in (read, made)]
        assert ends[0] == pytest.approx(ends[1])


def test_one_noise_scale_leaves_the_work_to_steps_or_epochs(tmp_path):
    (steps,) = read_workload(batches(tmp_path, f"a,0,{SPEEDS},64,96,300,,,"))
    (epochs,) = read_workload(batches(tmp_path, f"a,0,{SPEEDS},64,96,,,3,6400"))
    assert steps.steps == pytest.approx(300)
    assert epochs.steps == pytest.approx(300)
    # a step of 64 examples does what 2 (96 + 32) / (96 + 64) of 32 do
    assert steps.batch_sizes.steps(32) == pytest.approx(300 * 1.6)
    (plain,) = read_workload(batches(tmp_path, f"a,0,{SPEEDS},64,inf,300,,,"))
    assert plain.batch_sizes.steps(32) == pytest.approx(600)


def test_most_nodes_hold_for_all_batch_sizes(tmp_path):
    (far,) = read_workload(batches(tmp_path, f"a,0,{SPEEDS},32,96,300,,,"))
    (near,) = read_workload(batches(tmp_path, f"a,0,{SPEEDS},32,96,300,3,,"))
    assert (far.most_nodes, far.batch_sizes.limit(8)) == (2, 4)  # the user's table ends at two nodes
    assert (near.most_nodes, near.batch_sizes.limit(8)) == (2, 3)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (f"a,0,{SPEEDS},48,96,300,,,", r"batch_size must be one of \[32, 64\], whose speeds are given, got 48"),
        (f"a,0,{SPEEDS},,96,300,,,", "batch_size"),
        (f"a,0,{SPEEDS},64,,300,,,", "noise_scales"),
        (f"a,0,{SPEEDS},64,500:,,,,", "noise_scales must be a number of examples, or"),
        (f"a,0,{SPEEDS},64,500:32,300,,,", "leave steps and epochs empty"),
        (f"a,0,{SPEEDS},64,96,,,,", "a job needs work"),
        (f"a,0,{SPEEDS},64,-96,300,,,", "noise_scale must be finite and >= 0"),
        ("a,0,32=1:4.0;32=1:2.0,32,96,300,,,", "batch size 32 stands twice"),
        ("a,0,small=1:4.0,32,96,300,,,", "speeds by batch size must be such as"),
        ("a,0,32=1:4.0;64=fast,32,96,300,,,", "speeds must be a table such as"),
        ("a,0,1:4.0 2:6.0,,96,300,,,", "noise_scales go with speeds by batch size"),
    ],
)
def test_senseless_batch_sizes_are_refused_in_one_line(tmp_path, cells, words):
    with pytest.raises(DataError, match=rf"jobs\.csv: line 2: .*{words}") as caught:
        read_workload(batches(tmp_path, cells))
    assert "\n" not in str(caught.value)


def test_the_command_lets_a_policy_choose_batch_sizes(run, tmp_path):
    rows = "\n".join(f"j{k},{60 * k},{SPEEDS},64,5000,2000,,," for k in range(3))
    asked = ["--workload", batches(tmp_path, rows), "--nodes", "6", "--format", "json"]
    _, out, _ = run("schedule", *asked, "--policy", "goodput", "--policy", "rank-priced")
    found = {name: one["mean_response_time"] for name, one in json.loads(out)["policies"].items()}
    assert found["goodput"] <= found["rank-priced"]
