"""What a live run is asked to do, checked before anything starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....checks import require_choice, require_count, require_number
from ....errors import DataError
from ...live.functions import function_name
from ...live.run import LONGEST_RUN
from ..addresses import servers_elsewhere
from ..children.models import BUILT_IN

#: The child that trains, and the style's name in the profile.
STYLES = {"graph": ("worker", "graph"), "strategy": ("strategy", "parameter-server-strategy")}

ENDING = 5.0  # seconds before the deadline in which nothing new is begun, ...
SHARE = 0.1  # ... but at most this share of all


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Steps of each kind, where the servers are (None: started here), and when all must be over (monotonic clock)."""

    model: str
    style: str
    steps: int
    warmup: int
    untraced_steps: int
    batch_size: int | None
    elsewhere: dict[str, str] | None
    time_limit: float
    deadline: float

    @classmethod
    def of(
        cls,
        model: str | Callable[[], Any],
        *,
        style: str,
        steps: int,
        warmup: int,
        untraced_steps: int | None,
        batch_size: int | None,
        ps: str | None,
        worker: str | None,
        time_limit: float,
    ) -> Plan:
        """Check the arguments of `profile_live` (raises DataError)."""
        limit = require_number(
            time_limit, "time_limit", unit="seconds", positive=True, largest=LONGEST_RUN, error=DataError
        )
        return cls(
            model=function_name(model, BUILT_IN),
            style=require_choice(style, "style", STYLES, error=DataError),
            steps=require_count(steps, "steps", error=DataError),
            warmup=require_count(warmup, "warmup", least=0, error=DataError),
            untraced_steps=require_count(
                steps if untraced_steps is None else untraced_steps, "untraced_steps", least=0, error=DataError
            ),
            batch_size=None if batch_size is None else require_count(batch_size, "batch_size", error=DataError),
            elsewhere=servers_elsewhere(ps, worker),
            time_limit=limit,
            deadline=time.monotonic() + limit,
        )

    @property
    def total(self) -> int:
        """Steps of all kinds."""
        return self.warmup + self.steps + self.untraced_steps

    @property
    def until(self) -> float:
        """When training must be over, so that there is time for an orderly end (monotonic clock)."""
        return self.deadline - min(ENDING, SHARE * self.time_limit)
