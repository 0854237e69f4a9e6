"""Simulation of any way of training that recorded operations or rounds allow."""

from __future__ import annotations

from typing import Any

from ..checks import require_choice, require_count
from ..errors import ModelError
from ..traces.result import SimulatedRun
from ..traces.runs import slowdowns
from ..traces.simulate import simulate as simulate_operations
from ..training.job import TOLD, require_network
from ..training.profile import Profile
from .all_reduce import AllReduceModel
from .fit import STRATEGIES, Strategy, recorded_strategy, require_numbers
from .from_steps import rounds_of_steps
from .half_synchronous import NUMBERS, HalfSynchronous
from .round_changes import OWN
from .round_fit import fit_rounds
from .simulated_rounds import SimulatedRounds, simulate_rounds


def simulate(
    profile: Profile,
    *,
    workers: int,
    strategy: Strategy | None = None,
    steps: int = 200,
    seed: int = 0,
    confidence: float = 0.9,
    k: int | None = None,
    backup_workers: int | None = None,
    staleness_bound: int | None = None,
    progress: bool = False,
    **settings: Any,
) -> SimulatedRun | SimulatedRounds:
    """Simulate a training job of so many workers, operation by operation or round by round.

    Parameters
    ----------
    profile : Profile
        With recorded operations, or for ``"all-reduce"`` recorded rounds.
    workers : int
    strategy : str, optional
        ``"async-ps"``, ``"sync-ps"`` (those too late end their step before they join again), ``"bounded-staleness"``,
        ``"k-sync"``, ``"k-batch-sync"``, ``"k-async"``, ``"k-batch-async"`` (as asynchronous training, whose results
        are counted by k) or ``"all-reduce"``; what the profile recorded unless given.
    steps : int
        Of each worker on average; of synchronous training, rounds.
    seed : int
    confidence : float
    k, backup_workers, staleness_bound : int, optional
        Numbers of the strategy, see `queuemodel.prediction.predict`.
    progress : bool
        Show a progress bar on standard error, of a simulation of operations.
    **settings
        Of `queuemodel.traces.simulate`, and ``accelerator_speed`` and ``worker_speeds`` of `trace_runs` in place of
        its ``slowdown``; or what-ifs of `AllReduceModel.what_if`, and ``congestion_control`` and ``buffer``.

    Raises
    ------
    ModelError
        For arguments that make no sense.

    Examples
    --------
    >>> from queuemodel.data import example_profile
    >>> simulate(example_profile("ddp-alexnet-40"), workers=4, steps=50).ranks
    4
    """
    if not isinstance(profile, Profile):
        raise ModelError(f"simulate: expected a Profile, got {type(profile).__name__}; Profile.load reads one")
    strategy = strategy or recorded_strategy(profile)
    require_choice(strategy, "simulate: strategy", STRATEGIES)
    numbers = {"k": k, "backup_workers": backup_workers, "staleness_bound": staleness_bound}
    require_numbers(strategy, numbers, "simulate")
    if strategy == "all-reduce":
        told = {name: settings.pop(name, None) for name in TOLD}
        require_network(**told, where="simulate: ")
        profile = profile.told(**told)
        fitted = fit_rounds(profile) if profile.rounds else rounds_of_steps(profile)
        model = AllReduceModel(fitted).what_if(**settings)
        return simulate_rounds(model, ranks=workers, rounds=steps, seed=seed, confidence=confidence)
    if wrong := sorted(OWN & set(settings)):
        raise ModelError(f"simulate: {wrong[0]} is a question for strategy 'all-reduce', not {strategy!r}")
    if settings.pop("batch_size", profile.job.batch_size) != profile.job.batch_size:
        own = profile.job.batch_size
        raise ModelError(f"simulate: batch_size is {own}, as recorded; ask `predict` with method 'mva' for another")
    if {"accelerator_speed", "worker_speeds"} & set(settings):
        speed, speeds = settings.pop("accelerator_speed", 1.0), settings.pop("worker_speeds", None)
        settings["slowdown"] = slowdowns(require_count(workers, "simulate: workers"), speeds, speed)[:workers]
    if strategy != "async-ps":
        half = HalfSynchronous(strategy, numbers[NUMBERS[strategy]])
        half.require_workers([require_count(workers, "simulate: workers")])
        settings |= half.simulated
    return simulate_operations(
        profile, workers=workers, steps=steps, seed=seed, confidence=confidence, progress=progress, **settings
    )
