"""From recorded rounds: how long ranks compute, how much that varies, and what the network carries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec.structs import replace as replace_fields

from ...base.errors import FitError
from ...base.files import constants
from ...profile.profile import Profile
from ...profile.records import Operation, Round
from ...simulator.links import estimate_links
from ...transport.sharing import CONTROLS
from .loading import loading_times
from .schemes import Buckets
from .times import (
    GLOO,
    LATENCY,
    LATENCY_FACTOR,
    NVIDIA,
    FittedRanks,
    Library,
    NodeLink,
    align_clocks,
    estimate_network,
    max_concurrent_collectives,
    message_costs,
    round_time,
    slowest_of,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedRounds(FittedRanks):
    """A data-parallel job's parameters from recorded rounds."""

    ready: np.ndarray  # (m, b): When one rank of the typical pace had each bucket (s), m times
    bucket_bytes: np.ndarray  # (b,)
    #: Bytes of each gradient and mean seconds until it was ready, in that order
    gradients: tuple[np.ndarray, np.ndarray]
    at_once: int  # Most all-reduces that were under way together
    #: bandwidth, latency: Bytes per second that a node's link carried among the most recorded ranks, and seconds per
    #: message
    bandwidth: float
    latency: float
    #: Bandwidth and latency that groups of fewer ranks showed, by their number
    links_by_ranks: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    #: Seconds of a buffer that single messages under BBR overflow (`lateness`); 0 where none is known
    buffer: float = 0.0
    #: Seconds in which batches were loaded ahead, by rank, as far as these waited for them (`loading`); often none
    loading: tuple[np.ndarray, ...] = ()

    def link_at(self, ranks: int) -> NodeLink:
        """See `FittedRanks`: the link of the largest recorded group that is no larger.

        How well messages fill a link depends on how many ranks wait for each other, so that each number has its own.
        """
        recorded = [n for n in self.links_by_ranks if n <= ranks]
        smaller = bool(recorded) and ranks < self.ranks
        carried, latency = self.links_by_ranks[max(recorded)] if smaller else (self.bandwidth, self.latency)
        return NodeLink(carried, latency, self.buffer)


#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["fit"]
MIN_RANK_DIFFERENCE = _NUMBERS["least"]
RANK_DIFFERENCE_Z = _NUMBERS["sure"]


def relative_compute_times(rounds: Sequence[Round], ranks: int) -> tuple[float, ...]:
    """How many times as long each rank computes as the typical one; empty where all are alike.

    The typical one is the median, of two the faster: a rank that stands out is more often slow than fast.
    """
    computed = [np.array([one.computed for one in rounds if one.rank == rank]) for rank in range(ranks)]
    if min(map(len, computed)) < 2:
        return ()
    means = np.array([own.mean() for own in computed])
    errors = np.array([own.std(ddof=1) / len(own) ** 0.5 for own in computed]) / means
    # the median rank; of an even number the faster of the middle two
    typical = int(np.argsort(means)[(ranks - 1) // 2])
    ratio = means / means[typical]
    # different: by more than a minimum, and than z standard errors of the difference
    apart = np.abs(np.log(ratio)) > np.maximum(
        MIN_RANK_DIFFERENCE, RANK_DIFFERENCE_Z * np.hypot(errors, errors[typical])
    )
    return tuple(np.where(apart, ratio, 1.0).tolist()) if apart.any() else ()


#: Groups drawn.
TAIL_SAMPLES = 2000


def at_untraced_times(fitted: FittedRounds, rounds: Sequence[Round], seconds: Mapping[int, float]) -> FittedRounds:
    """Correct what was fitted to recorded rounds by the mean time of untraced ones.

    Tracing is taken to make the computation of one rank and of more longer by the same factor, which the rounds of one
    rank give. What then is left at the most recorded ranks lies beside computation and network (what frameworks do
    between rounds, copies, waits for a processor): the same in every round, whatever the number of ranks.
    """
    alone = [one.round_time for one in rounds if one.ranks == 1]
    if 1 in seconds and alone:
        # tracing stretches computation: untraced / traced time of one rank
        factor = seconds[1] / float(np.mean(alone))
        sizes, moments = fitted.gradients
        fitted = replace(
            fitted,
            ready=factor * fitted.ready,
            computed=factor * fitted.computed,
            gradients=(sizes, factor * moments),
            single_rank_round_time=seconds[1],
        )
    if fitted.ranks in seconds:
        rows = np.column_stack([fitted.ready, fitted.computed])
        (slowest,) = slowest_of(
            rows, [fitted.ranks], samples=TAIL_SAMPLES, seed=0, relative_compute_times=fitted.relative_compute_times
        )
        link = NodeLink(fitted.bandwidth, fitted.latency, fitted.buffer)
        work, latency = message_costs(fitted.bucket_bytes, fitted.library.collective, fitted.ranks, link)
        ends = round_time(slowest[:, :-1], slowest[:, -1], work, latency, at_once=fitted.at_once)
        # what is left of the untraced round lies after its last all-reduce
        tail = max(0.0, seconds[fitted.ranks] - float(ends.mean()))
        fitted = replace(
            fitted,
            tail=tail,
            single_rank_round_time=fitted.single_rank_round_time + (0.0 if alone else tail - fitted.tail),
        )
    return fitted


ANOVA_SIGNIFICANCE = _NUMBERS["chance"]


def fit_rounds(profile: Profile) -> FittedRounds:
    """Fit the recorded rounds of a data-parallel job.

    Computation and its spread come from the records of the fewest ranks that reduce. What the network carries comes
    from the ends of the groups' rounds, by maximum a posteriori (normal approximation) under the ring's time, for each
    recorded number of ranks by itself; two nodes hardly identify latency, so that an assumed latency with a
    wide spread helps out. Where messages go one at a time under BBR, and the buffers are recorded, they are
    late as in `lateness`. Where the profile has the throughput of untraced rounds, of one rank or of the most
    that are recorded, the times are corrected by it.

    Raises
    ------
    FitError
        When no round of two or more ranks is there, or buckets change after the first rounds.
    """
    most = max((one.ranks for one in profile.rounds), default=0)
    if most < 2:
        raise FitError(
            "strategy all-reduce needs recorded rounds of two nodes or more; import the traces of two nodes besides: "
            "queuemodel import-trace trace_n1 trace_n2"
        )
    alike = {
        n: _rounds_with_final_buckets(profile.rounds, n)
        for n in sorted({one.ranks for one in profile.rounds if one.ranks > 1})
    }
    unrecorded = {n: n - len({one.rank for one in found}) for n, found in alike.items()}
    alike = {n: _rounds_without_waiting(found) if unrecorded[n] else found for n, found in alike.items()}
    at_once = max((max_concurrent_collectives(one) for one in alike[most]), default=1)
    cluster = profile.cluster
    in_turn = at_once == 1 and profile.source.framework == "tensorflow"  # gloo's rings have two messages under way
    control = CONTROLS.get(cluster.congestion_control)
    buffer = cluster.buffer or 0.0 if in_turn and control and not control.loss_based else 0.0
    library = NVIDIA if "nccl" in profile.source.style else GLOO
    networks = _networks(alike, at_once, buffer, library)
    if most not in networks:
        raise FitError("strategy all-reduce: no round was recorded by all its ranks; profile whole rounds")
    grouped, bucket_bytes = alike[most], _sizes(alike[most][0])
    if buffer:  # beside what is late, all show the same link
        together = float(np.exp(np.mean([np.log(carried) for carried, _, _ in networks.values()])))
        networks[most] = (together, *networks[most][1:])
    bandwidth, latency, covariance = networks.pop(most)
    # among the fewest ranks buckets wait least for each other, which some recordings take for not being ready
    own = next(found for found in alike.values() if found and np.array_equal(_sizes(found[0]), bucket_bytes))
    tail = _tail(grouped)
    alone = [one.round_time - one.waited for one in profile.rounds if one.ranks == 1]
    unequal = relative_compute_times(grouped, most)
    typical = np.array([1 / _pace(one, unequal) for one in own])
    computed = np.array([one.computed for one in own]) * typical
    ready = np.array([[bucket.ready for bucket in one.buckets] for one in own]) * typical[:, None]
    later, common_compute_error = _remove_round_effect(own, computed)
    ready = np.maximum(ready - later[:, None], 0.0)
    if len({one.rank for one in own}) == 1:  # what the others let it wait varies, too
        ready[:] = ready.mean(axis=0)
    fitted = FittedRounds(
        job=profile.job,
        ready=ready,
        computed=np.maximum(computed - later, 0.0),
        common_compute_error=common_compute_error,
        tail=tail,
        single_rank_round_time=float(np.mean(alone or [one.computed + tail for one in own])),
        bucket_bytes=bucket_bytes,
        gradients=_gradients(own, unequal),
        at_once=at_once,
        bandwidth=bandwidth,
        latency=latency,
        covariance=covariance,
        latency_known=bool(covariance[1, 1] < 0.25 * np.log(LATENCY_FACTOR) ** 2),
        nominal=cluster.bandwidth,
        ranks=most,
        relative_compute_times=unequal,
        unrecorded=unrecorded[most],
        links_by_ranks={n: (carried, wait) for n, (carried, wait, _) in networks.items()},
        congestion_control=cluster.congestion_control,
        library=library,
        buffer=buffer,
        loading=loading_times(profile.rounds),
    )
    waited = {one.ranks for one in profile.rounds if one.waited}
    untraced = {p.workers: p.workers / p.steps_per_second for p in profile.throughputs if p.workers not in waited}
    return at_untraced_times(fitted, profile.rounds, untraced)


def _networks(
    alike: Mapping[int, Sequence[Round]], at_once: int, buffer: float, library: Library
) -> dict[int, tuple[float, float, np.ndarray]]:
    """What `estimate_network` finds among each number of ranks of which whole rounds were recorded."""
    networks = {}
    for n, found in alike.items():
        recorded = len({one.rank for one in found})
        if groups := [group for group in by_number(found).values() if len(group) == recorded]:
            slowest, ends = map(np.array, zip(*map(align_clocks, groups), strict=True))
            networks[n] = estimate_network(slowest, ends, _sizes(found[0]), n, at_once, buffer, library=library)
    return networks


def _gradients(rounds: Sequence[Round], unequal: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of each gradient, and mean seconds until a rank of the typical pace had it; none where none is recorded."""
    recorded = [one for one in rounds if one.gradients]
    if not recorded:
        return np.empty(0), np.empty(0)
    ready = [[g.ready / _pace(one, unequal) for g in one.gradients] for one in recorded]
    return np.array([g.bytes for g in recorded[0].gradients], dtype=float), np.mean(ready, axis=0)


def _tail(rounds: Sequence[Round]) -> float:
    """Mean seconds of a round after its computation and its last all-reduce."""
    ends = [max(one.computed, *(bucket.end for bucket in one.buckets)) for one in rounds]
    return float(np.mean([max(0.0, one.round_time - one.waited - end) for one, end in zip(rounds, ends, strict=True)]))


def _remove_round_effect(rounds: Sequence[Round], computed: np.ndarray) -> tuple[np.ndarray, float]:
    """Seconds by which each came later than a rank's own variation explains: an evaluation makes all late at once.

    Were ranks drawn with it, the slowest of many would always be late. Two-way analysis of variance, ranks by rounds
    (Fisher, 1925): where rounds differ more than chance explains, all but the ranks' own deviations is taken out, and
    these are scaled by what the rounds' means took of them. Elsewhere 0; what one rank alone recorded is taken for
    common. And the standard error of what they have in common, which remains in the mean.
    """
    from scipy.special import fdtrc

    recorded, at = sorted({one.rank for one in rounds}), {(one.number, one.rank): i for i, one in enumerate(rounds)}
    ranks = len(recorded)
    whole = [number for number, group in by_number(rounds).items() if len(group) == ranks]
    index = np.array([[at[number, rank] for rank in recorded] for number in whole], dtype=int)
    later, m = np.zeros(len(rounds)), len(whole)
    if m < 2:
        return later, 0.0
    times = computed[index]
    mean = times.mean(axis=0)
    # x_ij = mean_j + common_i + own_ij
    common = (times - mean).mean(axis=1, keepdims=True)
    if ranks == 1:
        return computed - mean, float(common.std(ddof=1) / np.sqrt(m))
    own = times - mean - common
    # F = (n sum common^2 / (m-1)) / (sum own^2 / ((m-1)(n-1))), under the null hypothesis F(m-1, (m-1)(n-1))
    within = float((own**2).sum() / ((m - 1) * (ranks - 1)))
    ratio = ranks * float((common**2).sum() / (m - 1)) / max(within, 1e-18)
    if fdtrc(m - 1, (m - 1) * (ranks - 1), ratio) >= ANOVA_SIGNIFICANCE:
        return later, 0.0
    # E own^2 = sigma^2 (n-1)/n: scaled back
    later[index] = times - mean - own * np.sqrt(ranks / (ranks - 1))
    return later, float(common.std(ddof=1) / np.sqrt(m))


def _rounds_with_final_buckets(rounds: Sequence[Round], ranks: int) -> list[Round]:
    """Rounds of so many ranks with the same buckets: the first are before these are made anew, in order of arrival."""
    grouped = [(one, tuple(b.bytes for b in one.buckets)) for one in rounds if one.ranks == ranks and one.buckets]
    sizes = Counter(own for _, own in grouped)
    common = max(sizes, key=sizes.__getitem__, default=())
    alike = [one for one, own in grouped if own == common]
    first = min((one.number for one in alike), default=0)
    for one, own in grouped:
        if own != common and one.number > first:
            raise FitError(
                f"strategy all-reduce: round {one.number} of {ranks} ranks reduces {sum(own):,} bytes in {len(own)} "
                f"bucket(s), round {first} {sum(common):,} in {len(common)}; record steps that all reduce the same"
            )
    return alike


def _rounds_without_waiting(rounds: Sequence[Round]) -> list[Round]:
    """Rounds of some ranks of a group, with buckets that are ready when all ranks have them.

    The all-reduce that carries most per second is taken to wait for no other rank; what others take longer, they wait.
    """
    if not rounds:
        return []
    took = np.array([[bucket.end - bucket.begin for bucket in one.buckets] for one in rounds]).min(axis=0)
    sizes = _sizes(rounds[0])
    least = sizes / (sizes / np.maximum(took, 1e-9)).max()
    moved = []
    for one in rounds:
        ready, ends = np.array([[bucket.ready, bucket.end] for bucket in one.buckets]).T
        ready = np.maximum.accumulate(np.maximum(ready, ends - least))
        ready = np.minimum(ready, np.minimum.accumulate(ends[::-1])[::-1])
        buckets = [replace_fields(b, ready=float(r)) for b, r in zip(one.buckets, ready, strict=True)]
        moved.append(replace_fields(one, buckets=buckets))
    return moved


def _sizes(one: Round) -> np.ndarray:
    return np.array([bucket.bytes for bucket in one.buckets], dtype=float)


def by_number(rounds: Sequence[Round]) -> dict[int, list[Round]]:
    groups: dict[int, list[Round]] = {}
    for one in rounds:
        groups.setdefault(one.number, []).append(one)
    return groups


def _pace(one: Round, unequal: Sequence[float]) -> float:
    return unequal[one.rank] if unequal else 1.0


OTHER_TRAFFIC = _NUMBERS["other_traffic"]


def rounds_of_steps(profile: Profile) -> FittedRounds:
    """What recorded steps determine of data-parallel rounds of the same job.

    A rank computes what a worker did, without fetching: a gradient is ready after as much computation as was done when
    its push could begin. Links carry what they carried between worker and server; latency is assumed, the update takes
    what it took at the server, and buckets are DistributedDataParallel's.

    Raises
    ------
    FitError
        When the steps have no operations, or nothing is pushed.
    """
    steps = [_ready(step.operations) for step in profile.steps if step.operations]
    if not steps or not steps[0][0]:
        raise FitError(
            "strategy all-reduce: steps on parameter servers require recorded operations with gradients; import them "
            "from traces, or import the traces of data-parallel ranks"
        )
    names = [name for name in steps[0][0] if all(name in ready for ready, _ in steps)]
    ready = np.array([[found[name][0] for name in names] for found, _ in steps])
    order = np.argsort(ready.mean(axis=0), kind="stable")
    ready = np.maximum.accumulate(ready[:, order], axis=1)
    sizes = np.array([steps[0][0][names[i]][1] for i in order], dtype=float)
    computed = np.array([seconds for _, seconds in steps])
    links, buckets = estimate_links(profile), Buckets()
    rate = min(links.transmit.rate, links.receive.rate)
    update = float(profile.values("update").mean())
    return FittedRounds(
        job=profile.job,
        ready=ready[:, buckets.ends(sizes)],
        computed=computed,
        tail=update,
        single_rank_round_time=float(computed.mean()) + update,
        bucket_bytes=buckets.units(sizes),
        gradients=(sizes, ready.mean(axis=0)),
        at_once=1,
        bandwidth=rate,
        latency=LATENCY,
        covariance=np.diag([OTHER_TRAFFIC**2, np.log(LATENCY_FACTOR) ** 2]),
        latency_known=False,
        nominal=profile.cluster.bandwidth,
        ranks=0,
        relative_compute_times=(),
    )


def _ready(operations: list[Operation]) -> tuple[dict[tuple[str, int], tuple[float, int]], float]:
    """Each push by its name and server: computation that must be done before it (s), and its bytes; and all of it."""
    begin, end = _busy([(one.start, one.end) for one in operations if one.kind == "compute"])
    done = np.append(0.0, np.cumsum(end - begin))

    def until(moment: float) -> float:
        at = int(np.searchsorted(begin, moment, side="right"))
        return float(done[at] - max(end[at - 1] - moment, 0.0)) if at else 0.0

    found = {}
    for one in operations:
        if one.kind == "push":
            before = [operations[i].end for i in one.after if operations[i].kind == "compute"]
            found[one.name, one.server] = until(max(before, default=one.start)), one.bytes
    return found, float(done[-1])


def _busy(spans: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Union of spans, as beginnings and ends in order."""
    merged: list[list[float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    pairs = np.array(merged).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
