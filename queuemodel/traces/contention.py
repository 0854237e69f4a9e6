"""How connections share a full link: what TCP's congestion control and the buffers decide, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..training.bandwidth import nominal_bandwidth
from ..training.job import require_network
from ..training.profile import Profile

#: With BBR, seconds that a packet waits at a full link where nobody says: what the testbed's buffers hold.
BUFFER = 0.012

#: Standard deviation of the logarithm of two or three connections' shares, BBR's on the testbed; with it the recorded
#: Reno series has an error of 1.4 %, without it of 3 %.
UNFAIRNESS = 0.4


@dataclass(frozen=True, slots=True)
class Contention:
    """One kind of network: its name (empty: given by numbers), the two arguments of `simulate`, what is assumed."""

    name: str
    loaded_trip: float
    unfairness: float
    note: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of `simulate` that it comes down to."""
        return {"loaded_trip": self.loaded_trip, "unfairness": self.unfairness}


def contentions(
    profile: Profile,
    *,
    bandwidth: float | None = None,
    congestion_control: str | None = None,
    buffer: float | None = None,
    loaded_trip: float | None = None,
    unfairness: float | None = None,
) -> tuple[Contention, ...]:
    """
    The kinds of network that the cluster may be, the likeliest first; arguments are those of `simulate`.

    Loss-based control (cubic, Reno) fills the buffer of a link, so a connection that has shared it has it to itself at
    once. BBR (Cardwell et al., ACM Queue 2016) goes on at its estimate of its share, and raises that with every round
    trip, which takes as long as the buffer holds packets. Linux uses cubic unless told otherwise, so where nobody knows
    loss-based control comes first. Nothing of this exists between processes of one machine, on loopback.

    Raises
    ------
    ModelError
        For another algorithm or a senseless buffer, or beside a `loaded_trip`, which already says what these decide.

    Examples
    --------
    >>> from queuemodel.data import example_profile
    >>> [(kind.name, kind.loaded_trip) for kind in contentions(example_profile(), congestion_control="unknown")]
    [('loss-based', 0.0), ('bbr', 0.012)]
    """
    require_network(congestion_control, buffer, loaded_trip, where="simulate: ")
    spread = UNFAIRNESS if unfairness is None else unfairness
    if loaded_trip is not None:
        return (Contention("", loaded_trip, spread),)
    if bandwidth is None and congestion_control is None and nominal_bandwidth(profile) == math.inf:
        return (Contention("loopback", 0.0, spread),)
    kind = profile.cluster.congestion_control if congestion_control is None else congestion_control
    known = profile.cluster.buffer if buffer is None else buffer
    trip = BUFFER if known is None else known
    if kind == "unknown":
        note = (
            "TCP's congestion control is not known, so intervals span loss-based control and BBR: tell it "
            "(--congestion-control) to narrow them"
        )
        return Contention("loss-based", 0.0, spread, note), Contention("bbr", trip, spread)
    if kind != "bbr":
        return (Contention(kind, 0.0, spread),)
    note = "" if known is not None else f"buffers are taken to hold {1e3 * BUFFER:g} ms: tell them (--buffer)"
    return (Contention(kind, trip, spread, note),)
