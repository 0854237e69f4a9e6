"""Live runs of TensorFlow: a parameter server and a worker, here or elsewhere, or mirrored ranks; and servers."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ...base.checks import extra
from ...base.errors import DataError, ProfilingError
from ...profile.profile import Profile
from ..live import WATCH, Backend, RanksBackend, Run
from ..processes import own_addresses, require_answer, split_address
from .mirrored import read_mirrored
from .traces import read_tensorflow

BUILT_IN = ("mlp", "cnn", "embedding", "transformer")  # models, in `examples`
JOBS = {"ps": "parameter server", "worker": "worker"}
ANSWER_LIMIT = 10.0  # seconds for a server elsewhere to answer


@dataclass(frozen=True, kw_only=True)
class ParameterServer(Backend):
    """One parameter server and one worker of TensorFlow's `ParameterServerStrategy`.

    The model's function returns a compiled Keras model and a `tf.data.Dataset` of ``(x, y)`` batches; built-in ones are
    ``"mlp"``, ``"cnn"``, ``"embedding"`` and ``"transformer"``. The rate of ``untraced_steps`` becomes the profile's
    throughput of one worker. ``ps`` and ``worker`` are ``HOST:PORT`` of running servers (``queuemodel serve``);
    without them, both are started here. ``batch_size`` is by default the data set's own.
    """

    steps: int = 50
    warmup: int = 10
    ps: str | None = None
    worker: str | None = None
    batch_size: int | None = None

    framework = "tensorflow"
    built_in = BUILT_IN
    partial = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.elsewhere) == 1:
            raise DataError(f"{'ps' if self.ps is None else 'worker'}: give both ps and worker, or start both here")
        for job, address in self.elsewhere.items():
            split_address(address, where=job)
        if self.elsewhere and self.ps == self.worker:
            raise DataError(f"worker: must not be the parameter server's address, got {self.worker!r} for both")

    @property
    def elsewhere(self) -> dict[str, str]:
        """Addresses of servers that run already, if any."""
        return {job: address for job in JOBS if (address := getattr(self, job)) is not None}

    def require(self, time_limit: float) -> None:
        super().require(time_limit)
        self.watch(min(ANSWER_LIMIT, time_limit))

    def train(self, run: Run) -> None:
        run.say("starting TensorFlow")
        with own_addresses(len(JOBS)) as addresses:
            at: dict[str, Any] = self.elsewhere or dict(zip(JOBS, addresses, strict=True))
            for job in JOBS if not self.elsewhere else ():
                own = _environment(gpu=job == "worker")
                run.start(JOBS[job], f"{__name__}:run_server", environment=own, job=job, model="", **at)
            coordinate = f"{__package__}.training:train_on_servers"
            run.follow([run.start("coordinator", coordinate, environment=_environment(), **at)])

    def read(self, run: Run) -> Profile:
        if not run.job:
            raise DataError("no step was recorded")
        profile = read_tensorflow(run.traces, **run.job["known"])
        return replace(profile, steps=profile.steps[: self.steps])

    def hosts(self) -> dict[str, str]:
        return {f"{job}:0": self.elsewhere.get(job, socket.gethostname()) for job in JOBS}

    def watch(self, seconds: float = WATCH) -> None:
        for job, address in self.elsewhere.items():
            require_answer(job, address, seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class Mirrored(RanksBackend):
    """Ranks of `MultiWorkerMirroredStrategy` with the ring, all on this machine.

    The model's function is as of `ParameterServer`; each rank trains on all of the data set. Options are those of
    `DataParallel`, but noise steps are without updates, on batches of each rank's own.
    """

    batch_size: int | None = None

    framework = "tensorflow"
    built_in = BUILT_IN
    child = f"{__package__}.training:train_mirrored"
    reader = staticmethod(read_mirrored)

    def environment(self) -> dict[str, str]:
        return _environment()


def _environment(*, gpu: bool = False) -> dict[str, str]:
    """Variables of processes that load TensorFlow; gRPC would ask a proxy for the loopback address."""
    names = {"TF_CONFIG": "{}", "TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"}
    for name in ("no_proxy", "NO_PROXY"):
        names[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1,localhost"]))
    return names if gpu else names | {"CUDA_VISIBLE_DEVICES": "-1"}


def run_server(settings: Mapping[str, str], ready: Callable[..., None]) -> None:
    """Run the server of a ``job`` at its address until the process is stopped; call ``ready`` when it listens.

    Raises `DataError` for an address that is not ``HOST:PORT``, `ProfilingError` where the server cannot listen.
    """
    for job in JOBS:
        split_address(settings[job], where=f"--{job}")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    tensorflow = extra("tensorflow", "tensorflow", what="queuemodel serve")
    threads = max(2, len(os.sched_getaffinity(0)))  # a step waits in one for the data set, which needs another
    config = tensorflow.compat.v1.ConfigProto(inter_op_parallelism_threads=threads)
    cluster, own = {job: [settings[job]] for job in JOBS}, settings["job"]
    try:
        tensorflow.distribute.Server(cluster, job_name=own, task_index=0, config=config)
    except tensorflow.errors.OpError as error:
        said = str(error).splitlines()[0]
        where = f"{own} {settings[own]}"
        raise ProfilingError(f"{where}: cannot listen there: {said}; use a free port of this host") from None
    ready(ready=True)
    while True:
        signal.pause()
