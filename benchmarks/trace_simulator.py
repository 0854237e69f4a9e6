"""Steps per second of the trace simulator, and of the same model written with SimPy.

Run with ``python -m benchmarks.trace_simulator [--quick]``; prints one line per size, then the ratio. Both peers
simulate the same network (161 tensors), the same recorded step and the same rules: one server, connections that share
its link equally, tensors of a connection one after the other, updates one after the other at the server's processor.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import simpy

from queuemodel.profile import Job, Operation, Profile, Source, Step
from queuemodel.simulator import LinkRate, LinkRates, simulate_operations

RATE = 1e9
LINKS = LinkRates(LinkRate(RATE), LinkRate(RATE))
IDEAL = {"links": LINKS, "loaded_trip": 0.0, "unfairness": 0.0}


def network(tensors: int = 161, seed: int = 1) -> Profile:
    """A profile like ResNet-50's: one tensor per layer, 100 MB, 0.3 s of computation."""
    rng = np.random.default_rng(seed)
    sizes = np.maximum(1, 1e8 * rng.dirichlet(np.full(tensors, 0.3))).astype(int).tolist()
    operations, now = [], 0.0
    for i, size in enumerate(sizes):
        now += size / RATE
        operations.append(Operation("fetch", f"w{i}", 0.0, now, size))
    computed = 0
    for i in range(2 * tensors):  # forward through the layers, then back: nothing waits but for what it needs
        forward = i < tensors
        layer, took = (i, 0.1 / tensors) if forward else (2 * tensors - 1 - i, 0.2 / tensors)
        after = ([layer] if forward else []) + ([computed] if i else [])
        start = max(operations[j].end for j in after)
        computed = len(operations)
        operations.append(Operation("compute", f"{'fb'[not forward]}{layer}", start, start + took, after=after))
        if not forward:
            end = start + took
            operations.append(Operation("push", f"g{layer}", end, end, sizes[layer], after=[computed]))
            operations.append(Operation("update", f"u{layer}", end, end + 1e-5, after=[computed + 1]))
    step = Step(
        step_time=max(o.end for o in operations), fetch=0, compute=0, push=0, update=0,
        fetched_bytes=sum(sizes), pushed_bytes=sum(sizes), operations=operations,
    )  # fmt: skip
    job = Job(name="benchmark", batch_size=1, parameter_bytes=sum(sizes), tensors=tensors)
    return Profile(source=Source(framework="by hand"), job=job, steps=[step])


class SharedLink:
    """A link that its connections share equally; each carries its tensors one after the other."""

    def __init__(self, env: simpy.Environment) -> None:
        self.env = env
        self.left: dict[int, float] = {}
        self.since = 0.0
        self.arrived: dict[int, simpy.Event] = {}
        self.changed = env.event()
        env.process(self.carry())

    def send(self, connection: int, size: float) -> simpy.Event:
        self.settle()
        self.left[connection] = size
        self.arrived[connection] = self.env.event()
        self.notice()
        return self.arrived[connection]

    def notice(self) -> None:
        if not self.changed.triggered:
            self.changed.succeed()

    def settle(self) -> None:
        share = RATE / max(1, len(self.left)) * (self.env.now - self.since)
        for connection in self.left:
            self.left[connection] -= share
        self.since = self.env.now

    def carry(self):
        while True:
            self.changed = self.env.event()
            if not self.left:
                yield self.changed
                continue
            first = min(self.left, key=self.left.__getitem__)
            due = self.env.timeout(max(0.0, self.left[first]) * len(self.left) / RATE)
            yield due | self.changed
            if due.processed:
                self.settle()
                del self.left[first]
                self.arrived.pop(first).succeed()


def simpy_run(profile: Profile, *, workers: int, steps: int, seed: int = 0) -> float:
    """The same model with SimPy: a process per operation. Returns steps per second of all workers."""
    env = simpy.Environment()
    operations = profile.steps[0].operations
    down, up = SharedLink(env), SharedLink(env)
    server = simpy.Resource(env)
    connections = {("fetch", w): simpy.Resource(env) for w in range(workers)}
    connections |= {("push", w): simpy.Resource(env) for w in range(workers)}
    done = [0]
    finished = env.event()

    def run(w, operation, causes, end):
        yield env.all_of(causes)
        if operation.kind in ("fetch", "push"):
            with connections[operation.kind, w].request() as turn:
                yield turn
                yield (down if operation.kind == "fetch" else up).send(w, operation.bytes)
        elif operation.kind == "update":
            with server.request() as turn:
                yield turn
                yield env.timeout(operation.end - operation.start)
        else:
            yield env.timeout(operation.end - operation.start)
        end.succeed()

    def worker(w, start):
        yield env.timeout(start)
        while True:
            ends = [env.event() for _ in operations]
            for operation, end in zip(operations, ends, strict=True):
                env.process(run(w, operation, [ends[j] for j in operation.after], end))
            yield env.all_of(ends)
            done[0] += 1
            if done[0] == workers * steps:
                finished.succeed()

    for w, start in enumerate(np.random.default_rng(seed).uniform(0, 2 * profile.steps[0].step_time, workers)):
        env.process(worker(w, float(start)))
    env.run(finished)
    return done[0] / env.now


def seconds(function, *arguments, **settings) -> tuple[float, float]:
    start = time.process_time()
    result = function(*arguments, **settings)
    return time.process_time() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only to see that all of it runs")
    sizes = ((8, 20),) if parser.parse_args().quick else ((8, 200), (16, 200), (32, 200), (64, 200), (64, 400))
    profile = network()
    simulate_operations(profile, workers=2, steps=2, links=LINKS)  # compile
    print(f"{len(profile.steps[0].operations)} operations per step, of {profile.job.tensors} tensors")
    for workers, steps in sizes:
        took, run = seconds(simulate_operations, profile, workers=workers, steps=steps, **IDEAL)
        default, _ = seconds(simulate_operations, profile, workers=workers, steps=steps, links=LINKS)
        rate = workers * steps / took
        print(
            f"{workers:3} workers, {steps} steps each: {took:6.2f} s, {rate:7.0f} steps/s "
            f"({default:.2f} s with the default's memory of shares); throughput {run.throughput:.4g}"
        )
        if workers == 8:
            few = 4
            peer, throughput = seconds(simpy_run, profile, workers=workers, steps=few)
            same = simulate_operations(profile, workers=workers, steps=few, **IDEAL)
            print(
                f"    SimPy: {workers * few / peer:.1f} steps/s, {rate * peer / workers / few:.0f} times slower; "
                f"throughput of the first {workers * few} steps {throughput:.5g}, here {same.steps / same.duration:.5g}"
            )


if __name__ == "__main__":
    main()
