"""What the links of the parameter servers do during a run: bytes, drops, standing queues, TCP's own figures."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from .network import PREFIX, Queues, inside
from .workload import TestbedError, Workload

BIN, SLOW = 0.02, 0.5  # seconds between two looks at the byte counters, and at queues and connections
INTERVAL = 0.1  # seconds over which a link's rate is told by how many workers use it
ACTIVE = 0.03  # a worker uses the link when it moves more than this share of the server's rate


def processor_seconds() -> tuple[float, float]:
    """Busy and all processor time of the machine since it started (seconds, all cores together)."""
    user, nice, system, idle, iowait, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    busy = user + nice + system + sum(rest[:2])  # interrupts; time stolen by a hypervisor is not ours
    return busy / 100, (busy + idle + iowait) / 100


def process_seconds(pids: list[int]) -> float:
    """Processor time that these processes have used (seconds)."""
    total = 0
    for pid in pids:
        total += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
    return total / 100


class Probe(threading.Thread):
    """
    Look at the links until `stop`; times are seconds since the epoch.

    The byte counters are read every 20 ms from every host's namespace (through its process in /proc), the servers'
    queueing disciplines and TCP connections every 0.5 s with ``tc -s`` and ``ss -ti``.
    """

    def __init__(self, hosts: dict[str, int], queues: Queues) -> None:
        super().__init__(daemon=True)
        self.hosts, self.queues = hosts, queues  # and their processes
        self.servers = [host for host in hosts if host.startswith("ps")]
        self.bytes: list[tuple[float, dict[str, tuple[int, int]]]] = []
        self.slow: list[tuple[float, dict[str, Any]]] = []
        self._stop_now = threading.Event()

    def run(self) -> None:
        next_slow = 0.0
        while not self._stop_now.wait(BIN):
            try:
                self.bytes.append((time.time(), {h: _bytes(pid) for h, pid in self.hosts.items()}))
                if time.time() >= next_slow:
                    next_slow = time.time() + SLOW
                    self.slow.append((time.time(), {h: self._look(h) for h in self.servers}))
            except (OSError, TestbedError):  # a look missed, or the cluster is being taken down
                continue

    def _look(self, host: str) -> dict[str, Any]:
        """What a server's queues count, and its TCP connections."""
        return self.queues(host) | {"tcp": connections(inside(PREFIX + host, "ss", "-tinH"))}

    def stop(self) -> None:
        self._stop_now.set()
        self.join(5)

    def stall(self, begin: float, end: float) -> float:
        """The longest time (s) without a look at the links: the machine itself stood still."""
        times = [begin, *(t for t, _ in self.bytes if begin <= t <= end), end]
        return float(np.diff(times).max())

    def summary(self, workload: Workload, begin: float, end: float) -> dict[str, Any]:
        """Figures for the window from `begin` to `end`, by server and direction (as the server sees it)."""
        fast = [(t, b) for t, b in self.bytes if begin <= t <= end]
        slow = [(t, q) for t, q in self.slow if begin <= t <= end]
        result = {}
        for host in self.servers:
            rate = workload.link_mbit(host) * 125_000
            result[host] = {}
            for way, column in (("transmit", 1), ("receive", 0)):
                shares = _rates(fast, host, column) / rate
                first, last = slow[0][1][host][way], slow[-1][1][host][way]
                queues = [q[host][way]["backlog"] for _, q in slow]
                result[host][way] = {
                    "utilization": (last["bytes"] - first["bytes"]) / (slow[-1][0] - slow[0][0]) / rate,
                    "idle_share": float((shares < 0.1).mean()),
                    "packets": last["packets"] - first["packets"],
                    "drops": last["drops"] - first["drops"],
                    "backlog_mean_bytes": fmean(queues),
                    "backlog_max_bytes": max(queues),
                }
            if len(self.servers) == 1:  # else a worker's bytes do not tell which server they are of
                every = fast[:: round(INTERVAL / BIN)]
                workers = [h for h in self.hosts if h not in self.servers]
                for way, there, here in (("transmit", 0, 1), ("receive", 1, 0)):
                    using = sum((_rates(every, w, there) / rate > ACTIVE).astype(int) for w in workers)
                    result[host][way]["by_users"] = _by_users(using, _rates(every, host, here) / rate)
            result[host]["tcp"] = _tcp(slow[0][1][host]["tcp"], slow[-1][1][host]["tcp"])
        return result


def _rates(samples: list, host: str, column: int) -> np.ndarray:
    """Bytes per second between the samples."""
    times = np.array([t for t, _ in samples])
    return np.diff([b[host][column] for _, b in samples]) / np.diff(times)


def _by_users(using: np.ndarray, utilization: np.ndarray) -> dict[int, dict[str, float]]:
    """What the link carries when so many workers use it: the share of time, and the utilization in it."""
    return {
        int(k): {"time_share": float((using == k).mean()), "utilization": float(utilization[using == k].mean())}
        for k in np.unique(using)
    }


def _bytes(pid: int) -> tuple[int, int]:
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
        if line.lstrip().startswith("eth0:"):
            numbers = line.split(":")[1].split()
            return int(numbers[0]), int(numbers[8])
    raise ValueError(pid)


def connections(text: str) -> dict[str, dict[str, float | str]]:
    """The figures that matter in the answer of ``ss -tinH``, by connection."""
    found = {}
    lines = text.splitlines()
    for head, detail in zip(lines[::2], lines[1::2], strict=False):
        words = head.split()
        row: dict[str, float | str] = {"algorithm": detail.split()[0], "unsent": int(words[2]), "unread": int(words[1])}
        for key, pattern in {
            "rtt_ms": r"\brtt:([\d.]+)",
            "minrtt_ms": r"minrtt:([\d.]+)",
            "cwnd": r"cwnd:(\d+)",
            "bytes_sent": r"bytes_sent:(\d+)",
            "bytes_retrans": r"bytes_retrans:(\d+)",
            "bytes_received": r"bytes_received:(\d+)",
            "rwnd_limited_ms": r"rwnd_limited:(\d+)ms",
            "busy_ms": r"busy:(\d+)ms",
            "unacked": r"unacked:(\d+)",
            "pacing": r"pacing_rate (\d+)bps",
            "delivery": r"delivery_rate (\d+)bps",
        }.items():
            match = re.search(pattern, detail)
            row[key] = float(match.group(1)) if match else 0.0
        found[f"{words[3]} {words[4]}"] = row
    return found


def _tcp(first: dict[str, dict], last: dict[str, dict]) -> dict[str, Any]:
    """What the connections that lived through the window did in it, sender's side at the server."""
    grown = [{k: b[k] - first[c][k] for k in b if k not in ("algorithm",)} for c, b in last.items() if c in first]
    used = [(b, c) for b, c in zip((b for c, b in last.items() if c in first), grown, strict=True) if c["bytes_sent"]]
    sent = sum(g["bytes_sent"] for _, g in used)
    return {
        "algorithm": sorted({b["algorithm"] for b, _ in used}),
        "connections": len(used),
        "bytes_sent": sent,
        "retransmitted_share": sum(g["bytes_retrans"] for _, g in used) / sent if sent else 0.0,
        "bytes_received": sum(g["bytes_received"] for _, g in used),
        "rtt_mean_ms": fmean(b["rtt_ms"] for b, _ in used) if used else 0.0,
    }
