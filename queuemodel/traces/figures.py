"""The figure of one recorded step: what the links, the worker and the server were doing when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..drawing import PLACES, finish, new_axes
from ..errors import DataError
from ..training.profile import Profile
from .links import estimate_links

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Kind of operation and what does it, named as the fitted network's stations: lanes from top to bottom.
LANES = {"fetch": "transmit link", "compute": "worker", "push": "receive link", "update": "server update"}


def plot_timeline(profile: Profile, *, step: int = 0, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """
    Draw one recorded step; the links are the servers': they transmit parameters and receive gradients.

    A recorded transfer's thin line begins when the tensor was asked for; its thick bar is the transmission itself, as
    long as its bytes take at the estimated rate, ending at its arrival.

    Parameters
    ----------
    profile : Profile
        With operations in its steps.
    step : int
        Which of the recorded steps.
    ax : matplotlib Axes, optional
        Where to draw; a new figure without.
    **kwargs
        Passed to ``ax.barh``.

    Returns
    -------
    matplotlib Axes
    """
    if not -len(profile.steps) <= step < len(profile.steps):
        raise DataError(f"plot_timeline: step must be 0 to {len(profile.steps) - 1}, got {step!r}")
    ax = ax or new_axes((9, 2.6))
    links = estimate_links(profile)
    seconds = {"fetch": 1 / links.transmit.rate, "push": 1 / links.receive.rate}
    style: dict[str, Any] = {"height": 0.6, "edgecolor": "white", "linewidth": 0.5, **kwargs}
    for lane, (kind, place) in enumerate(LANES.items()):
        color = PLACES[place]
        operations = [o for o in profile.steps[step].operations if o.kind == kind]
        sent = [
            min(o.end - o.start, o.bytes * seconds[kind]) if kind in seconds else o.end - o.start for o in operations
        ]
        ends = [o.end for o in operations]
        drawn = style | ({} if kind != "update" else {"edgecolor": color})  # too short to be seen inside a white edge
        ax.barh([lane] * len(ends), sent, left=[e - s for e, s in zip(ends, sent, strict=True)], color=color, **drawn)
        if kind in seconds:
            ax.hlines(
                [lane + 0.4] * len(ends), [o.start for o in operations], ends, color=color, linewidth=0.8, alpha=0.5
            )
    ax.set_yticks(range(len(LANES)), LANES.values())
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.set_xlabel("time since the step began (s)")
    finish(ax, legend=None)
    return ax
