"""Events at known times, each of a kind, a worker and one of its step's operations."""

from __future__ import annotations

from .compiler import fast
from .heap import heap_pop, heap_push
from .state import SEQUENCE, TIMERS


@fast
def set_timer(s, when, kind, w, i):
    value = (kind * len(s.step) + w) * s.missing.shape[1] + i
    n = s.count[TIMERS]
    heap_push(s.timer_time, s.timer_sequence, s.timer_value, 0, n, when, s.count[SEQUENCE], value)
    s.count[TIMERS] += 1
    s.count[SEQUENCE] += 1


@fast
def next_timer(s):
    """Take the earliest timer away; returns its kind, worker and operation."""
    value = heap_pop(s.timer_time, s.timer_sequence, s.timer_value, 0, s.count[TIMERS])
    s.count[TIMERS] -= 1
    W, limit = s.missing.shape
    return value // limit // W, value // limit % W, value % limit
