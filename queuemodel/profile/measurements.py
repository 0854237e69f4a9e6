"""Measurements of a training job: a table of sizes and rates, whatever its synchronization."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from ..base.checks import FASTEST_LINK, MOST_EXAMPLES, require_count, require_number
from ..base.errors import DataError, QueueModelError
from ..base.files import Row, number_in, parse_bandwidth, parse_duration
from ..base.results import Result, counted
from .job import MOST_WORKERS, require_bandwidth, require_counts
from .records import MOST_SERVERS
from .tables import RATES, TIME_COLUMNS, Column, read_table, value_in


class Measurement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A measured rate of a training job, or a step time.

    Attributes
    ----------
    workers : int
        GPUs, ranks or workers of all nodes together.
    steps_per_second : float
        Of all workers; of synchronous training ``workers`` times the iterations per second.
    nodes : int or None
        Nodes of a data-parallel job; None: one worker on each.
    gpus_per_node : int or None
        On the node that has most of them; as even as can be, unless given.
    batch_size : int or None
        Of one worker and step, in ``unit``; None where it is not known.
    unit : str
        Of the work: ``"examples"``, ``"tokens"``, ...
    sequence_length : int or None
        Tokens of an example, where these are counted.
    parameter_servers : int
    standard_error : float or None
        Of `steps_per_second`, where it is known better than from a minute's run.
    bandwidth : float or None
        Nominal bytes per second of each host's link, where it was not as profiled; without a profile, the same for all.
    """

    workers: int
    steps_per_second: float
    nodes: int | None = None
    gpus_per_node: int | None = None
    batch_size: int | None = None
    unit: str = "examples"
    sequence_length: int | None = None
    parameter_servers: int = 1
    standard_error: float | None = None
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        require_counts(
            self, workers=(1, MOST_WORKERS), batch_size=(1, MOST_EXAMPLES), parameter_servers=(1, MOST_SERVERS),
            sequence_length=(1, MOST_EXAMPLES),
        )  # fmt: skip
        speed = require_number(self.steps_per_second, "steps_per_second", positive=True, error=DataError)
        if self.standard_error is not None:
            require_number(self.standard_error, "standard_error", positive=True, largest=speed, error=DataError)
        if self.bandwidth is not None:
            require_bandwidth(self.bandwidth)
        if self.nodes is not None:
            require_count(self.nodes, "nodes", most=self.workers, error=DataError)
        if self.gpus_per_node is not None:
            nodes = self.nodes or self.workers
            even, most = -(-self.workers // nodes), self.workers - nodes + 1  # every node has one at least
            require_count(self.gpus_per_node, "gpus_per_node", least=even, most=most, error=DataError)

    @property
    def step_time(self) -> float:
        """Seconds of an iteration of synchronous workers, or of one asynchronous worker's step."""
        return self.workers / self.steps_per_second

    @property
    def fullest_node(self) -> int:
        """Workers on the node that has most of them."""
        return self.gpus_per_node or -(-self.workers // (self.nodes or self.workers))

    @property
    def group(self) -> str:
        """Its workers, and their nodes where they are known, in words."""
        if self.nodes is None:
            return counted(self.workers, "worker")
        uneven = f", {self.fullest_node} on one" if self.fullest_node > -(-self.workers // self.nodes) else ""
        return f"{counted(self.nodes, 'node')} ({counted(self.workers, 'GPU')}{uneven})"

    def relative_error(self, usual: float) -> float:
        """Standard error relative to the rate; ``usual`` where it is not known."""
        return usual if self.standard_error is None else self.standard_error / self.steps_per_second


LONG_STEP = 60.0  # seconds; a number without unit above it may be milliseconds
MEASURED_ALONE = "a step is one unit of work, as there is no batch size"


@dataclass(frozen=True, repr=False)
class Measurements(Result, Sequence[Measurement]):
    """A table of measurements."""

    rows: tuple[Measurement, ...]
    strategy: str = ""  # By its columns: "all-reduce" for times or rates of iterations and for GPUs on nodes, or ""
    note: str = ""  # What was assumed in reading

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: Any) -> Any:
        return self.rows[at]

    def caption(self) -> str:
        """Number of measurements, strategy and assumptions."""
        return "; ".join(filter(None, [counted(len(self), "measurement"), self.note]))

    def to_rows(self) -> list[dict[str, Any]]:
        """The measurements without fields that are empty in all rows."""
        rows = [msgspec.structs.asdict(row) | {"step_time": row.step_time} for row in self]
        usual = msgspec.structs.asdict(Measurement(workers=1, steps_per_second=0.5)) | {"step_time": 0.0}
        if not self.strategy or MEASURED_ALONE in self.note:
            del usual["step_time"]
        shown = [n for n in usual if n in ("workers", "steps_per_second") or any(r[n] != usual[n] for r in rows)]
        return [{name: row[name] for name in shown} for row in rows]


def read_measurements(source: Any, *, dataset_size: int | None = None) -> Measurements:
    """Read a table of measurements (docs/reference/measurements-csv).

    Parameters
    ----------
    source : path, text file, DataFrame, dict of columns, or sequence of dict or of Measurement
    dataset_size : int, optional
        Examples of an epoch, for a column ``epoch_time``.

    Raises
    ------
    DataError
        One line that names the file, the line, the column and the value, and what to do.
    """
    if isinstance(source, Measurements):
        return source
    if isinstance(source, Sequence) and source and all(isinstance(one, Measurement) for one in source):
        return Measurements(tuple(source), "all-reduce" if any(one.nodes for one in source) else "")
    if dataset_size is not None:
        require_count(dataset_size, "dataset_size", most=MOST_EXAMPLES, error=DataError)
    rows, columns = read_table(source)
    _require_clear(rows, columns)
    found: list[Measurement] = []
    notes: dict[str, None] = {}
    for row in rows:
        try:
            found.append(_measurement(row, columns, dataset_size, notes))
        except QueueModelError as refusal:
            raise DataError(f"{row.where}: {str(refusal).removeprefix(f'{row.where}: ')}") from None
    _require_seconds(rows, columns, found)
    for row, one in zip(rows, found, strict=True):
        different = (one.unit, one.sequence_length) != (found[0].unit, found[0].sequence_length)
        if different or (MEASURED_ALONE in notes and one.batch_size != 1):
            same = "give all a batch_size, and the same unit and sequence_length"
            raise DataError(f"{row.where}: rows count different work; {same}")
    timed = any(row.given(c.header) for row in rows for c in columns if c.name == "step_time" or c.work == "iteration")
    rounds = timed or any(one.nodes for one in found)
    if not rounds or any(column.name == "parameter_servers" for column in columns):
        return Measurements(tuple(found), note="; ".join(notes))
    return Measurements(tuple(found), "all-reduce", "; ".join(["all-reduce is assumed", *notes]))


def _require_clear(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    """Ask back where GPUs may be those of each node or of all."""
    by = {column.name: column.header for column in columns}
    total = re.search("total|world|rank|worker|process", by.get("gpus", ""), re.IGNORECASE)
    if {"gpus", "nodes"} <= {*by} and "gpus_per_node" not in by and not total:
        pairs = {(r.values[by["gpus"]], r.values[by["nodes"]]) for r in rows if r.given(by["nodes"])}
        sizes = sorted((int(g), int(n)) for g, n in pairs if g.isdecimal() and n.isdecimal() and int(g) > 1)
        for g in (a[0] for a, b in pairwise(sizes) if a[0] == b[0]):
            nodes = [n for gpus, n in sizes if gpus == g]
            lists = nodes, [g * n for n in nodes], [-(-g // n) for n in nodes]
            on, totals, each = (", ".join(map(str, some)) for some in lists)
            raise DataError(
                f"{rows[0].file}: line {rows[0].line}: {by['gpus']}: {g} GPUs on {on} nodes: on each node, or on all "
                f"together? if on each, write gpus_per_node, or gpus with the totals {totals}; if on all, add "
                f"gpus_per_node with {each}"
            )


def _require_seconds(rows: Sequence[Row], columns: Sequence[Column], found: Sequence[Measurement]) -> None:
    """Ask back where all times of a column without a unit would make long steps: they may be milliseconds."""
    for column in (column for column in columns if column.name in TIME_COLUMNS and not column.unit):
        timed = [
            (row, number_in(row.values[column.header]), one.step_time)
            for row, one in zip(rows, found, strict=True) if row.given(column.header)
        ]  # fmt: skip
        if timed and all(step > LONG_STEP and not isinstance(time, str) for _, time, step in timed):
            row, time, step = timed[0]
            what = "a step" if column.name == "step_time" else f"an epoch, with steps of {step:.4g} s,"
            raise DataError(
                f"{row.where}: {column.header}: is {what} of {time} in seconds or milliseconds? write "
                f"{column.name}_ms, or {time}s in the cell if it is seconds"
            )


def _measurement(row: Row, columns: Sequence[Column], dataset: int | None, notes: dict[str, None]) -> Measurement:
    """A row; what is assumed goes to ``notes``."""
    given = {column.name: column for column in columns if row.given(column.header)}
    rates = [c for c in columns if c.name in ("rate", *TIME_COLUMNS) and row.given(c.header)]
    if len(rates) != 1:
        several = " and ".join(c.header for c in rates) or "none"
        raise DataError(f"give one of step_time, {', '.join(RATES)} or epoch_time; got {several}")

    def count(name: str, **limits: int) -> int | None:
        return row.count(given[name].header, **{"most": MOST_EXAMPLES} | limits) if name in given else None

    nodes, fullest = count("nodes"), count("gpus_per_node")
    workers = count("gpus", least=nodes or 1)
    if workers is None:
        if nodes is None:
            raise DataError("give gpus (of all nodes together), or nodes and gpus_per_node")
        if fullest is None:
            notes["one GPU on each node is assumed"] = None
        workers = nodes * (fullest or 1)
    if nodes is None and fullest:
        nodes, fullest = -(-workers // fullest), min(workers, fullest)
    batch, of_all, length = (count(name) for name in ("batch_size", "global_batch_size", "sequence_length"))
    if of_all and batch:
        raise DataError("give batch_size or global_batch_size, got both")
    if of_all and of_all % workers:
        raise DataError(f"{given['global_batch_size'].header} must be a multiple of the {workers} GPUs, got {of_all}")
    batch = of_all // workers if of_all else batch
    value, unit = value_in(row, rate := rates[0]), "examples"
    speed = workers / value if rate.name == "step_time" else value
    if rate.name == "rate":
        speed = value * (workers if rate.per_gpu or rate.work == "iteration" else 1) / parse_duration(f"1{rate.unit}")
    if rate.name == "epoch_time":
        if not (size := count("dataset_size") or dataset):
            raise DataError(f"{rate.header} needs the examples of an epoch; give dataset_size")
        speed = size / value
    if rate.name == "epoch_time" or rate.work not in ("", "step", "iteration"):
        unit = f"{rate.work or 'example'}s"
        if unit == "tokens" and batch:
            if not length:
                raise DataError("tokens need sequence_length beside the batch size; it is 1 if that counts tokens")
            batch *= length
        if not batch:
            notes[MEASURED_ALONE] = None
        batch = batch or 1
        speed /= batch
    error = value_in(row, given["standard_error"], rate) * speed / value if "standard_error" in given else None
    even, link = -(-workers // (nodes or workers)), given["bandwidth"].header if "bandwidth" in given else ""
    return Measurement(
        workers=workers,
        steps_per_second=speed,
        nodes=nodes,
        gpus_per_node=None if fullest == even else fullest,
        batch_size=batch,
        unit=unit,
        sequence_length=length if batch and unit == "examples" else None,
        parameter_servers=count("parameter_servers") or 1,
        standard_error=error,
        bandwidth=row.quantity(link, parse_bandwidth, largest=FASTEST_LINK),
    )
