"""A station: a place of service in a closed queueing network."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

from ..errors import ModelError

#: Service longer than this is taken for a mistake of units: nobody trains with steps of a week.
LONGEST_SERVICE = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Station:
    """A place where customers queue for service (times in seconds).

    Parameters
    ----------
    name : str
        Unique within its network.
    service_time : float
        Mean seconds of service per visit; finite and >= 0.
    visit_ratio : float, default 1
        Mean visits per cycle; finite and >= 0.
    servers : int or math.inf, default 1
        ``math.inf`` makes a delay station, where nobody ever queues.

    Raises
    ------
    ModelError
        When a value is negative, NaN, infinite where it must not be, or absurd.

    Examples
    --------
    >>> Station("disk", service_time=0.02, visit_ratio=5).service_demand
    0.1
    """

    name: str
    _: KW_ONLY
    service_time: float
    visit_ratio: float = 1.0
    servers: float = 1

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ModelError(f"station: name must be a text that is not empty, got {self.name!r}")
        require_number(self.service_time, f"station {self.name!r}: service_time", unit="seconds")
        if self.service_time > LONGEST_SERVICE:
            raise ModelError(
                f"station {self.name!r}: service_time must be below a week, got {self.service_time!r} seconds; "
                "traces are often in microseconds, so convert when reading them"
            )
        require_number(self.visit_ratio, f"station {self.name!r}: visit_ratio", unit="visits per cycle")
        if isinstance(self.servers, bool) or not (self.servers == 1 or self.servers == math.inf):
            raise ModelError(
                f"station {self.name!r}: servers must be 1, or math.inf for a delay station, got {self.servers!r}"
            )

    @property
    def is_delay(self) -> bool:
        """Whether nobody ever queues here."""
        return self.servers == math.inf

    @property
    def service_demand(self) -> float:
        """Seconds of service per cycle, visit ratio times service time."""
        return self.visit_ratio * self.service_time


def require_number(value: Any, what: str, *, unit: str, positive: bool = False) -> float:
    """Give ``value`` back as a float, or raise a `ModelError` that names it."""
    try:
        number = math.nan if isinstance(value, (bool, str, complex)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number < 0 or (positive and number == 0):
        raise ModelError(f"{what} must be finite and {'> 0' if positive else '>= 0'} {unit}, got {value!r}")
    return number
