"""What a rank trains with PyTorch: layers that wait, their gradients reduced by `DistributedDataParallel` over gloo."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.profiler import ProfilerActivity, profile, schedule

from ..workload import Layer, Workload

WARMUP = 2  # rounds that the profiler runs before it records


class Timed(torch.autograd.Function):
    """A layer's computation: a wait forward; backward a wait, and then all its gradients."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: Layer, wait: Callable[[float], None], *parameters: Any) -> Any:
        ctx.layer, ctx.wait, ctx.lengths = layer, wait, [len(p) for p in parameters]
        wait(layer.forward_s)
        return x + 1.0

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.wait(ctx.layer.backward_s)
        return gradient, None, None, *(torch.full((length,), 1e-6) for length in ctx.lengths)


class TimedLayer(nn.Module):
    """The parameters of a layer, and its computation."""

    def __init__(self, layer: Layer, wait: Callable[[float], None]) -> None:
        super().__init__()
        self.layer, self.wait = layer, wait
        self.tensors = nn.ParameterList(nn.Parameter(torch.zeros(size // 4)) for size in layer.tensor_bytes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Timed.apply(x, self.layer, self.wait, *self.tensors)


class Job:
    """One rank; alone it trains without `DistributedDataParallel`."""

    def __init__(self, workload: Workload, rank: int, addresses: list[str], wait: Callable[[float], None]) -> None:
        join(rank, addresses)
        self.rank = rank
        self.module: nn.Module = nn.Sequential(*(TimedLayer(layer, wait) for layer in workload.layers))
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01)
        if len(addresses) > 1:
            self.module = nn.parallel.DistributedDataParallel(self.module, bucket_cap_mb=workload.bucket_mb)

    def round(self) -> None:
        self.optimizer.zero_grad()
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
    """Train so many rounds, and write what the profiler recorded of them."""
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=WARMUP, active=rounds, repeat=1),
        on_trace_ready=lambda recorded: recorded.export_chrome_trace(str(file)),
    ) as profiler:
        for _ in range(WARMUP + rounds):
            train()
            profiler.step()
