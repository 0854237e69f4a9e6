"""What every kind of station answers to those who solve, draw or write a network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ModelError
from .phasetype import PhaseType
from .values import number_of

#: Service longer than this is taken for a mistake of units: nobody trains with steps of a week.
LONGEST_SERVICE = 7 * 24 * 3600.0

#: And service more variable than this for a mistake too.
LARGEST_SCV = 1e6


class Place:
    """A place of service: unless it says otherwise, one server, first come first served.

    `Station` (a queue, or a delay where its servers are infinitely many) and `ForkJoin` are its kinds.
    """

    __slots__ = ()

    name: str
    visit_ratio: float | Mapping[str, float]
    scv: float | Mapping[str, float]

    @property
    def kind(self) -> str:
        """What it is, in a few words."""
        raise NotImplementedError

    @property
    def service_time(self) -> float | Mapping[str, float]:
        """Mean seconds of service per visit."""
        raise NotImplementedError

    @property
    def servers(self) -> float:
        """How many serve; infinitely many where nobody ever queues."""
        return 1

    @property
    def discipline(self) -> str:
        """Who is served first."""
        return "fcfs"

    @property
    def rates(self) -> Any:
        """Speeds with 1, 2, ... customers, where they are given."""
        return None

    @property
    def distribution(self) -> PhaseType | Mapping[str, PhaseType] | None:
        """The whole distribution of the service time, where it is given."""
        return None

    @property
    def branches(self) -> Sequence[float]:
        """Mean seconds of the parallel tasks that a customer splits into; none where it stays whole."""
        return ()

    @property
    def is_delay(self) -> bool:
        """Whether nobody ever queues here."""
        return self.servers == math.inf

    @property
    def service_demand(self) -> float:
        """Seconds of service per cycle, visit ratio times service time (of a station without classes)."""
        if isinstance(self.visit_ratio, Mapping) or isinstance(self.service_time, Mapping):
            raise ModelError(f"station {self.name!r}: service demands differ by class; ask the network for them")
        return self.visit_ratio * self.service_time

    def distribution_of(self, job_class: str | None) -> PhaseType | None:
        """The phase-type distribution given for a class, or None."""
        given = self.distribution
        if isinstance(given, Mapping):
            return None if job_class is None else given.get(job_class)
        return given

    def scv_of(self, job_class: str | None) -> float:
        """Squared coefficient of variation of a class's service time."""
        return number_of(self.scv, job_class, 1.0)

    def time_of(self, job_class: str | None) -> float:
        """Mean seconds of a class's service per visit."""
        return number_of(self.service_time, job_class, 0.0)

    def rate(self, customers: int) -> float:
        """Servers that work with so many customers."""
        return float(min(customers, self.servers))

    def fastest(self, customers: int) -> float:
        """The highest speed with up to so many customers; infinite where nobody queues."""
        return self.servers

    def why_not_product_form(self, visiting: Sequence[str | None]) -> str | None:
        """What keeps a network with this station, and these classes coming, from having product form; else None."""
        raise NotImplementedError
