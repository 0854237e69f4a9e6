"""Bars while recordings are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def bar(items: Sequence[T], doing: str, *, unit: str, show: bool) -> tqdm[T]:
    """The items one by one, with a bar on standard error that says what is going on, and how fast."""
    return tqdm(items, desc=doing, unit=unit, disable=not show, leave=False)
