"""From measurements to a model: profiled steps, throughputs, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, overload

import msgspec

from ..checks import require_choice, require_count, require_number, require_seed
from ..errors import FitError, ModelError
from .bandwidth import best_rates
from .calibration import calibrate, contradiction, goes_further, without_tracing
from .demands import FORMS, Form
from .growth import STRATEGIES, RoundModel, Strategy, fit_rounds, fit_throughputs
from .job import Job, Throughput
from .model import TrainingModel
from .profile import Profile
from .step_fit import fit_steps
from .throughputs import on_profiled_links, require_measured, warn_of_rounds

#: What is assumed of throughputs alone where no strategy is given.
ASSUMED = "assuming asynchronous parameter servers (strategy async-ps)"
#: What may be told of throughputs alone, and of which training.
TOLD_OF: dict[str, tuple[Strategy, ...]] = {
    "sparse_gradients": ("sync-ps", "all-reduce"),
    "ranks_per_node": ("all-reduce",),
}


@overload
def fit(
    data: Profile | Sequence[Throughput], *, strategy: Literal["async-ps"] | None = ..., **settings: Any
) -> TrainingModel: ...


@overload
def fit(data: Profile | Sequence[Throughput], *, strategy: Strategy, **settings: Any) -> TrainingModel | RoundModel: ...


def fit(  # type: ignore[misc]  # the settings are those below
    data: Profile | Sequence[Throughput],
    *,
    throughputs: Sequence[Throughput] = (),
    form: Form = "links",
    batch_size: int | None = None,
    parameter_bytes: float | None = None,
    strategy: Strategy | None = None,
    sparse_gradients: bool = False,
    ranks_per_node: int | None = None,
    seed: int = 0,
) -> TrainingModel | RoundModel:
    """Fit the closed network of a training job.

    From profiled steps, each demand is the mean over the steps of the time in which the link, or the server, was busy
    with this worker. The worker's own time is what remains of the step: step time - fetch - push - update. TensorFlow
    overlaps computation with communication, so that this is less than the computation: only so does the model take as
    long for one worker as was measured (docs/explanation/model). From throughputs alone only the server's total demand
    and the rest of the cycle can be estimated, `fit_throughputs` says how. With both, one worker's throughput tells
    what tracing cost, and those of more workers how contention changes the servers' demands, and how far the network
    itself errs there: they weigh all of these by likelihood, and bend the curve (Kennedy and O'Hagan, 2001).

    Parameters
    ----------
    data : Profile, or sequence of Throughput
    throughputs : sequence of Throughput
        Measured for other node counts, besides those in the profile.
    form : {"links", "single"}
        Separate transmit link, receive link and update stations, or one parameter-server station for all three.
    batch_size, parameter_bytes
        Of the job, for a fit from throughputs alone (1 and not known, unless given); a profile has its own. The bytes
        say about where servers of asynchronous training saturate, and more with the bandwidth of their links, which all
        throughputs may have; of rounds they do not tell it, which the note says.
    strategy : {"async-ps", "sync-ps", "all-reduce"}
        How the workers of a fit from throughputs alone wait for each other: not at all, which is assumed unless it is
        given, or in rounds that end at the parameter servers or in an all-reduce.
    sparse_gradients : bool
        That most parameters are embeddings, of which a step touches few rows: rounds gather these rows instead of
        adding gradients up, and grow with the group. False: not known. For throughputs of synchronous training alone.
    ranks_per_node : int, optional
        Of throughputs of all-reduce alone, whose workers are ranks on whole nodes: most of what a ring sends crosses
        the network from the second node on, and grows little after.
    seed : int
        Of the resampling.

    Returns
    -------
    TrainingModel, or RoundModel for synchronous training

    Raises
    ------
    DataError
        For a throughput that the profile rules out.
    FitError
        When there is nothing to fit.
    ModelError
        For what is neither profile nor throughputs, an unknown form, what a profile has of its own, or what such
        throughputs have no use for.

    Warns
    -----
    QueueModelWarning
        Where throughputs of synchronous training look like rounds per second.
    """
    require_choice(form, "fit: form", FORMS)
    require_seed(seed, "fit: seed")
    require_choice(strategy or "async-ps", "fit: strategy", STRATEGIES)
    if isinstance(data, Profile) and (batch_size is not None or parameter_bytes is not None):
        raise ModelError("fit: batch_size and parameter_bytes are for throughputs alone; a profile has its own")
    require_measured(data, "fit")
    told = {"sparse_gradients": sparse_gradients, "ranks_per_node": ranks_per_node}
    require_told_of(data, told, strategy or "async-ps", "fit")
    measured = [*(data.throughputs if isinstance(data, Profile) else data), *throughputs]
    for point in measured:
        if not isinstance(point, Throughput):
            raise ModelError(
                f"fit: expected a Profile or Throughputs, got {type(point).__name__}; "
                "files are read by Profile.load and read_throughputs"
            )
    if not isinstance(data, Profile):
        job = Job(
            batch_size=require_count(1 if batch_size is None else batch_size, "fit: batch_size", most=2**62),
            parameter_bytes=int(require_number(parameter_bytes or 0, "fit: parameter_bytes", largest=2**62)),
            tensors=0,
        )
        return _from_throughputs(measured, job, strategy, told, None)
    measured = on_profiled_links(measured, data)
    if data.rounds and not (data.steps or measured):
        raise FitError("fit: the profile has synchronous rounds only; ask `predict`, or `strategies.fit_rounds`")
    if not data.steps:
        return _from_throughputs(measured, data.job, strategy, told, data.cluster.bandwidth)
    if strategy not in (None, "async-ps"):
        raise ModelError(
            f"fit: strategy {strategy!r} needs throughputs alone; the closed network of recorded steps is asynchronous"
        )
    fitted = fit_steps(data, form=form, seed=seed)
    against = contradiction(measured, fitted, held_up=best_rates(data) is not None)
    fitted = without_tracing(replace(fitted, measured=tuple(measured), contradiction=against), seed=seed)
    if goes_further(measured, fitted.servers.count):
        fitted = calibrate(fitted, seed=seed)
    return TrainingModel(fitted)


def require_told_of(data: object, told: dict[str, Any], strategy: str, where: str) -> None:
    """Refuse to be told what would not be used."""
    alone = not isinstance(data, Profile) or not (data.steps or data.rounds)
    for name, value in told.items():
        if value not in (None, False) and not (alone and strategy in TOLD_OF[name]):
            kinds = " or ".join(TOLD_OF[name])
            raise ModelError(f"{where}: {name} is for throughputs of {kinds} alone; leave it out")


def _from_throughputs(
    measured: list[Throughput], job: Job, strategy: Strategy | None, told: dict[str, Any], profiled: float | None
) -> TrainingModel | RoundModel:
    links = {point.bandwidth for point in measured}
    if len(links) > 1 or (profiled is not None and links != {None}):
        raise FitError("fit: throughputs alone cannot tell what another bandwidth does; give those of one bandwidth")
    link = next(iter(links), None) or profiled
    measured = [msgspec.structs.replace(point, bandwidth=None) for point in measured]
    if strategy is None or strategy == "async-ps":
        fitted = fit_throughputs(measured, job=job, link=link)
        return TrainingModel(fitted if strategy else replace(fitted, assumption=ASSUMED))
    model = fit_rounds(measured, job=job, strategy=strategy, **told)
    warn_of_rounds(measured)
    return model
