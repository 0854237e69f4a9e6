"""What ranks learn with PyTorch: a perceptron on examples of their own, by one of the `strategies` after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed, nn
from torch.nn.utils import vector_to_parameters

from ..workload import Layer, Workload
from .strategies import WAYS
from .torch_job import join, record
from .training_task import SEED, STRATEGIES, TrainingTask, task_of


class Paced(torch.autograd.Function):
    """Nothing, but it takes a layer's time: a wait forward, and a wait backward before its gradients are made."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: Layer, wait: Callable[[float], None]) -> torch.Tensor:
        ctx.layer, ctx.wait = layer, wait
        wait(layer.forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.wait(ctx.layer.backward_s)
        return gradient, None, None


class PacedNetwork(nn.Module):
    """The task's perceptron, its parameters in its order, with the layers' times."""

    def __init__(self, task: TrainingTask, layers: tuple[Layer, ...], wait: Callable[[float], None]) -> None:
        super().__init__()
        self.layers, self.wait = layers, wait
        sizes = [[size // 4 for size in layer.tensor_bytes] for layer in layers]
        self.tensors = nn.ParameterList(
            nn.Parameter(torch.zeros(shape)) for size, width in sizes for shape in ((width, size // width), (width,))
        )
        start = task.problem.start(np.random.default_rng([SEED, 2]))
        vector_to_parameters(torch.from_numpy(start), self.parameters())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, bias, second, last = self.tensors
        x = torch.tanh(Paced.apply(nn.functional.linear(x, first, bias), self.layers[0], self.wait))
        return Paced.apply(nn.functional.linear(x, second, last), self.layers[1], self.wait)


class Job:
    """One rank; alone it trains without `DistributedDataParallel`."""

    def __init__(self, workload: Workload, rank: int, addresses: list[str], wait: Callable[[float], None]) -> None:
        join(rank, addresses)
        self.workload, self.rank, self.ranks, self.wait = workload, rank, len(addresses), wait
        self.task = task_of(workload, self.ranks)
        self.begin("sync")

    def begin(self, strategy: str) -> None:
        """Start anew, by this strategy, all ranks together."""
        chosen = STRATEGIES[strategy]
        self.way = WAYS[type(chosen)](self, chosen)
        self.seen = [self.way.vector()]
        if self.ranks > 1:
            distributed.barrier()
        self.way.began = time.time()

    def network(self) -> PacedNetwork:
        """At the task's start."""
        return PacedNetwork(self.task, self.workload.layers, self.wait)

    def loss(self, x: torch.Tensor) -> float:
        return float(self.task.problem.loss(x.numpy()))

    def round(self) -> None:
        self.way.step()
        if self.way.number in self.task.looks:
            self.seen.append(self.way.vector())

    def keep(self, folder: Path) -> list[list[float]]:
        """Write the parameters seen so far, a row for each look; when the meetings were."""
        np.save(folder / f"{self.rank}.npy", torch.stack(self.seen).numpy())
        return self.way.meetings

    def traced(self, train: Callable[[], None], rounds: int, folder: Path) -> None:
        record(train, rounds, folder / f"rank{self.rank}.pt.trace.json")
