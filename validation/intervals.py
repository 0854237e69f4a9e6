"""What intervals promise and what they hold: coverage and width together, also on kinds of network left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from .model_errors import PARTS, Errors, Teach, calibrated, learn_waiting, leave_kind_out
from .series import Comparison

SECTION = """## Intervals

Coverage can be bought with width, so both stand together, with the interval score (Gneiting and Raftery, 2007), which
charges the width and, for a measurement outside, twenty times its distance; all relative to the prediction. The
errors of the models themselves are learnt from the testbed's series (`python -m validation.model_errors`), each kind of
network counting as one, by where the workers stand to the knee, and as much larger in each region as intervals of a
kind left out are too narrow there; *kind left out* are intervals whose errors are learnt so from all other kinds. How
connections share a link was found on these series too, and by hand: that cannot be left out. Half-synchronous series
are each a kind of their own; what waiting adds in them, between a barrier and none, is one error of unknown size, and
how little the others say of it is in the interval.

"""


def interval_score(lower: np.ndarray, upper: np.ndarray, value: np.ndarray, *, confidence: float = 0.9) -> np.ndarray:
    """Width, and what it costs to lie outside (Gneiting and Raftery, 2007, equation 43); less is better."""
    outside = np.maximum(lower - value, 0.0) + np.maximum(value - upper, 0.0)
    return np.asarray(upper - lower + 2.0 / (1.0 - confidence) * outside)


def _row(name: str, lower: np.ndarray, upper: np.ndarray, value: np.ndarray, weights: np.ndarray | None = None) -> str:
    each = (lower <= value) & (value <= upper), upper - lower, interval_score(lower, upper, value)
    covered, width, score = (np.average(one, weights=weights) for one in each)
    return f"| {name} | {len(value)} | {covered:.0%} | {width:.0%} | {score:.2f} |"


def _packaged(comparisons: Iterable[Comparison]) -> tuple[np.ndarray, ...]:
    """Ends of the intervals as they are, and measurements, relative to predictions; and the measurements' weights."""
    rows = []
    for c in comparisons:
        at = np.searchsorted(c.curve.workers, c.workers)
        ends = np.array([c.curve.lower[at], c.curve.upper[at], c.measured]) / c.predicted
        rows.append(np.vstack([ends, c.weights]))
    return tuple(np.concatenate(rows, axis=1))


def _left_out(found: Sequence[Errors], teach: Teach = calibrated) -> tuple[np.ndarray, ...]:
    """The same with each kind of network left out; and the part that most of each measurement is in."""
    ends = leave_kind_out(found, teach)
    lower, upper = (np.concatenate([end[k] for end in ends]) for k in (1, 2))
    value = np.concatenate([np.exp(one.off) for one, *_ in ends])
    return lower, upper, value, np.concatenate([one.parts.argmax(axis=1) for one, *_ in ends])


def intervals_section(
    groups: Mapping[str, Sequence[Comparison]],
    errors: Mapping[str, Sequence[Errors]],
    waiting: Mapping[str, Sequence[Errors]],
) -> str:
    """Markdown: groups with the packaged errors; those of the testbed with each kind left out, ``waiting`` ones too."""
    lines = ["| predictions | measurements | covered | mean width | score |", "|---|---|---|---|---|"]
    lines += [_row(title, *_packaged(comparisons)) for title, comparisons in groups.items()]
    for title, found in errors.items():
        *ends, part = _left_out(found)
        lines.append(_row(f"{title}: **kind left out**", *ends))
        for k, name in enumerate(PARTS):
            if (part == k).any():
                lines.append(_row(f"{title}: kind left out, {name}", *(end[part == k] for end in ends)))
    for title, found in waiting.items():
        *ends, _ = _left_out(found, learn_waiting)
        lines.append(_row(f"{title}: **kind left out**", *ends))
    return SECTION + "\n".join(lines) + "\n"
