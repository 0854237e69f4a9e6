"""Collectives: each is proven by a schedule that leaves the sum everywhere and takes as long as its formula says."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel import transport as qc
from tests.oracles.schedules import direct, execute, part, schedule

LINK = qc.Link(1e9, latency=20e-6, reduction_time=2e-10)
EXCHANGES = [qc.Ring(), qc.RecursiveDoubling(), qc.HalvingDoubling()]
#: All that can be asked for any number of nodes.
SUMMED = [*EXCHANGES, qc.DoubleBinaryTree(), qc.Hoplite(), *map(qc.ParameterServers, (1, 3))]


def integers(whole):
    return np.random.default_rng(0).integers(-(10**9), 10**9, size=(whole.workers, whole.result))


def is_summed(whole):
    """Whether integers are summed exactly, everywhere."""
    values = integers(whole)
    return bool((whole.combine(values) == values.sum(axis=0)).all())


def same_traffic(algorithm, nodes, whole):
    """Whether a schedule sends between any two nodes what the algorithm says."""
    said = [row for part in algorithm.traffic(nodes) for row in part]
    rows = [(t.source, t.destination, whole.share(t)) for t in whole.transfers]
    return np.allclose(by_pair(said, whole.nodes), by_pair(rows, whole.nodes), rtol=1e-7, atol=1e-12)


def by_pair(rows, nodes):
    """What travels between any two nodes."""
    sent = np.zeros((nodes, nodes))
    for source, destination, share in rows:
        sent[int(source), int(destination)] += share
    return sent


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 7, 8, 11, 16, 23])
@pytest.mark.parametrize("algorithm", SUMMED, ids=repr)
def test_schedule_sums_with_stated_traffic(algorithm, nodes):
    whole = schedule(algorithm, nodes, blocks=3)
    assert is_summed(whole)
    assert same_traffic(algorithm, nodes, whole)
    if whole.transfers:  # the control: without one transfer the sum is not there
        without = [[t for t in r if t is not whole.transfers[-1]] for r in whole.rounds]
        assert not is_summed(whole._replace(rounds=without))
    else:
        assert nodes == 1
        assert algorithm.time(1e8, 1, LINK) == 0


def test_nccl_tree_latency_ring_bytes():
    law, ring = qc.NCCL(), qc.Ring()
    assert [law.time(0.0, n, LINK) / LINK.latency for n in (1, 2, 8, 64)] == pytest.approx([0, 3, 7, 13])
    without = qc.Link(1e9, reduction_time=2e-10)
    for n in (1, 2, 5, 64):
        assert law.time(1e8, n, without) == pytest.approx(ring.time(1e8, n, without))
        np.testing.assert_allclose(np.array(law.traffic(n)), np.array(ring.traffic(n)))


sizes = st.floats(1.0, 1e9)
links = st.builds(qc.Link, st.floats(1e6, 1e11), latency=st.floats(0, 1e-3), reduction_time=st.floats(0, 1e-9))


@given(st.sampled_from([*EXCHANGES, *map(qc.ParameterServers, (1, 2, 4))]), st.integers(1, 13), sizes, links)
def test_formulas_of_exchanges_and_servers(algorithm, nodes, size, link):
    taken, said = execute(schedule(algorithm, nodes), size, link), algorithm.time(size, nodes, link)
    assert taken == pytest.approx(said, rel=1e-6)
    assert nodes == 1 or taken != pytest.approx(1.02 * said, rel=1e-6, abs=0)


HALVED = [qc.Ring(), qc.HalvingDoubling()]


@given(st.sampled_from(HALVED), st.integers(1, 13), sizes, links)
def test_halves_take_what_their_formula_says(algorithm, nodes, size, link):
    """And both together what the all-reduce takes, but for the piece that neighbours exchange."""
    said, parts = {}, [part(kind, algorithm, nodes) for kind in ("reduce-scatter", "all-gather")]
    for kind, half in zip(("reduce-scatter", "all-gather"), parts, strict=True):
        said[kind] = algorithm.time(size, nodes, link, kind=kind)
        assert execute(half, size, link) == pytest.approx(said[kind], rel=1e-6)
    if nodes & (nodes - 1) == 0 or isinstance(algorithm, qc.Ring):
        assert sum(said.values()) == pytest.approx(algorithm.time(size, nodes, link))
    scatter, gather = parts  # each node has the sums of its share, and then all
    held, summed = scatter.combine(values := integers(scatter)), values.sum(axis=0)
    owners = held == summed
    assert owners.any(axis=0).all()
    assert (np.array(scatter.sizes) @ owners.T > 0).all()
    assert (gather.combine(held) == summed).all()


def test_node_gathers_cross_once():
    """(N-1)/N V/B between nodes, whatever the ranks on each; NCCL gathers by rings; an all-to-all is direct."""
    inside = qc.Link(1e12)
    for n in (2, 3, 8):  # n - 1 rounds, in each the n-th part of the data to a node further away
        each = LINK.latency + 1e8 / n / LINK.bandwidth
        assert qc.Ring().time(1e8, n, LINK, kind="all-to-all") == pytest.approx((n - 1) * each)
    for N, g in ((2, 8), (4, 4), (8, 2)):
        placed = qc.Hierarchical(g, inside).time(1e9, N * g, LINK, kind="all-gather")
        within = qc.Ring().time(1e9, g, inside, kind="all-gather")
        assert placed - within == pytest.approx((N - 1) / N * 1e9 / LINK.bandwidth + (N - 1) * LINK.latency)
        racks = qc.InRacks(qc.Hierarchical(g, inside), 1000)
        assert racks.time(1e9, N * g, LINK, kind="all-gather") == pytest.approx(placed)
    assert qc.NCCL().time(1e9, 8, LINK, kind="all-gather") == qc.Ring().time(1e9, 8, LINK, kind="all-gather")


@given(st.sampled_from(EXCHANGES), st.integers(1, 5), st.integers(1, 4), links, links)
def test_hierarchies_take_what_their_formula_says(between, nodes, per_node, inside, link):
    """A ring inside a node, then the algorithm with a share of the data and of the node's card."""
    ranks = nodes * per_node
    for cards in range(1, per_node + 1):
        share = qc.Link(link.bandwidth * cards / per_node, latency=link.latency, reduction_time=link.reduction_time)
        parts = (schedule(qc.Ring(), per_node), 1e7, inside), (schedule(between, nodes), 1e7 / per_node, share)
        placed = qc.Hierarchical(per_node, inside, between, cards=cards)
        said = placed.time(1e7, ranks, link)
        assert said == pytest.approx(sum(execute(*part) for part in parts), rel=1e-6)
        if nodes > 1 < per_node:  # a node that is not full
            assert placed.time(1e7, ranks - 1, link) == pytest.approx(said)


@pytest.mark.parametrize("nodes", [2, 3, 4, 6, 8, 13, 32])
def test_double_tree_formula(nodes):
    link, slow, V, tree = qc.Link(1e9, latency=1e-6), qc.Link(1e9, latency=1e-4), 1e8, qc.DoubleBinaryTree
    taken, plain = execute(schedule(tree(24), nodes), V, link), tree(24).time(V, nodes, link)
    assert taken >= 2 * (nodes - 1) / nodes * V / link.bandwidth
    assert 0.96 < taken / plain < 1.05
    adding = qc.Link(1e9, latency=1e-6, reduction_time=5e-11)
    assert tree(24).time(V, nodes, adding) == pytest.approx(plain + V * 5e-11)
    assert tree().time(V, nodes, qc.Link(1e9)) == pytest.approx(min(nodes / 2, 2) * V / 1e9)
    best = min(tree(k).time(V, nodes, slow) for k in range(1, 400))
    assert tree().time(V, nodes, slow) == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize(("topology", "steps"), [
    (qc.mesh(2, 2), 2), (qc.ring(8), 4), (qc.ring(16), 8), (qc.torus(4, 4), 5), (qc.mesh(4, 4), 8),
    (qc.torus(8, 8), 17), (qc.mesh(8, 8), 32), (qc.complete(8), 1), (qc.mesh(2, 3), None), (qc.ring(5), None),
    (qc.torus(3, 3), None),
], ids=lambda value: getattr(value, "name", value))  # fmt: skip
def test_multitree_in_published_steps(topology, steps):
    algorithm, n, link = qc.MultiTree(topology), topology.nodes, qc.Link(1e9, latency=1e-6)
    assert steps is None or algorithm.steps == steps
    assert algorithm.steps >= math.ceil(n * (n - 1) / len(topology.links))
    for step in range(1, algorithm.steps + 1):
        used = [(parent, child) for when, _, parent, child in algorithm.joins if when == step]
        assert len(used) == len(set(used))  # each link once in a step
        assert set(used) <= set(topology.links)
    if n > 16:
        return
    whole = schedule(algorithm, n)
    assert is_summed(whole)
    taken = execute(whole, 1e8, link, direct(whole))
    assert taken <= algorithm.time(1e8, n, link) * (1 + 1e-9)
    assert taken >= 2 * (n - 1) / n * 1e8 / (1e9 * max(np.bincount([a for a, _ in topology.links])))
    added = algorithm.time(1e8, n, qc.Link(1e9, latency=1e-6, reduction_time=1e-10)) - algorithm.time(1e8, n, link)
    assert added == pytest.approx((n - 1) / n * 1e8 * 1e-10)
    assert same_traffic(algorithm, n, whole)


def test_hoplite_chooses_the_published_depths():
    link, counts = qc.Link(9.68 * 2**30 / 8, latency=750e-6), (3, 7, 15, 31, 63)
    for size, depths in ((1, [2, 3, 4, 5, 6]), (4, [0, 1, 2, 3, 4]), (32, [0, 0, 0, 0, 1]), (1024, [0] * 5)):
        assert [qc.Hoplite().depth(size * 2**20, objects, link) for objects in counts] == depths


@pytest.mark.parametrize(("nodes", "cap", "depth"), [(4, 100, 0), (9, 100, 0), (7, 3, 1), (15, 3, 2), (16, 2, 3)])
def test_hoplite_formula_for_small_blocks(nodes, cap, depth):
    algorithm, size, blocks = qc.Hoplite(), 1e8, 64
    link = qc.Link(1e9, latency=size / 1e9 / cap)
    assert algorithm.depth(size, nodes - 1, link) == depth
    assert is_summed(schedule(algorithm, nodes, depth=depth, blocks=3))
    whole = schedule(algorithm, nodes, depth=depth, blocks=blocks)
    reduce_only = whole._replace(rounds=[up for one in whole.rounds if (up := [t for t in one if t.reduce])])
    taken = execute(reduce_only, size, qc.Link(1e9))
    transit = algorithm.reduce_time(size, nodes, qc.Link(1e9)) * (2 if depth else 1)  # without latency it is one chain
    hops = (algorithm.reduce_time(size, nodes, link) - transit) / link.latency
    assert transit * (1 - 1e-9) <= taken <= transit * (1 + hops / blocks)
    assert hops == pytest.approx(len(reduce_only.rounds))
    down = algorithm.broadcast_time(size, nodes, link)
    assert down == pytest.approx(math.ceil(math.log2(nodes)) * link.latency + size / 1e9)
    assert algorithm.time(size, nodes, link) == pytest.approx(algorithm.reduce_time(size, nodes, link) + down)


@given(st.integers(2, 40), st.integers(0, 40))
def test_split_servers_balance_links(nodes, extra):
    algorithm, n, k = qc.SplitServers(extra), nodes, extra
    rows = algorithm.traffic(n)[0]
    sent = np.bincount(rows[:, 0].astype(int), rows[:, 2], minlength=n + k)
    assert algorithm.time(1.0, n, qc.Link(1.0)) == pytest.approx(sent.max())
    assert sent[:n] == pytest.approx(sent[0])
    if 0 < k <= n:
        assert sent == pytest.approx(sent[0])
    added = algorithm.time(1.0, n, qc.Link(1.0, reduction_time=1.0)) - algorithm.time(1.0, n, qc.Link(1.0))
    into = np.bincount(rows[: len(rows) // 2, 1].astype(int), rows[: len(rows) // 2, 2])
    assert added == pytest.approx(into.max())  # who pushes is added by who serves
    pushed = np.bincount(rows[: len(rows) // 2, 0].astype(int), rows[: len(rows) // 2, 2])
    assert pushed == pytest.approx(np.full(n, 1 - (1 - algorithm.extra_share(n)) / n))  # the rest stays beside it
    assert algorithm.time(1.0, n, qc.Link(1.0, latency=0.5)) == pytest.approx(sent.max() + 1.0)
    fetched = rows[len(rows) // 2 :, [1, 0, 2]]  # the same way back
    np.testing.assert_array_equal(fetched, rows[: len(rows) // 2])
    assert qc.SplitServers(4).time(1.0, 8, qc.Link(1.0)) == pytest.approx(1.273, abs=5e-4)  # published
    assert qc.SplitServers().time(1.0, n, qc.Link(1.0)) == pytest.approx(qc.Ring().time(1.0, n, qc.Link(1.0)))
    for more in (4, 8, 16):  # four workers push everything out of their rack, whose link carries two of them
        assert qc.InRacks(qc.SplitServers(more), 4, 2.0).slowdown(4) == pytest.approx(2.0)


def test_racks_inside_or_outside_nodes():
    inside, V = qc.Link(1e11), 1e8
    placed, between = qc.Hierarchical(4, inside), qc.Ring().time(V, 8, qc.Link(1e9))
    for core in (
        qc.Hierarchical(4, inside, qc.InRacks(qc.Ring(), 4, 8.0)), qc.InRacks(qc.Hierarchical(4, inside), 4, 8.0),
    ):  # fmt: skip
        assert core.time(V, 32, qc.Link(1e9)) == pytest.approx(placed.time(V, 32, qc.Link(1e9)) + between)
        assert core.ranks_per_node == 4
    for ranks in (16, 32):  # on four nodes, which are one rack, and on eight
        halving = qc.InRacks(qc.Hierarchical(4, inside, qc.HalvingDoubling()), 4, 8.0).slowdown(ranks)
        assert halving == qc.InRacks(qc.HalvingDoubling(), 4, 8.0).slowdown(ranks // 4)
        assert (halving > 1.0) == (ranks == 32)
    servers = qc.InRacks(qc.Hierarchical(2, inside, qc.ParameterServers(3)), 4)
    assert (servers.servers, servers.ranks_per_node, qc.InRacks(qc.Ring(), 4).servers) == (3, 2, 0)


@pytest.mark.parametrize(("make", "match"), [
    (lambda: qc.Link(0.0), "bandwidth"), (lambda: qc.Link(1e9, latency=-1e-6), "latency"),
    (lambda: qc.Link(1e9, reduction_time=math.nan), "reduction_time"), (lambda: qc.ParameterServers(0), "servers"),
    (lambda: qc.SplitServers(-1), "extra"), (lambda: qc.Hierarchical(0, LINK), "ranks_per_node must be"),
    (lambda: qc.Hierarchical(2, LINK, cards=3), "cards"), (lambda: qc.InRacks(qc.Ring(), 0), "nodes_per_rack must be"),
    (lambda: qc.InRacks(qc.Ring(), 4, -1.0), "oversubscription must be"),
    (lambda: qc.InRacks(qc.MultiTree(qc.ring(4)), 4), "MultiTree already specifies the links"),
    (lambda: qc.InRacks(qc.InRacks(qc.Ring(), 4), 4), "InRacks already specifies"),
    (lambda: qc.MultiTree(qc.torus(4, 4)).time(1e8, 8, LINK), "16 nodes, not 8"),
    (lambda: qc.RecursiveDoubling().time(1e8, 8, LINK, kind="all-gather"), "has no all-gather, only all-reduce"),
    (lambda: qc.HalvingDoubling().time(1e8, 8, LINK, kind="all-to-all"), "has no all-to-all, only all-reduce, reduce"),
    (lambda: qc.DoubleBinaryTree(0), "blocks"), (lambda: qc.torus(0, 3), "rows"),
    (lambda: qc.MultiTree(qc.Topology(4, ((0, 1), (1, 0), (2, 3), (3, 2)))), "cannot reach"),
])  # fmt: skip
def test_impossible_collectives_are_refused(make, match):
    with pytest.raises(qm.ModelError, match=match):
        make()
