"""Who waits for whom: accumulators and queues on the servers, as in TensorFlow's SyncReplicasOptimizer."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from .workload import Workload

tf1 = tf.compat.v1
ANY_AGE = 2**62  # an accumulator drops gradients older than its own round: these never are
MANY = 1000  # what lets everybody go on when the run is over
LATE, COUNTED = 0, 1
OVER = -1  # the round is; a token of at least 0 says in which one a worker's own gradients are there

Gradients = list[tuple[tf.Tensor, tf.Variable]]


@dataclass(frozen=True)
class Waiting:
    """
    What a worker runs.

    Attributes
    ----------
    step : Operation or Tensor
        Over and over; where there are rounds its value is one token for each that is over by then.
    advance, release : Operation, optional
        On worker 0 besides: over and over, to end each round; once, to let everybody go on at the end.
    again : Operation, optional
        In place of the step until a round is over: with the parameters that the worker has.
    round : Tensor, optional
        To feed: how many rounds are over as far as the worker knows.
    begin : Operation, optional
        Once, before the first step.
    """

    step: tf.Operation | tf.Tensor
    advance: tf.Operation | None = None
    release: tf.Operation | None = None
    again: tf.Operation | None = None
    round: tf.Tensor | None = None
    begin: tf.Operation | None = None


def synchronized(
    workload: Workload, gradients: Gradients, again: Gradients, *, worker: int, workers: int, cut: threading.Event
) -> Waiting:
    """
    Send the gradients to their servers and wait, as the workload's mode says; ``cut`` is set when a step is lost.

    ``again`` are those of a further step with the same parameters.
    """
    awaited = workload.results(workers)
    match workload.mode:
        case "async":
            return Waiting(_updates(gradients))
        case "bounded-staleness":
            return _bounded(gradients, worker, workers, workload.staleness_bound)
        case "k-async":
            return _groups(gradients, workers, awaited, waits=True)
        case "k-batch-async":
            return _groups(gradients, workers, awaited, waits=False)
        case "k-batch-sync":
            return _batches(gradients, again, worker, workers, awaited, cut)
        case _:
            return _rounds(gradients, worker, workers, awaited, cut if workload.mode == "k-sync" else None)


def _updates(gradients: Gradients) -> tf.Operation:
    """Each gradient is applied when it is there."""
    updates = []
    for gradient, variable in gradients:
        with tf.device(variable.device):
            updates.append(tf1.assign_sub(variable, gradient))
    with tf.device(updates[-1].device):
        return tf.group(*updates)


def _queue(name: str, workers: int) -> tf1.FIFOQueue:
    """A queue on the first server, another one for each number of workers."""
    with tf.device("/job:ps/task:0"):
        return tf1.FIFOQueue(-1, tf.int32, shapes=[[]], shared_name=f"{name}_of_{workers}")


def _accumulated(gradients: Gradients, workers: int, local_step: tf.Tensor | int) -> tuple[list, list]:
    """Operations that give each gradient to its variable's accumulator, and these."""
    accumulators = []
    for i, (_, variable) in enumerate(gradients):
        with tf.device(variable.device):
            name = f"accumulator_{i}_of_{workers}"
            accumulators.append(tf1.ConditionalAccumulator(tf.float32, shape=variable.shape, shared_name=name))
    return _given(gradients, accumulators, local_step), accumulators


def _given(gradients: Gradients, accumulators: list, local_step: tf.Tensor | int) -> list[tf.Operation]:
    given = []
    for (gradient, variable), accumulator in zip(gradients, accumulators, strict=True):
        with tf.device(variable.device):
            given.append(accumulator.apply_grad(gradient, local_step=local_step))
    return given


def _applied(gradients: Gradients, accumulators: list, awaited: int) -> list[tf.Tensor]:
    """The mean of so many gradients of each variable, when they are there, applied."""
    applied = []
    for (_, variable), accumulator in zip(gradients, accumulators, strict=True):
        with tf.device(variable.device):
            applied.append(tf1.assign_sub(variable, accumulator.take_grad(awaited)))
    return applied


def _groups(gradients: Gradients, workers: int, awaited: int, *, waits: bool) -> Waiting:
    """An update takes so many gradients; who gave one waits for it, or goes on."""
    given, accumulators = _accumulated(gradients, workers, ANY_AGE)
    applied = _applied(gradients, accumulators, awaited)
    with tf.device("/job:ps/task:0"):
        if not waits:
            return Waiting(tf.group(*given), tf.group(*applied))
        tokens = _queue("tokens", workers)
        with tf.control_dependencies(applied):
            advance = tokens.enqueue_many(tf.fill([awaited], COUNTED))
        with tf.control_dependencies(given):
            step = tokens.dequeue()
        return Waiting(step, advance, tokens.enqueue_many(tf.fill([MANY], COUNTED)))


def _rounds(gradients: Gradients, worker: int, workers: int, awaited: int, cut: threading.Event | None) -> Waiting:
    """
    A round ends with the first so many workers' gradients, later ones are dropped.

    Who is late ends its step and joins the round that is under way then, or, with ``cut``, learns at once that the
    round is over, and its step fails.
    """
    number = tf1.placeholder(tf.int64, [])
    given, accumulators = _accumulated(gradients, workers, number)
    reports = _reports(workers)
    reported = _reported(reports, given, worker, workers, number)
    with tf.device("/job:ps/task:0"):
        queues = [_queue(f"tokens_{i}", workers) for i in range(workers)]
        first = tf.cast(reports.take_grad(awaited) > 0, tf.int32)
        with tf.control_dependencies([first]):
            applied = _applied(gradients, accumulators, awaited)
        with tf.control_dependencies(applied):
            advance = tf.group(*(queue.enqueue(first[i]) for i, queue in enumerate(queues)))
        release = tf.group(*(queue.enqueue_many(tf.fill([MANY], COUNTED)) for queue in queues))
        with tf.control_dependencies([] if cut else [reported]):
            tokens = queues[worker].dequeue_many(tf.maximum(queues[worker].size(), 1))
    if cut:
        tokens = _cut_by(tokens, LATE, worker, cut)
        with tf.control_dependencies([reported]):
            tokens = tf.identity(tokens)
    return Waiting(tokens, advance, release, round=number)


def _batches(
    gradients: Gradients, again: Gradients, worker: int, workers: int, awaited: int, cut: threading.Event
) -> Waiting:
    """
    A round ends with so many gradients, of whatever workers, who go on with their parameters; then all steps fail.

    A worker's own token, when its gradients are there, ends its step, that of a round all.
    """
    number = tf1.placeholder(tf.int64, [])
    given, accumulators = _accumulated(gradients, workers, number)
    reports, last = _reports(workers), tf.cast(number, tf.int32)
    with tf.device("/job:ps/task:0"):
        queues = [_queue(f"tokens_{i}", workers) for i in range(workers)]
        with tf.control_dependencies([reports.take_grad(awaited)]):
            applied = _applied(gradients, accumulators, awaited)
        with tf.control_dependencies(applied):
            advance = tf.group(*(queue.enqueue(OVER) for queue in queues))
    own = queues[worker]

    def step(given: list) -> tf.Operation:
        reported = _reported(reports, given, worker, workers, number)
        with tf.device("/job:ps/task:0"):
            with tf.control_dependencies([reported]):
                ended = own.enqueue(last)
            token = own.dequeue()
            stale = (token >= 0) & (token < last)  # of a step that was cut as it ended
            token = tf1.cond(stale, own.dequeue, lambda: token)
        return tf.group(ended, _cut_by(token[None], OVER, worker, cut))

    return Waiting(step(given), advance, again=step(_given(again, accumulators, number)), round=number)


def _reports(workers: int) -> tf1.ConditionalAccumulator:
    """Of the workers whose gradients are there, on the first server."""
    with tf.device("/job:ps/task:0"):
        return tf1.ConditionalAccumulator(tf.float32, shape=[workers], shared_name=f"reported_of_{workers}")


def _reported(
    reports: tf1.ConditionalAccumulator, given: list, worker: int, workers: int, number: tf.Tensor
) -> tf.Operation:
    with tf.device("/job:ps/task:0"), tf.control_dependencies(given):
        return reports.apply_grad(tf.one_hot(worker, workers), local_step=number)


def _cut_by(tokens: tf.Tensor, late: int, worker: int, cut: threading.Event) -> tf.Tensor:
    """The tokens, unless the first says that the step is too late: then it fails."""

    def check(tokens: np.ndarray) -> np.ndarray:
        if tokens[0] == late:
            cut.set()
            raise TimeoutError
        return tokens

    with tf.device(f"/job:worker/task:{worker}"):
        return tf1.py_func(check, [tokens], tf.int32)


def _bounded(gradients: Gradients, worker: int, workers: int, bound: int) -> Waiting:
    """Nobody begins a step more than ``bound`` ahead of the slowest: a token for each step that all have done."""
    with tf.device("/job:ps/task:0"):
        done = [_queue(f"done_{i}", workers) for i in range(workers)]
        queues = [_queue(f"tokens_{i}", workers) for i in range(workers)]
        with tf.control_dependencies([_updates(gradients)]):
            reported = done[worker].enqueue(COUNTED)
        with tf.control_dependencies([reported]):
            step = queues[worker].dequeue()
        with tf.control_dependencies([queue.dequeue() for queue in done]):
            advance = tf.group(*(queue.enqueue(COUNTED) for queue in queues))
        release = tf.group(*(queue.enqueue_many(tf.fill([MANY], COUNTED)) for queue in queues))
        return Waiting(step, advance, release, begin=queues[worker].enqueue_many(tf.fill([bound], COUNTED)))
