"""A model for a first `queuemodel profile --framework torch`."""

from __future__ import annotations

from typing import Any


def mlp() -> Any:
    """Images of 28 x 28, three dense layers: 5.3 MB of parameters, batches of 64 examples."""
    import torch
    from torch import nn

    module = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    images, labels = torch.rand(1000, 784), torch.randint(10, (1000,))

    def step(module: nn.Module) -> int:
        chosen = torch.randint(1000, (64,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(images[chosen]), labels[chosen]).backward()
        optimizer.step()
        return len(chosen)

    return module, step
