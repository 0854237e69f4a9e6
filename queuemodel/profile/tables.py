"""Tables as people and tools write them, files or frames: what their headers mean, and the numbers in their cells."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ..base.checks import got, nearest
from ..base.errors import DataError
from ..base.files import Row, number_in, parse_duration, read_rows
from ..base.recognition import mistaken

#: Words of a header that mean one thing; "" is left out.
WORDS = {word: meaning for meaning, words in {
    "gpu": "device accelerator chip worker rank process processes nproc", "node": "host machine instance nnode",
    "iteration": "it iter round update", "image": "img", "sample": "smp", "sequence": "seq", "token": "tok",
    "example": "ex", "second": "s sec", "ms": "msec millisecond", "us": "usec microsecond", "minute": "min",
    "hour": "h hr", "time": "duration", "length": "len", "batch_size": "bs batchsize",
    "token_per_second_per_gpu": "tgs", "micro_batch_size": "mbs", "global_batch_size": "gbs",
    "sequence_length": "seqlen", "step": "", "server": "", "word": "", "frame": "", "sentence": "",
    "": "n num number no of count mean avg average median training train throughput speed",
}.items() for word in [meaning, *words.split()]}  # fmt: skip
#: Columns, and how else their headers are worded; a time or a bandwidth may have its unit there, too.
TABLE_COLUMNS = {
    "gpus": "gpu world_size total_gpu gpu_total", "nodes": "node", "gpus_per_node": "gpu_per_node local_world_size",
    "step_time": "step_time steptime time_per_step per_step iteration_time time_per_iteration per_iteration",
    "dataset_size": "dataset_size data_set_size sample_per_epoch example_per_epoch",
    "epoch_time": "epoch_time time_per_epoch per_epoch",
    "batch_size": "batch_size batch local_batch_size per_gpu_batch_size batch_size_per_gpu micro_batch_size",
    "global_batch_size": "global_batch_size total_batch_size effective_batch_size batch_size_global batch_size_total",
    "sequence_length": "sequence_length context_length", "standard_error": "standard_error stderr std_err sem",
    "parameter_servers": "parameter_server ps server", "bandwidth": "bandwidth link_bandwidth network_bandwidth",
}  # fmt: skip
KEYS = {key: name for name, keys in TABLE_COLUMNS.items() for key in keys.split()}
TIME_COLUMNS = ("step_time", "epoch_time")
QUANTITIES = (*TIME_COLUMNS, "standard_error", "bandwidth")
TABLE_UNITS = ("second", "ms", "us", "minute", "hour")
RATE = re.compile(
    r"(?:total_|global_)?(per_gpu_)?(step|iteration|example|image|sample|sequence|token|word|frame|sentence)"
    r"_per_(gpu_per_)?(second|minute|hour)(_per_gpu)?(?:_total)?"
)
RATES = ("steps_per_second", "iterations_per_second", "examples_per_second", "tokens_per_second")
#: What describes a run, or follows from its rate.
DESCRIPTIONS = """name model date time_stamp timestamp comment note framework hardware gpu_type gpu_model gpu_name
    cluster source job_id run run_id run_name experiment id description dataset dataset_name network precision dtype
    backend url author optimizer seed speedup efficiency scaling_efficiency mfu tflops loss memory
    """
IGNORED = {*DESCRIPTIONS.split()}
_UNIT = "write its unit, like examples_per_second or tokens_per_second"
_BATCHES = "write iterations_per_second of the group, or steps_per_second of all workers"
_DEVIATION = "write standard_error: the deviation over the square root of the number of steps"
ADVICE = {
    "throughput": _UNIT, "speed": _UNIT, "rate": _UNIT, "time": "write step_time or epoch_time",
    "n": "write gpus or nodes",
    "tps": "write tokens_per_second of all GPUs, or tokens_per_second_per_gpu", "batches_per_second": _BATCHES,
    "std": _DEVIATION, "std_dev": _DEVIATION, "step_time_std": _DEVIATION,
}  # fmt: skip
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+(?![\d,])")
_DECIMAL = re.compile(rf"(?!{_THOUSANDS.pattern})\d+,\d+(?![\d,])")


class Column(NamedTuple):
    """What a column holds: a name of `TABLE_COLUMNS`, or ``rate`` of some ``work`` per ``unit``."""

    header: str
    name: str
    unit: str = ""
    work: str = ""
    per_gpu: bool = False


def read_table(source: Any) -> tuple[list[Row], list[Column]]:
    """The rows of a table, with texts of numbers that Python reads, and its columns."""
    rows = _rows(source)
    columns = _columns(rows)
    return _plain(rows, columns), columns


def _rows(source: Any) -> list[Row]:
    """The rows of a source, with texts."""
    if isinstance(source, (str, os.PathLike)) or hasattr(source, "read"):
        return list(read_rows(source, required=(), what="measurements", others=True, delimiter=""))
    if hasattr(source, "columns"):  # a DataFrame, of pandas or polars
        framed = source.reset_index() if any(getattr(getattr(source, "index", None), "names", ())) else source
        source = {name: framed[name] for name in framed.columns}
    if isinstance(source, Mapping):
        lists = {name: [] if isinstance(v, str) or not isinstance(v, Iterable) else [*v] for name, v in source.items()}
        if len(sizes := {*map(len, lists.values())}) > 1 or 0 in sizes:
            raise DataError("table: columns must be lists of one length, and not empty")
        source = [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
    records = list(source) if isinstance(source, Iterable) and not isinstance(source, bytes) else []
    if not records or not all(isinstance(one, Mapping) for one in records):
        raise DataError(f"table: expected a file, a DataFrame, a dict of columns or a list of dicts, {got(source)}")
    names = list(dict.fromkeys(name for one in records for name in one))
    absent = ("None", "nan", "<NA>", "NaT")
    cells = [{str(n): "" if str(one.get(n)) in absent else str(one[n]) for n in names} for one in records]
    return [Row("table", line, values) for line, values in enumerate(cells, 1)]


def _key(text: str) -> str:
    """A header in the words of `WORDS`."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower().replace("/", " per ")
    words = re.findall(r"[a-zµ]+\d*", spaced)
    return "_".join(filter(None, [WORDS.get(w, WORDS.get(w.removesuffix("s"), w)) for w in words]))


def _column(header: str) -> Column | None:
    """What a header means, if anything."""
    key, bare = _key(header), re.sub(r"\s*[(\[].*", "", header)
    (first, _, rest), (start, _, last) = key.partition("_"), key.rpartition("_")
    inside = header[len(bare) :].strip(" ()[]")
    for name, unit in ((_key(bare), inside), (key, ""), (start, last), (rest, first)):
        meant, spelt = KEYS.get(name, ""), _key(unit)
        if meant and (not unit or meant in QUANTITIES[2:] or (meant in TIME_COLUMNS and spelt in TABLE_UNITS)):
            return Column(header, meant, unit if meant == "bandwidth" else spelt or unit)
    if rate := RATE.fullmatch(key):
        return Column(header, "rate", rate[4], rate[2], bool(rate[1] or rate[3] or rate[5]))
    return None


def _columns(rows: Sequence[Row]) -> list[Column]:
    """The columns that are read; others are refused, unless they describe."""
    headers = list(rows[0].values)
    columns = {header: _column(header) for header in headers}
    where = f"{rows[0].file}: line 1"
    for header in (header for header in headers if columns[header] is None):
        cells = [row.values[header].strip() for row in rows]
        if re.fullmatch(r"(Unnamed: 0)?", header):
            if any(cells) and cells != [str(line) for line in range(len(cells))]:
                raise DataError(f"{where}: a column has no name; was it written with its index? write index=False")
        elif _key(header) not in IGNORED and header.lower().replace(" ", "_") not in IGNORED:
            if hint := mistaken(",".join(headers), ("workers", "nodes", "gpus", "batch_size", "step_time")):
                raise DataError(f"{rows[0].file}: {hint}")
            if len(headers) == 1 or all(re.match(r"[\d.]", one) for one in headers):
                raise DataError(f"{where}: must name columns, like gpus,step_time, got {','.join(headers)[:60]!r}")
            known = [*TABLE_COLUMNS, *RATES]
            meant = nearest(header, known, called=KEYS | ADVICE) or f"; the known ones are {', '.join(known)}"
            raise DataError(f"{where}: unknown column {header[:60]!r}{meant}")
    found = [column for column in columns.values() if column]
    for one, other in ((a, b) for a, b in pairwise(sorted(found, key=lambda c: c.name)) if a.name == b.name != "rate"):
        raise DataError(f"{where}: columns {one.header!r} and {other.header!r} mean the same; leave one")
    return found


def _plain(rows: Sequence[Row], columns: Sequence[Column]) -> list[Row]:
    """The same with numbers as Python writes them: 1,200 and 1.2k are 1200; 1,200 is 1.2 beside 0,5."""
    point = "." if any(_DECIMAL.match(row.values[c.header].strip()) for row in rows for c in columns) else ""

    def plain(text: str, column: Column) -> str:
        comma = _THOUSANDS.match(text) or _DECIMAL.match(text)
        text = text.replace(",", point) if comma else text
        number = text if column.name in QUANTITIES else number_in(text)
        if column.name == "bandwidth" and text[-1:].isdigit():
            return text + column.unit
        return text if isinstance(number, str) else str(number)

    return [Row(r.file, r.line, {c.header: plain(r.values[c.header].strip(), c) for c in columns}) for r in rows]


def value_in(row: Row, column: Column, like: Column | None = None) -> float:
    """A time in seconds, or a rate in the column's unit; ``like``: the column whose standard error this is."""
    text, meant = row.values[column.header], like or column
    time = meant.name in TIME_COLUMNS
    if like and column.unit and not time and _column(column.unit) != meant._replace(header=column.unit):
        raise DataError(f"{column.header} must be in the unit of {like.header}, got {column.unit}")
    if time and (text[-1:].isalpha() or ":" in text):
        return row.quantity(column.header, parse_duration) or 0.0
    unit = (column.unit or meant.unit) if time else ""
    return row.number(column.header, positive=True) * (parse_duration(f"1{unit}") if unit else 1.0)
