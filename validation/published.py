"""Published scaling series: throughput against numbers of nodes, by strategy."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from queuemodel import Measurement, read_measurements
from queuemodel.models import predict
from queuemodel.models.scaling.model import Strategy

from .nccl import AWS
from .series import HERE, Comparison, read_measured, series_folders

PUBLISHED = HERE / "data" / "published_scaling.json"
LATER = HERE / "data" / "later_scaling.json"
CLOUD = HERE / "data" / "cloud_async_ps.json"
CLUSTERS = HERE / "data" / "clusters.json"
SHARDED = HERE / "data" / "sharded_scaling.json"
KINDS: dict[str, Strategy] = {"async PS": "async-ps", "sync PS": "sync-ps", "all-reduce": "all-reduce"}

#: Cloud series are fitted on this many workers at most, and judged on more.
FITTED_WORKERS = 4

#: Other names of a source: the same authors.
SAME = {"cake-lab/transient-deep-learning": "cloud"}

#: Models most of whose parameters are embeddings.
EMBEDDINGS = ("CTR-DNN", "DeepFM", "LM-1B", "Word2Vec")


@dataclass(frozen=True)
class Scaling:
    """A series of one job.

    Attributes
    ----------
    source, name : str
        Series of one source share hardware, software and authors; they are left out together.
    kind : Strategy
    nodes, throughput : ndarray, shape (n,)
        Machines, the smallest first (of several points of as many machines, the one with most devices); steps per
        second of the whole group, of published series relative to the smallest group's.
    servers : int
    parameter_bytes : int or None
    link : float or None
        Bytes per second of each host's, where that is known.
    sparse : bool
        Whether most parameters are embeddings.
    ranks_per_node : int
        Devices of each machine, of all-reduces on several.
    later : bool
        Whether it was collected when the prior existed.
    """

    source: str
    name: str
    kind: Strategy
    nodes: np.ndarray
    throughput: np.ndarray
    servers: int = 1
    parameter_bytes: int | None = None
    link: float | None = None
    sparse: bool = False
    ranks_per_node: int = 1
    later: bool = False

    @property
    def workers(self) -> np.ndarray:
        """As `fit` counts them."""
        return self.nodes * self.ranks_per_node

    def points(self, which: Sequence[bool] | np.ndarray | slice = slice(None)) -> list[Measurement]:
        """Measured throughputs, as `fit` takes them."""
        return [
            Measurement(workers=int(n), steps_per_second=float(x), parameter_servers=self.servers)
            for n, x in zip(self.workers[which], self.throughput[which], strict=True)
        ]


def published(*, on_one_host: bool = False) -> list[Scaling]:
    """What others measured, without what the notes doubt and what varies the servers alone.

    Of several machines; or of one, whose devices are what is counted.
    """
    found = []
    for later, one in (
        (file == LATER, one) for file in (PUBLISHED, LATER) for one in json.loads(file.read_text())["series"]
    ):
        if one["doubt"] or one["kind"] == "servers-sweep" or (one["max_nodes"] == 1) != on_one_host:
            continue
        machines = (not on_one_host and one["nodes"]) or [n for n, _ in one["points"]]
        by_machines = {m: x for m, (_, x) in sorted(zip(machines, one["points"], strict=True), key=lambda p: p[1][0])}
        if len(by_machines) > 1:
            nodes = sorted(by_machines)
            values = np.array([by_machines[n] for n in nodes]) / by_machines[nodes[0]]
            source = one["source"].split("@")[0]
            source = SAME.get(source, source)
            sparse = one["model"].startswith(EMBEDDINGS)
            servers = one["servers"] if isinstance(one["servers"], int) else 1  # others vary or are not told
            kind = KINDS[one["class"]]
            ranks = one["gpus_per_node"] if kind == "all-reduce" and one["nodes"] and not on_one_host else 1
            found.append(
                Scaling(
                    source, one["id"], kind, np.array(nodes), values,
                    servers=servers, sparse=sparse, ranks_per_node=ranks, later=later,
                )
            )  # fmt: skip
    return found


def cloud() -> list[Scaling]:
    """Asynchronous training on cloud GPUs."""
    return [
        Scaling(
            "cloud", one["name"], "async-ps", np.array(one["workers"]), np.array(one["x"]),
            servers=int(one["name"].rsplit("-", 1)[1].removesuffix("ps")), parameter_bytes=4 * one["params"],
        )
        for one in json.loads(CLOUD.read_text())["series"]
    ]  # fmt: skip


def clusters() -> list[Scaling]:
    """Data-parallel jobs on clusters of one worker per node."""
    return [
        Scaling(re.split("[@ ]", one["source"])[0], one["id"], "all-reduce", *np.array(one["points"], dtype=float).T)
        for one in json.loads(CLUSTERS.read_text())["series"]
    ]


def sharded() -> list[dict[str, Any]]:
    """Jobs that shard their parameters: source, name, kind, number of parameters, and measurements.

    With tensor parallelism in each node, a node is a worker.
    """
    found = []
    for one in json.loads(SHARDED.read_text())["series"]:
        if not one["doubt"]:
            g, together = one["gpus_per_node"], one["gpus_per_node"] if one["strategy"].startswith("TP") else 1
            batch = one["batch_per_gpu"] * together * (one["sequence_length"] if one["unit"] == "tokens/s" else 1)
            rows = tuple(
                Measurement(workers=n // together, nodes=max(n // g, 1), batch_size=batch, steps_per_second=x / batch)
                for n, x in one["points"]
            )
            kind = "hsdp" if one["strategy"].startswith("HYBRID") else "fsdp"
            found.append(
                {
                    "source": one["source"],
                    "name": one["id"],
                    "kind": kind,
                    "parameters": one["parameters"],
                    "rows": rows,
                }
            )
    return found


def applications() -> dict[str, list[Measurement]]:
    """Steps by placement of Pollux's applications on T4 GPUs (Qiao et al., OSDI 2021)."""
    return {path.stem: [*read_measurements(path)] for path in sorted((HERE / "data" / "pollux").glob("*.csv"))}


def full_nodes(gpus: int) -> list[Scaling]:
    """Pollux's applications on full nodes of T4 GPUs, of each batch size that was measured on one and two."""
    found = []
    for name, points in applications().items():
        times: dict[int, dict[int, float]] = defaultdict(dict)
        for point in points:
            if point.fullest_node == gpus and point.workers == gpus * (point.nodes or 0):
                times[point.batch_size or 1][point.nodes or 0] = point.step_time
        for size, own in times.items():
            nodes = np.array(sorted(n for n in own if n < 3 or n >= 6))
            if len(nodes) > 2 and nodes[1] == 2:
                X = nodes / np.array([own[n] for n in nodes])
                found.append(Scaling("Pollux", f"{name} {size}", "all-reduce", nodes, X, ranks_per_node=gpus))
    return found


def compare_cloud() -> list[Comparison]:
    """Predict each cloud series beyond the workers it is fitted on, from throughputs alone."""
    found = []
    for job in cloud():
        judged = job.nodes > FITTED_WORKERS
        curve = predict(job.points(~judged), workers=job.nodes.tolist())
        found.append(Comparison(job.name, "throughputs", job.nodes[judged], job.throughput[judged], curve))
    return found


def testbed() -> list[Scaling]:
    """Asynchronous training on the project's testbeds."""
    jobs = [(folder, json.loads((folder / "job.json").read_text())) for folder in series_folders()]
    return [
        Scaling(
            "testbed", f"{folder.parent.name}/{folder.name}", "async-ps", *read_measured(folder),
            servers=job["parameter_servers"], parameter_bytes=job["model_bytes"], link=1e6 / 8 * job["bandwidth_mbit"],
        )
        for folder, job in jobs
    ]  # fmt: skip


Key = tuple[str, str]


def placed(nodes: int, gpus: int, step_time: float, batch_size: int = 1) -> Measurement:
    """A step time of GPUs on nodes."""
    return Measurement(workers=gpus, nodes=nodes, batch_size=batch_size, steps_per_second=gpus / step_time)


@cache
def jobs() -> dict[Key, list[Measurement]]:
    """What was measured on one GPU, on two nodes and on more, by cluster and job."""
    found = {("Pollux, T4", name): points for name, points in applications().items()}
    found |= {("Sia, RTX", p.stem): [*read_measurements(p)] for p in sorted((HERE / "data" / "rtx").glob("*.csv"))}
    for job in json.loads(AWS.read_text()):
        if job["reducer"] == "NoneAllReducer":
            steps = {int(nodes): row["step"] for nodes, row in job["by_nodes"].items()}
            found["Gradient-Compression, AWS", f"{job['instance'][:2].lower()} {job['model']}"] = [
                placed(n, n, step, batch_size=job["batch_size"]) for n, step in steps.items()
            ]
    for one in (one for file in (CLUSTERS, PUBLISHED, LATER) for one in json.loads(file.read_text())["series"]):
        dense = one.get("class", "all-reduce") == "all-reduce" and not one["model"].startswith(EMBEDDINGS)
        if not dense or one.get("doubt"):
            continue
        gpus = [int(n) for n, _ in one["points"]]
        nodes = [int(n) for n in one.get("nodes") or gpus]
        if 1 in gpus and 2 in nodes and max(nodes) > 2:
            cluster = one["source"].split("@")[0].split(" ")[0]
            found[cluster, one["id"]] = [
                placed(k, n, n / x * one["points"][0][1])
                for k, n, (_, x) in zip(nodes, gpus, one["points"], strict=True)
            ]
    return found


def far_of(points: Sequence[Measurement]) -> list[Measurement]:
    """What is to be predicted: as curves have them, on as few nodes as the GPUs fit."""
    return [p for p in points if p.nodes > 2 and p.nodes == -(-p.workers // p.fullest_node)]
