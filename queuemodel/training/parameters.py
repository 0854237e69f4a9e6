"""Fitted parameters, each with how far to trust it; derived from demands, so that they always say what is solved."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np

from .demands import Demands

Origin = Literal["measured", "derived", "assumed"]

#: Names of the demands at the servers.
NAMES = {"fetch": "transmit link demand", "push": "receive link demand", "update": "server update demand"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One fitted parameter, and how far to trust it.

    Attributes
    ----------
    name, unit : str
    value, standard_error : float
        The error is NaN where nothing can be said.
    origin : {"measured", "derived", "assumed"}
    identified : bool
        Whether the data determine it.
    note : str
    """

    name: str
    value: float
    unit: str
    _: KW_ONLY
    standard_error: float = math.nan
    origin: Origin = "measured"
    identified: bool = True
    note: str = ""

    def to_row(self) -> dict[str, Any]:
        """The parameter as a row of a table."""
        return {
            "parameter": self.name,
            "value": self.value,
            "standard_error": None if math.isnan(self.standard_error) else self.standard_error,
            "unit": self.unit,
            "origin": self.origin,
            "identified": "yes" if self.identified else "no",
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Recorded:
    """What only recorded steps tell about a job, and what-ifs need.

    Attributes
    ----------
    compute : float
        Seconds of computation per step, overlapped or not; what a faster accelerator shortens.
    transferred : tuple of float
        Bytes per step from and to the servers.
    tensor_bytes : tuple of int
        Sizes of the parameters' tensors in their order, when known: what is dealt to several servers.
    bandwidth : float or None
        Bytes per second of each host's link when profiled; infinite on loopback, None when not known.
    steps, workers : int
        How many steps were recorded, and with how many workers at work.
    note : str
        What to know about the demands at the servers.
    """

    compute: float
    transferred: tuple[float, float]
    tensor_bytes: tuple[int, ...] = ()
    bandwidth: float | None = None
    steps: int = 1
    workers: int = 1
    note: str = ""


def step_parameters(
    demands: Demands, draws: Demands, recorded: Recorded, *, origin: Origin = "measured"
) -> list[Parameter]:
    """Demands and effective bandwidths, with the spread of the draws as their errors."""

    def parameter(name: str, field: str, **about: Any) -> Parameter:
        return Parameter(
            name, float(getattr(demands, field).mean()), "s", standard_error=spread(getattr(draws, field)), **about
        )

    few = "" if recorded.steps > 1 else "one step only: its spread is assumed"
    rows = [
        parameter(name, field, origin=origin, identified=bool(getattr(demands, field) > 0), note=recorded.note or few)
        for field, name in NAMES.items()
    ]
    overlap = recorded.compute - float(demands.worker.mean())
    note = f"step time less demands; {overlap:.3g} s of {recorded.compute:.3g} s computation overlap transfers"
    rows.append(parameter("worker time", "worker", origin="derived", identified=not few, note=note))
    for way, size, link in (("down", recorded.transferred[0], rows[0]), ("up", recorded.transferred[1], rows[1])):
        if size and link.value > 0:
            rate = size / link.value
            rows.append(
                Parameter(
                    f"effective bandwidth {way}", rate, "B/s", standard_error=rate * link.standard_error / link.value,
                    origin="derived", note="bytes over busy time, headers and serialization included",
                )
            )  # fmt: skip
    return rows


def spread(draws: np.ndarray) -> float:
    """Standard error that draws (B, ...) show: half the width of their central 68 %, which bears heavy tails."""
    low, high = np.quantile(draws, [0.15866, 0.84134], axis=0)
    return float(np.mean(high - low) / 2)


def normal_quantile(confidence: float) -> float:
    """How many standard errors a two-sided interval reaches."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + confidence / 2))
