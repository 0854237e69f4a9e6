"""From measurements to the model of any way of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec

from ..base.checks import require_seed
from ..base.errors import FitError, ModelError
from ..profile.job import Job, Throughput
from ..profile.profile import Profile
from ..profile.scenario import NUMBERS, Scenario, of_group
from ..profile.throughputs import as_throughputs, on_profiled_links, require_measured, warn_of_rounds
from .all_reduce import AllReduceModel
from .calibration import fit_network
from .closed_network import TrainingModel
from .demands import Form
from .growth import GrowthModel, fit_throughputs
from .growth import Strategy as Rounds
from .half_synchronous import HalfSynchronous, own_scv
from .round_fit import fit_rounds, rounds_of_steps

#: What is assumed of throughputs alone where no strategy is given.
ASSUMED = "assuming asynchronous parameter servers (strategy async-ps)"
#: What may be known of throughputs alone besides, by way of training.
KNOWN: dict[str, tuple[str, ...]] = {
    "async-ps": ("batch_size", "parameter_bytes"),
    "sync-ps": ("batch_size", "parameter_bytes", "sparse_gradients"),
    "all-reduce": ("batch_size", "parameter_bytes", "sparse_gradients", "ranks_per_node"),
}


def fit(
    data: Profile | Sequence[Throughput],
    scenario: Scenario | None = None,
    *,
    throughputs: Sequence[Throughput] = (),
    seed: int = 0,
    **asked: Any,
) -> TrainingModel | AllReduceModel | GrowthModel:
    """Fit the model of a training job.

    Steps on parameter servers give a closed network (`TrainingModel`) of asynchronous workers, of a barrier (sync-ps)
    and of k-batch-async; other half-synchronous strategies are simulated by `predict` alone. Recorded rounds of
    data-parallel training give an `AllReduceModel`, and so do operations of steps on servers, for all-reduce. Of
    throughputs alone a `GrowthModel` is fitted, whose growth is learnt from published series.

    Parameters
    ----------
    data : Profile, or sequence of Throughput
    scenario : Scenario, optional
        How the job trains (what the profile recorded unless given, and asynchronously where throughputs alone do not
        tell), and what differs from the profile.
    throughputs : sequence of Throughput
        Measured for other node counts, besides those in the profile.
    seed : int
        Of the resampling.
    **asked
        Fields of `Scenario`. Of throughputs alone: ``batch_size`` (1 unless given) and ``parameter_bytes`` of the job,
        which say about where servers of asynchronous training saturate, and more with the bandwidth of their links,
        which all throughputs may have; of synchronous training ``sparse_gradients``, that most parameters are
        embeddings, of which a step touches few rows, so that rounds grow with the group; and ``ranks_per_node`` of
        all-reduce, whose workers are ranks on whole nodes: most of what a ring sends crosses the network from the
        second node on, and grows little after.

    Returns
    -------
    TrainingModel, AllReduceModel or GrowthModel
        Each has ``what_if(...)`` and ``throughput(workers)``.

    Raises
    ------
    DataError
        For a throughput that the profile rules out.
    FitError
        When there is nothing to fit.
    ModelError
        For what is neither profile nor throughputs, an unknown strategy or form, a number that the strategy has not, or
        measurements that it cannot be told from.

    Warns
    -----
    QueueModelWarning
        Where throughputs of synchronous training look like rounds per second.
    """
    require_measured(data, "fit")
    require_seed(seed, "fit: seed")
    question = (scenario or Scenario()).and_also(**asked)
    strategy = strategy_of(data, question)
    require_answerable(data, question, strategy)
    profile = data if isinstance(data, Profile) else None
    if profile:
        profile, question = profile.told(**question.of(of_group("network"))), question.relative_to(profile)
    stepped = profile is not None and bool(profile.steps)
    machines = {name: value for name, value in question.asked.items() if name not in NO_MACHINES}
    alone = not ((profile and profile.rounds) or stepped)
    if question.form and (strategy == "all-reduce" or not stepped):
        raise ModelError("form is of the closed network of steps on parameter servers; leave it out")
    if profile and profile.rounds and not stepped and strategy != "all-reduce":
        raise ModelError("the profile has synchronous rounds only; ask with strategy 'all-reduce'")
    if alone and strategy in KNOWN and not question.backup_workers:
        known = question.of(KNOWN[strategy])
        if profile and (own := question.of(KNOWN["async-ps"])):
            raise ModelError(f"{next(iter(own))} is for throughputs alone; a profile has its own")
        if told := next(iter(question.of(of_group("network"))), None):
            raise ModelError(f"{told} is known of a profile; throughputs alone have no use for it")
        of_network = {name: value for name, value in machines.items() if name not in known}
        return _of_throughputs(data, throughputs, question, strategy, known).what_if(**of_network)
    if profile and strategy == "all-reduce":
        if throughputs:
            what = "recorded rounds are not used" if profile.rounds else "steps on servers tell nothing of all-reduce"
            raise ModelError(f"throughputs besides {what}; leave them out")
        return AllReduceModel(fit_rounds(profile) if profile.rounds else rounds_of_steps(profile)).what_if(**machines)
    what = "sync-ps with backup workers" if question.backup_workers else strategy
    if profile is None or not stepped:
        raise ModelError(f"strategy {what!r} needs a profile with recorded steps; import or record one")
    half = HalfSynchronous.of(question, strategy)
    if half and not half.solvable:
        raise ModelError(f"strategy {what!r} is no closed network; `predict` simulates recorded operations")
    form = cast("Form", question.form or "links")
    network = fit_network(profile, throughputs=as_throughputs(throughputs), form=form, seed=seed)
    if strategy == "sync-ps":
        network = replace(network, barrier=own_scv(profile))
    elif half:
        network = replace(network, steps_per_round=half.number or 0)
    return network.what_if(**machines)


def _of_throughputs(
    data: Profile | Sequence[Throughput],
    throughputs: Sequence[Throughput],
    question: Scenario,
    strategy: str,
    known: dict[str, Any],
) -> GrowthModel:
    """Of throughputs alone: in a profile, or a list."""
    profile = data if isinstance(data, Profile) else None
    measured = as_throughputs([*(data.throughputs if isinstance(data, Profile) else data), *throughputs])
    size, own = known.pop("batch_size", 1), known.pop("parameter_bytes", 0)
    job = profile.job if profile else Job(batch_size=size, parameter_bytes=int(own), tensors=0)
    if profile:
        measured = on_profiled_links(measured, profile)
    links, profiled = {point.bandwidth for point in measured}, profile.cluster.bandwidth if profile else None
    if len(links) > 1 or (profiled is not None and links != {None}):
        raise FitError("fit: throughputs alone cannot tell what another bandwidth does; give those of one bandwidth")
    link = next(iter(links), None) or profiled
    measured = [msgspec.structs.replace(point, bandwidth=None) for point in measured]
    model = fit_throughputs(measured, job=job, strategy=cast("Rounds", strategy), link=link, **known)
    if strategy != "async-ps":
        warn_of_rounds(measured)
    return model if question.strategy else replace(model, assumption=ASSUMED)


#: What all-reduce has not.
OF_SERVERS = ("parameter_servers", "shards", "worker_speeds", *of_group("simulation"))
#: Fields of a scenario that are no change of a model's.
NO_MACHINES = (*of_group("job"), *of_group("form"), *of_group("throughputs"), *of_group("network"))


def strategy_of(data: object, question: Scenario) -> str:
    """How the job trains: as asked, or when it was profiled; asynchronously where throughputs alone do not tell."""
    recorded = "all-reduce" if isinstance(data, Profile) and data.rounds and not data.steps else "async-ps"
    return question.strategy or recorded


def require_answerable(data: object, question: Scenario, strategy: str) -> None:
    """Refuse what belongs to another way of training, or to throughputs alone."""
    alone = not isinstance(data, Profile) or not (data.steps or data.rounds)
    for name in question.of(of_group("throughputs")):
        if not alone or name not in KNOWN.get(strategy, ()):
            kinds = " or ".join(kind for kind, names in KNOWN.items() if name in names)
            raise ModelError(f"{name} is for throughputs of {kinds} alone; leave it out")
    for name in question.asked:
        others = [way for way, has in NUMBERS.items() if has == name]
        if name in of_group("rounds") and strategy != "all-reduce":
            raise ModelError(f"{name} is a question for strategy 'all-reduce', not {strategy!r}")
        if name in OF_SERVERS and strategy == "all-reduce":
            raise ModelError(f"{name} is a question for training on parameter servers, not for 'all-reduce'")
        if others and strategy not in others:
            raise ModelError(f"{name} is a question for strategy {', '.join(others)}, not {strategy!r}")
