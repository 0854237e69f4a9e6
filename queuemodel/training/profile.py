"""The profile: what two-node profiling yields, in one versioned JSON format (docs/reference/profile-json)."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..errors import DataError
from ..files import read_bytes, write_atomically
from ..network.network import require_format
from ..tables import html_table, text_table
from .operations import Operation

if TYPE_CHECKING:
    import pandas

FORMAT = "queuemodel-profile"
FORMAT_VERSION = 1

#: A step longer than this is taken for microseconds.
LONGEST_STEP = 24 * 3600.0


def _require_counts(value: Any, **least: int) -> None:
    """Refuse a field below its least value (raises DataError, which the decoder places in its file)."""
    for field, bound in least.items():
        got = getattr(value, field)
        if got is not None and (not isinstance(got, int) or isinstance(got, bool) or got < bound):
            raise DataError(f"{field} must be a whole number of at least {bound}, got {got!r}")


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and how a profile was taken.

    Attributes
    ----------
    framework, framework_version : str
    method : str
        What recorded it: ``"run-metadata"``, ``"xplane"``, or another tool's name.
    style : str
        ``"graph"`` (TensorFlow 1 sessions), ``"parameter-server-strategy"`` (TensorFlow 2), or "".
    taken_at : str
        ISO 8601, or "" when not known.
    hosts : dict of str to str
        Task (``"worker:0"``, ``"ps:0"``) to host name or address.
    """

    framework: str
    framework_version: str = ""
    method: str = ""
    style: str = ""
    taken_at: str = ""
    hosts: dict[str, str] = {}


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machines that were profiled.

    Attributes
    ----------
    workers, parameter_servers : int
    bandwidth : float or None
        Nominal bytes per second of each host's link, one direction; None when not known.
    """

    workers: int = 1
    parameter_servers: int = 1
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        _require_counts(self, workers=1, parameter_servers=1)
        if self.bandwidth is not None and not 0 < self.bandwidth < math.inf:
            raise DataError(f"bandwidth must be finite and > 0 bytes per second, or null, got {self.bandwidth!r}")


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the job is, independent of where it runs.

    Attributes
    ----------
    name : str
    batch_size : int
        Examples per step and worker.
    parameter_bytes : int
        All parameters together.
    tensors : int
        How many tensors they are.
    dataset_size : int or None
        Examples per epoch, when known.
    shard_bytes : list of int
        Parameter bytes on each server, in order; empty when not known.
    """

    name: str = ""
    batch_size: int
    parameter_bytes: int
    tensors: int
    dataset_size: int | None = None
    shard_bytes: list[int] = []

    def __post_init__(self) -> None:
        _require_counts(self, batch_size=1, parameter_bytes=0, tensors=0, dataset_size=1)
        if any(size < 0 for size in self.shard_bytes):
            raise DataError(f"shard_bytes must be >= 0, got {self.shard_bytes!r}")


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One recorded step of one worker (seconds and bytes).

    The phases may overlap: their sum exceeds `step_time` by `overlap` less idle time (docs/explanation/phases).

    Attributes
    ----------
    step_time : float
        From the step's start to the next one's, or to its own end for a step that none follows.
    fetch, compute, push, update : float
        Length of the union of the intervals in which parameters were received, the worker computed, gradients were
        received by the server, and the server applied updates.
    fetched_bytes, pushed_bytes : int
        Payload received by the worker and by the servers.
    overlap : float
        Seconds in which the worker computed while parameters or gradients were in transmission.
    operations : list of Operation
        The step's operations with their dependencies, for trace-driven simulation; may be empty.
    """

    step_time: float
    fetch: float
    compute: float
    push: float
    update: float
    fetched_bytes: int
    pushed_bytes: int
    overlap: float = 0.0
    operations: list[Operation] = []

    def __post_init__(self) -> None:
        _require_counts(self, fetched_bytes=0, pushed_bytes=0)
        if not 0 < self.step_time <= LONGEST_STEP:
            raise DataError(
                f"step_time must be > 0 and at most a day, got {self.step_time!r} seconds; "
                "traces are often in microseconds, so convert when reading them"
            )
        for phase in ("fetch", "compute", "push", "update", "overlap"):
            value = getattr(self, phase)
            if not 0 <= value <= LONGEST_STEP:  # NaN fails too
                raise DataError(f"{phase} must be >= 0 and at most a day, got {value!r} seconds")
            if value > 1.001 * self.step_time + 1e-3:
                raise DataError(f"{phase} must not exceed step_time ({self.step_time!r} s), got {value!r} s")
        for number, operation in enumerate(self.operations):
            if any(not 0 <= earlier < number for earlier in operation.after):
                raise DataError(
                    f"operation {number} ({operation.name!r}): after must name operations before it in the list, "
                    f"got {operation.after!r}"
                )


class Throughput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A measured throughput of the whole cluster, in steps of all workers per second."""

    workers: int
    steps_per_second: float
    parameter_servers: int = 1

    def __post_init__(self) -> None:
        _require_counts(self, workers=1, parameter_servers=1)
        if not 0 < self.steps_per_second <= 1e6:
            raise DataError(
                f"steps_per_second must be > 0 and at most a million, got {self.steps_per_second!r}; "
                "give steps of all workers per second, not seconds or examples"
            )


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What two-node profiling yields: where, what, one record per step, and measured throughputs if there are any.

    Attributes
    ----------
    source : Source
    cluster : Cluster
    job : Job
    steps : list of Step
    throughputs : list of Throughput
        Measured for other node counts; used together with the steps in one fit.
    """

    format: str = FORMAT
    version: int = FORMAT_VERSION
    source: Source
    cluster: Cluster = Cluster()
    job: Job
    steps: list[Step] = []
    throughputs: list[Throughput] = []

    def __post_init__(self) -> None:
        require_format(self.format, self.version, FORMAT, FORMAT_VERSION)
        if not self.steps and not self.throughputs:
            raise DataError("a profile needs at least one step or one measured throughput, got none")
        if len(self.job.shard_bytes) not in (0, self.cluster.parameter_servers):
            raise DataError(
                f"job.shard_bytes must have one entry per parameter server ({self.cluster.parameter_servers}), "
                f"got {len(self.job.shard_bytes)}"
            )

    def values(self, field: str) -> np.ndarray:
        """One number per step, shape (steps,): ``profile.values("step_time")``."""
        return np.array([getattr(step, field) for step in self.steps], dtype=float)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON form to ``path``, all of it or nothing."""
        write_atomically(path, msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read a profile.

        Raises
        ------
        DataError
            One line that names the file, the field and what is wrong.
        """
        return cls.from_json(read_bytes(path), where=str(path))

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str = "profile JSON") -> Profile:
        """Parse the JSON form; ``where`` names the source in error messages."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{where}: {error}") from None

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per step, without its operations."""
        fields = [name for name in Step.__struct_fields__ if name != "operations"]
        return [{name: getattr(step, name) for name in fields} for step in self.steps]

    def to_frame(self) -> pandas.DataFrame:
        """One row per step."""
        import pandas

        return pandas.DataFrame(self.to_rows())

    def summary(self) -> list[dict[str, Any]]:
        """Mean, standard deviation, least and largest of each step field."""
        fields = [name for name in Step.__struct_fields__ if name != "operations"]
        return [
            {
                "field": name,
                "mean": float(v.mean()),
                "std": float(v.std(ddof=1)) if len(v) > 1 else None,
                "min": float(v.min()),
                "max": float(v.max()),
            }
            for name in (fields if self.steps else [])
            for v in [self.values(name)]
        ]

    def _caption(self) -> str:
        return (
            f"{self.job.name or 'job'}: {len(self.steps)} steps, {self.cluster.workers} worker(s), "
            f"{self.cluster.parameter_servers} parameter server(s), batch size {self.job.batch_size}, "
            f"{self.job.parameter_bytes / 1e6:.3g} MB in {self.job.tensors} tensors"
        )

    def __repr__(self) -> str:
        return f"{self._caption()}\n{text_table(self.summary())}"

    def _repr_html_(self) -> str:
        return html_table(self.summary(), caption=self._caption())
