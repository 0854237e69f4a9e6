"""Predictions that are not told TCP's congestion control: what the trace shows of it, and what that is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from queuemodel import Profile
from queuemodel.traces.contention import contentions
from queuemodel.traces.evidence import weighed

from .series import Comparison, compare_testbed


@dataclass(frozen=True)
class Untold:
    """A series, which kind of control it has, how much likelier its trace makes that, and what both methods predict."""

    bbr: bool
    late: int
    ratio: float
    comparison: Comparison
    analysed: Comparison


def hidden(profile: Profile) -> Profile:
    """The profile of somebody who does not know the congestion control."""
    cluster = msgspec.structs.replace(profile.cluster, congestion_control="unknown")
    return msgspec.structs.replace(profile, cluster=cluster)


def likelihood_ratio(profile: Profile) -> float:
    """By how much what a hidden profile's trace shows is likelier under BBR than under control by losses."""
    before = {kind.name: kind.share for kind in contentions(profile)}
    after = {kind.name: kind.share for kind in weighed(contentions(profile), profile)}
    return after["bbr"] / after["loss-based"] * before["loss-based"] / before["bbr"]


def untold(folder: Path, profile: Profile) -> Untold:
    """Predict a series of the testbed, with the congestion control hidden."""
    from queuemodel.traces import late_arrivals

    unknown = hidden(profile)
    bbr = profile.cluster.congestion_control == "bbr"
    late = int((late_arrivals(profile) > 0.1).sum())
    simulated, analysed = (compare_testbed(folder, unknown, method) for method in ("trace", "mva"))
    return Untold(bbr, late, likelihood_ratio(unknown), simulated, analysed)


SECTION = """## Congestion control not told

The simulations of the testbed's series again, with TCP's congestion control hidden (buffers are known). What came late
in the trace weighs the kinds; *likelier* is how much likelier that is under the kind that was there than under the
other one. Below, the closed network, whose intervals reach down to what BBR lets few connections carry.

| series | was | late phases | likelier | errors | mean absolute error | covered | mean width |
|---|---|---|---|---|---|---|---|
"""


def untold_section(found: Sequence[Untold]) -> str:
    """Markdown: a row per series, and one for all."""
    lines = []
    for one in found:
        c, ratio = one.comparison, one.ratio if one.bbr else 1 / one.ratio
        errors = ", ".join(f"{n}: {e:+.1%}" for n, e in zip(c.counts, c.errors, strict=True))
        was = "BBR" if one.bbr else "loss-based"
        lines.append(
            f"| {c.name} | {was} | {one.late} | {ratio:.2g} | {errors} | {c.error:.1%} | {c.coverage:.0%} | "
            f"{_width(c):.0%} |"
        )
    ratios = [math.log(one.ratio if one.bbr else 1 / one.ratio) for one in found]
    simulated, likelier = [one.comparison for one in found], f"{math.exp(np.mean(ratios)):.2g}"
    lines.append(f"| **all** | | | {likelier} | | {_summary(simulated)}")
    for bbr, was in ((True, "BBR"), (False, "loss-based")):
        lines.append(f"| closed network | {was} | | | | {_summary([o.analysed for o in found if o.bbr == bbr])}")
    return SECTION + "\n".join(lines) + "\n"


def _width(c: Comparison) -> float:
    at = np.searchsorted(c.curve.workers, c.workers)
    return float(((c.curve.upper[at] - c.curve.lower[at]) / c.predicted).mean())


def _summary(found: Sequence[Comparison]) -> str:
    error, covered, width = np.mean([(c.error, c.coverage, _width(c)) for c in found], axis=0)
    return f"**{error:.1%}** | {covered:.0%} | {width:.0%} |"
