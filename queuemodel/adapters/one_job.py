"""Steps that become one profile belong to one job, each once: copies and mixtures are refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..errors import DataError
from .events import TracedStep

ALIKE = 0.5  # share of a step's operations that it has in common with another of its job, at least
OVERLAP = 0.5  # share of a step in which another one of the same worker may run, at most

READS = ("ReadVariableOp", "Identity")
VARIABLES = ("VariableV2", "Variable", "VarHandleOp")


def require_one_job(traced: Sequence[TracedStep], worker: str) -> None:
    """
    Refuse steps of several jobs, and steps given twice.

    Parameters
    ----------
    traced : sequence of TracedStep
        In order of time.
    worker : str
        The task whose steps become the profile; other workers' must be of the same job, but may run meanwhile.

    Raises
    ------
    DataError
        One line that names two files that do not go together.
    """
    for one, other in pairwise(traced):
        _require_one_graph(one, other)
    _require_one_after_the_other(traced, worker)
    _require_constant_parameters(traced)


def _require_one_graph(one: TracedStep, other: TracedStep) -> None:
    names, others = ({o.name for o in step.operations} for step in (one, other))
    common = len(names & others)
    if common < ALIKE * min(len(names), len(others)):
        raise DataError(
            f"{other.where}: another job than {one.where}: they have {common} operations in common, of {len(others)} "
            f"and {len(names)}; give each job's traces a folder of their own"
        )


def _require_one_after_the_other(traced: Sequence[TracedStep], worker: str) -> None:
    spans = []
    for step in traced:
        if own := [o for o in step.operations if o.task == worker]:
            spans.append((min(o.start for o in own), max(o.end for o in own), step))
    for (start, end, one), (begins, ends, other) in pairwise(sorted(spans, key=lambda span: span[:2])):
        if (start, end) == (begins, ends):
            raise DataError(f"{other.where}: the same step as {one.where}; remove the copy")
        shorter = min(end - start, ends - begins)
        if min(end, ends) - begins > OVERLAP * shorter:
            raise DataError(
                f"{other.where}: {worker} runs this step while it runs {one.where}: two jobs, or clocks that jumped; "
                "give each job's traces a folder of their own"
            )


def _require_constant_parameters(traced: Sequence[TracedStep]) -> None:
    """Parameters keep their size; what is looked up in them need not."""
    seen: dict[tuple[str, str], tuple[int, TracedStep]] = {}
    for step in traced:
        made = {(o.name, o.task): o for o in step.operations}
        for t in step.transfers:
            read = made.get((t.tensor, t.source))
            if not t.bytes or read is None or read.op not in READS:
                continue
            variable = made.get((read.inputs[0], t.source)) if read.inputs else None
            if read.op == "Identity" and (variable is None or variable.op not in VARIABLES):
                continue
            size, first = seen.setdefault((t.tensor, t.source), (t.bytes, step))
            if size != t.bytes:
                raise DataError(
                    f"{step.where}: another job than {first.where}: parameter {t.tensor!r} has {t.bytes:,} bytes, "
                    f"there {size:,}; give each job's traces a folder of their own"
                )
