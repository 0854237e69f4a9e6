"""What a rank trains with PyTorch's `fully_shard` (FSDP2) over gloo, on an emulated accelerator.

FSDP2's own code decides what is gathered and reduced, when, and what waits for it. Computation is a timed wait on the
accelerator, and collectives go to their communicator's engine; all their bytes cross the network.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_collectives

from ..workload import Workload
from .accelerator import Engine, Work, install
from .torch_job import TimedLayer, join, record

#: By collective: what NCCL's kernel is called, and what PyTorch calls it in the kernel's record.
NAMES = {
    "all_gather": ("AllGather", "_allgather_base"),
    "reduce_scatter": ("ReduceScatter_Sum_{}", "_reduce_scatter_base"),
    "all_reduce": ("AllReduce_Sum_{}", "allreduce"),
}
DTYPES = {torch.float32: ("f32", "Float"), torch.bfloat16: ("bf16", "BFloat16")}


class Device:
    """The accelerator of one rank: an engine that computes, one for each communicator, and what they have done."""

    def __init__(self, wait: Callable[[float], None]) -> None:
        install()
        self.wait, self.compute = wait, Engine()
        self.communicators: dict[str, Engine] = defaultdict(Engine)
        self.done: list[Work] = []  # while a trace is recorded
        self.recording = False

    def issue(self, engine: Engine, name: str, run: Callable[[], Any], **details: Any) -> None:
        work = torch.cpu.current_stream().issue(engine, name, run, **details)
        if self.recording:
            self.done.append(work)

    def busy(self, name: str, seconds: float) -> None:
        """Compute for a mean of so many seconds."""
        self.issue(self.compute, name, lambda: self.wait(seconds))

    def collective(self, kind: str, group: Any, source: torch.Tensor, target: torch.Tensor, run: Callable) -> None:
        kernel, name = NAMES[kind]
        short, dtype = DTYPES[source.dtype]
        self.issue(
            self.communicators[group.group_name],
            f"ncclDevKernel_{kernel.format(short)}_RING_LL",
            run,
            **{
                "Collective name": name,
                "In msg nelems": source.numel(),
                "Out msg nelems": target.numel(),
                "Group size": group.size(),
                "dtype": dtype,
                "Process Group Name": group.group_name,
                "Process Group Description": group.group_desc,
                "Process Group Ranks": str(distributed.get_process_group_ranks(group)),
            },
        )

    # The functions of torch.distributed that FSDP2 calls, with the names of their arguments there.

    def all_gather_single(self, output: Any, input: Any, group: Any = None, async_op: bool = False) -> None:
        whole, part = output.view(torch.uint8), input.view(torch.uint8)  # gloo has no bfloat16
        run = distributed.all_gather_into_tensor
        self.collective("all_gather", group, input, output, lambda: run(whole, part, group=group))

    def reduce_scatter_single(
        self, output: Any, input: Any, op: Any = None, group: Any = None, async_op: bool = False
    ) -> None:
        self.collective("reduce_scatter", group, input, output, lambda: ring_reduce_scatter(output, input, group))

    def all_reduce(self, tensor: Any, op: Any = None, group: Any = None, async_op: bool = False) -> None:
        run = distributed.all_reduce
        self.collective("all_reduce", group, tensor, tensor, lambda: run(tensor, group=group))

    def add_to(self, file: Path) -> None:
        """Add what the accelerator did to a trace of the CPU, as CUPTI records it; tensors' own operations go."""
        trace = json.loads(file.read_text())
        small = ("aten::", "detach", "fwdbwd")
        events = [event for event in trace["traceEvents"] if not event["name"].startswith(small)]
        first = min(event["ts"] for event in events if event["name"].startswith("ProfilerStep"))
        base = trace.get("baseTimeNanoseconds", 0)
        for number, work in enumerate(self.done, 1):
            issued, start, end = (round((t - base) / 1e3, 3) for t in (work.issued, work.start, work.end))
            if issued < first:  # while the profiler warmed up
                continue
            same = {"ph": "X", "args": {"External id": number, "correlation": number}}
            call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": issued, "dur": 1.0}
            kernel = {"cat": "kernel", "name": work.name, "pid": 0, "tid": work.stream, "ts": start}
            events += [same | call, same | kernel]
            details = work.details | same["args"] | {"device": 0, "stream": work.stream}
            events[-1] |= {"dur": round(end - start, 3), "args": details}
        trace["traceEvents"] = events
        file.write_text(json.dumps(trace))


def ring_reduce_scatter(target: torch.Tensor, source: torch.Tensor, group: Any) -> None:
    """Sum the ranks' sources, each rank its part, in n - 1 messages to the next rank; gloo's own is an all-reduce."""
    n, own = group.size(), group.rank()
    parts, came = source.chunk(n), torch.empty_like(target)
    total = parts[own - 1]
    for step in range(2, n + 1):
        sending = distributed.isend(total.view(torch.uint8), group=group, group_dst=(own + 1) % n)
        distributed.irecv(came.view(torch.uint8), group=group, group_src=(own - 1) % n).wait()
        sending.wait()
        total = parts[(own - step) % n] + came
    target.copy_(total)


class Job:
    """One rank; alone it trains without `fully_shard`."""

    def __init__(self, workload: Workload, rank: int, addresses: list[str], wait: Callable[[float], None]) -> None:
        join(rank, addresses)
        self.workload, self.rank, self.ranks = workload, rank, len(addresses)
        self.device = Device(wait)
        self.module = nn.Sequential(*(TimedLayer(layer, self.device.busy) for layer in workload.layers))
        if self.ranks > 1:
            self._shard()

    def _shard(self) -> None:
        """Every layer is a unit of its own; ranks that share a copy of the model follow each other."""
        w, shared = self.workload, self.workload.shards or self.ranks
        names = ("all_gather_single", "reduce_scatter_single", "all_reduce")
        ours = {name: getattr(self.device, name) for name in names}
        _fsdp_collectives.dist = SimpleNamespace(distributed_c10d=distributed.distributed_c10d, **ours)
        copies = {"copy": self.ranks // shared, "shard": shared} if w.shards else {"shard": self.ranks}
        dtype = torch.bfloat16 if w.precision == "half" else None
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
        mesh = init_device_mesh("cpu", tuple(copies.values()), mesh_dim_names=tuple(copies))
        for module in (*self.module, self.module):
            fully_shard(module, mesh=mesh, reshard_after_forward=w.reshard, mp_policy=policy)
        if w.separate_group:
            self.module.set_separate_reduce_scatter_group()
        self.module.set_reduce_scatter_max_input_buffers(w.input_buffers)

    def round(self) -> None:
        self.module.zero_grad()
        for batch in range(self.workload.accumulation):
            if self.ranks > 1:
                self.module.set_requires_gradient_sync(batch == self.workload.accumulation - 1)
            self.module(torch.zeros(1, requires_grad=True)).sum().backward()
        shared = self.workload.shards or self.ranks
        self.device.busy("optimizer", self.workload.optimizer_s / (shared if self.ranks > 1 else 1))
        torch.cpu.current_stream().synchronize()  # the loss is read

    def traced(self, train: Callable[[], None], rounds: int, folder: Path) -> None:
        """Train so many rounds, and write what the profiler recorded of them, and what the accelerator did."""
        file = folder / f"rank{self.rank}.pt.trace.json"
        self.device.done, self.device.recording = [], True
        record(train, rounds, file)
        self.device.recording = False
        self.device.add_to(file)
