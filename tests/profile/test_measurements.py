"""Tables and logs of measurements: what people write is read as they mean it, or is one line that says what to do."""

import gzip
import io

import msgspec
import pytest

from queuemodel.base.errors import DataError
from queuemodel.profile.logs import read_log
from queuemodel.profile.measurements import Measurement, read_measurements


def read(text, **options):
    return read_measurements(io.StringIO(text), **options)


def values(table):
    """Fields of each measurement, rates but for rounding."""
    fields = [msgspec.structs.asdict(one) for one in table]
    return [{name: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
             for name, value in each.items()} for each in fields]  # fmt: skip


def same(table, rows):
    return [msgspec.structs.asdict(one) for one in table] == values(rows)


def m(workers, speed, nodes=None, **others):
    return Measurement(workers=workers, steps_per_second=speed, nodes=nodes, **others)


SIZES = [
    ("nodes,gpus_per_node,step_time\n1,8,0.25\n2,8,0.5", [m(8, 32, 1), m(16, 32, 2)]),
    ("nodes,gpus,step_time\n1,8,0.25\n2,16,0.5", [m(8, 32, 1), m(16, 32, 2)]),
    ("gpus,gpus_per_node,step_time\n1,8,0.25\n12,8,0.5", [m(1, 4, 1), m(12, 24, 2, gpus_per_node=8)]),
    ("gpus,step_time\n1,0.25\n2,0.5", [m(1, 4), m(2, 4)]),
    ("nodes,step_time\n1,0.25\n2,0.5", [m(1, 4, 1), m(2, 4, 2)]),
    ("nodes,gpus,gpus_per_node,step_time\n2,5,4,0.5\n2,5,,0.5", [m(5, 10, 2, gpus_per_node=4), m(5, 10, 2)]),
    ("nodes,world_size,step_time\n1,4,1\n2,4,1", [m(4, 4, 1), m(4, 4, 2)]),  # certainly of all nodes
]
SYNONYMS = {
    "gpus": "GPU,devices,Accelerators,ranks,workers,world_size,WORLD SIZE,num_gpus,n_gpus,numGPUs,# GPUs,GPUs (total),"
            "number of workers,nproc,total_gpus,gpu count",
    "nodes": "num_nodes,nnodes,hosts,machines,Num-Nodes,instances",
    "gpus_per_node": "gpus/node,nproc_per_node,GPUs per host,ranks-per-node,local_world_size",
    "step_time": "Step time,iteration_time,time_per_step,sec_per_step,s/it,step time (s),Step Time [seconds],iter time,"
                 "mean step time,seconds/iteration,time/iter",
    "step_time_ms": "Step time (ms),step_time [ms],ms/step,ms_per_iter,iteration time (msec),ms/it",
    "iterations_per_second": "it/s,iters_per_sec,rounds_per_second,Throughput (it/s),iterations/sec,updates per second",
    "steps_per_second": "steps/s,steps per sec",
    "images_per_second": "img/s,imgs/sec,Throughput [images/s],images per second (total)",
    "samples_per_second": "samples/sec,Throughput [samples/s],training speed (samples/s),train_samples_per_second",
    "tokens_per_second_per_gpu": "tgs,tokens/s/GPU,tokens/sec (per GPU),tok/gpu/s,throughput per GPU (tokens/s)",
    "batch_size": "bs,local_batch_size,per_gpu_batch_size,micro_batch_size,batch size (per GPU),"
                  "per_device_train_batch_size,batch size per worker",
    "global_batch_size": "gbs,Global batch size,total batch size,effective_batch_size",
    "sequence_length": "seq_len,seqlen,Sequence length,context length",
    "parameter_servers": "ps,servers,parameter server,num_ps",
    "standard_error": "std err,stderr,SEM",
}  # fmt: skip
BESIDE = {  # what else a row needs
    "gpus": "step_time,0.5", "nodes": "gpus_per_node,8,step_time,0.5", "gpus_per_node": "nodes,2,step_time,0.5",
    "batch_size": "gpus,8,images_per_second,60", "global_batch_size": "gpus,8,img/s,60",
    "parameter_servers": "gpus,8,it/s,2",
    "sequence_length": "gpus,8,tokens_per_second,4096,bs,2", "standard_error": "gpus,8,it/s,20",
}  # fmt: skip
RATES = [
    *((text, [m(4, 16)]) for text in (
        "gpus,step_time_ms\n4,250", "gpus,it/s\n4,4", "gpus,steps_per_second\n4,16", "gpus,steps_per_minute\n4,960",
        "gpus,steps_per_second_per_gpu\n4,4")),
    *((text, [m(4, 16, standard_error=0.64)]) for text in (
        "gpus,step_time,standard_error\n4,0.25,0.01", "gpus,step_time_ms,standard_error\n4,250,10",
        "gpus,step_time,standard error (ms)\n4,0.25,10", "gpus,step_time,standard_error\n4,250ms,10ms")),
    *((f"workers,steps_per_second,{bandwidth}", [m(4, 16, bandwidth=1.25e9)])
      for bandwidth in ("bandwidth\n4,16,10Gbit/s", "bandwidth (Gbit/s)\n4,16,10")),
    ("gpus,step_time\n4,250ms\n4,1:00:00", [m(4, 16), m(4, 4 / 3600)]),
    ("gpus,step_time\n1,61s\n2,70s", [m(1, 1 / 61), m(2, 2 / 70)]),
    ("gpus;step_time\n1;1,200\n2;0,5", [m(1, 1 / 1.2), m(2, 4)]),  # decimal commas beside points
    ('gpus,steps/s\n1,"1,200"\n2,0.5', [m(1, 1200), m(2, 0.5)]),
    ("gpus,img/s\n4,1.2k", [m(4, 1200, batch_size=1, unit="images")]),
    ('gpus,samples/s\n4,"1,200"', [m(4, 1200, batch_size=1, unit="samples")]),
    ("gpus,examples/s,bs\n4,1200,30", [m(4, 40, batch_size=30)]),
    ("gpus,examples_per_second_per_gpu,global_batch_size\n4,300,120", [m(4, 40, batch_size=30)]),
    ("gpus,tgs,bs,seq_len\n8,1024,2,1024", [m(8, 4, batch_size=2048, unit="tokens")]),
    ("gpus,tokens_per_second\n8,1024", [m(8, 1024, batch_size=1, unit="tokens")]),
    ("gpus,epoch_time,dataset_size,bs\n4,1min,6000,10", [m(4, 10, batch_size=10)]),
    ("gpus,epoch_time,dataset_size,bs\n4,600,6000,10", [m(4, 1, batch_size=10)]),  # an epoch may well take 600 s
    ("gpus,img/s,standard error (img/s),bs\n4,100,5,10", [m(4, 10, standard_error=0.5, batch_size=10, unit="images")]),
    ("gpus,step_time,ps\n4,0.25,2", [m(4, 16, parameter_servers=2)]),
    ("workers,rounds_per_second,standard_error\n4,4,0.1", [m(4, 16, standard_error=0.4)]),
]  # fmt: skip
LAYOUTS = [
    "gpus;step_time\n4;0.25", "gpus\tstep_time\n4\t0.25", "gpus;step_time\n4;0,25",
    "\ufeffgpus,step_time\r\n4,0.25\r\n",
    "\ngpus, step_time\n\n4, 0.25\n,\n", ",gpus,step_time\n0,4,0.25", "Unnamed: 0,gpus,step_time\n0,4,0.25",
    "gpus,step_time,\n4,0.25,", 'gpus,step_time,Model,GPU type,Date,Comment\n4,0.25,gpt,H100,2024,"1,5 times"',
    "gpus,step_time\n4.0,2.5e-1", "gpus,step_time,img/s\n4,0.25,",
    *(f"gpus,step_time,{header}\n4,0.25,12\n" for header in ("framework", "Dataset", "Speedup")),
]  # fmt: skip
REFUSED = [
    ("nodes,gpus,step_time\n2,8,1\n4,8,1", "table: line 2: gpus: 8 GPUs on 2, 4 nodes: on each node, or on all "
     "together? if on each, write gpus_per_node, or gpus with the totals 16, 32; if on all, "
     "add gpus_per_node with 4, 2"),
    ("nodes,gpus,step_time\n2,1,1", "table: line 2: gpus must be a whole number of at least 2, got 1"),
    ("nodes,gpus,gpus_per_node,it/s\n2,16,4,1", "table: line 2: gpus_per_node must be a whole number of at least 8"),
    ("step_time\n1", "table: line 2: give gpus (of all nodes together), or nodes and gpus_per_node"),
    ("gpus,step_time,tokens_per_second\n1,1,1", "epoch_time; got step_time and tokens_per_second"),
    ("gpus,step_time\n1,0.25\n2,", "table: line 3: give one of step_time, "),
    ("gpus,step_time\n1,250\n2,300", "table: line 2: step_time: is a step of 250 in seconds or milliseconds? "
     "write step_time_ms, or 250s in the cell if it is seconds"),
    ("gpus,epoch_time,dataset_size,bs\n4,3600000,60000,32\n8,2e6,60000,32", "table: line 2: epoch_time: is an epoch, "
     "with steps of 7680 s, of 3600000 in seconds or milliseconds? write epoch_time_ms, or 3600000s in the cell"),
    ("gpus,step_time\n1,-3", "table: line 2: step_time must be finite and > 0, got -3.0"),
    ("gpus,epoch_time\n4,60", "table: line 2: epoch_time needs the examples of an epoch; give dataset_size"),
    ("gpus,img/s,global_batch_size\n8,60,100", "global_batch_size must be a multiple of the 8 GPUs, got 100"),
    ("gpus,img/s,bs,global_batch_size\n8,60,8,64", "give batch_size or global_batch_size, got both"),
    ("gpus,tokens/s,bs\n8,60,8", "table: line 2: tokens need sequence_length beside the batch size; it is 1 if that"),
    ("gpus,img/s,bs\n8,60,8\n8,60,", "table: line 2: rows count different work; give all a batch_size, and the same"),
    ("gpus,step_time,standard_error\n8,1,2", "table: line 2: standard_error must be at most 8"),
    ("gpus,img/s,standard error (%)\n8,60,2", "table: line 2: standard error (%) must be in the unit of img/s, got %"),
    ("gpus,it/s,bandwidth\n8,1,10", "table: line 2: bandwidth: bandwidth '10' has no unit; write 10Gbit/s or 10MB/s"),
    ("gpus,stepp_time\n1,1", "table: line 1: unknown column 'stepp_time'; did you mean 'step_time'?"),
    ("gpus,colour,step_time\n1,red,1", "table: line 1: unknown column 'colour'; the known ones are gpus, nodes"),
    ("gpus,throughput\n1,1", "'throughput'; write its unit, like examples_per_second or tokens_per_second"),
    ("gpus,tps\n1,1", "'tps'; write tokens_per_second of all GPUs, or tokens_per_second_per_gpu"),
    ("gpus,step_time,step_time_std\n1,1,1", "'step_time_std'; write standard_error: the deviation over"),
    ("N,step_time\n1,1", "table: line 1: unknown column 'N'; write gpus or nodes"),
    ("8,0.5\n16,0.6", "table: line 1: must name columns, like gpus,step_time, got '8,0.5'"),
    ("gpus,it/s\n1,1e11", "table: line 2: it/s must be at most 1e+09"),
    ("gpus,it/s\n1e9,1", "table: line 2: workers must be at most 10,000, got 1000000000"),
    ("gpus,workers,it/s\n1,1,1", "table: line 1: columns 'gpus' and 'workers' mean the same; leave one"),
    (",gpus,it/s\n5,1,1\n3,1,1", "table: line 1: a column has no name; was it written with its index? write index="),
    ("gpus,it/s\n", "table: no measurements below the header"),
    ("name,price\na,1", "table: machines and prices; queuemodel plan --instances takes them"),
    ('{"traceEvents": [\n{}]', "table: a Chrome trace"),
]  # fmt: skip
STRATEGIES = [
    ("gpus,step_time\n1,1", "all-reduce", "all-reduce is assumed"),
    ("gpus,it/s\n1,1", "all-reduce", "all-reduce is assumed"),
    ("nodes,gpus,steps/s\n1,1,1", "all-reduce", "all-reduce is assumed"),
    ("nodes,it/s\n1,1", "all-reduce", "all-reduce is assumed; one GPU on each node is assumed"),
    ("gpus,steps/s\n1,1", "", ""),
    ("gpus,step_time,ps\n1,1,1", "", ""),
    ("gpus,img/s\n1,1", "", "a step is one unit of work, as there is no batch size"),
]


@pytest.mark.parametrize(("text", "expected"), [*SIZES, *RATES])
def test_sizes_and_rates(text, expected):
    assert same(read(text), expected)


@pytest.mark.parametrize(
    ("name", "synonym"), [(name, one) for name, all_of in SYNONYMS.items() for one in all_of.split(",")]
)
def test_column_synonyms_are_read(name, synonym):
    others = BESIDE.get(name, "gpus,8").split(",")
    header, cells = ",".join(others[::2]), ",".join(others[1::2])
    assert read(f"{synonym},{header}\n16,{cells}") == read(f"{name},{header}\n16,{cells}")


@pytest.mark.parametrize("text", LAYOUTS)
def test_table_layouts_are_read(text):
    assert list(read(text)) == [m(4, 16)]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_refusals_name_the_place_once(text, message, tmp_path):
    with pytest.raises(DataError) as refusal:
        read(text)
    assert message in str(refusal.value)
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(DataError) as from_file:
        read_measurements(path)
    said = str(from_file.value)
    assert said == str(refusal.value).replace("table: ", f"{path}: ", 1)
    assert (said.count(str(path)), said.count(": line ") <= 1, "\n" in said) == (1, True, False)


@pytest.mark.parametrize(("text", "strategy", "note"), STRATEGIES)
def test_columns_imply_the_strategy(text, strategy, note):
    table = read(text)
    assert (table.strategy, table.note) == (strategy, note)


def test_dataset_size_as_argument():
    assert same(read("gpus,epoch_time,bs\n4,60,10", dataset_size=6000), [m(4, 10, batch_size=10)])
    with pytest.raises(DataError, match="dataset_size must be a whole number"):
        read("gpus,epoch_time\n4,60", dataset_size=-1)


def test_every_source_equals_the_file(tmp_path):
    pandas = pytest.importorskip("pandas")
    columns = {"nodes": [1, 2], "GPUs": [8, 16], "Step time (s)": [0.25, 0.3], "batch_size": [32, None]}
    text = "nodes,GPUs,Step time (s),batch_size\n1,8,0.25,32\n2,16,0.3,\n"
    path, frame = tmp_path / "t.csv", pandas.DataFrame(columns)
    path.write_text(text)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "t.tsv").write_text(text.replace(",", "\t"))
    frame.to_csv(tmp_path / "frame.csv")
    expected = read_measurements(path)
    records = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    with path.open() as file, path.open("rb") as binary:
        for source in (
            str(path), tmp_path / "t.csv.gz", tmp_path / "t.tsv", io.StringIO(text), file, binary, columns, records,
            iter(records), [{**records[0]}, {n: v for n, v in records[1].items() if v}], expected, list(expected),
            tmp_path / "frame.csv", frame, frame.set_index("nodes"), frame.convert_dtypes(), frame[frame.nodes > 0],
            expected.to_frame()[["workers", "nodes", "step_time", "batch_size"]],
        ):  # fmt: skip
            assert list(read_measurements(source)) == list(expected)
    assert list(read_measurements(frame[frame.nodes > 1])) == [expected[1]]
    assert [one.workers for one in expected[:]] == [8, 16]


@pytest.mark.parametrize(
    "source", [None, 3, [], {}, [1], {"gpus": 8, "step_time": 1}, {"gpus": [1], "it/s": []}, b"gpus"]
)
def test_what_is_no_table_is_refused(source):
    with pytest.raises(DataError, match=r"^table: "):
        read_measurements(source)


def test_a_table_of_measurements_is_printed():
    table = read("nodes,gpus,tgs,bs,seq_len\n1,8,1024,2,1024\n2,16,1000,2,1024\n")
    assert repr(table).splitlines()[0] == "2 measurements; all-reduce is assumed"
    assert "tokens" in repr(table)
    assert table.to_rows()[0] == {
        "workers": 8, "steps_per_second": 4.0, "nodes": 1, "batch_size": 2048, "unit": "tokens", "step_time": 2.0
    }  # fmt: skip


#: Formats as in pytorch/torchtitan, pull requests 2389 and 3393, with the ranks' prefixes and with colours.
TITAN = (
    "[rank{rank}]:[titan] 2026-05-18 16:04:46,338 - root - INFO - {red}step: {step:2}  {green}loss:  7.62585  "
    "grad_norm: 26.6250  memory: 66.91GiB(37.51%)  {blue}tps: {tps:,}  tflops: 314.71  mfu: 13.99%{reset}\n"
)
COLOURS = {"red": "\x1b[31m", "green": "\x1b[32m", "blue": "\x1b[34m", "reset": "\x1b[39m"}
TRAINER = "{'loss': 0.5, 'epoch': 1.0}\n{'train_runtime': 437.8544, 'train_samples_per_second': 25.132, " \
          "'train_steps_per_second': 3.145, 'train_loss': 0.456, 'epoch': 3.0}\n100%|####| 1377/1377\n"  # fmt: skip


RATES_OF_STEPS = [1_200, *[10_000, 10_020, 9_980] * 6, 10_000]


@pytest.fixture
def read_text(tmp_path):
    """What a log says that has a text."""

    def read(text, **asked):
        (tmp_path / "log.txt").write_text(text)
        return read_log(tmp_path / "log.txt", **asked)

    return read


@pytest.mark.parametrize("colours", [dict.fromkeys(COLOURS, ""), COLOURS])
@pytest.mark.parametrize("ranks", [1, 4])
def test_steps_of_torchtitan(read_text, colours, ranks):
    lines = [TITAN.format(step=s, tps=t, rank=r, **colours) for s, t in enumerate(RATES_OF_STEPS, 1)
             for r in range(ranks)]  # fmt: skip
    validation = "[titan] - root - INFO - validate step: 20  loss: 8.1  memory: 1GiB(1%)  tps: 90,000\n"
    text = "".join(["Building model\n", *lines, validation])
    found = read_text(text, gpus=64, nodes=8, batch_size=8192)
    assert (found.workers, found.nodes, found.unit, found.batch_size) == (64, 8, "tokens", 8192)
    assert found.steps_per_second == pytest.approx(64 * 10_000 / 8192)
    assert found.standard_error / found.steps_per_second == pytest.approx(1.2533 * 1.4826 * 0.002 / 18**0.5)
    assert read_text(text, gpus=64).steps_per_second == pytest.approx(640_000)


def test_the_summary_of_trainer(read_text):
    assert same([read_text(TRAINER, gpus=2)], [m(2, 6.29)])
    assert same([read_text(TRAINER, gpus=2, batch_size=4)], [m(2, 25.132 / 4, batch_size=4)])
    results = '{\n "train_samples_per_second": 25.132,\n "train_steps_per_second": 3.145\n}'  # train_results.json
    assert same([read_text(results, gpus=2)], [m(2, 6.29)])


LIGHTNING = (
    "epoch,step,{0}device/batches_per_sec,{0}device/samples_per_sec,{0}time,train_loss,"
    "validate|device/batches_per_sec\n"
)


@pytest.mark.parametrize("stage", ["train|", ""])
def test_the_metrics_of_lightning(read_text, stage):
    """Columns as ThroughputMonitor documents them; rows of losses and of validation have no rate of training."""
    rates = [0.5, *[2.0, 2.02, 1.98] * 6, 2.0]
    rows = [f"0,{50 * i},{x},{8 * x},{i},,\n0,{50 * i},,,,0.7,9.0\n" for i, x in enumerate(rates)]
    text = LIGHTNING.format(stage) + "".join(rows)
    found = read_text(text, gpus=16, nodes=2)
    assert (found.workers, found.nodes, found.batch_size) == (16, 2, None)
    assert found.steps_per_second == pytest.approx(16 * 2.0)
    assert 0 < found.standard_error < 0.01 * found.steps_per_second
    sized = read_text(text, gpus=16, batch_size=32)  # of 8 samples, four times accumulated
    assert (sized.steps_per_second, sized.unit) == (pytest.approx(16 * 2.0 / 4), "examples")


@pytest.mark.parametrize(("text", "gpus", "message"), [
    ("nothing\n", 2, "no steps of TorchTitan"), (TRAINER, 0, "gpus must be a whole number"),
    ("epoch,step,train|device/batches_per_sec\n0,1,\n0,2,x\n", 2, "no steps of TorchTitan"),
    ("epoch,step,train_loss\n0,1,0.3\n", 2, "ThroughputMonitor"),
    ("{'train_samples_per_second': 8.019}\n", 2, "no steps of TorchTitan"),  # of old versions, which counted steps
    (TRAINER.replace("3.145", "0.0"), 2, "its rate is 0, perhaps rounded; give batch_size"),
])  # fmt: skip
def test_logs_without_rates_are_refused(read_text, text, gpus, message):
    with pytest.raises(DataError, match=message):
        read_text(text, gpus=gpus)
