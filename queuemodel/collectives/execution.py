"""The time of a schedule on the links of a topology, which share their bandwidth max-min fairly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import ModelError
from .link import Link
from .schedule import Schedule
from .topology import Topology


def execute(schedule: Schedule, message_bytes: float, link: Link, topology: Topology) -> float:
    """Seconds that a schedule takes on a topology whose links share their bandwidth max-min fairly.

    A message travels after ``latency``; adding it takes ``reduction_time`` per byte, one message after the other at
    each node.

    Raises
    ------
    ModelError
        When the topology has other nodes than the schedule.
    """
    if topology.nodes != schedule.nodes:
        raise ModelError(f"execute: the schedule needs {schedule.nodes} nodes, the topology has {topology.nodes}")
    transfers, after = schedule.transfers, schedule.after
    left = np.array([message_bytes * schedule.share(t) for t in transfers])
    routes = [topology.route(t.source, t.destination) for t in transfers]
    waiting = [len(needs) for needs in after]
    followers: list[list[int]] = [[] for _ in transfers]
    for i, needs in enumerate(after):
        for j in needs:
            followers[j].append(i)
    starts = sorted(((link.latency, i) for i, count in enumerate(waiting) if count == 0), reverse=True)
    free = np.zeros(schedule.nodes)  # until when a node adds
    flowing: list[int] = []
    now, done = 0.0, [0.0] * len(transfers)
    while starts or flowing:
        rates = link.bandwidth * max_min_rates([routes[i] for i in flowing], topology.capacities)
        needed = left[flowing] / rates
        passed = min([*needed, *(max(0.0, time - now) for time, _ in starts[-1:])])
        left[flowing] -= rates * passed
        now += passed
        ended = needed <= passed * (1 + 1e-12)
        arrived = [i for i, here in zip(flowing, ended, strict=True) if here]
        flowing = [i for i, here in zip(flowing, ended, strict=True) if not here]
        for i in arrived:
            t = transfers[i]
            done[i] = now
            if t.reduce and link.reduction_time > 0:
                free[t.destination] = max(free[t.destination], now)
                free[t.destination] += link.reduction_time * message_bytes * schedule.share(t)
                done[i] = free[t.destination]
            for j in followers[i]:
                waiting[j] -= 1
                if waiting[j] == 0:
                    starts.append((max(done[k] for k in after[j]) + link.latency, j))
        starts.sort(reverse=True)
        while starts and starts[-1][0] <= now:
            flowing.append(starts.pop()[1])
    return max(done, default=0.0)


def max_min_rates(routes: Sequence[tuple[int, ...]], capacities: np.ndarray) -> np.ndarray:
    """Max-min fair rates of flows over links, by progressive filling (Bertsekas and Gallager, 1992).

    Parameters
    ----------
    routes : sequence of tuple of int
        The links that each flow crosses.
    capacities : ndarray
        Of each link.

    Returns
    -------
    ndarray
        The rate of each flow.
    """
    on = np.zeros((len(capacities), len(routes)), dtype=bool)
    for flow, route in enumerate(routes):
        on[list(route), flow] = True
    rates, left = np.zeros(len(routes)), np.array(capacities, dtype=float)
    growing = np.ones(len(routes), dtype=bool)
    while growing.any():
        count = (on & growing).sum(axis=1)
        room = np.divide(left, count, out=np.full(len(left), np.inf), where=count > 0)
        least = max(room.min(), 0.0)
        rates[growing] += least
        left -= least * count
        full = (count > 0) & (room <= least * (1 + 1e-12))
        growing &= ~on[full].any(axis=0)
    return rates
