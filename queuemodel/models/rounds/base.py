"""What models of recorded rounds have in common: ranks whose machines and training a scenario changes.

A subclass says what a round of n ranks takes (`RoundModel.rounds`); its outcome, errors and parameters are here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, ClassVar

import msgspec
import numpy as np

from ...base.checks import FASTEST_LINK
from ...base.errors import ModelError
from ...base.estimates import Parameter
from ...base.files import constants
from ...base.results import Note, NoteKind, percent
from ...curves.prediction import Prediction
from ...profile.bandwidth import contradiction, hardly_used
from ...profile.job import Job
from ...profile.measurements import Measurement
from ...profile.scenario import GRADIENT_PRECISIONS
from ...transport.sharing import BBR_SHARE, CONTROLS
from ...transport.trees import algorithm_of
from ..model import Breakdown, Model, Outcome
from .times import FittedRanks, NodeLink, link_at_bandwidth

#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["base"]
CORRELATION_PER_DOUBLING, ROUND_NOISE, COMPUTE_ERROR_ONE_ROUND, COMPUTE_ERROR_UNRECORDED, BANDWIDTH_ERROR_BBR = (
    _NUMBERS[name] for name in ("error_per_doubling", "round_noise", "one_round", "unrecorded", "unsteady")
)
LATENCY_SIGMAS = _NUMBERS["latency_sigmas"]

#: More batches may be loaded ahead than is assumed, which makes rounds shorter, never longer: half of a normal law.
LOADED_AHEAD = np.maximum([NormalDist().inv_cdf((i + 0.5) / 32) for i in range(32)], 0.0)
#: Bytes per second, and seconds: what is hardly known stays within what a link may have.
MIN_LINK, MAX_LINK = np.array([1e-9, 0.0]), np.array([FASTEST_LINK, 1e9])


#: Where a note applies, its sentence (of the model m) and its kind.
NoteRows = tuple[tuple[Callable[[Any], Any], str, NoteKind], ...]

#: Notes on what was recorded, and on what contradicts it.
RECORDED_NOTES: NoteRows = (
    (lambda m: not m.fitted.latency_known and m.scenario.latency is None,
     "latency is assumed: hardly identifiable from two nodes", "assumed"),
    (lambda m: m.fitted.unrecorded,
     "{m._recorded} of {m.fitted.ranks} ranks recorded: differences between ranks are unknown, the interval "
     f"allows {percent(COMPUTE_ERROR_UNRECORDED)} of computation for them", "other"),
)  # fmt: skip
CONTRADICTION_NOTES: NoteRows = (
    (lambda m: m.fitted.relative_compute_times,
     "rank {m._slowest[0]} takes {m._slowest[1]:.3g} times as long as assumed of others", "other"),
    (lambda m: m._contradictions, "{m._contradictions}", "doubt"),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class RoundTimes:
    """Mean seconds of rounds of n numbers of ranks, and what makes them up."""

    time: np.ndarray  # (n,)
    compute: np.ndarray  # (n,): Computation of a mean rank
    added: np.ndarray  # (n, places): What each place adds to that
    busy: np.ndarray  # (n, places): What each would take if nothing overlapped
    least: np.ndarray  # (n,): No round takes less
    effects: np.ndarray  # (n, causes): One standard error of each cause, in the logarithm of the time
    waited: np.ndarray  # (n,): Seconds of the time for input
    ahead: np.ndarray  # (n,): Logarithm by which batches loaded further ahead might shorten it, one standard error


@dataclass(frozen=True, eq=False)
class DrawnRounds:
    """Drawn rounds of ranks, each since it began (s): p collectives, or parts of them, and c computations."""

    kinds: Sequence[str]  # (p,): Of the collectives
    sizes: np.ndarray  # (p,): Their bytes
    ready: np.ndarray  # (rounds, ranks, p): When each rank came to them
    sent: np.ndarray  # (rounds, ranks, p, 2): When they began and ended
    computing: np.ndarray  # (rounds, ranks, c, 2): When computations began and ended
    times: np.ndarray  # (rounds,): How long the rounds take
    waits: np.ndarray  # (rounds, ranks): Seconds of that for which each rank waited for its input


@dataclass(frozen=True, eq=False, repr=False)
class RoundModel(Model):
    """A model of what was ``fitted`` to rounds of ranks, given throughputs ``measured`` of them.

    Computation is proportional to the batch size.
    """

    fitted: FittedRanks
    measured: tuple[Measurement, ...] = ()
    note_rows: ClassVar[NoteRows] = ()
    places: ClassVar[tuple[str, ...]] = ()  # Where a round's time goes beside the computation of a mean rank

    @property
    def job(self) -> Job:
        """The job, with the batch size that it has here."""
        job = self.fitted.job
        return msgspec.structs.replace(job, batch_size=self.scenario.batch_size or job.batch_size)

    @property
    def conditions(self) -> tuple[Measurement, ...]:
        """See `Model`."""
        return self.measured

    @property
    def bandwidth(self) -> float | None:
        """See `Model`."""
        return self.scenario.bandwidth or self.fitted.nominal

    @property
    def recorded(self) -> dict[str, Any]:
        """Fields of a scenario that have the value with which the rounds were recorded, besides the common ones."""
        raise NotImplementedError

    @property
    def other_machines(self) -> bool:
        """Whether anything differs from what was profiled: naming its own machines requests no others."""
        wanted, asked = self.scenario.specified, self.scenario
        racks = asked.oversubscription or 1.0
        own = self.recorded | {
            "bandwidth": self.fitted.nominal, "batch_size": self.fitted.job.batch_size, "accelerator_speed": 1.0,
            "accumulation": 1, "inside_bandwidth": asked.inside_bandwidth, "other_traffic": 0.0,
            "worker_speeds": (1.0,) * len(asked.worker_speeds or ()),
            "latency": asked.latency if self._identifies_latency else None,
            # uplinks that carry all that their nodes send
            "oversubscription": min(racks, 1.0), "nodes_per_rack": asked.nodes_per_rack if racks <= 1.0 else None,
        }  # fmt: skip
        if self.scenario.collective:
            wanted = wanted | {"collective": algorithm_of(self.scenario.collective)}
        return any(value != own.get(name) for name, value in wanted.items())

    def is_here(self, point: Measurement) -> bool:
        """See `Model`."""
        wanted = self.scenario.bandwidth
        same = point.bandwidth == (None if wanted == self.fitted.nominal else wanted)
        return same and not replace(self, scenario=replace(self.scenario, bandwidth=None)).other_machines

    # What changes

    @property
    def slowness(self) -> float:
        """How much longer computation takes than when profiled."""
        recorded: int = self.fitted.job.batch_size
        # t = t_recorded (b / b_recorded) / speed
        return self.job.batch_size / recorded / (self.scenario.accelerator_speed or 1.0)

    def slower(self, ranks: int) -> np.ndarray:
        """How many times as long as recorded each rank computes, by ``worker_speeds``, (ranks,)."""
        speeds = self.scenario.worker_speeds or (1.0,) * ranks
        if len(speeds) < ranks:
            raise ModelError(f"workers must be at most {len(speeds)}, the number of worker_speeds, got {ranks}")
        return 1 / np.array(speeds[:ranks])

    def relative_compute_times(self, ranks: int) -> np.ndarray:
        """How many times as long each rank computes as the typical recorded one; alone, as it did, (ranks,)."""
        slower, alone, computed = self.slower(ranks), self.fitted.single_rank_round_time, self.fitted.computed.mean()
        if ranks == 1:  # its computation is no longer than its round
            return slower * (alone / computed if alone < computed else 1.0)
        recorded = self.fitted.relative_compute_times[:ranks]
        return np.append(recorded, np.ones(len(slower)))[: len(slower)] * slower

    @property
    def steps_per_round(self) -> int:
        """Of each rank, between two reductions."""
        return self.scenario.accumulation or 1

    @property
    def precision(self) -> float:
        """Bytes of a gradient over those that were recorded."""
        return GRADIENT_PRECISIONS.get(self.scenario.gradient_precision or "", 1.0)

    @property
    def non_compute_time(self) -> float:
        """Seconds of a round of one rank alone beyond its computation."""
        return max(self.fitted.single_rank_round_time - float(self.fitted.computed.mean()), 0.0)

    def require_inside(self) -> None:
        """Refuse ranks that share a node where nothing tells how fast they are there."""
        if (self.scenario.gpus_per_node or 1) > 1 and self.scenario.inside_bandwidth is None:
            raise ModelError(
                "gpus_per_node needs inside_bandwidth, that between two ranks of a node, like 300GB/s of NVLink or "
                "25GB/s of PCIe: ranks on nodes of their own do not show it"
            )

    # The network

    def link_at(self, ranks: int) -> NodeLink:
        """What a node's link carries among so many ranks."""
        found, wanted = self.fitted.link_at(ranks), self.scenario
        # B(n) = B_recorded exp(-loss log2(n / n_recorded))
        carried = found.bandwidth * math.exp(-self.fitted.library.slower * self._doublings(ranks))
        latency = found.latency if wanted.latency is None else wanted.latency
        if self._latency_slope:
            # B = B_fit exp(c (alpha / alpha_fit - 1)): recorded rounds keep their time, to first order
            carried *= math.exp(self._latency_slope * (latency / self._fitted_latency - 1.0))
        return link_at_bandwidth(
            NodeLink(carried, latency, found.buffer), self.fitted.nominal, wanted.link_bandwidth(self.fitted.nominal)
        )

    @property
    def _fitted_latency(self) -> float:
        return self.fitted.link_at(self.fitted.ranks).latency

    @property
    def _identifies_latency(self) -> bool:
        """Whether the specified latency is that of the recorded network, as far as the rounds tell."""
        latency, fitted = self.scenario.latency, self._fitted_latency
        factor = math.exp(LATENCY_SIGMAS * math.sqrt(self.fitted.covariance[1, 1]))
        return latency is not None and fitted / factor <= latency <= fitted * factor

    @property
    def _latency_slope(self) -> float:
        """Of log bandwidth over log latency where the specified latency is the recorded network's, else 0."""
        (_, both), (_, own) = self.fitted.covariance.tolist()
        return both / own if own and self._identifies_latency else 0.0

    def _doublings(self, ranks: int) -> float:
        """By how many doublings so many ranks are beyond the recorded ones."""
        return math.log2(max(ranks / max(self.fitted.ranks, 1), 1.0))

    def _bandwidth_error(self, ranks: int) -> float:
        """Standard error of the bandwidth's logarithm among so many ranks beside that of the fit."""
        raise NotImplementedError

    def bandwidth_extrapolation_error(self, ranks: int) -> float:
        """Likewise among more ranks than recorded, under TCP, several messages at a time."""
        control, library = CONTROLS.get(self.fitted.congestion_control), self.fitted.library
        if ranks <= self.fitted.ranks or (control and control.loss_based):
            return 0.0
        return BANDWIDTH_ERROR_BBR if control else BANDWIDTH_ERROR_BBR * BBR_SHARE**0.5 * library.single

    def _covariance(self, ranks: int) -> np.ndarray:
        """Of the logarithms of bandwidth and latency; one rank's record hardly separates waiting from sending."""
        slower = self.fitted.library.slower_error * self._doublings(ranks)
        # independent errors of log B: of the fit, of its loss per doubling, of the network
        beside = slower**2 + self._bandwidth_error(ranks) ** 2
        covariance = self.fitted.covariance + np.diag([beside, 0.0])
        if self.scenario.latency is None:
            return covariance
        # var(log B | alpha) = c_BB - c_Ba^2 / c_aa; a specified latency has no error
        return np.diag([covariance[0, 0] - self._latency_slope * covariance[0, 1], 0.0])

    # Rounds

    def rounds(self, workers: np.ndarray, *, seed: int) -> RoundTimes:
        """What rounds of these numbers of ranks take."""
        raise NotImplementedError

    def simulated(self, ranks: int, rounds: int, seed: int) -> DrawnRounds:
        """So many rounds of so many ranks."""
        raise NotImplementedError

    def _model_error(self, workers: np.ndarray) -> np.ndarray:
        """Relative error of the model, (n,)."""
        raise NotImplementedError

    def computation_error(self, stragglers: float, ranks: int) -> float:
        """Error of the logarithm of the slowest of these ranks' computation, from few rounds of few ranks.

        ``stragglers`` is by how much the slowest computes longer than the mean one, relatively.
        """
        computed = self.fitted.computed
        m, unlike = len(computed), COMPUTE_ERROR_UNRECORDED if self.fitted.unrecorded and ranks > 1 else 0.0
        if m < 2:
            return float(np.hypot(COMPUTE_ERROR_ONE_ROUND, unlike))
        # standard error of the mean, and of what is common to all ranks
        mean = np.hypot(computed.std(ddof=1) / m**0.5, self.fitted.common_compute_error) / computed.mean()
        spread = (2 * (m - 1)) ** -0.5  # relative, of a standard deviation, normal law
        return float(np.linalg.norm([mean, spread * stragglers, unlike]))

    def effects(self, time: Callable[[NodeLink, float], float], ranks: int, sampling: float) -> np.ndarray:
        """What one standard error of computation, bandwidth and latency makes of the logarithm of a round, (3,).

        ``time`` gives seconds of a round with a link, and computation that takes so many times as long; ``sampling`` is
        the error of its logarithm. The last two are independent parts: of the bandwidth, and of the latency beside it
        (Cholesky).
        """
        link, covariance = self.link_at(ranks), self._covariance(ranks)

        def half(step: np.ndarray, slower: float) -> float:
            ends = []
            for sign in (1.0, -1.0):
                bandwidth, latency = np.clip(np.array(link[:2]) * np.exp(sign * step), MIN_LINK, MAX_LINK)
                ends.append(time(link._replace(bandwidth=bandwidth, latency=latency), math.exp(sign * slower)))
            # central difference over one standard error
            return math.log(ends[0] / ends[1]) / 2

        # Cholesky of the covariance of (log B, log latency): (a, c/a) and (0, sqrt(v - c^2/a^2))
        along = math.sqrt(max(covariance[0, 0], 0.0))
        both = covariance[0, 1] / along if along else 0.0
        beside = math.sqrt(max(covariance[1, 1] - both**2, 0.0))
        none = np.zeros(2)
        return np.array([half(none, sampling), half(np.array([along, both]), 0.0), half(np.array([0.0, beside]), 0.0)])

    def outcome(self, workers: np.ndarray, *, seed: int = 0) -> Outcome:
        """Groups of ranks drawn from the recorded ones, and their rounds; the same draws for every number.

        Errors: the sampling of rounds, bandwidth and latency, and the model where nothing was recorded.
        """
        k, rounds = self.steps_per_round, self.rounds(workers, seed=seed)
        T, steps = rounds.time, self.steps_per_round * workers
        # at worst nothing overlaps: a bound on the round
        most = T[0] + rounds.busy.sum(axis=-1)
        here = [point for point in self.measured if self.is_here(point)]
        shares = dict(zip(self.places, rounds.added[-1], strict=True), compute=rounds.compute[-1])
        shares["input"] = math.inf if self.input > T[-1] - rounds.waited[-1] else rounds.waited[-1]
        return Outcome(
            workers=workers,
            throughput=steps / T,
            prediction=Prediction(
                workers=workers,
                mean=np.log(steps / T)[:, None] + rounds.ahead[:, None] * LOADED_AHEAD,
                weights=np.full(len(LOADED_AHEAD), 1.0 / len(LOADED_AHEAD)),
                kind=np.zeros(len(LOADED_AHEAD), int),
                error=self._model_error(workers)[:, None],
                noise=np.zeros(len(workers)),
                spread=rounds.effects,
                correlation=CORRELATION_PER_DOUBLING,
            ),
            noise=ROUND_NOISE,
            breakdown=lambda X: Breakdown(
                stations=self.places,
                utilization=np.minimum(rounds.busy / T[:, None], 1.0),
                residence_time=rounds.added / k,
                think_time=(T - rounds.added.sum(axis=-1)) / k,
                bound_lower=np.minimum(steps / most, X),
                bound_upper=np.maximum(steps / rounds.least, X),
                bottleneck=max(shares, key=shares.__getitem__),
            ),
            method=f"{self._method}, max-plus recursion over recorded rounds)",
            remarks=self.remarks,
            profiled_workers=max(0 if self.other_machines else self.fitted.ranks, *(p.workers for p in here), 0),
            measured=tuple((p.workers, p.steps_per_second) for p in here),
            synchronous=True,
            steps_per_round=steps if k > 1 else np.empty(0),
            parameter_servers=self._servers,
            workers_per_node=self._ranks_per_node,
        )

    @property
    def _method(self) -> str:
        """How rounds are told, with an open bracket."""
        raise NotImplementedError

    @property
    def _servers(self) -> int:
        """Nodes that only reduce."""
        return 0

    @property
    def _ranks_per_node(self) -> int:
        raise NotImplementedError

    @property
    def input(self) -> float:
        """Mean seconds in which the slowest loader makes the batches of a round; 0 where no rank waited for any."""
        return 0.0

    # What the profile says and does not say

    @property
    def remarks(self) -> tuple[Note, ...]:
        """What the profile does not determine, and what contradicts it."""
        return tuple(Note(sentence.format(m=self), kind) for applies, sentence, kind in self.note_rows if applies(self))

    @property
    def _recorded(self) -> int:
        """Ranks of the largest group with a record."""
        return self.fitted.ranks - self.fitted.unrecorded

    @property
    def _slowest(self) -> tuple[int, float]:
        """The rank whose pace differs most, and its relative compute time."""
        times = self.fitted.relative_compute_times
        rank = int(np.argmax(np.abs(np.log(times))))
        return rank, times[rank]

    @property
    def _contradictions(self) -> str:
        """Where what links carried contradicts their bandwidth; empty for none."""
        carried = self.fitted.link_at(self.fitted.ranks).bandwidth
        return contradiction(carried, self.fitted.nominal) or hardly_used(carried, self.fitted.nominal)

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        """What was fitted, with its uncertainty."""
        fitted, (bandwidth, latency, _) = self.fitted, self.link_at(self.fitted.ranks)
        spread = np.sqrt(np.diag(self._covariance(0)))
        computed = fitted.computed * self.slowness
        few = len(computed) < 2
        return (
            Parameter(
                "computation", float(computed.mean()), "s",
                standard_error=math.nan if few else float(computed.std(ddof=1) / len(computed) ** 0.5),
            ),
            Parameter(
                "straggler spread", 0.0 if few else float(computed.std(ddof=1) / computed.mean()), "-",
                identified=not (few or fitted.unrecorded),
                note="standard deviation of a rank's computation over its mean",
            ),
            Parameter("effective bandwidth", bandwidth, "B/s", standard_error=bandwidth * float(spread[0])),
            Parameter(
                "latency", latency, "s/message", standard_error=latency * float(spread[1]),
                origin="measured" if fitted.latency_known else "assumed", identified=fitted.latency_known,
                note="" if fitted.latency_known else "hardly identifiable from two nodes",
            ),
        )  # fmt: skip
