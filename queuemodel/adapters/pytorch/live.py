"""Live runs of data-parallel PyTorch, which is loaded in the ranks' processes only."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from ...base.errors import ProfilingError
from ..live import RanksBackend
from ..processes import Say, blaming, built, record_rank
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
    child = f"{__name__}:train_rank"
    reader = staticmethod(read_pytorch)

    def environment(self) -> dict[str, str]:
        """Ranks on one machine share its processors, and gloo's guess at the interface is often wrong."""
        usual = {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // self.ranks)), "GLOO_SOCKET_IFNAME": "lo"}
        return {name: value for name, value in usual.items() if name not in os.environ}


def train_rank(settings: dict[str, Any], say: Say) -> None:
    """One rank of a live run."""
    import torch
    from torch import distributed

    rank, addresses = settings["rank"], settings["addresses"]
    module, train = _build(settings["model"])
    torch.manual_seed(2 + rank)  # each rank draws examples of its own
    known: dict[str, Any] = {"find_unused_parameters": settings["job"].get("unused", False)}
    wrap = partial(torch.nn.parallel.DistributedDataParallel, module, **known)
    if several := len(addresses) > 1:
        left = timedelta(seconds=max(1.0, settings["until"] - time.monotonic()))
        known = {"rank": rank, "world_size": len(addresses), "timeout": left}
        distributed.init_process_group("gloo", init_method=f"tcp://{addresses[0]}", **known)
    trained = wrap() if several else module

    def step(number: int) -> None:
        size = train(trained)
        if number == 0 and not several:
            without = {parameter.grad is None for parameter in module.parameters() if parameter.requires_grad}
            known = {"batch_size": size, "name": settings["model"]}
            # steps leave some parameters without gradients: DistributedDataParallel must know
            say(job={"framework_version": str(torch.__version__), "known": known, "unused": len(without) > 1})

    @contextlib.contextmanager
    def recording(folder: Path) -> Iterator[Callable[[], object]]:
        with profiler(folder / TRACE_NAME.format(rank), steps=settings["steps"], warmup=1) as recorder:
            train(trained)  # the profiler's own warm-up
            recorder.step()
            yield recorder.step

    norms = partial(_gradient_norms, wrap, train, say)
    record_rank(settings, say, step, recording, norms, torch.cuda.synchronize if torch.cuda.is_available() else bool)


def _build(name: str) -> tuple[Any, Callable[[Any], int]]:
    """The module, and a function that trains it for a step and returns the number of examples."""
    import torch

    torch.manual_seed(1)
    module, user_step = built(name, "a pair (module, step)", (torch.nn.Module, Callable))
    if torch.distributed.is_initialized():
        raise ProfilingError(
            f"model {name!r}: its function must return the module as it is, got a process group of its own besides; "
            "step is given the module inside DistributedDataParallel"
        )
    sizes: set[int] = set()

    def train(module: Any) -> int:
        with blaming(name):
            size = user_step(module)
        if type(size) is not int or size < 1 or len(sizes | {size}) > 1:
            got = " ".join(repr(size).split())[:100] + (f" after {sizes.pop()}" if sizes else "")
            raise ProfilingError(
                f"model {name!r}: step must return its number of examples, the same each time, got {got}"
            )
        sizes.add(size)
        return size

    return module, train


def _gradient_norms(wrap: Callable[[], Any], train: Callable[[Any], int], say: Say, steps: int) -> list[dict[str, Any]]:
    """Fields of `GradientNorms` of each step, the same on every rank."""
    import torch
    from torch import distributed
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    ranks: Any = distributed.group.WORLD
    found: list[tuple[list[float], list[float]]] = []  # of each step, the own buckets' and the mean's

    def norm(gradients: Any) -> float:
        values = gradients.coalesce().values() if gradients.is_sparse else gradients
        return float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2

    def noted(bucket: Any) -> Any:
        found[-1][0].append(norm(bucket.buffer()))

        def reduced(future: Any) -> Any:
            found[-1][1].append(norm(future.value()))
            return future.value()

        return allreduce_hook(ranks, bucket).then(reduced)

    wrapped = wrap()  # its hook sees every bucket, whatever the optimizer does with the gradients
    wrapped.register_comm_hook(None, lambda _, bucket: noted(bucket))
    for _ in range(steps):
        found.append(([], []))
        train(wrapped)
        say(step="noise")
    every: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(every, [sum(own) for own, _ in found])
    each = zip(zip(*every, strict=True), found, strict=True)
    return [{"workers": list(workers), "mean": sum(mean)} for workers, (_, mean) in each]
