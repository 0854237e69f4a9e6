"""What one worker's trace says of the kind of network: how likely each makes it that so many transfers came late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..training.profile import Profile
from .contention import Contention, contentions
from .graph import arrival_order
from .kernel.state import END, PUSH, READY
from .links import Links
from .prepare import Graphs, prepare
from .result import SimulatedRun
from .simulate import simulate
from .variants import variants

#: What a silence makes late, at least: half of the least timeout (seconds), and this share of the time without it.
SILENCE, SHARE = 0.1, 0.1

#: Share of phases that anything else makes so late, hosts that stand still for instance: on the testbed none of 192
#: under control by losses, nor any of 250 untraced steps, so at most the first, with 95 %. Elsewhere it may be any.
OTHERWISE = np.array([0.005, *(np.arange(10) + 0.5) / 10])
OTHERWISE_WEIGHTS = np.array([0.95, *[0.005] * 10])

#: Operations, and steps at least and at most, simulated on each network.
OPERATIONS, LEAST_STEPS, MOST_STEPS = 100_000, 20, 200

#: A kind that is less likely does not count: neither end of a 90 % interval can be its own.
NEGLIGIBLE = 0.05


def weighed(
    kinds: Sequence[Contention], profile: Profile, *, links: Links | None = None, **told: Any
) -> tuple[Contention, ...]:
    """
    Kinds of network by how likely they are once the trace has been looked at, the likeliest first.

    Connections under BBR fall silent, those under control by losses hardly ever. How many of the phases, in which a
    worker fetches or pushes, that makes late is simulated with one worker, on each kind with several buffers
    (`variants`); the number of recorded ones is binomial, given that, and weighs the kinds by its likelihood. Of
    another network than the recorded one a trace says nothing, nor do those of several workers, which wait for each
    other.

    Parameters
    ----------
    kinds : sequence of Contention
        Of `contentions`.
    profile : Profile
        With operations.
    links : Links, optional
        What the links carry, instead of `estimate_links(profile)`.
    **told
        What `contentions` was told of the network.

    Raises
    ------
    DataError
        When the profile cannot be simulated, see `simulate`.

    Examples
    --------
    >>> from queuemodel.data import example_profile
    >>> profile = example_profile()
    >>> found = weighed(contentions(profile, congestion_control="unknown"), profile, congestion_control="unknown")
    >>> [(kind.name, round(kind.share, 1)) for kind in found]  # nothing came late
    [('loss-based', 0.8), ('bbr', 0.2)]
    """
    if len(kinds) == 1 or profile.cluster.workers > 1 or tuple(kinds) != contentions(profile, **told):
        return tuple(kinds)
    graphs = prepare(profile, links=links)
    undisturbed = np.full((len(profile.steps), 2), np.nan)
    record, seconds = _repeated(graphs, loaded_trip=0.0, unfairness=0.0)
    undisturbed[record] = seconds
    late = _late(_recorded(profile), undisturbed)
    buffer = profile.cluster.buffer if told.get("buffer") is None else told["buffer"]
    among = variants(kinds, fixed=False, buffer_told=buffer is not None)
    logs = []
    for variant in among:
        record, seconds = _repeated(graphs, **variant.of(kinds).settings)
        silent = _late(seconds, undisturbed[record])
        spared = 1 - (silent.sum() + 0.5) / (len(silent) + 1)  # Krichevsky and Trofimov (1981)
        p = 1 - spared * (1 - OTHERWISE)
        logs.append(late.sum() * np.log(p) + (~late).sum() * np.log(1 - p))
    likelihood = np.exp(np.array(logs) - np.max(logs)) @ OTHERWISE_WEIGHTS * [variant.weight for variant in among]
    shares = np.bincount([variant.kind for variant in among], likelihood) / likelihood.sum()
    found = [replace(kind, share=float(share)) for kind, share in zip(kinds, shares, strict=True)]
    found.sort(key=lambda kind: -kind.share)
    return tuple(replace(kind, note=_note(found, late)) for kind in found)


def likely(kinds: Sequence[Contention]) -> tuple[Contention, ...]:
    """Those that are not negligible."""
    return tuple(kind for kind in kinds if kind.share >= NEGLIGIBLE)


def _note(kinds: Sequence[Contention], late: np.ndarray) -> str:
    spanned = " and ".join(f"{kind.name} ({kind.share:.0%})" for kind in likely(kinds))
    return (
        f"TCP's congestion control is not known, and {late.sum()} of {len(late)} recorded phases came late, so "
        f"intervals span {spanned}: tell it (--congestion-control) to narrow them"
    )


def _repeated(graphs: Graphs, **network: Any) -> tuple[np.ndarray, np.ndarray]:
    """Which recorded steps (m,) one simulated worker repeats, and for how long (m, 2) it fetches and pushes in each."""
    steps = int(np.clip(OPERATIONS * len(graphs.profile.steps) / len(graphs.steps.kind), LEAST_STEPS, MOST_STEPS))
    run = simulate(graphs, workers=1, steps=steps, trace_steps=steps, **network)
    return _phases(run, graphs)


def _phases(run: SimulatedRun, graphs: Graphs) -> tuple[np.ndarray, np.ndarray]:
    """The same of a run whose steps were kept; minus infinity where a step fetches, or pushes, nothing."""
    sent = np.array([step.operations[i].bytes for step in graphs.profile.steps for i in arrival_order(step.operations)])
    at = graphs.steps.first[run.log[:, 2]] + run.log[:, 3]
    kept = (sent[at] > 0) & (run.log[:, 1] < run.log[:, 1].max())  # the last step is cut by the run's end
    _, step = np.unique(run.log[kept, 1], return_inverse=True)
    way = (graphs.steps.kind[at[kept]] == PUSH).astype(int)
    many = (int(step.max(initial=-1)) + 1, 2)
    record, begin, end = np.zeros(many[0], int), np.full(many, np.inf), np.full(many, -np.inf)
    record[step] = run.log[kept, 2]
    np.minimum.at(begin, (step, way), run.log_times[kept, READY])
    np.maximum.at(end, (step, way), run.log_times[kept, END])
    return record, end - begin


def _recorded(profile: Profile) -> np.ndarray:
    """The same of the recorded steps, shape (steps, 2)."""
    found = np.full((len(profile.steps), 2), -np.inf)
    for number, step in enumerate(profile.steps):
        for way, kind in enumerate(("fetch", "push")):
            own = [o for o in step.operations if o.kind == kind and o.bytes > 0]
            if own:
                found[number, way] = max(o.end for o in own) - min(o.start for o in own)
    return found


def _late(seconds: np.ndarray, undisturbed: np.ndarray) -> np.ndarray:
    """Which phases, of those that are known undisturbed, came as late as a silence makes them."""
    known = np.isfinite(undisturbed) & np.isfinite(seconds)
    needed = undisturbed[known]
    return np.asarray(seconds[known] - needed > np.maximum(SILENCE, SHARE * needed))
