"""How connections share a full link: what TCP's congestion control and the buffers decide, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ..profile.bandwidth import nominal_bandwidth
from ..profile.job import require_network
from ..profile.profile import Profile

#: Arguments that say on what kind of network to simulate, whatever the machines.
NETWORK = ("congestion_control", "buffer", "loaded_trip", "unfairness", "window_kept")

#: Seconds that a packet waits at a full link where nobody says: what most of the testbed's buffers hold.
BUFFER = 0.012

#: Standard deviation of the logarithm of two or three connections' shares, BBR's on the testbed; taken for all.
UNFAIRNESS = 0.4

#: What is left of that beside BBR's accidents: with it, the first and the last of eight connections end when the
#: testbed's do.
BESIDE_ACCIDENTS = 0.2

#: Share of its congestion window that a connection keeps when it loses packets (RFC 9438, RFC 5681).
WINDOW_KEPT = {"cubic": 0.7, "reno": 0.5}

#: What most hosts use where nobody says: Linux, unless told otherwise.
USUAL = "cubic"

#: How likely control by losses is where nobody knows (assumed): twice as likely as BBR.
USUAL_SHARE = 2 / 3


@dataclass(frozen=True, slots=True)
class Contention:
    """One kind of network: its name (empty: given by numbers), the arguments of `simulate`, what is assumed, and how
    likely it is."""

    name: str
    loaded_trip: float
    unfairness: float
    note: str = ""
    window_kept: float = 0.0
    share: float = 1.0

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of `simulate` that it comes down to."""
        return {"loaded_trip": self.loaded_trip, "unfairness": self.unfairness, "window_kept": self.window_kept}

    def mechanisms(self, *, barrier: bool = False) -> tuple[Contention, ...]:
        """
        Ways of sharing to be averaged over, none of which is right alone.

        Windows, as plain connections have them, put a job's transfers into more of an order than is measured, and
        connections that share at once, without a history, into less: their errors have opposite signs. At a barrier all
        begin together, round by round, so that no order builds up.
        """
        at_once = replace(self, loaded_trip=0.0, window_kept=0.0)
        return (self, at_once) if self.window_kept and not barrier else (self,)


def contentions(
    profile: Profile,
    *,
    bandwidth: float | None = None,
    congestion_control: str | None = None,
    buffer: float | None = None,
    loaded_trip: float | None = None,
    unfairness: float | None = None,
    window_kept: float | None = None,
) -> tuple[Contention, ...]:
    """
    The kinds of network that the cluster may be, the likeliest first; arguments are those of `simulate`.

    Under control by losses (cubic, Reno) a connection has a congestion window, which grows until the buffer of a full
    link overflows; windows share the link, and their history makes the shares unequal. BBR (Cardwell et al., ACM Queue
    2016) goes on at its estimate of its share, and raises that with every round trip, which takes as long as the buffer
    holds packets. Where no packet waits behind another connection's (a buffer of 0: queues of their own, as fq_codel
    has them), shares are equal, at once. Linux uses cubic unless told otherwise, so where nobody knows that comes
    first. Nothing of this exists between processes of one machine, on loopback.

    Raises
    ------
    ModelError
        For another algorithm or a senseless buffer, or beside a `loaded_trip`, which already says what these decide.

    Examples
    --------
    >>> from queuemodel.profile.examples import example_profile
    >>> kinds = contentions(example_profile(), congestion_control="unknown")
    >>> [(kind.name, kind.loaded_trip) for kind in kinds]
    [('loss-based', 0.012), ('bbr', 0.012)]
    """
    require_network(congestion_control, buffer, loaded_trip, where="simulate: ")
    spread = UNFAIRNESS if unfairness is None else unfairness
    beside = BESIDE_ACCIDENTS if unfairness is None else unfairness
    if loaded_trip is not None:
        memory = loaded_trip > 0 and not window_kept
        return (Contention("", loaded_trip, beside if memory else spread, window_kept=window_kept or 0.0),)
    if bandwidth is None and congestion_control is None and nominal_bandwidth(profile) == math.inf:
        return (Contention("loopback", 0.0, spread),)
    kind = profile.cluster.congestion_control if congestion_control is None else congestion_control
    known = profile.cluster.buffer if buffer is None else buffer
    trip = BUFFER if known is None else known
    if not trip and unfairness is None:  # each connection has a queue of its own
        spread = beside = 0.0
    note = "" if known is not None else f"buffers are taken to hold {1e3 * BUFFER:g} ms: tell them (--buffer)"
    if kind == "bbr":
        return (Contention(kind, trip, beside, note),)
    kept = WINDOW_KEPT[USUAL if kind == "unknown" else kind] if window_kept is None else window_kept
    if kind != "unknown":
        return (Contention(kind, trip, spread, note, kept if trip else 0.0),)
    note = (
        "TCP's congestion control is not known, so intervals span loss-based control and BBR: tell it "
        "(--congestion-control) to narrow them"
    )
    usual = Contention("loss-based", trip, spread, note, kept if trip else 0.0, share=USUAL_SHARE)
    return usual, Contention("bbr", trip, beside, share=1 - USUAL_SHARE)
