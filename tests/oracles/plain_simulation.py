"""The simulated cluster written a second time, plainly: every event looks at everything. Links are shared at once.

One class, no heaps, no arrays of all connections: a list of timers, a dictionary of connections, and max-min fair
rates by progressive filling. Steps, orders and servers are given, so that packing, orders and sharding are checked too.
"""

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

WINDOW = 65_535  # bytes of a turn where tensors take turns
STATIONS = {"fetch": "transmit[{}]", "push": "receive[{}]"}


def links_of(key):
    d, w, k = key
    return (d, "server", k), (d, "worker", w)


@dataclass
class Worker:
    slowdown: float
    records: list  # which recorded step it repeats in each of its own, as far as that is known
    number: int = -1  # of its step
    step: int = 0  # as the synchronization counts
    waiting: bool = False
    seen: int = 0  # steps that counted when its own began
    current: bool = False  # it has the round's parameters
    began: float = 0.0  # began, fetched, pushed: its step, its last parameter there, its first gradient ready
    fetched: float = 0.0
    pushed: float = math.inf
    missing: dict = field(default_factory=dict)  # operations that have not ended: those that each waits for


@dataclass
class Flow:
    queue: list = field(default_factory=list)  # (rank, sequence, operation), to be served in order
    serving: int = -1
    chunk: float = 0.0
    rate: float = 0.0


class Cluster:
    """A profile's steps on so many workers.

    `began` has since when each operation of each step of each worker could begin and when it did, `ends` when it ended,
    `account` what steps and stations took until the last step that counts.
    """

    def __init__(self, profile, *, slowdown, links, worker_links, servers, rank, home, records, mode="async-ps",
                 awaited=1, bound=0, chunk=math.inf):  # fmt: skip
        self.steps, self.pauses = [one.operations for one in profile.steps], []
        known = [one.step_time - max(o.end for o in one.operations) for one in profile.steps]
        usual = float(np.median([pause for pause in known if pause > 0] or [0.0]))
        self.pauses = [pause if pause > 0 else usual for pause in known]
        self.workers = [Worker(slow, list(own)) for slow, own in zip(slowdown, records, strict=True)]
        self.capacity = {(d, "server", k): links[d] for d in range(2) for k in range(servers)}
        self.capacity |= {(d, "worker", w): rate for d in range(2) for w, rate in enumerate(worker_links[d])}
        self.flows = {key: Flow() for key in itertools.product(range(2), range(len(slowdown)), range(servers))}
        self.rank, self.home, self.mode, self.awaited, self.bound, self.chunk = rank, home, mode, awaited, bound, chunk
        self.free, self.applied, self.gathered = [0.0] * servers, 0.0, {}
        self.sequence, self.timers, self.now = itertools.count(), [], 0.0
        self.round = self.delivered = self.done = 0
        self.left, self.ends, self.counted, self.lags, self.known_until = {}, {}, [], [], math.inf
        self.began, self.used, self.account = {}, Counter(), {}
        for w in range(len(slowdown)):
            self.at(0.0, self.begin_step, w)

    def at(self, when, what, *who):
        self.timers.append((when, next(self.sequence), what, who))

    def operations(self, w):
        return self.steps[self.workers[w].records[self.workers[w].number]]

    # a step

    def begin_step(self, w):
        worker = self.workers[w]
        worker.number += 1
        if worker.number == len(worker.records):  # hardly begun when the run ended
            worker.records.append(0)
            self.known_until = min(self.known_until, self.now)
        worker.seen, worker.began, worker.fetched, worker.pushed = self.done, self.now, self.now, math.inf
        self.ends = {key: end for key, end in self.ends.items() if key[:2] != (w, worker.number)}
        operations = self.operations(w)
        worker.missing = {i: set(o.after) for i, o in enumerate(operations)}
        asked = []
        for i, one in enumerate(operations):
            if not one.after and one.kind == "fetch" and not worker.current:
                asked.append(i)
            elif not one.after:
                self.at(self.now, self.begin, w, i)
        if asked:
            self.at(self.now + min(operations[i].start for i in asked), self.ask, w, asked)

    def ask(self, w, asked):
        for i in sorted(asked, key=lambda i: (self.operations(w)[i].end, i)):  # as they arrived
            self.send(w, i)

    def delay(self, w, i):
        """Seconds that passed between what an operation waited for and its start, as it was recorded."""
        operations, one = self.operations(w), self.operations(w)[i]
        return max(0.0, one.start - max((operations[j].end for j in one.after), default=0.0))

    def begin(self, w, i):
        one, k = self.operations(w)[i], self.home(self.operations(w)[i])
        late, seconds = self.delay(w, i), one.end - one.start
        self.began[w, self.workers[w].number, i] = [self.now, self.now]
        if one.kind == "fetch" and self.workers[w].current:
            self.at(self.now, self.finish, w, i)
        elif one.kind in ("fetch", "push"):
            self.at(self.now + late, self.send, w, i) if late else self.send(w, i)
        elif one.kind == "compute":
            seconds *= self.workers[w].slowdown
            self.used["compute"] += seconds
            self.began[w, self.workers[w].number, i][1] += late
            self.at(self.now + late + seconds, self.finish, w, i)
        elif self.applies(w, one.name):
            start = max(self.now + late, self.free[k])
            self.free[k] = start + seconds
            self.applied = max(self.applied, self.free[k])
            self.used[f"update[{k}]"] += seconds
            self.began[w, self.workers[w].number, i][1] = start
            self.at(start + seconds, self.finish, w, i)
        else:
            self.at(self.now, self.finish, w, i)

    def finish(self, w, i):
        worker = self.workers[w]
        self.ends[w, worker.number, i] = self.now
        one = self.operations(w)[i]
        if one.kind == "fetch":
            worker.fetched = self.now
        if one.kind == "push" or (one.kind == "fetch" and not worker.current):
            self.used[STATIONS[one.kind].format(self.home(one))] += one.bytes
        del worker.missing[i]
        for j, others in worker.missing.items():
            if i in others:
                others.discard(i)
                if not others:
                    self.begin(w, j)
        if not worker.missing:
            self.end_step(w)

    # connections

    def send(self, w, i):
        one = self.operations(w)[i]
        key = (0 if one.kind == "fetch" else 1, w, self.home(one))
        self.left[w, i] = float(one.bytes)
        self.began[w, self.workers[w].number, i] = [self.now, None]
        if one.kind == "push":
            self.workers[w].pushed = min(self.workers[w].pushed, self.now)
        self.flows[key].queue.append((self.rank(one), next(self.sequence), i))

    def serve(self):
        """Idle connections begin what is first in their queues."""
        for (_, w, _), flow in self.flows.items():
            if flow.serving < 0 and flow.queue:
                flow.queue.sort()
                flow.serving = flow.queue.pop(0)[2]
                flow.chunk = min(self.chunk, self.left[w, flow.serving])
                moments = self.began[w, self.workers[w].number, flow.serving]
                moments[1] = self.now if moments[1] is None else moments[1]
                self.left[w, flow.serving] -= flow.chunk

    def share(self):
        """Max-min fair rates."""
        open_, left = {key: flow for key, flow in self.flows.items() if flow.serving >= 0}, dict(self.capacity)
        while open_:
            users = {link: [k for k in open_ if link in links_of(k)] for link in left}
            link = min((link for link in left if users[link]), key=lambda link: left[link] / len(users[link]))
            rate = left[link] / len(users[link])
            for key in users[link]:
                open_.pop(key).rate = rate
                for own in links_of(key):
                    left[own] = max(0.0, left[own] - rate)

    # the end of a step

    def applies(self, w, name):
        """In rounds and groups an update takes place once, with the last awaited gradient."""
        if self.mode in ("async-ps", "bounded-staleness"):
            return True
        if self.mode == "sync-ps" and self.workers[w].step < self.round:
            return False
        self.gathered[name] = self.gathered.get(name, 0) + 1
        if self.gathered[name] != self.awaited:
            return False
        if self.mode == "k-async":
            self.gathered[name] = 0
        return True

    def go_on(self, w, when=0.0):
        worker = self.workers[w]
        worker.waiting = False
        self.at(max(self.now, when) + self.pauses[worker.records[worker.number]], self.begin_step, w)

    def end_step(self, w):
        worker = self.workers[w]
        if self.mode == "sync-ps" and worker.step < self.round:  # it comes too late
            worker.step = self.round
            self.used["dropped"] += 1
            self.go_on(w)
            return
        self.lags.append(self.done - worker.seen)
        self.counted.append(self.now)
        self.done += 1
        self.delivered += 1
        spans = {"step": worker.began, "push": min(worker.pushed, self.now)}
        self.used.update({name: self.now - since for name, since in spans.items()})
        self.used["fetch"] += worker.fetched - worker.began
        self.account = dict(self.used)
        worker.waiting, whole = True, self.delivered == self.awaited
        if self.mode == "async-ps":
            self.go_on(w)
        elif self.mode == "bounded-staleness":
            worker.step += 1
            slowest = min(one.step for one in self.workers)
            for v, one in enumerate(self.workers):
                if one.waiting and one.step <= slowest + self.bound:
                    self.go_on(v)
        elif self.mode in ("k-sync", "k-batch-sync"):
            worker.current = True
            if whole:
                self.end_round()
            elif self.mode == "k-batch-sync":
                self.go_on(w)
        elif whole:
            self.delivered, self.round = 0, self.round + 1
            if self.mode == "sync-ps":
                self.gathered = {}
            for v, one in enumerate(self.workers):
                if one.waiting:
                    one.step = self.round
                    self.go_on(v, self.applied if self.mode == "sync-ps" else 0.0)

    def end_round(self):
        for end, _, what, who in self.timers:
            if what == self.finish and self.operations(who[0])[who[1]].kind == "compute":
                self.used["compute"] -= end - max(self.now, self.began[who[0], self.workers[who[0]].number, who[1]][1])
        self.used["dropped"] += sum(bool(one.missing) and one.began < self.now for one in self.workers)
        self.delivered, self.gathered, self.timers = 0, {}, []
        for (d, w, k), flow in self.flows.items():  # what was carried of what never arrives
            for i in [*(i for *_, i in flow.queue), *([flow.serving] if flow.serving >= 0 else [])]:
                rest = self.left[w, i] + (max(flow.chunk, 0.0) if i == flow.serving else 0.0)
                self.used[("transmit", "receive")[d] + f"[{k}]"] += self.operations(w)[i].bytes - rest
            flow.queue, flow.serving = [], -1
        for v, one in enumerate(self.workers):
            one.current = False
            self.go_on(v, self.applied)
            if one.missing:  # what is cut short is no step
                one.missing, one.number = {}, one.number - 1

    # time

    def run(self, steps):
        """Until so many steps count."""
        while self.done < steps:
            self.serve()
            self.share()
            carrying = {key: flow for key, flow in self.flows.items() if flow.serving >= 0}
            busy = [(self.now + max(0.0, flow.chunk) / flow.rate, key) for key, flow in carrying.items()]
            ending, key = min(busy, default=(math.inf, None))
            timer = min(self.timers, default=(math.inf, 0))
            seconds, self.now = min(ending, timer[0]) - self.now, min(ending, timer[0])
            for flow in carrying.values():
                flow.chunk -= flow.rate * seconds
            if timer[0] <= ending:
                self.timers.remove(timer)
                timer[2](*timer[3])
            else:
                self.end_chunk(key)
        return self

    def end_chunk(self, key):
        flow, w = self.flows[key], key[1]
        i, flow.serving = flow.serving, -1
        if self.left[w, i] > 0:
            flow.queue.append((self.rank(self.operations(w)[i]), next(self.sequence), i))
        else:
            self.finish(w, i)
