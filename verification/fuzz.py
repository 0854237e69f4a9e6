"""Damaged files of every format: ``python -m verification.fuzz [--format profile] [--count 10000] [--seed 0]``.

Each file is a good one in which something was changed: bytes, numbers, words, lines, values of JSON. Whatever it is, it
is either refused in one line by an error of the package, or it is read, and then every number that follows from it is
finite and positive. Anything else is printed with what makes it again: ``--only NUMBER`` keeps the file.
"""

from __future__ import annotations

import gzip
import json
import math
import random
import re
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from tqdm import tqdm

import queuemodel as qm
from queuemodel import example_profile, models, queueing
from queuemodel.models import predict
from queuemodel.models.simulation.model import trace_throughput
from queuemodel.queueing import read_jmva, write_jmva
from queuemodel.scheduling import (
    FIFO,
    Goodput,
    read_job_trace,
    read_jobs,
    read_workload,
    schedule,
)
from tests.oracles.recorded import DATA

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "queuemodel" / "profile" / "data"

#: Seconds of the processor that one file may take.
LIMIT = 30.0

#: What takes the place of a number, or of anything.
NUMBERS = [
    "0", "-1", "1", "2", "7", "0.5", "1e-9", "1e-320", "1e9", "1e15", "1e18", "1e300", "1e400", "-0.0", "1.0", "32.0",
    "NaN", "Infinity", "-Infinity", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "01",
    "1_000", "0x10", "9" * 5000,
]  # fmt: skip
OTHERS = [
    "", "null", "true", '"1"', '""', "[]", "{}", "[[[[1]]]]", "\xe9", "\ufeff", "\x00", "\r", "\n", "\t", ",", '"', "'",
]  # fmt: skip
NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?")
WORD = re.compile(rb"[A-Za-z_]+")


@dataclass(frozen=True)
class Format:
    """A format's good files by name, and what must hold of one that can be read (``True``: also what takes long)."""

    seeds: Callable[[], dict[str, bytes]]
    check: Callable[[Path, bool], None]


def positive(*values: Any, least: float = np.finfo(float).tiny) -> None:
    """Refuse what is not finite and > 0 (at least ``least``)."""
    for value in values:
        array = np.asarray(value, dtype=float)
        assert np.all((least <= array) & (array < math.inf)), f"not finite and >= {least:g}: {value!r}"


def curve_of(model: models.ClosedNetworkModel) -> None:
    """A curve of 1 to 8 workers has numbers that make sense."""
    curve = model.throughput(range(1, 9))
    positive(curve.steps_per_second, curve.lower, curve.upper, curve.bound_lower, curve.bound_upper)
    assert (curve.lower <= curve.steps_per_second * (1 + 1e-9)).all()
    assert (curve.steps_per_second <= curve.upper * (1 + 1e-9)).all()
    positive(curve.utilization, curve.residence_time, curve.think_time, least=0.0)
    json.loads(curve.to_json(), parse_constant=refused_constant)
    assert repr(curve)


def refused_constant(name: str) -> None:
    """NaN and infinities are no JSON."""
    raise AssertionError(f"{name} in JSON")


def profiles() -> dict[str, bytes]:
    """Packaged profiles, cut to two steps, and one with throughputs and several servers; as they are and packed."""
    found = {}
    for name in ("alexnet-60", "resnet50-60"):
        document = json.loads(example_profile(name).to_json())
        document["steps"] = document["steps"][:2]
        found[f"{name}.json"] = json.dumps(document, indent=1).encode()
    document = json.loads(found["alexnet-60.json"])
    document["cluster"] |= {"workers": 2, "parameter_servers": 2}
    document["job"] |= {"shard_bytes": [1_000_000, 2_047_988], "dataset_size": 50_000}
    document["throughputs"] = [{"workers": n, "steps_per_second": x} for n, x in ((1, 1.04), (2, 1.5), (4, 1.8))]
    for step in document["steps"]:
        step["operations"] = []
    found["servers.json"] = json.dumps(document, indent=1).encode()
    return found | {f"{name}.gz": gzip.compress(content) for name, content in found.items()}


def check_profile(path: Path, thorough: bool) -> None:
    """A profile that is read can be fitted, shown and written, and now and then is simulated."""
    profile = qm.Profile.load(path)
    assert qm.Profile.from_json(profile.to_json()) == profile
    assert repr(profile)
    curve_of(qm.fit(profile))
    if thorough and any(step.operations for step in profile.steps):
        positive(trace_throughput(profile, workers=[1, 2], replications=1, steps=20))


def tables() -> dict[str, bytes]:
    """Packaged throughputs, one with all columns and quoted."""
    found = {path.name: path.read_bytes() for path in (EXAMPLES).glob("*-throughputs.csv")}
    return found | {
        "full.csv": b'workers,"steps_per_second",parameter_servers\r\n1,6.73,1\r\n2,"13.6",1\r\n4,24.85,2\r\n'
    }


def check_table(path: Path, thorough: bool) -> None:
    """Throughputs that are read can be fitted."""
    points = [*qm.read_measurements(path)]
    positive([(p.workers, p.steps_per_second, p.parameter_servers) for p in points])
    if thorough:
        curve_of(qm.fit(points))


def placements() -> dict[str, bytes]:
    """A few rows of the packaged placements, and some with the share of a node left out."""
    packaged = (EXAMPLES / "resnet50-t4-placements.csv").read_bytes().splitlines(keepends=True)
    return {
        "packaged.csv": b"".join([packaged[0], *packaged[1::7]]),
        "few.csv": b"nodes,gpus,batch_size,step_time\n1,1,8,0.1\n1,1,32,0.4\n2,4,8,0.25\n2,4,32,0.5\n8,16,16,0.4\n",
    }


def check_placements(path: Path, _: bool) -> None:
    """Placements that are read can be fitted, and the model shown and asked."""
    points = qm.read_measurements(path)
    model = qm.fit(points, strategy="all-reduce")
    assert repr(model)
    curve = model.throughput([1, points[0].fullest_node + 1], batch_size=points[0].batch_size)
    positive(curve.steps_per_second, curve.lower, curve.upper)


def networks() -> list[queueing.Network]:
    """Small networks with everything that files can say."""
    two = [queueing.Station("cpu", service_time=0.1), queueing.Station("disk", service_time=0.2, visit_ratio=2.0)]
    classes = [queueing.JobClass("A", population=2, think_time=1.0), queueing.JobClass("B", population=1)]
    by_class = queueing.Station("cpu", service_time={"A": 0.1, "B": 0.3})
    return [
        queueing.Network.load(EXAMPLES / "parameter-server-network.json"),
        queueing.Network([*two, queueing.Station("many", service_time=1.0, servers=3)], think_time=0.5),
        queueing.Network([*two, queueing.Station("delay", service_time=1.0, servers=math.inf)]),
        queueing.Network([by_class, two[1]], classes=classes),
        queueing.Network([queueing.Station("table", service_time=1.0, rates=(1.0, 1.5, 1.9)), two[0]]),
    ]


def instance_files() -> dict[str, bytes]:
    """Types of machine, with and without what is optional."""
    return {
        "full.csv": b"name,price,bandwidth,accelerator_speed,latency\na,0.2,60Mbit/s,1,50us\nb,0.75,1.25GB/s,4,\n",
        "few.csv": b'name,price\n"a, b",2.5\nc,1\n',
    }


def check_instances(path: Path, _: bool) -> None:
    """Types that are read have a price and, where they are told, links and accelerators."""
    found = [
        (one.price, one.bandwidth or 1.0, one.accelerator_speed, one.latency or 1.0) for one in qm.read_instances(path)
    ]
    positive(found)


def network_files() -> dict[str, bytes]:
    """Their JSON."""
    return {f"{number}.json": network.to_json().encode() for number, network in enumerate(networks())}


def jmva_files() -> dict[str, bytes]:
    """The same for JMT, which has populations in the file."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, network in enumerate(networks()):
            path = Path(folder) / f"{number}.jmva"
            write_jmva(network, path, population=None if network.classes else 3)
            found[path.name] = path.read_bytes()
    return found


def solved(network: queueing.Network) -> None:
    """A small network that is read can be shown and solved."""
    assert repr(network)
    total = sum(c.population for c in network.classes)
    if total > 12 or len(network.stations) > 10:
        return
    solution = queueing.solve(network) if network.classes else queueing.solve(network, population=3)
    positive(solution.throughput, solution.queue_length, solution.utilization, least=0.0)
    positive(np.sum(solution.throughput))


def check_network(path: Path, _: bool) -> None:
    """Network JSON."""
    network = queueing.Network.load(path)
    assert queueing.Network.from_json(network.to_json()) == network
    solved(network)


def check_jmva(path: Path, _: bool) -> None:
    """JMT's .jmva."""
    solved(read_jmva(path))


GAVEL_SPEEDS = '{"v100": {"(\'ResNet-18\', 1)": {"null": 10.0}, "(\'ResNet-18\', 2)": {"null": 18.0}}}'


def workload_files() -> dict[str, bytes]:
    """One small file of each format, named by its reader; for Gavel and ElasticFlow also the speeds."""
    gavel = "ResNet-18\tpython main.py\t/cifar\t-s\t1\t1000\t{}\t1.0\t-1\t{}\n"
    return {
        "workload.csv": b"name,arrival_time,steps,speeds,least_nodes,most_nodes,requested_nodes,kind,end_probability\n"
        b"a,0,100,1:2.0 2:3.7 4:6.0,1,4,2,image,\nb,5,50,power 0.8 2.5,,,3,text,0.25\n",
        "epochs.csv": b"name,arrival_time,epochs,dataset_size,batch_size,speeds\na,0,2,1000,10,1:1 2:2\n",
        "batches.csv": b"name,arrival_time,speeds,batch_size,noise_scales,steps\n"
        b"a,0,32=1:4.0 2:6.0;64=1:2.2 2:4.0,64,500:32 500:inf,\nb,1,32=power 0.5 2.0;64=power 0.6 1.5,32,96,300\n",
        "philly.csv": b"timestamp,duration,num_gpus\n2017-10-09 07:01:55,66.0,1\n2017-10-09T07:00:55,100,8\n",
        "alibaba.csv": b"j1,worker,4,Terminated,100,400,600,29,50,V100\nj2,tensorflow,1,Failed,50,60,600,29,100,V100\n"
        b"j3,worker,2,Terminated,130,230,600,29,200,T4\n",
        "gavel.tsv": (gavel.format(1, 0) + gavel.format(2, 7.5)).encode(),
        "gavel-speeds.json": GAVEL_SPEEDS.encode(),
        "elasticflow.csv": b"job_id,submit_time,iteration,model_name,batch_size,num_gpu\n1,0,100,vgg,32,1\n"
        b"2,9,50,vgg,32,4\n",
        "elasticflow-speeds.csv": b"global_batch_size,1,2,4\n32,2.0,3.7,nan\n64,1.5,2.9,0\n",
    }


def check_workload(path: Path, _: bool) -> None:
    """A workload that is read can be scheduled."""
    files = workload_files()
    kind, folder = path.name.split(".")[0], path.parent
    if kind in ("philly", "alibaba"):
        jobs = read_jobs(path, kind)
    elif kind.startswith("gavel"):
        table, speeds = folder / "gavel.tsv", folder / "gavel-speeds.json"
        for other in {table, speeds} - {path}:
            other.write_bytes(files[other.name])
        jobs = read_job_trace(table, "gavel", speeds)
    elif kind.startswith("elasticflow"):
        table, speeds = folder / "elasticflow.csv", folder / "vgg.csv"
        table.write_bytes(path.read_bytes() if path == table else files[table.name])
        speeds.write_bytes(files["elasticflow-speeds.csv"] if path == table else path.read_bytes())
        jobs = read_job_trace(table, "elasticflow", folder)
    else:
        jobs = read_workload(path)
    least = max(job.least_nodes for job in jobs)
    for policy in (FIFO(), Goodput()) if kind == "batches" else (FIFO(),):
        run = schedule(jobs, policy, nodes=max(8, least, *(job.requested for job in jobs)))
        positive(run.end - run.arrival, run.mean_response_time)


def traces() -> dict[str, bytes]:
    """Recorded steps and recordings of a whole job's tasks, unpacked and packed."""
    paths = [DATA / "alexnet-60" / "trace" / "step_000.pb.gz", DATA / "layer-order" / "step_0.pb.gz"]
    paths += sorted((DATA / "xplane-1ps").glob("*.gz"))
    packed = {path.name: path.read_bytes() for path in paths}
    return packed | {name.removesuffix(".gz"): gzip.decompress(content) for name, content in packed.items()}


def check_trace(path: Path, _: bool) -> None:
    """A folder of recordings, one of them damaged, that is read is a profile that can be fitted."""
    from queuemodel.adapters import read_tensorflow

    with tempfile.TemporaryDirectory() as folder:
        damaged = path.name
        if ".xplane." in damaged:
            for other in (DATA / "xplane-1ps").glob("*.gz"):
                if not other.name.startswith(damaged.removesuffix(".gz")):
                    (Path(folder) / other.name).write_bytes(other.read_bytes())
        (Path(folder) / damaged).write_bytes(path.read_bytes())
        profile = read_tensorflow(folder, batch_size=32, parameter_bytes=788_992)
    assert qm.Profile.from_json(profile.to_json()) == profile
    curve_of(qm.fit(profile))


#: Runs of two ranks, by the end of their files' names.
RANKS = {".pt.trace.json": "ddp/ddp-alexnet-40/trace_n2", ".xplane.pb": "mirrored/mlp/trace_n2"}


def rank_files() -> dict[str, bytes]:
    """Recordings of one rank of two, unpacked and packed."""
    paths = [DATA / run / f"rank0{end}.gz" for end, run in RANKS.items()]
    packed = {path.name: path.read_bytes() for path in paths}
    return packed | {name.removesuffix(".gz"): gzip.decompress(content) for name, content in packed.items()}


def check_ranks(path: Path, _: bool) -> None:
    """A run of two ranks, one of them damaged, that is read is a profile that predicts."""
    from queuemodel.adapters import pytorch, tensorflow

    with tempfile.TemporaryDirectory() as folder:
        end = next(end for end in RANKS if path.name.removesuffix(".gz").endswith(end))
        other = DATA / RANKS[end] / f"rank1{end}.gz"
        for name, content in ((other.name, other.read_bytes()), (path.name, path.read_bytes())):
            (Path(folder) / name).write_bytes(content)
        read = tensorflow.read_mirrored if end == ".xplane.pb" else pytorch.read_pytorch
        profile = read([folder], batch_size=32)
    assert qm.Profile.from_json(profile.to_json()) == profile
    positive(predict(profile, workers=[1, 2, 4]).steps_per_second)


FORMATS = {
    "profile": Format(profiles, check_profile),
    "csv": Format(tables, check_table),
    "placements": Format(placements, check_placements),
    "instances": Format(instance_files, check_instances),
    "network": Format(network_files, check_network),
    "jmva": Format(jmva_files, check_jmva),
    "workload": Format(workload_files, check_workload),
    "trace": Format(traces, check_trace),
    "ranks": Format(rank_files, check_ranks),
}


def damaged(content: bytes, rng: random.Random) -> bytes:
    """One to three changes to a file; a packed one is unpacked first, more often than not."""
    if content[:2] == b"\x1f\x8b" and rng.random() < 0.7:
        return gzip.compress(damaged(gzip.decompress(content), rng), mtime=0)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        content = rng.choice(CHANGES)(content, rng)
    return content


def change_byte(content: bytes, rng: random.Random) -> bytes:
    """Another byte, one more or one less."""
    at = rng.randrange(len(content) + 1)
    return content[:at] + bytes(rng.choices(range(256), k=rng.randrange(2))) + content[at + rng.randrange(2) :]


def cut(content: bytes, rng: random.Random) -> bytes:
    """Cut off behind, in front, or within."""
    a, b = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    return rng.choice([content[:a], content[b:], content[:a] + content[b:]])


def repeat(content: bytes, rng: random.Random) -> bytes:
    """A stretch twice, such as a key, a column or a line."""
    a = rng.randrange(len(content) + 1)
    b = min(len(content), a + rng.choice([1, 10, 100]))
    return content[:b] + content[a:b] * rng.choice([1, 1, 1, 50]) + content[b:]


def change_number(content: bytes, rng: random.Random) -> bytes:
    """An odd number, or anything, in the place of a number."""
    return _replace(content, NUMBER, rng.choice(NUMBERS if rng.random() < 0.8 else OTHERS), rng)


def change_word(content: bytes, rng: random.Random) -> bytes:
    """Another word of the file, or anything, in the place of a word."""
    words = WORD.findall(content[:100_000]) or [b"x"]
    return _replace(content, WORD, rng.choice([rng.choice(words).decode(), rng.choice(OTHERS + NUMBERS)]), rng)


def swap_numbers(content: bytes, rng: random.Random) -> bytes:
    """Two numbers change places."""
    found = list(NUMBER.finditer(content))
    if len(found) < 2:
        return content
    a, b = sorted(rng.sample(found, 2), key=lambda match: match.start())
    return content[: a.start()] + b[0] + content[a.end() : b.start()] + a[0] + content[b.end() :]


def change_value(content: bytes, rng: random.Random) -> bytes:
    """A value in JSON becomes another one's, or of another kind, or goes; elsewhere a line goes, or stands twice."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        lines = content.splitlines(keepends=True) or [b""]
        at = rng.randrange(len(lines))
        return b"".join(lines[:at] + rng.choice([[], [lines[at]] * 2, [rng.choice(lines)]]) + lines[at + 1 :])
    places = [(parent, key) for parent in _containers(document) for key in _keys(parent)]
    if not places:
        return content
    (parent, key), (other, where) = rng.choice(places), rng.choice(places)
    deep: Any = 1
    for _ in range(rng.choice([3, 2000])):
        deep = [deep]
    if rng.random() < 0.2:
        del parent[key]
    else:
        # text, since a value put into itself would have no end
        value = json.dumps(rng.choice([other[where], None, True, "x", [], {}, [parent[key]], -1, 0, 10**30, 1.5]))
        parent[key] = deep if rng.random() < 0.05 else json.loads(value)
    try:
        return json.dumps(document).encode()
    except RecursionError:
        return b"[" * 100_000


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _containers(inner)


def _keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else list(range(len(value)))


def _replace(content: bytes, pattern: re.Pattern[bytes], new: str, rng: random.Random) -> bytes:
    found = list(pattern.finditer(content))
    if not found:
        return content
    match = rng.choice(found)
    return content[: match.start()] + new.encode() + content[match.end() :]


CHANGES = [
    change_byte,
    cut,
    repeat,
    change_number,
    change_number,
    change_word,
    swap_numbers,
    change_value,
    change_value,
]


class TooSlow(Exception):
    """A file took longer than `LIMIT`."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `TooSlow` after so long."""

    def stop(*_: Any) -> None:
        raise TooSlow(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def one(kind: str, seed: int, number: int, seeds: dict[str, bytes], folder: Path) -> tuple[str, str]:
    """Damage and read one file: ``"read"``, ``"refused"`` or ``"wrong"``, and the message or the traceback."""
    rng = random.Random(f"{kind} {seed} {number}")
    name = rng.choice(sorted(seeds))
    path = folder / name
    path.write_bytes(damaged(seeds[name], rng))
    try:
        with limited(LIMIT), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("default", qm.QueueModelWarning)
            FORMATS[kind].check(path, rng.random() < 0.1)
    except qm.QueueModelError as error:
        text = str(error)
        good = "\n" not in text and "\r" not in text and 0 < len(text) < 2000
        return ("refused" if good else "wrong"), f"{name}: {type(error).__name__}: {text}"
    except Exception:
        return "wrong", f"{name}: {traceback.format_exc()}"
    return "read", name


def check_seeds(kind: str, seeds: dict[str, bytes], folder: Path) -> None:
    """The good files are good (and whatever has to be compiled is compiled before anything is timed)."""
    for name, content in seeds.items():
        (folder / name).write_bytes(content)
        FORMATS[kind].check(folder / name, True)


@click.command()
@click.option("--format", "kinds", type=click.Choice(list(FORMATS)), multiple=True, help="One or more.  [default: all]")
@click.option("--count", type=click.IntRange(1), default=10_000, show_default=True, help="Files of each format.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--only", type=int, help="This file only, and keep it in the folder it is run in.")
def main(kinds: tuple[str, ...], count: int, seed: int, only: int | None) -> None:
    """Read damaged files of every format."""
    failed = False
    for kind in kinds or FORMATS:
        seeds, outcomes = FORMATS[kind].seeds(), Counter[str]()
        with tempfile.TemporaryDirectory() as folder:
            check_seeds(kind, seeds, Path(folder))
            numbers = range(count) if only is None else [only]
            for number in tqdm(numbers, desc=kind, unit="file", disable=None):
                where = Path(folder) if only is None else Path.cwd()
                outcome, text = one(kind, seed, number, seeds, where)
                outcomes[outcome] += 1
                if outcome == "wrong" or only is not None:
                    tqdm.write(f"{kind} --seed {seed} --only {number}: {outcome}: {text}", file=sys.stdout)
        print(f"{kind}: {', '.join(f'{n} {outcome}' for outcome, n in sorted(outcomes.items()))}", flush=True)
        failed |= bool(outcomes["wrong"])
    sys.exit(failed)


if __name__ == "__main__":
    main()
