"""Data-parallel series: rounds per second of many ranks from the traces of one and two."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from queuemodel.adapters.pytorch import read_traces
from queuemodel.prediction import predict

from .series import Comparison

SERIES = Path(__file__).parent.parent / "tests" / "data" / "ddp"


def compare_data_parallel() -> list[Comparison]:
    """Each recorded series, judged on more ranks than were traced."""
    found = []
    for folder in sorted(path for path in SERIES.iterdir() if path.is_dir()):
        points = [one for one in json.loads((folder / "measured.json").read_text()) if one["workers"] > 2]
        workers = np.array([one["workers"] for one in points])
        measured = workers * np.array([one["group_steps_per_s"] for one in points])
        profile = read_traces([folder / "trace_n1", folder / "trace_n2"], batch_size=1)
        curve = predict(profile, workers=workers.tolist())
        found.append(Comparison("data-parallel", folder.name, "all-reduce", workers, measured, curve))
    return found
