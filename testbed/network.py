"""The cluster's network: one namespace per host, a switch, and every link shaped in both directions."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .datagrams import OUTSIDER, other_traffic
from .workload import FIFO, POLICER, TestbedError, Workload

PREFIX = "qmtb-"
SWITCH = PREFIX + "switch"
LOCK = Path("/run/lock/queuemodel-testbed")
#: TCP's algorithms that namespaces may choose.
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
BURST = 16 * 1024  # bytes

#: What a host's two queues have counted so far: bytes, packets, drops, backlog; "transmit" and "receive".
Queues = Callable[[str], dict[str, dict[str, Any]]]


def ip(*arguments: str, check: bool = True) -> str:
    return _call("ip", *arguments, check=check)


def inside(namespace: str, *command: str) -> str:
    return _call("ip", "netns", "exec", namespace, *command)


def _call(*command: str, check: bool = True) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        raise TestbedError(f"{command[0]} is not installed; install the iproute2 package") from None
    if check and done.returncode:
        line = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise TestbedError(f"{' '.join(command[:8])}: {line}")
    return done.stdout


def prepare_child(priority: int = 0) -> None:
    """What a new process of the cluster does first: live no longer than its parent, and leave Ctrl-C to it."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.setsid()
    os.setpriority(os.PRIO_PROCESS, 0, priority)


def address(host: str) -> str:
    """The host's address inside the cluster's own network."""
    kind, index = (10, host[2:]) if host.startswith("ps") else (100, host[6:])
    return f"10.77.0.{kind + int(index)}"


def namespaces() -> list[str]:
    """The testbed's namespaces that exist now."""
    names = (line.split()[0] for line in ip("netns", "list").splitlines() if line.strip())
    return sorted(name for name in names if name.startswith(PREFIX))


def remove_leftovers() -> list[str]:
    """Remove the testbed's namespaces, with what runs in them; return their names."""
    found = namespaces()
    for name in found:
        for pid in ip("netns", "pids", name, check=False).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    for name in found:  # links, bridge and queueing disciplines go with their namespace
        ip("netns", "delete", name, check=False)
    for _ in range(50):
        if not namespaces():
            return found
        time.sleep(0.1)
    raise TestbedError(f"these namespaces could not be removed: {' '.join(namespaces())}")


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Hold the lock of the machine's testbed; it goes with the process, however that ends."""
    try:
        handle = LOCK.open("w")
    except OSError as error:
        raise TestbedError(f"{LOCK}: {error.strerror}; the testbed must run as root") from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TestbedError("another testbed is measuring on this machine; wait for it") from None
        yield


def why_not() -> str:
    """Why the testbed cannot run here, in one line; empty when it can."""
    if os.geteuid() != 0:
        return "the testbed needs root (network namespaces, tc); run it with sudo"
    for tool in ("ip", "tc", "ss"):
        if not shutil.which(tool):
            return f"{tool} is not installed; install the iproute2 package"
    try:
        with only_one():
            remove_leftovers()
            try:
                _host("ps0")
                with _cables(Workload(name="check", layers=(), bandwidth_mbit=10), ["ps0"]):
                    pass
            finally:
                remove_leftovers()
    except TestbedError as error:
        return f"the testbed cannot run here: {error}"
    return ""


@contextlib.contextmanager
def cluster_network(workload: Workload, hosts: list[str]) -> Iterator[Queues]:
    """
    Lay the network of these hosts, and take it down whatever happens; what its queues count.

    Everything lives in namespaces of its own, the switch too: nothing appears in the machine's own
    network, and there is no way out of it.
    """
    hosts = [*hosts, OUTSIDER] if workload.other_traffic and workload.other_traffic_hosts else hosts
    with only_one(), _allowed(workload.congestion_control):
        remove_leftovers()
        try:
            for host in hosts:
                _host(host, workload.congestion_control)
            links = _tunnels(workload, hosts) if workload.queue else _cables(workload, hosts)
            with links as queues, other_traffic(workload, hosts):
                yield queues
        finally:
            remove_leftovers()


@contextlib.contextmanager
def _cables(workload: Workload, hosts: list[str]) -> Iterator[Queues]:
    """A switch, and a cable from each host to it, with a token bucket at both ends."""
    ip("netns", "add", SWITCH)
    ip("-n", SWITCH, "link", "add", "bridge", "type", "bridge", "stp_state", "0")
    ip("-n", SWITCH, "link", "set", "bridge", "up")
    for host in hosts:
        name = PREFIX + host
        ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", host, "netns", SWITCH)
        ip("-n", SWITCH, "link", "set", host, "master", "bridge", "up")
        _up(host)
        shape = ["rate", f"{workload.link_mbit(host)}mbit", "burst", f"{BURST}b", "latency", f"{workload.buffer_ms}ms"]
        for namespace, device in ((name, "eth0"), (SWITCH, host)):
            inside(namespace, "tc", "qdisc", "add", "dev", device, "root", "tbf", *shape)
    yield _bucket_counters


@contextlib.contextmanager
def _tunnels(workload: Workload, hosts: list[str]) -> Iterator[Queues]:
    """A tun device for each host, with links of our own between them."""
    from .links import linked, tun

    devices = []
    try:
        for host in hosts:
            devices.append(tun(Path("/run/netns") / (PREFIX + host)))
            ip("-n", PREFIX + host, "link", "set", "eth0", "txqueuelen", "10000")
            _up(host)
        octets = [int(address(host).rsplit(".", 1)[1]) for host in hosts]
        rates = [workload.link_mbit(host) * 125_000 for host in hosts]
        lasting = [workload.buffer_ms / 1e3 * rate for rate in rates]
        bursts = lasting if workload.queue == POLICER else [BURST] * len(rates)
        waiting = {POLICER: [0.0] * len(rates), FIFO: [BURST + one for one in lasting]}  # as tbf's
        most = waiting.get(workload.queue, [math.inf] * len(rates))
        with linked(devices, octets, rates, bursts=bursts, most=most) as queues:
            yield lambda host: queues(hosts.index(host))
    finally:
        for device in devices:
            os.close(device)


def _host(host: str, congestion_control: str | None = None) -> None:
    """One host's namespace."""
    name = PREFIX + host
    ip("netns", "add", name)
    ip("-n", name, "link", "set", "lo", "up")
    if congestion_control:
        inside(name, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={congestion_control}")


@contextlib.contextmanager
def _allowed(congestion_control: str | None) -> Iterator[None]:
    """Within its block namespaces may choose this algorithm of TCP; what the machine allows is restored."""
    before = ALLOWED.read_text().split()
    if congestion_control in (None, *before):
        yield
        return
    try:
        ALLOWED.write_text(" ".join([*before, str(congestion_control)]))
    except OSError:
        available = ALLOWED.with_name("tcp_available_congestion_control").read_text().strip()
        raise TestbedError(
            f"congestion_control must be one that this machine has ({available}), got {congestion_control!r}"
        ) from None
    try:
        yield
    finally:
        ALLOWED.write_text(" ".join(before))


def _up(host: str) -> None:
    name = PREFIX + host
    ip("-n", name, "address", "add", f"{address(host)}/24", "dev", "eth0")
    ip("-n", name, "link", "set", "eth0", "up")


def _bucket_counters(host: str) -> dict[str, dict[str, Any]]:
    """What the token buckets at both ends of a host's cable have counted."""
    both = {}
    for way, namespace, device in (("transmit", PREFIX + host, "eth0"), ("receive", SWITCH, host)):
        bucket = json.loads(inside(namespace, "tc", "-s", "-j", "qdisc", "show", "dev", device))[0]
        both[way] = {name: bucket[name] for name in ("bytes", "packets", "drops", "backlog")}
    return both
