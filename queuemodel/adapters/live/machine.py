"""What this machine is to others: addresses, HOST:PORT, and what it says of its network."""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...base.errors import DataError
from ...transport.sharing import CONGESTION_CONTROLS, LONGEST_BUFFER

ADDRESS = re.compile(r"(?P<host>[^ /,]*[^ /,:]):(?P<port>[0-9]+)")
CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")

#: Queueing disciplines that give each connection a queue of its own.
FAIR = {"fq", "fq_codel", "fq_pie", "sfq"}


def split_address(address: str, *, where: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; ``where`` names the option in the message (raises DataError)."""
    match = ADDRESS.fullmatch(address.strip()) if isinstance(address, str) else None
    if not match:
        raise DataError(f"{where}: must be HOST:PORT, such as 10.0.0.5:2222, got {address!r}")
    if not 1 <= int(match["port"]) <= 65535:
        raise DataError(f"{where}: the port must be 1 to 65535, got {match['port']}")
    return match["host"], int(match["port"])


@contextlib.contextmanager
def own_addresses(count: int) -> Iterator[list[str]]:
    """Addresses on the loopback interface that nobody else is given while the block lasts.

    A process of ours may listen there meanwhile, if it sets SO_REUSEADDR, as TensorFlow's servers and PyTorch's do.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
        yield [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def interface_to(address: str) -> str | None:
    """Name of the network interface that reaches ``HOST:PORT``; None where only IPv6 does (raises DataError)."""
    host, port = split_address(address, where="address")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))  # sends nothing
        except socket.gaierror as error:
            raise DataError(f"{address}: the host's name cannot be resolved: {error.strerror}") from None
        except OSError:
            return None
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without such an address
                found = fcntl.ioctl(probe, 0x8915, struct.pack("256s", name.encode()))  # SIOCGIFADDR
                if socket.inet_ntoa(found[20:24]) == own:
                    return name
    return None


def recorded_network(path: Path = CONGESTION_CONTROL) -> dict[str, Any]:
    """Fields of `Cluster`; none that the machine does not say, nor an algorithm that no rule covers."""
    found: dict[str, Any] = {}
    with contextlib.suppress(OSError, UnicodeError):
        if (control := path.read_text().strip()) in CONGESTION_CONTROLS:
            found["congestion_control"] = control
    if (buffer := shaped_buffer()) is not None:
        found["buffer"] = buffer
    return found | {"origins": dict.fromkeys(found, "recorded")} if found else {}


def shaped_buffer(command: tuple[str, ...] = ("tc", "-j", "qdisc", "show")) -> float | None:
    """Seconds that a packet waits at most in this machine's token bucket (``tc``); None without one, or with several.

    0 where each connection has a queue of its own before the bucket (`FAIR`): none waits behind others' packets.
    What waits in a switch no host can say.
    """
    try:
        found = json.loads(subprocess.run(command, capture_output=True, timeout=5, check=True).stdout)
        (bucket,) = (one for one in found if one["kind"] == "tbf")
        if any(one["kind"] in FAIR and one.get("parent", "").startswith(bucket["handle"]) for one in found):
            return 0.0
        limit = bucket["options"]["lat"] / 1e6
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return limit if 0 < limit <= LONGEST_BUFFER else None
