"""Fits of tables: learn what jobs are like, and judge the model on sources that it was not learnt from.

python -m validation.scaling [--write]

prints the tables of validation/results.md; ``--write`` learns queuemodel/models/scaling/prior.toml from all sources. A
source's series share hardware, software and authors: each source counts as one job, and is left out as a whole. Beside
each row stand laws of one line, through the same measurements.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np

import queuemodel.models.scaling
from queuemodel.base.files import write_atomically
from queuemodel.models.scaling import Prior, ScalingModel, Sizes, fit_scaling
from queuemodel.models.scaling.model import Strategy
from queuemodel.models.scaling.prior import EXPONENTS, Kind
from queuemodel.profile.measurements import Measurement
from queuemodel.profile.scenario import SHARDED

from .published import Scaling, cloud, clusters, far_of, full_nodes, jobs, published, sharded, testbed

FILE = Path(queuemodel.models.scaling.__file__).parent / "prior.toml"
CLUSTERS = "data-parallel, clusters of one worker per node"
BESIDE = "other models of the cluster known"
KINDS: tuple[Kind, ...] = ("all-reduce", "sync-ps", "sparse gradients", "async-ps")

#: Mean and spread of transformed parameters before anything is learnt. The spread of the reduction between nodes stays
#: wide: two nodes show it.
START = {"forward share": (-0.5, 1.5), "between nodes": (-1.5, 2.0), "latency": (-3.5, 1.5), "misfit": (-4.2, 0.5)}
WIDE = ("between nodes",)
#: Shares of jobs by growth exponent before anything is learnt: gathered rows of sparse gradients grow with the group;
#: most asynchronous servers stay as they are.
START_GROWTH = {
    "all-reduce": (*(1.0,) * 7, 0.2), "sync-ps": (*(1.0,) * 7, 0.2), "async-ps": (0.1, 0.9),
    "sparse gradients": (*(0.0,) * 5, 0.05, 0.94, 0.01),
}  # fmt: skip
#: How many sources that is worth, chosen by the errors below; repetitions of the expectation maximization, and draws.
PSEUDO_SOURCES = {"all-reduce": 1.0, "sync-ps": 6.0, "sparse gradients": 3.0, "async-ps": 6.0}
REPETITIONS, SUBSET = 150, 600
#: Where in prior.toml what is learnt begins.
LEARNT = "# Learnt.\n"
#: Before anything is learnt: bytes per second of a server, and the spread of their logarithm; and what these are worth.
SERVER_RATE, SERVER_RATE_SPREAD, RATE_PSEUDO_JOBS = 400e6, 0.7, 3.0


@dataclass(frozen=True)
class Table:
    """Measurements of one job, those that are fitted, and those that are predicted."""

    row: str
    source: str
    name: str
    kind: Kind
    fitted: tuple[Measurement, ...]
    judged: tuple[Measurement, ...] = ()
    parameter_bytes: float | None = None
    link: float | None = None
    parameters: int | None = None
    beside: tuple[Table, ...] = ()

    def fit(self, prior: Prior) -> ScalingModel:
        """The model with a prior, and with what other jobs of the cluster show."""
        if self.kind in SHARDED:
            for other in self.beside:
                prior = replace(prior, cluster=other.fit(prior).cluster)
            prior = Prior.sharded(self.kind, parameters=self.parameters, cluster=prior.cluster)
            return fit_scaling(self.fitted, strategy=cast("Strategy", self.kind), prior=prior)
        strategy = "all-reduce" if self.kind == "sparse gradients" else self.kind
        prior = replace(prior, bytes=self.parameter_bytes, link=self.link)
        return fit_scaling(self.fitted, strategy=strategy, prior=prior)


def of_series(row: str, job: Scaling, *, fitted: int | None = 2, known: bool = False) -> Table:
    """A series from its smallest groups; ``known`` are ranks per node, sparse gradients, bytes and links."""
    ranks = job.ranks_per_node if known else 1
    rows = [
        Measurement(workers=n * ranks, nodes=n, steps_per_second=x, parameter_servers=job.servers)
        for n, x in zip(job.nodes.astype(int).tolist(), job.throughput.tolist(), strict=True)
    ]
    kind: Kind = "sparse gradients" if known and job.sparse and job.kind != "async-ps" else job.kind
    size, link = (job.parameter_bytes, job.link) if known else (None, None)
    beyond = tuple(rows[fitted:]) if fitted else ()
    return Table(row, job.source, job.name, kind, tuple(rows[:fitted]), beyond, size, link)


def of_placements(row: str, key: tuple[str, str], *, most_nodes: int = 2, sizes: int | None = None) -> Table:
    """A job of `validation.published.jobs` from at most so many nodes; with so many of its batch sizes only."""
    points = jobs()[key]
    if sizes:
        batches = sorted({p.batch_size or 1 for p in points if p.workers == 1})
        kept = {batches[i] for i in np.linspace(0, len(batches) - 1, sizes).astype(int)}
        points = [p for p in points if p.batch_size in kept]
    far = {id(p) for p in far_of(points)}
    judged = tuple(p for p in points if (p.nodes or 0) > most_nodes and id(p) in far)
    fitted = tuple(p for p in points if (p.nodes or 0) <= most_nodes)
    return Table(row, key[0].split(",")[0], key[1], "all-reduce", fitted, judged)


def of_batches(row: str, key: tuple[str, str], *, largest: bool) -> Table:
    """A job of `validation.published.jobs`; its largest or smallest batch size is judged, from those an octave away."""
    batches = sorted({p.batch_size or 1 for p in jobs()[key] if p.workers == 1}, reverse=largest)
    fitted, judged = (
        tuple(p for p in jobs()[key] if at(abs(np.log2((p.batch_size or 1) / batches[0]))))
        for at in (lambda octaves: octaves >= 1.0, lambda octaves: octaves == 0.0)
    )
    return Table(row, key[0].split(",")[0], key[1], "all-reduce", fitted, judged)


def of_shards(
    row: str,
    at: Callable[[float], bool] = lambda _: True,
    *,
    fitted: int = 2,
    known: bool = True,
    beside: bool = False,
    kind: Kind | None = None,
) -> list[Table]:
    """Jobs of `sharded` from their smallest groups, on nodes ``at`` (times those of the second group).

    ``known`` are parameters, ``beside`` tables of other models on the cluster.
    """
    every = [
        Table(row, j["source"], j["name"], kind or j["kind"], j["rows"], parameters=j["parameters"] if known else None)
        for j in sharded()
    ]
    found = []
    for one in every:
        second = one.fitted[1].nodes or 1
        judged = tuple(m for m in one.fitted[fitted:] if at((m.nodes or 1) / second))
        others = tuple(t for t in every if t.source == one.source and t.parameters != one.parameters)
        found.append(replace(one, fitted=one.fitted[:fitted], judged=judged, beside=others if beside else ()))
    return [t for t in found if t.beside or not beside]


def measured_placements() -> list[tuple[str, str]]:
    """Jobs that were measured by placement, and are not series."""
    return [key for key in jobs() if key[0].startswith(("Pollux", "Sia", "Gradient"))]


@cache
def teaching() -> tuple[Table, ...]:
    """All of each job, by which a prior is learnt; not the testbeds, whose links were chosen to saturate."""
    series = [*published(), *clusters(), *cloud(), *full_nodes(1), *full_nodes(2), *full_nodes(4)]
    series += [job for job in published(on_one_host=True) if job.sparse]  # devices count as workers
    tables = [of_series("", job, fitted=None, known=True) for job in series]
    return (*tables, *(of_placements("", k, most_nodes=99, sizes=1) for k in measured_placements() if k[0][0] != "P"))


def start(kind: Kind) -> Prior:
    """The prior before anything is learnt."""
    names = ("misfit",) if kind == "async-ps" else tuple(START)
    return Prior(kind, {name: START[name] for name in names}, START_GROWTH[kind])


@cache
def _posterior(index: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Of a teaching job, transformed parameters and number of the growth exponent in draws under `start`."""
    table = teaching()[index]
    prior = start(table.kind)
    u = table.fit(prior).coordinates
    u = u[np.linspace(0, len(u) - 1, SUBSET).astype(int)]  # equally likely, alike ones beside each other
    names = [one.name for one in prior.coordinates]
    exponents = np.array(EXPONENTS["asynchronous" if prior.asynchronous else "synchronous"])
    growth = np.abs(prior.values(u, 1.0)["growth"] - exponents).argmin(axis=1)
    return {name: m + s * u[:, names.index(name)] for name, (m, s) in prior.learnt.items()}, growth


@cache
def learn(kind: Kind, without: str = "") -> Prior:
    """The prior of a kind: maxima of the sources' likelihood, by expectation maximization over weighted draws."""
    if kind in SHARDED:
        return Prior.of(kind)  # assumed
    own = [i for i, table in enumerate(teaching()) if table.kind == kind and table.source != without]
    sources = Counter(teaching()[i].source for i in own)
    weight = np.array([1.0 / sources[teaching()[i].source] for i in own])
    prior, pseudo, total = start(kind), PSEUDO_SOURCES[kind], float(weight.sum()) + PSEUDO_SOURCES[kind]
    values = {name: np.array([_posterior(i)[0][name] for i in own]) for name in prior.learnt}  # (jobs, draws)
    growth = np.array([_posterior(i)[1] for i in own])
    first = np.array(prior.growth) / sum(prior.growth)
    log_first = _log_density(values, growth, prior.learnt, first)
    now, shares = dict(prior.learnt), first
    for _ in range(REPETITIONS):
        log_w = _log_density(values, growth, now, shares) - log_first
        w = np.exp(log_w - log_w.max(axis=1, keepdims=True))
        w *= weight[:, None] / w.sum(axis=1, keepdims=True)
        for name, v in values.items():
            mean, spread = prior.learnt[name]
            middle = float((w * v).sum() + pseudo * mean) / total
            square = float((w * (v - middle) ** 2).sum() + pseudo * spread**2 / 2) / total
            now[name] = middle, spread if name in WIDE else square**0.5
        shares = (np.bincount(growth.ravel(), w.ravel(), len(first)) + pseudo * first) / total
    rounded = {name: (round(mean, 2), round(spread, 2)) for name, (mean, spread) in now.items()}
    return replace(prior, learnt=rounded, growth=tuple(round(float(share), 3) for share in shares))


def _log_density(
    values: dict[str, np.ndarray], growth: np.ndarray, normal: dict[str, tuple[float, float]], shares: np.ndarray
) -> np.ndarray:
    """Log density of draws under normal laws of the parameters and shares of the growth exponents."""
    log_p = np.log(np.maximum(shares, 1e-300))[growth]
    for name, v in values.items():
        mean, spread = normal[name]
        log_p = log_p - 0.5 * ((v - mean) / spread) ** 2 - np.log(spread)
    return np.asarray(log_p)


def server_rates() -> tuple[float, float]:
    """Parameter bytes per second of a server at saturation, and the spread of their logarithm."""
    rates = []
    for job in cloud():
        model = of_series("", job, fitted=None).fit(learn("async-ps"))
        found = {p.name: p for p in model.parameters}
        if job.parameter_bytes and found["demand"].identified and found["growth"].value == 1.0:
            rates.append(np.log(job.parameter_bytes / found["demand"].value))
    mean = (sum(rates) + np.log(SERVER_RATE)) / (len(rates) + 1)
    squares = float(((np.array(rates) - mean) ** 2).sum()) + RATE_PSEUDO_JOBS * SERVER_RATE_SPREAD**2
    return round(float(np.exp(mean)), -6), round((squares / (len(rates) + RATE_PSEUDO_JOBS)) ** 0.5, 3)


def write() -> None:
    """Write what is learnt from all sources into the prior's table, beside what is assumed."""
    text, about = FILE.read_text().partition(LEARNT)[0] + LEARNT, 'command = "python -m validation.scaling --write"\n'
    about += f"date = {datetime.date.today()}\n"
    for kind in KINDS:
        sources = Counter(table.source for table in teaching() if table.kind == kind)
        named = ", ".join(f"{source} ({count})" for source, count in sorted(sources.items()))
        source = json.dumps(f"jobs of each source in validation/data: {named}")
        prior = learn(kind)
        normal = ", ".join(f'"{name}" = [{mean}, {spread}]' for name, (mean, spread) in prior.learnt.items())
        for table, value, unit in (
            ("learnt", f"{{{normal}}}", "mean and spread of the transformed parameter"),
            ("growth", str(list(prior.growth)), "share of jobs by growth exponent"),
        ):
            text += f'\n[{table}."{kind}"]\nvalue = {value}\nunit = "{unit}"\nsource = {source}\n{about}'
    source = "validation/data/cloud_async_ps.json, where saturation shows"
    for name, number, unit in zip(("rate", "spread"), server_rates(), ("B/s", "of a logarithm"), strict=True):
        text += f'\n[server.{name}]\nvalue = {number}\nunit = "{unit}"\nsource = "{source}"\n{about}'
    write_atomically(FILE, text)


@dataclass(frozen=True)
class Judged:
    """Predictions of a table: throughputs, their 90 % interval, those of one-line laws; each shape (n,)."""

    table: Table
    predicted: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @property
    def measured(self) -> np.ndarray:
        return np.array([m.steps_per_second for m in self.table.judged])

    @property
    def error(self) -> float:
        """Mean absolute relative error."""
        return float(np.abs(self.predicted / self.measured - 1).mean())

    @property
    def inside(self) -> np.ndarray:
        """Whether each measurement is inside its interval."""
        return np.asarray((self.lower <= self.measured) & (self.measured <= self.upper))

    @property
    def coverage(self) -> float:
        """Share of the measurements inside the interval."""
        return float(self.inside.mean())


def judge(table: Table, prior: Prior | None = None) -> Judged:
    """A table predicted with a prior that was not learnt from its source."""
    model = table.fit(prior or learn(table.kind, table.source))
    sizes, rng = Sizes.of(table.judged), np.random.default_rng(1)
    draws = model.draws(sizes)
    noisy = draws + model.error(sizes, rng) * rng.standard_normal(draws.shape)
    return Judged(table, *np.exp([model.point(draws), *np.quantile(noisy, [0.05, 0.95], axis=1)]))


#: Laws of one line: what the step time is beside a constant; "constant": that of the largest group, "ring+": a ring's,
#: but never faster per worker than that.
LAWS: dict[str, Callable[[float], float]] = {
    "ring": lambda k: -1 / k, "ring+": lambda k: -1 / k, "log n": np.log, "constant": lambda k: 0.0, "linear": float,
}  # fmt: skip


def by_law(law: str, table: Table) -> float:
    """Mean absolute relative error of a one-line law, through the smallest and largest groups of the same nodes."""
    errors, g = [], LAWS[law]
    for wanted in table.judged:
        alike: dict[int, list[float]] = {}
        for m in table.fitted:
            nodes, full = m.nodes or m.workers, (wanted.fullest_node, wanted.batch_size)
            if (m.fullest_node, m.batch_size) == full and m.workers == nodes * m.fullest_node:
                alike.setdefault(nodes, []).append(m.step_time)
        if alike:
            (first, *_, last), k = [*alike, *alike], wanted.nodes or wanted.workers
            T = {nodes: float(np.mean(alike[nodes])) for nodes in alike}
            rise = (T[last] - T[first]) / (g(last) - g(first)) if g(last) != g(first) else 0.0
            time = max(T[last] + rise * (g(k) - g(last)), T[last] if law == "ring+" else 1e-3 * T[last])
            errors.append(abs(wanted.workers / time / wanted.steps_per_second - 1))
    return float(np.mean(errors)) if errors else np.nan


@cache
def tables() -> tuple[Table, ...]:
    """What is judged, by row."""
    series = published()
    kinds = {kind: [job for job in series if job.kind == kind] for kind in ("all-reduce", "sync-ps")}
    free = [job for job in [*series, *cloud()] if job.kind == "async-ps"]
    rows: list[tuple[str, list[Scaling], bool]] = [
        (CLUSTERS, clusters(), False),
        ("all-reduce, published", kinds["all-reduce"], False),
        ("all-reduce, published, ranks and sparse gradients known", kinds["all-reduce"], True),
        *((f"all-reduce, full nodes of {g} T4", full_nodes(g), True) for g in (1, 2, 4)),
        ("sync-ps", kinds["sync-ps"], False),
        ("sync-ps, sparse gradients known", kinds["sync-ps"], True),
        ("async-ps, cloud and published", free, False),
        ("async-ps, cloud and published, bytes known", free, True),
        ("async-ps, testbed", testbed(), False),
        ("async-ps, testbed, bytes and links known", testbed(), True),
    ]
    found = [of_series(row, job, known=known) for row, own, known in rows for job in own]
    for row, known in (("async-ps, from 1 to 4 workers", False), ("async-ps, from 1 to 4 workers, known", True)):
        found += [of_series(row, job, fitted=int((job.nodes <= 4).sum()), known=known) for job in [*free, *testbed()]]
    for row, at in (("to 4 times the second group", lambda times: times <= 4), ("beyond", lambda times: times > 4)):
        found += of_shards(f"sharded, {row}", at)
        found += of_shards(f"sharded, {row}, parameters unknown", at, known=False)
        found += of_shards(f"sharded, {row}, as all-reduce", at, kind="all-reduce")
        found += of_shards(f"sharded, {row}, {BESIDE}", at, beside=True)
    found += of_shards(f"sharded, from one group, {BESIDE}", fitted=1, beside=True)
    found += [of_placements(f"placements, {key[0].split(',')[0]}", key) for key in measured_placements()]
    for row, largest in (("largest batch size left out", True), ("smallest batch size left out", False)):
        found += [of_batches(row, key, largest=largest) for key in measured_placements() if key[0][0] in "PS"]
    return tuple(t for t in found if t.judged and (t.beside or len(t.fitted) > 1))


@cache
def judged() -> dict[str, list[Judged]]:
    """The rows of the table, each job predicted with a prior that was not learnt from its source."""
    return {row: [judge(t) for t in tables() if t.row == row] for row in dict.fromkeys(t.row for t in tables())}


def further(rows: Sequence[str]) -> Iterator[tuple[str, int, float, float]]:
    """By source and number of measurements: mean errors beyond the next one, without and with it."""
    every = [t for t in tables() if t.row in rows]
    for source in sorted({t.source for t in every}):
        own = [(*t.fitted, *t.judged) for t in every if t.source == source]
        kinds = [t for t in every if t.source == source]
        for k in range(2, max(map(len, own)) - 1):
            longer = [(t, m) for t, m in zip(kinds, own, strict=True) if len(m) > k + 1]
            errors = [[judge(replace(t, fitted=m[:j], judged=m[k + 1 :])).error for t, m in longer] for j in (k, k + 1)]
            yield source, k, *map(float, np.mean(errors, axis=1))  # type: ignore[misc]


def knees(tables: Sequence[Table]) -> tuple[float, float, int]:
    """Shares of sharded jobs with a measured knee whose predicted one is within a factor of 1.5, or covered."""
    found = []
    for table in tables:
        rows = [*table.fitted, *table.judged]
        nodes, rate = np.log([[m.nodes or 1, 1.0 / m.step_time] for m in rows]).T
        lost = rate - np.maximum.accumulate(rate) - np.log(0.9)
        if after := int(np.argmax(lost < 0)):
            measured = np.exp(np.interp(0.0, lost[after - 1 : after + 1][::-1], nodes[after - 1 : after + 1][::-1]))
            low, knee, high = np.quantile(table.fit(learn(table.kind, table.source)).knee, [0.05, 0.5, 0.95])
            found.append((max(knee / measured, measured / knee) <= 1.5, low <= measured <= high))
    near, inside = map(float, np.mean(found, axis=0))
    return near, inside, len(found)


SECTION = """## Tables, on sources that the prior was not learnt from

Published series, the cloud's and the testbed's (`validation/data`), from their two smallest groups or from one to four
workers, and jobs by placement from one and two nodes, with a prior learnt from all other sources
(`python -m validation.scaling`). Errors are means over jobs of mean absolute relative errors, *by source* first over
those of each source. Beside them laws of one line through the same measurements: a ring, a ring that is never faster
per worker than the largest measured group, log n, constant efficiency, linear.

| jobs | number | error | by source | median | covered | width | ring | ring+ | log n | constant | linear |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""


def scaling_section() -> str:
    """Markdown: errors and coverage on sources left out, and what a further measurement does."""
    text = SECTION
    for row, found in judged().items():
        errors = np.array([one.error for one in found])
        sources = [one.table.source for one in found]
        by_source = np.mean([errors[[s == name for s in sources]].mean() for name in sorted(set(sources))])
        inside = np.concatenate([one.inside for one in found]).mean()
        width = np.mean([np.log(one.upper / one.lower).mean() for one in found])
        by_laws = [[e for one in found if np.isfinite(e := by_law(law, one.table))] for law in LAWS]
        laws = " | ".join(f"{np.mean(e):.1%}" if e else "" for e in by_laws)
        text += f"| {row} | {len(found)} | {errors.mean():.1%} | {by_source:.1%} | {np.median(errors):.1%} | "
        text += f"{inside:.0%} | {width:.2f} | {laws} |\n"
    for named, beside in (("", False), (f", {BESIDE}", True)):
        near, inside, count = knees(of_shards("", beside=beside))
        text += f"\nKnees of {count} sharded jobs{named}: {near:.0%} within a factor of 1.5, {inside:.0%} covered.\n"
    steps = list(further([CLUSTERS, "all-reduce, published", "sync-ps", "async-ps, cloud and published"]))
    worse = [step for step in steps if step[3] > step[2]]
    named = "; ".join(f"{source}, {k} to {k + 1}: {a:.1%} to {b:.1%}" for source, k, a, b in worse)
    return (
        f"{text}\nA further measurement, judged beyond it, makes the mean error of a source no larger in "
        f"{len(steps) - len(worse)} of {len(steps)} cases. The others: {named or 'none'}.\n"
    )


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write()
    print(scaling_section())
