"""What several commands ask of a profile: the same options, with the same words, in one place."""

from __future__ import annotations

from typing import Any

import click

from ..collectives import COLLECTIVES
from ..strategies import SCHEMES
from ..training.scenario import POLICIES, SHARDINGS, STRATEGIES
from .options import (
    BANDWIDTH,
    BANDWIDTHS,
    BUFFER,
    CONGESTION_CONTROL,
    COUNT,
    COUNT_OR_NONE,
    COUNTS,
    DATASET_SIZE,
    DURATION,
    FILE,
    INNER_SHARE,
    LATENCY,
    POSITIVE,
    RUNS,
    SEED,
    SHARE,
    SIZE,
    SPEEDS,
    one_of,
    together,
)

PROFILE = click.argument("profile", type=click.Path())

#: How the job trains.
STRATEGY = together(
    one_of(
        "--strategy",
        STRATEGIES,
        "How the job trains.",
        {"async": "async-ps", "sync": "sync-ps", "ssp": "bounded-staleness", "ddp": "all-reduce"},
        show_default="as recorded; of throughputs alone async-ps",
    ),
    click.option("--k", type=COUNT, help="Results that a server waits for: k-sync and its relatives."),
    click.option("--backup-workers", type=COUNT_OR_NONE, help="Sync-ps: results of a round not waited for."),
    click.option("--staleness-bound", type=COUNT_OR_NONE, help="Bounded staleness: steps ahead of the last."),
)

#: Of throughputs alone.
TOLD = together(
    click.option("--parameter-bytes", type=SIZE, help="Throughputs alone: of all parameters, like 98MB."),
    click.option(
        "--sparse-gradients",
        is_flag=True,
        help="Throughputs of sync-ps or all-reduce alone: most parameters are embeddings.",
    ),
)

#: How to predict.
METHOD = one_of(
    "--method",
    ["auto", "mva", "trace"],
    "Mean-value analysis, simulation of recorded operations, or what the profile allows.",
    {"simulation": "trace", "analysis": "mva", "exact": "mva"},
    default="auto",
    show_default=True,
)
FORM = one_of(
    "--form",
    ["links", "single"],
    "Of the network: separate links and update, or one server station.",
    show_default="links",
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

#: The machines, where they are not the profiled ones.
MACHINES = together(
    click.option("--parameter-servers", type=COUNT, help="Another number of servers."),
    click.option("--bandwidth", type=BANDWIDTH, help="Another link of every host, like 10Gbit/s."),
    click.option("--accelerator-speed", type=POSITIVE, help="2: computation takes half as long."),
    click.option("--worker-speeds", type=SPEEDS, help="Each worker's: 1*4,0.5 is half of the others' from the 5th on."),
    click.option("--batch-size", type=COUNT, help="Another mini-batch size per worker; of throughputs alone, theirs."),
)

RANKS_PER_NODE = click.option("--ranks-per-node", type=COUNT, help="All-reduce: ranks that share a node's link.")

#: Data-parallel training on other networks, and sent in other ways.
ROUNDS = together(
    click.option("--latency", type=LATENCY, help="All-reduce: another time per message, like 50us."),
    click.option("--bucket-bytes", type=SIZE, help="All-reduce: another cap of buckets, like 25MB."),
    one_of("--scheme", list(SCHEMES), "All-reduce: how gradients are sent."),
    one_of("--collective", list(COLLECTIVES), "All-reduce: another algorithm."),
    click.option("--accumulation", type=COUNT, help="All-reduce: steps of a rank between two reductions."),
    RANKS_PER_NODE,
    click.option("--inside-bandwidth", type=BANDWIDTH, help="All-reduce: between ranks of a node."),
    click.option("--nodes-per-rack", type=COUNT, help="All-reduce: with --oversubscription."),
    click.option("--oversubscription", type=POSITIVE, help="All-reduce: a rack's nodes over its link up."),
)

#: What only the simulation of recorded operations knows.
SIMULATION = together(
    one_of("--policy", POLICIES, "Simulation: in which order tensors are sent."),
    one_of("--sharding", SHARDINGS, "Simulation: how tensors are dealt to other numbers of servers."),
    click.option("--straggler-probability", type=SHARE, help="Simulation: that a step's computation takes longer."),
    click.option("--straggler-slowdown", type=POSITIVE, help="Simulation: how many times as long, then."),
    click.option(
        "--worker-bandwidth",
        type=BANDWIDTHS,
        help="Simulation: payload of each worker's link: 50Mbit/s*3,20Mbit/s is slower from the 4th on.",
    ),
)

#: What else the profiled network is, where the profile does not know it.
NETWORK = together(CONGESTION_CONTROL, BUFFER)

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
    click.option("--gpus-per-node", type=COUNT, help="Step times by placement: GPUs of a node."),
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
    if ("straggler_probability" in given) != ("straggler_slowdown" in given):
        raise click.UsageError("--straggler-probability and --straggler-slowdown go together; give both")
    return given | {name: given[name](workers) for name in ("worker_speeds", "worker_bandwidth") if name in given}
