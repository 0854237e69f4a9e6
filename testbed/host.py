"""One host's TensorFlow process: a parameter server or a worker; started by `measure`, spoken to over its pipes."""

from __future__ import annotations

import contextlib
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

from .graph import build
from .synchronization import LATE, Waiting
from .waits import Lateness
from .workload import read_workload

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
    # a worker's session knows the servers and itself; the other workers are none of its business
    config = tf1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{task}"])
    say(ready=True)
    commands: SimpleQueue[dict] = SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_listen, args=(commands, stop), daemon=True).start()
    while command := commands.get():
        stop.clear()
        lateness.waits.clear()
        with tf.Graph().as_default():
            waiting = build(workload, worker=task, workers=command["workers"], lateness=lateness, rng=rng)
            with tf1.Session(server.target, config=config) as session:
                session.run(tf1.global_variables_initializer())
                _run(session, waiting, task, stop, rng, lateness, **command)
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
    waiting: Waiting,
    task: int,
    stop: threading.Event,
    rng: np.random.Generator,
    lateness: Lateness,
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
    helpers = []
    if waiting.begin:
        session.run(waiting.begin)
    if waiting.advance and task == 0:
        threading.Thread(target=_advance, args=(session, waiting.advance), daemon=True).start()
    if waiting.release and task == 0:
        helpers.append(threading.Thread(target=lambda: stop.wait() and session.run(waiting.release)))
        helpers[0].start()
    time.sleep(rng.uniform(0, delay))
    traced = rounds = 0
    step = waiting.step
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    with open(steps_file, "w", buffering=1) as times:
        while not stop.is_set():
            metadata = tf1.RunMetadata()
            tracing = task == 0 and time.time() > start + seconds and traced < trace_steps
            fed = {} if waiting.round is None else {waiting.round: rounds}
            lateness.cut.clear()
            try:
                answer = session.run(step, fed, options if tracing else None, metadata)
            except tf.errors.OpError:
                if not lateness.cut.is_set():
                    raise
                rounds, step = rounds + 1, waiting.step
                continue
            counts = True
            if waiting.again is not None:
                step = waiting.again
            elif waiting.round is not None:
                rounds, counts = rounds + len(answer), answer[0] != LATE
            if tracing:
                Path(trace_folder, f"step_{traced:03d}.pb").write_bytes(metadata.SerializeToString())
                traced += 1
            elif counts:
                times.write(f"{time.time()}\n")
            if task == 0 and traced == trace_steps and time.time() > start + seconds:
                say(traced=traced)
                trace_steps = -1
    for helper in helpers:
        helper.join()


def _advance(session: tf1.Session, advance: tf.Operation) -> None:
    """End one round after the other, until the session is closed."""
    with contextlib.suppress(tf.errors.CancelledError, RuntimeError):
        while True:
            session.run(advance)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
