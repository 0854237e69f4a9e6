"""What another bandwidth does to transfers: one rule, for the closed network and for the simulation."""

from __future__ import annotations

import math
import re
from typing import TypeVar

import numpy as np

from ..units import readable_rate
from .profile import Profile

#: Share of a link's nominal bandwidth that carries tensors: what is left of 1514 bytes on the wire after Ethernet, IP,
#: TCP (with timestamps) and gRPC headers.
LINK_EFFICIENCY = 0.95

#: How many times as fast as its link a transfer may have been seen: busy times are some per cent off.
FASTER = 1.5

Seconds = TypeVar("Seconds", float, np.ndarray)

LOOPBACK = ("127.", "localhost", "::1", "[::1]")


def nominal_bandwidth(profile: Profile) -> float | None:
    """Bytes per second of each profiled host's link: infinite between tasks of one machine, None when not known."""
    hosts = list(profile.source.hosts.values())
    machines = {re.sub(r"^([^:]+|\[.*\]):\d+$", r"\1", host) for host in hosts}
    loopback = bool(hosts) and (all(host.startswith(LOOPBACK) for host in hosts) or len(machines) == 1 < len(hosts))
    return profile.cluster.bandwidth or (math.inf if loopback else None)


def contradiction(rate: float, nominal: float | None) -> str:
    """What to say of transfers (bytes per second) that were faster than their links; empty for nothing."""
    if nominal is None or rate <= FASTER * nominal:
        return ""
    seen, link = readable_rate(rate), readable_rate(nominal)
    return f"transfers at {seen} were faster than links of {link}: is the bandwidth right?"


def transfer_time(seconds: Seconds, size: float, *, nominal: float | None, bandwidth: float) -> Seconds:
    """
    Seconds that profiled transfers take over links of another bandwidth.

    The part that the profiled link explains is replaced; the rest (serialization) is kept in seconds. Where the
    profiled bandwidth is not known, all of the time is taken as the link's; where it is the one asked for, nothing
    changes.

    Parameters
    ----------
    seconds : ndarray or float
        As profiled.
    size : float
        Bytes that were transferred in that time.
    nominal, bandwidth : float
        Bytes per second of each host's link, profiled (None: not known) and asked for.

    Examples
    --------
    >>> float(transfer_time(1.0, 95_000_000, nominal=1.25e9, bandwidth=12.5e9))  # 0.92 s of it are not the link's
    0.928
    """
    if bandwidth == nominal:
        return seconds
    host = 0.0 * seconds if nominal is None else np.maximum(seconds - size / (LINK_EFFICIENCY * nominal), 0.0)
    return host + size / (LINK_EFFICIENCY * bandwidth)
