"""Workers, a server's link each way and its processor, event by event (SimPy): judge of the half-synchronous rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import simpy


class SharedStation:
    """A server that shares its time equally: `age` is the service of a customer who was there all the time."""

    def __init__(self, env: simpy.Environment) -> None:
        self.env, self.due, self.age, self.then, self.plan = env, {}, 0.0, 0.0, 0

    def serve(self, seconds: float) -> simpy.Event:
        done = self.env.event()
        if seconds <= 0:
            return done.succeed()
        self._advance()
        self.due[done] = self.age + seconds
        self._next()
        return done

    def cancel(self, done: simpy.Event) -> None:
        if done in self.due:
            self._advance()
            del self.due[done]
            self._next()

    def _advance(self) -> None:
        if self.due:
            self.age += (self.env.now - self.then) / len(self.due)
        self.then = self.env.now

    def _next(self) -> None:
        self.plan += 1
        if self.due:
            self.env.process(self._end(self.plan, min(self.due.values())))

    def _end(self, plan: int, age: float) -> Any:
        yield self.env.timeout(max(age - self.age, 0.0) * len(self.due))
        if plan == self.plan:
            self._advance()
            self.age = max(self.age, age)
            for done in [done for done, due in self.due.items() if due <= self.age + 1e-12]:
                del self.due[done]
                done.succeed()
            self._next()


def run(
    strategy: str,
    own: Callable[[int], float],
    demands: Callable[[], tuple[float, float, float]],
    *,
    workers: int,
    k: int = 1,
    bound: int = 0,
    rounds: int = 1000,
) -> tuple[np.ndarray, np.ndarray]:
    """Times of rounds (of k results), and how many steps each worker made; the first tenth of rounds is left out.

    Parameters
    ----------
    strategy : {"async", "k-async", "backup", "bounded", "k-sync", "k-batch-sync"}
        With "backup" steps that were begun in another round do not count.
    own : callable
        A worker's own seconds, drawn.
    demands : callable
        Seconds of fetch, push and update, drawn.
    """
    env = simpy.Environment()
    link_down, link_up, processor = (SharedStation(env) for _ in range(3))
    ends: list[float] = []
    made, counted = np.zeros(workers, int), [0]
    signals = {"round": env.event(), "step": env.event(), "over": env.event()}

    def tell(what: str) -> None:
        signals[what].succeed()
        signals[what] = env.event()

    def result(i: int) -> None:
        made[i] += 1
        counted[0] += 1
        if counted[0] % k == 0:
            ends.append(env.now)
            if len(ends) == rounds:
                signals["over"].succeed()
            tell("round")
        tell("step")

    def freely(i: int) -> Any:
        while True:
            applied = signals["round"]
            fetch, push, update = demands()
            yield link_down.serve(fetch)
            yield env.timeout(own(i))
            yield link_up.serve(push)
            yield processor.serve(update)
            if strategy != "backup":
                applied = signals["round"]
            elif applied.triggered:
                continue
            result(i)
            if strategy in ("k-async", "backup"):
                yield applied
            while strategy == "bounded" and made[i] > made.min() + bound:
                yield signals["step"]

    def in_rounds(i: int) -> Any:
        while True:
            over, fresh = signals["round"], True
            while not over.triggered:
                fetch, push, update = demands()
                for station, seconds in (
                    (link_down, fetch * fresh),
                    (None, own(i)),
                    (link_up, push),
                    (processor, update),
                ):
                    done = station.serve(seconds) if station else env.timeout(seconds)
                    yield done | over
                    if over.triggered:
                        if station:
                            station.cancel(done)
                        break
                else:
                    result(i)
                    fresh = False
                    if strategy == "k-sync" and not over.triggered:
                        yield over

    for i in range(workers):
        env.process((in_rounds if strategy in ("k-sync", "k-batch-sync") else freely)(i))
    env.run(signals["over"])
    return np.diff(ends[rounds // 10 :]), made
