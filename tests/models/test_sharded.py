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
from queuemodel.models.rounds.times import NodeLink
from queuemodel.models.sharded import RankPlacement, TimedTask, round_times
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
            waiting = [i for i in stream if (i, rank) not in ends]
            if not waiting or any(i == waiting[0] and r == rank for _, i, r in running):
                continue
            i = waiting[0]
            size = tasks[i].ranks or ranks
            members = range(rank // size * size, rank // size * size + size) if tasks[i].kind else [rank]
            ready = all(
                all((j, r) in ends for j in tasks[i].after) and all((j, r) in ends for j in stream[: stream.index(i)])
                for r in members
            )
            if ready:
                running += [(moment + seconds[i][r], i, r) for r in members]
    return np.array([[ends[i, r] for r in range(ranks)] for i in range(len(tasks))])


@st.composite
def graphs(draw):
    ranks, count = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 9))
    tasks, seconds = [], []
    for i in range(count):
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


def steps_of(units, *, sharded="all ranks", prefetch=2):
    """FSDP of equal units: gather, forward; gather again, backward, scatter; then the optimizer."""
    steps, computed = [], []

    def add(kind, after, size=UNIT):
        group = sharded if kind else ""
        steps.append(TimedTask(Task(group or "compute", tuple(after), kind, size, group)))
        return len(steps) - 1

    for _ in range(2 * units):
        gather = add("all-gather", computed[-prefetch:][:1] if len(computed) >= prefetch else [])
        backward = len(computed) >= units
        computed.append(add("", [gather]))
        if backward:
            add("reduce-scatter", [computed[-1]])
    add("", [len(steps) - 1])
    return steps


def profile_of(ranks, *, units=4, bandwidth=BANDWIDTH, compute=0.05, rounds=8, cv=0.0, recorded=None, seed=0, **law):
    """Recorded rounds of so many ranks, made by the graph itself."""
    steps, rng = steps_of(units, **law), np.random.default_rng(seed)
    tasks = [one.task for one in steps]
    ring, link = qc.Ring(), qc.Link(bandwidth * carried(ranks))
    found = []
    for number in range(rounds):
        seconds = [
            np.array([[ring.time(t.bytes, ranks, link, kind=t.kind)]]) if t.kind
            else compute * np.maximum(1 + cv * rng.standard_normal((1, ranks)), 0.1)
            for t in tasks
        ]  # fmt: skip
        ends = [np.broadcast_to(one, (1, ranks))[0] for one in end_times(tasks, seconds, [np.zeros(1)] * len(tasks))]
        for rank in range(ranks) if recorded is None else recorded:
            took = [float(np.broadcast_to(s, (1, ranks))[0, rank]) for s in seconds]
            operations = [
                Operation(t.kind or "compute", f"{i}", max(0.0, float(end[rank]) - s), float(end[rank]),
                          bytes=int(t.bytes) if t.kind else 0, after=list(t.after), group=t.group)
                for i, (t, end, s) in enumerate(zip(tasks, ends, took, strict=True))
            ]  # fmt: skip
            found.append(
                Round(rank=rank, ranks=ranks, number=number, round_time=float(ends[-1][rank]),
                      computed=sum(s for s, t in zip(took, tasks, strict=True) if not t.kind),
                      operations=operations, groups={"all ranks": ranks})
            )  # fmt: skip
    return Profile(
        source=Source(framework="pytorch", style="gloo"), cluster=Cluster(workers=ranks),
        job=Job(batch_size=8, parameter_bytes=units * UNIT, tensors=units), rounds=found,
    )  # fmt: skip


def test_fast_links_leave_computation():
    """A model without collectives is one without communication: nine equal computations of equal ranks."""
    model = fit(profile_of(2, bandwidth=1e11))
    curve = model.throughput([1, 2, 8], latency=0.0)
    assert curve.steps_per_second == pytest.approx(np.array([1, 2, 8]) / (9 * 0.05), rel=1e-3)


def test_slow_links_leave_collectives():
    """Eight gathers and four scatters follow each other; the first computation waits for one, the last for all."""
    model = fit(profile_of(2, compute=1e-4))
    for n in (2, 4, 16):
        time = n / model.throughput([n], latency=0.0).steps_per_second[0]
        assert time == pytest.approx(12 * (n - 1) / n * UNIT / BANDWIDTH / carried(n), rel=0.01)


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


def test_one_rank_computes():
    profile = profile_of(2, cv=0.1)
    own = [one.computed for one in profile.rounds]
    assert fit(profile).throughput([1]).steps_per_second[0] == pytest.approx(1 / np.mean(own), rel=0.01)


@given(st.floats(0.2, 5.0))
@settings(max_examples=10, deadline=None)
def test_units_of_time_do_not_matter(factor):
    model = fit(profile_of(2, cv=0.05))
    link = model.fitted.link
    slower = model.throughput([2, 8], bandwidth=None, accelerator_speed=factor, latency=link.latency / factor)
    again = fit(profile_of(2, cv=0.05, compute=0.05 / factor, bandwidth=BANDWIDTH * factor))
    both = again.throughput([2, 8], latency=link.latency / factor)
    plain = model.throughput([2, 8], latency=link.latency)
    np.testing.assert_allclose(both.steps_per_second, factor * plain.steps_per_second, rtol=0.01)
    assert (slower.steps_per_second <= both.steps_per_second * 1.01).all() or factor < 1


def test_node_copies_reduce_among_nodes():
    """Sixteen ranks on nodes of eight: as many bytes between them as an all-reduce of a node's shares."""
    model = fit(profile_of(2, compute=1e-4))
    changed = {"ranks_per_node": 8, "inside_bandwidth": 1e12, "latency": 0.0}
    shared = model.throughput([8, 16], shard_group=8, **changed)
    assert shared.steps_per_second[0] == pytest.approx(8 / (9e-4), rel=0.05)  # within a node
    reduced = 4 * 2 * (1 / 2) * UNIT / BANDWIDTH  # two nodes, eight rings of an eighth
    assert shared.steps_per_second[1] == pytest.approx(16 / reduced, rel=0.02)
    gathered = model.throughput([16], **changed)
    assert gathered.steps_per_second[0] == pytest.approx(16 / (12 * (1 / 2) * UNIT / BANDWIDTH), rel=0.02)


def test_one_copy_is_fsdp():
    model = fit(profile_of(2, cv=0.05))
    for group in (0, 64):
        same = model.throughput([4, 16], shard_group=group).steps_per_second
        np.testing.assert_allclose(same, model.throughput([4, 16]).steps_per_second, rtol=0.02)


def test_one_rank_widens_the_interval():
    whole, alone = (fit(profile_of(2, cv=0.03, recorded=which)) for which in (None, [0]))
    all_ranks, one = whole.throughput([8]), alone.throughput([8])
    assert one.steps_per_second[0] == pytest.approx(all_ranks.steps_per_second[0], rel=0.03)
    assert one.upper[0] / one.lower[0] > all_ranks.upper[0] / all_ranks.lower[0]
    assert "1 of 2 ranks recorded" in alone.note


def test_a_slow_rank_stays_slow():
    profile = profile_of(2, cv=0.01)
    slow = [
        msgspec.structs.replace(r, round_time=1.5 * r.round_time, computed=r.computed * (1 + r.rank))
        for r in profile.rounds
    ]
    fitted = fit_shards(Profile(source=profile.source, job=profile.job, cluster=profile.cluster, rounds=slow))
    assert fitted.relative_compute_times == pytest.approx((1.0, 2.0), rel=0.02)


def test_many_ranks_meet_in_groups():
    """Groups of two wait for their slower rank only."""
    steps = [
        TimedTask(Task("compute")),
        TimedTask(Task("inside a node", (0,), "all-gather", 1.0, "inside a node")),
        TimedTask(Task("compute", (1,))),
    ]
    computed = np.array([[[1.0, 5.0], [2.0, 1.0], [4.0, 1.0], [3.0, 1.0]]])
    both = round_times(steps, computed, RankPlacement(4, 2, 2), NodeLink(1.0, 0.0))
    assert both == pytest.approx([max(2.0 + 5.0, 4.0 + 1.0)])
    assert round_times(steps, computed, RankPlacement(4), NodeLink(1e12, 0.0)) == pytest.approx([4.0 + 5.0])


@pytest.mark.parametrize(("changes", "said"), [
    ({"ranks_per_node": 4}, "gpus_per_node needs inside_bandwidth"),
    ({"scheme": "ddp"}, "scheme is not a change of sharded"),
    ({"collective": "parameter-servers"}, "ParameterServers has no"),
    ({"parameter_servers": 2}, "not to 'fsdp'"), ({"strategy": "async-ps"}, "is not how its rounds were recorded"),
    ({"strategy": "zero-1"}, "needs recorded rounds"), ({"method": "trace"}, "method 'trace'"),
])  # fmt: skip
def test_unanswerable_questions_are_one_line(changes, said):
    with pytest.raises(qm.ModelError, match=said):
        predict(profile_of(2), **changes)


def test_kept_parameters_are_gathered_once():
    model = fit(profile_of(2)).what_if(reshard=False)
    kinds = [one.task.kind for one in model.steps]
    assert (kinds.count("all-gather"), kinds.count("reduce-scatter")) == (4, 4)
    with pytest.raises(qm.ModelError, match="compare: rounds of strategy 'fsdp' are not compared"):
        compare(profile_of(2), workers=2)
    with pytest.raises(qm.ModelError, match="shard_group applies to strategy fsdp"):
        qm.predict(qm.example_profile("ddp-alexnet-40"), shard_group=2)


@pytest.mark.parametrize("k", [2, 4])
def test_accumulated_steps_gather_and_reduce_once(k):
    """Where the network is busy: eight gathers of each step, and four reductions of the last."""
    model = fit(profile_of(2, compute=1e-4))
    curve = model.throughput([2, 4], accumulation=k, latency=0.0)
    for n, rate in zip((2, 4), curve.steps_per_second, strict=True):
        assert k * n / rate == pytest.approx((8 * k + 4) * (n - 1) / n * UNIT / BANDWIDTH / carried(n), rel=0.02)
    kinds = [one.task.kind for one in model.what_if(accumulation=k).steps]
    assert [kinds.count(kind) for kind in ("", "all-gather", "reduce-scatter")] == [8 * k + 1, 8 * k, 4]


def test_accumulated_computation_is_as_many_steps():
    """Where the network is not: each step computes anew, the optimizer once."""
    model = fit(profile_of(2, bandwidth=1e11))
    rate = model.throughput([4], accumulation=3, latency=0.0).steps_per_second[0]
    assert 3 * 4 / rate == pytest.approx((3 * 8 + 1) * 0.05, rel=0.01)


def test_half_precision_doubles_the_bandwidth():
    model = fit(profile_of(2, cv=0.05)).what_if(latency=0.0)
    half = model.throughput([2, 8], gradient_precision="half").steps_per_second
    link = model.fitted.link
    fitted = dataclasses.replace(model.fitted, link=link._replace(bandwidth=2 * link.bandwidth))
    twice = dataclasses.replace(model, fitted=fitted).throughput([2, 8]).steps_per_second
    np.testing.assert_allclose(half, twice)


def test_a_slow_rank_is_waited_for():
    model = fit(profile_of(2, bandwidth=1e11))
    speeds = (1.0, 0.5, *[1.0] * 6)
    rates = model.throughput([1, 2, 8], worker_speeds=speeds, latency=0.0).steps_per_second
    assert rates == pytest.approx(np.array([1, 2 / 2, 8 / 2]) / (9 * 0.05), rel=0.02)
    with pytest.raises(qm.ModelError, match="workers must be at most 8, the number of worker_speeds"):
        model.throughput([9], worker_speeds=speeds)


@pytest.mark.parametrize("changes", [{}, {"accumulation": 2}, {"reshard": False}, {"worker_speeds": [1, 0.5, 1, 1, 1]}])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_simulated_rounds_are_the_curve(ranks, changes):
    """On average; of each rank computations follow each other, and collectives those that they share a link with."""
    profile = qm.example_profile("fsdp-gpt8-60")
    run = qm.simulate(profile, workers=ranks, steps=200, seed=1, **changes)
    assert run.throughput == pytest.approx(predict(profile, workers=[ranks], **changes).steps_per_second[0], rel=0.01)
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
    run = qm.simulate(qm.example_profile("fsdp-gpt8-60"), workers=4, steps=5)
    for one in (run.round(), qm.example_profile("fsdp-gpt8-60").rounds[-1]):
        axes = plot_round(one)
        assert [label.get_text() for label in axes.get_yticklabels()] == ["computation", "all-gather", "reduce-scatter"]
        busy, _, sent = (container.patches for container in axes.containers)
        assert len(sent) == sum(o.kind != "compute" for o in qm.example_profile("fsdp-gpt8-60").rounds[-1].operations)
        assert sum(bar.get_width() for bar in busy) <= one.round_time


def test_knee_is_a_tenth_lost():
    model = fit(qm.example_profile("fsdp-gpt8-60")).what_if(bandwidth="1Gbit/s")
    knee = next(one for one in model.parameters if one.name == "knee")
    nodes = np.arange(1, 200)
    rate = model.throughput(nodes).steps_per_second / nodes
    lost = nodes[np.argmax(rate < 0.9 * np.maximum.accumulate(rate))]
    assert knee.value == pytest.approx(lost, rel=0.3)
    assert not knee.identified
    slower = fit(qm.example_profile("fsdp-gpt8-60"))
    assert np.median(slower.knee) < np.median(model.knee)


def test_poor_replays_are_noted():
    model = fit(profile_of(2))
    poor = dataclasses.replace(model, fitted=dataclasses.replace(model.fitted, missed=-0.08))
    assert "recorded rounds replay only within 8 %" in poor.notes()
    assert not any("replay" in note for note in model.notes())
