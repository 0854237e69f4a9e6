"""Strategies by name: each trains a problem in predicted time, or a law of convergence gives its steps to a loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from ..base.checks import require_choice, require_count, require_number, require_share
from ..base.errors import ModelError
from ..curves.convergence import Convergence, relative_convergence
from ..models import simulation
from ..models.predict import PathName, as_data
from ..profile.profile import Profile
from ..profile.scenario import Scenario
from .compression import WORD
from .loop import descend, looks
from .problems import Checked, Problem, make_problem
from .result import Compared, Comparison
from .strategy import RANKS, SERVER, ServerSGD, Strategy, SynchronousSGD, update_rules
from .timing import Timing


@dataclass(frozen=True)
class Candidate(Checked):
    """A way of training to compare."""

    name: str
    descent: Strategy  #: what it does to the loss
    #: Arguments of `predict` for the seconds of its gradients; empty: its workers synchronize.
    asks: dict[str, Any] = field(default_factory=dict)
    compression: float = 0.0  #: seconds that each worker computes before a transfer; no profile has them
    caller = "compare"


NAMES = tuple(update_rules(2))


def candidates(
    names: Sequence[str | Candidate] | None, workers: int, *, machines: str, simulated: bool
) -> list[Candidate]:
    """The requested strategies, or all that the profiled machines can run and `predict` can solve or simulate."""
    asked = "compare: strategy"
    rules = {name: (Candidate(name, way, asks), needs) for name, (way, asks, needs) in update_rules(workers).items()}
    if names is None:
        possible = [one for one, needs in rules.values() if needs in ("", machines)]
        return [one for one in possible if simulated or Scenario(**one.asks).synchronization.solvable]
    chosen = []
    for one in [names] if isinstance(names, str) else names:
        if isinstance(one, Candidate):
            way, needs = one, SERVER if one.asks else ""
        else:
            way, needs = rules[require_choice(one, asked, NAMES)]
        if needs not in ("", machines):
            raise ModelError(f"{asked} {way.name!r} needs a profile {needs}; leave it out")
        chosen.append(way)
    found = [one.name for one in chosen]
    if not chosen or len(set(found)) < len(found):
        raise ModelError(f"compare: strategies must be different and at least one, got {found}")
    return chosen


#: Seeds on which learning rates are chosen, apart from those that are reported, and rates that are tried.
TRIALS, RATES = (10_001, 10_002), (0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Training(Checked):
    """The training that stands for the job: arguments of `compare`."""

    problem: Problem
    target: float  #: loss to reach
    steps: int = 1000  #: of each worker at most
    seeds: int = 8
    seed: int = 0  #: the first one
    learning_rates: Sequence[float] = RATES

    caller = "compare"

    @classmethod
    def of(cls, problem: str | Problem, target: float | None = None, **settings: Any) -> Training:
        """The target is by default 98 % of the way from the first loss to the least."""
        if isinstance(problem, str):
            problem = make_problem(problem, examples=1000, features=50)
        first = float(problem.loss(problem.start(np.random.default_rng(0))))
        near = first - 0.98 * (first - problem.minimum)
        goal = require_number(near if target is None else target, "compare: target")
        if not problem.minimum < goal < first:
            within = f"above the least loss, {problem.minimum:.6g}, and below the loss at the start, {first:.6g}"
            raise ModelError(f"compare: target must be {within}, got {goal!r}")
        return cls(problem=problem, target=goal, **settings)

    def compared(self, one: Candidate, timing: Timing) -> Compared:
        """A strategy's run at its best learning rate, in predicted seconds."""
        speed = timing.speed(**one.asks) if one.asks else timing.synchronous
        each = 1 if isinstance(one.descent, ServerSGD) else timing.workers
        clock = timing.computing if one.asks else timing.clock(one.descent, one.compression)
        run = partial(
            descend, self.problem, one.descent, workers=timing.workers, clock=clock, until=self.target,
            steps=looks(self.steps * timing.workers // each, 201),
        )  # fmt: skip

        def merit(rate: float) -> tuple[float, float]:
            tried = run(learning_rate=rate, seeds=TRIALS)
            return float(np.median(tried.steps_to(self.target))), float(tried.losses[:, -1].mean())

        rates = self.learning_rates
        best = rates[0] if len(rates) == 1 else min(rates, key=merit)
        done = run(learning_rate=best, seeds=range(self.seed, self.seed + self.seeds))
        if one.asks:  # its gradients come at the rate of its network
            done = replace(done, times=done.times * done.steps[-1] / speed.steps_per_second / done.times[:, -1:])
        taken = int(done.steps[-1])
        bits = float((done.up_bits + done.down_bits)[:, -1].mean())
        return Compared(
            name=one.name,
            steps_per_second=each * taken / float(done.times[:, -1].mean()),
            bytes_per_step=bits / 8 * timing.scale / taken * timing.sizing(one.descent),
            steps_to=each * done.steps_to(self.target),
            seconds_to=done.time_to(self.target),
            spread=speed.spread,
            learning_rate=best,
            descent=done,
        )


#: The training that measures what a strategy sends; its target is below every loss.
PROBE_STEPS = Training(
    problem=make_problem("logistic", features=50), target=-1.0, steps=200, seeds=2, learning_rates=(0.01,)
)

#: Quantiles of a law of convergence that stand for all, of equal weight.
LEVELS = (np.arange(41) + 0.5) / 41


def by_law(one: Candidate, timing: Timing, law: Convergence | None, unit: float) -> Compared:
    """The time of a step and the law's steps, where known; ``unit``: a second in the answer's unit of time."""
    speed = timing.speed(**one.asks) if one.asks else timing.synchronous
    steps_per_second, sent = speed.steps_per_second, 2 * WORD / 8 * timing.dimension * timing.scale
    averaged = _averaged(one, timing.workers)
    if not averaged and not one.asks:
        problem = PROBE_STEPS.problem
        if one.descent.exact:  # a batch is all there is
            problem = replace(problem, batch_size=len(problem.targets))
        run = replace(PROBE_STEPS, problem=problem).compared(one, timing)
        steps_per_second, sent = run.steps_per_second * timing.drawn, run.bytes_per_step
    steps = np.full(1, np.nan)
    if law is not None and averaged:
        steps = np.array(law.quantiles(averaged * timing.batch_size, LEVELS)) / timing.batch_size
    return Compared(one.name, steps_per_second, sent, steps, steps / steps_per_second * unit, speed.spread)


def _averaged(one: Candidate, workers: int) -> int:
    """Workers whose unchanged gradients of the same parameters make an update; 0 where they differ."""
    if isinstance(one.descent, ServerSGD):
        return one.descent.k if one.descent.name in ("k-sync", "k-batch-sync") else 0
    return workers if isinstance(one.descent, SynchronousSGD) else 0


def compare(
    profile: Profile | PathName,
    *,
    workers: int = 8,
    strategies: Sequence[str | Candidate] | None = None,
    problem: str | Problem | None = None,
    convergence: Convergence | None = None,
    price_per_node_hour: float | None = None,
    confidence: float = 0.9,
    progress: bool = False,
    **settings: Any,
) -> Comparison:
    """
    Compare strategies by the time in which they reach a loss.

    Each strategy trains a `Problem` that stands for the job, for several seeds, in predicted time: computation as
    recorded, transfers in proportion to the bytes sent, gradients on a server as of `predict`. Its learning rate is the
    best of a few on other seeds. A stand-in need not rank strategies as the job's own loss does; ``convergence``, the
    job's own law of batch sizes, covers only strategies that average gradients of the same parameters: synchronous
    SGD, K-sync and K-batch-sync, whose batch is that of K workers. With neither, the profile's gradient noise scale
    gives the same relative to a single worker; without that, the answer is per step.

    Parameters
    ----------
    strategies : sequence of str or Candidate, optional
        By default all that such machines can run; names are in `queuemodel.sgd.NAMES`.
    problem : str or Problem, optional
        A name is one of `queuemodel.sgd.PROBLEM_KINDS`.
    convergence : Convergence, optional
        What `fit_convergence` gives of examples, not epochs; then the target is its own.
    price_per_node_hour : float, optional
        Of every node, servers included; with a problem or a convergence law, whose target takes a time to pay for.
    confidence : float
        Of the intervals: over seeds, and the error of the predicted times. That error is taken to be the same for all
        strategies, each in proportion to its own standard error: they come from one profile.
    **settings
        Of training on a problem: ``target``, the loss to reach (98 % of the way from the first to the least),
        ``steps`` of each worker at most (1000), ``seeds`` (8) from ``seed`` (0) on, ``learning_rates`` to try. Besides,
        what-ifs for `predict`, and ``congestion_control`` and ``buffer``; not ``accumulation``, and ``batch_size`` only
        without a problem.
    """
    settings = {name: value for name, value in settings.items() if value is not None}
    training = {one.name: settings.pop(one.name) for one in fields(Training) if one.name in settings}
    n = require_count(workers, "compare: workers")
    require_share(confidence, "compare: confidence", open_ended=True)
    _require_one_question(problem, convergence, training.get("target"), price_per_node_hour, settings)
    if not isinstance(profile := as_data(profile), Profile) or not (profile.steps or profile.rounds):
        raise ModelError("compare: needs a profile with recorded steps or rounds; record one")
    if profile.strategy:
        raise ModelError(
            f"compare: rounds of strategy {profile.strategy!r} are not compared; use `predict` and what-ifs"
        )
    trained = Training.of(problem, **training) if problem is not None else None
    timing = Timing(profile, n, (trained or PROBE_STEPS).problem.dimension, settings)
    obstacle = simulation.refuses(profile, Scenario().updated(**settings)) if timing.on_servers else ""
    chosen = candidates(strategies, n, machines=SERVER if timing.on_servers else RANKS, simulated=not obstacle)
    noise = profile.noise_scale() if problem is None and convergence is None else None
    if trained is not None:
        answer = partial(trained.compared, timing=timing)
    else:
        if not timing.on_servers:
            drawn = PROBE_STEPS.compared(Candidate("sync", SynchronousSGD()), timing).steps_per_second
            timing = replace(timing, drawn=timing.synchronous.steps_per_second / drawn)
        law, unit = convergence, 1.0
        if noise is not None:
            law = relative_convergence(timing.batch_size, noise)
            unit = replace(timing, workers=1).synchronous.steps_per_second
        answer = partial(by_law, timing=timing, law=law, unit=unit)
    from tqdm import tqdm

    rows = tuple(answer(one) for one in tqdm(chosen, desc="compare", disable=not progress, leave=False))
    left_out = obstacle if strategies is None else ""
    return Comparison(
        rows=rows,
        workers=n,
        nodes=timing.synchronous.nodes,
        target=None if trained is None else trained.target,
        price_per_node_hour=price_per_node_hour,
        confidence=confidence,
        remarks=tuple(_remarks(rows, trained, noise, convergence, sized=timing.sized, left_out=left_out)),
        relative=noise is not None,
        problem="" if trained is None else repr(trained.problem),
    )


def _require_one_question(
    problem: object, convergence: object, target: float | None, price: float | None, changes: dict[str, Any]
) -> None:
    """Refuse arguments that do not go together."""
    law, unknown = type(convergence).__name__, "would change the progress per update, which is unknown; leave it out"
    for refused, why in (
        (problem is not None and convergence is not None, "give a problem or a convergence law, not both"),
        (not isinstance(convergence, Convergence | None), f"convergence must be what fit_convergence gives, got {law}"),
        (target is not None and problem is None, "target is a loss of a problem; give one"),
        (price is not None and problem is None and convergence is None,
         "price_per_node_hour needs a time to pay for; give a problem or a convergence law"),
        ("accumulation" in changes, f"accumulation {unknown}"),
        (problem is not None and "batch_size" in changes,
         f"the batch_size of a problem that stands for the job {unknown}"),
    ):  # fmt: skip
        if refused:
            raise ModelError(f"compare: {why}")


def _remarks(
    rows: Sequence[Compared], trained: Training | None, noise: object, law: object, *, sized: bool, left_out: str
) -> list[str]:
    """What to know before trusting a comparison."""
    rates = trained.learning_rates if trained else ()
    unknown = ", ".join(one.name for one in rows if np.isnan(one.seconds_to).any())
    at_end = ", ".join(one.name for one in rows if len(rates) > 1 and one.learning_rate in (min(rates), max(rates)))
    missed = ", ".join(one.name for one in rows if trained and one.unreached)
    least = f"{trained.steps if trained else 0} steps of each worker"
    remarks = (
        (noise, f"by the profile's gradient noise scale, {noise}, in steps and time of one worker alone"),
        (not (trained or law or noise),
         "no problem and no law of convergence was given, and the profile has no gradient noise, so this is per step, "
         "not to a loss"),
        (unknown and not trained and (noise or law), f"no law gives the steps of {unknown}"),
        (left_out, f"half-synchronous strategies are left out: their simulation {left_out}"),
        (at_end, f"the best learning rate of {at_end} is the least or largest tried"),
        (not sized, "the links' bandwidth or a step's bytes are unknown: compression is assumed to save no time there"),
        (missed, f"{missed} did not reach it in {least}, in half of the runs or more"),
    )  # fmt: skip
    return [text for holds, text in remarks if holds]
