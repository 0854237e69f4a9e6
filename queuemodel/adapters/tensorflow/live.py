"""Live runs of TensorFlow: a parameter server and a worker, here or elsewhere, or mirrored ranks; and servers."""

from __future__ import annotations

import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ...base.checks import extra, require_choice
from ...base.errors import DataError, ProfilingError
from ...profile.profile import Profile
from ..live import Backend, RanksBackend, Run
from ..processes import Say, own_addresses, split_address
from .mirrored import read_mirrored
from .traces import read_tensorflow

BUILT_IN = ("mlp", "cnn", "embedding", "transformer")  # models, in `models`
TRAINERS = {"graph": "session:train_session", "strategy": "strategies:train_on_servers"}
JOBS = {"ps": "parameter server", "worker": "worker"}
ANSWER_LIMIT = 10.0  # seconds for a server elsewhere to answer
WATCH = 2.0  # the same, once it has answered


@dataclass(frozen=True, kw_only=True)
class ParameterServer(Backend):
    """One parameter server and one worker.

    The model's function returns a compiled Keras model and a `tf.data.Dataset` of ``(x, y)`` batches; built-in ones are
    ``"mlp"``, ``"cnn"``, ``"embedding"`` and ``"transformer"``. ``untraced_steps`` are timed without tracing, which
    slows them: their rate becomes the profile's throughput of one worker. ``style`` is a TensorFlow 1 session, or
    TensorFlow 2's `ParameterServerStrategy`. ``ps`` and ``worker`` are ``HOST:PORT`` of servers that already run
    (``queuemodel serve``); without them, those of the environment's ``TF_CONFIG`` if set, else both are started here.
    ``batch_size`` is by default the data set's own.
    """

    steps: int = 50
    warmup: int = 10
    style: Literal["graph", "strategy"] = "graph"
    ps: str | None = None
    worker: str | None = None
    batch_size: int | None = None

    framework = "tensorflow"
    built_in = BUILT_IN
    partial = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self.style, "style", ("graph", "strategy"), error=DataError)
        self._set(**servers_elsewhere(self.ps, self.worker))

    @property
    def elsewhere(self) -> dict[str, str]:
        """Addresses of servers that run already, if any."""
        return {job: address for job in JOBS if (address := getattr(self, job))}

    def require(self, time_limit: float) -> None:
        super().require(time_limit)
        for job, address in self.elsewhere.items():
            require_answer(job, address, seconds=min(ANSWER_LIMIT, time_limit))

    def train(self, run: Run) -> None:
        run.say("starting TensorFlow")
        with own_addresses(len(JOBS)) as addresses:
            at = self.elsewhere or dict(zip(JOBS, addresses, strict=True))
            for job in [] if self.elsewhere else ["ps"] if self.style == "graph" else JOBS:
                environment = child_environment(gpu=job == "worker")
                run.start(JOBS[job], f"{__name__}:serve_job", environment=environment, job=job, model="", **at)
            computes = self.style == "graph" and not self.elsewhere
            trainer = run.start(
                "worker" if computes else "coordinator",
                f"{__package__}.{TRAINERS[self.style]}",
                environment=child_environment(gpu=computes),
                own_server=not self.elsewhere,
                run=f"queuemodel-{uuid.uuid4().hex}",
                **at,
            )
            run.follow([trainer])

    def read(self, run: Run) -> Profile:
        if not run.job or not any(run.traces.rglob("*.pb")):
            raise DataError("no step was recorded")
        profile = read_tensorflow(run.traces, **run.job["known"])
        job = replace(profile.job, tensors=run.job["tensors"], shard_bytes=[profile.job.parameter_bytes])
        return replace(profile, job=job, steps=profile.steps[: self.steps])

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

    The model's function is as of `ParameterServer`; each rank trains on all of the data set. Options are those of
    `DataParallel`, but noise steps are without updates, on batches of each rank's own.
    """

    batch_size: int | None = None

    framework = "tensorflow"
    built_in = BUILT_IN

    def train(self, run: Run) -> None:
        """The ranks of each number anew: TensorFlow does not let any join."""
        environment = child_environment(gpu=False)  # ranks on one accelerator would be no nodes
        for number in range(2, self.ranks + 1):
            noise = self.noise_steps if number == self.ranks else 0
            with own_addresses(number) as addresses:
                known: dict[str, Any] = {"environment": environment, "addresses": addresses, "noise_steps": noise}
                train = f"{__package__}.strategies:train_mirrored"
                run.follow([run.start(f"rank {n}", train, rank=n, **known) for n in range(number)])
                run.kill()

    def read(self, run: Run) -> Profile:
        profile = read_mirrored(self.folders(run), **run.job["known"])
        return replace(profile, job=replace(profile.job, tensors=run.job["tensors"]))


def child_environment(*, gpu: bool) -> dict[str, str]:
    """Environment variables of processes that load TensorFlow, with or without the accelerators."""
    environment = {
        "TF_CONFIG": "{}",  # the settings name the servers
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        "KERAS_BACKEND": "tensorflow",
    }
    for name in ("no_proxy", "NO_PROXY"):  # gRPC would ask a proxy for the loopback address
        environment[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1,localhost"]))
    if not gpu:
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    return environment


def is_here(address: str) -> bool:
    """Whether ``HOST:PORT`` is this machine's: it can listen only at its own addresses."""
    host = split_address(address, where="address")[0].strip("[]")
    try:
        family, *_, socket_address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.bind(socket_address)
    except OSError:
        return False
    return True


def servers_elsewhere(ps: str | None, worker: str | None) -> dict[str, str]:
    """Addresses of servers that already run, also of the environment's TF_CONFIG; empty: start them here."""
    if ps is None and worker is None:
        text = os.environ.get("TF_CONFIG", "").strip()
        if not text:
            return {}
        try:
            cluster = msgspec.json.decode(text, type=_TFConfig).cluster
        except msgspec.DecodeError as error:
            raise DataError(
                f"TF_CONFIG: not the JSON object that TensorFlow documents ({error}); unset or correct it"
            ) from None
        if not (cluster.get("ps") and cluster.get("worker")):
            raise DataError(
                f"TF_CONFIG: cluster needs at least one 'ps' and one 'worker', got {sorted(cluster)}; "
                "unset it to profile here"
            )
        ps, worker = cluster["ps"][0], cluster["worker"][0]
    if ps is None or worker is None:
        missing, known = ("ps", "worker") if ps is None else ("worker", "ps")
        raise DataError(f"{missing}: give both ps and worker, or neither to start them here; got only {known}")
    for where, address in (("ps", ps), ("worker", worker)):
        split_address(address, where=where)
    if ps == worker:
        raise DataError(f"worker: must not be the parameter server's address, got {worker!r} for both")
    return {"ps": ps, "worker": worker}


class _TFConfig(msgspec.Struct):
    cluster: dict[str, list[str]] = {}


def require_answer(job: str, address: str, *, seconds: float) -> None:
    """Wait for a server (raises `ProfilingError`)."""
    host, port = split_address(address, where=job)
    deadline = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection((host.strip("[]"), port), timeout=seconds):
                return
        except OSError as error:
            if time.monotonic() > deadline - 0.5:
                raise ProfilingError(
                    f"{job} {address}: no answer within {seconds:g} s ({error.strerror or error}); start it there with "
                    f"'queuemodel serve --job {job} --ps HOST:PORT --worker HOST:PORT'"
                ) from None
        time.sleep(0.25)


def serve_job(settings: dict[str, Any], say: Say) -> None:
    run_server(settings["job"], 0, {job: [settings[job]] for job in JOBS}, lambda: say(ready=True))


def run_server(job: str, task: int, cluster: Mapping[str, list[str]], ready: Callable[[], None]) -> None:
    """Run a TensorFlow server until the process is stopped, and call ``ready`` when it listens.

    ``cluster`` are the addresses of each job. Raises `DataError` for one that is not ``HOST:PORT``, and
    `ProfilingError` where the server cannot listen.
    """
    for name, addresses in cluster.items():
        for address in addresses:
            split_address(address, where=f"--{name}")
    if task >= len(cluster[job]):
        raise ProfilingError(f"--task: {job} has {len(cluster[job])} address(es), got task {task}; count from 0")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    tensorflow = extra("tensorflow", "tensorflow", what="queuemodel serve")
    threads = max(2, len(os.sched_getaffinity(0)))  # a step waits in one for the data set, which needs another
    config = tensorflow.compat.v1.ConfigProto(inter_op_parallelism_threads=threads)
    try:
        server = tensorflow.distribute.Server(cluster, job_name=job, task_index=task, config=config)
    except tensorflow.errors.OpError as error:
        raise ProfilingError(
            f"{job} {cluster[job][task]}: cannot listen there: {str(error).splitlines()[0]}; "
            "use a free port of an address of this host"
        ) from None
    ready()
    del server
    while True:
        signal.pause()
