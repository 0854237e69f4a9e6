"""Recording of a running PyTorch job: a step lies between two updates by its first optimizer.

Python imports a ``sitecustomize`` at its start, so that `queuemodel record` reaches each process of a job through the
path. Only the standard library and PyTorch are needed: the job's Python may lack queuemodel.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

TRACE_NAME = "rank{}.pt.trace.json.gz"
RECORD_ENV = "QUEUEMODEL_RECORD"  # environment: arguments of `record_steps` as JSON


def profiler(path: Path, *, steps: int, warmup: int) -> Any:
    """A `torch.profiler.profile` with what `read_pytorch` needs, which writes ``path`` after ``steps``."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    path.parent.mkdir(parents=True, exist_ok=True)
    return profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=warmup, active=steps, repeat=1),
        on_trace_ready=lambda ready: ready.export_chrome_trace(str(path)),
    )


def record_steps(folder: str | os.PathLike[str], *, steps: int = 12, warmup: int = 5, end: bool = False) -> None:
    """Record ``steps`` of this process' training into ``folder``, a file for each rank, after ``warmup`` steps.

    Call it on every rank before training, with plain PyTorch, Lightning or Hugging Face's `Trainer`: it counts updates
    by the first optimizer that updates, so that accumulated passes are one step. Training goes on afterwards, or with
    ``end`` leaves with `SystemExit` once all ranks have recorded. `read_pytorch` reads the folder.

    Examples
    --------
    >>> from queuemodel.adapters import record_steps
    >>> record_steps("trace_n2")  # doctest: +SKIP
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    recorder = _Recorder(Path(folder), steps, warmup, end)
    recorder.hook = register_optimizer_step_post_hook(recorder.updated)


class _Recorder:
    """The state of one process' recording, which starts with the first update."""

    hook: Any
    optimizer: Any = None

    def __init__(self, folder: Path, steps: int, warmup: int, end: bool) -> None:
        self.folder, self.steps, self.warmup, self.end = folder, steps, warmup, end
        self.left = warmup + steps

    def updated(self, optimizer: Any, *_: Any) -> None:
        if self.optimizer is None:
            from torch import distributed

            together = distributed.is_available() and distributed.is_initialized()
            rank = distributed.get_rank() if together else int(os.environ.get("RANK", 0))
            self.optimizer = optimizer
            self.profiler = profiler(self.folder / TRACE_NAME.format(rank), steps=self.steps, warmup=self.warmup)
            self.profiler.start()
            atexit.register(self.stop)  # a job that ends early leaves the steps that it has
        elif optimizer is self.optimizer:
            self.profiler.step()
            self.left -= 1
            if not self.left:
                self.stop()

    def stop(self) -> None:
        from torch import distributed

        atexit.unregister(self.stop)
        self.hook.remove()
        self.profiler.stop()
        if self.end and not self.left:
            if distributed.is_available() and distributed.is_initialized():
                distributed.barrier()  # none leaves while another writes
            raise SystemExit


class _AfterTorch:
    """Finds PyTorch like Python, and then calls `record_steps` with the settings of the environment."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_record(module: Any) -> None:
                load(module)
                record_steps(**json.loads(os.environ[RECORD_ENV]))

            spec.loader.exec_module = load_and_record  # type: ignore[method-assign]
        return spec


def _start() -> None:
    """Wait for PyTorch, after the environment's own ``sitecustomize``, which this one hides."""
    folder = str(Path(__file__).parent)
    own = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if entry != folder])
    if own is not None and own.loader is not None:
        own.loader.exec_module(importlib.util.module_from_spec(own))
    sys.meta_path.insert(0, _AfterTorch())


if __name__ == "sitecustomize" and RECORD_ENV in os.environ:
    _start()
