"""The figure of one rank's round: when its buckets were computed, waited and were in transit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..drawing import KNEE, PLACES, finish, new_axes
from ..errors import ModelError
from ..training.rounds import Bucket

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: More buckets than this are not told apart.
MOST_BUCKETS = 400


class RankView(Protocol):
    """One rank's round, recorded (`queuemodel.training.rounds.Round`) or simulated."""

    @property
    def number(self) -> int:
        """Of the round."""

    @property
    def round_time(self) -> float:
        """Seconds."""

    @property
    def computed(self) -> float:
        """Seconds until the backward pass was over."""

    @property
    def buckets(self) -> list[Bucket]:
        """In the order in which they were handed over."""


def plot_round(one: RankView, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Draw one rank's round, a row for each bucket: computed (grey), waiting (light), in transit (solid).

    A bucket is computed from when the one before it was ready. It waits for slower ranks and for buckets before it; in
    a recorded round, what it waits for after its all-reduce began on this rank counts as transit.

    Parameters
    ----------
    one : Round, or what `SimulatedRounds.round` gives
    ax : Axes, optional
        Where to draw; a new figure unless given.
    **kwargs
        Passed to `Axes.barh`.

    Raises
    ------
    ModelError
        For a round without buckets.
    """
    count = len(one.buckets)
    if not 0 < count <= MOST_BUCKETS:
        raise ModelError(f"plot_round: a round of 1 to {MOST_BUCKETS} buckets can be drawn, got {count}")
    ax = ax or new_axes((7.6, min(1.4 + 0.3 * count, 5.0)))
    ready = np.array([bucket.ready for bucket in one.buckets])
    begin = np.maximum([bucket.begin for bucket in one.buckets], ready)
    end = np.array([bucket.end for bucket in one.buckets])
    rows, before = np.arange(count), np.append(0.0, ready[:-1])
    style: dict[str, Any] = {"height": 0.8, "linewidth": 0, **kwargs}
    ax.barh(rows, ready - before, left=before, color=PLACES["worker"], label="computed", **style)
    ax.barh(rows, begin - ready, left=ready, color=PLACES["network"], alpha=0.3, label="waiting", **style)
    ax.barh(rows, end - begin, left=begin, color=PLACES["network"], label="in transit", **style)
    for at, text in ((one.computed, "computed"), (one.round_time, "round over")):
        ax.axvline(at, color=KNEE, linewidth=1.0, linestyle=":")
        where: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "bottom"}
        ax.annotate(text, (at, 1.0), color=KNEE, fontsize="small", **where)
    if count <= 20:
        ax.set_yticks(rows, [_size(bucket.bytes) for bucket in one.buckets])
        ax.set_ylabel("bucket")
    else:
        ax.set_ylabel("buckets, as they were ready")
        ax.set_yticks([])
    ax.invert_yaxis()
    ax.set_xlim(0, 1.02 * max(float(end.max()), one.round_time))
    ax.set_xlabel("time since the round began (s)")
    finish(ax, legend="right")
    return ax


def _size(size: int) -> str:
    unit, name = next(((unit, name) for unit, name in ((1e6, "MB"), (1e3, "kB")) if size >= 0.1 * unit), (1, "B"))
    return f"{size / unit:.3g} {name}"
