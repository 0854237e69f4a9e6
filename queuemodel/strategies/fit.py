"""From measurements to the model of any way of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args, overload

from ..checks import require_choice
from ..errors import FitError, ModelError
from ..training.demands import Form
from ..training.fit import fit as fit_workers
from ..training.fit import require_told_of
from ..training.growth import RoundModel
from ..training.job import Throughput
from ..training.model import TrainingModel
from ..training.profile import Profile
from .all_reduce import AllReduceModel
from .from_steps import rounds_of_steps
from .half_synchronous import NUMBERS, HalfSynchronous, own_scv
from .round_fit import fit_rounds

#: Ways of training whose workers do not wait for all others.
Free = Literal["async-ps", "bounded-staleness", "k-sync", "k-batch-sync", "k-async", "k-batch-async"]
Strategy = Literal[Free, "sync-ps", "all-reduce"]
STRATEGIES: tuple[Strategy, ...] = ("async-ps", "sync-ps", *get_args(Free)[1:], "all-reduce")


@overload
def fit(data: Profile, *, strategy: None = ..., **settings: Any) -> TrainingModel | AllReduceModel: ...


@overload
def fit(data: Sequence[Throughput], *, strategy: None = ..., **settings: Any) -> TrainingModel: ...


@overload
def fit(data: Profile | Sequence[Throughput], *, strategy: Free, **settings: Any) -> TrainingModel: ...


@overload
def fit(
    data: Profile | Sequence[Throughput], *, strategy: Literal["sync-ps"], **settings: Any
) -> TrainingModel | RoundModel: ...


@overload
def fit(
    data: Profile | Sequence[Throughput], *, strategy: Literal["all-reduce"], **settings: Any
) -> AllReduceModel | RoundModel: ...


@overload
def fit(
    data: Profile | Sequence[Throughput], *, strategy: Strategy | None, **settings: Any
) -> TrainingModel | AllReduceModel | RoundModel: ...


def fit(  # type: ignore[misc]  # the settings are those below
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
) -> TrainingModel | AllReduceModel | RoundModel:
    """Fit the model of a training job.

    Steps on parameter servers give a closed network (`queuemodel.training.fit`) of asynchronous workers, of a barrier
    (sync-ps) and of k-batch-async; other half-synchronous strategies are simulated by `predict` alone. Recorded rounds
    of data-parallel training give an `AllReduceModel`, and so do operations of steps on servers, for all-reduce
    (`rounds_of_steps`); throughputs alone the network or, of rounds, a `RoundModel`, whose
    growth is learnt from published series.

    Parameters
    ----------
    data : Profile, or sequence of Throughput
    strategy : str, optional
        How the job trains, see `queuemodel.prediction.predict`; what the profile recorded unless given.
    throughputs : sequence of Throughput
        Measured for other node counts, besides those in the profile.
    form : {"links", "single"}
        Of the closed network: separate transmit link, receive link and update stations, or one for all three.
    batch_size, parameter_bytes
        Of the job, for a fit from throughputs alone (1 and not known, unless given); a profile has its own.
    sparse_gradients : bool
        That most parameters are embeddings, see `queuemodel.training.fit`; for synchronous throughputs alone.
    ranks_per_node : int, optional
        Of throughputs of all-reduce alone, likewise.
    k, backup_workers, staleness_bound : int, optional
        Numbers that a strategy needs or may have, see `queuemodel.prediction.predict`.
    seed : int
        Of the resampling.

    Returns
    -------
    TrainingModel, AllReduceModel or RoundModel
        Each has ``what_if(...)`` and ``throughput(workers)``.

    Raises
    ------
    FitError
        When there is nothing to fit.
    ModelError
        For what is neither profile nor throughputs, an unknown strategy or form, a number that the strategy has not, or
        measurements that it cannot be told from.
    """
    given, strategy = strategy, strategy or recorded_strategy(data)
    require_choice(strategy, "fit: strategy", STRATEGIES)
    numbers = {"k": k, "backup_workers": backup_workers, "staleness_bound": staleness_bound}
    require_numbers(strategy, numbers, "fit")
    profile = data if isinstance(data, Profile) else None
    told = {"sparse_gradients": sparse_gradients, "ranks_per_node": ranks_per_node}
    require_told_of(data, told, strategy, "fit")
    if profile and profile.rounds and strategy == "all-reduce":
        if throughputs:
            raise ModelError("fit: throughputs besides recorded rounds are not used; leave them out")
        return AllReduceModel(fit_rounds(profile))
    stepped = profile is not None and bool(profile.steps)
    if profile and profile.rounds and not stepped:
        raise FitError("fit: the profile has synchronous rounds only; ask with strategy 'all-reduce'")
    measured: dict[str, Any] = {"throughputs": throughputs, "form": form, "seed": seed}
    measured |= {"batch_size": batch_size, "parameter_bytes": parameter_bytes}
    if strategy == "async-ps":
        return fit_workers(data, strategy="async-ps" if given else None, **measured)
    if not stepped and (strategy == "all-reduce" or (strategy == "sync-ps" and not backup_workers)):
        return fit_workers(data, strategy=strategy, **told, **measured)
    if strategy == "all-reduce" and profile:
        if throughputs:
            raise ModelError("fit: throughputs besides steps on servers tell nothing of all-reduce; leave them out")
        return AllReduceModel(rounds_of_steps(profile))
    if profile is None or not stepped:
        what = "sync-ps with backup workers" if backup_workers else strategy
        raise ModelError(f"fit: strategy {what!r} needs a profile with recorded steps; import or record one")
    half = HalfSynchronous(strategy, numbers[NUMBERS[strategy]])
    if not half.solvable:
        what = "sync-ps with backup workers" if backup_workers else strategy
        raise ModelError(f"fit: strategy {what!r} is no closed network; `predict` simulates recorded operations")
    model = fit_workers(profile, **measured)
    if strategy == "sync-ps":
        return replace(model, barrier=own_scv(profile))
    return replace(model, steps_per_round=half.number or 0)


def recorded_strategy(data: object) -> Strategy:
    """How the job trained when it was profiled; asynchronously where throughputs alone do not tell."""
    return "all-reduce" if isinstance(data, Profile) and data.rounds and not data.steps else "async-ps"


def require_numbers(strategy: str, numbers: dict[str, int | None], where: str) -> None:
    """Refuse a number that belongs to another strategy."""
    for name, number in numbers.items():
        if number is not None and NUMBERS.get(strategy) != name:
            others = ", ".join(other for other, has in NUMBERS.items() if has == name)
            raise ModelError(f"{where}: {name} is a question for strategy {others}, not {strategy!r}")
