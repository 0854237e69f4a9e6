"""Live runs of data-parallel PyTorch, which is loaded in the ranks' processes only."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from ...base.errors import ProfilingError
from ...profile.profile import Profile
from ..live import RanksBackend, Run
from ..processes import Say, blaming, imported, own_addresses, split_address
from .injected import TRACE_NAME, profiler
from .traces import read_pytorch


@dataclass(frozen=True, kw_only=True)
class DataParallel(RanksBackend):
    """Ranks of `DistributedDataParallel` over gloo on this machine; `record_steps` records a job on several.

    The model's function returns ``(module, step)``: a `torch.nn.Module`, and a function that trains its argument, the
    module, on one batch (loss, backward pass, optimizer) and returns the batch's number of examples. Of one rank, of
    two and so on up to ``ranks``, ``steps`` are traced, after ``warmup`` (two at least, since the first ones fill the
    buckets anew) and before ``untraced_steps``. No noise scale is recorded where all ranks train on the same examples.
    """

    framework = "torch"

    def train(self, run: Run) -> None:
        # ranks on one machine share its processors, and gloo's guess at the interface is often wrong
        usual = {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // self.ranks)), "GLOO_SOCKET_IFNAME": "lo"}
        environment = {name: value for name, value in usual.items() if name not in os.environ}
        with own_addresses(1) as (master,):
            known: dict[str, Any] = {"environment": environment, "master": master}
            run.follow([run.start(f"rank {n}", f"{__name__}:train_rank", rank=n, **known) for n in range(self.ranks)])

    def read(self, run: Run) -> Profile:
        return read_pytorch(self.folders(run), batch_size=run.job["batch_size"], name=self.model)


def train_rank(settings: dict[str, Any], say: Say) -> None:
    """One rank of a live run, with each number of ranks that includes it."""
    import torch
    from torch import distributed

    rank, traces = settings["rank"], Path(settings["traces"])
    host, port = split_address(settings["master"], where="master")
    if rank == 0:  # the others wait meanwhile, so that they take no time from this one
        module, train = _build(settings["model"], say)
        batch_size = _record(module, train, traces / "trace_n1" / TRACE_NAME.format(0), settings, say)
        without = {parameter.grad is None for parameter in module.parameters() if parameter.requires_grad}
        unused = len(without) > 1  # steps leave some without gradients: DistributedDataParallel must know
        say(job={"batch_size": batch_size, "framework_version": str(torch.__version__)})
    store = distributed.TCPStore(host, port, is_master=rank == 0, timeout=_left(settings), wait_for_workers=False)
    for ranks in range(max(2, rank + 1), settings["ranks"] + 1):
        if rank == 0:
            store.set(f"{ranks} ranks", str(int(unused)))
        elif rank == ranks - 1:  # the others have done with fewer, and wait
            unused = store.get(f"{ranks} ranks") == b"1"
            module, train = _build(settings["model"], say)
        own_store = distributed.PrefixStore(str(ranks), store)
        distributed.init_process_group("gloo", store=own_store, rank=rank, world_size=ranks, timeout=_left(settings))
        wrap = partial(torch.nn.parallel.DistributedDataParallel, module, find_unused_parameters=unused)
        _record(wrap(), train, traces / f"trace_n{ranks}" / TRACE_NAME.format(rank), settings, say)
        if settings["noise_steps"] and ranks == settings["ranks"]:
            say(gradient_norms=_gradient_norms(wrap(), partial(train, kind="noise"), settings["noise_steps"]))
        distributed.barrier()  # none leaves before all have recorded
        if ranks < settings["ranks"]:
            distributed.destroy_process_group()


def _left(settings: dict[str, Any]) -> timedelta:
    return timedelta(seconds=max(1.0, settings["until"] - time.monotonic()))


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

    def finish_started() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    warmup, steps = settings["warmup"], settings["steps"]
    with profiler(path, steps=steps, warmup=warmup) as recorder:
        for number in range(warmup + steps):
            size = train(module, "warmup" if number < warmup else "traced")
            recorder.step()
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
