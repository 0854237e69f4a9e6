"""Live profiling: processes train for a short while, and their recordings become a profile.

`profile_live` runs what a framework's `Backend` starts. No framework is imported here.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import json
import math
import os
import queue
import socket
import sys
import tempfile
import time
import warnings
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace
from tqdm import tqdm

from ..base.checks import JSON, require_count, require_number, require_writable
from ..base.errors import DataError, MissingDependencyError, ProfilingError, QueueModelWarning
from ..profile.measurements import Measurement
from ..profile.profile import Profile
from ..profile.records import GradientNorms
from .processes import Child, function_name, is_here, own_addresses, recorded_network, signals_noted

LONGEST_RUN = 7 * 24 * 3600.0  # seconds
ENDING = 0.1  # share of the time limit that is left for reading what was recorded
WATCH = 2.0  # seconds without a message after which servers elsewhere are checked
NEWS = 1.0  # seconds to wait for the cause, where one process' failure may be due to another's end
BACKEND_KINDS = {
    "warmup": "warming up", "traced": "tracing", "untraced": "timing without traces", "noise": "measuring gradients"
}  # fmt: skip
OnStep = Callable[[str, int, int], None]
LEAST = {"ranks": 2, "steps": 1, "untraced_steps": 0, "noise_steps": 0, "batch_size": 1}  # of options that count


@dataclass(frozen=True)
class Backend(ABC):
    """A framework's part of a live run; the fields are its options.

    ``model`` is ``"package.module:function"``, or the function itself, where a child process can import it. ``steps``
    are traced, after ``warmup`` ones and before ``untraced_steps`` that are only timed (by default as many).
    """

    model: Any
    _: KW_ONLY
    steps: int
    warmup: int
    untraced_steps: int | None = None

    framework: ClassVar[str]  # its package and our extra
    built_in: ClassVar[Sequence[str]] = ()  # names of models
    least_warmup: ClassVar[int] = 1
    partial: ClassVar[bool] = False  # whether the steps before an early end make a profile

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", function_name(self.model, self.built_in))
        for field in fields(self):
            least = self.least_warmup if field.name == "warmup" else LEAST.get(field.name)
            value = getattr(self, field.name)
            if least is not None and (value is not None or field.default is not None):
                require_count(value, field.name, least=least, error=DataError)
        if self.untraced_steps is None:
            object.__setattr__(self, "untraced_steps", self.steps)

    @property
    def total(self) -> int:
        return self.warmup + self.steps + (self.untraced_steps or 0)

    def require(self, time_limit: float) -> None:
        """Raise an error if a run cannot start, without importing the framework."""
        name = self.framework
        if importlib.util.find_spec(name) is None:
            hint = f"pip install {name}, or '.[{name}]' in a checkout of queuemodel"
            raise MissingDependencyError(f"a live run needs {name}: {hint}")

    @abstractmethod
    def train(self, run: Run) -> None:
        """Start processes and follow them."""

    @abstractmethod
    def read(self, run: Run) -> Profile:
        """Make a profile of the recorded steps."""

    @abstractmethod
    def hosts(self) -> dict[str, str]:
        """Hosts by task."""

    def watch(self) -> None:  # noqa: B027
        """Raise `ProfilingError` if a server elsewhere has ended."""


@dataclass(frozen=True, kw_only=True)
class RanksBackend(Backend):
    """Data-parallel ranks: a single one, then two together and so on, up to ``ranks``.

    In ``noise_steps`` of all ranks each rank's gradient and their mean are measured, for the gradient noise scale.
    """

    ranks: int = 2
    steps: int = 12
    warmup: int = 5
    noise_steps: int = 10

    least_warmup = 2
    child: ClassVar[str]  # "module:function" of each rank, which calls `record_rank`
    reader: ClassVar[Callable[..., Profile]]  # of the folders of traces, by number of ranks

    @property
    def total(self) -> int:
        return super().total * self.ranks + self.noise_steps

    def hosts(self) -> dict[str, str]:
        return {f"rank:{rank}": socket.gethostname() for rank in range(self.ranks)}

    def environment(self) -> dict[str, str]:
        """Variables of the ranks' processes."""
        return {}

    def train(self, run: Run) -> None:
        """Start each number of ranks anew: none can join, and on one accelerator they would be no nodes."""
        for ranks in range(1, self.ranks + 1):
            known: dict[str, Any] = {"noise_steps": self.noise_steps if ranks == self.ranks else 0, "job": run.job}
            with own_addresses(ranks) as addresses:
                known |= {"environment": self.environment(), "addresses": addresses}
                run.follow([run.start(f"rank {rank}", self.child, rank=rank, **known) for rank in range(ranks)])
                run.kill()

    def read(self, run: Run) -> Profile:
        return self.reader([run.traces / f"trace_n{n}" for n in range(1, self.ranks + 1)], **run.job["known"])


class EndedEarlyError(ProfilingError):
    """A run failed; `profile` holds the steps recorded until then, or is None."""

    def __init__(self, message: str, profile: Profile | None) -> None:
        super().__init__(message)
        self.profile = profile


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP ended a run; `profile` as above, `status` is the shell's exit status for it."""

    def __init__(self, message: str, profile: Profile | None, status: int) -> None:
        super().__init__(message)
        self.profile, self.status = profile, status


class OutOfTimeError(ProfilingError):
    """The time limit is reached."""


def profile_live(
    backend: Backend,
    *,
    time_limit: float = 600.0,
    output: str | os.PathLike[str] | None = None,
    traces: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on_step: OnStep | None = None,
) -> Profile:
    """Train a model for a short while, and record where its time goes.

    ``backend``, a `ParameterServer`, a `Mirrored` or a `DataParallel`, takes at most ``time_limit`` seconds. The
    profile is saved to ``output``, on a parameter server also after an early end. ``traces``, a new or empty folder,
    keeps the recorded traces. ``progress`` shows a bar on standard error, by default on a terminal. ``on_step`` is
    called with the kind of step, the steps done and all steps; what it raises ends the run.

    Raises `DataError` or `MissingDependencyError` before anything starts, and with the steps recorded so far
    `EndedEarlyError` when the model, a server or a rank fails, the disk is full or the time is over, and `Interrupted`.

    Examples
    --------
    >>> from queuemodel.adapters import ParameterServer, profile_live
    >>> profile = profile_live(ParameterServer("mlp", steps=20))  # doctest: +SKIP
    """
    require_number(time_limit, "time_limit", unit="seconds", positive=True, largest=LONGEST_RUN, error=DataError)
    run = Run(backend, float(time_limit), progress, on_step)
    require_writable(output, suffixes=JSON)
    backend.require(time_limit)
    with run.ready(traces):
        ended = run.train()
        run.say("reading the traces")
        profile = None if ended is not None and not backend.partial else _profile(run, failed=ended is not None)
        if profile is not None and output is not None:
            try:
                profile.save(output)
            except DataError as error:
                raise EndedEarlyError(str(error), profile) from None
    return _outcome(run, ended, profile, output)


def _profile(run: Run, *, failed: bool) -> Profile | None:
    """The recorded profile; None where no step was whole before a failure."""
    backend = run.backend
    try:
        profile = backend.read(run)
    except DataError:
        if failed:
            return None
        raise
    norms = [GradientNorms(**one) for one in run.gradient_norms if math.isfinite(sum(one["workers"]) + one["mean"])]
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    version, hosts = run.job["framework_version"], backend.hosts()
    throughputs = [
        Measurement(workers=workers, steps_per_second=workers * len(seconds) / sum(seconds))
        for workers, seconds in sorted(run.untraced.items())
    ]
    return replace(
        profile,
        source=replace(profile.source, framework_version=version, taken_at=now, hosts=hosts),
        job=replace(profile.job, **run.job.get("fields", {})),
        cluster=replace(profile.cluster, **(recorded_network() if any(map(is_here, hosts.values())) else {})),
        throughputs=throughputs,
        gradient_norms=[] if all(one.alike for one in norms) else norms,  # on the same examples there is no noise
    )


def _outcome(run: Run, ended: BaseException | None, profile: Profile | None, output: Any) -> Profile:
    """Return the profile, or raise what ended the run early, with it."""
    backend, recorded = run.backend, len(profile.steps or profile.rounds) if profile is not None else 0
    kept = f"saved {recorded} steps to {output}" if output is not None and recorded else f"recorded {recorded} steps"
    if run.signals or isinstance(ended, KeyboardInterrupt):
        kept = kept if recorded or backend.partial else "nothing is saved"
        status = 128 + run.signals[0] if run.signals else 130
        raise Interrupted(f"interrupted; {kept}", profile, status) from None
    if isinstance(ended, OutOfTimeError) and profile is not None:
        timed, wanted = len(run.untraced[1]), backend.untraced_steps
        untraced = f", {timed} of {wanted} untraced" if recorded == backend.steps else ""
        warnings.warn(
            f"time_limit of {run.limit:g} s reached after {recorded} of {backend.steps} steps{untraced}; {kept}",
            QueueModelWarning,
            stacklevel=3,
        )
    elif ended is not None:
        raise EndedEarlyError(f"{ended}; {kept}" if recorded else str(ended), profile) from None
    assert profile is not None  # only an early end leaves none
    return profile


def _empty_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            return folder
    except OSError as error:
        raise DataError(f"traces: {folder}: cannot be made: {error.strerror or error}") from None
    raise DataError(f"traces: {folder} is not empty; name a new folder")


class Run:
    """Child processes of one run, and the messages of the leading one."""

    def __init__(self, backend: Backend, limit: float, progress: bool | None, on_step: OnStep | None) -> None:
        self.backend, self.limit, self.on_step = backend, limit, on_step
        self.until = time.monotonic() + (1 - ENDING) * limit  # the end of training
        self.inbox: queue.SimpleQueue = queue.SimpleQueue()
        self.signals: list[int] = []
        hidden = None if progress is None else not progress  # None: where standard error is no terminal
        self.bar = tqdm(total=backend.total, unit="step", disable=hidden, file=sys.stderr, leave=False)
        self.done = 0  # steps
        self.children: list[Child] = []
        self.doing = "starting"
        self.job: dict[str, Any] = {}  # empty until its message
        self.untraced: dict[int, list[float]] = defaultdict(list)  # seconds of steps, by the number of workers
        self.gradient_norms: list[dict[str, Any]] = []  # by step

    @contextlib.contextmanager
    def ready(self, traces: str | os.PathLike[str] | None) -> Iterator[None]:
        """Make folders, of traces and of files removed with the run; signals are only noted meanwhile."""
        try:
            scratch = tempfile.TemporaryDirectory(prefix="queuemodel-", ignore_cleanup_errors=True)
        except OSError as error:
            raise DataError(f"{tempfile.gettempdir()}: cannot be written: {error.strerror or error}") from None
        with signals_noted(self._signalled), scratch as folder, self.bar:
            self.folder = Path(folder)
            self.traces = _empty_folder(self.folder / "traces" if traces is None else Path(traces))
            yield

    def _signalled(self, number: int) -> None:
        self.signals.append(number)
        self.inbox.put((None, {}))  # wakes `follow`

    def say(self, doing: str) -> None:
        self.doing = doing
        self.bar.set_description(doing)

    def train(self) -> BaseException | None:
        """Let the backend train, end all processes, and return what ended the run early."""
        self.say(self.doing)
        try:
            self.backend.train(self)
        except (ProfilingError, KeyboardInterrupt) as error:
            return error
        finally:
            self.kill()
        return None

    def start(self, name: str, function: str, *, environment: Mapping[str, str], **more: Any) -> Child:
        """Start ``"module:function"`` in a process, with ``more`` settings (raises `ProfilingError`)."""
        here = {"until": self.until, "traces": str(self.traces.resolve()), "path": sys.path}
        settings = asdict(self.backend) | here | more
        try:
            child = Child(name, (function, json.dumps(settings)), self.folder, self.inbox, environment)
        except OSError as error:
            what = error.filename or "a process"
            raise ProfilingError(f"{what}: cannot be started: {error.strerror or error}") from None
        self.children.append(child)
        return child

    def follow(self, awaited: Sequence[Child]) -> None:
        """Wait until these are done; the first one leads (raises `ProfilingError`, `KeyboardInterrupt`)."""
        running = set(awaited)  # a process that is done may go on, for the others
        while running:
            if self.signals:
                raise KeyboardInterrupt
            left = self.until - time.monotonic()
            if left <= 0:
                while_ = "before any step was recorded" if self.backend.partial else f"while {self.doing}"
                raise OutOfTimeError(f"time_limit: it was over {while_}; give more seconds")
            try:
                child, message = self.inbox.get(timeout=min(WATCH, left))
            except queue.Empty:
                self.backend.watch()
                continue
            if child not in self.children:  # of an earlier start, killed since
                continue
            if message is None:
                if child not in awaited or child.process.returncode:
                    raise self._failure(child, child.ending(), awaited)
                running.discard(child)
            elif "failed" in message:
                raise self._failure(child, message["failed"], awaited)
            elif "done" in message:
                running.discard(child)
            elif child is awaited[0]:
                self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        if "doing" in message:
            self.say(message["doing"])
        self.job = message.get("job", self.job)
        self.gradient_norms = message.get("gradient_norms", self.gradient_norms)
        if "seconds" in message:
            self.untraced[message.get("ranks", 1)].append(message["seconds"])
        if "step" in message:
            self.doing = "training"
            self.done = min(self.done + 1, self.backend.total)
            self.bar.set_description(BACKEND_KINDS[message["step"]], refresh=False)
            self.bar.update(self.done - self.bar.n)
            if self.on_step is not None:
                self.on_step(message["step"], self.done, self.backend.total)

    def _failure(self, child: Child, message: str, awaited: Sequence[Child]) -> ProfilingError:
        """This process' message, unless its cause is that another one was killed or a server ended."""
        deadline = time.monotonic() + NEWS
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                other, news = self.inbox.get(timeout=left)
                known = other in self.children and other is not child and news is None
                if known and (other not in awaited or other.process.returncode < 0):
                    return ProfilingError(other.ending())
        return ProfilingError(message)

    def kill(self) -> None:
        for child in reversed(self.children):
            child.kill()
        self.children.clear()
