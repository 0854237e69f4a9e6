"""The fitted model: service demands of one training step, their uncertainty, and what follows from changing them."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

import numpy as np

from ..errors import ModelError
from ..network import Network, Station
from ..solvers import asymptotic_bounds, knee_throughput, saturation_population
from ..solvers.mva import mva_recursion
from ..tables import html_table, text_table
from .curve import ThroughputCurve
from .profile import Job
from .recursions import parallel_servers, unequal_workers

#: Columns of a demand array: seconds per step, of one worker's step alone in the cluster.
FETCH, PUSH, UPDATE, THINK = range(4)

#: What each form of the network has as stations, and which demands each serves.
FORMS: dict[str, dict[str, tuple[int, ...]]] = {
    "links": {"transmit link": (FETCH,), "receive link": (PUSH,), "server update": (UPDATE,)},
    "single": {"parameter server": (FETCH, PUSH, UPDATE)},
}
Form = Literal["links", "single"]
Origin = Literal["measured", "derived", "assumed"]

#: Share of a link's nominal bandwidth that carries tensors: what is left of 1514 bytes on the wire after Ethernet, IP,
#: TCP (with timestamps) and gRPC headers.
LINK_EFFICIENCY = 0.95

#: Relative error beyond one profiled worker: 8.4 % root mean square over docs/validation's testbed series, rounded.
MODEL_ERROR = 0.08

MOST_WORKERS = 10_000


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


@dataclass(frozen=True, eq=False)
class TrainingModel:
    """Asynchronous SGD on a parameter server as a closed network with one customer per worker.

    Made by `fit`; changed by `what_if`; asked by `throughput`.

    Attributes
    ----------
    parameters : tuple of Parameter
    demands : ndarray, shape (4,)
        Seconds per step on the server's transmit link, its receive link and its update processor, and of the worker
        alone (the last already corrected for overlap).
    draws : ndarray, shape (B, 4)
        The same, resampled: the fit's uncertainty.
    job : Job
    form : {"links", "single"}
    discipline : {"ps", "fcfs"}
        Processor sharing, where only the means of service times matter, or first-come-first-served, where low
        variability sharpens the knee.
    width : float
        The knee's width under first-come-first-served, see `knee_width`.
    draw_widths : ndarray, shape (B,), or None
        The same, one per draw.
    shards : tuple of float
        Share of the parameters on each server.
    compute : float
        Seconds of computation per step, overlapped or not; what a faster accelerator shortens.
    transferred : tuple of float
        Bytes per step from and to the servers.
    tensor_bytes : tuple of int
        Sizes of the parameters' tensors in their order, when known: what is dealt to several servers.
    bandwidth : float or None
        Bytes per second of each host's link when profiled; infinite on loopback, None when not known.
    profiled_workers : int
    measured : tuple of (workers, parameter servers, steps per second)
    misfit : float
        Root mean square relative difference from the throughputs that the model was fitted to.
    average : bool
        Whether predictions average over `draws` (wide posteriors) instead of using `demands`.
    note : str
        What this fit cannot know.
    """

    parameters: tuple[Parameter, ...]
    demands: np.ndarray
    draws: np.ndarray
    job: Job
    _: KW_ONLY
    form: Form = "links"
    discipline: Literal["ps", "fcfs"] = "ps"
    width: float = 0.65
    draw_widths: np.ndarray | None = None
    shards: tuple[float, ...] = (1.0,)
    compute: float = 0.0
    transferred: tuple[float, float] = (0.0, 0.0)
    tensor_bytes: tuple[int, ...] = ()
    bandwidth: float | None = None
    worker_speeds: tuple[float, ...] = ()
    profiled_workers: int = 1
    measured: tuple[tuple[int, int, float], ...] = ()
    misfit: float = 0.0
    average: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        self.demands.flags.writeable = False
        self.draws.flags.writeable = False

    @property
    def parameter_servers(self) -> int:
        """How many servers share the parameters."""
        return len(self.shards)

    def stations(self) -> list[tuple[str, tuple[int, ...], float]]:
        """Name, demand columns and shard of each station."""
        many = self.parameter_servers > 1
        return [
            (f"{name} {server}" if many else name, columns, share)
            for server, share in enumerate(self.shards)
            for name, columns in FORMS[self.form].items()
        ]

    def service_demand(self, demands: np.ndarray) -> np.ndarray:
        """Demands per station, shape (..., K), of demands per phase, shape (..., 4)."""
        return np.stack([demands[..., list(c)].sum(axis=-1) * share for _, c, share in self.stations()], axis=-1)

    def network(self) -> Network:
        """The closed network; its population is the number of workers."""
        named = zip(self.stations(), self.service_demand(self.demands), strict=True)
        queues = [Station(name, service_time=float(demand)) for (name, _, _), demand in named]
        worker = Station("worker", service_time=float(self.demands[THINK]), servers=math.inf)
        return Network((*queues, worker), name=self.job.name)

    def throughput(self, workers: int | Iterable[int] = range(1, 33), *, confidence: float = 0.9) -> ThroughputCurve:
        """Predict throughput against the number of workers.

        Mean-value analysis, exact for processor-sharing stations with any service distribution (Reiser and Lavenberg,
        1980; Baskett, Chandy, Muntz and Palacios, 1975). Under first-come-first-served the knee is sharper, see
        `queuemodel.solvers.knee_throughput` (approximate). Unequal workers: exact mean-value analysis with a
        job class per speed; its uncertainty by Bard's approximation (1979).

        Parameters
        ----------
        workers : iterable of int
            Increasing numbers of workers.
        confidence : float
            Probability of the interval, which covers the sampling of steps, the fit's uncertainty and, beyond the
            profiled workers, the model's own error as measured in docs/validation.

        Raises
        ------
        ModelError
            When workers are not whole, increasing and at least 1, or more than the given worker speeds.
        """
        counts = require_workers(workers)
        if not 0 < confidence < 1:
            raise ModelError(f"throughput: confidence must be between 0 and 1, got {confidence!r}")
        if self.worker_speeds and counts[-1] > len(self.worker_speeds):
            raise ModelError(
                f"throughput: workers must be at most {len(self.worker_speeds)}, the number of worker_speeds, "
                f"got {counts[-1]}"
            )
        populations = np.union1d(counts, 1)
        X, R, Z = self._solve(self.demands, self.width, populations)
        drawn, _, _ = self._solve(self.draws, self.width if self.draw_widths is None else self.draw_widths, populations)
        if self.average:
            X = np.median(drawn, axis=-1)
        tail = (1 - confidence) / 2
        low, high = np.log(np.quantile(drawn, [tail, 1 - tail], axis=-1) / X)
        beyond = np.where(populations > self.profiled_workers, max(MODEL_ERROR, self.misfit), self.misfit)
        error = normal_quantile(confidence) * np.where(populations == 1, 0.0, beyond)
        network = self.network()
        bounds = asymptotic_bounds(network, populations)
        at = np.searchsorted(populations, counts)
        D = self.service_demand(self.demands)
        return ThroughputCurve(
            workers=counts,
            steps_per_second=X[at],
            lower=(X * np.exp(-np.hypot(low, error)))[at],
            upper=(X * np.exp(np.hypot(high, error)))[at],
            single=float(X[0]),
            batch_size=self.job.batch_size,
            parameter_servers=self.parameter_servers,
            dataset_size=self.job.dataset_size,
            confidence=confidence,
            stations=tuple(name for name, _, _ in self.stations()),
            utilization=np.minimum(X[at, None] * D, 1.0),
            residence_time=R[at],
            think_time=Z[at],
            bound_lower=bounds.lower[at],
            bound_upper=bounds.upper[at],
            saturation_workers=saturation_population(network),
            bottleneck=self.stations()[int(D.argmax())][0],
            profiled_workers=self.profiled_workers,
            measured=tuple((n, x) for n, servers, x in self.measured if servers == self.parameter_servers),
            method=self._method(),
            note=self.note,
        )

    def _method(self) -> str:
        if self.worker_speeds:
            return "mva (exact, processor sharing, unequal workers)"
        return "mva (exact, processor sharing)" if self.discipline == "ps" else "mva (fcfs knee)"

    def _solve(
        self, demands: np.ndarray, width: float | np.ndarray, populations: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """X (n, ...), R (n, ..., K) and think times (n, ...) at the populations."""
        D, Z = self.service_demand(demands), demands[..., THINK]
        if self.worker_speeds:
            return unequal_workers(D, Z, self.compute, self.worker_speeds, populations)
        if self.parameter_servers > 1:
            X, R = parallel_servers(D, Z, self.parameter_servers, populations)
        else:
            X, R = mva_recursion(D, Z, np.zeros(D.shape[-1], dtype=bool), populations)
        if self.discipline == "fcfs":
            N = populations.reshape(-1, *[1] * (X.ndim - 1))
            X = knee_throughput(N, cycle=D.sum(axis=-1) + Z, demand=D.max(axis=-1), width=width)
            waiting = R - D
            left = np.maximum(N / X - Z - D.sum(axis=-1), 0.0)  # Little's law for the whole cycle
            R = D + waiting * (left / np.maximum(waiting.sum(axis=-1), 1e-300))[..., None]
        return X, R, np.broadcast_to(Z, X.shape)

    def what_if(
        self,
        *,
        bandwidth: float | None = None,
        parameter_servers: int | None = None,
        shards: Iterable[float] | None = None,
        batch_size: int | None = None,
        accelerator_speed: float | None = None,
        worker_speeds: Iterable[float] | None = None,
    ) -> TrainingModel:
        """The model of the same job on other machines.

        Parameters
        ----------
        bandwidth : float
            Bytes per second of each host's link, nominal; 95 % of it is assumed to carry tensors. The part of the
            profiled transfer time that the profiled link explains is replaced, the rest (serialization) is kept.
        parameter_servers : int
            Servers that the tensors are dealt to round robin, as TensorFlow does (as the profile has them, when the
            number is the profile's); where tensor sizes are not known, the largest share is taken as P**-0.8.
        shards : iterable of float
            Sizes (bytes or any weight) of the servers' shares, when they are uneven.
        batch_size : int
            Examples per step; computation is taken as proportional to it.
        accelerator_speed : float
            2 halves the computation's time.
        worker_speeds : iterable of float
            One per worker, relative to the profiled one.

        Raises
        ------
        ModelError
            When a value is not finite and > 0.
        """
        model = self
        if bandwidth is not None:
            model = model._with_bandwidth(_positive(bandwidth, "bandwidth"))
        if batch_size is not None:
            if not isinstance(batch_size, numbers.Integral) or isinstance(batch_size, bool) or batch_size < 1:
                raise ModelError(f"what_if: batch_size must be a whole number of at least 1, got {batch_size!r}")
            model = model._with_compute(int(batch_size) / self.job.batch_size)
            job = {name: getattr(self.job, name) for name in Job.__struct_fields__} | {"batch_size": int(batch_size)}
            model = replace(model, job=Job(**job))
        if accelerator_speed is not None:
            model = model._with_compute(1.0 / _positive(accelerator_speed, "accelerator_speed"))
        if worker_speeds is not None:
            model = replace(model, worker_speeds=tuple(_positive(s, "worker_speeds") for s in worker_speeds))
        if shards is not None:
            weights = [_positive(share, "shards") for share in shards]
            if parameter_servers not in (None, len(weights)):
                raise ModelError(f"what_if: {len(weights)} shards do not fit {parameter_servers} parameter_servers")
            return replace(model, shards=tuple(w / sum(weights) for w in weights))
        if parameter_servers is not None and parameter_servers != self.parameter_servers:
            if not isinstance(parameter_servers, numbers.Integral) or not 1 <= parameter_servers <= 1000:
                raise ModelError(
                    f"what_if: parameter_servers must be a whole number, 1 to 1000, got {parameter_servers!r}"
                )
            model = replace(model, shards=self._dealt(int(parameter_servers)))
        return model

    def _dealt(self, servers: int) -> tuple[float, ...]:
        """Shares of servers that tensors are dealt to round robin; without tensor sizes, a typical unevenness."""
        if not self.tensor_bytes:
            return uneven_shards(servers)
        totals = [sum(self.tensor_bytes[server::servers]) for server in range(servers)]
        if not all(totals):
            raise ModelError(
                f"what_if: parameter_servers must be at most the number of tensors, {len(self.tensor_bytes)}, "
                f"got {servers}"
            )
        return tuple(total / sum(totals) for total in totals)

    def _with_bandwidth(self, bandwidth: float) -> TrainingModel:
        if not any(self.transferred):
            raise ModelError(
                "what_if: bandwidth needs the bytes per step, which throughputs alone do not tell; "
                "fit a profile with recorded steps"
            )

        def change(demands: np.ndarray) -> np.ndarray:
            changed = demands.copy()
            for phase, size in ((FETCH, self.transferred[0]), (PUSH, self.transferred[1])):
                old = changed[..., phase]
                if self.bandwidth is None:  # all of the measured time is taken as the link's
                    host = 0.0 * old
                else:
                    host = np.maximum(old - size / (LINK_EFFICIENCY * self.bandwidth), 0.0)
                changed[..., phase] = host + size / (LINK_EFFICIENCY * bandwidth)
            # Each second of transfer hides as much computation as before: a faster link hides less.
            hidden = np.maximum(self.compute - changed[..., THINK], 0.0)
            before, after = (d[..., FETCH] + d[..., PUSH] for d in (demands, changed))
            longer = np.where(before > 0, after / np.where(before > 0, before, 1.0), 1.0)
            changed[..., THINK] = np.maximum(changed[..., THINK] + hidden * (1.0 - longer), 0.0)
            return changed

        return replace(self, demands=change(self.demands), draws=change(self.draws), bandwidth=bandwidth)

    def _with_compute(self, factor: float) -> TrainingModel:
        def change(demands: np.ndarray) -> np.ndarray:
            changed = demands.copy()
            changed[..., THINK] = np.maximum(changed[..., THINK] + self.compute * (factor - 1.0), 0.0)
            return changed

        return replace(self, demands=change(self.demands), draws=change(self.draws), compute=self.compute * factor)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per parameter."""
        return [
            {
                "parameter": p.name,
                "value": p.value,
                "standard_error": None if math.isnan(p.standard_error) else p.standard_error,
                "unit": p.unit,
                "origin": p.origin,
                "identified": "yes" if p.identified else "no",
                "note": p.note,
            }
            for p in self.parameters
        ]

    def _caption(self) -> str:
        return f"{self.job.name or 'job'} with {self.parameter_servers} parameter server(s), form {self.form!r}" + (
            f"; {self.note}" if self.note else ""
        )

    def __repr__(self) -> str:
        return f"{self._caption()}\n{text_table(self.to_rows())}"

    def _repr_html_(self) -> str:
        return html_table(self.to_rows(), caption=self._caption())


def require_workers(workers: int | Iterable[int]) -> np.ndarray:
    """Increasing numbers of workers as an array, or a `ModelError`."""
    given = list(itertools.islice(workers, MOST_WORKERS + 1)) if isinstance(workers, Iterable) else [workers]
    counts = [int(n) for n in given if isinstance(n, numbers.Integral) and not isinstance(n, bool)]
    if not counts or len(counts) < len(given) or not 1 <= min(counts) <= max(counts) <= MOST_WORKERS:
        raise ModelError(f"workers must be whole numbers, 1 to {MOST_WORKERS:,}, got {workers!r}")
    if any(a >= b for a, b in itertools.pairwise(counts)):
        raise ModelError(f"workers must increase, got {workers!r}")
    return np.array(counts, dtype=int)


def largest_share(servers: int) -> float:
    """Share of the busiest of P servers when tensor sizes are not known: P**-0.8, as tensors are uneven (assumed)."""
    return float(servers**-0.8)


def uneven_shards(servers: int) -> tuple[float, ...]:
    """Shares of several servers when tensor sizes are not known: the first is the largest, the others equal."""
    first = largest_share(servers)
    return (first, *[(1.0 - first) / max(servers - 1, 1)] * (servers - 1))


def _positive(value: float, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise ModelError(f"what_if: {what} must be finite and > 0, got {value!r}")
    return number


def normal_quantile(confidence: float) -> float:
    """How many standard errors a two-sided interval reaches."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + confidence / 2))
