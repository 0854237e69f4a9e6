"""The event loop."""

from __future__ import annotations

import numpy as np

from .compiler import entry, fast
from .queues import next_timer
from .sharing import reshare
from .state import ASK, DONE, RATES, START, START_STEP, TIMERS
from .steps import ask, begin, begin_step, end_chunk, end_operation


@entry
def run(steps, s, rules, rng, target, events):
    """Go on for so many events, or until ``target`` steps are done since the start; False: nothing can happen."""
    _, W, K = s.serving.shape
    for _ in range(events):
        if s.count[DONE] >= target:
            return True
        flow = earliest(s.due)
        tick = 0 if s.tick[0] <= s.tick[1] else 1
        if s.tick[tick] < s.due[flow] and (s.count[TIMERS] == 0 or s.tick[tick] < s.timer_time[0]):
            now = s.tick[tick]
            s.dirty[tick] = RATES
        elif s.count[TIMERS] and s.timer_time[0] <= s.due[flow]:
            now = s.timer_time[0]
            kind, w, i = next_timer(s)
            if kind == START_STEP:
                begin_step(steps, s, rules, now, w, rng)
            elif kind == ASK:
                ask(steps, s, rules, now, w)
            elif kind == START:
                begin(steps, s, rules, now, w, i)
            else:
                end_operation(steps, s, rules, now, w, i)
        else:
            now = s.due[flow]
            if now == np.inf:
                return False
            end_chunk(steps, s, rules, now, flow // (W * K), flow // K % W, flow % K)
        for d in range(2):
            if s.dirty[d]:
                reshare(s, rules, now, d, rng)
    return True


@fast
def earliest(times):
    first = 0
    for i in range(1, len(times)):
        if times[i] < times[first]:
            first = i
    return first
