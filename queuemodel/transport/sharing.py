"""How connections share a full link: what TCP's congestion control and the buffers decide, for every model.

The simulation takes a `Transport`'s numbers, the closed network `BbrSharing`, rounds of messages their `lateness`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..base.checks import require_choice, require_number
from ..base.errors import ModelError, QueueModelError
from ..base.files import constants
from ..base.results import Note

_NUMBERS = constants(__package__)
#: Seconds that a packet waits at a full link, unless specified.
BUFFER: float = _NUMBERS["buffer"]
#: How likely BBR is where the control is unknown.
BBR_SHARE: float = 1 - _NUMBERS["loss_based_share"]
#: Seconds; no link holds packets up for longer.
LONGEST_BUFFER = 10.0
#: In the place of nothing, so that quotients stay finite.
NOTHING = 1e-300


class Control(NamedTuple):
    window_kept: float = 0.0  # Share of its window that a connection keeps at a loss; 0: none, but a memory of its rate
    unfairness: float = _NUMBERS["unfairness"]  # Standard deviation of the logarithm of connections' shares
    loss_based: bool = True  # One connection fills a link, and gives way to losses


#: Windows: RFC 9438, RFC 5681. BBR: Cardwell et al., ACM Queue 2016.
CONTROLS = {
    "bbr": Control(unfairness=_NUMBERS["unfairness_beside_accidents"], loss_based=False),
    "cubic": Control(window_kept=0.7),
    "reno": Control(window_kept=0.5),
}
CONGESTION_CONTROLS = (*CONTROLS, "unknown")
#: Linux's, unless it is configured.
USUAL = "cubic"
#: Arguments that specify the kind of network, whatever the machines.
NETWORK = ("congestion_control", "buffer", "loaded_trip", "unfairness", "window_kept")
NO_NOTE = Note("")


@dataclass(frozen=True, slots=True)
class Transport:
    """One kind of network: its name (empty for plain numbers), and its settings of a simulation."""

    name: str
    loaded_trip: float  # Seconds of a round trip over a full link
    unfairness: float
    note: Note = NO_NOTE  # What is assumed, or unknown
    window_kept: float = 0.0
    share: float = 1.0  # How likely it is

    @property
    def settings(self) -> dict[str, Any]:
        return {"loaded_trip": self.loaded_trip, "unfairness": self.unfairness, "window_kept": self.window_kept}

    def mechanisms(self, *, barrier: bool = False) -> tuple[Transport, ...]:
        """Ways of sharing to be averaged: windows order transfers more than measured, shares at once less."""
        at_once = replace(self, loaded_trip=0.0, window_kept=0.0)
        return (self, at_once) if self.window_kept and not barrier else (self,)


def transports(
    congestion_control: str,
    buffer: float | None,
    *,
    loopback: bool = False,
    loaded_trip: float | None = None,
    unfairness: float | None = None,
    window_kept: float | None = None,
) -> tuple[Transport, ...]:
    """The kinds of network that it may be, the likeliest first; the last three are numbers of a simulation.

    Windows (cubic, Reno) overflow buffers, and their history makes shares unequal; BBR raises its estimate once per
    round trip, which lasts as long as the buffer. Connections with queues of their own (a buffer of 0) share equally.
    """
    usual, bbr = (CONTROLS[name].unfairness if unfairness is None else unfairness for name in (USUAL, "bbr"))
    if loaded_trip is not None:
        memory = loaded_trip > 0 and not window_kept
        return (Transport("", loaded_trip, bbr if memory else usual, window_kept=window_kept or 0.0),)
    if loopback:
        return (Transport("loopback", 0.0, usual),)
    trip = BUFFER if buffer is None else buffer
    own_queues = not trip and unfairness is None
    assumed = f"buffers are assumed to hold {1e3 * BUFFER:g} ms: specify them (--buffer)"
    note = Note(assumed if buffer is None else "", "assumed")

    def of(control: str, name: str = "", note: Note = note, share: float = 1.0) -> Transport:
        row = CONTROLS[control]
        spread = row.unfairness if unfairness is None else unfairness
        kept = row.window_kept if window_kept is None or not row.window_kept else window_kept
        return Transport(name or control, trip, 0.0 if own_queues else spread, note, kept if trip else 0.0, share)

    if congestion_control != "unknown":
        return (of(congestion_control),)
    note = Note(
        "TCP congestion control is unknown, so intervals span loss-based control and BBR: specify it "
        "(--congestion-control) to narrow them",
        "narrow",
    )
    return of(USUAL, "loss-based", note, 1 - BBR_SHARE), of("bbr", note=NO_NOTE, share=BBR_SHARE)


@dataclass(frozen=True, slots=True)
class BbrSharing:
    """Workers at a server's two links, on connections that do not fill a link (BBR), with K of them the other way.

    A connection gets its window W (in_flight of constants.toml) per round trip, in which acknowledgements wait behind
    the other K windows: 1 / K of its link, or W over the buffer where that is more; a single connection is paced.
    """

    sizes: tuple[float, float]  # Bytes of a step from the servers and to them
    buffer: float  # Seconds that a packet waits at most before a link

    def least_share(self, D: np.ndarray) -> np.ndarray:
        """Share of a link (..., 2) that one connection has, whatever is sent the other way; D: seconds of the sizes."""
        window = np.maximum(_NUMBERS["in_flight_bytes"] * D / self.sizes, _NUMBERS["in_flight_seconds"])
        return np.minimum(window / self.buffer, 1.0)

    def rates(self, least: np.ndarray, Q: np.ndarray, *, workers: int, levels: int) -> np.ndarray:
        """Mean share of a link (levels, ..., 2) that 1, 2, ... workers use, the others sending independently."""
        here = np.arange(1, levels + 1).reshape(-1, *[1] * Q.ndim)
        others = np.maximum(workers - here, 0)
        p = np.clip(Q[..., ::-1] / np.maximum(workers - 1 - Q, NOTHING), 0.0, 1.0 - 1e-9)
        exactly = (1.0 - p) ** others
        used, more = np.zeros(np.broadcast_shapes(here.shape, Q.shape)), np.ones(1)
        for K in range(min(levels + 1, workers) + 1):
            used = used + exactly * np.minimum(here * (np.maximum(1.0 / K, least) if K > 1 else 1.0), 1.0)
            more = more - exactly
            exactly = exactly * (p / (1.0 - p)) * (np.maximum(others - K, 0) / (K + 1))
        last = np.maximum(1.0 / np.maximum(others, 1), least)  # the buffer limits queues of more
        return used + np.maximum(more, 0.0) * np.minimum(here * last, 1.0)


def lateness(message_bytes: np.ndarray, ranks: int, *, bandwidth: float, buffer: float) -> np.ndarray:
    """Mean seconds by which BBR's lost bytes delay a message (B); measured, not exact (validation/notes/all-reduce)."""
    held = bandwidth * buffer
    if not 0 < held < _NUMBERS["lossless_buffer"]:
        return np.zeros_like(message_bytes, dtype=float)
    surely = _NUMBERS["certain_loss_of_two" if ranks == 2 else "certain_loss"]
    return np.asarray(buffer * np.minimum(1.0, message_bytes / held / surely))


def ring_lateness(sizes: np.ndarray, ranks: int, *, bandwidth: float, buffer: float) -> np.ndarray:
    """`lateness` of the 2 (n - 1) messages of a ring that reduces so many bytes."""
    return 2 * (ranks - 1) * lateness(np.asarray(sizes) / ranks, ranks, bandwidth=bandwidth, buffer=buffer)


def require_network(
    congestion_control: Any = None,
    buffer: Any = None,
    loaded_trip: Any = None,
    *,
    where: str = "",
    error: type[QueueModelError] = ModelError,
) -> None:
    """Refuse what is no congestion control or no buffer, and either beside a `loaded_trip`; None: not known."""
    if congestion_control is not None:
        require_choice(congestion_control, f"{where}congestion_control", CONGESTION_CONTROLS, error=error)
    if buffer is not None:
        require_number(buffer, f"{where}buffer", unit="seconds", largest=LONGEST_BUFFER, error=error)
    if loaded_trip is not None and (congestion_control, buffer) != (None, None):
        raise error(f"{where}loaded_trip replaces congestion_control and buffer; give it or them, got {loaded_trip!r}")
