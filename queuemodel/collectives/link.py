"""What communication costs."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TypeVar

import numpy as np

from ..checks import FASTEST_LINK, require_number

#: Bytes of one message, or of many, and the seconds that they take.
Size = TypeVar("Size", float, np.ndarray)


@dataclass(frozen=True, slots=True)
class Link:
    """Costs of a message between two nodes whose links carry as much in each direction.

    Parameters
    ----------
    bandwidth : float
        Bytes per second of a node's link, each direction.
    latency : float, default 0
        Seconds per message, whatever its size.
    reduction_time : float, default 0
        Seconds per byte that is added to what a node has.

    Raises
    ------
    ModelError
        When the bandwidth is not > 0, another cost is negative, or one is not finite.
    """

    bandwidth: float
    _: KW_ONLY
    latency: float = 0.0
    reduction_time: float = 0.0

    def __post_init__(self) -> None:
        require_number(self.bandwidth, "link: bandwidth", unit="bytes per second", positive=True, largest=FASTEST_LINK)
        require_number(self.latency, "link: latency", unit="seconds")
        require_number(self.reduction_time, "link: reduction_time", unit="seconds per byte")
