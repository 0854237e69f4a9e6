"""Sharded rounds: closed forms, a plain simulation of events, laws, and what is refused."""

import dataclasses
import itertools
from collections import defaultdict

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel import transport as qc
from queuemodel.models import fit, fit_shards, plot_round, predict
from queuemodel.models.rounds.graph import Task, end_times
from queuemodel.models.sharded import TimedTask
from queuemodel.profile import Cluster, Job, Operation, Profile, Round, Source
from queuemodel.sgd import compare

BANDWIDTH, UNIT = 10e6, 1_000_000


def carried(ranks):
    """What gloo's rings have of a link: two ranks send both ways over one connection."""
    return 1 - 0.22 / (ranks - 1) ** 2


def simulated(tasks, seconds, ranks):
    """When each task ends on each rank: every event in the order of time, one after the other."""
    streams = defaultdict(list)
    for i, task in enumerate(tasks):
        streams[task.stream].append(i)
    ends, running = {}, []
    while len(ends) < len(tasks) * ranks:
        moment = min((end for end, *_ in running), default=0.0)
        for one in [one for one in running if one[0] <= moment]:
            running.remove(one)
            ends[one[1:]] = one[0]
        for stream, rank in itertools.product(streams.values(), range(ranks)):
            i = next((i for i in stream if (i, rank) not in ends), None)
            if i is None or any((i, rank) == one[1:] for one in running):
                continue
            size = tasks[i].ranks or ranks
            members = range(rank // size * size, rank // size * size + size) if tasks[i].kind else [rank]
            before = [*tasks[i].after, *stream[: stream.index(i)]]
            if all((j, r) in ends for j in before for r in members):
                running += [(moment + seconds[i][r], i, r) for r in members]
    return np.array([[ends[i, r] for r in range(ranks)] for i in range(len(tasks))])


@st.composite
def graphs(draw):
    ranks, tasks, seconds = draw(st.sampled_from([1, 2, 4])), [], []
    for i in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from(["", "all-gather", "reduce-scatter"]))
        after = tuple(sorted(draw(st.sets(st.integers(0, i - 1), max_size=2)))) if i else ()
        group = draw(st.sampled_from([0, 2])) if kind and ranks == 4 else 0
        stream = f"{kind}{group}" if kind else "compute"
        tasks.append(Task(stream, after, kind, 1.0, stream if kind else "", group))
        own = draw(st.lists(st.integers(1, 20), min_size=ranks, max_size=ranks))
        seconds.append(np.array([own[0]] * ranks if kind else own, dtype=float))
    return tasks, seconds, ranks


@given(graphs())
@settings(max_examples=150, deadline=None)
def test_graph_ends_as_simulated(graph):
    tasks, seconds, ranks = graph
    said = end_times(tasks, [s[None] for s in seconds], [np.zeros(1)] * len(tasks))
    said = np.array([np.broadcast_to(one, (1, ranks))[0] for one in said])
    np.testing.assert_allclose(said, simulated(tasks, seconds, ranks))


def steps_of(units):
    """FSDP of equal units, gathered two ahead: forward; gather again, backward, scatter; then the optimizer."""
    steps, computed = [], []

    def add(kind, after):
        group = "all ranks" if kind else ""
        steps.append(TimedTask(Task(group or "compute", tuple(after), kind, UNIT, group)))
        return len(steps) - 1

    for _ in range(2 * units):
        gather = add("all-gather", computed[-2:][:1] if len(computed) >= 2 else [])
        backward = len(computed) >= units
        computed.append(add("", [gather]))
        if backward:
            add("reduce-scatter", [computed[-1]])
    add("", [len(steps) - 1])
    return steps


def profile_of(ranks, *, units=4, bandwidth=BANDWIDTH, compute=0.05, rounds=8, cv=0.0, recorded=None):
    """Recorded rounds of so many ranks, made by the graph itself."""
    tasks, rng = [one.task for one in steps_of(units)], np.random.default_rng(0)
    ring, link = qc.Ring(), qc.Link(bandwidth * carried(ranks))
    found = []
    for number in range(rounds):
        seconds = [
            np.full((1, ranks), ring.time(t.bytes, ranks, link, kind=t.kind)) if t.kind
            else compute * np.maximum(1 + cv * rng.standard_normal((1, ranks)), 0.1)
            for t in tasks
        ]  # fmt: skip
        ends = [np.broadcast_to(one, (1, ranks))[0] for one in end_times(tasks, seconds, [np.zeros(1)] * len(tasks))]
        for rank in range(ranks) if recorded is None else recorded:
            took = [float(s[0, rank]) for s in seconds]
            operations = [
                Operation(t.kind or "compute", f"{i}", max(0.0, float(end[rank]) - s), float(end[rank]),
                          bytes=int(t.bytes) if t.kind else 0, after=list(t.after), group=t.group)
                for i, (t, end, s) in enumerate(zip(tasks, ends, took, strict=True))
            ]  # fmt: skip
            found.append(
                Round(rank=rank, ranks=ranks, number=number, round_time=float(ends[-1][rank]), operations=operations,
                      computed=sum(s for s, t in zip(took, tasks, strict=True) if not t.kind),
                      groups={"all ranks": ranks})
            )  # fmt: skip
    return Profile(
        source=Source(framework="pytorch", style="gloo"), cluster=Cluster(workers=ranks),
        job=Job(batch_size=8, parameter_bytes=units * UNIT, tensors=units), rounds=found,
    )  # fmt: skip


@pytest.mark.parametrize("k", [1, 2, 4])
def test_accumulated_steps_gather_and_reduce_once(k):
    """Where the network is busy eight gathers of each step and four reductions of the last; where not, computation."""
    slow, fast = (fit(profile_of(2, **changes)) for changes in ({"compute": 1e-4}, {"bandwidth": 1e11}))
    for n in (2, 4, 16):
        sent = (8 * k + 4) * (n - 1) / n * UNIT / BANDWIDTH / carried(n)
        for model, seconds in ((slow, sent), (fast, (8 * k + 1) * 0.05)):
            rate = model.throughput([n], accumulation=k, latency=0.0).at(n)
            assert k * n / rate == pytest.approx(seconds, rel=0.02)
    kinds = [one.task.kind for one in slow.what_if(accumulation=k).steps]
    assert [kinds.count(kind) for kind in ("", "all-gather", "reduce-scatter")] == [8 * k + 1, 8 * k, 4]


@pytest.mark.parametrize("n", [2, 3, 8])
def test_fitted_graph_extends_to_ranks(n):
    truth = np.mean([one.round_time for one in profile_of(n, rounds=1).rounds])
    curve = predict(profile_of(2), workers=[n], latency=0.0)
    assert n / curve.steps_per_second[0] == pytest.approx(truth, rel=0.01)
    assert curve.lower[0] < n / truth < curve.upper[0]


@pytest.mark.parametrize(("reshard", "units"), [(True, 4), (False, 3)])
def test_prefetch_hides_gathers(reshard, units):
    """Without it each gather waits for the reduction before it; one unit ahead hides all but the first."""
    model = fit(profile_of(2, units=units, compute=0.2)).what_if(latency=0.0, reshard=reshard)
    transfer, compute, passes = UNIT / 2 / BANDWIDTH / carried(2), 0.2, units * (1 + reshard)
    for prefetch, truth in [
        (0, (2 * units + 1) * compute + (passes + units * reshard + (not reshard)) * transfer),
        (1, (2 * units + 1) * compute + 2 * transfer),
        (1000, (2 * units + 1) * compute + 2 * transfer),
    ]:
        curve = model.what_if(prefetch=prefetch).throughput([2])
        assert 1 / curve.iterations_per_second[0] == pytest.approx(truth, rel=0.01)


@pytest.mark.parametrize("options", [
    {}, {"reshard": False}, {"accumulation": 3}, {"gradient_precision": "half"}, {"worker_speeds": [1.0, 0.5] * 4},
    {"shard_group": 2, "gpus_per_node": 2, "inside_bandwidth": 1e8}, {"batch_size": 16}, {"collective": "ring"},
])  # fmt: skip
def test_more_prefetch_is_never_slower(options):
    model = fit(profile_of(2, units=5)).what_if(**options)
    rates = [model.what_if(prefetch=k).throughput([8]).iterations_per_second[0] for k in (0, 1, 2, 3)]
    assert all(more >= (1 - 1e-9) * less for less, more in itertools.pairwise(rates))
    assert rates[-1] > rates[0]


def test_two_ranks_of_nccl_lose_nothing():
    """Over gloo they send both ways over one connection, and more ranks do not."""
    profile = profile_of(2, compute=1e-4)
    source = msgspec.structs.replace(profile.source, style="nccl")
    alike = [fit(msgspec.structs.replace(profile, source=one)).what_if(latency=0.0) for one in (source, profile.source)]
    nccl, gloo = (model.throughput([2, 64]).steps_per_second for model in alike)
    assert nccl[0] == pytest.approx(gloo[0], rel=0.01)
    assert ["specify congestion control" in model.note for model in alike] == [False, True]
    slower = np.exp(-0.055 * 5)  # as all-reduces of NCCL are found to be, at each doubling
    assert nccl[1] == pytest.approx(gloo[1] * carried(2) * slower, rel=0.01)


@settings(max_examples=10, deadline=None)
@given(st.floats(0.2, 5.0))
def test_units_of_time_do_not_matter(factor):
    model = fit(profile_of(2, cv=0.05))
    plain = model.throughput([2, 8])
    again = fit(profile_of(2, cv=0.05, compute=0.05 / factor, bandwidth=BANDWIDTH * factor))
    both = again.throughput([2, 8], latency=model.fitted.link.latency / factor)
    np.testing.assert_allclose(both.steps_per_second, factor * plain.steps_per_second, rtol=0.01)


def test_node_copies_reduce_among_nodes():
    """Sixteen ranks on nodes of eight: as many bytes between them as an all-reduce of a node's shares."""
    model, changed = fit(profile_of(2, compute=1e-4)), {"ranks_per_node": 8, "inside_bandwidth": 1e12, "latency": 0.0}
    shared, gathered = (model.throughput([8, 16], shard_group=group, **changed) for group in (8, 64))
    assert shared.at(8) == pytest.approx(8 / (9e-4), rel=0.05)  # within a node
    half = UNIT / 2 / BANDWIDTH  # between two nodes; eight rings of an eighth
    assert shared.at(16) == pytest.approx(16 / (4 * 2 * half), rel=0.02)
    for curve in (gathered, model.throughput([16], shard_group=0, **changed), model.throughput([16], **changed)):
        assert curve.at(16) == pytest.approx(16 / (12 * half), rel=0.02)


def test_one_rank_widens_the_interval():
    whole, alone = (fit(profile_of(2, cv=0.03, recorded=which)) for which in (None, [0]))
    all_ranks, one = whole.throughput([8]), alone.throughput([8])
    assert one.steps_per_second[0] == pytest.approx(all_ranks.steps_per_second[0], rel=0.03)
    assert one.upper[0] / one.lower[0] > all_ranks.upper[0] / all_ranks.lower[0]
    assert "1 of 2 ranks recorded" in alone.note


def test_a_slow_rank_stays_slow():
    profile = profile_of(2, cv=0.01)
    slow = [msgspec.structs.replace(r, round_time=1.5 * r.round_time, computed=r.computed * (1 + r.rank))
            for r in profile.rounds]  # fmt: skip
    fitted = fit_shards(msgspec.structs.replace(profile, rounds=slow))
    assert fitted.relative_compute_times == pytest.approx((1.0, 2.0), rel=0.02)


@pytest.mark.parametrize(("changes", "said"), [
    ({"ranks_per_node": 4}, "gpus_per_node needs inside_bandwidth"),
    ({"scheme": "ddp"}, "scheme is not a change of sharded"),
    ({"collective": "parameter-servers"}, "ParameterServers has no"),
    ({"parameter_servers": 2}, "not to 'fsdp'"), ({"strategy": "async-ps"}, "is not how its rounds were recorded"),
    ({"strategy": "zero-1"}, "needs recorded rounds"), ({"method": "trace"}, "method 'trace'"),
    ({"workers": 3, "worker_speeds": [1.0, 0.5]}, "workers must be at most 2, the number of worker_speeds"),
])  # fmt: skip
def test_unanswerable_questions_are_refused(changes, said):
    with pytest.raises(qm.ModelError, match=said):
        predict(profile_of(2), **changes)


def test_sharded_rounds_are_not_compared():
    with pytest.raises(qm.ModelError, match="compare: rounds of strategy 'fsdp' are not compared"):
        compare(profile_of(2), workers=2)


def test_half_precision_doubles_the_bandwidth():
    model = fit(profile_of(2, cv=0.05)).what_if(latency=0.0)
    link = model.fitted.link._replace(bandwidth=2 * model.fitted.link.bandwidth)
    twice = dataclasses.replace(model, fitted=dataclasses.replace(model.fitted, link=link))
    half, same = (one.throughput([2, 8]) for one in (model.what_if(gradient_precision="half"), twice))
    np.testing.assert_allclose(half.steps_per_second, same.steps_per_second)


def test_a_slow_rank_is_waited_for():
    model = fit(profile_of(2, bandwidth=1e11))
    speeds = (1.0, 0.5, *[1.0] * 6)
    rates = model.throughput([1, 2, 8], worker_speeds=speeds, latency=0.0).steps_per_second
    assert rates == pytest.approx(np.array([1, 2 / 2, 8 / 2]) / (9 * 0.05), rel=0.02)


@pytest.mark.parametrize("changes", [{}, {"accumulation": 2}, {"reshard": False}, {"worker_speeds": [1, 0.5, 1, 1, 1]}])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_simulated_rounds_are_the_curve(ranks, changes):
    """On average; of each rank computations follow each other, and collectives those that they share a link with."""
    profile = qm.example_profile("fsdp-gpt8-60")
    run = qm.simulate(profile, workers=ranks, steps=200, seed=1, **changes)
    assert run.throughput == pytest.approx(predict(profile, workers=[ranks], **changes).steps_per_second[0], rel=0.01)
    row = run.to_rows()[0]
    assert row["round_time"] == pytest.approx(row["computation"] + row["stragglers"] + row["communication"])
    for view in (run.round(3, rank=rank) for rank in range(ranks)):
        sent = [(bucket.begin, bucket.end) for bucket in view.buckets]
        for spans in (view.computing, sent):
            assert all(end <= begin + 1e-9 for (_, end), (begin, _) in itertools.pairwise(sorted(spans)))
        assert all(bucket.ready <= bucket.begin + 1e-9 for bucket in view.buckets)
        if ranks > 1:  # one alone may compute for less than among others
            assert max(end for _, end in view.computing + sent) <= view.round_time + 1e-9
    row = run.to_rows()[0]
    parts = row["computation"] + row["stragglers"] + row["communication"]
    assert parts == pytest.approx(row["round_time"], rel=1e-9 if ranks > 1 else 0.01)


def test_sharded_round_is_drawn_by_streams():
    recorded = qm.example_profile("fsdp-gpt8-60")
    for one in (qm.simulate(recorded, workers=4, steps=5).round(), recorded.rounds[-1]):
        axes = plot_round(one)
        assert [label.get_text() for label in axes.get_yticklabels()] == ["computation", "all-gather", "reduce-scatter"]
        busy, _, sent = (container.patches for container in axes.containers)
        assert len(sent) == sum(o.kind != "compute" for o in recorded.rounds[-1].operations)
        assert sum(bar.get_width() for bar in busy) <= one.round_time


def test_knee_is_a_tenth_lost():
    slower = fit(qm.example_profile("fsdp-gpt8-60"))
    model, nodes = slower.what_if(bandwidth="1Gbit/s"), np.arange(1, 200)
    knee = next(one for one in model.parameters if one.name == "knee")
    rate = model.throughput(nodes).steps_per_second / nodes
    lost = nodes[np.argmax(rate < 0.9 * np.maximum.accumulate(rate))]
    assert (knee.value, knee.identified) == (pytest.approx(lost, rel=0.3), False)
    assert np.median(slower.knee) < np.median(model.knee)
