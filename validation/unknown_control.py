"""Predictions that are not told TCP's congestion control."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from queuemodel import Profile

from .series import Comparison, compare_testbed


@dataclass(frozen=True)
class UnknownControl:
    """A series, whether its control is BBR, and what both methods predict."""

    bbr: bool
    comparison: Comparison
    analysed: Comparison


def hidden(profile: Profile) -> Profile:
    """The profile of somebody who does not know the congestion control."""
    cluster = msgspec.structs.replace(profile.cluster, congestion_control="unknown")
    return msgspec.structs.replace(profile, cluster=cluster)


def unknown_control(folder: Path, profile: Profile) -> UnknownControl:
    """Predict a series of the testbed, with the congestion control hidden."""
    simulated, analysed = (compare_testbed(folder, hidden(profile), method) for method in ("trace", "mva"))
    return UnknownControl(profile.cluster.congestion_control == "bbr", simulated, analysed)


SECTION = """## Congestion control not told

The simulations of the testbed's series again, with TCP's congestion control hidden (buffers are known): the curve of
control by losses, with intervals that span BBR's. Below, the closed network, whose intervals reach down to what BBR
lets few connections carry.

| series | was | errors | mean absolute error | covered | mean width |
|---|---|---|---|---|---|
"""


def unknown_control_section(found: Sequence[UnknownControl]) -> str:
    """Markdown: a row per series, and one for all."""
    lines = []
    for one in found:
        c, was = one.comparison, "BBR" if one.bbr else "loss-based"
        errors = ", ".join(f"{n}: {e:+.1%}" for n, e in zip(c.counts, c.errors, strict=True))
        lines.append(f"| {c.name} | {was} | {errors} | {c.error:.1%} | {c.coverage:.0%} | {_width(c):.0%} |")
    lines.append(f"| **all** | | | {_summary([one.comparison for one in found])}")
    for bbr, was in ((True, "BBR"), (False, "loss-based")):
        lines.append(f"| closed network | {was} | | {_summary([o.analysed for o in found if o.bbr == bbr])}")
    return SECTION + "\n".join(lines) + "\n"


def _width(c: Comparison) -> float:
    at = np.searchsorted(c.curve.workers, c.workers)
    return float(((c.curve.upper[at] - c.curve.lower[at]) / c.predicted).mean())


def _summary(found: Sequence[Comparison]) -> str:
    error, covered, width = np.mean([(c.error, c.coverage, _width(c)) for c in found], axis=0)
    return f"**{error:.1%}** | {covered:.0%} | {width:.0%} |"
