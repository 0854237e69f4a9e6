"""Transfers over another bandwidth: one rule, for the closed network and for the simulation."""

from __future__ import annotations

import math
import re
from typing import TypeVar

import numpy as np

from ..base.files import constants, readable_rate
from ..transport.sharing import Transport, require_network, transports
from .profile import Profile

_NUMBERS = constants(__package__)["bandwidth"]
LINK_EFFICIENCY: float = _NUMBERS["link_efficiency"]
FASTER: float = _NUMBERS["faster"]
SLOWER: float = _NUMBERS["slower"]
FILLED, SILENCE, LEAST_STEPS = (_NUMBERS[name] for name in ("filled", "silence", "least_steps"))
#: The note on links that one connection does not fill.
UNFILLED = (
    "the same bytes took much longer in most steps than in the best: not a full link but something else delayed "
    "them (packet loss, as behind a policer, or other traffic), and several workers may get many times the bandwidth "
    "of one: specify the links' bandwidth (--bandwidth), and measure several workers"
)

Seconds = TypeVar("Seconds", float, np.ndarray)
LOOPBACK = ("127.", "localhost", "::1", "[::1]")


def nominal_bandwidth(profile: Profile) -> float | None:
    """Bytes per second of each profiled host's link: infinite between tasks of one machine, None when not known."""
    hosts = list(profile.source.hosts.values())
    machines = {re.sub(r"^([^:]+|\[.*\]):\d+$", r"\1", host) for host in hosts}
    loopback = bool(hosts) and (all(host.startswith(LOOPBACK) for host in hosts) or len(machines) == 1 < len(hosts))
    return profile.cluster.bandwidth or (math.inf if loopback else None)


def transfers(profile: Profile) -> tuple[np.ndarray, np.ndarray]:
    """Payload bytes and seconds of fetches and of pushes, shape (2, steps)."""
    sizes, seconds = ("fetched_bytes", "pushed_bytes"), ("fetch", "push")
    return np.array([*map(profile.values, sizes)]), np.array([*map(profile.values, seconds)])


def best_rates(profile: Profile) -> tuple[float, float] | None:
    """Payload bytes/s of fetches and of pushes in the best step of one worker whose link is not full; else None."""
    traced = len(profile.steps) >= LEAST_STEPS and all(step.operations for step in profile.steps)
    if not traced or profile.cluster.workers > 1 or nominal_bandwidth(profile) == math.inf:
        return None
    sizes, seconds = transfers(profile)
    if not (sizes > 0).all() or not (seconds > 0).all():
        return None
    rates = sizes / seconds
    best = rates.max(axis=1)
    late = np.median(seconds - sizes / best[:, None], axis=1)
    held_up = (np.median(rates, axis=1) < FILLED * best) & (late > SILENCE)
    return (float(best[0]), float(best[1])) if held_up.any() else None


def carried_for_several(profile: Profile, bandwidth: float | None = None) -> tuple[float, float] | None:
    """Payload bytes/s that servers send and receive for several workers, where one fills no link; else None."""
    best, nominal = best_rates(profile), bandwidth or nominal_bandwidth(profile)
    if best is None or nominal is None:
        return best
    return max(best[0], LINK_EFFICIENCY * nominal), max(best[1], LINK_EFFICIENCY * nominal)


def contradiction(rate: float, nominal: float | None) -> str:
    """A warning of transfers (bytes per second) that were faster than their links; empty for none."""
    if nominal is None or rate <= FASTER * nominal:
        return ""
    seen, link = readable_rate(rate), readable_rate(nominal)
    return f"transfers at {seen} were faster than links of {link}: is the bandwidth right?"


def hardly_used(rate: float, nominal: float | None) -> str:
    """A warning of collectives (bytes per second) that used little of their links; empty for none."""
    if nominal is None or math.isinf(nominal) or rate >= SLOWER * nominal:
        return ""
    seen, link = readable_rate(rate), readable_rate(nominal)
    return f"collectives at {seen} used little of links of {link}: is the bandwidth right?"


def transfer_time(seconds: Seconds, size: float, *, nominal: float | None, bandwidth: float) -> Seconds:
    """Seconds of ``size`` bytes over another bandwidth (bytes/s): only the nominal link's part is replaced."""
    if bandwidth == nominal:
        return seconds
    host = 0.0 * seconds if nominal is None else np.maximum(seconds - size / (LINK_EFFICIENCY * nominal), 0.0)
    return host + size / (LINK_EFFICIENCY * bandwidth)


def transports_of(
    profile: Profile,
    *,
    bandwidth: float | None = None,
    congestion_control: str | None = None,
    buffer: float | None = None,
    loaded_trip: float | None = None,
    **numbers: float | None,
) -> tuple[Transport, ...]:
    """The kinds of network that the profiled cluster may be, the likeliest first, unless others are specified."""
    require_network(congestion_control, buffer, loaded_trip, where="simulate: ")
    cluster = profile.cluster
    specified = congestion_control is not None or cluster.origins.get("congestion_control") == "given"
    return transports(
        congestion_control or cluster.congestion_control,
        cluster.buffer if buffer is None else buffer,
        loopback=bandwidth is None and not specified and nominal_bandwidth(profile) == math.inf,
        loaded_trip=loaded_trip,
        **numbers,
    )
