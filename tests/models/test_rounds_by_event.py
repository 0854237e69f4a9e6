"""All options of rounds in pairs, against a simulation of loaders, ranks and one network, event by event (SimPy)."""

import numpy as np
import pytest
import simpy

import queuemodel as qm
from queuemodel.models import AllReduceModel, Buckets, FittedRounds, Fusion, Slices, simulate_rounds
from queuemodel.transport import HalvingDoubling, Hierarchical, InRacks, Link, ParameterServers, Ring
from tests.oracles.pairs import pairwise
from tests.oracles.slices import by_priority

SIZES, SHARES = np.array([1.1e6, 4e6, 2.3e6]), np.array([0.41, 0.65, 0.93])  # buckets, and when of the computation
GRADIENTS = np.array([0.7e6, 0.4e6, 4e6, 1.5e6, 0.8e6]), np.array([0.6, 0.62, 0.97, 1.2, 1.4])
COMPUTED, TAIL, BANDWIDTH, NOMINAL, LATENCY = 1.5, 0.07, 1.1e7, 1.5e7, 0.004
LOADERS = (0.8, 1.9, 2.15, 0.3)


def model(*, loaders=(), spread=0.0, **asked):
    rng = np.random.default_rng(2)
    computed = COMPUTED * (1 + spread * rng.standard_normal(400))
    fitted = FittedRounds(
        job=qm.Job(batch_size=8, parameter_bytes=7_400_000, tensors=5), ready=computed[:, None] * SHARES,
        computed=computed, tail=TAIL, single_rank_round_time=COMPUTED + TAIL, bucket_bytes=SIZES,
        gradients=GRADIENTS, at_once=1,
        bandwidth=BANDWIDTH, latency=LATENCY, covariance=np.diag([1e-4, 1e-2]), latency_known=True, nominal=NOMINAL,
        ranks=4, loading=tuple(one * (rng.gamma(4, 0.25, 4000) if spread else np.ones(9)) for one in loaders),
    )  # fmt: skip
    return AllReduceModel(fitted).what_if(**asked)


def asked_of(n, asked):
    """Pieces that are sent, their moments, what a message costs, and the steps of a round, by hand."""
    precision = 0.5 if asked.get("gradient_precision") else 1.0
    sizes, share = (SIZES, SHARES) if "scheme" not in asked else (GRADIENTS[0], GRADIENTS[1] / COMPUTED)
    carried, wanted = BANDWIDTH, asked.get("bandwidth", NOMINAL)
    if wanted != NOMINAL:
        carried = 1 / (1 / carried - 1 / (0.95 * NOMINAL) + 1 / (0.95 * wanted))
    algorithm = {"halving-doubling": HalvingDoubling(), "parameter-servers": ParameterServers()}.get(
        asked.get("collective"), Ring()
    )
    if "ranks_per_node" in asked:
        algorithm = Hierarchical(2, Link(asked["inside_bandwidth"]), algorithm)
    if "nodes_per_rack" in asked:
        algorithm = InRacks(algorithm, asked["nodes_per_rack"], asked["oversubscription"])
    link = Link(carried, latency=asked.get("latency", LATENCY))

    def cost(size):
        both = algorithm.time(size, n, link)
        work = algorithm.time(size, n, Link(carried))
        return work, both - work

    factor = asked.get("batch_size", 8) / 8
    own = [COMPUTED * factor / asked.get("accelerator_speed", 1.0) / s for s in asked.get("worker_speeds", [1.0] * n)]
    return sizes * precision, share, cost, own[:n], factor


def in_events(n, asked, *, loaders=(), spread=0.0, sends=True, rounds=40, warm=20):
    """Mean seconds of rounds after the first ones; with a ``spread`` of computation loading varies, too."""
    sizes, share, cost, mean, factor = asked_of(n, asked)
    rng = np.random.default_rng(1)
    env, k, scheme = simpy.Environment(), asked.get("accumulation", 1), asked.get("scheme")
    crosses, P = isinstance(scheme, Slices), len(sizes)
    slots = [simpy.Container(env, 2, 2) for _ in range(n)]
    batches = [simpy.Store(env) for _ in range(n)]
    had = [[[env.event() for _ in range(P)] for _ in range(n)] for _ in range(warm + rounds)]
    done = [[env.event() for _ in range(P)] for _ in range(warm + rounds)]
    over = [[env.event() for _ in range(n)] for _ in range(warm + rounds)]
    marks = []

    def loader(r):
        while True:
            yield slots[r].get(1)
            yield env.timeout(loaders[r % len(loaders)] * factor * (rng.gamma(4, 0.25) if spread else 1.0))
            yield batches[r].put(1)

    def rank(r):
        for number in range(warm + rounds):
            for step in range(k):
                if loaders:
                    yield batches[r].get()
                    yield slots[r].put(1)
                computed, before = mean[r] * (1 + spread * rng.standard_normal()), 0.0
                if crosses and step == 0:  # the forward pass, layer by layer from the lowest, once each is reduced
                    forward, gaps = computed * share[0], np.diff(share, prepend=share[0])
                    for j in reversed(range(P)):
                        if number:
                            yield done[number - 1][j]
                        yield env.timeout(forward * gaps[j] / gaps.sum())
                    before = share[0]
                    if r == 0:
                        marks.append(env.now)
                elif r == 0 and step == 0:
                    marks.append(env.now)
                for j in range(P if step == k - 1 else 0):
                    yield env.timeout(computed * (share[j] - before))
                    had[number][r][j].succeed()
                    before = share[j]
                yield env.timeout(computed * (1 - before))
            over[number][r].succeed()
            yield env.timeout(TAIL if crosses else 0.0)
            if crosses:
                continue
            yield env.all_of(over[number])
            if sends:
                yield env.all_of(done[number])
            yield env.timeout(TAIL)

    def one_after_the_other():
        for number in range(warm + rounds):
            for group in grouped(sizes, scheme):
                yield env.all_of([had[number][r][j] for r in range(n) for j in group])
                yield env.timeout(sum(cost(sizes[group].sum())))
                for j in group:
                    done[number][j].succeed()

    def all_that_is_there():
        for number in range(warm + rounds):
            left = list(range(P))
            while left:
                yield env.all_of([had[number][r][left[0]] for r in range(n)])
                there = [j for j in left if all(had[number][r][j].triggered for r in range(n))]
                while there:
                    group = [there[0]]
                    while len(group) < len(there) and sizes[there[: len(group) + 1]].sum() <= scheme.cap:
                        group.append(there[len(group)])
                    yield env.timeout(sum(cost(sizes[group].sum())))
                    for j in group:
                        done[number][j].succeed()
                    left, there = left[len(group) :], there[len(group) :]

    def after(seconds, event):
        yield env.timeout(seconds)
        event.succeed()

    def most_urgent_first():
        for number in range(warm + rounds):
            ready = []
            for j in range(P):
                yield env.all_of([had[number][r][j] for r in range(n)])
                ready.append(env.now)
            for j, end in enumerate(by_priority(ready, sizes, scheme.cap, scheme.credit, cost)):
                env.process(after(max(end - env.now, 0.0) + TAIL, done[number][j]))

    for r in range(n):
        env.process(rank(r))
        if loaders:
            env.process(loader(r))
    if sends:
        kinds = {Fusion: all_that_is_there, Slices: most_urgent_first}
        env.process(kinds.get(type(scheme), one_after_the_other)())
    env.run()
    return (marks[-1] - marks[warm]) / (len(marks) - 1 - warm)


def grouped(sizes, scheme):
    """Buckets that are closed when full, the first one earlier."""
    if scheme is None:
        return [[j] for j in range(len(sizes))]
    groups, filled, limit = [[]], 0.0, scheme.first
    for j, size in enumerate(sizes):
        groups[-1].append(j)
        filled += size
        if filled >= limit:
            groups.append([])
            filled, limit = 0.0, scheme.cap
    return [group for group in groups if group]


OPTIONS = {
    "scheme": [None, Buckets(2e6, 5e5, 1), Fusion(2e6, 0.0), Slices(6e5, 1.2e6)],
    "collective": [None, "halving-doubling", "parameter-servers"], "accumulation": [None, 3],
    "gradient_precision": [None, "half"], "worker_speeds": [None, (1.0, 0.5, 1.0, 2.0)], "latency": [None, 0.02],
    "bandwidth": [None, 2.5e7], "accelerator_speed": [None, 1.6], "batch_size": [None, 12],
    "place": [None, {"ranks_per_node": 2, "inside_bandwidth": 4e7}],
    "racks": [None, {"nodes_per_rack": 2, "oversubscription": 3.0}], "loaders": [None, LOADERS],
}  # fmt: skip


@pytest.mark.parametrize("asked", [*pairwise(0, **OPTIONS)], ids=str)
def test_options_combine_as_events_do(asked):
    loaders = asked.pop("loaders", ())
    curve = model(loaders=loaders, **asked).throughput([2, 4])
    for n, rate in zip(curve.workers.tolist(), curve.iterations_per_second.tolist(), strict=True):
        truth = in_events(n, asked, loaders=loaders)
        assert 1 / rate == pytest.approx(truth, rel=1e-6)
        run = simulate_rounds(model(loaders=loaders, **asked), ranks=n, rounds=30)
        assert run.times.mean() == pytest.approx(truth, rel=1e-2)


def test_two_percent_are_noticed():
    """The control: of computation, of bytes, and of a loader that is always late."""
    seconds = in_events(4, {}, loaders=(2.15,)), in_events(4, {}), in_events(4, {"bandwidth": 2.5e7})
    found = [
        1 / model(**changes).throughput([4]).iterations_per_second[0]
        for changes in ({"loaders": (2.2,)}, {"accelerator_speed": 1.02}, {"bandwidth": 2.45e7})
    ]
    assert not np.isclose(found, seconds, rtol=1e-3).any()


@pytest.mark.parametrize("accumulation", [1, 2, 5])
@pytest.mark.parametrize("load", [1.5, 1.7])
def test_loader_is_two_batches_ahead(load, accumulation):
    """Batches are computed in 1.5 s and loaded in 1.5 or 1.7 s (gamma): not always in time where four ranks meet."""
    about = {"loaders": (load,), "spread": 0.1}
    asked = {"accumulation": accumulation, "bandwidth": 1e8}
    truth = in_events(4, asked, **about, rounds=5000 // accumulation)
    found = 1 / model(**about, **asked).throughput([4]).iterations_per_second[0]
    assert found == pytest.approx(truth, rel=0.025)
    assert simulate_rounds(model(**about, **asked), ranks=4, rounds=600).times.mean() == pytest.approx(truth, rel=0.03)
    without = 1 / model(spread=0.1, **asked).throughput([4]).iterations_per_second[0]
    assert without < 0.97 * truth  # the control
