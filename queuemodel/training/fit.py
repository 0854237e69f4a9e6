"""From measurements to a model: profiled steps, throughputs, or both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..errors import ModelError
from .model import FETCH, FORMS, MODEL_ERROR, PUSH, THINK, UPDATE, Form, Parameter, TrainingModel
from .profile import Job, Profile, Throughput

#: How often the profiled steps are resampled.
RESAMPLES = 400

#: Relative standard error of one measured throughput (2 to 4 % in a minute's run).
THROUGHPUT_ERROR = 0.03

#: How far contention may change the servers' demands against one worker's profile: standard deviation of its logarithm.
CONTENTION_SPREAD = 0.3

#: Sharing a link does not speed it up: how far the profile's demands may have been too long.
RELIEF_SPREAD = 0.05

LOOPBACK = ("127.", "localhost", "::1", "[::1]")


def fit(
    data: Profile | Sequence[Throughput],
    *,
    throughputs: Sequence[Throughput] = (),
    form: Form = "links",
    batch_size: int = 1,
    parameter_bytes: float | None = None,
    seed: int = 0,
) -> TrainingModel:
    """Fit the closed network of a training job.

    From profiled steps, each demand is the mean over the steps of the time in which the link, or the server, was busy
    with this worker. The worker's own time is what remains of the step: step time - fetch - push - update. TensorFlow
    overlaps computation with communication, so that this is less than the computation: only so does the model take as
    long for one worker as was measured (docs/explanation/model). From throughputs alone only the server's total demand
    and the rest of the cycle can be estimated, `fit_throughputs` says how. With both, one worker's throughput tells
    what tracing cost, and those of more workers how contention changes the servers' demands: these are scaled to meet
    the throughputs, weighing both by their errors (maximum a posteriori, normal approximation).

    Parameters
    ----------
    data : Profile, or sequence of Throughput
    throughputs : sequence of Throughput
        Measured for other node counts, besides those in the profile.
    form : {"links", "single"}
        Separate transmit link, receive link and update stations, or one parameter-server station for all three.
    batch_size, parameter_bytes
        Of the job, for a fit from throughputs alone; a profile has its own.
    seed : int
        Of the resampling.

    Returns
    -------
    TrainingModel

    Raises
    ------
    FitError
        When there is nothing to fit.
    ModelError
        For an unknown form.
    """
    if form not in FORMS:
        raise ModelError(f"fit: form must be one of {', '.join(map(repr, FORMS))}, got {form!r}")
    if isinstance(data, Profile):
        measured = [*data.throughputs, *throughputs]
        if not data.steps:
            return _from_throughputs(measured, data.job)
        model = _without_tracing(fit_steps(data, form=form, seed=seed), measured)
        several = any(point.workers > 1 for point in measured)
        return _calibrate(model, measured, seed=seed) if several else model
    measured = [*data, *throughputs]
    job = Job(batch_size=batch_size, parameter_bytes=int(parameter_bytes or 0), tensors=0)
    return _from_throughputs(measured, job)


def _from_throughputs(measured: list[Throughput], job: Job) -> TrainingModel:
    from .throughput_fit import fit_throughputs

    return fit_throughputs(measured, job=job)


def fit_steps(profile: Profile, *, form: Form, seed: int) -> TrainingModel:
    """The model of the profiled steps alone."""
    steps = np.column_stack([profile.values(name) for name in ("fetch", "push", "update", "step_time")])
    pick = np.random.default_rng(seed).integers(0, len(steps), (RESAMPLES, len(steps)))
    servers = profile.cluster.parameter_servers
    sizes = np.array([profile.values(name).mean() for name in ("fetched_bytes", "pushed_bytes")])
    demands, draws = (_demands(means, sizes, servers) for means in (steps.mean(axis=0), steps[pick].mean(axis=1)))
    compute = float(profile.values("compute").mean())
    transferred = (float(sizes[0]), float(sizes[1]))
    hosts = list(profile.source.hosts.values())
    loopback = bool(hosts) and all(host.startswith(LOOPBACK) for host in hosts)
    shard_bytes = profile.job.shard_bytes
    shards = tuple(s / sum(shard_bytes) for s in shard_bytes) if sum(shard_bytes) else None
    return TrainingModel(
        tuple(_step_parameters(profile, steps, demands, draws, compute, transferred)),
        demands,
        draws,
        profile.job,
        form=form,
        shards=shards or (1.0 / servers,) * servers,
        compute=compute,
        transferred=transferred,
        tensor_bytes=_tensor_bytes(profile),
        bandwidth=profile.cluster.bandwidth or (math.inf if loopback else None),
        profiled_workers=profile.cluster.workers,
        note="one worker's steps cannot show what happens when several connections share a link",
    )


def _tensor_bytes(profile: Profile) -> tuple[int, ...]:
    """Sizes of the fetched tensors, by name, of the first step that has operations."""
    for step in profile.steps:
        sizes = {op.name: op.bytes for op in step.operations if op.kind == "fetch"}
        if sizes:
            return tuple(sizes[name] for name in sorted(sizes))
    return ()


def _demands(means: np.ndarray, sizes: np.ndarray, servers: int) -> np.ndarray:
    """Demands (..., 4) of mean fetch, push, update and step times (..., 4), so that they add up to the step."""
    busy, step = means[..., :3].copy(), means[..., 3]
    if servers > 1 and sizes.all():
        # One worker's link slows what several servers send at once; the faster direction shows what a link carries.
        rate = (sizes / np.maximum(busy[..., :2], 1e-300)).max(axis=-1, keepdims=True)
        busy[..., :2] = np.minimum(busy[..., :2], sizes / rate)
    total = busy.sum(axis=-1)
    # Transfers that overlap each other exceed the step: the stations then share it in proportion.
    busy = busy * np.minimum(1.0, step / np.maximum(total, 1e-300))[..., None]
    return np.concatenate([busy, (step - busy.sum(axis=-1))[..., None].clip(min=0.0)], axis=-1)


def _step_parameters(
    profile: Profile,
    steps: np.ndarray,
    demands: np.ndarray,
    draws: np.ndarray,
    compute: float,
    transferred: tuple[float, float],
) -> list[Parameter]:
    errors = draws.std(axis=0) if len(steps) > 1 else np.full(4, math.nan)
    enough = len(steps) > 1
    few = "" if enough else "one step only: no standard error"
    scaled = steps[:, :3].mean(axis=0).sum() > steps[:, 3].mean()
    note = "transfers overlap each other: scaled to the step time" if scaled else few
    rows = [
        Parameter(
            name, float(demands[k]), "s", standard_error=float(errors[k]), identified=bool(demands[k] > 0), note=n
        )
        for k, name, n in (
            (FETCH, "transmit link demand", note),
            (PUSH, "receive link demand", note),
            (UPDATE, "server update demand", few),
        )
    ]
    overlap = compute - demands[THINK]
    rows.append(
        Parameter(
            "worker time",
            float(demands[THINK]),
            "s",
            standard_error=float(errors[THINK]),
            origin="derived",
            identified=enough,
            note=f"step time less demands; {overlap:.3g} s of {compute:.3g} s computation overlap transfers",
        )
    )
    for name, size, phase in (("down", transferred[0], FETCH), ("up", transferred[1], PUSH)):
        if size and demands[phase] > 0:
            rate = size / demands[phase]
            rows.append(
                Parameter(
                    f"effective bandwidth {name}",
                    float(rate),
                    "B/s",
                    standard_error=float(rate * errors[phase] / demands[phase]),
                    origin="derived",
                    note="bytes over busy time, headers and serialization included",
                )
            )
    rows.append(Parameter("contention", 1.0, "", origin="assumed", identified=False, note="needs two or more workers"))
    return rows


def untraced_throughput(measured: Sequence[Throughput], servers: int) -> float | None:
    """Mean measured steps per second of one worker, which tracing did not slow; None where there is none."""
    alone = [p.steps_per_second for p in measured if p.workers == 1 and p.parameter_servers == servers]
    return float(np.mean(alone)) if alone else None


def _without_tracing(model: TrainingModel, measured: Sequence[Throughput]) -> TrainingModel:
    """Shrink everything by what tracing cost, known from the throughput of one worker."""
    untraced = untraced_throughput(measured, model.parameter_servers)
    if untraced is None:
        return model
    overhead = untraced * float(model.demands.sum())
    seconds = [
        replace(p, value=p.value / overhead, standard_error=p.standard_error / overhead) if p.unit == "s" else p
        for p in model.parameters
    ]
    rates = [replace(p, value=p.value * overhead) if p.unit == "B/s" else p for p in seconds]
    note = "traced over untraced step time; every demand is divided by it"
    return replace(
        model,
        parameters=(*rates, Parameter("tracing overhead", overhead, "", standard_error=THROUGHPUT_ERROR, note=note)),
        demands=model.demands / overhead,
        draws=model.draws / overhead,
        compute=model.compute / overhead,
        measured=tuple((p.workers, p.parameter_servers, p.steps_per_second) for p in measured),
    )


def _calibrate(model: TrainingModel, measured: list[Throughput], *, seed: int) -> TrainingModel:
    """Scale the servers' demands and the worker's time to meet measured throughputs as well."""
    from scipy.optimize import least_squares

    groups: dict[int, list[Throughput]] = {}
    for point in measured:
        groups.setdefault(point.parameter_servers, []).append(point)
    relative = np.array(
        [
            CONTENTION_SPREAD,
            float(np.hypot(0.05, model.draws[:, THINK].std() / max(model.demands[THINK], 1e-12))),
        ]
    )

    def scaled(logs: np.ndarray) -> TrainingModel:
        factor = np.exp([logs[0], logs[0], logs[0], logs[1]])
        return replace(model, demands=model.demands * factor, draws=model.draws[:1] * factor)

    def differences(logs: np.ndarray) -> np.ndarray:
        changed = scaled(logs)
        logs_of: list[float] = []
        for servers, points in groups.items():
            curve = changed.what_if(parameter_servers=servers).throughput(range(1, max(p.workers for p in points) + 1))
            logs_of.extend(np.log(curve.at(p.workers) / p.steps_per_second) for p in points)
        return np.array(logs_of)

    # Around the knee the model itself errs, whatever its parameters: no point is trusted beyond that.
    trusted = np.array(
        [
            THROUGHPUT_ERROR if p.workers == 1 else math.hypot(THROUGHPUT_ERROR, MODEL_ERROR)
            for points in groups.values()
            for p in points
        ]
    )

    def residuals(logs: np.ndarray) -> np.ndarray:
        prior = relative if logs[0] > 0 else np.array([RELIEF_SPREAD, relative[1]])
        return np.concatenate([logs / prior, differences(logs) / trusted])

    found = least_squares(residuals, np.zeros(2))
    covariance = np.linalg.inv(found.jac.T @ found.jac)
    logs = np.random.default_rng(seed).multivariate_normal(found.x, covariance, len(model.draws))
    factors = np.exp(logs[:, [0, 0, 0, 1]])
    demands = scaled(found.x).demands
    contention, spread = float(np.exp(found.x[0])), float(np.sqrt(covariance[0, 0]))
    parameters = [
        replace(p, value=p.value * contention) if p.name.endswith("demand") else p
        for p in model.parameters
        if p.name not in ("contention", "worker time")
    ]
    parameters += [
        Parameter(
            "worker time", float(demands[THINK]), "s", standard_error=float(demands[THINK] * covariance[1, 1] ** 0.5),
            origin="derived", note="step time less demands, adjusted to the measured throughputs",
        ),
        Parameter(
            "contention", contention, "", standard_error=contention * spread,
            origin="measured", identified=spread < 0.5 * CONTENTION_SPREAD,
            note="factor on the servers' demands against one worker's profile",
        ),
    ]  # fmt: skip
    return replace(
        model,
        parameters=tuple(parameters),
        demands=demands,
        draws=model.draws.mean(axis=0) * factors,
        misfit=float(np.sqrt(np.mean(differences(found.x) ** 2))),
        profiled_workers=max(model.profiled_workers, *(p.workers for p in measured)),
        measured=tuple((p.workers, p.parameter_servers, p.steps_per_second) for p in measured),
        note="",
    )
