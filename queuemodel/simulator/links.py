"""Rates of the profiled hosts' links, estimated from the recorded transfers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base.checks import FASTEST_LINK, require_number
from ..base.errors import DataError
from ..base.files import constants
from ..base.results import Result
from ..profile.bandwidth import nominal_bandwidth, transfer_time
from ..profile.profile import Profile
from ..profile.records import Operation

BEST, CLOCK = (constants(__package__)["links"][name] for name in ("best", "clock"))


@dataclass(frozen=True, slots=True)
class LinkRate:
    """One direction of a host's link, as its recorded transfers show it."""

    rate: float  # Payload bytes per second, all protocol overhead paid
    #: Seconds before the first byte after a pause; negative when a token bucket lets the first bytes pass at once,
    #: which is not simulated
    start_time: float = 0.0
    rate_error: float = math.nan  # Standard deviation of the busy periods' rates; NaN of a single one
    transfers: int = 0  # How many transfers these rest on

    def __post_init__(self) -> None:
        require_number(self.rate, "link: rate", unit="bytes per second", positive=True, largest=FASTEST_LINK)


@dataclass(frozen=True, slots=True, repr=False)
class LinkRates(Result):
    """Both directions, seen from the servers: they transmit parameters and receive gradients."""

    transmit: LinkRate
    receive: LinkRate

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per direction."""
        return [
            {"link": name, **{field: getattr(link, field) for field in LinkRate.__slots__}}
            for name, link in (("transmit", self.transmit), ("receive", self.receive))
        ]


def at_bandwidth(links: LinkRates, profile: Profile, bandwidth: float) -> LinkRates:
    """Rates of links with another nominal bandwidth, by the rule of `queuemodel.profile.bandwidth`."""
    nominal = nominal_bandwidth(profile)
    if bandwidth == nominal:
        return links
    return LinkRates(*[
        replace(link, rate=1 / float(transfer_time(1 / link.rate, 1.0, nominal=nominal, bandwidth=bandwidth)))
        for link in (links.transmit, links.receive)
    ])  # fmt: skip


def estimate_links(profile: Profile) -> LinkRates:
    """Estimate the links' rates from recorded transfers.

    A recorded interval contains waiting for other tensors, so only whole busy periods of a link show its rate: nine in
    ten of the large ones went no faster (lost packets, links not filled), and the median took ``start_time`` besides.

    Raises
    ------
    DataError
        When the profile has no recorded transfers.

    Examples
    --------
    >>> from queuemodel import Job, Operation, Profile, Source, Step
    >>> transfers = [Operation(kind, f"{kind}{i}", at, at + (i + 1) * 0.1, 1_000_000)
    ...              for kind, at in (("fetch", 0.0), ("push", 1.0)) for i in range(3)]
    >>> step = Step(step_time=2, fetch=0.3, compute=0, push=0.3, update=0, fetched_bytes=3_000_000,
    ...             pushed_bytes=3_000_000, operations=transfers)
    >>> job = Job(batch_size=1, parameter_bytes=3_000_000, tensors=3)
    >>> round(estimate_links(Profile(source=Source(framework="by hand"), job=job, steps=[step])).transmit.rate)
    10000000
    """
    rates = {}
    for kind in ("fetch", "push"):
        steps = [[o for o in step.operations if o.kind == kind and o.bytes > 0] for step in profile.steps]
        if any(steps):
            rates[kind] = _best_periods(steps)
    if not rates:
        raise DataError(
            f"profile {profile.job.name!r}: its steps need recorded transfers with bytes, got none; "
            "import traces taken with FULL_TRACE, or give links"
        )
    either = next(iter(rates.values()))
    return LinkRates(rates.get("fetch", either), rates.get("push", either))


def busy_periods(transfers: Iterable[Operation]) -> Iterable[list[Operation]]:
    """Transfers in order of arrival, split where the link fell idle."""
    period: list[Operation] = []
    until = 0.0
    for transfer in sorted(transfers, key=lambda o: o.start):
        if period and transfer.start > until:
            yield period
            period = []
        period.append(transfer)
        until = max(until, transfer.end)
    if period:
        yield period


def _best_periods(steps: list[list[Operation]]) -> LinkRate:
    """The rate and start of the busy periods with at least half of the bytes of the largest."""
    periods = [period for transfers in steps for period in busy_periods(transfers)]
    sizes = np.array([sum(o.bytes for o in period) for period in periods])
    seconds = np.array([max(o.end for o in period) - min(o.start for o in period) for period in periods])
    if not seconds.any():  # all took less than the clock resolves
        seconds = np.full_like(seconds, CLOCK)
    timed = seconds > 0  # one that ended in the microsecond in which it began shows no rate
    large = timed & (sizes >= 0.5 * sizes[timed].max())
    rates = sizes[large] / seconds[large]
    rate = float(np.quantile(rates, BEST))
    start = float(np.median(seconds[large] - sizes[large] / rate))  # T = start + bytes / rate
    error = float(rates.std()) if len(rates) > 1 else math.nan
    return LinkRate(rate, start, error, sum(map(len, steps)))
