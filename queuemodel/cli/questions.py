"""What several commands ask of a profile: the same options, with the same words, in one place."""

from __future__ import annotations

from typing import Any

import click

from ..training.scenario import FIELDS, FLAG, KINDS, of_group
from .options import (
    COUNTS,
    DATASET_SIZE,
    DURATION,
    FILE,
    INNER_SHARE,
    POSITIVE,
    RUNS,
    SEED,
    Decorator,
    Parsed,
    each,
    one_of,
    together,
)

PROFILE = click.argument("profile", type=click.Path())

#: Other words for names, and what an option is unless given.
CALLED = {"strategy": {"async": "async-ps", "sync": "sync-ps", "ssp": "bounded-staleness", "ddp": "all-reduce"}}
UNLESS_GIVEN = {"strategy": "as recorded; of throughputs alone async-ps", "form": "links"}


def option(name: str) -> Decorator:
    """The option of a scenario's field."""
    kind, flag, words = KINDS[name], f"--{name.replace('_', '-')}", FIELDS[name].metadata["help"]
    if kind.names:
        return one_of(flag, kind.names, words, CALLED.get(name), show_default=UNLESS_GIVEN.get(name, False))
    if kind is FLAG:
        return click.option(flag, is_flag=True, help=words)

    def one(text: str) -> Any:
        return kind.check(kind.read(text), "it")

    return click.option(flag, type=Parsed(kind.name, each(one) if kind.most else one), help=words)


def options(*groups: str) -> Decorator:
    """Options of groups of a scenario's fields."""
    return together(*(option(name) for group in groups for name in of_group(group)))


STRATEGY, FORM, RANKS_PER_NODE = options("job"), options("form"), option("ranks_per_node")
TOLD, MACHINES, ROUNDS = options("throughputs"), options("machines"), options("rounds")
SIMULATION, NETWORK = options("simulation"), options("network")

#: How to predict.
METHOD = one_of(
    "--method",
    ["auto", "mva", "trace"],
    "Mean-value analysis, simulation of recorded operations, or what the profile allows.",
    {"simulation": "trace", "analysis": "mva", "exact": "mva"},
    default="auto",
    show_default=True,
)
#: What was measured besides the profile.
MEASUREMENTS = together(
    click.option(
        "--throughputs",
        type=FILE,
        multiple=True,
        help="Measured besides: a CSV, or a profile of several workers; may be repeated.",
    ),
    click.option(
        "--measured",
        type=RUNS,
        multiple=True,
        help="Measured besides, on the profile's servers: 4=1.74; may be repeated.",
    ),
)

INTERVALS = together(
    click.option("--confidence", type=INNER_SHARE, default=0.9, show_default=True, help="Of the intervals."),
    click.option("--seed", type=SEED, default=0, show_default=True),
)

#: What to predict from, and for which machines.
PREDICTION = together(
    PROFILE,
    click.option("--workers", type=COUNTS, default="1:32", show_default=True, help="8, 1:32 or 1,2,4,8."),
    STRATEGY,
    TOLD,
    METHOD,
    FORM,
    MEASUREMENTS,
    MACHINES,
    options("placements"),
    ROUNDS,
    SIMULATION,
    NETWORK,
    INTERVALS,
)

#: What a number of workers is chosen for.
GOALS = together(
    click.option("--epochs", type=POSITIVE, help="Passes over the data set."),
    click.option("--dataset-size", type=DATASET_SIZE, help="Examples per epoch, unless the profile has it."),
    click.option("--deadline", type=DURATION, help="Like 12h or 90min: the smallest number of workers that meets it."),
    click.option(
        "--price", "price_per_node_hour", type=POSITIVE, help="Per node and hour: the cheapest number of workers."
    ),
    click.option("--min-efficiency", type=POSITIVE, help="The most workers with at least this X(N) / (N X(1))."),
)


def asked(options: dict[str, Any], workers: int) -> dict[str, Any]:
    """The options that were given, with what is told of each worker as a list for so many."""
    given = {name: value for name, value in options.items() if value is not None}
    return given | {name: given[name](workers) for name in ("worker_speeds", "worker_bandwidth") if name in given}
