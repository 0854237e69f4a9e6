"""Flows without TensorFlow: a server, workers beside it, and processes of `flows` in their namespaces."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .network import PREFIX, cluster_network, prepare_child
from .workload import Layer, TestbedError, Workload

START = 3.0  # seconds for the processes to start
PAYLOAD = 1448 / 1514  # of a full Ethernet frame


class Round(NamedTuple):
    """One round: its direction, how many flows went against it, and of each measured flow what came when."""

    way: str
    against: int
    flows: list[dict[str, Any]]


@contextlib.contextmanager
def listening(
    name: str, mbit: float, *, workers: int, congestion_control: str | None, buffer_ms: float
) -> Iterator[Callable[[str, str, Any], subprocess.Popen]]:
    """
    Lay the network of a server that listens and so many workers; all of it goes at the end.

    Gives what starts a flow: (worker's host, "flow" or "fill", its schedule) to the process.
    """
    layer = Layer(name="none", tensor_bytes=(4,), forward_s=0.0, backward_s=0.0)
    about = {"bandwidth_mbit": mbit, "congestion_control": congestion_control, "buffer_ms": buffer_ms}
    workload = Workload(name=name, layers=(layer,), **about)
    hosts = ["ps0", *(f"worker{i}" for i in range(workers))]
    with cluster_network(workload, hosts), contextlib.ExitStack() as stack:

        def start(host: str, *arguments: str) -> subprocess.Popen:
            command = ["ip", "netns", "exec", PREFIX + host, sys.executable, "-m", f"{__package__}.flows", *arguments]
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1], preexec_fn=prepare_child
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        start("ps0", "serve").stdout.readline()  # it listens
        yield lambda host, role, schedule: start(host, role, json.dumps(schedule))


def answers(flows: Sequence[subprocess.Popen], limit: float) -> list[list[dict[str, Any]]]:
    """What each flow says of its rounds, within so many seconds."""
    try:
        return [json.loads(process.communicate(timeout=limit)[0]) for process in flows]
    except (subprocess.TimeoutExpired, ValueError):
        raise TestbedError(f"a flow did not finish in {limit:.0f} s; is the machine too busy?") from None
