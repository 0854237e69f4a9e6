"""
How fast a TCP flow takes over a link that it shared, once the other flow has ended: no TensorFlow, plain sockets.

Worker 0 fetches 3 MB from the server and worker 1 starts with it, for 1 MB; meanwhile other workers may push to the
server, so that the acknowledgements wait in their queue. What the link carries after worker 1's end says how contention
wastes it.
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

import numpy as np

from .network import PREFIX, address, cluster_network, prepare_child
from .workload import Layer, TestbedError, Workload

LONG, SHORT, PORT, INTERVAL = 3_000_000, 1_000_000, 5000, 0.05
START = 4.0  # seconds for the fetchers' processes to start
PAYLOAD = 1448 / 1514  # of a full Ethernet frame


def takeover(mbit: float, *, congestion_control: str | None, pushers: int, repeats: int = 12) -> list[float]:
    """
    Measure the share of the link that the longer flow uses, by 50 ms since it became alone.

    Parameters
    ----------
    mbit : float
        Rate of every link (Mbit/s).
    congestion_control : str or None
        TCP's algorithm; None keeps the machine's own.
    pushers : int
        Workers that push to the server all the time.
    repeats : int
        How often to measure.

    Returns
    -------
    list of float
        Mean payload over what the link can carry, interval by interval, as long as half of the repeats last.
    """
    layer = Layer(name="none", tensor_bytes=(4,), forward_s=0.0, backward_s=0.0)
    workload = Workload(name="takeover", layers=(layer,), bandwidth_mbit=mbit, congestion_control=congestion_control)
    hosts = ["ps0", *(f"worker{i}" for i in range(2 + pushers))]
    capacity = mbit * 125_000 * PAYLOAD
    period = 2.0 * (LONG + SHORT) / capacity
    with cluster_network(workload, hosts), contextlib.ExitStack() as stack:

        def start(host: str, *arguments: object) -> subprocess.Popen:
            command = ["ip", "netns", "exec", PREFIX + host, sys.executable, "-m", __name__, *map(str, arguments)]
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[2],
                preexec_fn=prepare_child,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        start("ps0", "serve").stdout.readline()  # it listens
        begin = time.time() + START
        for i in range(pushers):
            start(f"worker{2 + i}", "push", begin - 0.5)
        fetchers = [start(f"worker{i}", "fetch", begin, size, period, repeats) for i, size in enumerate((LONG, SHORT))]
        try:
            long, short = (json.loads(process.communicate(timeout=60 + period * repeats)[0]) for process in fetchers)
        except (subprocess.TimeoutExpired, ValueError):
            raise TestbedError(
                f"a flow did not finish in {60 + period * repeats:.0f} s; is the machine too busy?"
            ) from None
    rows = []
    for arrivals, others in zip(long, short, strict=True):
        when, size = np.array(arrivals).T
        edges = np.arange(others[-1][0], when[-1], INTERVAL)
        rows.append(np.histogram(when, edges, weights=size)[0] / INTERVAL / capacity)
    count = sorted(map(len, rows))[len(rows) // 2]
    return [float(np.mean([row[i] for row in rows if len(row) > i])) for i in range(count)]


def _serve() -> None:
    def one(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            while line := file.readline():
                if size := int(line):
                    connection.sendall(bytes(size))
                else:  # a pusher: swallow what comes
                    while file.read1(1 << 16):
                        pass

    server = socket.create_server(("", PORT))
    print("ready", flush=True)
    while True:
        threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()


def _push(begin: float) -> None:
    time.sleep(max(0.0, begin - time.time()))
    with socket.create_connection((address("ps0"), PORT)) as connection:
        connection.sendall(b"0\n")
        while True:
            connection.sendall(bytes(1 << 16))


def _fetch(begin: float, size: int, period: float, repeats: int) -> None:
    """Print, for each repeat, when how many bytes arrived."""
    rows, buffer = [], bytearray(1 << 16)
    with socket.create_connection((address("ps0"), PORT)) as connection:
        for i in range(repeats):
            time.sleep(max(0.0, begin + i * period - time.time()))
            connection.sendall(b"%d\n" % size)
            missing, row = size, []
            while missing:
                missing -= (got := connection.recv_into(buffer))
                row.append((time.time(), got))
            rows.append(row)
    print(json.dumps(rows))


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    if role == "serve":
        _serve()
    elif role == "push":
        _push(float(rest[0]))
    else:
        _fetch(float(rest[0]), int(rest[1]), float(rest[2]), int(rest[3]))
