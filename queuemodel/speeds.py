"""Speeds of a workload's jobs from profiles: what `queuemodel.scheduling.read_workload` asks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import ModelError, QueueModelWarning
from .prediction import load, predict
from .strategies.half_synchronous import in_closed_network
from .training import Profile, ThroughputCurve
from .training.scenario import FIELDS, KINDS, number_in

#: Settings of `predict` beside fields of `Scenario`.
SETTINGS: dict[str, Callable[[str], Any]] = {"method": str, "seed": number_in}


def curve_of(path: Path, most: int, settings: dict[str, str]) -> ThroughputCurve:
    """Predict a job's speeds on 1 to ``most`` nodes, each worker or rank on one, from what was measured at ``path``.

    ``settings`` are those of `queuemodel.prediction.predict`, as text: ``{"strategy": "sync-ps", "bandwidth":
    "10Gbit/s"}``. Recorded steps are solved as a closed network, if that knows the strategy, unless ``method`` asks for
    something else. Throughputs for which no strategy is given warn of that which is assumed.
    """
    asked: dict[str, Any] = {}
    for name, text in settings.items():
        if name not in SETTINGS and name not in FIELDS:
            raise ModelError(f"{name} is no setting of a prediction; give some of {', '.join([*FIELDS, *SETTINGS])}")
        asked[name] = SETTINGS[name](text) if name in SETTINGS else KINDS[name](text, name)
    data = load(path)
    closed = in_closed_network(asked.get("strategy"), asked.get("backup_workers"))
    if isinstance(data, Profile) and data.steps and closed:
        asked.setdefault("method", "mva")
    k = asked.get("k", 1)
    least = {"k-sync": k, "k-async": k, "sync-ps": 1 + asked.get("backup_workers", 0)}.get(asked.get("strategy", ""), 1)
    curve = predict(data, workers=range(least, most + 1), **asked)
    if curve.assumption:
        warnings.warn(f"{path}: {curve.assumption}", QueueModelWarning, stacklevel=2)
    return curve
