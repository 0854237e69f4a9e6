"""Live runs of data-parallel PyTorch, which is loaded in the ranks' processes only."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from ...base.checks import require_count
from ...base.errors import DataError, ProfilingError
from ...profile.profile import Profile
from ..live import RanksBackend, Run
from ..processes import Say, blaming, imported, interface_to, own_addresses, split_address
from .traces import read_pytorch

FILE = "rank{}.pt.trace.json.gz"
DECIDED = ("ranks", "warmup", "steps", "untraced_steps", "noise_steps", "unused")  # by rank 0, for all


@dataclass(frozen=True, kw_only=True)
class DataParallel(RanksBackend):
    """Ranks of `DistributedDataParallel` over gloo, on this machine or each on its own.

    The model's function returns ``(module, step)``: a `torch.nn.Module`, and a function that trains its argument, the
    module, on one batch (loss, backward pass, optimizer) and returns the batch's number of examples. Of one rank, of
    two and so on up to ``ranks``, ``steps`` are traced, after ``warmup`` (two at least, since the first ones fill the
    buckets anew) and before ``untraced_steps``. Rank 0 waits at ``master``, a ``HOST:PORT``, for the others, decides
    for all and collects the traces; this machine is ``rank``, or by default runs all ranks. No noise scale is recorded
    where all ranks train on the same examples.
    """

    framework = "torch"
    master: str | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.master is None and self.rank is None:
            return
        if self.master is None or self.rank is None:
            known, missing = ("rank", "master") if self.master is None else ("master", "rank")
            raise DataError(f"{known}: give {missing} too, or neither to train all ranks here")
        split_address(self.master, where="master")
        if require_count(self.rank, "rank", least=0, error=DataError) >= self.ranks:
            raise DataError(f"rank: {self.rank} is not among {self.ranks} ranks, which begin at 0; give more ranks")
        interface_to(self.master)

    @property
    def here(self) -> Sequence[int]:
        return range(self.ranks) if self.rank is None else (self.rank,)

    def train(self, run: Run) -> None:
        with own_addresses(1) as (own,):
            master = self.master or own
            known: dict[str, Any] = {"environment": self._environment(master), "master": master}
            run.follow([run.start(f"rank {n}", f"{__name__}:train_rank", rank=n, **known) for n in self.here])

    def read(self, run: Run) -> Profile | None:
        if 0 not in self.here:
            return None
        return read_pytorch(self.folders(run), batch_size=run.job["batch_size"], name=self.model)

    def _environment(self, master: str) -> dict[str, str]:
        """Gloo's guess at the interface is often wrong; ranks on one machine share its processors."""
        threads = str(max(1, len(os.sched_getaffinity(0)) // len(self.here))) if len(self.here) > 1 else None
        found = {"OMP_NUM_THREADS": threads, "GLOO_SOCKET_IFNAME": interface_to(master)}
        return {name: value for name, value in found.items() if value and name not in os.environ}


def train_rank(settings: dict[str, Any], say: Say) -> None:
    """One rank of a live run, with each number of ranks that includes it."""
    import torch
    from torch import distributed

    rank, traces = settings["rank"], Path(settings["traces"])
    if rank == 0:  # the others wait meanwhile, so that they take no time from this one
        module, train = _build(settings["model"], say)
        batch_size = _record(module, train, traces / "trace_n1" / FILE.format(0), settings, say)
        without = {parameter.grad is None for parameter in module.parameters() if parameter.requires_grad}
        settings["unused"] = len(without) > 1  # steps leave some without gradients: DistributedDataParallel must know
        say(job={"batch_size": batch_size, "framework_version": str(torch.__version__)})
    say(doing=f"waiting for rank {0 if rank else 1} at {settings['master']}")
    store = _store(settings)
    for ranks in range(max(2, rank + 1), settings["ranks"] + 1):
        if rank == 0:
            store.set(f"{ranks} ranks", "")
        elif rank == ranks - 1:  # the others have done with fewer, and wait
            store.get(f"{ranks} ranks")
            module, train = _build(settings["model"], say)
        own_store = distributed.PrefixStore(str(ranks), store)
        distributed.init_process_group("gloo", store=own_store, rank=rank, world_size=ranks, timeout=_left(settings))
        own = traces / f"trace_n{ranks}" / FILE.format(rank)
        wrap = partial(torch.nn.parallel.DistributedDataParallel, module, find_unused_parameters=settings["unused"])
        _record(wrap(), train, own, settings, say)
        if settings["noise_steps"] and ranks == settings["ranks"]:
            say(gradient_norms=_gradient_norms(wrap(), partial(train, kind="noise"), settings["noise_steps"]))
        _collect(own, rank, ranks, say)
        if ranks < settings["ranks"]:
            distributed.destroy_process_group()
            say(doing=f"waiting for rank {0 if rank else ranks} at {settings['master']}")


def _store(settings: dict[str, Any]) -> Any:
    """The ranks' rendezvous; takes over rank 0's settings, and refuses a rank that it does not wait for."""
    from torch import distributed

    host, port = split_address(settings["master"], where="master")
    rank = settings["rank"]
    options = {"is_master": rank == 0, "timeout": _left(settings), "wait_for_workers": False}
    store = distributed.TCPStore(host.strip("[]"), port, **options)
    if rank == 0:
        store.set("settings", json.dumps({name: settings[name] for name in DECIDED}))
    else:
        settings |= json.loads(store.get("settings"))
    if rank >= settings["ranks"]:
        raise ProfilingError(f"rank: rank 0 trains {settings['ranks']} ranks, without rank {rank}; give it more ranks")
    return store


def _left(settings: dict[str, Any]) -> timedelta:
    return timedelta(seconds=max(1.0, settings["until"] - time.monotonic()))


def _collect(own: Path, rank: int, ranks: int, say: Say) -> None:
    """Bring the traces of all ranks to rank 0."""
    from torch import distributed

    say(doing="sending the trace" if rank else "fetching the traces of the other ranks")
    every: list[Any] | None = None if rank else [None] * ranks
    distributed.gather_object(own.read_bytes(), every)
    for other, content in enumerate(every or []):
        own.with_name(FILE.format(other)).write_bytes(content)
    distributed.barrier()  # none leaves before all has arrived


def _build(name: str, say: Say) -> tuple[Any, Callable[..., int]]:
    """The module, and a function that trains it for a step of some kind."""
    import torch

    torch.manual_seed(1)
    with blaming(name):
        result = imported(name)()
    if torch.distributed.is_initialized():
        raise ProfilingError(
            f"model {name!r}: its function must return the module as it is, got a process group of its own besides; "
            "step is given the module inside DistributedDataParallel"
        )
    pair = isinstance(result, tuple) and len(result) == 2
    if not (pair and isinstance(result[0], torch.nn.Module) and callable(result[1])):
        raise ProfilingError(
            f"model {name!r}: its function must return a pair (module, step), got {type(result).__name__}"
        )
    sizes: set[int] = set()

    def train(module: Any, kind: str) -> int:
        with blaming(name):
            size = result[1](module)
        if type(size) is not int or size < 1 or len(sizes | {size}) > 1:
            got = " ".join(repr(size).split())[:100] + (f" after {sizes.pop()}" if sizes else "")
            raise ProfilingError(
                f"model {name!r}: step must return its number of examples, the same each time, got {got}"
            )
        sizes.add(size)
        say(step=kind)
        return size

    return result[0], train


def _record(module: Any, train: Callable[[Any, str], int], path: Path, settings: dict[str, Any], say: Say) -> int:
    """Warm up, trace steps, time untraced ones, and return the examples of each."""
    import torch
    from torch import distributed
    from torch.profiler import ProfilerActivity, profile, schedule

    def finish_started() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    warmup, steps = settings["warmup"], settings["steps"]
    path.parent.mkdir(parents=True, exist_ok=True)

    with profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=warmup, active=steps, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:
        for number in range(warmup + steps):
            size = train(module, "warmup" if number < warmup else "traced")
            profiler.step()
    finish_started()
    start = time.perf_counter()
    for _ in range(settings["untraced_steps"]):
        train(module, "untraced")
    finish_started()
    if untraced := settings["untraced_steps"]:
        ranks = distributed.get_world_size() if distributed.is_initialized() else 1
        say(seconds=(time.perf_counter() - start) / untraced, ranks=ranks)
    return size


def _gradient_norms(wrapped: Any, train: Callable[[Any], object], steps: int) -> list[dict[str, Any]]:
    """Fields of `GradientNorms` of each step, the same on every rank."""
    import torch
    from torch import distributed
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    ranks: Any = distributed.group.WORLD
    own: list[list[float]] = []
    mean: list[list[float]] = []

    def norm(gradients: Any) -> float:
        values = gradients.coalesce().values() if gradients.is_sparse else gradients
        return float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2

    def noted(bucket: Any) -> Any:
        own[-1].append(norm(bucket.buffer()))

        def reduced(future: Any) -> Any:
            mean[-1].append(norm(future.value()))
            return future.value()

        return allreduce_hook(ranks, bucket).then(reduced)

    # it sees every bucket, whatever the optimizer does with the gradients
    wrapped.register_comm_hook(None, lambda _, bucket: noted(bucket))
    for _ in range(steps):
        own.append([])
        mean.append([])
        train(wrapped)
    every: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(every, [sum(step) for step in own])
    each = zip(zip(*every, strict=True), mean, strict=True)
    return [{"workers": list(workers), "mean": sum(step)} for workers, step in each]
