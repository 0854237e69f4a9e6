"""Job classes: kinds of customers that differ in what they need and where they go."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from ..checks import require_count, require_name, require_number

#: Above this a request is taken for a mistake; the recursion takes about a second per million customers and station.
LARGEST_POPULATION = 10_000_000


@dataclass(frozen=True, slots=True)
class JobClass:
    """A kind of customer.

    Parameters
    ----------
    name : str
        Unique within its network; stations name it in their mappings.
    population : int, default 1
        Customers of this class, >= 0.
    think_time : float, optional
        Seconds per cycle outside all stations; the network's think time unless given.

    Raises
    ------
    ModelError
        When the population is not a whole number >= 0 or the think time is negative or not finite.

    Examples
    --------
    >>> JobClass("fast worker", population=4, think_time=0.2).population
    4
    """

    name: str
    _: KW_ONLY
    population: int = 1
    think_time: float | None = None

    def __post_init__(self) -> None:
        require_name(self.name, "class")
        what = f"class {self.name!r}: population"
        object.__setattr__(self, "population", require_count(self.population, what, least=0, most=LARGEST_POPULATION))
        if self.think_time is not None:
            think = require_number(self.think_time, f"class {self.name!r}: think_time", unit="seconds")
            object.__setattr__(self, "think_time", think)
