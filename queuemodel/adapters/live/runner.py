"""One live run, whatever the framework: started, followed, ended, read."""

from __future__ import annotations

import contextlib
import datetime
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
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from tqdm import tqdm

from ...checks import JSON, require_count, require_number, require_writable
from ...errors import DataError, ProfilingError, QueueModelWarning
from ...training.gradient_norms import GradientNorms
from ...training.job import Throughput
from ...training.profile import Profile
from .child import function_name
from .machine import recorded_network
from .processes import GRACE, Child, Interrupts

LONGEST_RUN = 7 * 24 * 3600.0  # seconds
ENDING = 0.1  # share of the time limit in which nothing new is begun, at most
WATCH = 2.0  # seconds without news after which the backend looks for processes that are not ours
NEWS = 1.0  # seconds to wait for the cause, where one process' failure may be due to another's end
READING_SPEED = 2e6  # bytes of traces that are surely read in a second
KINDS = {
    "warmup": "warming up",
    "traced": "tracing",
    "untraced": "timing without traces",
    "noise": "measuring gradients",
}


@dataclass(frozen=True)
class Backend(ABC):
    """What a framework adds to a live run; the fields are its options.

    Attributes
    ----------
    model : str or function
        ``"package.module:function"``, or the function itself, where a child process can import it.
    steps, warmup, untraced_steps
        Steps to trace, those before, and those that are timed without tracing.
    built_in : sequence of str
        Names of models that are no function's.
    least_warmup : int
    partial : bool
        Whether what was recorded before an early end makes a profile.
    longest_ending : float
        Seconds that an end may take.
    """

    model: Any
    _: KW_ONLY
    steps: int
    warmup: int
    untraced_steps: int | None = None

    built_in: ClassVar[Sequence[str]] = ()
    least_warmup: ClassVar[int] = 0
    partial: ClassVar[bool] = False
    longest_ending: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        """Check what every framework is told (raises DataError)."""
        steps = require_count(self.steps, "steps", error=DataError)
        untraced = steps if self.untraced_steps is None else self.untraced_steps
        self._set(
            model=function_name(self.model, self.built_in),
            steps=steps,
            warmup=require_count(self.warmup, "warmup", least=self.least_warmup, error=DataError),
            untraced_steps=require_count(untraced, "untraced_steps", least=0, error=DataError),
        )

    def _set(self, **checked: Any) -> None:
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def each(self) -> int:
        """Steps of one recording, those before and after it included."""
        return self.warmup + self.steps + (self.untraced_steps or 0)

    @property
    def total(self) -> int:
        """Steps of all kinds."""
        return self.each

    @abstractmethod
    def require(self, time_limit: float) -> None:
        """Raise what keeps a run from starting: MissingDependencyError without the framework."""

    @abstractmethod
    def train(self, run: Run) -> None:
        """Start processes and follow them."""

    @abstractmethod
    def read(self, run: Run) -> Profile | None:
        """Make a profile of what was recorded; None where another machine does."""

    @abstractmethod
    def hosts(self) -> dict[str, str]:
        """Hosts by task."""

    def is_here(self) -> bool:
        """Whether any process is on this machine, so that its network is the job's."""
        return True

    def watch(self) -> None:  # noqa: B027
        """Raise ProfilingError where a process that is not ours has ended."""


@dataclass(frozen=True, kw_only=True)
class RanksBackend(Backend):
    """Data-parallel ranks: one alone, then two together and more.

    Attributes
    ----------
    ranks : int
        Most to train together.
    noise_steps : int
        Steps of all ranks in which each rank's gradient and their mean are measured.
    """

    ranks: int = 2
    steps: int = 12
    warmup: int = 5
    noise_steps: int = 10

    least_warmup = 2

    def __post_init__(self) -> None:
        self._set(ranks=require_count(self.ranks, "ranks", least=2, error=DataError))
        super().__post_init__()
        self._set(noise_steps=require_count(self.noise_steps, "noise_steps", least=0, error=DataError))

    @property
    def here(self) -> Sequence[int]:
        """Ranks on this machine."""
        return range(self.ranks)

    @property
    def total(self) -> int:
        return self.each * (self.ranks - self.here[0]) + self.noise_steps

    def hosts(self) -> dict[str, str]:
        return {f"rank:{rank}": socket.gethostname() for rank in self.here}


class EndedEarlyError(ProfilingError):
    """A run that failed on its way; `profile` holds the steps recorded until then, or is None."""

    def __init__(self, message: str, profile: Profile | None) -> None:
        super().__init__(message)
        self.profile = profile


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP; `profile` holds the steps recorded until then, or is None.

    `status` is the exit status by which a shell knows the signal.
    """

    def __init__(self, message: str, profile: Profile | None, status: int = 130) -> None:
        super().__init__(message)
        self.profile, self.status = profile, status


class OutOfTimeError(ProfilingError):
    """The run took all its time."""


def profile_live(
    backend: Backend,
    *,
    time_limit: float = 600.0,
    output: str | os.PathLike[str] | None = None,
    traces: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on_step: Callable[[str, int, int], None] | None = None,
) -> Profile | None:
    """
    Train a model for a short while, and record where its time goes.

    Parameters
    ----------
    backend : Backend
        What trains: `tensorflow.ParameterServer`, `tensorflow.Mirrored` or `pytorch.DataParallel`, with its options.
    time_limit : float
        Seconds for everything. On a parameter server what is recorded by then is the profile.
    output : path, optional
        Where to save the profile; on a parameter server also when the run fails or is interrupted.
    traces : path, optional
        A folder, new or empty, that keeps the recorded traces.
    progress : bool, optional
        A progress bar on standard error; where that is a terminal unless given.
    on_step : function, optional
        Called with what is going on, the steps done and all steps; what it raises ends the run.

    Returns
    -------
    Profile or None
        None on ranks that send what they recorded to another machine.

    Raises
    ------
    DataError
        An argument that cannot be used, or an output that cannot be written (before anything starts).
    MissingDependencyError
        Without the framework.
    ProfilingError
        The model, a server or a rank fails, the disk is full, or the time is over; as `EndedEarlyError` with the steps
        recorded so far.
    Interrupted
        Ctrl-C, SIGTERM or SIGHUP; likewise, and only after the steps are saved.

    Examples
    --------
    >>> from queuemodel.adapters import tensorflow
    >>> profile = profile_live(tensorflow.ParameterServer("mlp", steps=20))  # doctest: +SKIP
    """
    limit = require_number(
        time_limit, "time_limit", unit="seconds", positive=True, largest=LONGEST_RUN, error=DataError
    )
    run = Run(backend, limit=limit, progress=progress, on_step=on_step)
    require_writable(output, suffixes=JSON)
    backend.require(limit)
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
    """What was recorded; None where another machine has it, or the run failed before the first whole step."""
    backend = run.backend
    try:
        profile = backend.read(run)
    except DataError:
        if failed:
            return None
        raise
    if profile is None:
        return None
    replace = msgspec.structs.replace
    return replace(
        profile,
        source=replace(
            profile.source,
            framework_version=run.job["framework_version"],
            taken_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            hosts=backend.hosts(),
        ),
        cluster=replace(profile.cluster, **(recorded_network() if backend.is_here() else {})),
        throughputs=[
            Throughput(workers=workers, steps_per_second=workers * len(seconds) / sum(seconds))
            for workers, seconds in sorted(run.untraced.items())
        ],
        gradient_norms=_recorded(run.gradient_norms),
    )


def _recorded(steps: Sequence[dict[str, Any]]) -> list[GradientNorms]:
    """Norms of the steps whose gradients were numbers, unless the ranks had the same examples in each."""
    numbers = [GradientNorms(**step) for step in steps if math.isfinite(sum(step["workers"]) + step["mean"])]
    return [] if all(one.alike for one in numbers) else numbers


def _outcome(run: Run, ended: BaseException | None, profile: Profile | None, output: Any) -> Profile | None:
    """Return the profile, or raise what ended the run early with the profile attached."""
    backend, recorded = run.backend, len(profile.steps or profile.rounds) if profile is not None else 0
    kept = f"saved {recorded} steps to {output}" if output is not None and recorded else f"recorded {recorded} steps"
    signals = run.interrupts.received
    if signals or isinstance(ended, KeyboardInterrupt):
        kept = kept if recorded or backend.partial else "nothing is saved"
        raise Interrupted(f"interrupted; {kept}", profile, status=128 + signals[0] if signals else 130) from None
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
    return profile


def _empty_folder(folder: Path) -> Path:
    """Make a folder for traces, or take an empty one (raises DataError)."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        used = any(folder.iterdir())
    except OSError as error:
        raise DataError(f"traces: {folder}: cannot be made: {error.strerror or error}") from None
    if used:
        raise DataError(f"traces: {folder} is not empty; name a new folder")
    return folder


class Run:
    """Child processes of one run, and what the one that leads has told so far.

    Attributes
    ----------
    job : dict
        What it said of the job; empty until it has.
    untraced : dict
        Seconds of steps without tracing, by the number of workers.
    gradient_norms : list of dict
        Of all ranks' gradients and their mean, by step.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        limit: float,
        progress: bool | None,
        on_step: Callable[[str, int, int], None] | None,
    ) -> None:
        self.backend, self.limit, self.on_step = backend, limit, on_step
        self.deadline = time.monotonic() + limit
        self.until = self.deadline - min(backend.longest_ending, ENDING * limit)  # when training must be over
        self.inbox: queue.SimpleQueue = queue.SimpleQueue()
        self.interrupts = Interrupts(wake=lambda: self.inbox.put((None, {})))
        show = sys.stderr.isatty() if progress is None else progress
        self.bar = tqdm(total=backend.total, unit="step", disable=not show, file=sys.stderr, leave=False)
        self.done = 0  # steps
        self.children: list[Child] = []
        self.doing = "starting"
        self.job: dict[str, Any] = {}
        self.untraced: dict[int, list[float]] = defaultdict(list)
        self.gradient_norms: list[dict[str, Any]] = []
        self.traced_bytes = 0

    @contextlib.contextmanager
    def ready(self, traces: str | os.PathLike[str] | None) -> Iterator[None]:
        """Within its block there are folders for traces and for what ends with the run, and signals are only noted."""
        try:
            scratch = tempfile.TemporaryDirectory(prefix="queuemodel-", ignore_cleanup_errors=True)
        except OSError as error:
            raise DataError(f"{tempfile.gettempdir()}: cannot be written: {error.strerror or error}") from None
        with self.interrupts, scratch as folder, self.bar:
            self.folder = Path(folder)
            self.traces = _empty_folder(self.folder / "traces" if traces is None else Path(traces))
            yield

    @property
    def settings(self) -> dict[str, Any]:
        """What every child that trains is told."""
        return asdict(self.backend) | {"until": self.until, "traces": str(self.traces.resolve()), "path": sys.path}

    def say(self, doing: str) -> None:
        """What is going on between the steps."""
        self.doing = doing
        self.bar.set_description(doing)

    def train(self) -> BaseException | None:
        """Let the backend train, and leave no process behind; return what ended the run early."""
        try:
            self.backend.train(self)
        except (ProfilingError, KeyboardInterrupt) as error:
            return error
        finally:
            self._end()
        return None

    def start(self, name: str, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Child:
        """Start a module in a process of its own, with this added to its environment (raises ProfilingError)."""
        try:
            child = Child(name, module, arguments, scratch=self.folder, inbox=self.inbox, environment=environment)
        except OSError as error:
            what = error.filename or "a process"
            raise ProfilingError(f"{what}: cannot be started: {error.strerror or error}") from None
        self.children.append(child)
        return child

    def follow(self, awaited: Sequence[Child]) -> None:
        """Until all of these are done, of which the first leads (raises ProfilingError, KeyboardInterrupt)."""
        running = set(awaited)  # one that is done may stay, where the others need it until they are
        while running:
            if self.interrupts.received:
                raise KeyboardInterrupt
            left = self.until - self.traced_bytes / READING_SPEED - time.monotonic()  # however much there is to read
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
                    raise self._failure(child, child.epitaph(), awaited)
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
        self.traced_bytes += message.get("traced_bytes", 0)
        self.gradient_norms = message.get("gradient_norms", self.gradient_norms)
        if "seconds" in message:
            self.untraced[message.get("ranks", 1)].append(message["seconds"])
        if "step" in message:
            self.doing = "training"
            self.done = min(self.done + 1, self.backend.total)
            self.bar.set_description(KINDS[message["step"]], refresh=False)
            self.bar.update(self.done - self.bar.n)
            if self.on_step is not None:
                self.on_step(message["step"], self.done, self.backend.total)

    def _failure(self, child: Child, said: str, awaited: Sequence[Child]) -> ProfilingError:
        """Where another process was killed, or a server has ended, that is the cause and not what this one says."""
        deadline = time.monotonic() + NEWS
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                other, message = self.inbox.get(timeout=left)
                known = other in self.children and other is not child and message is None
                if known and (other not in awaited or other.process.returncode < 0):
                    return ProfilingError(other.epitaph())
        return ProfilingError(said)

    def kill(self) -> None:
        """Leave no process behind."""
        for child in reversed(self.children):
            child.kill()
        self.children.clear()

    def _end(self) -> None:
        """Where what is recorded counts, let the step in progress end, unless asked once more or too late."""
        if not (self.backend.partial and self.children):
            self.kill()
            return
        asked, trainer = len(self.interrupts.received), self.children[-1]
        patience = min(time.monotonic() + GRACE, self.deadline)
        if self.done:
            trainer.ask_to_stop()
            while not trainer.wait(0.05) and time.monotonic() < patience and len(self.interrupts.received) == asked:
                pass
        self.kill()
        with contextlib.suppress(queue.Empty):
            while True:
                child, message = self.inbox.get_nowait()
                if child is trainer:
                    self._note(message or {})
