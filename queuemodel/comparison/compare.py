"""Run every strategy on a problem in the time that a profile predicts, until each reaches the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..checks import require_choice, require_count, require_number, require_seed, require_share
from ..convergence import Convergence
from ..descent import Clock, Descent, Problem, ServerSGD, SynchronousSGD, descend, make_problem
from ..descent.compressors import WORD
from ..descent.data import KINDS
from ..errors import ModelError
from ..training import Profile
from .candidates import Candidate, candidates
from .result import Compared, Comparison
from .timing import Timing

#: Learning rates that are tried for each strategy.
RATES = (0.03, 0.1, 0.3, 1.0)

#: Share of the way from the first loss to the least that the target takes unless told.
NEAR = 0.98

#: Seeds on which learning rates are chosen, apart from those that are reported.
TRIALS = (10_001, 10_002)

#: Looks at the loss.
LOOKS = 200


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
    computation as recorded, transfers in proportion to the bytes that the strategy sends, gradients on a server at the
    rate of its own closed network. Its learning rate is the best of a few on other seeds. What a stand-in shows of a
    strategy need not hold for the job's own loss; with ``convergence``, the job's own law of batch sizes, only
    strategies whose every step is one of all workers can be told, and with neither the answer is per step.

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
    confidence : float
        Of the intervals: over seeds, and the error of the predicted times. That error is taken to be the same for all
        strategies, each in proportion to its own standard error: they come from one profile.
    seed : int
    progress : bool
    **changes
        What-ifs for `predict`.

    Raises
    ------
    ModelError
        For a senseless argument, or a strategy that the profiled machines cannot run.
    """
    n = require_count(workers, "compare: workers")
    require_count(steps, "compare: steps", least=2)
    require_count(seeds, "compare: seeds", least=2)
    require_share(confidence, "compare: confidence", open_ended=True)
    require_seed(seed, "compare: seed")
    rates = [require_number(rate, "compare: learning_rates", positive=True) for rate in learning_rates]
    if problem is not None and convergence is not None:
        raise ModelError("compare: give a problem or a convergence law, not both")
    if not isinstance(profile, Profile) or not (profile.steps or profile.rounds):
        raise ModelError("compare: needs a profile with recorded steps or rounds; record one")
    if isinstance(problem, str):
        problem = make_problem(require_choice(problem, "compare: problem", KINDS), examples=1000, features=50)
    timing = Timing(profile, n, problem.dimension if problem else 1_000_000, changes)
    chosen = candidates(strategies, n, servers=timing.on_servers)
    if problem is None:
        rows = [_by_law(one, timing, convergence) for one in chosen]
    else:
        first = float(problem.loss(problem.start(np.random.default_rng(0))))
        goal = first - NEAR * (first - problem.minimum) if target is None else target
        target = require_number(goal, "compare: target")
        if not problem.minimum < target:
            raise ModelError(f"compare: target must be above the least loss, {problem.minimum:.6g}, got {target!r}")
        from tqdm import tqdm

        bar = tqdm(chosen, desc="compare", disable=not progress, leave=False)
        own = range(seed, seed + seeds)
        rows = [_by_training(one, timing, problem, target, steps, own, rates) for one in bar]
    return Comparison(
        rows=tuple(rows),
        workers=n,
        nodes=n + (profile.cluster.parameter_servers if timing.on_servers else 0),
        target=target if problem is not None else None,
        price_per_node_hour=price_per_node_hour,
        confidence=confidence,
        note=_note(timing, problem, convergence, [one.name for one in rows if one.learning_rate in _ends(rates)]),
    )


def _ends(rates: Sequence[float]) -> set[float]:
    """The least and the largest of several: where the best of all is perhaps not among them."""
    return {min(rates), max(rates)} if len(rates) > 1 else set()


def _note(timing: Timing, problem: Problem | None, convergence: Convergence | None, at_end: list[str]) -> str:
    said = []
    if problem is not None:
        said.append(f"steps are those of a stand-in, {problem!r}")
    elif convergence is None:
        said.append("no problem and no law of convergence was given, so this is per step, not to a loss")
    if at_end:
        said.append(f"the best learning rate of {', '.join(at_end)} is the least or largest tried")
    if not timing.sized:
        said.append("the links' bandwidth is not known, so fewer bytes are taken to save nothing")
    return "; ".join(said)


def _by_training(
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
    clock = Clock(1.0, timing.computation[1]) if one.asks else timing.clock(one.descent)
    length = steps if each > 1 or timing.workers == 1 else steps * timing.workers

    def run(rate: float, seeds: Sequence[int]) -> Descent:
        settings = {"workers": timing.workers, "steps": length, "clock": clock, "record": LOOKS + 1}
        return descend(problem, one.descent, learning_rate=rate, seeds=seeds, until=target, **settings)  # type: ignore[arg-type]

    def merit(rate: float) -> tuple[float, float]:
        tried = run(rate, TRIALS)
        return float(np.median(tried.steps_to(target))), float(tried.losses[:, -1].mean())

    best = min(rates, key=merit)
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


def _by_law(one: Candidate, timing: Timing, convergence: Convergence | None) -> Compared:
    """What can be told without training: the time of a step, and of a synchronous one the steps."""
    plain = isinstance(one.descent, SynchronousSGD)
    pace = timing.pace(**one.asks) if one.asks else timing.together
    steps_per_second, sent = pace.steps_per_second, 2 * WORD / 8 * timing.dimension * timing.scale
    if not plain and not one.asks:
        trial = make_problem("logistic", features=50)
        own = Timing(timing.profile, timing.workers, trial.dimension, timing.asked)
        run = _by_training(one, own, trial, -1.0, 200, range(2), (0.01,))
        steps_per_second, sent = run.steps_per_second, run.bytes_per_step
    steps = np.full(1, np.nan)
    if convergence is not None and plain:
        batch = timing.workers * timing.profile.job.batch_size
        low, high = convergence.interval(batch)
        spread = np.log(high / low) / 2 / 1.6449
        quantiles = np.exp(spread * np.linspace(-1.6449, 1.6449, 21))
        steps = convergence.examples(batch) * quantiles / timing.profile.job.batch_size
    return Compared(
        name=one.name,
        steps_per_second=steps_per_second,
        bytes_per_step=sent,
        steps_to=steps,
        seconds_to=steps / steps_per_second,
        spread=pace.spread,
    )
