"""From traced steps, whatever their file format, to phases and graphs of operations (validation/notes/phases)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from tqdm import tqdm

from ..base.errors import DataError
from ..profile.profile import Step
from ..profile.records import STEP_KINDS
from .graph import StepGraph, contract
from .recordings import RECEIVED, TracedOperation, TracedStep, Transfer, constant, length, union

TAKES_BATCH = "IteratorGetNext"  # begins the types of operations that do

LONGEST_PAUSE, SHORT_PAUSE = constant("longest_pause"), constant("short_pause")  # a pause between two steps
CLOCK_TOLERANCE = constant("clock_tolerance")

ALIKE = 0.5  # share of a step's operations that it has in common with another of its job, at least
OVERLAP = 0.5  # share of a step in which another one of the same worker may run, at most


@dataclass(frozen=True)
class Derived:
    """The steps, and what follows from them for the job and the cluster."""

    steps: list[Step]
    workers: int  # of all steps; the profile is of one of them
    servers: list[str]
    shard_bytes: list[int]
    tensors: int
    input: float  # share of the steps in which the worker takes a batch out of its data set


def derive(traced: Sequence[TracedStep], *, progress: bool = False) -> Derived:
    """Derive phases, bytes, step times and operation graphs of consecutive steps of one worker.

    Times of ``traced`` are whole microseconds of each task's own clock. Raises `DataError` for a step that lacks a
    worker, a parameter server or transfers between them, for clocks that cannot be matched, and for steps of several
    jobs or repeated ones.
    """
    workers, servers = _roles(traced)
    worker = workers[0]
    traced = sorted(traced, key=lambda step: step.span[0])
    _require_one_job(traced, worker)
    own = [step for step in traced if worker in step.ends or step.ends.isdisjoint(workers)]
    traced = [_of_tasks(step, {worker, *servers}) for step in own]
    offsets = zip(*(_clock_offsets(traced, worker, server) for server in servers), strict=True)
    clocks = [dict(zip(servers, offset, strict=True)) for offset in offsets]
    traced = _restored([_on_one_clock(step, clock) for step, clock in zip(traced, clocks, strict=True)])
    sizes: dict[tuple[str, str], int] = {}
    steps = []
    timed = list(zip(traced, _step_times(traced), strict=True))
    for step, step_time in tqdm(timed, "deriving phases", unit="step", disable=not progress, leave=False):
        graph = StepGraph(step, worker, servers)
        for key, size in graph.parameters().items():
            sizes[key] = max(size, sizes.get(key, 0))
        steps.append(_step(graph, step_time))
    waiting = sum(
        length(union((o.start, o.end) for o in step.operations if o.task == worker and o.op.startswith(TAKES_BATCH)))
        for step in traced
    )
    return Derived(
        steps=steps,
        workers=len({*workers, *(task for step in traced for task in step.workers)}),
        servers=servers,
        shard_bytes=[sum(size for (server, _), size in sizes.items() if server == s) for s in servers],
        tensors=len(sizes),
        input=waiting / sum(step_time for _, step_time in timed),
    )


def _step(graph: StepGraph, step_time: float) -> Step:
    phases = {kind: graph.of_kind(kind) for kind in STEP_KINDS}
    busy = {  # control messages carry nothing
        kind: union((one.start, one.end) for one in own if not isinstance(one, Transfer) or one.bytes)
        for kind, own in phases.items()
    }
    times = {kind: length(intervals) for kind, intervals in busy.items()}
    sending = [*busy["fetch"], *busy["push"]]
    # inclusion and exclusion
    overlap = times["compute"] + length(union(sending)) - length(union([*busy["compute"], *sending]))
    try:
        return Step(
            step_time=step_time / 1e6,
            **{kind: time / 1e6 for kind, time in times.items()},
            fetched_bytes=sum(t.bytes for t in phases["fetch"]),
            pushed_bytes=sum(t.bytes for t in phases["push"]),
            overlap=overlap / 1e6,
            operations=contract(graph),
        )
    except DataError as error:
        raise DataError(f"{graph.where}: {error}") from None


def _roles(traced: Sequence[TracedStep]) -> tuple[list[str], list[str]]:
    """The workers, the one that moves most bytes first, and the servers by task number."""
    for step in traced:
        tasks = sorted({o.task for o in step.operations} | {t.destination for t in step.transfers})
        if len(tasks) < 2:
            raise DataError(
                f"{step.where}: a trace of only one task ({', '.join(tasks) or 'none'}); expected a worker and a "
                "parameter server: trace a session connected to the cluster, with FULL_TRACE"
            )
        if not step.transfers:
            raise DataError(
                f"{step.where}: no RecvTensor event, so no communication can be seen; trace with FULL_TRACE a graph "
                "whose variables live on a parameter server"
            )
    ends = set[str]().union(*(step.ends for step in traced))
    servers = sorted((t for t in ends if t.startswith("ps:")), key=lambda t: int(t.partition(":")[2]))
    bytes_of = Counter[str]()
    for t in (t for step in traced for t in step.transfers):
        if len(outside := {t.source, t.destination} - {*servers}) == 1:
            bytes_of[outside.pop()] += 1 + t.bytes
    if not bytes_of:
        raise DataError(
            f"{traced[0].where}: transfers only among {', '.join(sorted(ends))}; expected parameter servers in job "
            "'ps' and a worker in another job"
        )
    return sorted(bytes_of, key=lambda task: (-bytes_of[task], task)), servers


def _of_tasks(step: TracedStep, tasks: set[str]) -> TracedStep:
    transfers = [t for t in step.transfers if t.source in tasks and t.destination in tasks]
    if not transfers:
        raise DataError(f"{step.where}: no RecvTensor event between {', '.join(sorted(tasks))}")
    return replace(step, operations=[o for o in step.operations if o.task in tasks], transfers=transfers)


def _restored(traced: Sequence[TracedStep]) -> list[TracedStep]:
    """Add the transfers that the recorder lost, from when the tensor was made until its first use."""
    size = {(t.tensor, t.source, t.destination): t.bytes for step in traced for t in step.transfers}
    result = []
    for step in traced:
        made = {(o.name, o.task): o.end for o in step.operations}
        used: dict[tuple[str, str], int] = {}  # when a received tensor first was
        for o in sorted(step.operations, key=lambda o: -o.start):
            for match in filter(None, map(RECEIVED.match, o.inputs)):
                if (match[0], o.task) not in made and (match["tensor"], o.task) not in made:
                    used[match["tensor"], o.task] = o.start
        seen = {(t.tensor, t.source, t.destination) for t in step.transfers}
        lost = [key for key in size if key not in seen and key[:2] in made and key[::2] in used]
        restored = [Transfer(*key, min(made[key[:2]], end := used[key[::2]]), end, size[key]) for key in lost]
        result.append(replace(step, transfers=[*step.transfers, *restored]))
    return result


def _step_times(traced: Sequence[TracedStep]) -> list[float]:
    """Each step's span and the pause after it, less the collection of its trace (us).

    The median replaces implausible pauses and the last one; the shortest of a recording is always plausible.
    """
    spans = [step.span for step in traced]
    own = min((b.span[0] - a.span[1] for a, b in pairwise(traced) if a.where == b.where), default=0)
    pauses: list[float | None] = []
    for step, (start, end), following in zip(traced, spans, [*spans[1:], None], strict=True):
        pause = following[0] - end if following else -1
        plausible = 0 <= pause <= max(own, 0) + max(LONGEST_PAUSE * (end - start), SHORT_PAUSE)
        pauses.append(max(pause - step.collection, pause / 4) if plausible else None)
    usual = median([pause for pause in pauses if pause is not None] or [0])
    each = zip(spans, pauses, strict=True)
    return [end - start + (usual if pause is None else pause) for (start, end), pause in each]


def _require_one_job(traced: Sequence[TracedStep], worker: str) -> None:
    """Refuse steps of several jobs, and repeated ones; other workers of the job may run meanwhile."""
    for one, other in pairwise(traced):
        names, others = ({o.name for o in step.operations} for step in (one, other))
        common = len(names & others)
        if common < ALIKE * min(len(names), len(others)):
            raise DataError(
                f"{other.where}: another job than {one.where}: they have {common} operations in common, of "
                f"{len(others)} and {len(names)}; give each job's traces a folder of their own"
            )
    own = [(step.where, [o for o in step.operations if o.task == worker]) for step in traced]
    spans = sorted((min(o.start for o in some), max(o.end for o in some), where) for where, some in own if some)
    for (start, end, where), (begins, ends, again) in pairwise(spans):
        if (start, end) == (begins, ends):
            raise DataError(f"{again}: the same step as {where}; remove the copy")
        if min(end, ends) - begins > OVERLAP * min(end - start, ends - begins):
            raise DataError(
                f"{again}: {worker} runs this step while it runs {where}: two jobs, or clocks that jumped; "
                "give each job's traces a folder of their own"
            )


def _clock_offsets(traced: Sequence[TracedStep], worker: str, server: str) -> list[int]:
    """The server's clock less the worker's in each step (us): 0, or the middle of the narrowest bounds (as NTP does).

    No tensor arrives before it was made: every fetch is a lower bound, every push an upper one.
    """
    bounds = []
    for step in traced:
        made, least = _made(step.operations), {server: math.inf, worker: math.inf}
        for t in step.transfers:  # time between making a tensor and having it, each by its own clock
            if {t.source, t.destination} == least.keys() and (t.tensor, t.source) in made:
                least[t.source] = min(least[t.source], t.end - made[t.tensor, t.source])
        bounds.append((-least[server], least[worker]))
    low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
    if low <= high + CLOCK_TOLERANCE:
        return [_offset_within(low, high)] * len(traced)
    for step, (low, high) in zip(traced, bounds, strict=True):  # the clocks drift
        if low > high + CLOCK_TOLERANCE:
            raise DataError(
                f"{step.where}: the clocks of {worker} and {server} do not match: tensors arrive up to "
                f"{(low - high) / 1e6:.6f} s before they were made whatever the offset; synchronize the "
                "hosts' clocks (NTP) and trace again"
            )
    return [_offset_within(*b) for b in bounds]


def _made(operations: Sequence[TracedOperation]) -> dict[tuple[str, str], int]:
    """When each operation first ended, by name and task."""
    return {(o.name, o.task): o.end for o in sorted(operations, key=lambda o: -o.end)}


def _offset_within(low: float, high: float) -> int:
    if low <= CLOCK_TOLERANCE and high >= -CLOCK_TOLERANCE:
        return 0
    known = [*filter(math.isfinite, (low, high))]
    return round(sum(known) / len(known))


def _on_one_clock(step: TracedStep, offsets: dict[str, int]) -> TracedStep:
    """All times by the worker's clock; a transfer's start mixes two where ``requested`` is unknown."""
    if not any(offsets.values()) and all(t.requested is None for t in step.transfers):
        return step
    operations = [
        replace(o, start=o.start - shift, end=o.end - shift) if (shift := offsets.get(o.task, 0)) else o
        for o in step.operations
    ]
    made = _made(operations)
    transfers = []
    for t in step.transfers:
        ahead, behind = offsets.get(t.source, 0), offsets.get(t.destination, 0)
        end = t.end - behind
        earliest = made.get((t.tensor, t.source), step.span[0] - max(ahead, behind))
        if t.requested is not None:
            start = max(t.start - ahead, t.requested - behind)
        elif ahead <= behind:
            start = t.start - behind
        elif t.start < t.end - 1:
            start = t.start - ahead
        else:
            start = earliest
        transfers.append(replace(t, start=min(max(start, earliest), end), end=end))
    return replace(step, operations=operations, transfers=transfers)
