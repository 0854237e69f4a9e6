"""Where the bottleneck begins to hold, and where it moves to another station."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import ModelError
from ..network import Network
from ..network.lowered import lower


def saturation_population(network: Network) -> float:
    """N* where the asymptotes of `asymptotic_bounds` cross; infinite when nobody queues anywhere.

    (D + Z) / max D_k/m_k, D being what a customer who is alone needs of the queueing stations. With load-dependent
    rates D_k is over the best rate per customer and m_k the highest of the list.

    Raises
    ------
    ModelError
        When the network has classes, or rates that are a function, whose highest cannot be known.
    """
    if network.classes:
        raise ModelError("saturation population: the network has classes; it is of single-class networks")
    for s in network.stations:
        if callable(s.rates):
            raise ModelError(f"saturation population: station {s.name!r}: rates is a function; give a list of rates")
    low = lower(network)
    most = max([1, *[len(s.rates) for s in network.stations if s.rates is not None]])
    largest = float(low.load(most).max())
    return float(low.Z[0] + low.least(most).sum()) / largest if largest > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class BottleneckSwitch:
    """Shares of two classes' throughput at which two stations are equally loaded.

    Attributes
    ----------
    stations : tuple of str
        The bottleneck below and above the share.
    share : float
        Part of all cycles that are the first class's, 0 to 1.
    """

    stations: tuple[str, str]
    share: float


def bottleneck_switches(network: Network) -> list[BottleneckSwitch]:
    """Where the bottleneck of a two-class network moves as the mix of classes changes (Balbo and Serazzi, 1997).

    Station k is the bottleneck at share b of the first class when b D_k1 + (1-b) D_k2, over the station's highest
    speed, is the largest: the upper envelope of lines, whose corners these are, in increasing share.

    Raises
    ------
    ModelError
        When the network does not have two classes.
    """
    low = lower(network)
    if len(network.classes) != 2 or len(network.chains) != 2:
        raise ModelError(
            f"bottleneck switches: two classes that nobody switches between are needed, got {len(network.classes)} "
            f"classes in {len(network.chains)} chains"
        )
    D = low.load(max(1, int(network.populations.sum())))
    switches: list[BottleneckSwitch] = []
    at, share = int(np.lexsort((D[:, 0], D[:, 1]))[-1]), 0.0
    slope = D[:, 0] - D[:, 1]
    while True:
        steeper = np.flatnonzero(slope > slope[at] + 1e-15 * np.abs(slope).max(initial=1e-300))
        if not len(steeper):
            return switches
        crossing = (D[at, 1] - D[steeper, 1]) / (slope[steeper] - slope[at])
        nearest = float(crossing.min())
        if nearest >= 1.0:
            return switches
        tied = steeper[crossing <= nearest + 1e-12]
        after = int(tied[slope[tied].argmax()])
        share = max(share, nearest)
        switches.append(BottleneckSwitch((network.names[at], network.names[after]), share))
        at = after
