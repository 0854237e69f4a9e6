"""How a live run ended, as its caller sees it."""

from __future__ import annotations

import warnings
from typing import Any

from ....errors import ProfilingError, QueueModelWarning
from ....training.profile import Profile
from ...live.interrupts import Interrupted
from .run import OutOfTimeError, Run


class EndedEarlyError(ProfilingError):
    """A run that failed on its way; `profile` holds the steps recorded until then, or is None."""

    def __init__(self, message: str, profile: Profile | None) -> None:
        super().__init__(message)
        self.profile = profile


def outcome(run: Run, ended: BaseException | None, profile: Profile | None, output: Any) -> Profile:
    """Return the profile, or raise what ended the run early with the profile attached."""
    recorded = len(profile.steps) if profile is not None else 0
    kept = f"saved {recorded} steps to {output}" if output is not None and recorded else f"recorded {recorded} steps"
    signals = run.interrupts.received
    if signals or isinstance(ended, KeyboardInterrupt):
        raise Interrupted(f"interrupted; {kept}", profile, status=128 + signals[0] if signals else 130) from None
    if isinstance(ended, OutOfTimeError) and profile is not None:
        plan = run.plan
        untraced = f", {len(run.untraced)} of {plan.untraced_steps} untraced" if recorded == plan.steps else ""
        warnings.warn(
            f"time_limit of {plan.time_limit:g} s reached after {recorded} of {plan.steps} steps{untraced}; {kept}",
            QueueModelWarning,
            stacklevel=3,
        )
    elif ended is not None or profile is None:
        raise EndedEarlyError(
            f"{ended}; {kept}" if recorded else str(ended or "no step was recorded"), profile
        ) from None
    return profile
