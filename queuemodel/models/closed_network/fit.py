"""What a fit found out about a job on the machines that it was measured on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...base.errors import FitError
from ...base.estimates import Origin, Parameter, standard_errors
from ...base.files import constants
from ...base.results import Note
from ...profile.bandwidth import UNFILLED, best_rates, carried_for_several, contradiction, nominal_bandwidth
from ...profile.job import Job
from ...profile.measurements import Measurement
from ...profile.profile import Profile
from ...transport.sharing import BUFFER, CONTROLS, BbrSharing
from .demands import FORMS, Demands, Form, Servers
from .rules import Rule, rule_for

#: Names of the demands at the servers.
DEMAND_NAMES = {"fetch": "transmit link demand", "push": "receive link demand", "update": "server update demand"}


@dataclass(frozen=True, slots=True)
class Recorded:
    """What only recorded steps determine, and what-ifs need."""

    compute: float  # Seconds of computation per step, overlapped or not; what a faster accelerator shortens
    transferred: tuple[float, float]  # Bytes per step from and to the servers
    #: Sizes of the parameters' tensors in their order, when known: what is dealt to several servers
    tensor_bytes: tuple[int, ...] = ()
    #: Bytes per second of each host's link when profiled; infinite on loopback, None when not known
    bandwidth: float | None = None
    steps: int = 1  # steps, workers: How many steps were recorded, and with how many workers at work
    workers: int = 1
    note: str = ""  # What to know about the demands at the servers


@dataclass(frozen=True, eq=False, kw_only=True)
class Fitted:
    """What a fit found out about a job on the machines that it was measured on."""

    demands: Demands  # Of shape ()
    draws: Demands  # The same, resampled, shape (B,): the fit's uncertainty
    job: Job
    servers: Servers
    recorded: Recorded
    #: desynchronization, bbr_sharing: How equal workers meet at shared links, see `rules.ParallelServers`
    desynchronization: float = 0.0
    bbr_sharing: BbrSharing | None = None
    bbr_sharing_if_bbr: BbrSharing | None = None  # Those that there are if TCP's control, which is unknown, is BBR
    slow_connections: bool = False  # Whether one worker alone does not fill its links
    measured: tuple[Measurement, ...] = ()
    others: tuple[Parameter, ...] = ()  # Parameters that do not follow from the demands
    remarks: tuple[Note, ...] = ()  # What this fit cannot know
    contradiction: str = ""  # Which throughputs contradict the profile; empty for none


def step_parameters(
    demands: Demands, draws: Demands, recorded: Recorded, *, origin: Origin = "measured"
) -> list[Parameter]:
    """Demands and effective bandwidths, with the spread of the draws as their errors."""

    def parameter(name: str, field: str, **about: Any) -> Parameter:
        error = float(standard_errors(getattr(draws, field)).mean())
        return Parameter(name, float(getattr(demands, field).mean()), "s", standard_error=error, **about)

    few = "" if recorded.steps > 1 else "one step only: its spread is assumed"
    rows = [
        parameter(name, field, origin=origin, identified=bool(getattr(demands, field) > 0), note=recorded.note or few)
        for field, name in DEMAND_NAMES.items()
    ]
    overlap = recorded.compute - float(demands.worker.mean())
    what = f"{overlap:.3g} s of {recorded.compute:.3g} s computation overlap transfers"
    if overlap < 0:
        what = f"{-overlap:.3g} s more than the {recorded.compute:.3g} s of computation"
    note = f"step time less demands; {what}"
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


#: How often the mean of the profiled steps is drawn.
STEP_DRAWS = 400

#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["fit"]
ONE_STEP_SPREAD = _NUMBERS["one_step_spread"]

PHASES = ("fetch", "push", "update", "step_time")

#: What one worker does not determine.
SINGLE_WORKER_NOTE = "one worker's steps do not determine how several connections share a link"


def fit_steps(profile: Profile, *, form: Form, seed: int) -> Fitted:
    """Each demand is the mean over the steps of the time in which the machine was busy, apart from other workers."""
    steps = np.column_stack([profile.values(name) for name in PHASES])
    sizes = np.array([profile.values(name).mean() for name in ("fetched_bytes", "pushed_bytes")])
    servers = servers_of(profile, form)
    scaled = steps[:, :3].mean(axis=0).sum() > steps[:, 3].mean()
    compute, control = float(profile.values("compute").mean()), profile.cluster.congestion_control
    bbr_sharing = _bbr_sharing(profile, sizes) if form == "links" else None
    fills = control not in CONTROLS or CONTROLS[control].loss_based
    rng = np.random.default_rng(seed)
    drawn = _means(steps, rng), rng.integers(len(steps), size=(STEP_DRAWS, len(steps)))
    seen = [
        _demands(means, _max_transfer_time(profile, servers, sizes, which))
        for means, which in ((steps.mean(axis=0), np.arange(len(steps))), drawn)
    ]
    if (best := best_rates(profile)) is not None:
        seen[1] = _demands_below_link_rate(
            profile, drawn[0], sizes / best, _max_transfer_time(profile, servers, sizes, drawn[1])
        )
    desynchronization = _desynchronization(compute - float(seen[0].worker), steps[:, 3])
    nominal = nominal_bandwidth(profile)
    rule = rule_for(
        servers=servers.count,
        unequal=False,
        desynchronization=desynchronization,
        bbr_sharing=None if fills else bbr_sharing,
    )
    demands, draws = (remove_contention(one, servers, rule, profile.cluster.workers) for one in seen)
    return Fitted(
        demands=demands,
        draws=draws,
        job=profile.job,
        servers=servers,
        desynchronization=desynchronization,
        bbr_sharing=None if fills else bbr_sharing,
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
    """What recorded steps of one worker cannot show, and what is odd about them."""
    rate = float(_rate(profile, np.arange(len(profile.steps))))
    unfilled = Note(UNFILLED if best_rates(profile) else "", "narrow")
    return Note(SINGLE_WORKER_NOTE), unfilled, Note(contradiction(rate, nominal_bandwidth(profile)), "doubt")


def _bbr_sharing(profile: Profile, sizes: np.ndarray) -> BbrSharing | None:
    """How few connections share a link of the cluster under BBR; None where that is nothing but fair sharing."""
    buffer = BUFFER if profile.cluster.buffer is None else profile.cluster.buffer
    return BbrSharing((float(sizes[0]), float(sizes[1])), buffer) if sizes.all() and buffer else None


def servers_of(profile: Profile, form: Form) -> Servers:
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
    scale = np.sqrt(rng.chisquare(n - 1, (STEP_DRAWS, 1)) * n)
    off = rng.standard_normal((STEP_DRAWS, n)) @ (steps - mean) / scale
    return mean * np.exp(np.clip(off / np.maximum(mean, 1e-300), -3.0, 3.0))


def _max_transfer_time(profile: Profile, servers: Servers, sizes: np.ndarray, which: np.ndarray) -> np.ndarray | float:
    """Seconds (..., 2) for which a link is busy with a step's transfers at most: other time is the worker's."""
    if several := carried_for_several(profile):
        return sizes / several
    if servers.count > 1 and sizes.all():
        return np.asarray(sizes / _rate(profile, which)[..., None])
    return math.inf


def _rate(profile: Profile, which: np.ndarray) -> np.ndarray:
    """Bytes per second (...) that a link carries: the faster direction's, in half of the steps ``which`` (..., n).

    One worker's link slows what several servers send at once, and where their connections overflow it, they wait for
    retransmission timers (0.2 s and more): time of that step's, but no link's. Single steps' rates show it, not means.
    """
    ways = (("fetched_bytes", "fetch"), ("pushed_bytes", "push"))
    size, busy = (np.array([profile.values(way[i]) for way in ways]) for i in (0, 1))
    rates = np.where(busy > 0, size / np.where(busy > 0, busy, 1.0), 0.0)
    return np.maximum(np.median(rates[:, which], axis=-1).max(axis=0), 1e-300)


def _demands(means: np.ndarray, most: np.ndarray | float) -> Demands:
    """Demands of mean phases, transfers at most so long, and step times (..., 4): they add up to the step."""
    busy, step = means[..., :3].copy(), means[..., 3]
    busy[..., :2] = np.minimum(busy[..., :2], most)
    total = busy.sum(axis=-1)
    # Transfers that overlap each other exceed the step: the stations then share it in proportion.
    busy = busy * np.minimum(1.0, step / np.maximum(total, 1e-300))[..., None]
    fetch, push, update = np.moveaxis(busy, -1, 0)
    return Demands(fetch, push, update, np.maximum(step - busy.sum(axis=-1), 0.0))


def _demands_below_link_rate(
    profile: Profile, means: np.ndarray, best: np.ndarray, shared: np.ndarray | float
) -> Demands:
    """
    Demands of mean phases and step times (B, 4) where one worker does not fill its link, for an unknown cause.

    Half of the draws have it hold up all workers together, from not at all to altogether, so that they share what one
    gets; in the others it goes away, so that each gets on as in the best step, whose transfers took so long (2,), and
    servers' links of unspecified bandwidth carry more.
    """
    share = np.linspace(-1.0, 1.0, len(means))[:, None]
    held, freed = np.maximum(-share, 0.0), np.maximum(share, 0.0)
    busy, step = np.maximum(means[:, :2], best), means[:, 3]
    compute = np.minimum(profile.values("compute").mean(), step)
    step = np.maximum(step - freed[:, 0] * (busy - best).sum(axis=1), compute)
    most = shared * (busy / shared) ** held * (1.0 - freed * (nominal_bandwidth(profile) is None))
    return _demands(np.column_stack([means[:, :3], step]), most)


def _desynchronization(overlap: float, step_times: np.ndarray) -> float:
    """How firmly workers settle in opposite phases: overlap drives them apart, what steps vary (s) mixes them."""
    mean = float(step_times.mean())
    spread = float(step_times.std(ddof=1)) if len(step_times) > 1 else ONE_STEP_SPREAD * mean
    return overlap / (overlap + spread) if overlap > 1e-6 * mean else 0.0


def remove_contention(seen: Demands, servers: Servers, rule: Rule, workers: int) -> Demands:
    """What one worker alone demands, where ``workers`` at once were seen to spend so long at the servers each.

    The network of these demands has, at that many workers, the residence times that were seen (Newton's method on
    their logarithms), and so the throughput.

    Raises
    ------
    FitError
        When no demands explain what was seen.
    """
    if workers == 1:
        return seen
    target = np.maximum(replace(servers, shards=(1.0,)).service_demand(seen), 1e-300)
    shares = np.array(servers.shards)[:, None]

    def excess(logs: np.ndarray) -> np.ndarray:
        D = (shares * (target * np.exp(logs))[..., None, :]).reshape(*target.shape[:-1], -1)
        R = rule.solve(D, seen.worker, np.array([workers])).R[0].reshape(*target.shape[:-1], servers.count, -1)
        return np.log(R.sum(axis=-2) / target)

    # to begin with, an arrival sees what one worker less has on average (Schweitzer, 1979)
    logs = -np.log1p((workers - 1) * target / seen.total[..., None])
    for _ in range(50):
        off, h = excess(logs), 1e-6
        if np.abs(off).max() < 1e-9:
            served = FORMS[servers.form].values()
            alone = {
                name: getattr(seen, name) * np.exp(logs[..., k]) for k, names in enumerate(served) for name in names
            }
            return replace(seen, **alone)
        slopes = [(excess(logs + h * unit) - off) / h for unit in np.eye(target.shape[-1])]
        logs = logs - np.clip(np.linalg.solve(np.stack(slopes, axis=-1), off[..., None])[..., 0], -1.0, 1.0)
    raise FitError(
        f"fit: the profile's steps with {workers} workers fit no network; profile one worker, or fit its throughputs"
    )


ASSUMED_SCV = _NUMBERS["assumed_scv"]


def own_scv(profile: Profile) -> float:
    """Squared coefficient of variation of the recorded computations; 5 % squared for one step."""
    computed = profile.values("compute")
    if len(computed) < 2 or not computed.mean() > 0:
        return ASSUMED_SCV
    return float(computed.var(ddof=1) / computed.mean() ** 2)
