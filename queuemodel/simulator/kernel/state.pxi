"""Inputs and state of the compiled loop: packed steps, the cluster's rules, and arrays of everything that changes."""

cpdef enum:  # kinds of operations
    FETCH, COMPUTE, PUSH, UPDATE
cpdef enum:  # kinds of timers: a worker begins a step, or requests its parameters; an operation starts, or finishes
    START_STEP, ASK, START, FINISH
cpdef enum:  # why a direction's rates are `dirty`: flows have begun or ended, or only their rates grow
    FLOWS = 1, RATES
cpdef enum:  # meaning of `State.count`
    SEQUENCE, TIMERS, SNAPSHOTS, STRIDE, DONE, ROUND, DELIVERED
cpdef enum:  # running totals, then per server: payload bytes sent, payload bytes received, seconds of updates
    TIME, STEPS, STEP_TIME, FETCH_SPAN, BUSY, PUSH_SPAN, DROPPED, PER_SERVER
cpdef enum:  # columns of `State.log_times`: when the operation was ready, began and ended; of `ready`, the first two
    READY, BEGIN, END
#: Payload bytes of a packet, and a congestion window's first bytes (RFC 6928).
cdef double PACKET = 1448.0, FIRST = 10 * PACKET
#: Rows of totals in memory: when they are full, every second row is dropped.
KEPT = 4096


cdef class CSteps:
    """Recorded steps, one after the other: `first` marks where each begins; `next` counts operations within a step;
    `variable` numbers what updates apply to, by name.
    """

    cdef public const long[::1] first, kind, server, variable, degree, next_first, next
    cdef public const double[::1] size, duration, delay, rank, pause

    def __init__(self, steps):
        take(self, steps)


cdef class CRules:
    """The cluster's rules; `chunk` in bytes, times in seconds.

    Synchronization is a row of `profile.synchronization`: `awaited` results are applied together, at most `bound` steps
    separate the first worker from the last; `stride` results of a run make a bin of its totals.
    """

    cdef public const double[::1] slowdown
    cdef public bint shuffle, gathers, drops, cuts, repeats, bounded
    cdef public long awaited, bound, stride
    cdef public double chunk, straggler_probability, straggler_slowdown, loaded_trip, unfairness, kept, resumed

    def __init__(self, rules):
        take(self, rules)


cdef class CState:
    """Everything that changes."""

    cdef public long[::1] count, timer_sequence, timer_value, step, taken, record, unfinished, seen
    cdef public long[::1] queue_sequence, queue_op, unsettled, dirty, gathered, lags
    cdef public long[:, ::1] missing, flows, sending, log_step, log_record, log_result
    cdef public long[:, :, ::1] queued, serving, limiting
    cdef public unsigned char[::1] waiting, current
    cdef public double[::1] timer_time, begun, fetched, pushed, slow, queue_rank, due, left_over, wanted, weight
    cdef public double[::1] tick, same_since, shared, server_free, applied, totals
    cdef public double[:, ::1] left, rank, standing, links, load, snapshots
    cdef public double[:, :, ::1] ready, policed, rate, since, chunk_left, finish, backlog, estimate, offered
    cdef public double[:, :, ::1] flow_weight, trip, threshold, recovered, silent, idle_since
    cdef public double[:, :, :, ::1] log_times

    def __init__(self, state):
        take(self, state)


def take(view, values):
    for name in values._fields:
        setattr(view, name, getattr(values, name))


#: The same in Python, with arrays.
Steps, Rules, State = (
    namedtuple(view.__name__[1:], [name for name in vars(view) if name[0] != "_"], module=__name__)
    for view in (CSteps, CRules, CState)
)


def new_state(steps, *, links, starts, rules, kept_steps=0):
    """Workers ``w`` begin at ``starts[w]`` s; ``links`` (2, servers + workers): bytes/s of fetches, then pushes."""
    W, K, limit = len(starts), links.shape[1] - len(starts), int(np.diff(steps.first).max())
    timers = W * (limit + 1)
    flow, queue = (2, W, K), 2 * W * K * limit
    integers, floats = (lambda *shape: np.zeros(shape, np.int64)), (lambda *shape: np.zeros(shape))
    count = integers(7)
    count[[SEQUENCE, TIMERS]] = W
    count[STRIDE] = rules.stride  # steps that end together are in one bin
    order = np.argsort(starts, kind="stable")
    slots = kept_steps + 1 if kept_steps else 0
    timer_time, timer_sequence, timer_value = floats(timers), integers(timers), integers(timers)
    timer_time[:W], timer_sequence[:W] = starts[order], order  # sorted: a heap
    timer_value[:W] = (START_STEP * W + order) * limit  # as `set_timer` has it
    finish = np.full(flow, np.inf)
    estimate = np.ones(flow)
    if rules.kept > 0:
        estimate[:] = FIRST
    elif rules.loaded_trip > 0:
        estimate[:] = np.minimum(links[:, None, :K], links[:, K:, None])
    return State(
        count=count, timer_time=timer_time, timer_sequence=timer_sequence, timer_value=timer_value,
        step=integers(W), taken=integers(W), waiting=np.zeros(W, np.bool_), current=np.zeros(W, np.bool_),
        record=integers(W), begun=floats(W), unfinished=integers(W), seen=integers(W), fetched=floats(W),
        pushed=floats(W), slow=floats(W), missing=integers(W, limit), left=floats(W, limit), rank=floats(W, limit),
        ready=floats(W, limit, 2), policed=floats(*flow),
        queued=integers(*flow), queue_rank=floats(queue), queue_sequence=integers(queue), queue_op=integers(queue),
        serving=np.full(flow, -1), rate=floats(*flow), since=floats(*flow), chunk_left=floats(*flow),
        finish=finish, due=finish.reshape(-1),  # the same memory
        backlog=floats(*flow), estimate=estimate, offered=floats(*flow), flow_weight=np.ones(flow), trip=np.ones(flow),
        threshold=np.full(flow, np.inf), recovered=floats(*flow), silent=floats(*flow), idle_since=floats(*flow),
        limiting=np.full(flow, -1), standing=floats(2, K + W),
        links=np.ascontiguousarray(links, float), load=floats(2, K + W), flows=integers(2, K + W),
        unsettled=integers(K + W), left_over=floats(K + W), wanted=floats(K + W), sending=integers(W * K, 2),
        weight=floats(W * K), dirty=integers(2), tick=np.full(2, np.inf), same_since=floats(2), shared=floats(2),
        server_free=floats(K), gathered=integers(int(steps.variable.max()) + 1), applied=floats(1),
        totals=floats(PER_SERVER + 3 * K), snapshots=floats(KEPT, PER_SERVER + 3 * K), lags=integers(max(64, 16 * W)),
        log_step=integers(W, slots), log_record=integers(W, slots), log_result=integers(W, slots),
        log_times=np.full((W, slots, limit, 3), -1.0),
    )  # fmt: skip
