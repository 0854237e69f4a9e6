"""Plain flows on a shared link, moved by the simulator's own loop: what `validation.testbed.takeover` measures."""

import numpy as np
from by_hand import LINKS, profile_of, serial

from queuemodel.traces.graph import prepare
from queuemodel.traces.kernel import sharing, windows
from queuemodel.traces.kernel.state import FLOWS, Rules, new_state

#: As in takeover: bytes of each flow in seconds that they take alone, and seconds from start to start.
ALONE, PERIOD, LEAD, STEP = (0.70, 0.30, 0.12), 2.0, 0.5, 0.01
PAYLOAD = 125_000 * 1448 / 1514  # bytes per second of a link of 1 Mbit/s


def rules_of(*, window_kept=0.7, buffer=0.025, resumed=1.0):
    return Rules(np.ones(5), np.inf, False, 0, 0, 0, 0.0, 1.0, buffer, 0.0, window_kept, resumed)


class Flows:
    """One server and its workers, whose flows start and stop as told."""

    def __init__(self, rules, rate, seed=0, workers=5):
        graphs = prepare(profile_of(serial()), links=LINKS)
        self.rules, self.rate, self.now, self.rng = rules, rate, 0.0, np.random.default_rng(seed)
        self.state = new_state(
            graphs.steps, links=np.full((2, 1 + workers), rate), starts=np.zeros(workers), rules=rules
        )

    def start(self, d, w):
        s = self.state
        if self.rules.kept:
            windows.restart(s, self.rules, self.now, d, w, 0)
        s.serving[d, w, 0], s.chunk_left[d, w, 0], s.since[d, w, 0] = 0, 1e15, self.now

    def stop(self, d, w):
        s = self.state
        s.serving[d, w, 0], s.idle_since[d, w, 0], s.finish[d, w, 0] = -1, self.now, np.inf

    def go(self, seconds=STEP):
        """Bytes that each flow carries, shape (2, workers), in so short a time that rates hardly change."""
        for d in range(2):
            self.state.dirty[d] = FLOWS
            sharing.reshare(self.state, self.rules, self.now, d, self.rng)
        self.now += seconds
        return self.state.rate[:, :, 0] * seconds


def used(rules, mbit, way, against, *, rounds=12):
    """Shares of the link that 1, 2 and 3 flows use, while so many others go the other way."""
    flows = Flows(rules, mbit * PAYLOAD)
    d = 0 if way == "fetch" else 1
    for i in range(against):
        flows.start(1 - d, 3 + i)
    for _ in range(round(LEAD / STEP)):
        flows.go()
    seconds, carried = np.zeros(4), np.zeros(4)
    for _ in range(rounds):
        left, begin = np.array(ALONE) * flows.rate, flows.now
        for w in range(3):
            flows.start(d, w)
        while left.any() or flows.now < begin + PERIOD:
            running = int(np.count_nonzero(left))
            got = np.minimum(flows.go()[d, :3], left)
            seconds[running] += STEP
            carried[running] += got.sum()
            for w in np.flatnonzero((left > 0) & (left <= got)):
                flows.stop(d, w)
            left -= got
    return carried[1:] / seconds[1:] / flows.rate
