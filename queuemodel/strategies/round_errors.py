"""How far predictions of rounds err: by what few recorded rounds leave open, and by the model itself."""

from __future__ import annotations

import numpy as np

from .fitted_rounds import FittedRounds

#: Relative error beyond the recorded ranks: 1.1 % root mean square over docs/validation's series, taken as nearly twice
#: that for what two nodes do not show of a network; and of tracing, at those ranks (0.8 %).
MODEL_ERROR, TRACING_ERROR = 0.02, 0.01

#: The same where one message is under way at a time: links pause between its steps, and what TCP makes of that depends
#: on their length, hence on the number of ranks. Root mean square of 18 predictions of TensorFlow's rings from two
#: ranks, 0 to 8 % off under cubic and 4 to 27 % under BBR with a shallow buffer (docs/explanation/all-reduce).
IN_TURN_ERROR = 0.13

#: From three ranks, whose links pause more as those of many do: of 15 predictions under BBR with a shallow buffer.
IN_TURN_FROM_THREE = 0.10

#: From two or three where BBR and the buffer are told (`late_messages`): of 29 predictions.
IN_TURN_LATE = 0.06

#: From two under a control that gives way to losses, so that its windows fit into the buffers: of six predictions.
IN_TURN_GIVING_WAY, GIVING_WAY = 0.04, ("cubic", "reno")

#: Relative error of computation known from one round only (assumed).
ONE_ROUND = 0.05

#: Relative error of waits for input, where loading varies as much as it takes: with six batches loaded ahead instead of
#: two they are so much shorter (simulated, docs/explanation/all-reduce).
AHEAD_ERROR = 0.5


def in_turn_error(fitted: FittedRounds, *, late: bool) -> float:
    """Relative error among more ranks than recorded, one message at a time; ``late``: which `late_messages` times."""
    if fitted.congestion_control in GIVING_WAY:
        return IN_TURN_GIVING_WAY
    if late:
        return IN_TURN_LATE
    return IN_TURN_FROM_THREE if fitted.ranks > 2 else IN_TURN_ERROR


def sampling_error(fitted: FittedRounds, stragglers: float) -> float:
    """Error of the logarithm of the slowest rank's computation, as few rounds tell its mean and its spread.

    Parameters
    ----------
    fitted : FittedRounds
    stragglers : float
        By how much the slowest rank's computation is longer than a mean rank's, over the latter.
    """
    computed, m = fitted.computed, len(fitted.computed)
    if m < 2:
        return ONE_ROUND
    mean = np.hypot(computed.std(ddof=1) / m**0.5, fitted.shared_error) / computed.mean()
    spread = (2 * (m - 1)) ** -0.5  # relative, of a standard deviation, normal law
    return float(np.hypot(mean, spread * stragglers))
