"""From steps recorded on parameter servers: what the rounds of the same job would be, if its ranks reduced instead."""

from __future__ import annotations

import numpy as np

from ..errors import FitError
from ..traces.links import estimate_links
from ..training import Profile
from ..training.operations import Operation
from .round_fit import FittedRounds
from .round_network import LATENCY, LATENCY_FACTOR
from .schemes import Buckets

#: Relative error of taking a link of a parameter server for one of a ring (assumed).
OTHER_TRAFFIC = 0.05


def rounds_of_steps(profile: Profile) -> FittedRounds:
    """What recorded steps tell of data-parallel rounds of the same job.

    A rank computes what a worker did, without fetching: a gradient is ready after as much computation as was done when
    its push could begin. Links carry what they carried between worker and server; latency is assumed, the update takes
    what it took at the server, and buckets are DistributedDataParallel's.

    Raises
    ------
    FitError
        When the steps have no operations, or nothing is pushed.
    """
    steps = [_ready(step.operations) for step in profile.steps if step.operations]
    if not steps or not steps[0][0]:
        raise FitError(
            "strategy all-reduce: steps on parameter servers tell it by their operations, gradients among them; import "
            "them from traces, or the traces of data-parallel ranks"
        )
    names = [name for name in steps[0][0] if all(name in ready for ready, _ in steps)]
    ready = np.array([[found[name][0] for name in names] for found, _ in steps])
    order = np.argsort(ready.mean(axis=0), kind="stable")
    ready = np.maximum.accumulate(ready[:, order], axis=1)
    sizes = np.array([steps[0][0][names[i]][1] for i in order], dtype=float)
    computed = np.array([seconds for _, seconds in steps])
    links, buckets = estimate_links(profile), Buckets()
    rate = min(links.transmit.rate, links.receive.rate)
    update = float(profile.values("update").mean())
    return FittedRounds(
        job=profile.job,
        ready=ready[:, buckets.ends(sizes)],
        computed=computed,
        tail=update,
        alone=float(computed.mean()) + update,
        bucket_bytes=buckets.units(sizes),
        gradients=(sizes, ready.mean(axis=0)),
        at_once=1,
        bandwidth=rate,
        latency=LATENCY,
        covariance=np.diag([OTHER_TRAFFIC**2, np.log(LATENCY_FACTOR) ** 2]),
        latency_known=False,
        nominal=profile.cluster.bandwidth,
        ranks=0,
        paces=(),
    )


def _ready(operations: list[Operation]) -> tuple[dict[tuple[str, int], tuple[float, int]], float]:
    """Each push by its name and server: computation that must be done before it (s), and its bytes; and all of it."""
    begin, end = _busy([(one.start, one.end) for one in operations if one.kind == "compute"])
    done = np.append(0.0, np.cumsum(end - begin))

    def until(moment: float) -> float:
        at = int(np.searchsorted(begin, moment, side="right"))
        return float(done[at] - max(end[at - 1] - moment, 0.0)) if at else 0.0

    found = {}
    for one in operations:
        if one.kind == "push":
            before = [operations[i].end for i in one.after if operations[i].kind == "compute"]
            found[one.name, one.server] = until(max(before, default=one.start)), one.bytes
    return found, float(done[-1])


def _busy(spans: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Union of spans, as beginnings and ends in order."""
    merged: list[list[float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    pairs = np.array(merged).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
