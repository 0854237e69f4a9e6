"""Simulation of any way of training that recorded operations or rounds allow."""

from __future__ import annotations

from typing import Any, cast

from ..base.checks import require_count
from ..base.errors import ModelError
from ..profile.profile import Profile
from ..profile.scenario import FIELDS, Scenario, of_group
from ..simulator.result import SimulatedRun
from ..simulator.runs import slowdowns
from ..simulator.simulate import simulate as simulate_operations
from .all_reduce import AllReduceModel
from .fit import fit, require_answerable, strategy_of
from .half_synchronous import HalfSynchronous
from .simulated_rounds import SimulatedRounds, simulate_rounds


def simulate(
    profile: Profile,
    scenario: Scenario | None = None,
    *,
    workers: int,
    steps: int = 200,
    seed: int = 0,
    confidence: float = 0.9,
    progress: bool = False,
    **settings: Any,
) -> SimulatedRun | SimulatedRounds:
    """Simulate a training job of so many workers, operation by operation or round by round.

    Parameters
    ----------
    profile : Profile
        With recorded operations, or for ``"all-reduce"`` recorded rounds.
    scenario : Scenario, optional
        How the job trains, and what differs from the profile.
    workers : int
    steps : int
        Of each worker on average; of synchronous training, rounds.
    seed : int
    confidence : float
    progress : bool
        Show a progress bar on standard error, of a simulation of operations.
    **settings
        Fields of `Scenario`; of operations also settings of `queuemodel.simulator.simulate`.

    Raises
    ------
    ModelError
        For arguments that make no sense.

    Examples
    --------
    >>> from queuemodel.profile.examples import example_profile
    >>> simulate(example_profile("ddp-alexnet-40"), workers=4, steps=50).ranks
    4
    """
    if not isinstance(profile, Profile):
        raise ModelError(f"simulate: expected a Profile, got {type(profile).__name__}; Profile.load reads one")
    asked = {name: settings.pop(name) for name in list(settings) if name in FIELDS}
    question = (scenario or Scenario()).and_also(**asked)
    strategy = strategy_of(profile, question)
    require_answerable(profile, question, strategy)
    if strategy == "all-reduce":
        if settings:
            raise ModelError(f"simulate: {next(iter(settings))} is for recorded operations, not for all-reduce")
        model = cast("AllReduceModel", fit(profile, question.and_also(strategy=strategy), seed=seed))
        return simulate_rounds(model, ranks=workers, rounds=steps, seed=seed, confidence=confidence)
    question = question.relative_to(profile)
    known = (*of_group("job"), *of_group("simulation"), *of_group("network"))
    machines = ("bandwidth", "parameter_servers", "accelerator_speed", "worker_speeds")
    if wrong := next((name for name in question.asked if name not in (*known, *machines)), None):
        raise ModelError(f"simulate: {wrong} is no question for a simulation of operations; ask `predict`")
    settings |= question.of((*of_group("simulation"), *of_group("network"), *machines[:2]))
    if question.of(machines[2:]):
        speeds = slowdowns(
            require_count(workers, "simulate: workers"), question.worker_speeds, question.accelerator_speed or 1.0
        )
        settings["slowdown"] = speeds[:workers]
    if half := HalfSynchronous.of(question, strategy):
        half.require_workers([require_count(workers, "simulate: workers")])
        settings |= half.simulated
    return simulate_operations(
        profile, workers=workers, steps=steps, seed=seed, confidence=confidence, progress=progress, **settings
    )
