"""A group of ranks: what its rounds take, where the time goes, and how far predictions of that err."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from ...base.checks import FASTEST_LINK
from ...base.files import constants
from ...transport.collectives import Algorithm
from ...transport.sharing import BBR_SHARE, CONTROLS
from .fit import FittedRounds
from .schemes import Cost, Scheme
from .times import Library, NodeLink, message_costs

#: Bytes per second, and seconds: what is hardly known stays within what a link may have.
LEAST, MOST = np.array([1e-9, 0.0]), np.array([FASTEST_LINK, 1e9])


class Parts(NamedTuple):
    """Mean seconds of a round, and of what makes it up (see `Group.parts`)."""

    time: float
    network: float
    latency: float
    stragglers: float
    wire: float
    messages: float


@dataclass(frozen=True, eq=False)
class Group:
    """Drawn rounds of n ranks."""

    ranks: int
    sizes: np.ndarray  # (p,): Bytes of the pieces that the scheme is given: buckets as recorded, or gradients
    rows: np.ndarray  # (samples, p + 2): See `Scheme.time`; of the slowest rank (s)
    collective: Algorithm
    scheme: Scheme
    tail: float  # Seconds after the last of it

    def cost(self, link: NodeLink) -> Cost:
        """Seconds of messages that need bandwidth, and that do not."""
        return partial(message_costs, collective=self.collective, ranks=self.ranks, link=link)

    def times(self, link: NodeLink, *, slower: float = 1.0) -> np.ndarray:
        """Seconds of each round when computation takes ``slower`` times as long."""
        rows = self.rows if slower == 1.0 else slower * self.rows
        return np.asarray(self.scheme.time(self.sizes, rows, self.cost(link)) + self.tail)

    def parts(self, link: NodeLink, compute: float) -> Parts:
        """What bandwidth, latency and waiting for the slowest add to a mean rank's computation.

        ``wire`` and ``messages`` are what the network and its latency would take if nothing overlapped.
        """
        time, at_best = (float(self.times(one).mean()) for one in (link, link._replace(latency=0.0, buffer=0.0)))
        slowest = float(self.rows[:, -1].mean())
        work, wait = self.cost(link)(self.scheme.units(self.sizes))
        return Parts(
            time,
            max(at_best - slowest - self.tail, 0.0),
            max(time - at_best, 0.0),
            max(slowest - compute, 0.0),
            float(work.sum()),
            float(wait.sum()),
        )

    def effects(self, link: NodeLink, covariance: np.ndarray, sampling: float) -> np.ndarray:
        """What one standard error of computation, bandwidth and latency makes of the logarithm of a round, (3,).

        ``covariance`` is of the logarithms of bandwidth and latency, ``sampling`` the error of computation's logarithm.
        The last two are independent parts: of the bandwidth, and of the latency beside it (Cholesky).
        """

        def half(step: np.ndarray, slower: float) -> float:
            ends = []
            for sign in (1.0, -1.0):
                bandwidth, latency = np.clip(
                    np.array([link.bandwidth, link.latency]) * np.exp(sign * step), LEAST, MOST
                )
                moved = link._replace(bandwidth=bandwidth, latency=latency)
                ends.append(float(self.times(moved, slower=math.exp(sign * slower)).mean()))
            return math.log(ends[0] / ends[1]) / 2

        along = math.sqrt(max(covariance[0, 0], 0.0))
        both = covariance[0, 1] / along if along else 0.0
        beside = math.sqrt(max(covariance[1, 1] - both**2, 0.0))
        none = np.zeros(2)
        return np.array([half(none, sampling), half(np.array([along, both]), 0.0), half(np.array([0.0, beside]), 0.0)])


#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["group"]
MODEL_ERROR, TRACING_ERROR, AHEAD_ERROR = (_NUMBERS[f"{name}_error"] for name in ("model", "tracing", "ahead"))
IN_TURN_ERROR, IN_TURN_FROM_THREE = _NUMBERS["in_turn_error"], _NUMBERS["in_turn_from_three"]
IN_TURN_LATE, IN_TURN_GIVING_WAY = _NUMBERS["in_turn_late"], _NUMBERS["in_turn_giving_way"]
ONE_ROUND, UNSTEADY = _NUMBERS["one_round"], _NUMBERS["unsteady"]
UNRECORDED, UNRECORDED_NETWORK = _NUMBERS["unrecorded"], _NUMBERS["unrecorded_network"]


def in_turn_error(fitted: FittedRounds, *, late: bool) -> float:
    """Relative error among more ranks than recorded, one message at a time; ``late``: whose `lateness` is known."""
    control = CONTROLS.get(fitted.congestion_control)
    if control and control.fills:
        return IN_TURN_GIVING_WAY
    if late:
        return IN_TURN_LATE
    return IN_TURN_FROM_THREE if fitted.ranks > 2 else IN_TURN_ERROR


def other_ranks_error(congestion_control: str, library: Library) -> float:
    """Error of the logarithm of the bandwidth among more ranks than recorded, several messages at a time (TCP)."""
    control = CONTROLS.get(congestion_control)
    if control:
        return 0.0 if control.fills else UNSTEADY
    return UNSTEADY * BBR_SHARE**0.5 if library.single else 0.0


def computation_error(fitted: FittedRounds, stragglers: float, ranks: int) -> float:
    """Error of the logarithm of the slowest of these ranks' computation, from few rounds of few ranks."""
    computed, m = fitted.computed, len(fitted.computed)
    unlike = UNRECORDED if fitted.unrecorded and ranks > 1 else 0.0
    if m < 2:
        return float(np.hypot(ONE_ROUND, unlike))
    mean = np.hypot(computed.std(ddof=1) / m**0.5, fitted.shared_error) / computed.mean()
    spread = (2 * (m - 1)) ** -0.5  # relative, of a standard deviation, normal law
    return float(np.linalg.norm([mean, spread * stragglers, unlike]))
