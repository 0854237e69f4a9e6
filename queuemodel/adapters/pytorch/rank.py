"""One rank's process; PyTorch is loaded here."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import ProfilingError
from ..live.child import as_told, cause, imported
from ..live.machine import split_address

FILE = "rank{}.pt.trace.json.gz"
DECIDED = ("ranks", "warmup", "steps", "untraced_steps", "noise_steps", "unused")  # by rank 0, for all


def main(settings: dict[str, Any], say: Callable[..., None]) -> None:
    imported(settings["model"])  # before PyTorch takes its seconds
    import torch
    from torch import distributed

    rank, traces = settings["rank"], Path(settings["traces"])
    if rank == 0:  # the others wait meanwhile, so that they take no time from this one
        module, train = _build(settings["model"], say)
        batch_size = _record(module, train, traces / "trace_n1" / FILE.format(0), settings, say)
        settings["unused"] = _leaves_some(module)
        say(job={"batch_size": batch_size, "framework_version": str(torch.__version__)})
    say(doing=f"waiting for rank {0 if rank else 1} at {settings['master']}")
    store = _meeting(settings)
    for ranks in range(max(2, rank + 1), settings["ranks"] + 1):
        if rank == 0:
            store.set(f"{ranks} ranks", "")
        elif rank == ranks - 1:  # the others have done with fewer, and wait
            store.get(f"{ranks} ranks")
            module, train = _build(settings["model"], say)
        distributed.init_process_group(
            "gloo",
            store=distributed.PrefixStore(str(ranks), store),
            rank=rank,
            world_size=ranks,
            timeout=_left(settings),
        )
        own = traces / f"trace_n{ranks}" / FILE.format(rank)
        wrap = partial(torch.nn.parallel.DistributedDataParallel, module, find_unused_parameters=settings["unused"])
        _record(wrap(), train, own, settings, say)
        if settings["noise_steps"] and ranks == settings["ranks"]:
            say(gradient_norms=gradient_norms(wrap(), partial(train, kind="noise"), settings["noise_steps"]))
        _collect(own, rank, ranks, say)
        if ranks < settings["ranks"]:
            distributed.destroy_process_group()
            say(doing=f"waiting for rank {0 if rank else ranks} at {settings['master']}")


def _leaves_some(module: Any) -> bool:
    """Whether steps leave some parameters without gradients, which DistributedDataParallel must be told."""
    without = {parameter.grad is None for parameter in module.parameters() if parameter.requires_grad}
    return len(without) > 1


def _meeting(settings: dict[str, Any]) -> Any:
    """Where the ranks find each other, and what rank 0 decided; one that it does not wait for is refused."""
    from torch import distributed

    host, port = split_address(settings["master"], where="master")
    rank = settings["rank"]
    store = distributed.TCPStore(
        host.strip("[]"), port, is_master=rank == 0, timeout=_left(settings), wait_for_workers=False
    )
    if rank == 0:
        store.set("settings", json.dumps({name: settings[name] for name in DECIDED}))
    else:
        settings |= json.loads(store.get("settings"))
    if rank >= settings["ranks"]:
        raise ProfilingError(f"rank: rank 0 trains {settings['ranks']} ranks, without rank {rank}; give it more ranks")
    return store


def _left(settings: dict[str, Any]) -> timedelta:
    return timedelta(seconds=max(1.0, settings["until"] - time.monotonic()))


def _collect(own: Path, rank: int, ranks: int, say: Callable[..., None]) -> None:
    """Bring the traces of all ranks to rank 0."""
    import torch
    from torch import distributed

    say(doing="sending the trace" if rank else "fetching the traces of the other ranks")
    if rank:
        content = torch.frombuffer(bytearray(own.read_bytes()), dtype=torch.uint8)
        distributed.send(torch.tensor([len(content)]), 0)
        distributed.send(content, 0)
    else:
        for other in range(1, ranks):
            length = torch.zeros(1, dtype=torch.int64)
            distributed.recv(length, other)
            content = torch.zeros(int(length), dtype=torch.uint8)
            distributed.recv(content, other)
            own.with_name(FILE.format(other)).write_bytes(content.numpy().tobytes())
    distributed.barrier()  # nobody leaves before all has arrived


def _build(name: str, say: Callable[..., None]) -> tuple[Any, Callable[..., int]]:
    """The module, and what trains it for a step of some kind; there are no other ranks yet."""
    import torch
    from torch import distributed

    torch.manual_seed(1)
    function = imported(name)
    try:
        result = function()
    except (Exception, SystemExit) as error:
        raise _failed(name, error) from None
    if distributed.is_initialized():
        raise ProfilingError(
            f"model {name!r}: its function must return the module as it is, got a process group of its own besides; "
            "step is given the module inside DistributedDataParallel"
        )
    if not (
        isinstance(result, tuple)
        and len(result) == 2
        and isinstance(result[0], torch.nn.Module)
        and callable(result[1])
    ):
        raise ProfilingError(
            f"model {name!r}: its function must return a pair (module, step), got {type(result).__name__}"
        )
    module, step = result
    return module, _training(step, name, say)


def _training(step: Callable[[Any], Any], name: str, say: Callable[..., None]) -> Callable[..., int]:
    """A step of a module, checked and reported as of some kind; it returns its number of examples."""
    sizes: set[int] = set()

    def train(module: Any, kind: str) -> int:
        try:
            size = step(module)
        except (Exception, SystemExit) as error:
            raise _failed(name, error) from None
        if type(size) is not int or size < 1 or len(sizes | {size}) > 1:
            raise ProfilingError(
                f"model {name!r}: step must return its number of examples, the same each time, "
                f"got {_short(size)}" + (f" after {sizes.pop()}" if sizes else "")
            )
        sizes.add(size)
        say(step=kind)
        return size

    return train


def _failed(name: str, error: BaseException) -> ProfilingError:
    """A user's own function, or its step."""
    traceback.print_exc()
    grouped = "; leave the module as it is: step is given it inside DistributedDataParallel"
    return ProfilingError(f"model {name!r}: {cause(error)}" + (grouped if "process group" in str(error) else ""))


def _record(
    module: Any, train: Callable[[Any, str], int], path: Path, settings: dict[str, Any], say: Callable[..., None]
) -> int:
    """Train, write the trace of the steps after the warm-up, time others, and return the examples of each."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

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
    _finish_started()
    start = time.perf_counter()
    for _ in range(settings["untraced_steps"]):
        train(module, "untraced")
    _finish_started()
    if untraced := settings["untraced_steps"]:
        ranks = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        say(seconds=(time.perf_counter() - start) / untraced, ranks=ranks)
    return size


def _finish_started() -> None:
    """An accelerator computes beside the program."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _short(value: object) -> str:
    return " ".join(repr(value).split())[:100]


def gradient_norms(wrapped: Any, train: Callable[[Any], object], steps: int) -> list[dict[str, Any]]:
    """Train so many steps, and return `GradientNorms` of each as plain values; the same on every rank.

    A communication hook, which the module then keeps, sees every bucket before and after its all-reduce, whatever the
    optimizer does with the gradients then.
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


if __name__ == "__main__":
    as_told(main)
