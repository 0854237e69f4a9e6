"""What published scaling series say about a job before it is measured: the prior of fits from throughputs alone.

The numbers are in throughput_prior.json beside this module, with their sources; ``python -m validation.prior`` makes
it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

Strategy = Literal["async-ps", "sync-ps", "all-reduce"]
STRATEGIES: tuple[Strategy, ...] = ("async-ps", "sync-ps", "all-reduce")


@dataclass(frozen=True, slots=True)
class KneePrior:
    """Where asynchronous training saturates.

    Attributes
    ----------
    growing : float
        Share of jobs whose servers grow with their workers, and which do not saturate.
    errors : dict
        Relative errors of one measured throughput (scales of Student's t), and the share of jobs with each.
    server_rate, server_rate_spread : float
        Parameter bytes per second of one server at saturation, and the standard deviation of its logarithm.
    """

    growing: float
    errors: dict[float, float]
    server_rate: float
    server_rate_spread: float


#: Laws of larger exponents come to an end as the group grows.
ENDING = 0.25


@dataclass(frozen=True, slots=True)
class RoundPrior:
    """How a synchronous round grows with the group.

    Attributes
    ----------
    laws : dict
        Exponents q of `growth`, and the share of jobs with each.
    drifts : dict
        Standard deviations of what the law misses, per doubling of the group, and the share of jobs with each.
    growing_cost : float or None
        How much of a round the first doubling costs, on average, by laws that never end (q < `ENDING`); None: as much
        as by others.
    changes : float
        Probability that the servers change between a group and one twice as large: their number, or where they stand.
    paid : bool
        Whether every job pays for the first doubling, costs of all orders of magnitude being equally likely; else some
        pay nothing, and small costs are likelier.
    """

    laws: dict[float, float]
    drifts: dict[float, float]
    growing_cost: float | None = None
    changes: float = 0.0
    paid: bool = False


@cache
def _file() -> dict[str, Any]:
    return json.loads((resources.files(__package__) / "throughput_prior.json").read_text(encoding="utf-8"))


def _shares(values: dict[str, float]) -> dict[float, float]:
    return {float(value): share for value, share in values.items()}


def knee_prior() -> KneePrior:
    """The prior of asynchronous jobs."""
    told = _file()["async-ps"]
    return KneePrior(**told | {"errors": _shares(told["errors"])})


def round_prior(strategy: Strategy, *, sparse_gradients: bool = False) -> RoundPrior:
    """The prior of synchronous jobs of a kind, or of those among them whose gradients are sparse."""
    told = (_file()["sparse gradients"] if sparse_gradients else _file())[strategy]
    return RoundPrior(**told | {name: _shares(told[name]) for name in ("laws", "drifts")})
