"""Squared norms of the ranks' gradients, before they are reduced and after, on the way through DDP; PyTorch is loaded.

A communication hook sees every bucket before and after its all-reduce, whatever the optimizer does with the gradients
then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def gradient_norms(wrapped: Any, train: Callable[[Any], object], steps: int) -> list[dict[str, Any]]:
    """Train so many steps, and return `GradientNorms` of each as plain values; the same on every rank.

    Parameters
    ----------
    wrapped : torch.nn.parallel.DistributedDataParallel
        Without a hook, which it keeps for good.
    train : function
        One step of the module that it is given.
    steps : int
    """
    import torch
    from torch import distributed
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    ranks = distributed.group.WORLD
    assert ranks is not None  # they have met
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

    wrapped.register_comm_hook(None, lambda _, bucket: noted(bucket))
    for _ in range(steps):
        own.append([])
        mean.append([])
        train(wrapped)
    mine = torch.tensor([sum(step) for step in own], dtype=torch.float64)
    every = [torch.empty_like(mine) for _ in range(distributed.get_world_size())]
    distributed.all_gather(every, mine)
    return [
        {"workers": workers, "mean": sum(step)}
        for workers, step in zip(torch.stack(every, dim=1).tolist(), mean, strict=True)
    ]
