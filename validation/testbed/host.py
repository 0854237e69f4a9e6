"""One host's TensorFlow process: a parameter server or a worker; started by `measure`, spoken to over its pipes."""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from .graph import Graph, build
from .waits import Lateness
from .workload import Workload, read_workload

tf1 = tf.compat.v1


def say(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def main(job: str, task: int, workload_file: str, cluster: dict[str, list[str]], seed: int) -> None:
    tf1.disable_eager_execution()
    server = tf1.train.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=task)
    if job == "ps":
        say(ready=True)
        sys.stdin.read()  # until measure closes the pipe
        os._exit(0)
    rng = np.random.default_rng([seed, task])
    lateness = Lateness()
    workload = read_workload(workload_file)
    graph = build(workload, worker=task, lateness=lateness, rng=rng)
    # a worker's session knows the servers and itself; the other workers are none of its business
    config = tf1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{task}"])
    with tf1.Session(server.target, config=config) as session:
        session.run(graph.initialize)
        say(ready=True)
        commands: SimpleQueue[dict] = SimpleQueue()
        stop = threading.Event()
        threading.Thread(target=_listen, args=(commands, stop), daemon=True).start()
        while command := commands.get():
            stop.clear()
            lateness.waits.clear()
            _run(session, graph, workload, task, stop, rng, **command)
            waits = lateness.waits or [0.0]
            say(finished=True, late_mean_s=float(np.mean(waits)), late_p99_s=float(np.quantile(waits, 0.99)))
    os._exit(0)


def _listen(commands: SimpleQueue, stop: threading.Event) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if message == "stop":
            stop.set()
        else:
            commands.put(message)
    os._exit(0)  # measure is gone


def _run(
    session: tf1.Session,
    graph: Graph,
    workload: Workload,
    task: int,
    stop: threading.Event,
    rng: np.random.Generator,
    *,
    workers: int,
    seconds: float,
    delay: float,
    steps_file: str,
    trace_folder: str,
    trace_steps: int,
) -> None:
    """Train until told to stop; worker 0 traces some steps once `seconds` are over, and says so."""
    start = time.time()
    if graph.coordinate and task == 0:
        threading.Thread(target=_coordinate, args=(session, graph, workers, stop), daemon=True).start()
    time.sleep(rng.uniform(0, delay))
    traced = 0
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    with open(steps_file, "w", buffering=1) as times:
        while graph.coordinate or not stop.is_set():
            metadata = tf1.RunMetadata()
            tracing = task == 0 and time.time() > start + seconds and traced < trace_steps
            token = session.run(graph.step, options=options if tracing else None, run_metadata=metadata)
            if tracing:
                packed = gzip.compress(metadata.SerializeToString(), mtime=0)
                Path(trace_folder, f"step_{traced:03d}.pb.gz").write_bytes(packed)
                traced += 1
            else:
                times.write(f"{time.time()}\n")
            if task == 0 and traced == trace_steps and time.time() > start + seconds:
                say(traced=traced)
                trace_steps = -1
            if graph.coordinate and not token:
                break


def _coordinate(session: tf1.Session, graph: Graph, workers: int, stop: threading.Event) -> None:
    more = True
    while more:
        more = not stop.is_set()
        graph.coordinate(session, workers, more)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
