"""From recorded rounds of sharded training: the graph of a round, its computations, and what the network carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...base.checks import FASTEST_LINK
from ...base.errors import FitError
from ...base.files import constants
from ...profile.profile import Profile
from ...profile.records import Round
from ...transport.sharing import CONTROLS
from ..rounds.fit import by_number, relative_compute_times
from ..rounds.graph import ACROSS, INSIDE, Task, transfer_times
from ..rounds.times import GLOO, LATENCY_FACTOR, LONGEST_MESSAGE, NVIDIA, FittedRanks, Library, NodeLink
from .placement import BETWEEN_NODES, SHARD_KINDS, RankPlacement, TimedTask, round_times

_NUMBERS = constants(__package__)["fit"]
TRANSFER_ERROR, REPLAY_ERROR = _NUMBERS["transfer_error"], _NUMBERS["replay_error"]
ALONE_ERROR, SHORTEST = _NUMBERS["alone_error"], _NUMBERS["shortest"]
PAIR_LOSS, PAIR_LOSS_BBR = _NUMBERS["pair_loss"], _NUMBERS["pair_loss_bbr"]


@dataclass(frozen=True, eq=False)
class RecordedRounds:
    """Recorded rounds of a group of ranks, all of which or some were recorded."""

    placement: RankPlacement
    steps: tuple[TimedTask, ...]
    computed: np.ndarray  # (rounds, ranks, computations): Seconds, of all ranks
    times: np.ndarray  # (rounds,): Seconds of a round, mean of the ranks
    whole: bool

    @classmethod
    def of(cls, rounds: Sequence[Round], library: Library, pair_loss: float) -> RecordedRounds:
        """Of rounds with the same number of ranks."""
        first, ranks = rounds[0], len({one.rank for one in rounds})
        groups = [own for own in by_number(rounds).values() if len(own) == ranks]
        times = np.array([[[(o.start, o.end) for o in one.operations] for one in own] for own in groups])
        begin, end = times[..., 0], times[..., 1]
        whole = ranks == first.ranks
        least = transfer_times(begin, end, [k for k, o in enumerate(first.operations) if o.group])
        # of one rank's file, the shortest waited for no other rank
        least = least.mean(axis=0) if whole else np.quantile(least, SHORTEST, axis=0)
        inside = max((size for name, size in first.groups.items() if name.startswith(INSIDE)), default=1)
        sharded = any(o.kind in SHARD_KINDS and o.group.startswith(INSIDE) for o in first.operations)
        steps = [
            TimedTask(
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
        computed = (end - begin)[..., [k for k, o in enumerate(first.operations) if o.kind == "compute"]]
        # ranks without a record compute as recorded ones did in other rounds
        computed = np.concatenate(
            [np.roll(computed, shift, axis=0) for shift in range(-(-first.ranks // ranks))], axis=1
        )[:, : first.ranks]
        return cls(
            RankPlacement(first.ranks, inside, inside if sharded else 0, None, library.collective, pair_loss),
            tuple(steps),
            computed,
            np.array([np.mean([one.round_time - one.waited for one in own]) for own in groups]),
            whole,
        )

    @property
    def crossing(self) -> list[TimedTask]:
        """Collectives of several nodes."""
        some = NodeLink(1.0, 0.0)
        return [
            one
            for one in self.steps
            if one.task.kind
            and self.placement.task(one).stream == BETWEEN_NODES
            and self.placement.seconds(one, some) > 0
        ]


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedShards(FittedRanks):
    """A sharded job's parameters from recorded rounds."""

    run: RecordedRounds  # Of the most ranks
    rows: np.ndarray  # (m, computations): Seconds of one rank of the typical pace
    link: NodeLink  # Of a node
    missed: float  # By how much the replayed rounds are longer than the recorded ones, relative

    def link_at(self, ranks: int) -> NodeLink:
        """See `FittedRanks`."""
        return self.link


def fit_shards(profile: Profile) -> FittedShards:
    """Fit the recorded rounds of a job that shards its parameters.

    Computations are those of the most ranks. Bandwidth and latency are those with which the recorded rounds, replayed,
    take what they took, and all their collectives together, too: maximum a posteriori, normal approximation, with the
    library's latency as prior. Ranks that were not recorded are taken to compute as recorded ones did in other rounds.

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
    control = CONTROLS.get(profile.cluster.congestion_control)
    lost = (PAIR_LOSS if control is None or control.loss_based else PAIR_LOSS_BBR) * library.single
    runs = [RecordedRounds.of([one for one in grouped if one.ranks == n], library, lost) for n in counts]
    last, most = runs[-1], [one for one in grouped if one.ranks == counts[-1]]
    link, covariance = estimate_link(runs, library)
    unequal = relative_compute_times(most, counts[-1]) if last.whole else ()
    # all ranks at the typical pace
    typical = last.computed / np.array(unequal)[:, None] if unequal else last.computed
    replayed = round_times(last.steps, last.computed, last.placement, link)
    recorded = len({one.rank for one in most})
    rows = typical[:, :recorded].reshape(-1, typical.shape[-1])
    alone = [one.round_time - one.waited for one in profile.rounds if one.ranks == 1]
    # what the graph does not explain, the same in every round
    tail = max(float((last.times - replayed).mean()), 0.0)
    return FittedShards(
        job=profile.job,
        run=last,
        rows=rows,
        computed=rows.sum(axis=1),
        single_rank_round_time=float(np.mean(alone)) if alone else float(rows.sum(axis=1).mean()),
        tail=tail,
        link=link,
        covariance=covariance,
        latency_known=bool(covariance[1, 1] < 0.25 * np.log(LATENCY_FACTOR) ** 2),
        nominal=profile.cluster.bandwidth,
        missed=float(replayed.mean() / last.times.mean()) - 1,
        relative_compute_times=unequal,
        ranks=counts[-1],
        unrecorded=counts[-1] - recorded,
        library=library,
        congestion_control=profile.cluster.congestion_control,
    )


def estimate_link(runs: Sequence[RecordedRounds], library: Library) -> tuple[NodeLink, np.ndarray]:
    """A node's link, and the covariance of the logarithms of its bandwidth and latency.

    With it replayed rounds take what they took; and where these hide their collectives, collectives all together.
    """
    from scipy.optimize import least_squares

    crossing = [(run, some) for run in runs if (some := run.crossing)]
    if not crossing:
        raise FitError(
            "no recorded collective crosses the network; record two nodes: queuemodel import-trace trace_n1 trace_n2"
        )

    def transfers(run: RecordedRounds, some: Sequence[TimedTask], link: NodeLink) -> float:
        took = sum(one.seconds for one in some)
        return float(np.log(max(took, 1e-9) / sum(run.placement.seconds(one, link) for one in some)))

    def residuals(logs: np.ndarray) -> np.ndarray:
        bandwidth, message = np.minimum(np.exp(logs), [FASTEST_LINK, LONGEST_MESSAGE])
        link = NodeLink(float(bandwidth), float(message))
        found = [(logs[1] - np.log(library.latency)) / np.log(LATENCY_FACTOR)]
        for run, some in crossing:
            replayed = round_times(run.steps, run.computed, run.placement, link)
            # residuals: of the collectives' time where it shows, and of the replayed round
            clear = run.whole and len({one.task.group for one in some}) == 1  # else they wait, or share the link
            found += [
                transfers(run, some, link) / (TRANSFER_ERROR if clear else ALONE_ERROR),
                (replayed.mean() / run.times.mean() - 1) / REPLAY_ERROR,
            ]
        return np.array(found)

    # t = V / B: log B = -mean of log (t at 1 B/s)
    start = -np.mean([transfers(run, some, NodeLink(1.0, 0.0)) for run, some in crossing])
    fitted = least_squares(residuals, [start, np.log(library.latency)])
    bandwidth, message = np.minimum(np.exp(fitted.x), [FASTEST_LINK, LONGEST_MESSAGE])
    return NodeLink(float(bandwidth), float(message)), np.linalg.pinv(fitted.jac.T @ fitted.jac)
