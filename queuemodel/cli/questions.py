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
    option,
    together,
)

PROFILE = click.argument("profile", type=click.Path())

#: Other words for names, and what an option is unless given.
CALLED = {"strategy": {"async": "async-ps", "sync": "sync-ps", "ssp": "bounded-staleness", "ddp": "all-reduce"}}
UNLESS_GIVEN = {"strategy": "as recorded; of throughputs alone async-ps", "form": "links"}


def asking(name: str) -> Decorator:
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
    return together(*(asking(name) for group in groups for name in of_group(group)))


STRATEGY, FORM, RANKS_PER_NODE = options("job"), options("form"), asking("ranks_per_node")
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
    option(
        "--throughputs",
        FILE,
        "Measured besides: a CSV, or a profile of several workers; may be repeated.",
        multiple=True,
    ),
    option("--measured", RUNS, "Measured besides, on the profile's servers: 4=1.74; may be repeated.", multiple=True),
)

INTERVALS = together(
    option("--confidence", INNER_SHARE, "Of the intervals.", default=0.9, show_default=True),
    option("--seed", SEED, default=0, show_default=True),
)

#: What to predict from, and for which machines.
PREDICTION = together(
    PROFILE,
    option("--workers", COUNTS, "8, 1:32 or 1,2,4,8.", default="1:32", show_default=True),
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
    option("--epochs", POSITIVE, "Passes over the data set."),
    option("--dataset-size", DATASET_SIZE, "Examples per epoch, unless the profile has it."),
    option("--deadline", DURATION, "Like 12h or 90min: the smallest number of workers that meets it."),
    option("--price price_per_node_hour", POSITIVE, "Per node and hour: the cheapest number of workers."),
    option("--min-efficiency", POSITIVE, "The most workers with at least this X(N) / (N X(1))."),
)


def asked(options: dict[str, Any], workers: int) -> dict[str, Any]:
    """The options that were given, with what is told of each worker as a list for so many."""
    given = {name: value for name, value in options.items() if value is not None}
    return given | {name: given[name](workers) for name in ("worker_speeds", "worker_bandwidth") if name in given}
