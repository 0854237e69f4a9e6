"""Every option together, on random jobs: the same events at the same times as in a simulation written plainly."""

from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from queuemodel.profile import Synchronization
from queuemodel.simulator import LinkRate, LinkRates, simulate_operations
from tests.oracles.by_hand import RATES, jobs
from tests.oracles.plain_simulation import WINDOW, Cluster

LINKS = LinkRates(*map(LinkRate, RATES))
IDEAL = {"links": LINKS, "loaded_trip": 0.0, "unfairness": 0.0, "in_phase": True}


def layer(operation):
    return int(operation.name[1:])


def dealt(profile, servers, sharding):
    """Which of another number of servers has a layer: in turn, or the largest first to the one with least."""
    sizes = {layer(o): o.bytes for o in profile.steps[0].operations if o.kind == "fetch"}
    if sharding == "round-robin":
        return {i: i % servers for i in sizes}
    load, home = [0] * servers, {}
    for i in sorted(sizes, key=lambda i: -sizes[i]):
        home[i] = load.index(min(load))
        load[home[i]] += sizes[i]
    return home


ORDERS = {
    "tensorflow": lambda o: o.end - o.bytes / RATES[0] / 2, "multiplexed": lambda o: 0.0, "in-order": layer,
    "reverse": lambda o: -layer(o),
}  # fmt: skip
MODES = st.sampled_from([
    ("async-ps", 0), ("sync-ps", 0), ("sync-ps", 1), ("bounded-staleness", 1), ("k-async", 2), ("k-sync", 2),
    ("k-batch-sync", 4),
])  # fmt: skip


def moments(profile, run):
    """When each operation of each kept step was ready, began and ended; operations as they stand in the profile."""
    order = []
    for step in profile.steps:
        keys = [(one.kind != "fetch", one.end, i) for i, one in enumerate(step.operations)]
        order.append([i for *_, i in sorted(keys)])
    rows = zip(run.log.tolist(), run.log_times.tolist(), strict=True)
    return {(w, step, order[record][i]): times for (w, step, record, i), times in rows}


@settings(max_examples=150, deadline=None)
@given(
    profile=jobs(), workers=st.integers(3, 4), order=st.sampled_from(sorted(ORDERS)), servers=st.integers(1, 3),
    sharding=st.sampled_from(["round-robin", "greedy"]), mode=MODES, straggling=st.sampled_from([1.0, 1.7]),
    speeds=st.lists(st.floats(0.5, 1.5), min_size=4, max_size=4, unique=True),
    own_links=st.none() | st.lists(st.floats(0.3e6, 2e6), min_size=4, max_size=4),
)  # fmt: skip
def test_events_agree_with_plain_simulation(
    profile, workers, order, servers, sharding, mode, straggling, speeds, own_links
):
    (way, number), steps, speeds = mode, 4, speeds[:workers]
    own_links = own_links and own_links[:workers]
    if way in ("k-sync", "k-batch-sync"):  # of a step that is cut short nobody tells which was repeated
        profile = msgspec.structs.replace(profile, steps=profile.steps[:1])
    stragglers = {"straggler_probability": 1.0, "straggler_slowdown": straggling} if straggling > 1 else {}
    run = simulate_operations(
        profile, workers=workers, steps=steps, transfer_order=order, sharding=sharding, parameter_servers=servers,
        slowdown=speeds, worker_bandwidth=own_links, synchronization=Synchronization(way, number), trace_steps=steps,
        **stragglers, **IDEAL,
    )  # fmt: skip
    records = [{} for _ in range(workers)]
    for w, step, record, _ in run.log.tolist():
        records[w][step] = record
    assume(all(sorted(own) == list(range(len(own))) for own in records))  # none was forgotten
    home = None if servers == profile.cluster.parameter_servers else dealt(profile, servers, sharding)
    every = number if way.startswith("k-") else workers - number * (way == "sync-ps")
    plain = Cluster(
        profile, slowdown=[speed * straggling for speed in speeds], links=RATES,
        worker_links=[own_links or [rate] * workers for rate in RATES], servers=servers,
        rank=lambda o: float(ORDERS[order](o)) if o.kind == "fetch" else 0.0,
        home=lambda o: 0 if o.kind == "compute" else o.server if home is None else home[layer(o)],
        records=[[own[i] for i in range(len(own))] for own in records], mode=way, awaited=every, bound=number,
        chunk=WINDOW if order == "multiplexed" else np.inf,
    ).run(steps * every)  # fmt: skip
    found = moments(profile, run)
    assert found
    for key, times in found.items():
        if times[2] <= plain.known_until:
            ready, begun = (run.duration if t is None else t for t in plain.began.get(key, [None] * 2))
            expected = [ready, begun, plain.ends.get(key, run.duration)]
            assert times == pytest.approx(expected, rel=1e-7, abs=1e-7), key
    if plain.known_until < run.duration:
        return
    assert run.duration == pytest.approx(plain.counted[-1])
    assert run.times == pytest.approx(plain.counted[every - 1 :: every])
    lags = Counter(plain.lags)
    assert run.staleness == pytest.approx([lags[n] / plain.done for n in range(max(lags) + 1)])
    shares = {name: plain.account.get(name, 0.0) / run.duration for name in run.utilization}
    shares["compute"] /= workers
    for name in shares:
        shares[name] /= RATES[name.startswith("receive")] if name[0] in "tr" else 1.0
    assert run.utilization == pytest.approx(shares, rel=1e-6, abs=1e-9)
    spans = {name: plain.account[name] / plain.done for name in ("step", "fetch", "compute", "push")}
    assert run.breakdown == pytest.approx(spans, rel=1e-6, abs=1e-9)
    dropped = plain.account.get("dropped", 0)
    assert run.dropped_share == pytest.approx(dropped / (plain.done + dropped))
