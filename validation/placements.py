"""Steps by placement: learn the law's prior, and judge it on clusters that it was not learnt from.

python -m validation.placements [--write]

prints a section of validation/results.md; ``--write`` learns queuemodel/models/placements.toml from all clusters.
Jobs of one cluster share hardware, software and authors: each cluster counts as one job, and is left out as a whole.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

import queuemodel.models.placements
from queuemodel import PlacedStep, fit_placements, read_placements
from queuemodel.base.files import write_atomically
from queuemodel.models import PlacementModel
from queuemodel.models.placements import LAW, Assumed

from .nccl import AWS
from .published import CLUSTERS, EMBEDDINGS, LATER, PUBLISHED, applications
from .series import HERE

FILE = Path(queuemodel.models.placements.__file__).with_suffix(".toml")

#: What is learnt: where the law has it, its name in the table and unit, mean and spread before anything is learnt; and
#: how many clusters that spread is worth. That of the third node has the best interval score, of 0.2, 0.4 and 0.6, on
#: clusters left out.
LEARNT = {
    4: ("third_node", "logarithm of the all-reduce on three nodes relative to a ring's", 0.0, 0.4),
    6: ("growth", "exponent of the nodes beyond three, beyond a ring's", 0.0, 0.15),
}
PSEUDO_CLUSTERS = 2.0

Key = tuple[str, str]


@cache
def jobs() -> dict[Key, list[PlacedStep]]:
    """What was measured on one GPU, on two nodes and on more, by cluster and job."""
    found = {("Pollux, T4", name): points for name, points in applications().items()}
    found |= {("Sia, RTX", p.stem): read_placements(p) for p in sorted((HERE / "data" / "rtx").glob("*.csv"))}
    for job in json.loads(AWS.read_text()):
        if job["reducer"] == "NoneAllReducer":
            steps = {int(nodes): row["step"] for nodes, row in job["by_nodes"].items()}
            found["Gradient-Compression, AWS", f"{job['instance'][:2].lower()} {job['model']}"] = [
                PlacedStep(nodes=n, gpus=n, batch_size=job["batch_size"], step_time=step) for n, step in steps.items()
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
                PlacedStep(nodes=k, gpus=n, batch_size=1, step_time=n / x * one["points"][0][1])
                for k, n, (_, x) in zip(nodes, gpus, one["points"], strict=True)
            ]
    return found


@cache
def _told(key: Key) -> np.ndarray:
    """Of each learnt parameter, what a job's measurements tell: mean and variance of their likelihood, shape (n, 2)."""
    law = [one._replace(mean=0.0, spread=1.0) if i in LEARNT else one for i, one in enumerate(LAW)]
    draws = fit_placements(jobs()[key], law=law).draws[:, -len(LAW) :][:, list(LEARNT)]
    precision = np.maximum(1.0 / draws.var(axis=0) - 1.0, 0.01)  # without the prior's
    return np.column_stack([draws.mean(axis=0) / draws.var(axis=0) / precision, 1.0 / precision])


@cache
def learn(without: str = "") -> tuple[Assumed, ...]:
    """The law with means and spreads over clusters: maxima of the jobs' likelihood, by expectation maximization."""
    keys = [key for key in jobs() if key[0] != without]
    sizes = Counter(cluster for cluster, _ in keys)
    weight = np.array([1.0 / sizes[cluster] for cluster, _ in keys])
    law, told = list(LAW), np.array([_told(key) for key in keys])
    for j, (i, (_, _, mean, start)) in enumerate(LEARNT.items()):
        found, error = told[:, j].T
        spread = start
        for _ in range(300):
            variance = 1.0 / (1.0 / error + 1.0 / spread**2)
            value = variance * (found / error + mean / spread**2)
            mean = weight @ value / weight.sum()
            squares = weight @ (variance + (value - mean) ** 2) + PSEUDO_CLUSTERS * start**2
            spread = (squares / (weight.sum() + PSEUDO_CLUSTERS)) ** 0.5
        law[i] = law[i]._replace(mean=round(float(mean), 3), spread=round(float(spread), 3))
    return tuple(law)


def write() -> None:
    """Write the table of the learnt numbers."""
    sizes = Counter(cluster for cluster, _ in jobs())
    counts = ", ".join(f"{name} ({n})" for name, n in sorted(sizes.items()))
    source = f"jobs of each cluster in validation/data: {counts}"
    text = "# What clusters are like beyond two nodes: mean and standard deviation (queuemodel.models.placements).\n"
    for i, (name, unit, _, _) in LEARNT.items():
        one = learn()[i]
        text += f'\n[{name}]\nvalue = [{one.mean}, {one.spread}]\nunit = "{unit}"\nsource = {json.dumps(source)}\n'
        text += f'command = "python -m validation.placements --write"\ndate = {datetime.date.today()}\n'
    write_atomically(FILE, text)


def fit_near(key: Key) -> PlacementModel:
    """The model from what stands on one and two nodes, with a prior that was not learnt from the job's cluster."""
    return fit_placements([point for point in jobs()[key] if point.nodes <= 2], law=learn(key[0]))


def far_of(points: Sequence[PlacedStep]) -> list[PlacedStep]:
    """What is to be predicted: as curves have them, on as few nodes as the GPUs fit."""
    return [p for p in points if p.nodes > 2 and p.nodes == -(-p.gpus // p.gpus_per_node)]


def judge(model: PlacementModel, points: Sequence[PlacedStep]) -> np.ndarray:
    """Relative errors of throughput, and whether the measurement is inside the 90 % interval; shape (2, n)."""
    found = []
    for share, batch in sorted({(point.gpus_per_node, point.batch_size) for point in points}):
        own = [p for p in points if (p.gpus_per_node, p.batch_size) == (share, batch)]
        curve = model.throughput(sorted({p.gpus for p in own}), gpus_per_node=share, batch_size=batch)
        at = np.searchsorted(curve.workers, [p.gpus for p in own])
        x = np.array([p.gpus / p.step_time for p in own])
        inside = (curve.lower[at] <= x) & (x <= curve.upper[at])
        found.append([curve.steps_per_second[at] / x - 1, inside])
    return np.concatenate(found, axis=1)


SECTION = """## Steps by placement, on clusters that the prior was not learnt from

Data-parallel jobs (`validation/data`), from all placements on one and two nodes to those on three and more, by
`queuemodel.fit_placements` with a prior learnt from all other clusters (`python -m validation.placements`). Errors are
of throughput, means over measurements and then over jobs; *covered* is the share inside 90 % intervals.

| cluster | job | measurements | mean error | bias | covered |
|---|---|---|---|---|---|
"""


@cache
def judged() -> dict[Key, np.ndarray]:
    """Errors, and whether measurements are inside the interval, by cluster and job."""
    return {key: judge(fit_near(key), far_of(points)) for key, points in jobs().items()}


def by_cluster() -> list[tuple[float, float]]:
    """Mean absolute error and coverage of each cluster, over its jobs."""
    found: dict[str, list[tuple[float, float]]] = {}
    for (cluster, _), (errors, inside) in judged().items():
        found.setdefault(cluster, []).append((abs(errors).mean(), inside.mean()))
    return [tuple(np.mean(own, axis=0)) for own in found.values()]


def placements_section() -> str:
    """Markdown: how far off, by cluster and together; jobs of clusters with many measurements each."""
    text, rows = SECTION, []
    for cluster in dict.fromkeys(cluster for cluster, _ in judged()):
        own = {job: found for (name, job), found in judged().items() if name == cluster}
        told = {job: np.array([abs(e).mean(), e.mean(), inside.mean()]) for job, (e, inside) in own.items()}
        count = sum(found.shape[1] for found in own.values())
        rows.append(np.mean(list(told.values()), axis=0))
        shown = told if count > 10 * len(own) else {}
        for job, row in [*shown.items(), (f"**{len(own)}**", rows[-1])]:
            number = own[job].shape[1] if job in own else count
            text += f"| {cluster} | {job} | {number} | {row[0]:.1%} | {row[1]:+.1%} | {row[2]:.0%} |\n"
    mean = np.mean(rows, axis=0)
    return f"{text}| **all**, by cluster | **{len(judged())}** | | {mean[0]:.1%} | {mean[1]:+.1%} | {mean[2]:.0%} |\n"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write()
    print(placements_section())
