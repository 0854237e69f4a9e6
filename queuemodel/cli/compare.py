"""``queuemodel compare``: strategies by the time to a loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ..base.checks import require_writable
from ..base.drawing import FORMATS, save_figure
from ..base.errors import ModelError
from ..base.results import Result
from ..curves.convergence import fit_convergence, read_convergence
from ..models.predict import load_data
from ..profile.profile import Profile
from ..profile.scenario import CALLED, SHARDED
from ..report import SUFFIXES
from ..sgd import NAMES, PROBLEM_KINDS, compare, plan_strategies, plot_time_to_target
from . import options as ask

#: How else the compared strategies are called; none shards its parameters.
STRATEGY_SYNONYMS = {
    name: "sync" if meant == "all-reduce" else meant
    for name, meant in CALLED.items()
    if not any(sharded in meant for sharded in SHARDED)
} | {"sync-ps": "sync", "all-reduce": "sync"}


@ask.command()
@ask.PROFILE
@ask.option("--workers", ask.WORKERS, "Numbers of workers, like 8, 1:8 or 2,4,8.", default="8", show_default=True)
@ask.one_of("--strategy", NAMES, "Strategies to compare; may be repeated.",
            STRATEGY_SYNONYMS, multiple=True,
            show_default="all that the profiled machines can run")  # fmt: skip
@ask.one_of("--problem", PROBLEM_KINDS, "Convex or neural problem to train instead of the job.")
@ask.option("--convergence", ask.FILE,
            "CSV with batch_size,examples: measured examples to the target, one row per seed.")  # fmt: skip
@ask.option(
    "--target-loss", ask.ABOVE_ZERO, "Of --problem.", show_default="98 % of the way to the minimum", common=False
)
@ask.option("--steps", ask.COUNT, "Per worker on --problem, at most.  [default: 1000]", common=False)
@ask.option("--seeds", ask.COUNT, "Runs per strategy on --problem.  [default: 8]", common=False)
@ask.MACHINES
@ask.ROUNDS
@ask.option("--deadline", ask.DURATION, "Longest time to the target, like 90min.")
@ask.option("--chance", ask.INNER_SHARE, "Probability of meeting the deadline.  [default: 0.5]", common=False)
@ask.option("--price price_per_node_hour", ask.PRICE, "Price per node and hour.")
@ask.option("--plot", ask.FILE, "Loss against time, or time against workers (.png, .svg, .pdf).")
@ask.option("--confidence", ask.INNER_SHARE, "Probability of the intervals.", default=0.9, show_default=True,
            common=False)  # fmt: skip
@ask.option("--seed", ask.SEED, "Of the first run on --problem.  [default: 0]", common=False)
@ask.OUTPUT
@ask.option("--report", ask.FILE, "Write an HTML report (.html).")
def compare_command(
    profile: str, workers: Sequence[int], output_format: str, explain: bool, plot: str | None, report: str | None,
    **options: Any,
) -> None:  # fmt: skip
    """Compare strategies by the time to a loss.

    The exit status is 3 where a deadline is not met.

    \b
    Examples:
      queuemodel compare cnn.json --workers 8 --problem logistic --plot losses.png
      queuemodel compare cnn.json --workers 2,4,8 --problem logistic --deadline 2h
    """
    strategies = options.pop("strategy") or None
    deadline, chance, price = options.pop("deadline"), options.pop("chance"), options["price_per_node_hour"]
    if not options["problem"]:
        if plot:
            raise ModelError("compare: --plot draws losses, which need --problem")
        for name in ("target_loss", "steps", "seeds", "seed"):
            if options[name] is not None:
                raise ModelError(f"compare: --{name.replace('_', '-')} is for training a --problem; give one")
    if chance is not None and deadline is None:
        raise ModelError("compare: --chance requires --deadline; give one")
    if report and len(workers) > 1:
        raise ModelError("compare: --report shows one number of workers; give one")
    require_writable(plot, suffixes=FORMATS)
    require_writable(report, suffixes=SUFFIXES)
    data = load_data(profile)
    if not isinstance(data, Profile):
        raise ModelError(f"compare: {profile} holds throughputs; a comparison needs a profile with recorded steps")
    convergence = options.pop("convergence")
    law = fit_convergence(read_convergence(convergence), noise_scale=data.noise_scale()) if convergence else None
    settings = {"strategies": strategies, "target": options.pop("target_loss"), "convergence": law}
    settings["progress"] = ask.watched()
    results = [compare(data, workers=n, **settings, **ask.specified(options, n)) for n in workers]
    document: dict[str, Any] = {"comparisons": [result.to_dict() for result in results]}
    shown, missed = list[Result](results), False
    if deadline is not None or (len(results) > 1 and price is not None):
        plan = plan_strategies(results, deadline=deadline, price_per_node_hour=price, chance=chance or 0.5)
        shown.append(plan)
        document |= {"plan": plan.to_dict()}
        missed = any(choice.strategy is None for choice in plan.choices)
    if plot:
        save_figure(results[0].plot() if len(results) == 1 else plot_time_to_target(results), plot)
    if report:
        results[0].report(report)
    if output_format == "table":
        for number, one in enumerate(shown):
            if number:
                click.echo()
            ask.show(one, output_format, explain=explain)
    else:
        rows = [{"workers": result.workers, **row} for result in results for row in result.to_rows()]
        ask.show(ask.Table(rows, document if len(shown) > 1 else results[0].to_dict()), output_format)
    if missed:
        raise click.exceptions.Exit(3)
