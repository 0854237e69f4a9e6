"""Fork-joins: stations that split a customer into parallel tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from ..checks import require_name, require_number
from ..errors import ModelError
from .place import LARGEST_SCV, LONGEST_SERVICE, Place

#: More branches than this are taken for a mistake.
MOST_BRANCHES = 1000


@dataclass(frozen=True, slots=True)
class ForkJoin(Place):
    """A station that splits a customer into parallel tasks, each with its own queue, and waits for the slowest.

    A step that needs every shard of the parameters is one: it goes on when its slowest shard has answered. Its
    utilization is that of the busiest branch. No exact solution is known but the Markov chain; see `solve`.

    Parameters
    ----------
    name : str
    service_times : sequence of float
        Mean seconds of service of each branch, >= 0, at least one.
    visit_ratio, scv
        As of `Station`; ``scv`` is of each branch. Branches serve first come first served.

    Examples
    --------
    >>> ForkJoin("shards", service_times=[0.02, 0.03]).service_time
    0.03
    """

    name: str
    _: KW_ONLY
    service_times: Sequence[float]
    visit_ratio: float = 1.0
    scv: float = 1.0

    def __post_init__(self) -> None:
        require_name(self.name, "station")
        where, times, put = f"station {self.name!r}", self.service_times, object.__setattr__
        if isinstance(times, str | bytes | Mapping) or not isinstance(times, Sequence | np.ndarray) or not len(times):
            raise ModelError(f"{where}: service_times must be a list with a time for each branch, got {times!r}")
        if len(times) > MOST_BRANCHES:
            raise ModelError(f"{where}: service_times must be at most {MOST_BRANCHES} branches, got {len(times)}")
        checked = [
            require_number(t, f"{where}: service_times[{b}]", unit="seconds", largest=LONGEST_SERVICE)
            for b, t in enumerate(times)
        ]
        if isinstance(self.visit_ratio, Mapping) or isinstance(self.scv, Mapping):
            raise ModelError(f"{where}: a fork-join has the same visit_ratio and scv for every class")
        put(self, "service_times", tuple(checked))
        put(self, "visit_ratio", require_number(self.visit_ratio, f"{where}: visit_ratio", unit="visits per cycle"))
        put(self, "scv", require_number(self.scv, f"{where}: scv", unit="(squared)", largest=LARGEST_SCV))

    @property
    def service_time(self) -> float:
        """Mean seconds of the slowest branch: what keeps the busiest server busy."""
        return max(self.service_times)

    @property
    def branches(self) -> Sequence[float]:
        """Mean seconds of the parallel tasks."""
        return self.service_times

    @property
    def kind(self) -> str:
        """What it is, in a few words."""
        return f"fork-join of {len(self.service_times)}"

    def why_not_product_form(self, visiting: Sequence[str | None]) -> str | None:
        """One branch is a queue; more have no product form (Nelson and Tantawi, 1988)."""
        if len(self.service_times) > 1 or self.scv != 1.0:
            return f"station {self.name!r} is a fork-join"
        return None
