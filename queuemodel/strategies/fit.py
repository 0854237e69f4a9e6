"""From measurements to the model of any way of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, cast, get_args

import msgspec

from ..checks import require_choice, require_count, require_number, require_seed
from ..errors import FitError, ModelError
from ..training.calibration import fit_network
from ..training.demands import FORMS, Form
from ..training.growth import GrowthModel, fit_throughputs
from ..training.growth import Strategy as Rounds
from ..training.job import Job, Throughput
from ..training.profile import Profile
from ..training.throughputs import on_profiled_links, require_measured, warn_of_rounds
from .all_reduce import AllReduceModel
from .from_steps import rounds_of_steps
from .half_synchronous import NUMBERS, HalfSynchronous, own_scv
from .round_fit import fit_rounds

Strategy = Literal[
    "async-ps", "sync-ps", "bounded-staleness", "k-sync", "k-batch-sync", "k-async", "k-batch-async", "all-reduce"
]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

#: What is assumed of throughputs alone where no strategy is given.
ASSUMED = "assuming asynchronous parameter servers (strategy async-ps)"
#: What may be told of throughputs alone, and of which training.
TOLD_OF: dict[str, tuple[Strategy, ...]] = {
    "sparse_gradients": ("sync-ps", "all-reduce"),
    "ranks_per_node": ("all-reduce",),
}


def fit(
    data: Profile | Sequence[Throughput],
    *,
    strategy: Strategy | None = None,
    throughputs: Sequence[Throughput] = (),
    form: Form = "links",
    batch_size: int | None = None,
    parameter_bytes: float | None = None,
    sparse_gradients: bool = False,
    ranks_per_node: int | None = None,
    k: int | None = None,
    backup_workers: int | None = None,
    staleness_bound: int | None = None,
    seed: int = 0,
) -> Any:
    """Fit the model of a training job.

    Steps on parameter servers give a closed network (`TrainingModel`) of asynchronous workers, of a barrier (sync-ps)
    and of k-batch-async; other half-synchronous strategies are simulated by `predict` alone. Recorded rounds of
    data-parallel training give an `AllReduceModel`, and so do operations of steps on servers, for all-reduce. Of
    throughputs alone a `GrowthModel` is fitted, whose growth is learnt from published series.

    Parameters
    ----------
    data : Profile, or sequence of Throughput
    strategy : str, optional
        How the job trains, see `queuemodel.prediction.predict`; what the profile recorded unless given, and
        asynchronously where throughputs alone do not tell.
    throughputs : sequence of Throughput
        Measured for other node counts, besides those in the profile.
    form : {"links", "single"}
        Of the closed network: separate transmit link, receive link and update stations, or one for all three.
    batch_size, parameter_bytes
        Of the job, for a fit from throughputs alone (1 and not known, unless given); a profile has its own. The bytes
        say about where servers of asynchronous training saturate, and more with the bandwidth of their links, which all
        throughputs may have; of rounds they do not tell it, which the note says.
    sparse_gradients : bool
        That most parameters are embeddings, of which a step touches few rows: rounds gather these rows instead of
        adding gradients up, and grow with the group. False: not known. For throughputs of synchronous training alone.
    ranks_per_node : int, optional
        Of throughputs of all-reduce alone, whose workers are ranks on whole nodes: most of what a ring sends crosses
        the network from the second node on, and grows little after.
    k, backup_workers, staleness_bound : int, optional
        Numbers that a strategy needs or may have, see `queuemodel.prediction.predict`.
    seed : int
        Of the resampling.

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
    require_choice(form, "fit: form", FORMS)
    require_seed(seed, "fit: seed")
    given, strategy = strategy, strategy or recorded_strategy(data)
    require_choice(strategy, "fit: strategy", STRATEGIES)
    numbers = {"k": k, "backup_workers": backup_workers, "staleness_bound": staleness_bound}
    require_numbers(strategy, numbers, "fit")
    told: dict[str, Any] = {"sparse_gradients": sparse_gradients, "ranks_per_node": ranks_per_node}
    require_told_of(data, told, strategy, "fit")
    profile = data if isinstance(data, Profile) else None
    if profile and (batch_size is not None or parameter_bytes is not None):
        raise ModelError("fit: batch_size and parameter_bytes are for throughputs alone; a profile has its own")
    stepped = profile is not None and bool(profile.steps)
    if profile and profile.rounds and not stepped and strategy != "all-reduce":
        raise FitError("fit: the profile has synchronous rounds only; ask with strategy 'all-reduce'")
    if profile and strategy == "all-reduce" and (profile.rounds or stepped):
        if throughputs:
            what = "recorded rounds are not used" if profile.rounds else "steps on servers tell nothing of all-reduce"
            raise ModelError(f"fit: throughputs besides {what}; leave them out")
        return AllReduceModel(fit_rounds(profile) if profile.rounds else rounds_of_steps(profile))
    if not stepped and (strategy in ("async-ps", "all-reduce") or (strategy == "sync-ps" and not backup_workers)):
        job = (
            profile.job
            if profile
            else Job(
                batch_size=require_count(1 if batch_size is None else batch_size, "fit: batch_size", most=2**62),
                parameter_bytes=int(require_number(parameter_bytes or 0, "fit: parameter_bytes", largest=2**62)),
                tensors=0,
            )
        )
        model = _of_throughputs(data, throughputs, job, strategy, told)
        return model if given or (profile and profile.rounds) else replace(model, assumption=ASSUMED)
    what = "sync-ps with backup workers" if backup_workers else strategy
    if profile is None or not stepped:
        raise ModelError(f"fit: strategy {what!r} needs a profile with recorded steps; import or record one")
    if strategy == "async-ps":
        return fit_network(profile, throughputs=throughputs, form=form, seed=seed)
    half = HalfSynchronous(strategy, numbers[NUMBERS[strategy]])
    if not half.solvable:
        raise ModelError(f"fit: strategy {what!r} is no closed network; `predict` simulates recorded operations")
    network = fit_network(profile, throughputs=throughputs, form=form, seed=seed)
    if strategy == "sync-ps":
        return replace(network, barrier=own_scv(profile))
    return replace(network, steps_per_round=half.number or 0)


def _of_throughputs(
    data: Profile | Sequence[Throughput],
    throughputs: Sequence[Throughput],
    job: Job,
    strategy: Strategy,
    told: dict[str, Any],
) -> GrowthModel:
    """Of throughputs alone: in a profile, or a list."""
    profile = data if isinstance(data, Profile) else None
    measured = [*(data.throughputs if isinstance(data, Profile) else data), *throughputs]
    for point in measured:
        if not isinstance(point, Throughput):
            raise ModelError(
                f"fit: expected a Profile or Throughputs, got {type(point).__name__}; "
                "files are read by Profile.load and read_throughputs"
            )
    if profile:
        measured = on_profiled_links(measured, profile)
    links, profiled = {point.bandwidth for point in measured}, profile.cluster.bandwidth if profile else None
    if len(links) > 1 or (profiled is not None and links != {None}):
        raise FitError("fit: throughputs alone cannot tell what another bandwidth does; give those of one bandwidth")
    link = next(iter(links), None) or profiled
    measured = [msgspec.structs.replace(point, bandwidth=None) for point in measured]
    model = fit_throughputs(measured, job=job, strategy=cast("Rounds", strategy), link=link, **told)
    if strategy != "async-ps":
        warn_of_rounds(measured)
    return model


def recorded_strategy(data: object) -> Strategy:
    """How the job trained when it was profiled; asynchronously where throughputs alone do not tell."""
    return "all-reduce" if isinstance(data, Profile) and data.rounds and not data.steps else "async-ps"


def require_numbers(strategy: str, numbers: dict[str, int | None], where: str) -> None:
    """Refuse a number that belongs to another strategy."""
    for name, number in numbers.items():
        if number is not None and NUMBERS.get(strategy) != name:
            others = ", ".join(other for other, has in NUMBERS.items() if has == name)
            raise ModelError(f"{where}: {name} is a question for strategy {others}, not {strategy!r}")


def require_told_of(data: object, told: dict[str, Any], strategy: str, where: str) -> None:
    """Refuse to be told what would not be used."""
    alone = not isinstance(data, Profile) or not (data.steps or data.rounds)
    for name, value in told.items():
        if value not in (None, False) and not (alone and strategy in TOLD_OF[name]):
            kinds = " or ".join(TOLD_OF[name])
            raise ModelError(f"{where}: {name} is for throughputs of {kinds} alone; leave it out")
