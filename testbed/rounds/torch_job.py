"""What a rank trains with PyTorch: layers that wait, their gradients reduced by `DistributedDataParallel` over gloo."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.profiler import ProfilerActivity, profile, schedule

from ..workload import Layer, Workload

WARMUP = 2  # rounds that the profiler runs before it records

#: Computes, under a name, for a mean of so many seconds.
Compute = Callable[[str, float], None]


class Timed(torch.autograd.Function):
    """A layer's computation: forward, and backward before all its gradients."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: Layer, compute: Compute, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.layer, ctx.compute, ctx.like = layer, compute, [(len(p), p.dtype) for p in parameters]
        compute(layer.name, layer.forward_s)
        return x + 1.0

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.compute(f"{ctx.layer.name}_backward", ctx.layer.backward_s)
        return gradient, None, None, *(torch.full((length,), 1e-6, dtype=dtype) for length, dtype in ctx.like)


class TimedLayer(nn.Module):
    """The parameters of a layer, and its computation."""

    def __init__(self, layer: Layer, compute: Compute) -> None:
        super().__init__()
        self.layer, self.compute = layer, compute
        self.tensors = nn.ParameterList(nn.Parameter(torch.zeros(size // 4)) for size in layer.tensor_bytes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Timed.apply(x, self.layer, self.compute, *self.tensors)


class Job:
    """One rank; alone it trains without `DistributedDataParallel`."""

    def __init__(self, workload: Workload, rank: int, addresses: list[str], wait: Callable[[float], None]) -> None:
        join(rank, addresses)
        self.rank, self.batches = rank, workload.accumulation
        layers = (TimedLayer(layer, lambda _, seconds: wait(seconds)) for layer in workload.layers)
        self.module: nn.Module = nn.Sequential(*layers)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01)
        if len(addresses) > 1:
            self.module = nn.parallel.DistributedDataParallel(self.module, bucket_cap_mb=workload.bucket_mb)
            if workload.precision == "half":
                self.module.register_comm_hook(None, default_hooks.fp16_compress_hook)

    def round(self) -> None:
        self.optimizer.zero_grad()
        for batch in range(1, self.batches + 1):
            self.module.require_backward_grad_sync = batch == self.batches  # what `no_sync` sets
            self.module(torch.zeros(1, requires_grad=True)).sum().backward()
        self.optimizer.step()

    def traced(self, train: Callable[[], None], rounds: int, folder: Path) -> None:
        """Train so many rounds, and write what the profiler recorded of them."""
        record(train, rounds, folder / f"rank{self.rank}.pt.trace.json")


def join(rank: int, addresses: list[str]) -> None:
    """Meet the other ranks, over gloo; alone there is nobody to meet."""
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    torch.set_num_threads(1)
    if len(addresses) > 1:
        init = f"tcp://{addresses[0]}:29500"
        distributed.init_process_group("gloo", init_method=init, rank=rank, world_size=len(addresses))


def record(train: Callable[[], None], rounds: int, file: Path) -> None:
    """Train so many rounds, and write what the profiler recorded of them, but not where."""
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=WARMUP, active=rounds, repeat=1),
        on_trace_ready=lambda recorded: recorded.export_chrome_trace(str(file)),
    ) as profiler:
        for _ in range(WARMUP + rounds):
            train()
            profiler.step()
    trace = json.loads(file.read_text())
    for name in ("host_name", "traceName"):
        trace.pop(name, None)
    file.write_text(json.dumps(trace))
