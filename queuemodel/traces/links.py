"""What the links of the profiled hosts really carry, recovered from the recorded transfers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..checks import FASTEST_LINK, require_number
from ..errors import DataError
from ..results import Result
from ..training.bandwidth import nominal_bandwidth, transfer_time
from ..training.operations import Operation
from ..training.profile import Profile

#: No link is faster than this (seconds per byte): 100 GB/s.
LEAST_TIME_PER_BYTE = 1e-11

#: Recorded ends scatter by about this (seconds): threads wake up late, a lost packet holds up those behind it.
SCATTER = 1e-3


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a host's link, as its recorded transfers show it.

    Attributes
    ----------
    rate : float
        Payload bytes per second, all protocol overhead paid.
    tensor_time : float
        Seconds that each tensor takes besides its bytes.
    start_time : float
        Seconds before the first byte after a pause; negative when a token bucket lets the first bytes pass at once,
        which is not simulated.
    rate_error : float
        Standard error (jackknife over steps); NaN with a single step, or where nobody asked for it.
    transfers : int
        How many transfers these rest on.
    """

    rate: float
    tensor_time: float = 0.0
    start_time: float = 0.0
    rate_error: float = math.nan
    transfers: int = 0

    def __post_init__(self) -> None:
        require_number(self.rate, "link: rate", unit="bytes per second", positive=True, largest=FASTEST_LINK)
        require_number(self.tensor_time, "link: tensor_time", unit="seconds")


@dataclass(frozen=True, slots=True, repr=False)
class Links(Result):
    """Both directions, seen from the servers: they transmit parameters and receive gradients."""

    transmit: Link
    receive: Link

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per direction."""
        return [
            {"link": name, **{field: getattr(link, field) for field in Link.__slots__}}
            for name, link in (("transmit", self.transmit), ("receive", self.receive))
        ]


def at_bandwidth(links: Links, profile: Profile, bandwidth: float) -> Links:
    """
    What links of another nominal bandwidth would carry, by the rule of `queuemodel.training.bandwidth`.

    What the profiled links do not explain stays as it was: as seconds per tensor and, what exceeds these, per byte.
    """
    nominal = nominal_bandwidth(profile)
    if bandwidth == nominal:
        return links
    changed = []
    for kind, link in (("fetch", links.transmit), ("push", links.receive)):
        sizes = [o.bytes for step in profile.steps for o in step.operations if o.kind == kind and o.bytes > 0]
        size = float(np.mean(sizes)) if sizes else 1.0
        host = float(transfer_time(link.tensor_time + size / link.rate, size, nominal=nominal, bandwidth=np.inf))
        tensor_time = min(link.tensor_time, host)
        byte_time = (host - tensor_time) / size + float(transfer_time(0.0, 1.0, nominal=None, bandwidth=bandwidth))
        changed.append(replace(link, rate=1 / byte_time, tensor_time=tensor_time))
    return Links(*changed)


def estimate_links(profile: Profile, *, errors: bool = True) -> Links:
    """
    Recover the transmission itself from recorded transfers.

    A recorded interval starts when the tensor is asked for, so it contains waiting for the others. Within a busy period
    of the link, the ``i``-th tensor to arrive does so after ``start_time + i * tensor_time + bytes so far / rate``.
    These three are fitted to all arrivals at once, robustly (Huber), because a packet that is lost and sent again holds
    up what came after it without costing capacity. Without ``errors``, the rates' standard errors are NaN: they take
    nearly all of the time.

    Raises
    ------
    DataError
        When the profile has no recorded transfers.

    Examples
    --------
    >>> from queuemodel.training import Job, Operation, Profile, Source, Step
    >>> transfers = [Operation(kind, f"{kind}{i}", at, at + (i + 1) * 0.1, 1_000_000)
    ...              for kind, at in (("fetch", 0.0), ("push", 1.0)) for i in range(3)]
    >>> step = Step(step_time=2, fetch=0.3, compute=0, push=0.3, update=0, fetched_bytes=3_000_000,
    ...             pushed_bytes=3_000_000, operations=transfers)
    >>> job = Job(batch_size=1, parameter_bytes=3_000_000, tensors=3)
    >>> round(estimate_links(Profile(source=Source(framework="by hand"), job=job, steps=[step])).transmit.rate)
    10000000
    """
    fit = partial(_fit, errors=errors) if profile.cluster.parameter_servers == 1 else _best_periods
    found = {}
    for kind in ("fetch", "push"):
        steps = [[o for o in step.operations if o.kind == kind and o.bytes > 0] for step in profile.steps]
        if any(steps):
            found[kind] = fit(steps)
    if not found:
        raise DataError(
            f"profile {profile.job.name!r}: its steps need recorded transfers with bytes, got none; "
            "import traces taken with FULL_TRACE, or give links"
        )
    either = next(iter(found.values()))
    return Links(found.get("fetch", either), found.get("push", either))


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


def _fit(steps: list[list[Operation]], *, errors: bool) -> Link:
    rows = []  # step, 1, tensors so far, bytes so far, seconds since the period's start, weight
    for number, transfers in enumerate(steps):
        for period in busy_periods(transfers):
            start, so_far = min(o.start for o in period), 0
            for i, transfer in enumerate(sorted(period, key=lambda o: o.end), 1):
                so_far += transfer.bytes
                rows.append((number, 1.0, i, so_far, transfer.end - start, i == len(period)))
    table = np.array(rows)
    start, tensor, byte = _robust_line(table)
    numbers = np.unique(table[:, 0])
    error = math.nan
    if errors and len(numbers) > 1:
        without = np.array([_robust_line(table[table[:, 0] != n])[2] for n in numbers])
        error = float(((len(numbers) - 1) * without.var()) ** 0.5)
    return Link(1 / byte, tensor, start, error / byte**2, len(table))


def _best_periods(steps: list[list[Operation]]) -> Link:
    """
    The rate of the busy periods that went best: nine in ten of them went no faster; what the median took besides.

    Connections with several servers share the worker's link, and often do not fill it together; what is in
    transmission when a tensor arrives belongs to several tensors, so only whole periods tell.
    """
    periods = [period for transfers in steps for period in busy_periods(transfers)]
    sizes = np.array([sum(o.bytes for o in period) for period in periods])
    seconds = np.array([max(o.end for o in period) - min(o.start for o in period) for period in periods])
    large = sizes >= 0.5 * sizes.max()
    rates = sizes[large] / seconds[large]
    rate = float(np.quantile(rates, 0.9))
    start = float(np.median(seconds[large] - sizes[large] / rate))
    error = float(rates.std()) if len(rates) > 1 else math.nan
    return Link(rate, 0.0, start, error, sum(map(len, steps)))


def _robust_line(table: np.ndarray) -> tuple[float, float, float]:
    """Start, seconds per tensor (at least 0) and seconds per byte (above 0), by reweighted least squares."""
    x, y, last = table[:, 1:4], table[:, 4], table[:, 5]
    scale = np.array([1.0, max(x[:, 1].max(), 1), max(x[:, 2].max(), 1)])
    weight = 1 + len(y) * last / max(last.sum(), 1)  # all of a period's bytes are there at its end, whatever was late
    candidates = [[0, 1, 2], [0, 2], [2]] if np.linalg.matrix_rank(x / scale) == 3 else [[2]]
    for columns in candidates:
        factor = np.ones(len(y))
        for _ in range(30):
            w = np.sqrt(weight * factor)[:, None]
            solution = np.linalg.lstsq(x[:, columns] / scale[columns] * w, y * w[:, 0], rcond=None)[0]
            miss = np.abs(y - x[:, columns] / scale[columns] @ solution)
            factor = SCATTER / np.maximum(miss, SCATTER)
        result = dict(zip(columns, solution / scale[columns], strict=True))
        if result.get(1, 0.0) >= 0 and result[2] > 0:  # where scatter hides the bytes, the total time tells the rate
            break
    return result.get(0, 0.0), result.get(1, 0.0), max(result[2], LEAST_TIME_PER_BYTE)
