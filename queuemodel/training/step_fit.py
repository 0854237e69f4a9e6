"""A model from profiled steps: how long each machine was busy with one worker."""

from __future__ import annotations

import math

import numpy as np

from .demands import Demands, Form, Servers
from .model import Fitted
from .parameters import Parameter, Recorded
from .profile import Profile

#: How often the profiled steps are resampled.
RESAMPLES = 400

LOOPBACK = ("127.", "localhost", "::1", "[::1]")

PHASES = ("fetch", "push", "update", "step_time")

#: What one worker cannot show.
CONTENTION = Parameter("contention", 1.0, "", origin="assumed", identified=False, note="needs two or more workers")


def fit_steps(profile: Profile, *, form: Form, seed: int) -> Fitted:
    """Each demand is the mean over the steps of the time in which the machine was busy; resampled for the errors."""
    steps = np.column_stack([profile.values(name) for name in PHASES])
    pick = np.random.default_rng(seed).integers(0, len(steps), (RESAMPLES, len(steps)))
    sizes = np.array([profile.values(name).mean() for name in ("fetched_bytes", "pushed_bytes")])
    servers = _servers(profile, form)
    hosts = list(profile.source.hosts.values())
    loopback = bool(hosts) and all(host.startswith(LOOPBACK) for host in hosts)
    scaled = steps[:, :3].mean(axis=0).sum() > steps[:, 3].mean()
    return Fitted(
        demands=_demands(steps.mean(axis=0), sizes, servers.count),
        draws=_demands(steps[pick].mean(axis=1), sizes, servers.count),
        job=profile.job,
        servers=servers,
        recorded=Recorded(
            compute=float(profile.values("compute").mean()),
            transferred=(float(sizes[0]), float(sizes[1])),
            tensor_bytes=_tensor_bytes(profile),
            bandwidth=profile.cluster.bandwidth or (math.inf if loopback else None),
            steps=len(steps),
            workers=profile.cluster.workers,
            note="transfers overlap each other: scaled to the step time" if scaled else "",
        ),
        others=(CONTENTION,),
        note="one worker's steps cannot show what happens when several connections share a link",
    )


def _servers(profile: Profile, form: Form) -> Servers:
    sizes, count = profile.job.shard_bytes, profile.cluster.parameter_servers
    return Servers(form, tuple(size / sum(sizes) for size in sizes) if sum(sizes) else (1.0 / count,) * count)


def _tensor_bytes(profile: Profile) -> tuple[int, ...]:
    """Sizes of the fetched tensors, by name, of the first step that has operations."""
    for step in profile.steps:
        sizes = {op.name: op.bytes for op in step.operations if op.kind == "fetch"}
        if sizes:
            return tuple(sizes[name] for name in sorted(sizes))
    return ()


def _demands(means: np.ndarray, sizes: np.ndarray, servers: int) -> Demands:
    """Demands of mean phases and step times (..., 4), so that they add up to the step."""
    busy, step = means[..., :3].copy(), means[..., 3]
    if servers > 1 and sizes.all():
        # One worker's link slows what several servers send at once; the faster direction shows what a link carries.
        rate = (sizes / np.maximum(busy[..., :2], 1e-300)).max(axis=-1, keepdims=True)
        busy[..., :2] = np.minimum(busy[..., :2], sizes / rate)
    total = busy.sum(axis=-1)
    # Transfers that overlap each other exceed the step: the stations then share it in proportion.
    busy = busy * np.minimum(1.0, step / np.maximum(total, 1e-300))[..., None]
    fetch, push, update = np.moveaxis(busy, -1, 0)
    return Demands(fetch, push, update, np.maximum(step - busy.sum(axis=-1), 0.0))
