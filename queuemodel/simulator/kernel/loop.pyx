"""The event loop. C has no modules: the folder's other files are parts of this one."""

from collections import namedtuple

import numpy as np

from ...base.files import constants

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport INFINITY, exp, floor
from numpy.random cimport bitgen_t
from numpy.random.c_distributions cimport random_standard_normal as normal, random_standard_uniform as uniform

include "state.pxi"
include "windows.pxi"
include "queues.pxi"
include "rounds.pxi"
include "steps.pxi"
include "sharing.pxi"


def run(steps, state, rules, rng, long target, long events):
    """Go on for so many events, or until ``target`` steps are done since the start; False: nothing can happen."""
    cdef CSteps recorded = CSteps(steps)
    cdef CState s = CState(state)
    cdef CRules cluster = CRules(rules)
    cdef bint goes_on
    bits = <bitgen_t*> PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
    with nogil:  # threads run loops at the same time
        goes_on = go(recorded, s, cluster, bits, target, events)
    return goes_on


cdef bint go(CSteps steps, CState s, CRules rules, bitgen_t* rng, long target, long events) noexcept nogil:
    W, K = s.serving.shape[1], s.serving.shape[2]
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
            if now == INFINITY:
                return False
            end_chunk(steps, s, rules, now, flow // (W * K), flow // K % W, flow % K)
        for d in range(2):
            if s.dirty[d]:
                reshare(s, rules, now, d, rng)
    return True


cdef long earliest(double[::1] times) noexcept nogil:
    first = 0
    for i in range(1, len(times)):
        if times[i] < times[first]:
            first = i
    return first
