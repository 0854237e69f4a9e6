"""Live runs of TensorFlow: on a parameter server and a worker, here or elsewhere, or on mirrored ranks."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
import time
import uuid
from dataclasses import dataclass
from typing import Literal

import msgspec

from ...checks import require_choice, require_count
from ...errors import DataError, MissingDependencyError, ProfilingError
from ...training.profile import Profile
from ..live import Backend, RanksBackend, Run
from ..live.machine import own_addresses, split_address
from .children.models import BUILT_IN
from .mirrored import read_mirrored
from .traces import read_traces

CHILDREN = f"{__package__}.children"

#: The child that trains, and the style's name in the profile.
STYLES = {"graph": ("worker", "graph"), "strategy": ("strategy", "parameter-server-strategy")}

JOBS = {"ps": "parameter server", "worker": "worker"}

ANSWER_LIMIT = 10.0  # seconds for a server elsewhere to answer
WATCH = 2.0  # the same, once it has answered


@dataclass(frozen=True, kw_only=True)
class ParameterServer(Backend):
    """One parameter server and one worker.

    Attributes
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
        ``HOST:PORT`` of servers that already run (``queuemodel serve``). Without them, those of the environment's
        ``TF_CONFIG`` if set; else both are started here, on the loopback interface.
    batch_size : int, optional
        Examples per step; the data set's own unless given.
    """

    steps: int = 50
    warmup: int = 10
    style: Literal["graph", "strategy"] = "graph"
    ps: str | None = None
    worker: str | None = None
    batch_size: int | None = None

    built_in = tuple(BUILT_IN)
    partial = True
    longest_ending = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self.style, "style", STYLES, error=DataError)
        _require_batch_size(self.batch_size)
        self._set(**servers_elsewhere(self.ps, self.worker))

    @property
    def elsewhere(self) -> dict[str, str]:
        """Addresses of servers that run already; empty where they are started here."""
        return {job: address for job in JOBS if (address := getattr(self, job))}

    def require(self, time_limit: float) -> None:
        _require_installed()
        for job, address in self.elsewhere.items():
            require_answer(job, address, seconds=min(ANSWER_LIMIT, time_limit))

    def train(self, run: Run) -> None:
        run.say("starting TensorFlow")
        with own_addresses(len(JOBS)) as addresses:
            at = self.elsewhere or dict(zip(JOBS, addresses, strict=True))
            for job in [] if self.elsewhere else ["ps"] if self.style == "graph" else JOBS:
                options = [f"--job={job}", f"--ps={at['ps']}", f"--worker={at['worker']}", "--follow"]
                run.start(JOBS[job], f"{CHILDREN}.serve", options, child_environment(gpu=job == "worker"))
            own = {"own_server": not self.elsewhere, "run": f"queuemodel-{uuid.uuid4().hex}"}
            computes = self.style == "graph" and not self.elsewhere
            trainer = run.start(
                "worker" if computes else "coordinator",
                f"{CHILDREN}.{STYLES[self.style][0]}",
                [json.dumps(run.settings | at | own)],
                child_environment(gpu=computes),
            )
            run.follow([trainer])

    def read(self, run: Run) -> Profile:
        if not run.job or not any(run.traces.rglob("*.pb")):
            raise DataError("no step was recorded")
        job = run.job
        known = {key: job[key] for key in ("name", "batch_size", "dataset_size", "parameter_bytes")}
        profile, replace = read_traces(run.traces, **known), msgspec.structs.replace
        size, tensors = job["parameter_bytes"], job["tensors"]
        return replace(
            profile,
            source=replace(profile.source, style=STYLES[self.style][1]),
            job=replace(profile.job, parameter_bytes=size, tensors=tensors, shard_bytes=[size]),
            steps=profile.steps[: self.steps],
        )

    def hosts(self) -> dict[str, str]:
        return {f"{job}:0": self.elsewhere.get(job, socket.gethostname()) for job in JOBS}

    def is_here(self) -> bool:
        return not self.elsewhere or any(map(is_here, self.elsewhere.values()))

    def watch(self) -> None:
        for job, address in self.elsewhere.items():
            try:
                require_answer(job, address, seconds=WATCH)
            except ProfilingError:
                raise ProfilingError(f"{job} {address}: no longer answers") from None


@dataclass(frozen=True, kw_only=True)
class Mirrored(RanksBackend):
    """Ranks of `MultiWorkerMirroredStrategy` with the ring, all on this machine.

    Attributes
    ----------
    model : str or function
        As of `ParameterServer`; each rank trains on all of the data set.
    ranks, steps, warmup, untraced_steps
        As of `pytorch.DataParallel`.
    noise_steps : int
        Likewise, but without updates, and on batches of each rank's own.
    batch_size : int, optional
        Examples per step and rank; the data set's own unless given.
    """

    batch_size: int | None = None

    built_in = tuple(BUILT_IN)

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_batch_size(self.batch_size)

    def require(self, time_limit: float) -> None:
        _require_installed()

    def train(self, run: Run) -> None:
        """The ranks of each number anew: TensorFlow does not let any join."""
        run.say(run.doing)
        environment = child_environment(gpu=False)  # ranks on one accelerator would be no nodes
        for number in range(2, self.ranks + 1):
            noise = self.noise_steps if number == self.ranks else 0
            with own_addresses(number) as addresses:
                own = run.settings | {"addresses": addresses, "noise_steps": noise}
                run.follow(
                    [
                        run.start(f"rank {rank}", f"{CHILDREN}.rank", [json.dumps(own | {"rank": rank})], environment)
                        for rank in range(number)
                    ]
                )
                run.kill()

    def read(self, run: Run) -> Profile:
        known = {key: run.job[key] for key in ("name", "batch_size", "parameter_bytes", "dataset_size")}
        profile = read_mirrored([run.traces / f"trace_n{n}" for n in range(1, self.ranks + 1)], **known)
        return msgspec.structs.replace(profile, job=msgspec.structs.replace(profile.job, tensors=run.job["tensors"]))


def _require_batch_size(batch_size: int | None) -> None:
    if batch_size is not None:
        require_count(batch_size, "batch_size", error=DataError)


def _require_installed() -> None:
    """Refuse to go on without TensorFlow, without the seconds that importing it takes."""
    found = sys.modules["tensorflow"] if "tensorflow" in sys.modules else importlib.util.find_spec("tensorflow")
    if found is None:
        raise not_installed("no module named 'tensorflow'")


def not_installed(reason: object) -> MissingDependencyError:
    """Say that TensorFlow is, and how to get it."""
    return MissingDependencyError(
        f"TensorFlow is needed here but cannot be imported ({reason}): pip install 'queuemodel[tensorflow]'"
    )


def child_environment(*, gpu: bool) -> dict[str, str]:
    """What is added to the environment of processes that load TensorFlow, with or without the accelerators."""
    environment = {
        "TF_CONFIG": "{}",  # the servers are those that the settings name
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        "KERAS_BACKEND": "tensorflow",
    }
    for name in ("no_proxy", "NO_PROXY"):  # gRPC would ask a proxy for the loopback address
        environment[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1,localhost"]))
    if not gpu:
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    return environment


def is_here(address: str) -> bool:
    """Whether ``HOST:PORT`` is this machine's: only its own addresses can be listened at."""
    host = split_address(address, where="address")[0].strip("[]")
    try:
        family, *_, socket_address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.bind(socket_address)
    except OSError:
        return False
    return True


def servers_elsewhere(ps: str | None, worker: str | None) -> dict[str, str]:
    """
    Addresses of a parameter server and a worker that already run, or nothing: start them here.

    Where neither is given, the first of each in the environment's TF_CONFIG are taken, if that is set.
    """
    if ps is None and worker is None:
        return _from_environment()
    if ps is None or worker is None:
        missing, given = ("ps", "worker") if ps is None else ("worker", "ps")
        raise DataError(f"{missing}: give both ps and worker, or neither to start them here; got only {given}")
    for where, address in (("ps", ps), ("worker", worker)):
        split_address(address, where=where)
    if ps == worker:
        raise DataError(f"worker: must not be the parameter server's address, got {worker!r} for both")
    return {"ps": ps, "worker": worker}


def _from_environment() -> dict[str, str]:
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text:
        return {}
    try:
        cluster = json.loads(text).get("cluster", {})
        found = {job: cluster[job][0] for job in ("ps", "worker") if cluster.get(job)}
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise DataError(
            f"TF_CONFIG: not the JSON object that TensorFlow documents ({error}); unset or correct it"
        ) from None
    if len(found) < 2:
        raise DataError(
            f"TF_CONFIG: cluster needs at least one 'ps' and one 'worker', got {sorted(cluster)}; "
            "unset it to profile here"
        )
    return servers_elsewhere(found["ps"], found["worker"])


def require_answer(job: str, address: str, *, seconds: float) -> None:
    """Refuse to start with a server that nobody answers for (raises ProfilingError)."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(
                (host.strip("[]"), int(port)), timeout=max(0.1, deadline - time.monotonic())
            ).close()
            return
        except OSError as error:
            reason = error.strerror or str(error)
        if time.monotonic() > deadline - 0.5:
            raise ProfilingError(
                f"{job} {address}: no answer within {seconds:g} s ({reason}); start it there with "
                f"'queuemodel serve --job {job} --ps HOST:PORT --worker HOST:PORT'"
            )
        time.sleep(0.25)
