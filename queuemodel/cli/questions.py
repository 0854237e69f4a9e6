"""What several commands ask of a profile: the same options, with the same words, in one place."""

from __future__ import annotations

from typing import Any

import click

from ..strategies import SCHEMES
from ..strategies.fit import STRATEGIES
from ..strategies.round_changes import COLLECTIVES
from ..traces.policies import POLICIES, SHARDINGS
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
    option,
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
    option("--k", COUNT, "Results that a server waits for: k-sync and its relatives."),
    option("--backup-workers", COUNT_OR_NONE, "Sync-ps: results of a round not waited for."),
    option("--staleness-bound", COUNT_OR_NONE, "Bounded staleness: steps ahead of the last."),
)

#: Of throughputs alone.
TOLD = together(
    option("--parameter-bytes", SIZE, "Throughputs alone: of all parameters, like 98MB."),
    option("--sparse-gradients", None, "Synchronous throughputs alone: most parameters are embeddings.", is_flag=True),
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
    default="links",
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

#: The machines, where they are not the profiled ones.
MACHINES = together(
    option("--parameter-servers", COUNT, "Another number of servers."),
    option("--bandwidth", BANDWIDTH, "Another link of every host, like 10Gbit/s."),
    option("--accelerator-speed", POSITIVE, "2: computation takes half as long."),
    option("--worker-speeds", SPEEDS, "Each worker's: 1*4,0.5 is half of the others' from the 5th on."),
    option("--batch-size", COUNT, "Another mini-batch size per worker; of throughputs alone, theirs."),
)

RANKS_PER_NODE = option("--ranks-per-node", COUNT, "All-reduce: ranks that share a node's link.")

#: Data-parallel training on other networks, and sent in other ways.
ROUNDS = together(
    option("--latency", LATENCY, "All-reduce: another time per message, like 50us."),
    option("--bucket-bytes", SIZE, "All-reduce: another cap of buckets, like 25MB."),
    one_of("--scheme", list(SCHEMES), "All-reduce: how gradients are sent."),
    one_of("--collective", list(COLLECTIVES), "All-reduce: another algorithm."),
    option("--accumulation", COUNT, "All-reduce: steps of a rank between two reductions."),
    RANKS_PER_NODE,
    option("--inside-bandwidth", BANDWIDTH, "All-reduce: between ranks of a node."),
    option("--nodes-per-rack", COUNT, "All-reduce: with --oversubscription."),
    option("--oversubscription", POSITIVE, "All-reduce: a rack's nodes over its link up."),
)

#: What only the simulation of recorded operations knows.
SIMULATION = together(
    one_of("--policy", POLICIES, "Simulation: in which order tensors are sent."),
    one_of("--sharding", SHARDINGS, "Simulation: how tensors are dealt to other numbers of servers."),
    option("--straggler-probability", SHARE, "Simulation: that a step's computation takes longer."),
    option("--straggler-slowdown", POSITIVE, "Simulation: how many times as long, then."),
    option(
        "--worker-bandwidth",
        BANDWIDTHS,
        "Simulation: payload of each worker's link: 50Mbit/s*3,20Mbit/s is slower from the 4th on.",
    ),
)

#: What else the profiled network is, where the profile does not know it.
NETWORK = together(CONGESTION_CONTROL, BUFFER)

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
    option("--gpus-per-node", COUNT, "Step times by placement: GPUs of a node."),
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
    if ("straggler_probability" in given) != ("straggler_slowdown" in given):
        raise click.UsageError("--straggler-probability and --straggler-slowdown go together; give both")
    return given | {name: given[name](workers) for name in ("worker_speeds", "worker_bandwidth") if name in given}
