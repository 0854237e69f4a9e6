"""One rank's process; started by `measure`, spoken to over its pipes."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from ..waits import Lateness
from ..workload import read_workload

JOBS = {"ddp": "torch_job", "fsdp": "sharded_job", "mirrored": "tensorflow_job"}


def main(workload_file: str, change: dict, rank: int, addresses: list[str], seed: int) -> None:
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what frameworks print goes to the log
    workload, lateness = replace(read_workload(workload_file), **change), Lateness()
    rng = np.random.default_rng([seed, rank, len(addresses)])
    shape = 1 / workload.cv**2
    factor = (workload.slow_worker if rank == 1 else 1.0) / workload.accelerator

    def wait(seconds: float) -> None:
        lateness.wait(rng.gamma(shape, factor * seconds / shape))

    module = "training_job" if workload.learn else JOBS[workload.mode]
    job = importlib.import_module(f"{__package__}.{module}").Job(workload, rank, addresses, wait)
    print(json.dumps({"ready": True}), file=channel, flush=True)
    commands: SimpleQueue[dict] = SimpleQueue()
    threading.Thread(target=_listen, args=(commands,), daemon=True).start()
    while command := commands.get():
        lateness.waits.clear()
        if "strategy" in command:
            job.begin(command["strategy"])
        times = [time.time()]

        def train(times: list[float] = times) -> None:
            job.round()
            times.append(time.time())

        if command["trace"]:
            job.traced(train, command["rounds"], Path(command["trace"]))
        else:
            for _ in range(command["rounds"]):
                train()
        answer = {"times": times, "late_mean_s": float(np.mean(lateness.waits or [0.0]))}
        if "models" in command:
            answer["meetings"] = job.keep(Path(command["models"]))
        print(json.dumps(answer), file=channel, flush=True)


def _listen(commands: SimpleQueue) -> None:
    for line in sys.stdin:
        commands.put(json.loads(line))
    os._exit(0)  # measure is done, or gone


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
