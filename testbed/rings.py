"""
What rings of messages take, one after the other: plain sockets, each rank in a namespace of its own.

As an all-reduce does it: in each of 2 (n - 1) steps a rank sends one of a pack's n parts to the next, and what it
receives meanwhile is what it sends next. After some packs all pause, as if they computed.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from .flows import tcp
from .network import PREFIX, address, cluster_network, prepare_child
from .sockets import PAYLOAD, START, answers
from .workload import Layer, Workload

PORT, PAUSE = 5001, 0.3
UNCOUNTED = 8  # one round in so many comes first and is not counted
LATE = 5e-3  # seconds


def rings(
    mbit: float, *, ranks: int, congestion_control: str, buffer_ms: float, pack_bytes: int, packs: int, rounds: int = 24
) -> dict[str, Any]:
    """
    Measure rounds of so many packs.

    Returns
    -------
    dict
        `wire`, what a pack's ring took over what its bytes take on one link; `late_ms`, how much later than its bytes
        allow a message arrived, in the mean and in nine of ten cases; `beside`, for messages during which the next
        rank could send its own for less than a quarter of the time, up to three quarters, and more: their share, and
        the share of them that were late by `LATE`; `again`, packets sent again for each that was needed.
    """
    layer = Layer(name="none", tensor_bytes=(4,), forward_s=0.0, backward_s=0.0)
    network = {"bandwidth_mbit": mbit, "congestion_control": congestion_control, "buffer_ms": buffer_ms}
    part = pack_bytes // ranks
    wire = part / (mbit * 125_000 * PAYLOAD)
    hosts = [f"worker{i}" for i in range(ranks)]
    with cluster_network(Workload(name="rings", layers=(layer,), **network), hosts), contextlib.ExitStack() as stack:
        told = {"ranks": ranks, "part": part, "packs": packs, "rounds": rounds, "start": time.time() + START}
        started = []
        for number, host in enumerate(hosts):
            command = ["ip", "netns", "exec", PREFIX + host, sys.executable, "-m", f"{__package__}.rings"]
            process = subprocess.Popen(
                [*command, json.dumps({"number": number} | told)],
                stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1], preexec_fn=prepare_child,
            )  # fmt: skip
            stack.enter_context(process)
            stack.callback(process.kill)
            started.append(process)
        said: list[Any] = answers(started, 60 + rounds * (PAUSE + 10 * packs * 2 * ranks * wire))
    times = np.array([one["times"] for one in said])[
        :, rounds // UNCOUNTED :
    ]  # rank, round, pack, step, posted or here
    posted, here = times[..., 0], np.roll(times[..., 1], -1, axis=0)
    took = here[..., -1].max(axis=0) - posted[..., 0].max(axis=0)
    departures = _departures(posted, wire)
    late = here - departures
    beside = np.digitize(_beside(departures.reshape(ranks, -1), wire), [0.25, 0.75]).reshape(late.shape)
    needed = rounds * packs * 2 * (ranks - 1) * ranks * part / 1448
    return {
        "wire": round(float(took.mean() / (2 * (ranks - 1) * wire)), 3),
        "late_ms": [round(1e3 * float(x), 2) for x in (late.mean(), np.quantile(late, 0.9))],
        "beside": [[_share(beside == kind), _share(late[beside == kind] > LATE)] for kind in range(3)],
        "again": round(sum(one["again"] for one in said) / needed, 3),
    }


def _departures(posted: np.ndarray, wire: float) -> np.ndarray:
    """When each message's last byte can leave, behind those before it on its link: (rank, round, pack, step)."""
    flat = posted.reshape(len(posted), -1)
    behind = wire * np.arange(1, flat.shape[1] + 1)
    return (np.maximum.accumulate(flat - behind + wire, axis=1) + behind).reshape(posted.shape)


def _beside(departures: np.ndarray, wire: float) -> np.ndarray:
    """For which share of each message's own time on its link the next rank's link had one too: (rank, message)."""
    following = np.pad(np.roll(departures, -1, axis=0), ((0, 0), (1, 1)), constant_values=np.inf)
    both = [np.abs(departures - following[:, k : k + departures.shape[1]]) for k in range(3)]
    return np.sum([np.maximum(0.0, 1 - apart / wire) for apart in both], axis=0)


def _share(which: np.ndarray) -> float | None:
    return round(float(which.mean()), 2) if which.size else None


def rank(number: int, ranks: int, part: int, packs: int, rounds: int, start: float) -> None:
    """One rank; prints when it posted and when it had each message, and how many packets it sent again."""
    listener = socket.create_server(("", PORT))
    while True:
        with contextlib.suppress(OSError):
            following = socket.create_connection((address(f"worker{(number + 1) % ranks}"), PORT))
            break
        time.sleep(0.05)
    before, _ = listener.accept()
    for connection in (following, before):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    message, into, queue = bytes(part), bytearray(part), SimpleQueue[bytes]()

    def send() -> None:
        while True:
            following.sendall(queue.get())

    threading.Thread(target=send, daemon=True).start()
    times = np.empty((rounds, packs, 2 * (ranks - 1), 2))
    time.sleep(max(0.0, start - time.time()))
    for one in times:
        time.sleep(PAUSE)
        for step in one.reshape(-1, 2):
            step[0] = time.monotonic()
            queue.put(message)
            missing = memoryview(into)
            while missing:
                missing = missing[before.recv_into(missing) :]
            step[1] = time.monotonic()
    time.sleep(PAUSE)
    print(json.dumps({"times": times.tolist(), "again": tcp(following)[3]}), flush=True)


if __name__ == "__main__":
    rank(**json.loads(sys.argv[1]))
