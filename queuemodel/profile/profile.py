"""The profile: what two-node profiling yields, in one versioned JSON format (docs/reference/profile-json)."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import numpy as np

from ..base.checks import one_line, require_distinct_keys
from ..base.errors import DataError
from ..base.files import read_bytes, write_json
from ..base.recognition import mistaken
from ..base.results import Result, counted
from ..queueing.json_format import require_format
from .job import SHORTEST_STEP, Cluster, Job, Source, require_counts, specified_network
from .measurements import Measurement
from .records import LONGEST_STEP, MOST_BYTES, STEP_KINDS, GradientNorms, NoiseScale, Operation, Round, noise_scale

FORMAT, FORMAT_VERSION = "queuemodel-profile", 1
#: An operation may end after the next step has begun, but not this many steps later.
MOST_STEPS_LONG = 100


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One recorded step of one worker (seconds and bytes).

    The phases may overlap: their sum exceeds `step_time` by `overlap` less idle time (docs/explanation/time).
    """

    step_time: float  # From the step's start to the next one's, or to its own end for a step that none follows
    #: fetch, compute, push, update: Length of the union of the intervals in which parameters were received, the worker
    #: computed, gradients were received by the server, and the server applied updates
    fetch: float
    compute: float
    push: float
    update: float
    fetched_bytes: int  # Payload received by the worker
    pushed_bytes: int  # Payload received by the servers
    overlap: float = 0.0  # Seconds in which the worker computed while parameters or gradients were in transmission
    operations: list[Operation] = []  # With their dependencies, for trace-driven simulation; may be empty

    def __post_init__(self) -> None:
        require_counts(self, fetched_bytes=(0, MOST_BYTES), pushed_bytes=(0, MOST_BYTES))
        for phase in ("step_time", "fetch", "compute", "push", "update", "overlap"):
            value = getattr(self, phase)
            if not isinstance(value, (int, float)) or not 0 <= value <= LONGEST_STEP:  # NaN fails too
                raise DataError(
                    f"{phase} must be >= 0 and at most an hour, got {value!r} seconds; "
                    "traces are often in microseconds, so convert when reading them"
                )
            if value > 1.001 * self.step_time + 1e-3:
                raise DataError(f"{phase} must not exceed step_time ({self.step_time!r} s), got {value!r} s")
        if self.step_time < SHORTEST_STEP:
            raise DataError(f"step_time must be at least {SHORTEST_STEP:g} seconds, got {self.step_time!r}")
        for number, operation in enumerate(self.operations):
            where = f"operation {number} ({operation.name!r})"
            if operation.kind not in STEP_KINDS:
                raise DataError(f"{where}: a step on parameter servers has no {operation.kind}; rounds have")
            if operation.end > MOST_STEPS_LONG * self.step_time:
                raise DataError(
                    f"{where}: end must be within {MOST_STEPS_LONG} times step_time ({self.step_time!r} s), "
                    f"got {operation.end!r} s; times are in seconds from the start of the step"
                )
            if any(type(earlier) is not int or not 0 <= earlier < number for earlier in operation.after):
                raise DataError(f"{where}: after must name operations before it in the list, got {operation.after!r}")


STEP_FIELDS = [name for name in Step.__struct_fields__ if name != "operations"]
ROUND_FIELDS = ["ranks", "number", "rank", "round_time", "computed", "waited"]


class _Header(msgspec.Struct):
    format: str = FORMAT
    version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        require_format(self.format, self.version, FORMAT, FORMAT_VERSION)


class Profile(Result, msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A profile of two nodes: source, cluster, job, one record per step, and measured throughputs if any."""

    format: str = FORMAT
    version: int = FORMAT_VERSION
    source: Source
    cluster: Cluster = Cluster()
    job: Job
    steps: list[Step] = []
    rounds: list[Round] = []  # Of synchronous training, of each rank, of runs with different numbers of ranks
    throughputs: list[Measurement] = []  # Measured for other node counts; used together with the steps in one fit
    gradient_norms: list[GradientNorms] = []  # Of a few steps that lie close together, all of as many workers

    def __post_init__(self) -> None:
        require_format(self.format, self.version, FORMAT, FORMAT_VERSION)
        if not (self.steps or self.rounds or self.throughputs):
            raise DataError("a profile needs at least one step, round or measured throughput, got none")
        if len(self.job.shard_bytes) not in (0, self.cluster.parameter_servers):
            raise DataError(
                f"job.shard_bytes must have one entry per parameter server ({self.cluster.parameter_servers}), "
                f"got {len(self.job.shard_bytes)}"
            )
        if len(counts := {len(one.workers) for one in self.gradient_norms}) > 1:
            raise DataError(f"gradient_norms must all be of as many workers, got {sorted(counts)}")
        servers = self.cluster.parameter_servers
        for number, step in enumerate(self.steps):
            for operation in step.operations:
                if operation.server >= servers:
                    raise DataError(
                        f"step {number}, operation {operation.name!r}: server must be below "
                        f"cluster.parameter_servers, {servers}, got {operation.server}"
                    )

    @property
    def strategy(self) -> str:
        """ "fsdp" or "hsdp" of rounds that share the parameters among all ranks, or within a node; else ""."""
        gathers = [(one, o.group) for one in self.rounds for o in one.operations if o.kind == "all-gather"]
        one, group = max(gathers, key=lambda found: found[0].ranks, default=(None, ""))
        return "" if one is None else "fsdp" if one.groups[group] == one.ranks else "hsdp"

    def with_network(self, congestion_control: str | None = None, buffer: float | None = None) -> Profile:
        """The same with known network parameters; None: as profiled."""
        network = specified_network(congestion_control=congestion_control, buffer=buffer)
        network["origins"] = self.cluster.origins | network["origins"]
        return msgspec.structs.replace(self, cluster=msgspec.structs.replace(self.cluster, **network))

    def values(self, field: str) -> np.ndarray:
        """One number per step, shape (steps,): ``profile.values("step_time")``."""
        return np.array([getattr(step, field) for step in self.steps], dtype=float)

    def noise_scale(self) -> NoiseScale | None:
        """The gradient noise scale in examples, with its error; None unless two steps recorded noise."""
        if len(self.gradient_norms) < 2 or all(one.alike for one in self.gradient_norms):
            return None
        own, mean = zip(*[(one.workers, one.mean) for one in self.gradient_norms], strict=True)
        return noise_scale(own, mean, batch_size=self.job.batch_size)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(msgspec.to_builtins(self))

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The JSON form, which `from_json` reads; also written to ``path``, all of it or nothing, when one is given."""
        text = msgspec.json.format(msgspec.json.encode(self), indent=1).decode()
        write_json(path, text)
        return text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON form to ``path``, gzip'd when it ends in .gz; all of it or nothing."""
        self.to_json(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read a profile; raises `DataError` in one line that names file, field and fault."""
        return cls.from_json(read_bytes(path), where=str(path))

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str = "profile JSON") -> Profile:
        """Parse the JSON form; ``where`` names the source in error messages."""
        try:
            msgspec.json.decode(text, type=_Header)  # another kind of file, or a newer one, has other fields, too
            profile = msgspec.json.decode(text, type=cls)
            require_distinct_keys(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError, DataError) as error:
            raise DataError(f"{where}: {mistaken(text, [FORMAT]) or one_line(error)}") from None
        return profile

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per step, without its operations, or per round of each rank."""
        recorded, names = (self.steps, STEP_FIELDS) if self.steps else (self.rounds, ROUND_FIELDS)
        return [{name: getattr(one, name) for name in names} for one in recorded]

    def _units(self) -> dict[str, str]:
        names = [*STEP_FIELDS, *ROUND_FIELDS]
        return {name: "B" if "bytes" in name else "s" for name in names if name not in ("ranks", "rank", "number")}

    def _recorded(self) -> str:
        if not self.rounds:
            servers = counted(self.cluster.parameter_servers, "parameter server")
            return f"{len(self.steps)} steps, {counted(self.cluster.workers, 'worker')}, {servers}"
        runs = sorted({one.ranks for one in self.rounds})
        counts = [len({one.number for one in self.rounds if one.ranks == ranks}) for ranks in runs]
        return ", ".join(
            f"{count} rounds of {counted(ranks, 'rank')}" for ranks, count in zip(runs, counts, strict=True)
        )

    def summary(self) -> list[dict[str, Any]]:
        """Mean, standard deviation, least and largest of each step field, and of rounds by their number of ranks."""
        measures = {name: self.values(name) for name in (STEP_FIELDS if self.steps else [])}
        for ranks in sorted({one.ranks for one in self.rounds}):
            for name in ("round_time", "computed", "waited"):
                seconds = np.array([getattr(one, name) for one in self.rounds if one.ranks == ranks])
                if name != "waited" or seconds.any():
                    measures[f"{name} of {counted(ranks, 'rank')}"] = seconds
        return [
            {
                "field": name,
                "mean": float(v.mean()),
                "std": float(v.std(ddof=1)) if len(v) > 1 else None,
                "min": float(v.min()),
                "max": float(v.max()),
            }
            for name, v in measures.items()
        ]

    def _tables(self) -> list[list[dict[str, Any]]]:
        """The summary: a row per step would fill the screen."""
        return [self.summary()]

    def caption(self) -> str:
        """Job and cluster."""
        return (
            f"{self.job.name or 'job'}: {self._recorded()}, batch size {self.job.batch_size}, "
            f"{self.job.parameter_bytes / 1e6:.3g} MB in {self.job.tensors} tensors"
        )
