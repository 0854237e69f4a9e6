"""Collectives: every schedule leaves the sum everywhere, and takes as long as its formula says."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel.collectives import (
    DoubleBinaryTree,
    HalvingDoubling,
    Hierarchical,
    Hoplite,
    InRacks,
    Link,
    MultiTree,
    ParameterServers,
    RecursiveDoubling,
    Ring,
    Schedule,
    SplitServers,
    Transfer,
    complete,
    execute,
    fat_tree,
    full_bisection,
    mesh,
    ring,
    torus,
)
from queuemodel.collectives.execution import max_min_rates
from queuemodel.collectives.trees import two_trees

#: All that can be asked for any number of nodes.
ANY = [
    Ring(),
    RecursiveDoubling(),
    HalvingDoubling(),
    DoubleBinaryTree(),
    Hoplite(),
    ParameterServers(),
    ParameterServers(3),
    SplitServers(),
    SplitServers(1, blocks=3),
    SplitServers(2, blocks=3),
    SplitServers(7, blocks=3),
]
LINK = Link(1e9, latency=20e-6, reduction_time=2e-10)


def is_summed(schedule: Schedule) -> bool:
    """Whether integers are summed exactly, everywhere."""
    values = np.random.default_rng(0).integers(-(10**9), 10**9, size=(schedule.workers, schedule.result))
    return bool((schedule.combine(values) == values.sum(axis=0)).all())


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 23])
@pytest.mark.parametrize("algorithm", ANY, ids=repr)
def test_every_schedule_leaves_the_sum_everywhere(algorithm, nodes):
    assert is_summed(algorithm.schedule(nodes))


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("nodes", [2, 5, 12])
def test_trees_with_chains_leave_the_sum_everywhere(nodes, depth):
    assert is_summed(Hoplite().schedule(nodes, depth=depth, blocks=3))


@pytest.mark.parametrize(("nodes", "per_node"), [(1, 4), (3, 4), (4, 2), (12, 4), (11, 3), (5, 1)])
@pytest.mark.parametrize("algorithm", ANY, ids=repr)
def test_hierarchies_leave_the_sum_everywhere(algorithm, nodes, per_node):
    whole = Hierarchical(per_node, LINK, algorithm).schedule(nodes)
    assert is_summed(whole)
    assert whole.workers == min(per_node, nodes) * math.ceil(nodes / per_node)


@pytest.mark.parametrize("algorithm", [*ANY, MultiTree(ring(4))], ids=repr)
def test_one_node_has_the_sum_already(algorithm):
    assert algorithm.time(1e8, 1, LINK) == 0
    assert not algorithm.schedule(1).transfers


@pytest.mark.parametrize("nodes", [2, 3, 4, 7, 8, 32])
@pytest.mark.parametrize("algorithm", [*ANY, Hierarchical(4, LINK)], ids=repr)
def test_nothing_is_reduced_faster_than_its_bytes_and_messages_travel(algorithm, nodes):
    """Each node sends and receives 2 (n-1)/n V, V where servers add; one message at least goes to and fro."""
    n, per_node = nodes, getattr(algorithm, "ranks_per_node", 1)
    machines = math.ceil(n / per_node)
    least = 1.0 if getattr(algorithm, "servers", 0) else 2 * (machines - 1) / machines
    sizes = np.geomspace(1.0, 1e9, 50)
    taken = algorithm.time(sizes, n, Link(1e9, latency=20e-6))
    assert np.isfinite(taken).all()
    assert np.all(taken >= least * sizes / 1e9 + (20e-6 if n > 1 else 0))
    assert np.all(np.diff(algorithm.time(sizes, n, Link(1e9))) > 0)
    if not isinstance(algorithm, Hoplite):  # its rule changes from a tree to a chain later than would be best
        assert np.all(np.diff(taken) > 0)


@pytest.mark.parametrize("algorithm", ANY, ids=repr)
def test_a_schedule_without_one_transfer_is_noticed(algorithm):
    whole = algorithm.schedule(6)
    for drop in range(0, len(whole.transfers), max(1, len(whole.transfers) // 20)):
        left = iter(range(len(whole.transfers)))
        rounds = tuple(tuple(t for t in one if next(left) != drop) for one in whole.rounds)
        broken = Schedule(whole.nodes, whole.workers, whole.sizes, rounds, whole.result)
        assert not is_summed(broken)


sizes = st.floats(1.0, 1e9)
links = st.builds(Link, st.floats(1e6, 1e11), latency=st.floats(0, 1e-3), reduction_time=st.floats(0, 1e-9))


@given(st.sampled_from([Ring(), RecursiveDoubling(), HalvingDoubling()]), st.integers(1, 13), sizes, links)
def test_exchanges_take_what_their_formula_says(algorithm, nodes, size, link):
    taken = execute(algorithm.schedule(nodes), size, link, full_bisection(nodes))
    assert taken == pytest.approx(algorithm.time(size, nodes, link), rel=1e-6)
    if nodes > 1:
        assert taken != pytest.approx(1.02 * algorithm.time(size, nodes, link), rel=1e-6, abs=0)


@given(st.integers(1, 4), st.integers(1, 9), sizes, links)
def test_parameter_servers_take_what_their_formula_says(servers, nodes, size, link):
    algorithm = ParameterServers(servers)
    taken = execute(algorithm.schedule(nodes), size, link, full_bisection(nodes + servers))
    bound = algorithm.time(size, nodes, link)
    assert taken == pytest.approx(bound, rel=1e-6)


@given(st.sampled_from([Ring(), RecursiveDoubling(), HalvingDoubling()]), st.integers(1, 5), st.integers(1, 4), links)
def test_hierarchies_take_what_their_formula_says(between, nodes, per_node, link):
    """On a node whose ranks have a card each, as the schedule's links have it."""
    algorithm, ranks = Hierarchical(per_node, link, between, cards=per_node), nodes * per_node
    taken = execute(algorithm.schedule(ranks), 1e7, link, full_bisection(ranks))
    assert taken == pytest.approx(algorithm.time(1e7, ranks, link), rel=1e-6)


def test_rings_of_a_hierarchy_share_the_nodes_card():
    local, link = Link(1e12), Link(1e9)
    one, four = (Hierarchical(4, local, cards=cards).time(1e8, 32, link) for cards in (1, 4))
    inside = Ring().time(1e8, 4, local)
    assert one - inside == pytest.approx(4 * (four - inside))
    assert one - inside == pytest.approx(Ring().time(1e8, 8, link))  # all rings' bytes through one card


@pytest.mark.parametrize("nodes", [2, 3, 4, 6, 8, 13, 32])
def test_a_pipelined_double_tree_takes_about_what_its_formula_says(nodes):
    link, V = Link(1e9, latency=1e-6), 1e8
    algorithm = DoubleBinaryTree(blocks=24)
    taken = execute(algorithm.schedule(nodes), V, link, full_bisection(nodes))
    assert taken >= 2 * (nodes - 1) / nodes * V / link.bandwidth
    assert 0.96 < taken / algorithm.time(V, nodes, link) < 1.05
    unlimited = DoubleBinaryTree().time(V, nodes, Link(1e9))
    assert unlimited == pytest.approx(min(nodes / 2, 2) * V / 1e9)


@pytest.mark.parametrize("nodes", range(1, 40))
def test_who_is_inside_one_tree_is_a_leaf_of_the_other(nodes):
    trees = two_trees(nodes)
    for parents in trees:
        assert parents.count(None) == 1
        children = [sum(parent == node for parent in parents) for node in range(nodes)]
        assert max(children) <= 2
    if nodes > 2:
        inside = [{parent for parent in parents if parent is not None} for parents in trees]
        assert not inside[0] & inside[1]


@pytest.mark.parametrize(
    ("topology", "steps"),
    [
        (mesh(2, 2), 2),
        (ring(8), 4),
        (ring(16), 8),
        (torus(4, 4), 5),
        (mesh(4, 4), 8),
        (torus(8, 8), 17),
        (mesh(8, 8), 32),
        (complete(8), 1),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_multitree_needs_the_published_steps(topology, steps):
    algorithm, n = MultiTree(topology), topology.nodes
    assert algorithm.steps == steps
    assert algorithm.steps >= math.ceil(n * (n - 1) / len(topology.links))
    for step in range(1, steps + 1):
        used = [(parent, child) for when, _, parent, child in algorithm.joins if when == step]
        assert len(used) == len(set(used))  # each link once in a step
        assert set(used) <= set(topology.links)


@pytest.mark.parametrize("topology", [mesh(2, 3), ring(5), torus(3, 3), complete(5)], ids=lambda t: t.name)
def test_multitree_sums_within_its_time(topology):
    algorithm, n = MultiTree(topology), topology.nodes
    assert is_summed(algorithm.schedule(n))
    link = Link(1e9, latency=1e-6)
    taken = execute(algorithm.schedule(n), 1e8, link, topology)
    assert taken <= algorithm.time(1e8, n, link) * (1 + 1e-9)
    assert taken >= 2 * (n - 1) / n * 1e8 / (1e9 * max(np.bincount([a for a, _ in topology.links])))


def test_multitree_beats_a_ring_where_there_are_more_links():
    link, topology = Link(1e9, latency=1e-6), torus(4, 4)
    assert MultiTree(topology).time(1e8, 16, link) < 0.5 * Ring().time(1e8, 16, link)
    with pytest.raises(qm.ModelError, match="16 nodes, not 8"):
        MultiTree(topology).time(1e8, 8, link)
    with pytest.raises(qm.ModelError, match="without a switch"):
        MultiTree(full_bisection(4))


@pytest.mark.parametrize(
    ("size", "depths"),
    [(4, [0, 1, 2, 3, 4]), (1, [2, 3, 4, 5, 6]), (32, [0, 0, 0, 0, 1]), (1024, [0, 0, 0, 0, 0])],
)
def test_hoplite_chooses_the_published_depths(size, depths):
    link = Link(9.68 * 2**30 / 8, latency=750e-6)
    assert [Hoplite().depth(size * 2**20, objects, link) for objects in (3, 7, 15, 31, 63)] == depths


@pytest.mark.parametrize(("nodes", "cap", "depth"), [(4, 100, 0), (9, 100, 0), (7, 3, 1), (15, 3, 2), (16, 2, 3)])
def test_hoplite_takes_what_its_formula_says_when_blocks_are_small(nodes, cap, depth):
    algorithm, size, blocks = Hoplite(), 1e8, 64
    link = Link(1e9, latency=size / 1e9 / cap)
    assert algorithm.depth(size, nodes - 1, link) == depth
    whole = algorithm.schedule(nodes, depth=depth, blocks=blocks)
    rounds = tuple(tuple(t for t in one if t.reduce) for one in whole.rounds)
    reduce_only = Schedule(nodes, nodes, whole.sizes, tuple(one for one in rounds if one))
    taken = execute(reduce_only, size, Link(1e9), full_bisection(nodes))
    transit = algorithm.reduce_time(size, nodes, Link(1e9)) * (2 if depth else 1)  # without latency it is one chain
    hops = (algorithm.reduce_time(size, nodes, link) - transit) / link.latency
    assert transit * (1 - 1e-9) <= taken <= transit * (1 + hops / blocks)
    assert hops == pytest.approx(len(reduce_only.rounds))


@given(st.integers(2, 40), st.integers(0, 40))
def test_bytes_are_split_so_that_all_links_are_equally_busy(nodes, extra):
    algorithm, link = SplitServers(extra), Link(1.0)
    n, k, x = nodes, extra, algorithm.extra_share(nodes)
    worker = 1 + (n - 2) * (1 - x) / n
    assert 0 <= x <= 1
    if 0 < k <= n:
        assert n * x / k == pytest.approx(worker)
    if k <= n:
        assert algorithm.time(1.0, n, link) == pytest.approx(2 * (n - 1) / n if k == 0 else worker)
    else:
        assert algorithm.time(1.0, n, link) == pytest.approx(1.0)


def test_published_splits():
    link = Link(1.0)
    assert SplitServers(4).time(1.0, 8, link) == pytest.approx(1.273, abs=5e-4)
    for n in (2, 5, 16):
        assert SplitServers(0).time(1.0, n, link) == pytest.approx(Ring().time(1.0, n, link))
        assert SplitServers(n).time(1.0, n, link) == pytest.approx(1.0)


@pytest.mark.parametrize(("nodes", "extra"), [(2, 1), (3, 0), (4, 2), (4, 4), (4, 7), (7, 4), (8, 3)])
def test_split_servers_tend_to_their_formula_as_blocks_get_smaller(nodes, extra):
    """As the formula's bytes, with links idle for the first half block and the last."""
    algorithm, link = SplitServers(extra, blocks=8), Link(1e9)
    taken = execute(algorithm.schedule(nodes), 1e8, link, full_bisection(nodes + extra))
    assert taken == pytest.approx(algorithm.time(1e8, nodes, link) * (1 + (extra > 0) / 16), rel=1e-6)


def test_an_oversubscribed_core_slows_a_ring_across_racks_only_where_it_is_narrow():
    link, V, n = Link(1e9), 1e8, 8
    schedule = Ring().schedule(n)
    times = [execute(schedule, V, link, fat_tree(n, nodes_per_rack=4, oversubscription=o)) for o in (1, 4, 8)]
    assert times[0] == pytest.approx(Ring().time(V, n, link))
    assert times[1] == pytest.approx(times[0])  # one of four nodes' flows leaves the rack
    assert times[2] == pytest.approx(2 * times[0])


def test_recursive_doubling_suffers_from_a_narrow_core():
    link, V, n = Link(1e9), 1e8, 8
    schedule = HalvingDoubling().schedule(n)
    wide, narrow = (execute(schedule, V, link, fat_tree(n, nodes_per_rack=4, oversubscription=o)) for o in (1, 4))
    assert narrow > 2 * wide


def test_shares_are_max_min_fair():
    """Bertsekas and Gallager's example: three flows over one link, one of them alone on a second."""
    rates = max_min_rates([(0,), (0,), (0, 1), (1,)], np.array([1.0, 1.0]))
    assert rates == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2 / 3])


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True), min_size=1, max_size=8))
def test_max_min_shares_fill_a_link_of_every_flow(routes):
    capacities = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 0.1])
    rates = max_min_rates([tuple(route) for route in routes], capacities)
    load = np.array([sum(rates[f] for f, route in enumerate(routes) if link in route) for link in range(6)])
    assert (load <= capacities * (1 + 1e-9)).all()
    for f, route in enumerate(routes):  # on some full link nobody has more
        limits = [link for link in route if load[link] >= capacities[link] * (1 - 1e-9)]
        assert any(
            rates[f] >= max(rates[g] for g, other in enumerate(routes) if link in other) - 1e-9 for link in limits
        )


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Link(0.0), "bandwidth"),
        (lambda: Link(1e9, latency=-1e-6), "latency"),
        (lambda: Link(1e9, reduction_time=math.nan), "reduction_time"),
        (lambda: ParameterServers(0), "servers"),
        (lambda: SplitServers(-1), "extra"),
        (lambda: Hierarchical(0, LINK), "ranks_per_node must be"),
        (lambda: InRacks(Ring(), 0), "nodes_per_rack must be"),
        (lambda: InRacks(Ring(), 4, -1.0), "oversubscription must be"),
        (lambda: InRacks(MultiTree(ring(4)), 4), "MultiTree says already how nodes are linked"),
        (lambda: DoubleBinaryTree(0), "blocks"),
        (lambda: Ring().schedule(0), "nodes"),
        (lambda: torus(0, 3), "rows"),
        (lambda: fat_tree(8, nodes_per_rack=4, oversubscription=0), "oversubscription"),
        (lambda: Schedule(2, 2, (0.5, 0.4), ()), "add up to 1"),
        (lambda: Schedule(2, 2, (1.0,), ((Transfer(0, 0, range(1), True),),)), "join two"),
        (lambda: Schedule(2, 2, (1.0,), ((Transfer(0, 1, range(1, 2), True),),)), "pieces"),
        (lambda: execute(Ring().schedule(3), 1.0, LINK, full_bisection(4)), "needs 3 nodes"),
    ],
)
def test_what_makes_no_sense_is_one_line(make, match):
    with pytest.raises(qm.ModelError, match=match) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("oversubscription", [1.0, 3.0, 16.0])
@pytest.mark.parametrize(("nodes", "per"), [(8, 4), (16, 4), (12, 4), (8, 8)])
@pytest.mark.parametrize("algorithm", [Ring(), RecursiveDoubling(), HalvingDoubling(), ParameterServers()], ids=repr)
def test_racks_slow_an_algorithm_down_as_its_schedule_does_on_a_fat_tree(algorithm, nodes, per, oversubscription):
    """Rings as exactly as without racks; others, whose messages meet otherwise on a narrow core, within 15 %."""
    schedule, link, V = algorithm.schedule(nodes), Link(1e9), 1e8
    racks = fat_tree(schedule.nodes, nodes_per_rack=per, oversubscription=oversubscription)
    taken = execute(schedule, V, link, racks)
    said = InRacks(algorithm, per, oversubscription).time(V, nodes, link)
    assert said == pytest.approx(taken, rel=1e-6 if isinstance(algorithm, Ring) else 0.15)
    if oversubscription > per and nodes > per:
        assert said > 1.5 * algorithm.time(V, nodes, link)  # the control
    if schedule.nodes <= per or oversubscription == 1:
        assert said == pytest.approx(algorithm.time(V, nodes, link))


@pytest.mark.parametrize("algorithm", [DoubleBinaryTree, SplitServers, lambda blocks: SplitServers(2, blocks)])
def test_blocks_do_not_change_what_travels_between_two_nodes(algorithm):
    loads = []
    for blocks in (1, 5):
        schedule = algorithm(blocks=blocks).schedule(11)
        loads.append(np.zeros((schedule.nodes, schedule.nodes)))
        for t in schedule.transfers:
            loads[-1][t.source, t.destination] += schedule.share(t)
    np.testing.assert_allclose(*loads, atol=1e-12)


@pytest.mark.parametrize("oversubscription", [3.0, 16.0])
@pytest.mark.parametrize(("nodes", "per"), [(16, 4), (12, 4), (8, 8)])
def test_racks_slow_pipelined_trees_down_by_the_bytes_on_their_links(nodes, per, oversubscription):
    """However many blocks they have; of those, the first and last cross with links idle."""
    schedule, link, V = DoubleBinaryTree(blocks=24).schedule(nodes), Link(1e9), 1e8
    racks = fat_tree(nodes, nodes_per_rack=per, oversubscription=oversubscription)
    longer = execute(schedule, V, link, racks) / execute(schedule, V, link, full_bisection(nodes))
    assert InRacks(DoubleBinaryTree(), per, oversubscription).slowdown(nodes) == pytest.approx(longer, rel=0.1)


def test_ranks_on_nodes_are_rings_inside_and_between():
    inside, link, V = Link(1e11), Link(1e9, latency=1e-5), 1e8
    placed = Hierarchical(4, inside)
    assert placed.time(V, 3, link) == pytest.approx(Ring().time(V, 3, inside))  # one node
    shared = Ring().time(V, 8, Link(1e9)) + 14 * 1e-5
    assert placed.time(V, 32, link) == pytest.approx(Ring().time(V, 4, inside) + shared)
    assert placed.time(V, 30, link) == pytest.approx(placed.time(V, 32, link))  # a node that is not full
    assert Hierarchical(1, inside).time(V, 8, link) == pytest.approx(Ring().time(V, 8, link))
    between = Ring().time(V, 8, Link(1e9))
    for core in (Hierarchical(4, inside, InRacks(Ring(), 4, 8.0)), InRacks(Hierarchical(4, inside), 4, 8.0)):
        assert core.time(V, 32, Link(1e9)) == pytest.approx(placed.time(V, 32, Link(1e9)) + between)


def test_extra_servers_in_one_rack_with_all_their_workers_elsewhere():
    """Four workers push everything out of their rack, whose link carries two of them."""
    for extra in (4, 8, 16):
        assert InRacks(SplitServers(extra), 4, 2.0).slowdown(4) == pytest.approx(2.0)
