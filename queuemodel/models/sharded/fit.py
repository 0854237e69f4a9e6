"""From recorded rounds of sharded training: the graph of a round, its computations, and what the network carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...base.checks import FASTEST_LINK
from ...base.errors import FitError
from ...base.files import constants
from ...profile.job import Job
from ...profile.profile import Profile
from ...profile.records import Round
from ..rounds.fit import by_number, paces
from ..rounds.graph import ACROSS, INSIDE, Task
from ..rounds.times import GLOO, LATENCY_FACTOR, LONGEST_MESSAGE, NVIDIA, Library, NodeLink
from .placement import NETWORK, SHARD_KINDS, Placement, Step, round_times

_NUMBERS = constants(__package__)["fit"]
TRANSFER_ERROR, REPLAY_ERROR = _NUMBERS["transfer_error"], _NUMBERS["replay_error"]
SHARE_ERROR, SHORTEST = _NUMBERS["share_error"], _NUMBERS["shortest"]


@dataclass(frozen=True, eq=False)
class Run:
    """Recorded rounds of a group of ranks, all of which or some were recorded."""

    placement: Placement
    steps: tuple[Step, ...]
    computed: np.ndarray  # (rounds, ranks, computations): Seconds, of all ranks
    waits: np.ndarray  # (rounds, steps): Seconds of each step, of a collective of the rank that came last
    times: np.ndarray  # (rounds,): Seconds of a round, mean of the ranks
    whole: bool

    @classmethod
    def of(cls, rounds: Sequence[Round], library: Library) -> Run:
        """Of rounds with the same number of ranks."""
        first, ranks = rounds[0], len({one.rank for one in rounds})
        groups = [own for own in by_number(rounds).values() if len(own) == ranks]
        took = np.array([[[o.end - o.start for o in one.operations] for one in own] for own in groups])
        whole = ranks == first.ranks
        waits = took.min(axis=1)  # the last to come waits for nobody
        least = np.quantile(waits, SHORTEST, axis=0)
        inside = max((size for name, size in first.groups.items() if name.startswith(INSIDE)), default=1)
        sharded = any(o.kind in SHARD_KINDS and o.group.startswith(INSIDE) for o in first.operations)
        steps = [
            Step(
                Task(
                    o.group or "compute",
                    tuple(o.after),
                    o.group and o.kind,
                    o.bytes * (inside if o.kind == "all-reduce" and o.group.startswith(ACROSS) and sharded else 1),
                    o.group,
                ),
                float(seconds),
            )
            for o, seconds in zip(first.operations, least, strict=True)
        ]
        computed = took[..., [k for k, o in enumerate(first.operations) if o.kind == "compute"]]
        # ranks that were not recorded compute what recorded ones did in other rounds
        computed = np.concatenate(
            [np.roll(computed, shift, axis=0) for shift in range(-(-first.ranks // ranks))], axis=1
        )[:, : first.ranks]
        return cls(
            Placement(first.ranks, inside, inside if sharded else 0, collective=library.collective),
            tuple(steps),
            computed,
            waits,
            np.array([np.mean([one.round_time - one.waited for one in own]) for own in groups]),
            whole,
        )

    @property
    def crossing(self) -> dict[str, list[int]]:
        """Collectives of several nodes, by their kind."""
        found: dict[str, list[int]] = {}
        for i, one in enumerate(self.steps):
            if one.task.kind and self.placement.task(one).stream == NETWORK and self.unit(i) > 0:
                found.setdefault(one.task.kind, []).append(i)
        return found

    def unit(self, i: int) -> float:
        """Seconds of a collective on a link of a byte per second."""
        return self.placement.seconds(replace(self.steps[i], seconds=0.0), NodeLink(1.0, 0.0))

    def shortest(self, kind: str) -> float:
        """Seconds per such unit of the shortest collectives of a kind: most others wait, or for a link not yet full."""
        return float(np.quantile([self.waits[:, i] / self.unit(i) for i in self.crossing[kind]], SHORTEST))


@dataclass(frozen=True, eq=False)
class FittedShards:
    """What recorded rounds determine of a sharded job."""

    job: Job
    run: Run  # Of the most ranks
    rows: np.ndarray  # (m, computations): Seconds of one rank of the typical pace
    alone: float  # Seconds of a round of one rank
    tail: float  # Seconds of a round beside what its graph explains
    link: NodeLink  # Of a node
    covariance: np.ndarray  # (2, 2): Of the logarithms of its bandwidth and latency
    latency_known: bool
    nominal: float | None
    missed: float  # By how much the replayed rounds are longer than the recorded ones, relative
    paces: tuple[float, ...]
    unrecorded: int
    library: Library
    congestion_control: str

    @property
    def ranks(self) -> int:
        """Most ranks in a recorded round."""
        return self.run.placement.ranks


def fit_shards(profile: Profile) -> FittedShards:
    """Fit the recorded rounds of a job that shards its parameters.

    Computations are those of the most ranks. Bandwidth and latency are those with which the recorded rounds, replayed,
    take what they took, and their collectives what the shortest took: maximum a posteriori, normal approximation, with
    the library's latency as prior.

    Raises
    ------
    FitError
        When no round of two or more ranks is there.
    """
    grouped = [one for one in profile.rounds if one.operations]
    if not grouped:
        raise FitError(
            "sharded training needs recorded rounds of two nodes; import their traces: queuemodel import-trace trace_n2"
        )
    library = NVIDIA if "nccl" in profile.source.style else GLOO
    counts = sorted({one.ranks for one in grouped})
    runs = [Run.of([one for one in grouped if one.ranks == n], library) for n in counts]
    last, most = runs[-1], [one for one in grouped if one.ranks == counts[-1]]
    link, shares, covariance = estimate_link(runs, library)
    last = replace(last, placement=replace(last.placement, shares=shares))
    unequal = paces(most, counts[-1]) if last.whole else ()
    typical = last.computed / np.array(unequal)[:, None] if unequal else last.computed
    replayed = round_times(last.steps, last.computed, last.placement, link)
    recorded = len({one.rank for one in most})
    rows = typical[:, :recorded].reshape(-1, typical.shape[-1])
    alone = [one.round_time - one.waited for one in profile.rounds if one.ranks == 1]
    tail = max(float((last.times - replayed).mean()), 0.0)
    return FittedShards(
        job=profile.job,
        run=last,
        rows=rows,
        alone=float(np.mean(alone)) if alone else float(rows.sum(axis=1).mean()),
        tail=tail,
        link=link,
        covariance=covariance,
        latency_known=bool(covariance[1, 1] < 0.25 * np.log(LATENCY_FACTOR) ** 2),
        nominal=profile.cluster.bandwidth,
        missed=float(replayed.mean() / last.times.mean()) - 1,
        paces=unequal,
        unrecorded=counts[-1] - recorded,
        library=library,
        congestion_control=profile.cluster.congestion_control,
    )


def estimate_link(runs: Sequence[Run], library: Library) -> tuple[NodeLink, dict[str, float], np.ndarray]:
    """A node's link, what share of it each kind of collective has, and the covariance of the link's logarithms.

    What the shortest of each kind took gives both where a node has one rank. Where ranks share a link, their messages
    overlap more or less, and replayed rounds, which have to take what they took, say more.
    """
    from scipy.optimize import least_squares

    crossing = [run for run in runs if run.crossing]
    if not crossing:
        raise FitError(
            "no recorded collective crosses the network; record two nodes: queuemodel import-trace trace_n1 trace_n2"
        )
    alone = [run for run in crossing if run.placement.per_node == 1]
    took = [(run, kind, run.shortest(kind)) for run in alone for kind in run.crossing]
    kinds = list(dict.fromkeys(kind for _, kind, _ in took))
    rate = np.median([1 / run.shortest(kind) for run in crossing for kind in run.crossing])

    def said(logs: np.ndarray) -> tuple[NodeLink, dict[str, float]]:
        bandwidth, message = np.minimum(np.exp(logs[:2]), [FASTEST_LINK, LONGEST_MESSAGE])
        return NodeLink(float(bandwidth), float(message)), dict(zip(kinds, np.exp(logs[2:]).tolist(), strict=True))

    def residuals(logs: np.ndarray) -> np.ndarray:
        link, shares = said(logs)
        found = [(logs[1] - np.log(library.latency)) / np.log(LATENCY_FACTOR), *(logs[2:] / SHARE_ERROR)]
        for run, kind, unit in took:
            i = run.crossing[kind][0]
            seconds = replace(run.placement, shares=shares).seconds(run.steps[i], link)
            found.append(np.log(seconds / run.unit(i) / unit) / TRANSFER_ERROR)
        for run in crossing:
            replayed = round_times(run.steps, run.computed, replace(run.placement, shares=shares), link)
            found.append((replayed.mean() / run.times.mean() - 1) / REPLAY_ERROR)
        return np.array(found)

    fitted = least_squares(residuals, [np.log(rate), np.log(library.latency), *np.zeros(len(kinds))])
    covariance = np.linalg.pinv(fitted.jac.T @ fitted.jac)
    return *said(fitted.x), covariance[:2, :2]
