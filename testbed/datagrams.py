"""Other traffic on a link: datagrams at a constant rate, which give way to nobody.

python -m testbed.datagrams ADDRESS BYTES_PER_SECOND
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from .workload import Workload

PAYLOAD, HEADERS = 1400, 42  # bytes: of a datagram, and of IPv4, UDP and Ethernet, which a shaped link counts
PORT = 9  # discard
OUTSIDER = "worker99"  # a host that only exchanges datagrams


@contextlib.contextmanager
def other_traffic(workload: Workload, hosts: list[str]) -> Iterator[None]:
    """Within its block every host sends to the next one, so that each link has the share in both directions.

    With `other_traffic_hosts` only these have it: each exchanges it with the `OUTSIDER`.
    """
    from .network import PREFIX, address, prepare_child

    ring = zip(hosts, [*hosts[1:], *hosts[:1]], strict=True)
    chosen = [pair for host in workload.other_traffic_hosts for pair in ((host, OUTSIDER), (OUTSIDER, host))]
    running = []
    for host, other in (chosen or ring) if workload.other_traffic else ():
        rate = workload.other_traffic * 125_000 * min(map(workload.link_mbit, (host, other)))
        command = ["ip", "netns", "exec", PREFIX + host, sys.executable, "-m", __name__, address(other), f"{rate}"]
        running.append(subprocess.Popen(command, preexec_fn=prepare_child))
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def main(host: str, rate: float) -> None:
    """Send to a host, paced by the clock: what a late wake-up missed follows at once."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        begun, sent = time.monotonic(), 0
        while True:
            due = (time.monotonic() - begun) * rate / (PAYLOAD + HEADERS)
            while sent < due:
                with contextlib.suppress(ConnectionRefusedError, BlockingIOError, OSError):  # nobody listens
                    out.sendto(bytes(PAYLOAD), (host, PORT))
                sent += 1
            time.sleep(max(0.002, (sent - due) * (PAYLOAD + HEADERS) / rate))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
