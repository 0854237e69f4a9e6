"""The event loop. C has no modules: the folder's other files are included here."""

from collections import namedtuple

import numpy as np

from ...base.files import constants

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.limits cimport LONG_MAX
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
    """Simulate ``events`` events, or until ``target`` steps are done since the start; False: no event is left."""
    cdef CSteps recorded = CSteps(steps)
    cdef CState s = CState(state)
    cdef CRules cluster = CRules(rules)
    cdef bint alive
    bits = <bitgen_t*> PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
    with nogil:  # threads run loops at the same time
        alive = loop(recorded, s, cluster, bits, target, events)
    return alive


cdef bint loop(CSteps steps, CState s, CRules rules, bitgen_t* rng, long target, long events) noexcept nogil:
    W, K = s.serving.shape[1], s.serving.shape[2]
    for _ in range(events):
        if s.count[DONE] >= target:
            return True
        # the earliest of chunks carried, timers and new rates; at equal times timers come first, new rates last
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
                request_parameters(steps, s, rules, now, w)
            elif kind == START:
                begin_operation(steps, s, rules, now, w, i)
            else:
                end_operation(steps, s, rules, now, w, i)
        else:
            now = s.due[flow]
            if now == INFINITY:
                return False
            end_chunk(steps, s, rules, now, flow // (W * K), flow // K % W, flow % K)
        for d in range(2):  # rates are constant between events
            if s.dirty[d]:
                reshare(s, rules, now, d, rng)
    return True


cdef long earliest(double[::1] times) noexcept nogil:
    first = 0
    for i in range(1, len(times)):
        if times[i] < times[first]:
            first = i
    return first
