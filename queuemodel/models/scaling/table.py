"""From a table of measurements, or a profile of throughputs alone, to the model of a question, and why it has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import msgspec

from ...base.errors import FitError, ModelError
from ...profile.bandwidth import contradiction
from ...profile.job import Job
from ...profile.measurements import MEASURED_ALONE, Measurement
from ...profile.profile import Profile
from ...profile.scenario import SHARDED, Scenario, of_group
from ...profile.throughputs import as_throughputs, on_profiled_links, warn_of_rounds
from ..model import OTHER_DATA, Data, changes_of, on_nodes, strategy_of
from .model import ScalingModel, Strategy, fit_scaling

METHOD, NEEDS = "", "a table of measurements"
#: Note on throughputs alone where no strategy is given.
ASSUMED = "assuming asynchronous parameter servers (async-ps), not data-parallel (all-reduce)"
GATHERED = ("parameters", "layers", "precision", "gathers")  #: Fields of a scenario on gathers.
#: Fields of a scenario on tables alone, by strategy.
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
    if profile and (fields := question.of(TABLE_FIELDS["async-ps"])):
        raise ModelError(f"{next(iter(fields))} applies to tables of measurements; a profile has its own")
    if fields := question.of(of_group("network")):
        raise ModelError(f"{next(iter(fields))} does not apply to measurements alone; leave it out")
    if question.form:
        raise ModelError("form applies to steps on parameter servers alone; leave it out")
    if MEASURED_ALONE in getattr(data, "note", "") and (fields := question.of(GATHERED)):
        raise ModelError(f"{next(iter(fields))} needs the seconds of a step; give batch_size (and sequence_length)")
    measured = as_throughputs([*(data.throughputs if isinstance(data, Profile) else data), *measured])
    if not measured:
        raise FitError("fit: at least one measurement is needed, got none")
    if profile:
        measured = on_profiled_links(measured, profile)
    links, profiled = {point.bandwidth for point in measured}, profile.cluster.bandwidth if profile else None
    if len(links) > 1 or (profiled is not None and links != {None}):  # one bandwidth: growth is that of workers alone
        raise FitError("fit: measurements alone do not determine the effect of bandwidth; give those of one bandwidth")
    link, sized = next(iter(links), None) or profiled, any(point.batch_size for point in measured)
    rows = _placed(measured, question, strategy)
    job = profile.job if profile else None
    if job is None and not sized:
        parameter_bytes = int(question.parameter_bytes or 0)
        job = Job(batch_size=question.batch_size or 1, parameter_bytes=parameter_bytes, tensors=0)
    known, sparse = question.of(GATHERED), bool(question.sparse_gradients)
    if strategy == "async-ps":
        size = (job.parameter_bytes if job else question.parameter_bytes) or None
        # a step of any worker moves all parameters over the servers' links, each way
        moved = (size or 0) * max(p.steps_per_second / p.parameter_servers for p in measured)
        if wrong := contradiction(moved, link):
            other = "" if question.strategy else ", or is strategy all-reduce"
            raise FitError(f"fit: {wrong} Are parameter_bytes {size:,}{other}?")
        known = {"bytes": size, "link": link}
    model = fit_scaling(rows, strategy=cast(Strategy, strategy), sparse_gradients=sparse, seed=seed, **known)
    if strategy != "async-ps" and not getattr(data, "strategy", "") and not on_nodes(data):
        warn_of_rounds(rows)
    assumption = "" if question.strategy else ASSUMED if strategy == "async-ps" else getattr(data, "note", "")
    # without measured batch sizes, the question's is that of the measurements, and no change
    changes = {name: value for name, value in changes_of(question).items() if sized or name != "batch_size"}
    return replace(model, known_job=job, assumption=assumption).what_if(**changes)


def _placed(measured: Sequence[Measurement], question: Scenario, strategy: str) -> list[Measurement]:
    """Measurements with their nodes, where these are known of some, or by the question."""
    rows, per_node = [msgspec.structs.replace(p, bandwidth=None) for p in measured], question.gpus_per_node
    if not (placed := on_nodes(measured)) and not per_node:
        return rows
    g = per_node or max(p.fullest_node for p in measured)
    incomplete = next((p for p in measured if p.workers % g), None)
    if incomplete and not placed and strategy not in SHARDED:
        raise FitError(
            f"fit: workers are ranks on whole nodes of {g} (gpus_per_node), got a measurement of {incomplete.workers}; "
            "leave groups inside a node out, or give a column nodes"
        )
    sizes = {point.batch_size for point in measured if point.batch_size}
    size = question.batch_size or (min(sizes) if len(sizes) == 1 else None)
    return [  # on as few nodes as hold them: ceil(n / g)
        p if p.nodes else msgspec.structs.replace(
            p, nodes=-(-p.workers // g), gpus_per_node=min(p.workers, g), batch_size=p.batch_size or size
        )
        for p in rows
    ]  # fmt: skip
