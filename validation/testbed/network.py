"""The cluster's network: one namespace per host, a switch, and every link shaped in both directions."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from .workload import TestbedError, Workload

PREFIX = "qmtb-"
SWITCH = PREFIX + "switch"
LOCK = Path("/run/lock/queuemodel-testbed")
BURST = "16kb"


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
                _switch()
                _host("ps0", 10)
            finally:
                remove_leftovers()
    except TestbedError as error:
        return f"the testbed cannot run here: {error}"
    return ""


@contextlib.contextmanager
def cluster_network(workload: Workload, hosts: list[str]) -> Iterator[None]:
    """
    Lay the network of these hosts, and take it down whatever happens.

    Everything lives in namespaces of its own, the switch too: nothing appears in the machine's own
    network, and there is no way out of it.
    """
    with only_one():
        remove_leftovers()
        try:
            _switch()
            for host in hosts:
                _host(host, workload.link_mbit(host), workload.congestion_control, workload.buffer_ms)
            yield
        finally:
            remove_leftovers()


def _switch() -> None:
    ip("netns", "add", SWITCH)
    ip("-n", SWITCH, "link", "add", "bridge", "type", "bridge", "stp_state", "0")
    ip("-n", SWITCH, "link", "set", "bridge", "up")


def _host(host: str, mbit: float, congestion_control: str | None = None, buffer_ms: float = 12.0) -> None:
    """One host: its namespace, its cable to the switch, and a token bucket at both ends of the cable."""
    name = PREFIX + host
    ip("netns", "add", name)
    ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", host, "netns", SWITCH)
    ip("-n", SWITCH, "link", "set", host, "master", "bridge", "up")
    ip("-n", name, "address", "add", f"{address(host)}/24", "dev", "eth0")
    ip("-n", name, "link", "set", "lo", "up")
    ip("-n", name, "link", "set", "eth0", "up")
    for namespace, device in ((name, "eth0"), (SWITCH, host)):
        shape = ["rate", f"{mbit}mbit", "burst", BURST, "latency", f"{buffer_ms}ms"]
        inside(namespace, "tc", "qdisc", "add", "dev", device, "root", "tbf", *shape)
    if congestion_control:
        try:
            inside(name, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={congestion_control}")
        except TestbedError:
            allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().strip()
            raise TestbedError(
                f"congestion_control must be one that this machine allows in namespaces ({allowed}), "
                f"got {congestion_control!r}"
            ) from None
