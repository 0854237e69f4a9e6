"""Data-parallel series: rounds per second of many ranks from the traces of few."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np

from queuemodel import Profile
from queuemodel.adapters import pytorch, tensorflow
from queuemodel.models import predict
from testbed.recordings import unpacked

from .series import HERE, Comparison

#: Measured elsewhere with a testbed of the same kind, and with ours.
GIVEN, OURS = HERE.parent / "tests" / "data" / "ddp", HERE / "data" / "testbed" / "data_parallel"


def read_ranks(folder: Path) -> Profile:
    """The profile of a recorded series, from its traces: of one rank and of two, of some series of three besides."""
    job = json.loads((folder / "job.json").read_text())
    runs = sorted(folder.glob("trace_n*"))
    known = {"batch_size": 1, "congestion_control": job["tcp"], "buffer": job["latency_ms"] / 1e3}
    if job["framework"].startswith("tensorflow"):
        return tensorflow.read_mirrored(runs, **known, parameter_bytes=job["parameter_bytes"])
    return pytorch.read_pytorch(runs, **known)


def of_two(profile: Profile) -> Profile:
    """What one rank and two tell of it."""
    cluster = msgspec.structs.replace(profile.cluster, workers=2)
    rounds = [one for one in profile.rounds if one.ranks <= 2]
    return msgspec.structs.replace(profile, cluster=cluster, rounds=rounds)


def compare_data_parallel() -> list[Comparison]:
    """Each recorded series, predicted from the traces of one rank and of two, and judged on more."""
    found = []
    for folder in [*sorted(unpacked(GIVEN).iterdir()), *sorted(unpacked(OURS).iterdir())]:
        profile = of_two(read_ranks(folder))
        recorded = profile.cluster.workers
        points = [one for one in json.loads((folder / "measured.json").read_text()) if one["workers"] > recorded]
        workers = np.array([one["workers"] for one in points])
        measured = workers * np.array([one["group_steps_per_s"] for one in points])
        curve = predict(profile, workers=workers.tolist())
        name = folder.name if folder.parent == unpacked(GIVEN) else f"{folder.name} (ours)"
        found.append(Comparison(name, "all-reduce", workers, measured, curve))
    return found
