"""The strategies as a rank takes them: PyTorch's gradients, and meetings over gloo."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import distributed, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from queuemodel.sgd import AdaComm, BlockSign, DoubleCompression, LocalSGD, SynchronousSGD
from queuemodel.sgd.compression import kept

from .training_task import SEED

if TYPE_CHECKING:
    from .training_job import Job


class Way:
    """Steps of one rank alone, and what the strategies share."""

    def __init__(self, job: Job, strategy: Any) -> None:
        self.job, self.strategy, self.number = job, strategy, 0
        self.batches = np.random.default_rng([SEED, 0])
        self.module = self.net = job.network()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=job.task.learning_rate)
        self.meetings: list[list[float]] = []
        self.began = self.sending = 0.0

    def step(self) -> None:
        self.differentiate()
        self.optimizer.step()

    def differentiate(self) -> None:
        """Gradients of the rank's next batch; every rank draws those of all, and takes its own."""
        problem, rank = self.job.task.problem, self.job.rank
        u, share = self.batches.random((self.job.ranks, problem.batch_size))[rank], problem.shares[rank]
        chosen = share[(u * len(share)).astype(int)]
        self.optimizer.zero_grad()
        scores = self.module(torch.from_numpy(problem.features[chosen]))
        nn.functional.cross_entropy(scores, torch.from_numpy(problem.targets[chosen])).backward()
        self.number += 1

    def vector(self) -> torch.Tensor:
        """A copy of all parameters."""
        return parameters_to_vector(self.net.parameters()).detach().clone()

    def send(self, collective: Callable[..., Any], *tensors: Any) -> None:
        """What the ranks do together, and how long."""
        begin = time.time()
        collective(*tensors)
        self.sending += time.time() - begin

    def met(self, ready: float, clock: float) -> None:
        """Note a meeting: from when this rank was ready until it was over, and how much of it the rank computed."""
        over = time.time()
        self.meetings.append([self.number, ready, over, clock, over - ready - self.sending])
        self.sending = 0.0


class Synchronous(Way):
    """Under `DistributedDataParallel`."""

    def __init__(self, job: Job, strategy: Any) -> None:
        super().__init__(job, strategy)
        if job.ranks > 1:
            self.module = nn.parallel.DistributedDataParallel(self.net, bucket_cap_mb=job.workload.bucket_mb)


class Averaging(Way):
    """Steps alone, and the mean of the parameters every so many: local SGD, and ADACOMM, whose number changes."""

    def __init__(self, job: Job, strategy: Any) -> None:
        super().__init__(job, strategy)
        self.adaptive = isinstance(strategy, AdaComm)
        self.local_steps = strategy.initial_steps if self.adaptive else strategy.local_steps
        self.since, self.decided = 0, 0.0
        self.first = job.loss(self.vector()) if self.adaptive else 0.0

    def step(self) -> None:
        super().step()
        self.since += 1
        if self.since < self.local_steps:
            return
        ready = time.time()
        both = torch.cat([self.vector(), torch.tensor([ready - self.began])])  # the mean: all decide alike
        self.send(distributed.all_reduce, both)
        both /= self.job.ranks
        vector_to_parameters(both[:-1], self.net.parameters())
        self.met(ready, float(both[-1]))
        self.since = 0
        if self.adaptive and both[-1] - self.decided >= self.strategy.interval:
            share = self.job.loss(both[:-1]) / self.first
            wanted = int(np.ceil(np.sqrt(share) * self.strategy.initial_steps))
            self.local_steps = max(1, wanted if wanted < self.local_steps else -(-self.local_steps // 2))
            self.decided = float(both[-1])


class Compressed(Way):
    """Both ways compressed with error feedback: every rank is the server, of all by `TopK`, of its share by signs."""

    def __init__(self, job: Job, strategy: Any) -> None:
        super().__init__(job, strategy)
        self.anchor = self.vector()
        self.error, self.server_error = torch.zeros_like(self.anchor), torch.zeros_like(self.anchor)
        self.exchange = self.signs if isinstance(strategy.compressor, BlockSign) else self.largest

    def step(self) -> None:
        self.differentiate()
        ready = time.time()
        gradient = parameters_to_vector([tensor.grad for tensor in self.net.parameters()])
        self.anchor -= self.exchange(self.job.task.learning_rate * gradient + self.error)
        vector_to_parameters(self.anchor, self.net.parameters())
        self.met(ready, ready - self.began)

    def largest(self, wanted: torch.Tensor) -> torch.Tensor:
        """Everyone's largest coordinates to everyone; the mean's largest are then known without sending."""
        indices = self._indices(wanted)
        self.error = wanted.index_fill(0, indices, 0.0)
        message = torch.cat([indices.int(), wanted[indices].view(torch.int32)])
        came = [torch.empty_like(message) for _ in range(self.job.ranks)]
        self.send(distributed.all_gather, came, message)
        total = self.server_error.clone()
        for places, values in (one.chunk(2) for one in came):
            total.index_add_(0, places, values.view(torch.float32), alpha=1 / self.job.ranks)
        indices = self._indices(total)
        self.server_error = total.index_fill(0, indices, 0.0)
        return total - self.server_error

    def _indices(self, v: torch.Tensor) -> torch.Tensor:
        k = kept(self.strategy.compressor.share, len(v))
        return torch.from_numpy(np.argpartition(v.abs().numpy(), -k)[-k:])

    def signs(self, wanted: torch.Tensor) -> torch.Tensor:
        """The blocks of each server to it, signs in bits; what it makes of their mean to everyone."""
        blocks, n, rank = self.strategy.compressor.blocks, self.job.ranks, self.job.rank
        message = packed(wanted.view(blocks, -1))
        self.error = wanted - unpacked(message).view(-1)
        came = torch.empty_like(message)
        self.send(distributed.all_to_all_single, came, message)
        own = self.server_error.view(n, blocks // n, -1)[rank]
        total = unpacked(came).view(n, *own.shape).mean(dim=0) + own
        answer = packed(total)
        own.copy_(total - unpacked(answer))
        answers = [torch.empty_like(answer) for _ in range(n)]
        self.send(distributed.all_gather, answers, answer)
        return unpacked(torch.cat(answers)).view(-1)


def packed(blocks: torch.Tensor) -> torch.Tensor:
    """Of each row the mean absolute value, four bytes, and its signs, a bit each; a row's length is a multiple of 8."""
    scales = blocks.abs().mean(dim=1, keepdim=True).numpy().view(np.uint8)
    return torch.from_numpy(np.hstack([scales, np.packbits(blocks.numpy() > 0, axis=1)]))


def unpacked(message: torch.Tensor) -> torch.Tensor:
    """Rows as they were packed: signs times the mean absolute value."""
    rows = message.numpy()
    signs = np.unpackbits(rows[:, 4:], axis=1).astype(np.float32) * 2 - 1
    return torch.from_numpy(signs * np.ascontiguousarray(rows[:, :4]).view(np.float32))


WAYS = {SynchronousSGD: Synchronous, LocalSGD: Averaging, AdaComm: Averaging, DoubleCompression: Compressed}
