"""Policies, frozen values that grant nodes to jobs, and their names on the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ...base.checks import nearest, require_choice
from ...base.errors import ModelError
from .base import Policy
from .baseline import FIFO, SRPT, Backfill, EqualShare, HeSRPT, LeastAttainedService, ShortestJobFirst
from .model_based import FitnessMaximization, Goodput, GreedyGain, ModelBased, Optimus, RankPriced

#: Short names of the policies; each takes its own knobs.
POLICIES: Mapping[str, Callable[..., Policy]] = MappingProxyType(
    {
        "fifo": FIFO,
        "sjf": ShortestJobFirst,
        "backfill": Backfill,
        "las": LeastAttainedService,
        "tiresias": LeastAttainedService,
        "equi": EqualShare,
        "srpt": SRPT,
        "hesrpt": HeSRPT,
        "model": ModelBased,
        "greedy": GreedyGain,
        "rank-priced": RankPriced,
        "goodput": Goodput,
        "optimus": Optimus,
        "fitness": FitnessMaximization,
    }
)


def policy_named(text: str) -> Policy:
    """A policy from ``name`` or ``name:knob=value,knob=value``.

    Examples
    --------
    >>> policy_named("greedy:floor=0.7")
    GreedyGain(floor=0.7, power=1.0)
    """
    name, _, rest = text.partition(":")
    make = POLICIES[require_choice(name.strip(), "policy:", POLICIES)]
    knobs = {field.name for field in dataclasses.fields(make)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        knob, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or knob not in knobs:
            allowed = ", ".join(f"{k}=..." for k in sorted(knobs)) or "no knobs"
            raise ModelError(f"policy {name!r}: takes {allowed}, got {part!r}{nearest(knob, knobs)}")
        if knob in values:
            raise ModelError(f"policy {name!r}: {knob} is given twice")
        values[knob] = _value(value)
    return make(**values)


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if "+" in text:
        return tuple(_value(part) for part in text.split("+"))
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
