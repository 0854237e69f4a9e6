"""What a page needs to recompute a curve of the closed network without Python (`queuemodel.report`)."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import ModelError
from ..base.estimates import normal_quantile
from ..base.files import constants
from ..curves.page import MOST_WORKERS
from ..profile.bandwidth import LINK_EFFICIENCY
from ..profile.scenario import Scenario
from ..transport import sharing
from .demands import FORMS
from .rules import MOST_LEVELS

if TYPE_CHECKING:
    from .demands import Demands

#: A model, which writes its recipe with these functions and so is imported after them.
TrainingModel = Any

#: Numbers of servers that a page may ask for.
MOST_SERVERS = 8

#: Machines on which nothing was measured.
ELSEWHERE = Scenario(accelerator_speed=2.0)

DEMANDS = ("fetch", "push", "update", "worker")


def obstacle(model: TrainingModel) -> str:
    """Why a page cannot recompute the model's curve; empty when it can."""
    reasons = {
        "workers or results wait for each other": model.in_rounds,
        "the workers differ": model.scenario.worker_speeds is not None,
    }
    return next((why for why, so in reasons.items() if so), "")


def recipe(model: TrainingModel, *, workers: int, confidence: float) -> dict[str, Any]:
    """Numbers from which mean-value analysis gives what `TrainingModel.what_if` and its `throughput` give."""
    fitted, recorded = model.fitted, model.fitted.recorded
    most = max(workers, MOST_WORKERS)
    nominal = recorded.bandwidth
    links = [None if nominal is None else size / (LINK_EFFICIENCY * nominal) for size in recorded.transferred]
    return {
        "demands": _plain(fitted.demands),
        "draws": _plain(fitted.draws),
        "stations": list(FORMS[fitted.servers.form]),
        "phases": list(FORMS[fitted.servers.form].values()),
        "repulsion": fitted.repulsion,
        "few_flows": _flights(fitted.few_flows),
        "few_flows_if_bbr": _flights(fitted.few_flows_if_bbr),
        "most_levels": MOST_LEVELS,
        "compute": recorded.compute,
        "transferred": recorded.transferred,
        "link_seconds": links,
        "link_efficiency": LINK_EFFICIENCY,
        "bandwidth": nominal if nominal and math.isfinite(nominal) else None,
        "batch_size": fitted.job.batch_size,
        "most_workers": most,
        "confidence": confidence,
        "reach": normal_quantile(confidence),
        "elsewhere": float(replace(model, scenario=ELSEWHERE).own_error(np.array([1]), math.inf)[0]),
        "servers": {count: _servers(model, count, most, confidence) for count in _counts(model)},
        "settings": {
            "parameter_servers": model.servers.count,
            "bandwidth": model.scenario.bandwidth,
            "accelerator_speed": model.scenario.accelerator_speed or 1.0,
            "batch_size": model.job.batch_size,
        },
    }


def _flights(few_flows: sharing.FewFlows | None) -> dict[str, Any] | None:
    numbers = constants(sharing.__package__)
    return (
        asdict(few_flows) | {"bytes": numbers["in_flight_bytes"], "seconds": numbers["in_flight_seconds"]}
        if few_flows
        else None
    )


def _plain(demands: Demands) -> dict[str, Any]:
    return {name: getattr(demands, name).tolist() for name in DEMANDS}


def _counts(model: TrainingModel) -> list[int]:
    """Numbers of servers that the tensors can be dealt to."""
    found = {model.servers.count, model.fitted.servers.count}
    for count in range(1, MOST_SERVERS + 1):
        try:
            model.what_if(parameter_servers=count)
        except ModelError:
            break
        found.add(count)
    return sorted(found)


def _servers(model: TrainingModel, count: int, most: int, confidence: float) -> dict[str, Any]:
    """So many servers on machines that are otherwise as profiled; errors, and bends, for 1 to ``most`` workers."""
    shards = model.scenario.shards if count == model.servers.count else None
    there = replace(model, scenario=Scenario(parameter_servers=None if shards else count, shards=shards))
    saturation = there.throughput([1]).saturation_workers
    return {
        "shards": there.shards,
        "profiled_workers": there.profiled_workers,
        "measured": there.measured,
        "error": there.own_error(np.arange(1, most + 1), saturation) if there.profiled_workers else [],
        "discrepancy": there.discrepancy and there.discrepancy.factors(np.arange(1, most + 1), confidence),
        "method": there.rule.method,
    }
