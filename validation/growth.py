"""Fits of throughputs alone: learn their prior, and judge them on series of sources that it was not learnt from.

python -m validation.growth [--write]

prints the tables of validation/results.md; ``--write`` learns queuemodel/models/growth.toml from all sources. A
source's series share hardware, software and authors: each source counts as one job, and is left out as a whole.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

import queuemodel.models.growth
from queuemodel import Job, Measurement
from queuemodel.base.files import write_atomically
from queuemodel.models import GrowthModel
from queuemodel.models.demands import largest_share
from queuemodel.models.growth import NAMES, STRATEGIES, Posterior, Prior, fit_throughputs

from .intervals import interval_score
from .published import Scaling, cloud, clusters, full_nodes, published, testbed

FILE = Path(queuemodel.models.growth.__file__).with_suffix(".toml")
SPARSE = "sparse gradients"
NO_JOB = Job(batch_size=1, parameter_bytes=0, tensors=0)
KINDS = (*STRATEGIES, SPARSE)

#: Before anything is learnt: the knee's share of jobs, all allowed laws sharing the rest; how many jobs that is worth.
KNEES = {"async-ps": 0.75, "sync-ps": 0.2}
PSEUDO_JOBS = 5.0
#: Laws that are not allowed: throughput of asynchronous jobs does not fall, and gathered rows grow with the group.
NOT = {"async-ps": ("n", "sqrt n"), SPARSE: [name for name in NAMES if name != "n"]}
#: Scale of the logarithm of how much longer a round of 64 times the workers takes: chosen by the errors below.
GROWTH = {"async-ps": 4.0, "sync-ps": 4.0, "all-reduce": 1.5, SPARSE: 10.0}
#: Before anything is learnt: parameter bytes per second of a server, and the spread of their logarithm.
SERVER_RATE, SERVER_RATE_SPREAD, RATE_PSEUDO_JOBS = 400e6, 0.7, 3.0


def series(kind: str) -> list[Scaling]:
    """What a kind's prior is learnt from, and judged by; not the testbeds, whose links were chosen to saturate."""
    every = [*published(), *cloud(), *clusters()]
    if kind == SPARSE:  # devices of one host count as workers of the server of embeddings
        return [job for job in [*every, *published(on_one_host=True)] if job.sparse and job.kind != "async-ps"]
    return [job for job in every if job.kind == kind]


def teaches(job: Scaling) -> bool:
    """Later all-reduces do not: most are of machines of eight GPUs, others are not."""
    return not (job.later and job.kind == "all-reduce")


def start(kind: str) -> np.ndarray:
    """Shares of jobs before anything is learnt."""
    knee = KNEES.get(kind, 0.0)
    laws = np.array([name not in NOT.get(kind, ()) for name in NAMES[:-1]], dtype=float)
    return np.append((1.0 - knee) * laws / laws.sum(), knee)


@cache
def _evidence(job: str, kind: str) -> np.ndarray:
    (found,) = [one for one in series(kind) if one.name == job]
    prior = Prior({name: 1.0 for name, share in zip(NAMES, start(kind), strict=True) if share}, GROWTH[kind])
    share = largest_share(found.servers) if kind == "async-ps" else 1.0
    return Posterior(found.nodes, np.log(found.throughput), prior, share=share).log_evidence()


def learn(kind: str, without: str = "") -> Prior:
    """The prior of a kind: shares are maxima a posteriori under a Dirichlet prior, by expectation maximization."""
    jobs = [job for job in series(kind) if teaches(job) and job.source != without]
    sizes = Counter(job.source for job in jobs)
    weight = np.array([1.0 / sizes[job.source] for job in jobs])
    table = np.array([_evidence(job.name, kind) for job in jobs])
    likelihood = np.exp(table - table.max(axis=1, keepdims=True))
    shares = start(kind)
    for _ in range(60):
        chance = likelihood * shares
        shares = PSEUDO_JOBS * start(kind) + weight @ (chance / chance.sum(axis=1, keepdims=True))
        shares /= shares.sum()
    return Prior({name: round(float(p), 4) for name, p in zip(NAMES, shares, strict=True) if p}, GROWTH[kind])


def server_rates() -> tuple[float, float]:
    """Parameter bytes per second of a server at saturation, and the spread of their logarithm."""
    prior, rates = learn("async-ps"), []
    for job in series("async-ps"):
        _, demand, _ = fit_throughputs(job.points(), job=NO_JOB, strategy="async-ps", prior=prior).posterior.servers
        if job.parameter_bytes and (demand == 0).mean() < 0.1:
            rates.append(np.log(job.parameter_bytes / float(np.median(demand))))
    mean = (sum(rates) + np.log(SERVER_RATE)) / (len(rates) + 1)
    squares = float(((np.array(rates) - mean) ** 2).sum()) + RATE_PSEUDO_JOBS * SERVER_RATE_SPREAD**2
    return round(float(np.exp(mean)), -6), round((squares / (len(rates) + RATE_PSEUDO_JOBS)) ** 0.5, 3)


def write() -> None:
    """Write the table of the prior's numbers, learnt from all sources."""
    about = f'command = "python -m validation.growth --write"\ndate = {datetime.date.today()}\n'
    text = "# What jobs are like that are known from throughputs alone (queuemodel.models.growth).\n"
    for kind in KINDS:
        sources = Counter(job.source for job in series(kind) if teaches(job))
        told = ", ".join(f"{name} ({count})" for name, count in sorted(sources.items()))
        value = ", ".join(f'"{name}" = {share}' for name, share in learn(kind).shares.items())
        text += f'\n[shares."{kind}"]\nvalue = {{{value}}}\nunit = "share of jobs"\n'
        text += f"source = {json.dumps(f'series of each source in validation/data: {told}')}\n{about}"
    value = ", ".join(f'"{kind}" = {mean}' for kind, mean in GROWTH.items())
    text += f'\n[growth]\nvalue = {{{value}}}\nunit = "scale of a logarithm"\n'
    text += f'source = "chosen of 0.5 to 10 by the errors on sources left out"\n{about}'
    for name, number, unit in zip(("server_rate", "server_rate_spread"), server_rates(), ("B/s", "1"), strict=True):
        source = "validation/data/cloud_async_ps.json, where saturation shows"
        text += f'\n[{name}]\nvalue = {number}\nunit = "{unit}"\nsource = "{source}"\n{about}'
    write_atomically(FILE, text)


@dataclass(frozen=True)
class Judged:
    """What was measured of a series where it was not fitted, and what was predicted there."""

    job: Scaling
    measured: np.ndarray
    predicted: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @property
    def error(self) -> float:
        """Mean absolute relative error."""
        return float(np.abs(self.predicted / self.measured - 1).mean())

    @property
    def coverage(self) -> float:
        """Share of the measurements inside the interval."""
        return float(((self.lower <= self.measured) & (self.measured <= self.upper)).mean())

    @property
    def score(self) -> float:
        """Mean interval score in logarithms."""
        return float(interval_score(np.log(self.lower), np.log(self.upper), np.log(self.measured)).mean())


Fit = Callable[[list[Measurement]], GrowthModel]


def fit_of(job: Scaling, *, told: bool = False, prior: Prior | None = None) -> Fit:
    """A fit whose prior was not learnt from the job's source, ``told`` what is known of the job besides."""
    own = msgspec.structs.replace(NO_JOB, parameter_bytes=(told and job.parameter_bytes) or 0)
    sparse = told and job.sparse
    prior = prior or _without(job.source, SPARSE if sparse else job.kind)
    ranks, link = (job.ranks_per_node if job.ranks_per_node > 1 else None, job.link) if told else (None, None)
    return lambda points: fit_throughputs(
        points, job=own, strategy=job.kind, prior=prior, sparse_gradients=sparse, ranks_per_node=ranks, link=link
    )


@cache
def _without(source: str, kind: str) -> Prior:
    return learn(kind, without=source)


def judge(job: Scaling, fit: Fit, fitted: int, ahead: int | None = None) -> Judged:
    """Predict a series from its smallest groups, beyond them or from number ``ahead`` on."""
    beyond = slice(ahead or fitted, None)
    curve = fit(job.points(slice(fitted))).throughput(job.workers[beyond].astype(int).tolist())
    return Judged(job, job.throughput[beyond], curve.steps_per_second, curve.lower, curve.upper)


def leave_source_out(jobs: Iterable[Scaling], *, most: int | None = None, told: bool = False) -> list[Judged]:
    """Each series from its two smallest groups, or from those of at most ``most`` workers."""
    numbers = [(job, int((job.nodes <= most).sum()) if most else 2) for job in jobs]
    return [judge(job, fit_of(job, told=told), k) for job, k in numbers if 2 <= k < len(job.nodes)]


#: Laws with two parameters, through the same two points: what a round takes, up to two factors.
FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"ring": lambda n: 1.0 - 1.0 / n, "log n": np.log}


def by_form(form: str, found: Sequence[Judged]) -> list[Judged]:
    """The same series by a law with two parameters; rounds take a thousandth of the longest at least."""
    made = []
    for one in found:
        n, T, g = one.job.nodes, one.job.nodes / one.job.throughput, FORMS[form](one.job.nodes)
        predicted = np.maximum(T[0] + (T[1] - T[0]) / (g[1] - g[0]) * (g - g[0]), 1e-3 * max(T[:2]))
        made.append(replace(one, predicted=(n / predicted)[-len(one.measured) :]))
    return made


def further(jobs: Sequence[Scaling]) -> Iterator[tuple[str, int, float, float]]:
    """By source and number of measurements, 2 and more: mean errors beyond the next one, without and with it."""
    sources = sorted({job.source for job in jobs})
    for source in sources:
        own = [job for job in jobs if job.source == source]
        for k in range(2, max(len(job.nodes) for job in own) - 1):
            longer = [job for job in own if len(job.nodes) > k + 1]
            before, after = (np.mean([judge(job, fit_of(job), m, k + 1).error for job in longer]) for m in (k, k + 1))
            yield source, k, float(before), float(after)


def by_source(found: Sequence[Judged]) -> float:
    """Mean error, first over a source's series."""
    sources = {one.job.source for one in found}
    return float(np.mean([np.mean([one.error for one in found if one.job.source == s]) for s in sources]))


def coverage(found: Sequence[Judged]) -> float:
    """Share of all measurements inside their intervals."""
    return float(np.average([one.coverage for one in found], weights=[len(one.measured) for one in found]))


@cache
def judged() -> dict[str, list[Judged]]:
    """The rows of the table, each series predicted with a prior that was not learnt from its source."""
    return {name: leave_source_out(jobs, **how) for name, (jobs, how) in _rows().items()}  # type: ignore[arg-type]


def _rows() -> dict[str, tuple[list[Scaling], dict[str, object]]]:
    """The rows of the table: series, and how they are fitted."""
    own = {kind: series(kind) for kind in KINDS}
    known = {job.name for job in clusters()}
    machines = [job for job in own["all-reduce"] if job.name not in known]
    return {
        "all-reduce, clusters of one worker per node": (clusters(), {}),
        "all-reduce, published": (machines, {}),
        "all-reduce, published, told ranks and sparse gradients": (machines, {"told": True}),
        "all-reduce, 1 T4 per node": (full_nodes(1), {}),
        "all-reduce, 2 T4 per node, told": (full_nodes(2), {"told": True}),
        "all-reduce, 4 T4 per node, told": (full_nodes(4), {"told": True}),
        "sync-ps": (own["sync-ps"], {}),
        "sync-ps, told sparse gradients": (own["sync-ps"], {"told": True}),
        "sparse gradients, told": (own[SPARSE], {"told": True}),
        "async-ps, cloud and published": (own["async-ps"], {}),
        "async-ps, cloud and published, told bytes": (own["async-ps"], {"told": True}),
        "async-ps, testbed": (testbed(), {}),
        "async-ps, testbed, told bytes and links": (testbed(), {"told": True}),
        "async-ps, from 1 to 4 workers": ([*own["async-ps"], *testbed()], {"most": 4}),
        "async-ps, from 1 to 4 workers, told": ([*own["async-ps"], *testbed()], {"most": 4, "told": True}),
    }


SECTION = """## Few throughputs, on sources that the prior was not learnt from

Published series (`validation/data`), the cloud's and the testbed's, predicted from their two smallest groups, or from
one to four workers, with a prior learnt from all other sources (`python -m validation.growth`). Beside them laws with
two parameters, through the same two points. Errors are means over series of mean absolute relative errors, *by source*
first over those of each source; *score* is the interval score in logarithms.

| jobs | series | error | by source | median | ring | log n | covered | score |
|---|---|---|---|---|---|---|---|---|
"""


def growth_section() -> str:
    """Markdown: what fits from few throughputs err by on unseen sources, and what a further measurement does."""
    text = SECTION
    for name, found in judged().items():
        errors = [one.error for one in found]
        forms = [f"{np.mean([o.error for o in by_form(f, found)]):.1%}" if "1 to 4" not in name else "" for f in FORMS]
        text += f"| {name} | {len(found)} | {np.mean(errors):.1%} | {by_source(found):.1%} | {np.median(errors):.1%} | "
        text += f"{' | '.join(forms)} | {coverage(found):.0%} | {np.mean([one.score for one in found]):.2f} |\n"
    rows = [row for kind in STRATEGIES for row in further(series(kind))]
    worse = [row for row in rows if row[3] > row[2]]
    text += "\nA further measurement, judged beyond it, makes the mean error of a source no larger in "
    told = "; ".join(f"{source}, {k} to {k + 1}: {a:.1%} to {b:.1%}" for source, k, a, b in worse)
    return text + f"{len(rows) - len(worse)} of {len(rows)} cases. The others: {told or 'none'}.\n"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write()
    print(growth_section())
