"""The simulation held against what more workers were measured to do: which network this is, and how far it errs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..results import Result
from ..training.calibration import untraced_throughput
from ..training.ensemble import Ensemble
from ..training.job import Throughput
from ..training.parameters import Parameter
from ..training.profile import Profile
from ..training.throughputs import on_profiled_links
from .contention import NETWORK, Contention, contentions
from .variants import Site, Variant, ensemble, variants

#: Numbers of workers at which every network is simulated; between them the likeliest one's curve is bent.
KNOTS = 7

#: Arguments that say how to simulate, whatever the machines.
MANNER = ("policy", "sharding", "links", "seed", "steps", "replications", "progress")


@dataclass(frozen=True, eq=False, repr=False)
class Calibration(Result):
    """What measured throughputs say of the network that a job was profiled on, and of the simulation there."""

    kinds: tuple[Contention, ...]  # Kinds of network that the machines may be on
    among: tuple[Variant, ...]  # All networks that were simulated
    sites: tuple[Site, ...]  # Machines and numbers of workers at which they were; the first are the profiled ones
    asked: int  # Which of them are those asked for
    parameter_servers: int  # Of the profile
    networks: np.ndarray  # (M, P): Logarithms of throughput there by all networks, the likeliest beforehand first
    before: Ensemble  # before, after: What was thought of it, and what is thought now
    after: Ensemble
    measured: tuple[Throughput, ...] = ()
    doubted: tuple[Throughput, ...] = ()  # Those that neither the simulation nor the others make likely

    def given(self, measured: Sequence[Throughput]) -> Calibration:
        """What is thought when these are measured, instead of others, at numbers of workers that were simulated."""
        untraced = untraced_throughput(measured, self.parameter_servers)
        simulated = replace(self.before, logs=np.broadcast_to(self.networks, self.before.logs.shape))
        before = _untraced(simulated, self.sites, untraced, self.kinds[0])
        at = [self.at_run(p.workers, p.bandwidth, p.parameter_servers) for p in measured]
        logs = np.log([point.steps_per_second for point in measured])
        noise = np.array([p.relative_error(before.noise[place]) for p, place in zip(measured, at, strict=True)])
        wrong = before.doubtful(at, logs, noise)
        return replace(
            self,
            before=before,
            after=before.given(at, logs, noise),
            measured=tuple(measured),
            doubted=tuple(point for point, off in zip(measured, wrong, strict=True) if off),
        )

    def at_run(self, workers: int, bandwidth: float | None = None, parameter_servers: int | None = None) -> int:
        """Where the ensembles have a run on the profiled machines, or on other links or another number of servers."""
        machines = _machines(self.parameter_servers, bandwidth, parameter_servers or self.parameter_servers)
        return _place(self.sites, next(i for i, site in enumerate(self.sites) if site.settings == machines), workers)

    def at_asked(self, workers: int) -> int:
        """Where they have so many workers on the machines asked for."""
        return _place(self.sites, self.asked, workers)

    def bend(self, workers: np.ndarray, confidence: float) -> np.ndarray:
        """Factors on the first network's simulation as asked for: to the middle and the interval's ends, (3, n)."""
        at = self.sites[self.asked].workers
        places = [self.at_asked(n) for n in at]
        logs = np.log(self.after.interval(confidence, places)) - self.networks[0, places]
        return np.exp([np.interp(np.log(workers), np.log(at), row) for row in logs])

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """How likely each kind is, each kind's parameters, and how much larger errors are than was thought."""
        w, found = self.after.models, []
        for number, kind in enumerate(self.kinds):
            own = np.array([variant.kind == number for variant in self.among])
            if len(self.kinds) > 1:
                before = float(self.before.models[own].sum())
                found.append(
                    Parameter(f"probability of {kind.name}", float(w[own].sum()), "", note=f"{before:.2g} before")
                )
            for name, unit in (("loaded_trip", "s"), ("unfairness", "")):
                values = np.array([getattr(variant.of(self.kinds), name) for variant in self.among])[own]
                (_, before), (mean, error) = (_mean_and_deviation(values, p[own]) for p in (self.before.models, w))
                if before:
                    found.append(
                        Parameter(
                            f"{name.replace('_', ' ')} ({kind.name})", mean, unit, standard_error=error,
                            origin="derived", identified=error < 0.7 * before, note=f"+- {before:.2g} before",
                        )
                    )  # fmt: skip
        size = self.after.size / self.before.size
        return (*found, Parameter("size of errors", size, "", origin="derived", note="against what was thought before"))

    @property
    def likeliest(self) -> Contention:
        """The network that has most of the weight now."""
        return self.kinds[self.among[int(self.after.models.argmax())].kind]

    @property
    def note(self) -> str:
        """What came of it, in a line."""
        told = [f"calibrated by {len(self.measured)} measurement(s)"]
        if len(self.kinds) > 1:
            shares = [
                (float(self.after.models[[variant.kind == number for variant in self.among]].sum()), kind.name)
                for number, kind in enumerate(self.kinds)
            ]
            told.append(", ".join(f"{name} {share:.0%}" for share, name in sorted(shares, reverse=True)))
        if self.doubted:
            named = ", ".join(f"{p.steps_per_second:.4g} steps/s with {p.workers} worker(s)" for p in self.doubted)
            told.append(f"{named}: unlikely by all simulations and other measurements; measure it again")
        return ": ".join(told[:2]) + "".join(f"; {more}" for more in told[2:])

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per parameter."""
        return [parameter.to_row() for parameter in self.parameters]

    def caption(self) -> str:
        """What it was calibrated by."""
        return self.note


def calibrate(
    profile: Profile,
    measured: Sequence[Throughput],
    *,
    workers: Sequence[int] = (),
    **settings: Any,
) -> Calibration:
    """
    Weigh the networks that the profiled machines may be on by measured throughputs, and see how far simulations err.

    Every kind of network of `contentions`, as likely as is assumed, and each with other parameters
    (`variants`), is simulated where something was measured and at ``workers``; throughputs weigh them by likelihood,
    and move what is left by the correlation of errors (`queuemodel.training.ensemble`). The throughput of one worker
    sets the length of its step first: tracing made the recorded ones longer.

    Examples
    --------
    >>> import queuemodel as qm
    >>> from queuemodel.data import example_profile
    >>> found = calibrate(example_profile("alexnet-60"), [qm.Throughput(workers=4, steps_per_second=1.74)],
    ...                   congestion_control="unknown")
    >>> chances = {p.name: p.value for p in found.parameters if p.name.startswith("probability")}
    >>> max(chances, key=chances.get)  # as it was
    'probability of bbr'
    """
    measured = on_profiled_links(measured, profile)
    told = {name: settings.pop(name, None) for name in NETWORK}
    manner = {name: settings.pop(name) for name in MANNER if name in settings}
    servers = profile.cluster.parameter_servers
    kinds = contentions(profile, **told)
    buffer = profile.cluster.buffer if told["buffer"] is None else told["buffer"]
    among = variants(kinds, fixed=told["loaded_trip"] is not None, buffer_told=buffer is not None)
    sites = [Site((1,), {})]
    for point in measured:
        _join(sites, _machines(servers, point.bandwidth, point.parameter_servers), (point.workers,))
    asked = _join(sites, {name: value for name, value in settings.items() if value is not None}, tuple(workers))
    thought = ensemble(profile, sites, kinds, among, told=told, **manner)
    found = Calibration(
        kinds, tuple(among), tuple(sites), asked, servers, networks=thought.logs[0], before=thought, after=thought
    )
    return found.given(measured)


def _machines(profiled: int, bandwidth: float | None, parameter_servers: int) -> dict[str, Any]:
    """Settings of a site that differs from the profiled one by its links or its number of servers."""
    other = {"bandwidth": bandwidth, "parameter_servers": None if parameter_servers == profiled else parameter_servers}
    return {name: value for name, value in other.items() if value is not None}


def _join(sites: list[Site], machines: dict[str, Any], workers: tuple[int, ...]) -> int:
    """Have those numbers of workers simulated on such machines, and one; which site it is."""
    for number, site in enumerate(sites):
        if site.settings == machines:
            sites[number] = Site(tuple(sorted({1, *site.workers, *workers})), machines)
            return number
    sites.append(Site(tuple(sorted({1, *workers})), machines))
    return len(sites) - 1


def _place(sites: Sequence[Site], site: int, workers: int) -> int:
    return sum(len(other.workers) for other in sites[:site]) + sites[site].workers.index(workers)


def _untraced(before: Ensemble, sites: Sequence[Site], alone: float | None, kind: Contention) -> Ensemble:
    """Have one worker alone make its steps as it does when nobody traces."""
    if alone is None:
        return before
    ends = np.cumsum([len(site.workers) for site in sites])
    share = [
        untraced_share(logs, np.array(site.workers), kind)
        for site, logs in zip(sites, np.split(before.logs[0, 0], ends[:-1]), strict=True)
    ]
    return replace(before, logs=before.logs + np.concatenate(share) * (np.log(alone) - before.logs[..., :1]))


def untraced_share(logs: np.ndarray, workers: np.ndarray, kind: Contention) -> np.ndarray:
    """
    How much of what tracing cost one worker alone it costs throughput of several, from its logarithms (n,).

    Tracing costs time on the machines, not on the links: as much as the workers' time is not lost to each other.
    Without links, on one machine, everything is so much slower.
    """
    return np.ones(len(logs)) if kind.name == "loopback" else np.minimum(1.0, np.exp(logs - logs[0]) / workers)


def knots(counts: np.ndarray) -> list[int]:
    """A few of many numbers of workers, about evenly spread on a logarithmic scale, the first and the last included."""
    wanted = np.geomspace(counts[0], counts[-1], KNOTS)
    return sorted({int(counts[np.abs(counts - n).argmin()]) for n in wanted})


def _mean_and_deviation(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    share = weights / weights.sum()
    mean = float(share @ values)
    return mean, float(np.sqrt(share @ (values - mean) ** 2))
