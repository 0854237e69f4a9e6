"""Service demands from recorded steps, with their uncertainty, and apart from contention and retransmissions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...base.errors import FitError
from ...base.estimates import Origin, Parameter, standard_errors
from ...base.files import constants
from ...base.results import Note
from ...profile.bandwidth import (
    UNFILLED,
    best_rates,
    carried_for_several,
    contradiction,
    nominal_bandwidth,
    transfers,
)
from ...profile.job import Job
from ...profile.measurements import Measurement
from ...profile.profile import Profile
from ...transport.sharing import BUFFER, CONTROLS, BbrSharing
from .demands import FORMS, Demands, Form, Servers
from .rules import Rule, rule_for

#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["fit"]
ONE_STEP_SPREAD, ASSUMED_SCV = _NUMBERS["one_step_spread"], _NUMBERS["assumed_scv"]
#: Names of the demands at the servers; columns of a step: its phases there, and its time.
DEMAND_NAMES = {"fetch": "transmit link demand", "push": "receive link demand", "update": "server update demand"}
STEP_COLUMNS = (*DEMAND_NAMES, "step_time")
STEP_DRAWS = 400  #: Draws of the mean of the recorded steps.
SINGLE_WORKER_NOTE = "one worker's steps do not determine how several connections share a link"


@dataclass(frozen=True, slots=True)
class Recorded:
    """Quantities of recorded steps that what-ifs need."""

    compute: float  # Seconds of computation per step, overlapped or not; an accelerator's speed divides it
    transferred: tuple[float, float]  # Bytes per step from and to the servers
    tensor_bytes: tuple[int, ...] = ()  # Sizes of the parameters' tensors in their order, when known
    bandwidth: float | None = None  # Nominal, of each host's link (B/s); infinite on loopback, None when not known
    steps: int = 1  # Number of recorded steps
    workers: int = 1  # Number of workers while they were recorded
    note: str = ""  # On the demands at the servers


@dataclass(frozen=True, eq=False, kw_only=True)
class Fitted:
    """Service demands of a job on the profiled machines, and how its workers share links there."""

    demands: Demands  # Of shape ()
    draws: Demands  # The same, resampled, shape (B,): the fit's uncertainty
    job: Job
    servers: Servers
    recorded: Recorded
    desynchronization: float = 0.0  # This, and bbr_sharing: see `rules.ParallelServers`
    bbr_sharing: BbrSharing | None = None
    bbr_sharing_if_bbr: BbrSharing | None = None  # The same, if TCP's control, which is unknown, is BBR
    slow_connections: bool = False  # Whether one worker alone does not fill its links
    measured: tuple[Measurement, ...] = ()
    others: tuple[Parameter, ...] = ()  # Parameters that do not follow from the demands
    remarks: tuple[Note, ...] = ()  # On what steps do not determine
    contradiction: str = ""  # Which throughputs contradict the profile; empty for none


def step_parameters(
    demands: Demands, draws: Demands, recorded: Recorded, *, origin: Origin = "measured"
) -> list[Parameter]:
    """Demands and effective bandwidths, with the spread of the draws as their errors."""

    def parameter(name: str, field: str, **about: Any) -> Parameter:
        error = float(standard_errors(getattr(draws, field)).mean())
        return Parameter(name, float(getattr(demands, field).mean()), "s", standard_error=error, **about)

    single = "" if recorded.steps > 1 else "one step only: its spread is assumed"
    about: dict[str, Any] = {"origin": origin, "note": recorded.note or single}
    rows = [
        parameter(name, field, identified=bool(getattr(demands, field) > 0), **about)
        for field, name in DEMAND_NAMES.items()
    ]
    overlap = recorded.compute - float(demands.worker.mean())  # C - Z
    note = f"{overlap:.3g} s of {recorded.compute:.3g} s computation overlap transfers"
    if overlap < 0:
        note = f"{-overlap:.3g} s more than the {recorded.compute:.3g} s of computation"
    note = f"step time less demands; {note}"
    rows.append(parameter("worker time", "worker", origin="derived", identified=not single, note=note))
    for way, size, link in zip(("down", "up"), recorded.transferred, rows[:2], strict=True):
        if size and link.value > 0:
            rate = size / link.value  # V / D, whose relative error is that of D
            name, error = f"effective bandwidth {way}", rate * link.standard_error / link.value
            note = "bytes over busy time, headers and serialization included"
            rows.append(Parameter(name, rate, "B/s", standard_error=error, origin="derived", note=note))
    return rows


def fit_steps(profile: Profile, *, form: Form, seed: int) -> Fitted:
    """Each demand is the mean over the steps of the time in which the machine was busy, apart from other workers."""
    steps = np.column_stack([profile.values(name) for name in STEP_COLUMNS])
    sizes, servers = transfers(profile)[0].mean(axis=1), servers_of(profile, form)
    scaled = steps[:, :3].mean(axis=0).sum() > steps[:, 3].mean()
    compute, control = float(profile.values("compute").mean()), profile.cluster.congestion_control
    bbr_sharing = _bbr_sharing(profile, sizes) if form == "links" else None
    loss_based = control not in CONTROLS or CONTROLS[control].loss_based
    rng = np.random.default_rng(seed)
    means, resampled = _means(steps, rng), rng.integers(len(steps), size=(STEP_DRAWS, len(steps)))
    mean_demands = _demands(steps.mean(axis=0), _max_transfer_time(profile, servers, sizes, np.arange(len(steps))))
    max_transfer_time = _max_transfer_time(profile, servers, sizes, resampled)
    if (best := best_rates(profile)) is None:
        draws = _demands(means, max_transfer_time)
    else:
        draws = _demands_below_link_rate(profile, means, sizes / best, max_transfer_time)
    desynchronization = _desynchronization(compute - float(mean_demands.worker), steps[:, 3])
    nominal = nominal_bandwidth(profile)
    sharing = None if loss_based else bbr_sharing
    rule = rule_for(servers=servers.count, desynchronization=desynchronization, bbr_sharing=sharing)
    return Fitted(
        demands=remove_contention(mean_demands, servers, rule, profile.cluster.workers),
        draws=remove_contention(draws, servers, rule, profile.cluster.workers),
        job=profile.job,
        servers=servers,
        desynchronization=desynchronization,
        bbr_sharing=sharing,
        slow_connections=best is not None,
        bbr_sharing_if_bbr=bbr_sharing if control == "unknown" and nominal != math.inf else None,
        recorded=Recorded(
            compute=compute,
            transferred=(float(sizes[0]), float(sizes[1])),
            tensor_bytes=tensor_bytes_of(profile),
            bandwidth=nominal,
            steps=len(steps),
            workers=profile.cluster.workers,
            note="transfers overlap each other: scaled to the step time" if scaled else "",
        ),
        remarks=step_remarks(profile),
    )


def step_remarks(profile: Profile) -> tuple[Note, ...]:
    """Notes on what recorded steps of one worker do not determine, and on what contradicts their link."""
    rate = float(_rate(profile, np.arange(len(profile.steps))))
    unfilled = Note(UNFILLED if best_rates(profile) else "", "narrow")
    return Note(SINGLE_WORKER_NOTE), unfilled, Note(contradiction(rate, nominal_bandwidth(profile)), "doubt")


def _bbr_sharing(profile: Profile, sizes: np.ndarray) -> BbrSharing | None:
    """Sharing of the cluster's links by few connections under BBR; None where it is fair."""
    buffer = BUFFER if profile.cluster.buffer is None else profile.cluster.buffer
    return BbrSharing((float(sizes[0]), float(sizes[1])), buffer) if sizes.all() and buffer else None


def servers_of(profile: Profile, form: Form) -> Servers:
    """The profile's servers, in equal shares unless their bytes are recorded."""
    sizes, count = profile.job.shard_bytes, profile.cluster.parameter_servers
    return Servers(form, tuple(size / sum(sizes) for size in sizes) if sum(sizes) else (1.0 / count,) * count)


def tensor_bytes_of(profile: Profile) -> tuple[int, ...]:
    """Sizes of the fetched tensors, by name, of the first step that has operations."""
    for step in profile.steps:
        sizes = {op.name: op.bytes for op in step.operations if op.kind == "fetch"}
        if sizes:
            return tuple(sizes[name] for name in sorted(sizes))
    return ()


def _means(steps: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws of the mean of the steps (n, 4), shape (STEP_DRAWS, 4): Student's t with the covariance of the steps."""
    n, mean = len(steps), steps.mean(axis=0)
    if n == 1:
        return mean * np.exp(ONE_STEP_SPREAD * rng.standard_normal((STEP_DRAWS, 4)))
    # sum_i z_i (x_i - mean) / sqrt(n chi2_(n-1)): covariance S, n - 1 degrees of freedom
    scale = np.sqrt(rng.chisquare(n - 1, (STEP_DRAWS, 1)) * n)
    deviation = rng.standard_normal((STEP_DRAWS, n)) @ (steps - mean) / scale
    return mean * np.exp(np.clip(deviation / np.maximum(mean, 1e-300), -3.0, 3.0))  # as relative errors: positive


def _max_transfer_time(profile: Profile, servers: Servers, sizes: np.ndarray, steps: np.ndarray) -> np.ndarray | float:
    """Seconds (..., 2) for which a link is busy with a step's transfers at most: other time is the worker's."""
    if server_rates := carried_for_several(profile):
        return sizes / server_rates
    if servers.count > 1 and sizes.all():
        return np.asarray(sizes / _rate(profile, steps)[..., None])
    return math.inf


def _rate(profile: Profile, steps: np.ndarray) -> np.ndarray:
    """Bytes per second (...) that a link carries: the faster direction's median of the numbered ``steps`` (..., n).

    One worker's link slows what several servers send at once, and where their connections overflow it, they wait for
    retransmission timers (0.2 s and more): time of that step's, but no link's. Single steps' rates show it, not means.
    """
    size, busy = transfers(profile)
    rates = np.where(busy > 0, size / np.where(busy > 0, busy, 1.0), 0.0)
    return np.maximum(np.median(rates[:, steps], axis=-1).max(axis=0), 1e-300)


def _demands(means: np.ndarray, max_transfer_time: np.ndarray | float) -> Demands:
    """Demands of mean phases and step times (..., 4): they add up to the step."""
    busy, step = means[..., :3].copy(), means[..., 3]
    busy[..., :2] = np.minimum(busy[..., :2], max_transfer_time)
    total = busy.sum(axis=-1)
    # transfers that overlap each other exceed the step: the stations then share it in proportion
    busy = busy * np.minimum(1.0, step / np.maximum(total, 1e-300))[..., None]
    fetch, push, update = np.moveaxis(busy, -1, 0)
    return Demands(fetch, push, update, np.maximum(step - busy.sum(axis=-1), 0.0))  # Z = step - D


def _demands_below_link_rate(
    profile: Profile, means: np.ndarray, best: np.ndarray, shared: np.ndarray | float
) -> Demands:
    """
    Demands of mean phases and step times (B, 4) where one worker does not fill its link, for an unknown cause.

    In half of the draws, the cause delays all workers together, by a share that rises from 0 to 1, so that they share
    the rate of one; in the others it disappears by such a share, so that transfers take as in the best step, ``best``
    seconds (2,), and servers' links of unspecified bandwidth carry more.
    """
    share = np.linspace(-1.0, 1.0, len(means))[:, None]
    delayed, freed = np.maximum(-share, 0.0), np.maximum(share, 0.0)
    busy, step = np.maximum(means[:, :2], best), means[:, 3]
    compute = np.minimum(profile.values("compute").mean(), step)
    step = np.maximum(step - freed[:, 0] * (busy - best).sum(axis=1), compute)
    # D = shared^(1 - delayed) busy^delayed, geometric between a server's link and one worker's rate
    demand = shared * (busy / shared) ** delayed * (1.0 - freed * (nominal_bandwidth(profile) is None))
    return _demands(np.column_stack([means[:, :3], step]), demand)


def _desynchronization(overlap: float, step_times: np.ndarray) -> float:
    """Strength of desynchronization: overlap (s) drives workers apart, the spread of step times (s) mixes them."""
    mean = float(step_times.mean())
    spread = float(step_times.std(ddof=1)) if len(step_times) > 1 else ONE_STEP_SPREAD * mean
    return overlap / (overlap + spread) if overlap > 1e-6 * mean else 0.0


def remove_contention(contended: Demands, servers: Servers, rule: Rule, workers: int) -> Demands:
    """Demands of one worker, from the residence times of ``workers`` at once.

    The network of these demands has the same residence times with ``workers``, and so the throughput (Newton's method
    on their logarithms; a `FitError` where no demands have them).
    """
    if workers == 1:
        return contended
    target = np.maximum(replace(servers, shards=(1.0,)).service_demand(contended), 1e-300)
    shares = np.array(servers.shards)[:, None]

    def excess(logs: np.ndarray) -> np.ndarray:  # log R_n(D) - log R, at D = R exp(logs)
        D = (shares * (target * np.exp(logs))[..., None, :]).reshape(*target.shape[:-1], -1)
        R = rule.solve(D, contended.worker, np.array([workers])).R[0].reshape(*target.shape[:-1], servers.count, -1)
        return np.log(R.sum(axis=-2) / target)

    # D = R / (1 + (n - 1) R / cycle): an arrival sees the mean queue of the others (Schweitzer, 1979)
    logs = -np.log1p((workers - 1) * target / contended.total[..., None])
    for _ in range(50):
        residual, h = excess(logs), 1e-6
        if np.abs(residual).max() < 1e-9:
            stations = enumerate(FORMS[servers.form].values())
            demands = {name: getattr(contended, name) * np.exp(logs[..., k]) for k, names in stations for name in names}
            return replace(contended, **demands)
        jacobian = [(excess(logs + h * unit) - residual) / h for unit in np.eye(target.shape[-1])]  # by differences
        logs = logs - np.clip(np.linalg.solve(np.stack(jacobian, axis=-1), residual[..., None])[..., 0], -1.0, 1.0)
    raise FitError(
        f"fit: the profile's steps with {workers} workers fit no network; profile one worker, or fit its throughputs"
    )


def own_scv(profile: Profile) -> float:
    """Squared coefficient of variation of the recorded computations; 5 % squared for one step."""
    computed = profile.values("compute")
    if len(computed) < 2 or not computed.mean() > 0:
        return ASSUMED_SCV
    return float(computed.var(ddof=1) / computed.mean() ** 2)
