"""Schedules that can be worked out on paper, queueing theory, what links tell of themselves, and refusals."""

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel.models import trace_curve
from queuemodel.profile import Operation, Synchronization
from queuemodel.simulator import LinkRate, LinkRates, estimate_links, simulate_operations
from tests.oracles.by_hand import IDEAL, LINKS, RATE, jobs, profile_of, serial


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


#: Three parameters as they were recorded, and operations by what they need; b alone unlocks the longest.
SIZES = {"c": 300_000, "b": 200_000, "a": 100_000}
NEEDS = [("only a", 0.1, [2]), ("only b", 0.5, [1]), ("ab", 0.1, [1, 2]), ("all", 0.1, [0, 1, 2])]


@pytest.mark.parametrize(("transfer_order", "needs"), [("tic", NEEDS), ("tac", NEEDS), ("tac", NEEDS[2:])])
def test_tic_and_tac_order_by_hand(transfer_order, needs):
    """TIC: ab makes M+ of a and b two transfers, all makes that of c three; ties go as they were recorded.

    TAC: of two, the one whose own computation hides the other's transfer goes first: b hides a's 0.1 s; in a tie
    those that an operation lacks the least of: ab 0.3 s of transfers, all 0.6 s.
    """
    fetches = [Operation("fetch", name, 0.0, 0.6, size) for name, size in SIZES.items()]
    computes = [Operation("compute", name, 0.6, 0.6 + took, after=after) for name, took, after in needs]
    found = ends(profile_of([*fetches, *computes]), transfer_order=transfer_order)
    assert "".join(sorted("abc", key=found.get)) == "bac"


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


def test_stragglers_have_their_rate():
    free = profile_of(serial(fetch=0.0, push=0.0))
    times = {"straggler_probability": 0.2, "straggler_slowdown": 3.0, "steps": 10_000}
    assert rate(free, 2, slowdown=[1.0, 2.0], **times) == pytest.approx(1.5 / (0.5 * 1.4), rel=0.02)


NETWORKS = [{"congestion_control": told, "buffer": s} for told in ("cubic", "reno", "bbr") for s in (0.003, 0.03)]
NETWORKS.append({"loaded_trip": 0.0, "unfairness": 0.4})


@given(
    profile=jobs(most_steps=1), workers=st.integers(1, 5), network=st.sampled_from(NETWORKS), seed=st.integers(0, 100),
    order=st.sampled_from(["tensorflow", "random", "multiplexed", "tic", "tac"]),
)  # fmt: skip
def test_links_never_exceed_their_rate(profile, workers, order, network, seed):
    asked = {"transfer_order": order, "seed": seed, "steps": 12, "trace_steps": 12, "links": LINKS, **network}
    run, operations = simulate_operations(profile, workers=workers, **asked), profile.steps[0].operations
    links = [share for name, share in run.utilization.items() if name.startswith(("transmit", "receive"))]
    assert max(links) <= 1 + 1e-6
    order = sorted(range(len(operations)), key=lambda i: (operations[i].kind != "fetch", operations[i].end, i))
    steps = {}
    for (w, number, _, i), times in zip(run.log.tolist(), run.log_times, strict=True):
        steps.setdefault((w, number), {})[order[i]] = times
    for done in steps.values():
        for i, (ready, begin, end) in done.items():
            assert ready <= begin <= end
            assert end - begin >= operations[i].bytes / RATE * (1 - 1e-6)  # no transfer is faster than its link
            assert all(done[j][2] <= ready + 1e-9 for j in operations[i].after if j in done)
    sent = [(*times[1:], operations[i]) for done in steps.values() for i, times in done.items()]
    for kind, server in itertools.product(("fetch", "push"), (0, 1)):
        own = [(b, e, o.bytes) for b, e, o in sent if o.kind == kind and o.server == server]
        if own:  # all bytes went through the link between the first's beginning and the last's end
            span = max(e for _, e, _ in own) - min(b for b, _, _ in own)
            assert sum(size for *_, size in own) <= RATE * span * (1 + 1e-6) + 1


# What recorded transfers tell of links, and the one rule for other bandwidths, up and down

EFFICIENCY = 0.95  # of a nominal bandwidth carries tensors


def transfers(kind, start, sizes, *, rate=RATE, server=0):
    """Tensors that are asked for at once and arrive one after the other."""
    ends = start + np.cumsum(sizes) / rate
    return [Operation(kind, f"{kind}{i}", start, float(e), sizes[i], server) for i, e in enumerate(ends)]


def test_rate_and_start_time_of_links():
    rates = np.linspace(0.7e6, 1e6, 11)
    small = transfers("fetch", 9.0, [100], rate=9e6, server=1)
    steps = [transfers("fetch", 0.0, [400_000] * 2, rate=rate) + small for rate in rates]
    links = estimate_links(profile_of(*steps, servers=2))
    assert links.transmit.rate == pytest.approx(np.quantile(rates, 0.9))
    assert links.receive == links.transmit  # nothing was pushed
    assert links.to_frame().shape == (2, 5)
    assert links.transmit.rate_error == pytest.approx(np.std(rates))
    assert links.transmit.transfers == 33
    assert links.transmit.start_time == pytest.approx(800_000 / np.median(rates) - 800_000 / links.transmit.rate)
    both = [one + transfers("push", 30.0, [500_000], rate=2 * RATE) for one in steps]
    assert estimate_links(profile_of(*both, servers=2)).receive.rate == pytest.approx(2 * RATE)


def test_waiting_costs_no_capacity():
    steps = []
    for number in range(20):
        fetches = transfers("fetch", 0.0, [100_000] * 10 + [50_000] * 10)
        late = 19 if number == 3 else 4  # of one step the end itself
        fetches[late] = msgspec.structs.replace(fetches[late], end=fetches[late].end + 0.3)
        steps.append(fetches)
    assert estimate_links(profile_of(*steps)).transmit.rate == pytest.approx(RATE, rel=1e-6)


def test_instant_transfers_show_no_rate():
    empty = [Operation("fetch", "w", 0.0, 1.0, 0), Operation("compute", "c", 1.0, 2.0)]
    with pytest.raises(qm.DataError, match="recorded transfers with bytes"):
        estimate_links(profile_of(empty))
    instant = [Operation("push", "w", 1.0, 1.0, 1_000_000)]
    slow = transfers("push", 1.0, [1_000_000])
    assert estimate_links(profile_of(instant, slow, instant, slow)).receive.rate == pytest.approx(RATE)
    assert estimate_links(profile_of(instant, instant)).receive.rate == pytest.approx(1e12)


def profile_at(down, up=RATE, **told):
    """400 kB are fetched, computed with for half a second, and 200 kB pushed, at so many bytes per second."""
    return profile_of(*[serial(4e5 / down, 0.5, 2e5 / up, sizes=(4e5, 2e5))] * 3, **told)


@given(nominal=st.none() | st.floats(0.5e6, 20e6), bandwidth=st.floats(0.2e6, 1e8), down=st.floats(0.5e6, 1e6))
def test_host_time_stays_beside_the_link(nominal, bandwidth, down):
    profile, took = profile_at(down, bandwidth=nominal), []
    for size, rate in ((4e5, down), (2e5, RATE)):
        host = 0.0 if nominal is None else max(size / rate - size / (EFFICIENCY * nominal), 0.0)
        took.append(size / rate if bandwidth == nominal else host + size / (EFFICIENCY * bandwidth))
    fair = {"loaded_trip": 0.0, "unfairness": 0.0}
    run = simulate_operations(profile, workers=1, bandwidth=bandwidth, steps=20, in_phase=True, **fair)
    assert (run.breakdown["fetch"], run.breakdown["push"]) == pytest.approx(took)
    assert run.throughput == pytest.approx(1 / (0.5 + sum(took)))
    assert qm.fit(profile).what_if(bandwidth=bandwidth).throughput([1]).at(1) == pytest.approx(run.throughput)


@pytest.mark.parametrize(("hosts", "bandwidth", "loopback"), [
    ("10.0.0.1", None, False), ("", None, False), ("localhost:1 127.0.0.1:2", None, True),
    ("localhost:1 10.0.0.1", None, False), ("gpu-1 gpu-1", None, True), ("[fe80::1]:1 [fe80::1]:2", None, True),
    ("gpu-1:2222 gpu-2:2222", None, False), ("localhost:1 localhost:2", 1e9, False),
])  # fmt: skip
def test_loopback_hosts_have_no_link(hosts, bandwidth, loopback):
    named = dict(zip(("worker:0", "ps:0"), hosts.split(), strict=False))
    profile = profile_at(1e8, 1e8, bandwidth=bandwidth, hosts=named)
    networks = [simulate_operations(profile, workers=1, steps=5, bandwidth=b).settings["network"] for b in (None, 1e8)]
    assert [network == "loopback" for network in networks] == [loopback, False]


# What makes no sense is refused in one line, before anything is compiled or indexed

NAN, INF = float("nan"), float("inf")
WRONG = {
    "workers": [0, -1, 2.0, True, "2", 10_001], "steps": [0, 2.5, NAN], "seed": [-1, 1.5, None, 2**64],
    "transfer_order": ["best", None], "sharding": ["halves"], "parameter_servers": [0, -1, 1.0, 10**6],
    "bandwidth": [0.0, -1.0, NAN, INF, "10 Gbit/s"], "straggler_probability": [-0.1, 2, NAN],
    "straggler_slowdown": [-1, 0, NAN, INF], "loaded_trip": [-1e-3, NAN, INF], "unfairness": [-0.4, NAN, 1e6],
    "window_kept": [-0.1, 1.5, NAN], "congestion_control": ["vegas", 1, True],
    "buffer": [-1e-3, NAN, 12, "12ms"],  # 12: milliseconds
    "slowdown": [[1.0], [1.0, 0.0], [1.0, NAN], [1.0, INF]], "worker_bandwidth": [[1e6], [1e6, -1.0], [1e6, INF]],
    "trace_steps": [-1, 1000], "confidence": [0, 1, 2, NAN],
}  # fmt: skip


@pytest.mark.parametrize(("asked", "said"), [
    *(({name: value}, rf"simulate: .*{name}.*got") for name, values in WRONG.items() for value in values),
    *(({"synchronization": Synchronization(way, 3)}, r"workers must be at least .*, got 2")
      for way in ("k-sync", "k-async", "sync-ps")),
    ({"workers": 10_000, "parameter_servers": 1000}, "simulate fewer workers"),
    *(({"loaded_trip": 0.01} | known, r"simulate: loaded_trip replaces .* give it or them, got 0.01")
      for known in ({"congestion_control": "bbr"}, {"buffer": 0.0})),
])  # fmt: skip
def test_senseless_arguments_are_refused(asked, said):
    with pytest.raises(qm.ModelError, match=said):
        simulate_operations(profile_of(serial()), **{"workers": 2, "steps": 5, "links": LINKS} | asked)


@pytest.mark.parametrize("asked", [
    {"confidence": 1}, {"replications": 0}, {"n_jobs": 0}, {"worker_speeds": [1.0]}, {"worker_speeds": [1.0, NAN]},
    {"accelerator_speed": 0},
])  # fmt: skip
def test_senseless_sets_of_runs_are_refused(asked):
    with pytest.raises(qm.ModelError, match="got"):
        trace_curve(profile_of(serial()), workers=[1, 2], steps=20, **asked, **IDEAL)


@pytest.mark.parametrize(("operations", "said"), [
    ([Operation("compute", "step", 0.2, 0.7, server=1)], "operation 1 .'step'.: server must"),
    ([Operation("compute", "step", 0.2, 0.7, after=[5])], "operation 1 .'step'.: after must"),
    (None, "step 0 has no operations"), ([Operation("compute", "c", 1.0, 1.0, after=[0])], "step 0 takes no time"),
])  # fmt: skip
def test_unchecked_operations_are_refused(operations, said):
    profile = profile_of(serial())
    recorded = profile.steps[0].operations  # behind the profile's own checks
    recorded[:] = [] if operations is None else [Operation("fetch", "w", 0.0, 1.0, 0), *operations]
    with pytest.raises(qm.DataError, match=said):
        simulate_operations(profile, workers=1, links=LINKS)
