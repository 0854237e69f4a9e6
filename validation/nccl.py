"""NCCL on clusters of others: how its all-reduces grow with the nodes, and rounds predicted from one node and two.

python -m validation.nccl

prints a section of validation/results.md, and what the table of the models has of it.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from scipy.optimize import least_squares

from queuemodel.models import predict
from queuemodel.profile import Bucket, Cluster, Job, Profile, Round, Source
from queuemodel.transport import NCCL, Algorithm, Link, Ring

from .series import HERE, Comparison

AWS, TESTS = HERE / "data" / "aws_phases.json", HERE / "data" / "nccl_all_reduce.csv"

#: Bytes of messages: small ones, those between, where NCCL changes its protocols, and large ones.
SMALL, LARGE = 2**16, 2**22

SECTION = """## NCCL on clusters of others

Rounds of ResNet-50 and VGG-16, whole or compressed gradients in one all-reduce after the backward pass, on one GPU of
each of 1, 2 and 4 EC2 instances (`validation/data/aws_phases.json`): from the phases of one and two instances to four.
No blind test: what links lose at each doubling of the nodes was learnt on two clusters of these, and on the next one.

{rounds}
One all-reduce of 4 bytes to 1 GiB on nodes of 4 A100 (`validation/data/nccl_all_reduce.csv`): latency and bandwidth
fitted to two nodes, predicted over measured times on more, geometric means over sizes, by the law that NCCL's rounds
are given (`NCCL`) and by a ring's.

{times}
"""


def aws_rounds() -> Iterator[tuple[str, Profile, dict[int, float]]]:
    """Of each job its name, the profile of one and two nodes, and seconds of a step by nodes."""
    for job in json.loads(AWS.read_text()):
        steps = {int(nodes): row for nodes, row in job["by_nodes"].items()}
        if not {1, 2, 4} <= set(steps):
            continue
        rounds = []
        for ranks, row in ((n, steps[n]) for n in (1, 2)):
            computed = row["fwd"] + row["bwd"]
            bucket = Bucket(round(row["bytes"]), computed, computed, computed + row["reduce"])
            time = row["step"] if ranks > 1 else row["step"] - row["reduce"]
            rounds += [
                Round(rank=r, ranks=ranks, number=i, round_time=time, computed=computed, buckets=[bucket][: ranks - 1])
                for i in range(9)
                for r in range(ranks)
            ]
        size = round(steps[2]["bytes"])
        profile = Profile(
            source=Source(framework="pytorch", style="nccl"),
            cluster=Cluster(bandwidth=1.25e9),
            job=Job(batch_size=job["batch_size"], parameter_bytes=size, tensors=1),
            rounds=rounds,
        )
        reducer = job["reducer"].removesuffix("Reducer").removesuffix("All")
        name = f"{job['instance'][:2]} {job['model']}, {reducer}"
        yield name, profile, {n: row["step"] for n, row in steps.items()}


def compare_aws() -> list[Comparison]:
    """Each job on four nodes."""
    found = []
    for name, profile, steps in aws_rounds():
        curve = predict(profile, workers=[4])
        found.append(Comparison(name, "all-reduce", np.array([4]), np.array([4 / steps[4]]), curve))
    return found


def all_reduce_times() -> dict[str, dict[int, np.ndarray]]:
    """Rows of bytes and seconds, by NCCL's version and nodes."""
    rows: dict[str, dict[int, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    with TESTS.open() as file:
        for row in csv.DictReader(file):
            rows[row["nccl"]][int(row["nodes"])].append([float(row["bytes"]), float(row["time_us"]) / 1e6])
    return {version: {n: np.array(each).T for n, each in of.items()} for version, of in rows.items()}


def of_two_nodes(law: Algorithm, sizes: np.ndarray, seconds: np.ndarray) -> Link:
    """The link that explains two nodes' times best, by their logarithms."""

    def errors(logs: np.ndarray) -> np.ndarray:
        return np.log(law.time(sizes, 2, Link(np.exp(logs[0]), latency=np.exp(logs[1]))) / seconds)

    bandwidth, latency = np.exp(least_squares(errors, np.log([1e10, 1e-5])).x)
    return Link(float(bandwidth), latency=float(latency))


def nccl_section() -> str:
    """Markdown: rounds, and single all-reduces."""
    rounds = ["| job | error on 4 nodes | inside |", "|---|---|---|"]
    compared = compare_aws()
    rounds += [f"| {c.name} | {c.errors[0]:+.1%} | {'yes' if c.coverage else 'no'} |" for c in compared]
    error, inside = (np.mean([getattr(c, what) for c in compared]) for what in ("error", "coverage"))
    rounds.append(f"| **{len(compared)}** | {error:.1%} | {inside:.0%} |\n")
    times = ["| NCCL | nodes | law | below 64 kB | between | 4 MB and more |", "|---|---|---|---|---|---|"]
    for version, by_nodes in all_reduce_times().items():
        for law in (NCCL(), Ring()):
            link = of_two_nodes(law, *by_nodes[2])
            for n, (sizes, seconds) in by_nodes.items():
                if n > 2:
                    logs = np.log(law.time(sizes, n, link) / seconds)
                    parts = (sizes < SMALL, (sizes >= SMALL) & (sizes < LARGE), sizes >= LARGE)
                    ratios = " | ".join(f"{np.exp(logs[part].mean()):.2f}" for part in parts)
                    times.append(f"| {version} | {n} | {type(law).__name__} | {ratios} |")
    return SECTION.format(rounds="\n".join(rounds), times="\n".join(times))


if __name__ == "__main__":
    print(nccl_section())
