"""Measured all-gathers of a cluster: bytes, nodes and time, as nccl-tests' ``all_gather_perf`` prints them."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from ..base.checks import got
from ..base.errors import DataError, ModelError
from ..base.files import parse_latency, read_rows
from .records import MOST_BYTES


class Gather(NamedTuple):
    """An all-gather: bytes that each rank has in the end, nodes, seconds, and GPUs of a node (0: as the job's)."""

    bytes: float
    nodes: int
    seconds: float
    gpus_per_node: int = 0


def read_gathers(source: Any) -> tuple[Gather, ...]:
    """Read a CSV with columns bytes, nodes, time (with unit) or time_us, and perhaps gpus_per_node.

    A `DataError` names file, line and column, or that no row is of several nodes.
    """
    optional = ("time", "time_us", "gpus_per_node")
    found = []
    for row in read_rows(source, required=("bytes", "nodes"), optional=optional, what="all-gathers", others=True):
        seconds = row.quantity("time", parse_latency) or 1e-6 * row.number("time_us", positive=True)
        size = row.number("bytes", positive=True, largest=MOST_BYTES)
        found.append(Gather(size, row.count("nodes"), seconds, row.count("gpus_per_node", 0, least=0)))
    if not any(one.nodes > 1 for one in found):
        raise DataError(f"{source}: all-gathers must be of 2 nodes or more; only these show the network")
    return tuple(found)


def require_gathers(value: Any, what: str) -> Any:
    """All-gathers, read where it is a path, or the fitted model of another job on the cluster (raises `ModelError`)."""
    if isinstance(value, os.PathLike):
        return read_gathers(value)
    listed = isinstance(value, tuple) and bool(value) and all(isinstance(one, Gather) for one in value)
    if not listed and not isinstance(getattr(value, "cluster", None), dict):
        raise ModelError(f"{what} must be a CSV of all-gathers, or the model of another sharded job, {got(value)}")
    return value
