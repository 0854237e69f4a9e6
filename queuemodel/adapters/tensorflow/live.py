"""Live profiling: a real parameter server and a real worker train for a short while, traced."""

from __future__ import annotations

import contextlib
import datetime
import errno
import importlib.util
import json
import os
import queue
import socket
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
from tqdm import tqdm

from ...errors import DataError, ProfilingError, QueueModelWarning
from ...training.profile import Profile, Throughput
from ._imports import require_tensorflow
from .addresses import servers_elsewhere
from .models import model_name
from .processes import GRACE, Child, free_addresses, require_answer
from .traces import read_traces

ANSWER_LIMIT = 10.0  # seconds for a server elsewhere to answer
WATCH = 2.0  # seconds without news after which servers elsewhere are asked whether they still live

MOST = 1_000_000
LONGEST_RUN = 7 * 24 * 3600.0

JOBS = {"ps": "parameter server", "worker": "worker"}
KINDS = {"warmup": "warming up", "traced": "tracing", "untraced": "timing without traces"}
#: The module that trains, and the style's name in the profile.
STYLES = {"graph": ("worker", "graph"), "strategy": ("strategy", "parameter-server-strategy")}


class EndedEarlyError(ProfilingError):
    """A run that failed on its way; `profile` holds the steps recorded until then, or is None."""

    def __init__(self, message: str, profile: Profile | None) -> None:
        super().__init__(message)
        self.profile = profile


class Interrupted(KeyboardInterrupt):
    """Ctrl-C; `profile` holds the steps recorded until then, or is None."""

    def __init__(self, message: str, profile: Profile | None) -> None:
        super().__init__(message)
        self.profile = profile


def profile_live(
    model: str | Callable[[], Any],
    *,
    steps: int = 50,
    warmup: int = 10,
    untraced_steps: int | None = None,
    style: Literal["graph", "strategy"] = "graph",
    ps: str | None = None,
    worker: str | None = None,
    time_limit: float = 600.0,
    batch_size: int | None = None,
    output: str | os.PathLike[str] | None = None,
    traces: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on_step: Callable[[str, int, int], None] | None = None,
) -> Profile:
    """
    Train a model on one parameter server and one worker for a short while, and record where its time goes.

    Parameters
    ----------
    model : str or function
        ``"package.module:function"`` (or the function itself, where a child process can import it) that returns a
        compiled Keras model and a `tf.data.Dataset` of ``(x, y)`` batches; or a built-in: ``"mlp"``, ``"cnn"``,
        ``"embedding"``, ``"transformer"``.
    steps : int
        Steps to trace: one record each.
    warmup : int
        Steps before, not recorded.
    untraced_steps : int, optional
        Steps to time without tracing, which slows them: their rate becomes the profile's throughput of one worker.
        As many as `steps` unless given; 0 for none.
    style : {"graph", "strategy"}
        A TensorFlow 1 session, or TensorFlow 2's `ParameterServerStrategy`.
    ps, worker : str, optional
        ``HOST:PORT`` of servers that already run (see `queuemodel.adapters.tensorflow.serve`). Without them, those of
        the environment's ``TF_CONFIG`` if set; else both are started here, on the loopback interface.
    time_limit : float
        Seconds for everything; what is recorded by then is the profile.
    batch_size : int, optional
        Examples per step; the data set's own unless given.
    output : path, optional
        Where to save the profile, also when the run fails or is interrupted.
    traces : path, optional
        A folder, new or empty, that keeps the recorded traces.
    progress : bool, optional
        A progress bar on standard error; where that is a terminal unless given.
    on_step : function, optional
        Called with what is going on, the steps done and all steps.

    Raises
    ------
    DataError
        An argument that cannot be used, or an output that cannot be written (before anything starts).
    ProfilingError
        The model or a server fails; as `EndedEarlyError` with the steps recorded so far.
    Interrupted
        Ctrl-C; likewise.

    Examples
    --------
    >>> profile = profile_live("mlp", steps=20)  # doctest: +SKIP
    """
    plan = _Plan(
        model=model_name(model),
        style=_one_of("style", style, STYLES),
        steps=_count("steps", steps, least=1),
        warmup=_count("warmup", warmup, least=0),
        untraced_steps=_count("untraced_steps", steps if untraced_steps is None else untraced_steps, least=0),
        batch_size=None if batch_size is None else _count("batch_size", batch_size, least=1),
        elsewhere=servers_elsewhere(ps, worker),
        deadline=time.monotonic() + _seconds("time_limit", time_limit),
    )
    require_writable(output)
    _require_installed()
    for job, address in (plan.elsewhere or {}).items():
        require_answer(job, address, seconds=ANSWER_LIMIT)
    show = sys.stderr.isatty() if progress is None else progress
    with tempfile.TemporaryDirectory(prefix="queuemodel-") as folder, _Bar(plan, show, on_step) as bar:
        run = _Run(plan, Path(folder), _empty_folder(traces) if traces is not None else Path(folder, "traces"), bar)
        ended = run.train()
        profile = run.profile(failed=ended is not None)
    if profile is not None and output is not None:
        profile.save(output)
    return _outcome(ended, profile, plan, time_limit, output)


def _outcome(
    ended: BaseException | None, profile: Profile | None, plan: _Plan, time_limit: float, output: Any
) -> Profile:
    """Return the profile, or raise what ended the run early with the profile attached."""
    recorded = len(profile.steps) if profile is not None else 0
    kept = f"saved {recorded} steps to {output}" if output is not None and recorded else f"recorded {recorded} steps"
    if isinstance(ended, KeyboardInterrupt):
        raise Interrupted(f"interrupted; {kept}", profile) from None
    if isinstance(ended, TimeoutError) and profile is not None:
        warnings.warn(
            f"time_limit of {time_limit:g} s reached after {recorded} of {plan.steps} steps; {kept}",
            QueueModelWarning,
            stacklevel=3,
        )
    elif ended is not None or profile is None:
        raise EndedEarlyError(
            f"{ended}; {kept}" if recorded else str(ended or "no step was recorded"), profile
        ) from None
    return profile


# arguments


@dataclass(frozen=True, kw_only=True)
class _Plan:
    model: str
    style: str
    steps: int
    warmup: int
    untraced_steps: int
    batch_size: int | None
    elsewhere: dict[str, str] | None
    deadline: float

    @property
    def total(self) -> int:
        return self.warmup + self.steps + self.untraced_steps


def _count(name: str, value: Any, *, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
        raise DataError(f"{name}: must be a whole number from {least} to {MOST:,}, got {value!r}")
    return value


def _seconds(name: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < LONGEST_RUN:
        raise DataError(f"{name}: must be > 0 and less than {LONGEST_RUN:g} seconds, got {value!r}")
    return float(value)


def _one_of(name: str, value: Any, choices: Collection[str]) -> str:
    if value not in choices:
        raise DataError(f"{name}: must be one of {', '.join(choices)}, got {value!r}")
    return value


def require_writable(output: str | os.PathLike[str] | None) -> None:
    """Refuse, before the work is done, a path that could not be written after it (raises DataError)."""
    if output is None:
        return
    try:
        if Path(output).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=Path(output).parent):
            pass
    except OSError as error:
        raise DataError(f"{output}: cannot be written: {error.strerror or error}") from None


def _require_installed() -> None:
    """Without spending the seconds that importing TensorFlow takes."""
    with contextlib.suppress(ValueError):  # it is being hidden
        if importlib.util.find_spec("tensorflow") is not None:
            return
    require_tensorflow()


def _empty_folder(folder: str | os.PathLike[str]) -> Path:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        used = any(Path(folder).iterdir())
    except OSError as error:
        raise DataError(f"traces: {folder}: cannot be made: {error.strerror or error}") from None
    if used:
        raise DataError(f"traces: {folder} is not empty; name a new folder")
    return Path(folder)


# the run


class _Bar:
    """How far the run is, for a terminal and for the caller."""

    def __init__(self, plan: _Plan, show: bool, on_step: Callable[[str, int, int], None] | None) -> None:
        self.plan, self.on_step, self.done = plan, on_step, 0
        self.bar = tqdm(total=plan.total, unit="step", disable=not show, file=sys.stderr, leave=False)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def say(self, doing: str) -> None:
        self.bar.set_description(doing)

    def step(self, kind: str) -> None:
        self.done = min(self.done + 1, self.plan.total)
        self.bar.set_description(KINDS[kind], refresh=False)
        self.bar.update(self.done - self.bar.n)
        if self.on_step is not None:
            self.on_step(kind, self.done, self.plan.total)


class _Run:
    """The child processes and what they have told so far."""

    def __init__(self, plan: _Plan, folder: Path, traces: Path, bar: _Bar) -> None:
        self.plan, self.folder, self.traces, self.bar = plan, folder, traces, bar
        self.inbox: queue.SimpleQueue = queue.SimpleQueue()
        self.children: list[Child] = []
        self.facts: dict[str, Any] = {}
        self.untraced: list[float] = []

    def train(self) -> BaseException | None:
        """Start the processes, follow them to the end, and leave none behind; return what ended the run early."""
        try:
            self._follow(self._start())
        except (ProfilingError, KeyboardInterrupt, TimeoutError) as error:
            return error
        finally:
            self._end()
        return None

    def _start(self) -> Child:
        self.bar.say("starting TensorFlow")
        self.traces.mkdir(exist_ok=True)
        module, _ = STYLES[self.plan.style]
        addresses = self.plan.elsewhere or dict(zip(JOBS, free_addresses(len(JOBS)), strict=True))
        here = [] if self.plan.elsewhere else ["ps"] if self.plan.style == "graph" else JOBS
        for job in here:
            options = [f"--job={job}", f"--ps={addresses['ps']}", f"--worker={addresses['worker']}", "--follow"]
            self._child(JOBS[job], "serve", options, gpu=job == "worker")
        settings = {
            **addresses,
            "model": self.plan.model,
            "batch_size": self.plan.batch_size,
            "warmup": self.plan.warmup,
            "steps": self.plan.steps,
            "untraced_steps": self.plan.untraced_steps,
            "own_server": not self.plan.elsewhere,
            "run": f"queuemodel-{uuid.uuid4().hex}",
            "traces": str(self.traces.resolve()),
            "path": sys.path,
        }
        computes = self.plan.style == "graph" and not self.plan.elsewhere
        name = "worker" if computes else "coordinator"
        return self._child(name, module, [json.dumps(settings)], gpu=computes)

    def _child(self, name: str, module: str, arguments: list[str], *, gpu: bool) -> Child:
        log = self.folder / f"{name.replace(' ', '-')}.log"
        child = Child(name, module, arguments, log=log, inbox=self.inbox, gpu=gpu)
        self.children.append(child)
        return child

    def _follow(self, trainer: Child) -> None:
        while True:
            if (left := self.plan.deadline - time.monotonic()) <= 0:
                raise TimeoutError("time_limit: it was over before any step was recorded; give more seconds")
            try:
                child, message = self.inbox.get(timeout=min(WATCH, left))
            except queue.Empty:
                self._watch_elsewhere()
                continue
            if message is None:
                if child is trainer and child.process.returncode == 0:
                    return
                raise self._failure(child, child.epitaph())
            if "failed" in message:
                raise self._failure(child, message["failed"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        if "doing" in message:
            self.bar.say(message["doing"])
        if "job" in message:
            self.facts = message
        if "step" in message:
            if message["step"] == "untraced":
                self.untraced.append(message["seconds"])
            self.bar.step(message["step"])

    def _watch_elsewhere(self) -> None:
        for job, address in (self.plan.elsewhere or {}).items():
            try:
                require_answer(job, address, seconds=WATCH)
            except ProfilingError:
                raise ProfilingError(f"{job} {address}: no longer answers") from None

    def _failure(self, child: Child, said: str) -> ProfilingError:
        """Where a server has ended too, that is the cause and not what the other process says about it."""
        deadline = time.monotonic() + 1.0
        while child not in self.children[:-1] and (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                other, message = self.inbox.get(timeout=left)
                if message is None and other is not child:
                    return ProfilingError(other.epitaph())
        return ProfilingError(said)

    def _end(self) -> None:
        try:
            for child in self.children[-1:] if self.bar.done else []:
                child.ask_to_stop()
                child.wait(GRACE)
        except KeyboardInterrupt:  # again: at once
            pass
        finally:
            for child in reversed(self.children):
                child.kill()
            with contextlib.suppress(queue.Empty):
                while True:
                    _, message = self.inbox.get_nowait()
                    self._note(message or {})

    def profile(self, *, failed: bool) -> Profile | None:
        """What was recorded; None when that is nothing."""
        if not self.facts or not any(self.traces.rglob("*.pb")):
            return None
        self.bar.say("reading the traces")
        job = self.facts["job"]
        known = {key: job[key] for key in ("name", "batch_size", "dataset_size", "parameter_bytes")}
        try:
            profile = read_traces(self.traces, **known)
        except DataError:
            if failed:  # cut off in the middle: the failure is what matters
                return None
            raise
        _, style = STYLES[self.plan.style]
        hosts = self.plan.elsewhere or dict.fromkeys(JOBS, socket.gethostname())
        replace = msgspec.structs.replace
        return replace(
            profile,
            source=replace(
                profile.source,
                framework_version=self.facts["framework_version"],
                style=style,
                taken_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                hosts={f"{job}:0": host for job, host in hosts.items()},
            ),
            job=replace(
                profile.job,
                parameter_bytes=job["parameter_bytes"],
                tensors=job["tensors"],
                shard_bytes=[job["parameter_bytes"]],
            ),
            steps=profile.steps[: self.plan.steps],
            throughputs=[Throughput(workers=1, steps_per_second=len(self.untraced) / sum(self.untraced))]
            if self.untraced
            else [],
        )
