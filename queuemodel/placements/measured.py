"""Measured step times by placement, and their table: ``nodes,gpus,batch_size,step_time[,gpus_per_node]``."""

from __future__ import annotations

import os

import msgspec

from ..checks import require_count, require_number
from ..errors import DataError
from ..files import read_bytes
from ..rows import Row, read_rows

#: Columns that a table of placements must have.
COLUMNS = ("nodes", "gpus", "batch_size", "step_time")

#: GPUs of a job.
MOST_GPUS = 10_000

#: Examples per GPU and step.
MOST_EXAMPLES = 10**9

#: Seconds; nobody waits longer for a step.
LONGEST_STEP = 1e6


class PlacedStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A measured mean step time of a synchronous data-parallel job.

    Attributes
    ----------
    nodes : int
    gpus : int
        On all nodes together.
    batch_size : int
        Examples per GPU and step.
    step_time : float
        Seconds.
    gpus_per_node : int
        On the node that has most of them; as even as can be, unless given.

    Raises
    ------
    DataError
        When the GPUs cannot stand on the nodes like that, or a number is none.
    """

    nodes: int
    gpus: int
    batch_size: int
    step_time: float
    gpus_per_node: int = 0

    def __post_init__(self) -> None:
        require_count(self.nodes, "nodes", most=MOST_GPUS, error=DataError)
        require_count(self.gpus, "gpus", least=self.nodes, most=MOST_GPUS, error=DataError)
        require_count(self.batch_size, "batch_size", most=MOST_EXAMPLES, error=DataError)
        require_number(
            self.step_time, "step_time", positive=True, largest=LONGEST_STEP, unit="seconds", error=DataError
        )
        even = -(-self.gpus // self.nodes)
        if self.gpus_per_node:
            most = self.gpus - self.nodes + 1  # every node has one at least
            require_count(self.gpus_per_node, "gpus_per_node", least=even, most=most, error=DataError)
        msgspec.structs.force_setattr(self, "gpus_per_node", self.gpus_per_node or even)


def read_placements(path: str | os.PathLike[str]) -> list[PlacedStep]:
    """Read measured step times from a CSV with the columns ``nodes,gpus,batch_size,step_time[,gpus_per_node]``.

    Returns
    -------
    list of PlacedStep
        In the order of the file.

    Raises
    ------
    DataError
        One line that names the file, the line, the column and the value.
    """
    rows = read_rows(path, required=COLUMNS, optional=("gpus_per_node",), what="measurements")
    return [_placed(row) for row in rows]


def holds_placements(path: str | os.PathLike[str]) -> bool:
    """Whether a table's header names step times, and not of numbers of workers."""
    header, *_ = read_bytes(path).splitlines()
    return b"step_time" in header and b"workers" not in header


def _placed(row: Row) -> PlacedStep:
    values = {name: row.count(name) for name in COLUMNS[:3]}
    share = row.count("gpus_per_node") if row.given("gpus_per_node") else 0
    try:
        return PlacedStep(**values, step_time=row.number("step_time"), gpus_per_node=share)
    except DataError as error:
        raise DataError(f"{row.where}: {error}") from None
