"""Learn the prior of fits from throughputs alone.

python -m validation.prior

writes queuemodel/training/throughput_prior.json. Each source counts as one job, however many series it has: jobs of one
source share hardware, software and authors. Shares of jobs are maximum a posteriori under Dirichlet priors (by
expectation maximization), so that what no source shows stays possible.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

import queuemodel.training.prior
from queuemodel import Job
from queuemodel.files import write_atomically
from queuemodel.training.demands import largest_share
from queuemodel.training.knee_posterior import KneePosterior
from queuemodel.training.prior import KneePrior, RoundPrior, Strategy
from queuemodel.training.round_law import Rounds

from .published import Scaling, cloud, published

FILE = Path(queuemodel.training.prior.__file__).with_name("throughput_prior.json")

LAWS = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 6.0)
DRIFTS = (0.0, 0.03, 0.1)
#: Weight of the Dirichlet priors, in jobs.
PSEUDO_JOBS = 3.0
#: Errors of a measured throughput.
ERRORS = (0.01, 0.02, 0.04)
#: Before anything is learnt: share of asynchronous jobs whose servers grow with the workers; parameter bytes per second
#: of a server, their spread.
GROWING, SERVER_RATE, SERVER_RATE_SPREAD = 0.15, 400e6, 0.7

#: Assumed: laws that never end are latency and stragglers, which start small; what costs much at once is bandwidth.
GROWING_COST: dict[Strategy, float] = {"sync-ps": 0.5, "all-reduce": 0.5}

#: Assumed: how often servers change from a group to one twice as large, of jobs that have any.
CHANGES: dict[Strategy, float] = {"sync-ps": 0.1, "all-reduce": 0.0}

#: Where gradients are sparse rows are gathered, which grows with the group.
GATHERED = [q for q in LAWS if q < 0]

NO_JOB = Job(batch_size=1, parameter_bytes=0, tensors=0)

ABOUT = (
    "Prior of throughput-only fits (queuemodel.training.prior says what the names mean), learnt by `python -m "
    "validation.prior` from the sources below: published measurements, with their origins and licences in "
    "validation/data."
)


def series() -> list[Scaling]:
    """Everything that others measured; not the testbeds, whose links were chosen so that jobs saturate."""
    return [*published(), *cloud()]


def teaches(job: Scaling) -> bool:
    """Whether a series is learnt from: not later all-reduces: most are of machines of eight GPUs, others are not."""
    return not (job.later and job.kind == "all-reduce")


def sparse_series() -> list[Scaling]:
    """Synchronous jobs with sparse gradients; devices of one host count as workers of the server of embeddings."""
    every = [*published(), *published(on_one_host=True)]
    return [job for job in every if job.sparse and job.kind != "async-ps"]


def learn_shares(
    log_evidence: Sequence[np.ndarray], weights: Sequence[float], start: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Shares of jobs along each axis of the log likelihoods, by expectation maximization around ``start``."""
    axes = range(1, len(start) + 1)  # after the one of the jobs
    tables = np.array(log_evidence)
    likelihood = np.exp(tables - tables.max(axis=tuple(axes), keepdims=True))
    weight = np.expand_dims(weights, tuple(axes))
    shares = list(start)
    for _ in range(60):
        chance = likelihood
        for axis, share in zip(axes, shares, strict=True):
            chance = chance * np.expand_dims(share, [other - 1 for other in axes if other != axis])
        chance = chance * weight / chance.sum(axis=tuple(axes), keepdims=True)
        for axis in axes:
            count = PSEUDO_JOBS * start[axis - 1] + chance.sum(tuple(a for a in (0, *axes) if a != axis))
            shares[axis - 1] = count / count.sum()
    return shares


def source_weights(jobs: Sequence[Scaling]) -> list[float]:
    """A job for each source."""
    sizes = Counter(job.source for job in jobs)
    return [1.0 / sizes[job.source] for job in jobs]


def _flat(laws: Sequence[float]) -> list[np.ndarray]:
    """Laws and drifts all alike."""
    return [np.full(len(values), 1 / len(values)) for values in (laws, DRIFTS)]


def _named(laws: Sequence[float], shares: Sequence[np.ndarray]) -> list[dict[float, float]]:
    """Shares of laws and of drifts by their values."""
    return [dict(zip(v, s.round(4).tolist(), strict=True)) for v, s in zip((laws, DRIFTS), shares, strict=True)]


def learn_rounds(jobs: Sequence[Scaling]) -> dict[Strategy, RoundPrior]:
    """Priors of the synchronous kinds, each around what both have in common."""
    laws, drifts = _named(LAWS, _flat(LAWS))
    both = [job for job in jobs if job.kind != "async-ps" and teaches(job)]
    tables = {
        job.name: _round_evidence(job, RoundPrior(laws, drifts, GROWING_COST[job.kind], CHANGES[job.kind]))
        for job in both
    }
    common = learn_shares([tables[job.name] for job in both], source_weights(both), _flat(LAWS))
    priors = {}
    for kind in CHANGES:
        own = [job for job in both if job.kind == kind]
        shares = learn_shares([tables[job.name] for job in own], source_weights(own), common)
        priors[kind] = RoundPrior(*_named(LAWS, shares), GROWING_COST[kind], CHANGES[kind])
    return priors


def learn_sparse(jobs: Sequence[Scaling]) -> dict[Strategy, RoundPrior]:
    """Priors of the synchronous kinds where gradients are sparse, of laws and drifts that both have in common."""
    start = _flat(GATHERED)
    flat = {kind: RoundPrior(*_named(GATHERED, start), GROWING_COST[kind], paid=True) for kind in CHANGES}
    tables = [Rounds(job.nodes, np.log(job.throughput), flat[job.kind]).log_evidence() for job in jobs]
    shares = _named(GATHERED, learn_shares(tables, source_weights(jobs), start))
    return {kind: RoundPrior(*shares, GROWING_COST[kind], CHANGES[kind], paid=True) for kind in CHANGES}


_evidence: dict[str, np.ndarray] = {}


def _round_evidence(job: Scaling, prior: RoundPrior) -> np.ndarray:
    if job.name not in _evidence:
        _evidence[job.name] = Rounds(job.nodes, np.log(job.throughput), prior).log_evidence()
    return _evidence[job.name]


def learn_knees(jobs: Sequence[Scaling]) -> KneePrior:
    """The prior of asynchronous jobs."""
    own = [job for job in jobs if job.kind == "async-ps"]
    start = [np.array([1.0 - GROWING, GROWING]), np.full(len(ERRORS), 1 / len(ERRORS))]
    told = [_knees(job) for job in own]
    families, errors = learn_shares([odds for odds, _ in told], source_weights(own), start)
    rates = np.array([rate for _, rate in told if rate is not None])
    mean = (rates.sum() + np.log(SERVER_RATE)) / (len(rates) + 1)
    spread = np.sqrt((((rates - mean) ** 2).sum() + PSEUDO_JOBS * SERVER_RATE_SPREAD**2) / (len(rates) + PSEUDO_JOBS))
    return KneePrior(
        round(float(families[1]), 4),
        dict(zip(ERRORS, errors.round(4).tolist(), strict=True)),
        round(float(np.exp(mean)), -6),
        round(float(spread), 3),
    )


_known: dict[str, tuple[np.ndarray, float | None]] = {}


def _knees(job: Scaling) -> tuple[np.ndarray, float | None]:
    """Log evidence of families and errors; log bytes per second of a server where saturation shows."""
    if job.name not in _known:
        half = KneePrior(0.5, dict.fromkeys(ERRORS, 1 / len(ERRORS)), SERVER_RATE, SERVER_RATE_SPREAD)
        share = np.full(len(job.nodes), largest_share(job.servers))
        found = KneePosterior(job.nodes.astype(float), np.log(job.throughput), share, 0, half)
        demand = found.draws()[1]
        saturates = demand > 0
        shown = job.parameter_bytes and saturates.mean() > 0.9
        rate = float(np.log(job.parameter_bytes / np.median(demand[saturates]))) if shown else None
        _known[job.name] = found.log_evidence(), rate
    return _known[job.name]


def learn() -> dict[str, object]:
    """The prior of all sources, as the file has it."""
    jobs, sparse = [job for job in series() if teaches(job)], sparse_series()
    rounds = learn_rounds(jobs)
    taught = {kind: [job for job in jobs if job.kind == kind] for kind in ("async-ps", "sync-ps", "all-reduce")}
    sources = {
        name: dict(sorted(Counter(job.source for job in own).items()))
        for name, own in (taught | {"sparse gradients": sparse}).items()
    }
    return {
        "about": ABOUT,
        "series per source": sources,
        "async-ps": asdict(learn_knees(jobs)),
        **{kind: asdict(prior) for kind, prior in rounds.items()},
        "sparse gradients": {kind: asdict(prior) for kind, prior in learn_sparse(sparse).items()},
    }


def main() -> int:
    """Write the prior."""
    write_atomically(FILE, json.dumps(learn(), indent=1) + "\n")
    print(f"wrote {FILE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
