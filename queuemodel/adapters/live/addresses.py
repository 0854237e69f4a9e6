"""HOST:PORT: checked, and ones of our own on this machine."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from collections.abc import Iterator

from ...errors import DataError


def split_address(address: str, *, where: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; ``where`` names the option in the message (raises DataError)."""
    host, colon, port = address.strip().rpartition(":") if isinstance(address, str) else ("", "", "")
    if (
        not colon
        or not host
        or host.endswith(":")
        or any(c in host for c in " /,")
        or not port.isascii()
        or not port.isdigit()
    ):
        raise DataError(f"{where}: must be HOST:PORT, such as 10.0.0.5:2222, got {address!r}")
    if not 1 <= int(port) <= 65535:
        raise DataError(f"{where}: the port must be 1 to 65535, got {port}")
    return host, int(port)


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
