"""Run every strategy on a problem in the time that a profile predicts, or ask a law of its steps, to the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..checks import require_choice, require_count, require_number, require_seed, require_share
from ..convergence import Convergence, NoiseScale, relative_convergence
from ..descent import Descent, Problem, ServerSGD, SynchronousSGD, descend, make_problem
from ..descent.problems import KINDS
from ..descent.strategy import WORD
from ..errors import ModelError
from ..prediction import unsimulated
from ..training import Profile
from ..training.scenario import Scenario
from .candidates import Candidate, candidates
from .result import Compared, Comparison
from .timing import Timing

#: Seeds on which learning rates are chosen, apart from those that are reported.
TRIALS = (10_001, 10_002)

#: Looks at the loss.
LOOKS = 200


def by_training(
    one: Candidate,
    timing: Timing,
    problem: Problem,
    target: float,
    steps: int,
    seeds: Sequence[int],
    rates: Sequence[float],
) -> Compared:
    """A strategy's run at its best learning rate, in predicted seconds."""
    pace = timing.pace(**one.asks) if one.asks else timing.together
    each = timing.workers if not isinstance(one.descent, ServerSGD) else 1
    clock = timing.alone if one.asks else timing.clock(one.descent, one.compression)
    length = steps if each > 1 or timing.workers == 1 else steps * timing.workers

    def run(rate: float, seeds: Sequence[int]) -> Descent:
        settings = {"workers": timing.workers, "steps": length, "clock": clock, "record": LOOKS + 1}
        return descend(problem, one.descent, learning_rate=rate, seeds=seeds, until=target, **settings)  # type: ignore[arg-type]

    def merit(rate: float) -> tuple[float, float]:
        tried = run(rate, TRIALS)
        return float(np.median(tried.steps_to(target))), float(tried.losses[:, -1].mean())

    best = rates[0] if len(rates) == 1 else min(rates, key=merit)
    done = run(best, seeds)
    if one.asks:  # its gradients come at the rate of its network
        done = replace(done, times=done.times * done.steps[-1] / pace.steps_per_second / done.times[:, -1:])
    seconds, taken = float(done.times[:, -1].mean()), int(done.steps[-1])
    sent = float((done.up_bits + done.down_bits)[:, -1].mean()) / 8 * timing.scale / taken
    sent *= timing.sizing(one.descent)
    return Compared(
        name=one.name,
        steps_per_second=each * taken / seconds,
        bytes_per_step=sent,
        steps_to=each * done.steps_to(target),
        seconds_to=done.time_to(target),
        spread=pace.spread,
        learning_rate=best,
        descent=done,
    )


#: What is trained to see what a strategy sends; the timing is that of as many parameters.
TRIAL = make_problem("logistic", features=50)

#: Quantiles of the law that stand for all, of equal weight.
LEVELS = (np.arange(41) + 0.5) / 41


@dataclass(frozen=True, eq=False)
class Law:
    """Examples until the target by batch size, told in steps of one worker's batch.

    Attributes
    ----------
    convergence : Convergence
    step : float
        Of what the law tells, in one step.
    second : float
        Seconds in the unit of time that is told.
    """

    convergence: Convergence
    step: float
    second: float = 1.0

    def steps(self, batch_size: int) -> np.ndarray:
        """Steps to the target at the batch size of an update: quantiles of equal weight, shape (levels,)."""
        return np.array(self.convergence.quantiles(batch_size, LEVELS)) / self.step


def absolute(convergence: Convergence, timing: Timing) -> Law:
    """The job's own law, in steps and seconds."""
    return Law(convergence, timing.batch_size)


def relative(noise: NoiseScale, timing: Timing) -> Law:
    """The law of the gradients' noise, in steps and seconds of one worker alone."""
    alone = replace(timing, workers=1).together.steps_per_second
    return Law(relative_convergence(timing.batch_size, noise), 1.0, alone)


def by_law(one: Candidate, timing: Timing, law: Law | None) -> Compared:
    """The time of a step and, where an update averages gradients of the same parameters, the steps."""
    pace = timing.pace(**one.asks) if one.asks else timing.together
    steps_per_second, sent = pace.steps_per_second, 2 * WORD / 8 * timing.dimension * timing.scale
    averaged = _averaged(one, timing.workers)
    if not averaged and not one.asks:
        trial = replace(TRIAL, batch_size=len(TRIAL.targets)) if one.descent.exact else TRIAL  # a batch is all there is
        run = by_training(one, timing, trial, -1.0, 200, range(2), (0.01,))
        steps_per_second, sent = run.steps_per_second, run.bytes_per_step
    steps = np.full(1, np.nan)
    if law is not None and averaged:
        steps = law.steps(averaged * timing.batch_size)
    return Compared(
        name=one.name,
        steps_per_second=steps_per_second,
        bytes_per_step=sent,
        steps_to=steps,
        seconds_to=steps / steps_per_second * (law.second if law else 1.0),
        spread=pace.spread,
    )


def _averaged(one: Candidate, workers: int) -> int:
    """Workers whose gradients, all of the same parameters, make an update; 0 where some are older, or changed."""
    if isinstance(one.descent, ServerSGD):
        return one.descent.k if one.descent.name in ("k-sync", "k-batch-sync") else 0
    return workers if isinstance(one.descent, SynchronousSGD) else 0


#: Learning rates that are tried for each strategy.
RATES = (0.03, 0.1, 0.3, 1.0)

#: Share of the way from the first loss to the least that the target takes unless told.
NEAR = 0.98


def compare(
    profile: Profile,
    *,
    workers: int = 8,
    strategies: Sequence[str | Candidate] | None = None,
    target: float | None = None,
    problem: str | Problem | None = None,
    convergence: Convergence | None = None,
    steps: int = 1000,
    seeds: int = 8,
    learning_rates: Sequence[float] = RATES,
    price_per_node_hour: float | None = None,
    confidence: float = 0.9,
    seed: int = 0,
    progress: bool = False,
    **changes: Any,
) -> Comparison:
    """
    Compare strategies by the time in which they reach a loss.

    Each strategy trains a `Problem` that stands for the job, for several seeds, in the time that the profile predicts:
    computation as recorded, transfers in proportion to the bytes that the strategy sends, gradients on a server as
    `predict` has them. Its learning rate is the best of a few on other seeds. What a stand-in shows of a
    strategy need not hold for the job's own loss; with ``convergence``, the job's own law of batch sizes, only
    strategies can be told that average gradients of the same parameters: synchronous SGD, K-sync and K-batch-sync,
    whose batch is that of K workers. With neither, the gradient noise scale in the profile tells the same relative to
    one worker alone; without that, too, the answer is per step.

    Parameters
    ----------
    profile : Profile
        With steps on a parameter server, or data-parallel rounds.
    workers : int
    strategies : sequence of str or Candidate, optional
        All that such machines can run, unless given; names are in `queuemodel.comparison.NAMES`.
    target : float, optional
        Loss to reach; 98 % of the way from the first to the least, unless given.
    problem : {"least-squares", "logistic", "sigmoid", "perceptron"} or Problem, optional
    convergence : Convergence, optional
        What `fit_convergence` gives of examples, not epochs; then the target is its own.
    steps : int
        Steps of each worker at most.
    seeds : int
    learning_rates : sequence of float
    price_per_node_hour : float, optional
        Of every node, servers included; with a problem or a convergence law, whose target takes a time to pay for.
    confidence : float
        Of the intervals: over seeds, and the error of the predicted times. That error is taken to be the same for all
        strategies, each in proportion to its own standard error: they come from one profile.
    seed : int
    progress : bool
    **changes
        What-ifs for `predict`, and ``congestion_control`` and ``buffer``; not ``accumulation``, and ``batch_size`` only
        without a problem.

    Raises
    ------
    ModelError
        For a senseless argument, or a strategy that the profiled machines cannot run.
    """
    changes = {name: value for name, value in changes.items() if value is not None}
    n = require_count(workers, "compare: workers")
    require_count(steps, "compare: steps", least=2)
    require_count(seeds, "compare: seeds", least=2)
    require_share(confidence, "compare: confidence", open_ended=True)
    require_seed(seed, "compare: seed")
    rates = [require_number(rate, "compare: learning_rates", positive=True) for rate in learning_rates]
    if not rates:
        raise ModelError("compare: at least one of learning_rates is needed, got none")
    _require_one_question(problem, convergence, target, price_per_node_hour, changes)
    if not isinstance(profile, Profile) or not (profile.steps or profile.rounds):
        raise ModelError("compare: needs a profile with recorded steps or rounds; record one")
    if isinstance(problem, str):
        problem = make_problem(require_choice(problem, "compare: problem", KINDS), examples=1000, features=50)
    timing = Timing(profile, n, (problem or TRIAL).dimension, changes)
    unsaid = unsimulated(profile, Scenario(**changes)) if timing.on_servers else ""
    chosen = candidates(strategies, n, servers=timing.on_servers, simulated=not unsaid)
    noise = profile.noise_scale() if problem is None and convergence is None else None
    from tqdm import tqdm

    bar = partial(tqdm, chosen, desc="compare", disable=not progress, leave=False)
    if problem is None:
        law = absolute(convergence, timing) if convergence else relative(noise, timing) if noise else None
        rows = [by_law(one, timing, law) for one in bar()]
    else:
        target = _loss_to_reach(problem, target)
        own = range(seed, seed + seeds)
        rows = [by_training(one, timing, problem, target, steps, own, rates) for one in bar()]
    return Comparison(
        rows=tuple(rows),
        workers=n,
        nodes=timing.together.nodes,
        target=target if problem is not None else None,
        price_per_node_hour=price_per_node_hour,
        confidence=confidence,
        note=_note(timing, problem, convergence, noise, rows, rates, steps, unsaid if strategies is None else ""),
        relative=noise is not None,
        problem=repr(problem) if problem is not None else "",
    )


def _require_one_question(
    problem: object, convergence: object, target: float | None, price: float | None, changes: dict[str, Any]
) -> None:
    """Refuse arguments that do not go together."""
    if problem is not None and convergence is not None:
        raise ModelError("compare: give a problem or a convergence law, not both")
    if convergence is not None and not isinstance(convergence, Convergence):
        raise ModelError(f"compare: convergence must be what fit_convergence gives, got {type(convergence).__name__}")
    if target is not None and problem is None:
        raise ModelError("compare: target is a loss of a problem; give one")
    if price is not None and problem is None and convergence is None:
        raise ModelError("compare: price_per_node_hour needs a time to pay for; give a problem or a convergence law")
    if "accumulation" in changes or (problem is not None and "batch_size" in changes):
        told = "accumulation" if "accumulation" in changes else "the batch_size of a problem that stands for the job"
        raise ModelError(f"compare: {told} would change what an update is worth, which is not told; leave it out")


def _loss_to_reach(problem: Problem, target: float | None) -> float:
    """The one asked for, or one near the least (raises ModelError when it is not between that and the first)."""
    first = float(problem.loss(problem.start(np.random.default_rng(0))))
    goal = require_number(first - NEAR * (first - problem.minimum) if target is None else target, "compare: target")
    if not problem.minimum < goal:
        raise ModelError(f"compare: target must be above the least loss, {problem.minimum:.6g}, got {goal!r}")
    if not goal < first:
        raise ModelError(f"compare: target must be below the loss at the start, {first:.6g}, got {goal!r}")
    return goal


def _note(
    timing: Timing,
    problem: Problem | None,
    convergence: Convergence | None,
    noise: NoiseScale | None,
    rows: Sequence[Compared],
    rates: Sequence[float],
    steps: int,
    unsaid: str,
) -> str:
    """What to know before trusting the rows: where their steps come from, and which strategies they tell less of."""
    ends = {min(rates), max(rates)} if len(rates) > 1 else set()  # the best of all is perhaps beyond them
    at_end = [one.name for one in rows if one.learning_rate in ends]
    silent = [one.name for one in rows if np.isnan(one.seconds_to).any()]
    late = [one.name for one in rows if one.late]
    said = []
    if noise is not None:
        said.append(f"by the profile's gradient noise scale, {noise}, in steps and time of one worker alone")
    elif problem is None and convergence is None:
        said.append(
            "no problem and no law of convergence was given, and the profile has no gradient noise, so this is per "
            "step, not to a loss"
        )
    if silent and (noise is not None or convergence is not None):
        said.append(f"no law tells the steps of {', '.join(silent)}")
    if unsaid:
        said.append(f"half-synchronous strategies are left out: their simulation {unsaid}")
    if at_end:
        said.append(f"the best learning rate of {', '.join(at_end)} is the least or largest tried")
    if not timing.sized:
        said.append("the links' bandwidth or a step's bytes are not known: fewer bytes are taken to save nothing there")
    if late:
        said.append(f"{', '.join(late)} did not reach it in {steps} steps of each worker, in half of the runs or more")
    return "; ".join(said)
