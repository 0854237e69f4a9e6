"""From a table of measurements, or a profile that has no more, to the model: when there is one, and how it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import msgspec

from ...base.errors import FitError, ModelError
from ...profile.job import Job
from ...profile.measurements import MEASURED_ALONE, Measurement
from ...profile.profile import Profile
from ...profile.scenario import SHARDED, Scenario, of_group
from ...profile.throughputs import as_throughputs, on_profiled_links, warn_of_rounds
from ..model import OTHER_DATA, Data, changes_of, on_nodes, strategy_of
from .model import ScalingModel, Strategy, fit_scaling

METHOD, NEEDS = "", "a table of measurements"
#: What is assumed of throughputs alone where no strategy is given.
ASSUMED = "assuming asynchronous parameter servers (async-ps), not data-parallel (all-reduce)"
#: What may be known of gathers.
GATHERED = ("parameters", "layers", "precision", "gathers")
#: What may be known of throughputs alone besides, by way of training.
TABLE_FIELDS: dict[str, tuple[str, ...]] = {
    "async-ps": ("batch_size", "parameter_bytes"),
    "sync-ps": ("batch_size", "parameter_bytes", "sparse_gradients"),
    "all-reduce": ("batch_size", "parameter_bytes", "sparse_gradients"),
    **dict.fromkeys(SHARDED, ("batch_size", *GATHERED)),
}


def refuses(data: Data, question: Scenario) -> str:
    """See `ModelKind`."""
    if isinstance(data, Profile) and (data.steps or data.rounds):
        return OTHER_DATA
    if strategy_of(data, question) in TABLE_FIELDS and not question.backup_workers:
        return ""
    return f"{'with backup workers ' * bool(question.backup_workers)}needs a profile with recorded steps; record one"


def of(data: Data, question: Scenario, measured: Sequence[Measurement], *, seed: int) -> ScalingModel:
    """See `ModelKind`."""
    strategy, profile = strategy_of(data, question), data if isinstance(data, Profile) else None
    if profile and (own := question.of(TABLE_FIELDS["async-ps"])):
        raise ModelError(f"{next(iter(own))} applies to tables of measurements; a profile has its own")
    if of_network := question.of(of_group("network")):
        raise ModelError(f"{next(iter(of_network))} does not apply to measurements alone; leave it out")
    if question.form:
        raise ModelError("form applies to steps on parameter servers alone; leave it out")
    if MEASURED_ALONE in getattr(data, "note", "") and (own := question.of(GATHERED)):
        raise ModelError(f"{next(iter(own))} needs the seconds of a step; give batch_size (and sequence_length)")
    measured = as_throughputs([*(data.throughputs if isinstance(data, Profile) else data), *measured])
    if not measured:
        raise FitError("fit: at least one measurement is needed, got none")
    if profile:
        measured = on_profiled_links(measured, profile)
    links, profiled = {point.bandwidth for point in measured}, profile.cluster.bandwidth if profile else None
    if len(links) > 1 or (profiled is not None and links != {None}):
        raise FitError("fit: measurements alone do not determine the effect of bandwidth; give those of one bandwidth")
    link, placed = next(iter(links), None) or profiled, on_nodes(measured)
    g = question.gpus_per_node or max(p.fullest_node for p in measured)
    whole = bool(question.gpus_per_node) and not placed and strategy not in SHARDED
    if whole and (wrong := next((p for p in measured if p.workers % g), None)):
        raise FitError(
            f"fit: workers are ranks on whole nodes of {g} (gpus_per_node), got a measurement of {wrong.workers}; "
            "leave groups inside a node out, or give a column nodes"
        )
    sizes = {point.batch_size for point in measured if point.batch_size}
    sized, size = bool(sizes), question.batch_size or (min(sizes) if len(sizes) == 1 else None)
    rows = [msgspec.structs.replace(p, bandwidth=None) for p in measured]
    if placed or question.gpus_per_node:  # those without nodes are on as few as they fit
        rows = [
            p if p.nodes else msgspec.structs.replace(
                p, nodes=-(-p.workers // g), gpus_per_node=min(p.workers, g), batch_size=p.batch_size or size
            )
            for p in rows
        ]  # fmt: skip
    job = profile.job if profile else None
    if job is None and not sized:
        bytes_known = int(question.parameter_bytes or 0)
        job = Job(batch_size=question.batch_size or 1, parameter_bytes=bytes_known, tensors=0)
    model = fit_scaling(
        rows,
        strategy=cast(Strategy, strategy),
        sparse_gradients=bool(question.sparse_gradients),
        parameter_bytes=(job.parameter_bytes if job else question.parameter_bytes) or None,
        link=link,
        seed=seed,
        **question.of(GATHERED),
    )
    if strategy != "async-ps" and not getattr(data, "strategy", "") and not on_nodes(data):
        warn_of_rounds(rows)
    assumed = "" if question.strategy else ASSUMED if strategy == "async-ps" else getattr(data, "note", "")
    changes = {name: value for name, value in changes_of(question).items() if sized or name != "batch_size"}
    return replace(model, known_job=job, assumption=assumed).what_if(**changes)
