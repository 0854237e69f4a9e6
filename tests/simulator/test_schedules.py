"""Schedules that can be worked out on paper, and queueing theory where its assumptions are met."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuemodel.profile import Operation
from queuemodel.simulator import LinkRate, LinkRates, simulate_operations
from tests.oracles.by_hand import IDEAL, LINKS, RATE, graphs, profile_of, serial, two_layers


def rate(profile, workers=1, **settings):
    return simulate_operations(profile, workers=workers, **{**IDEAL, **settings}).throughput


def ends(profile, **settings):
    """When each operation of one worker's first step ended, by name."""
    settings = {**IDEAL, "workers": 1, "steps": 1, "trace_steps": 1, "in_phase": True, **settings}
    run = simulate_operations(profile, **settings)
    operations = profile.steps[0].operations
    order = sorted(range(len(operations)), key=lambda i: (operations[i].kind != "fetch", operations[i].end, i))
    first = (run.log[:, 0] == 0) & (run.log[:, 1] == 0)
    rows = zip(run.log[first, 3].tolist(), run.log_times[first, 2].tolist(), strict=True)
    return {operations[order[i]].name: end for i, end in rows}


# Orders


@pytest.mark.parametrize(
    ("transfer_order", "step"), [("tensorflow", 2.7), ("in-order", 2.4), ("tac", 2.4), ("tic", 2.7), ("reverse", 2.7)]
)
def test_transfer_order_decides_the_start(transfer_order, step):
    # TIC looks at operations that need several parameters: one needs both here, a tie, so they go as they were recorded
    # in order: first at .2, second at 1.0; forward .5, 1.0 to 1.4; gradients 1.4 to 2.2, then the first's until 2.4
    assert rate(profile_of(two_layers()), transfer_order=transfer_order) == pytest.approx(1 / step)


def branches():
    """Three parameters as they were recorded: c, b, a; two operations need several, and b alone unlocks the longest."""
    sizes = {"c": 300_000, "b": 200_000, "a": 100_000}
    fetches = [Operation("fetch", name, 0.0, 0.6, size) for name, size in sizes.items()]
    computes = [("only a", 0.1, [2]), ("only b", 0.5, [1]), ("ab", 0.1, [1, 2]), ("all", 0.1, [0, 1, 2])]
    return [*fetches, *(Operation("compute", name, 0.6, 0.6 + took, after=after) for name, took, after in computes)]


@pytest.mark.parametrize(
    ("transfer_order", "order"), [("tic", "bac"), ("tac", "bac"), ("in-order", "abc"), ("reverse", "cba")]
)
def test_tic_and_tac_order_by_hand(transfer_order, order):
    # TIC: ab makes M+ of a and b two transfers, all makes that of c three; ties go as they were recorded
    # TAC: of two, the one whose own computation hides the other's transfer goes first: b hides a's .1 s
    found = ends(profile_of(branches()), transfer_order=transfer_order)
    assert "".join(sorted("abc", key=found.get)) == order


def test_tac_breaks_ties_by_time():
    """Under TAC: ab needs .3 s of transfers, all needs .6 s, and b was recorded before a."""
    found = ends(profile_of([*branches()[:3], *branches()[5:]]), transfer_order="tac")
    assert "".join(sorted("abc", key=found.get)) == "bac"


def test_tensor_held_behind_a_large_one():
    for small, step in ((0.801, 1.401), (0.001, 0.901)):
        operations = [
            Operation("fetch", "small", 0.0, small, 1_000),
            Operation("fetch", "large", 0.0, 0.8011, 800_000),
            Operation("compute", "one", small, small + 0.5, after=[0]),
            Operation("compute", "other", step - 0.1, step, after=[1, 2]),
        ]
        assert rate(profile_of(operations)) == pytest.approx(1 / step, rel=1e-3)


# From records to graphs


def test_processor_waits_are_repeated():
    operations = [
        Operation("fetch", "w", 0.0, 0.1, 100_000),
        Operation("compute", "one", 0.1, 0.6, after=[0]),
        Operation("compute", "other", 0.65, 1.05, after=[0]),  # ready at .1, the processor was free at .6
        Operation("compute", "beside", 0.3, 0.9, after=[0]),  # none had ended: it began .2 s later for its own reasons
    ]
    assert ends(profile_of(operations)) == pytest.approx({"w": 0.1, "one": 0.6, "other": 1.05, "beside": 0.9})
    half = ends(profile_of(operations), slowdown=[2.0])
    assert half == pytest.approx({"w": 0.1, "one": 1.1, "other": 1.95, "beside": 1.5})  # gaps are no computation


def test_idle_links_start_late():
    operations = [
        Operation("fetch", "a", 0.0, 0.1, 100_000),
        Operation("fetch", "b", 0.0, 0.2, 100_000),  # asked for together, so that it waits only once
        Operation("compute", "f", 0.2, 0.3, after=[0, 1]),
        Operation("push", "g", 0.3, 0.4, 100_000, after=[2]),
        Operation("push", "h", 0.35, 0.5, 100_000, after=[2]),  # its link was busy
        Operation("push", "i", 0.6, 0.7, 100_000, after=[4]),  # idle again
        Operation("fetch", "c", 0.7, 0.8, 100_000, after=[5]),
        Operation("push", "k", 0.7, 0.75, 50_000, after=[5]),  # its link had only just carried the one before
    ]
    late = LinkRates(LinkRate(RATE, start_time=0.02), LinkRate(RATE, start_time=0.01))
    expected = {"a": 0.12, "b": 0.22, "f": 0.32, "g": 0.43, "h": 0.53, "i": 0.74, "c": 0.86, "k": 0.79}
    assert ends(profile_of(operations), links=late) == pytest.approx(expected)
    early = LinkRates(LinkRate(RATE, start_time=-0.02), LinkRate(RATE))
    assert ends(profile_of(operations), links=early)["b"] == pytest.approx(0.2)


def test_unmatched_gradients_are_spread():
    fetches = [Operation("fetch", name, 0.0, 0.1, size) for name, size in (("a", 1_000), ("b", 2_000))]
    pushes = [Operation("push", f"g{i}", 0.2, 0.3, 300_000, after=[2]) for i in range(4)]
    updates = [Operation("update", f"u{i}", 0.3, 0.4, after=[2]) for i in range(2)]  # of nothing that was pushed
    profile = profile_of([*fetches, Operation("compute", "c", 0.1, 0.2, after=[0, 1]), *pushes, *updates])
    alone, two = (simulate_operations(profile, workers=1, parameter_servers=k, **IDEAL) for k in (1, 2))
    assert alone.utilization["receive[0]"] > 0.7
    for station in ("receive", "update"):
        assert two.utilization[f"{station}[0]"] == pytest.approx(two.utilization[f"{station}[1]"])


def test_equal_gradients_return_in_reverse():
    names = "abcd"  # used in turn, on servers 0, 1, 2 and 0
    operations = [Operation("fetch", name, 0.0, 0.1, 1_000) for name in names]
    for i in range(4):
        operations.append(Operation("compute", f"f{i}", 0.1, 0.2, after=[i, *([len(operations) - 1] if i else [])]))
    for seconds in (0.1, 0.2, 0.3, 0.4):  # updates of d, c, b and a
        operations.append(Operation("push", f"g{seconds}", 0.2, 0.3, 1_000, after=[7]))
        operations.append(Operation("update", f"u{seconds}", 0.3, 0.3 + seconds, after=[len(operations) - 1]))
    run = simulate_operations(profile_of(operations), workers=1, parameter_servers=3, in_phase=True, **IDEAL)
    busy = np.array([run.utilization[f"update[{k}]"] for k in range(3)])
    assert busy / busy.sum() == pytest.approx([0.5, 0.3, 0.2])


FREE = serial(fetch=0.0, push=0.0)


# Theory


def test_stragglers_have_their_rate():
    times = {"straggler_probability": 0.2, "straggler_slowdown": 3.0, "steps": 20_000}
    assert rate(profile_of(FREE), **times) == pytest.approx(1 / (0.5 * 1.4), rel=0.02)
    unequal = rate(profile_of(FREE), 2, slowdown=[1.0, 2.0], **times | {"steps": 10_000})
    assert unequal == pytest.approx(1.5 / (0.5 * 1.4), rel=0.02)


@pytest.mark.parametrize(
    ("steps", "settings"),
    [([serial(), serial(compute=0.7)], {}), ([two_layers()], {"transfer_order": "random"}),
     ([serial()], {"unfairness": 0.4}),
     ([serial()], {"straggler_probability": 0.2, "straggler_slowdown": 2.0}), ([serial()], {"in_phase": False})],
)  # fmt: skip
def test_draws_follow_the_seed(steps, settings):
    def times(seed):
        run = simulate_operations(profile_of(*steps), workers=3, seed=seed, **{"in_phase": True, **IDEAL, **settings})
        return run.times.tolist()

    assert times(5) == times(5) != times(6)


@given(
    operations=graphs(),
    workers=st.integers(1, 5),
    transfer_order=st.sampled_from(["tensorflow", "random", "multiplexed", "tic", "tac"]),
    told=st.sampled_from(["cubic", "reno", "bbr", "none"]),
    buffer=st.sampled_from([0.003, 0.03]),
    seed=st.integers(0, 100),
)
def test_links_never_exceed_their_rate(operations, workers, transfer_order, told, buffer, seed):
    profile = profile_of(operations, servers=2)
    network = (
        {"loaded_trip": 0.0, "unfairness": 0.4} if told == "none" else {"congestion_control": told, "buffer": buffer}
    )
    settings = {
        "transfer_order": transfer_order, "seed": seed, "steps": 12, "trace_steps": 12, "links": LINKS, **network,
    }  # fmt: skip
    run = simulate_operations(profile, workers=workers, **settings)
    assert all(share <= 1 + 1e-6 for name, share in run.utilization.items() if name != "compute")
    order = sorted(range(len(operations)), key=lambda i: (operations[i].kind != "fetch", operations[i].end, i))
    steps: dict[tuple[int, int], dict[int, np.ndarray]] = {}
    for (w, number, _, i), times in zip(run.log.tolist(), run.log_times, strict=True):
        steps.setdefault((w, number), {})[order[i]] = times
    for done in steps.values():
        for i, (ready, begin, end) in done.items():
            assert ready <= begin <= end
            assert end - begin >= operations[i].bytes / RATE * (1 - 1e-6)  # no transfer is faster than its link
            assert all(done[j][2] <= ready + 1e-9 for j in operations[i].after if j in done)
    sent = [(*times[1:], operations[i]) for done in steps.values() for i, times in done.items()]
    for kind in ("fetch", "push"):
        for server in (0, 1):
            own = [(b, e, o.bytes) for b, e, o in sent if o.kind == kind and o.server == server]
            if own:  # all bytes went through the link between the first's beginning and the last's end
                span = max(e for _, e, _ in own) - min(b for b, _, _ in own)
                assert sum(size for *_, size in own) <= RATE * span * (1 + 1e-6) + 1
