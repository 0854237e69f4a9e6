"""What recorded transfers tell of links, and the one rule for other bandwidths, up and down."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel.profile import Operation
from queuemodel.simulator import estimate_links, simulate_operations
from tests.oracles.by_hand import RATE, profile_of

EFFICIENCY = 0.95  # of a nominal bandwidth carries tensors
FAIR = {"loaded_trip": 0.0, "unfairness": 0.0}


def transfers(kind, starts_and_sizes, *, rate=RATE, server=0):
    """Busy periods of a link: in each, tensors asked for at once arrive one after the other."""
    operations = []
    for start, sizes in starts_and_sizes:
        at = start
        for size in sizes:
            at += size / rate
            operations.append(Operation(kind, f"{kind}{len(operations)}", start, at, size, server))
    return operations


def test_rate_and_start_time_of_links():
    rates = np.linspace(0.7e6, 1e6, 11)
    steps = [
        transfers("fetch", [(0.0, [400_000] * 2)], rate=rate) + transfers("fetch", [(9.0, [100])], rate=9e6, server=1)
        for rate in rates
    ]
    links = estimate_links(profile_of(*steps, servers=2))
    assert links.transmit.rate == pytest.approx(np.quantile(rates, 0.9))
    assert links.receive == links.transmit  # nothing was pushed
    assert links.transmit.rate_error == pytest.approx(np.std(rates))
    assert links.transmit.transfers == 33
    assert links.transmit.start_time == pytest.approx(800_000 / np.median(rates) - 800_000 / links.transmit.rate)
    both = [one + transfers("push", [(30.0, [500_000])], rate=2 * RATE) for one in steps]
    assert estimate_links(profile_of(*both, servers=2)).receive.rate == pytest.approx(2 * RATE)
    assert "transmit" in repr(links)
    assert links.to_frame().shape == (2, 5)


def test_waiting_costs_no_capacity():
    steps = []
    for number in range(20):
        fetches = transfers("fetch", [(0.0, [100_000] * 10 + [50_000] * 10)])
        late = 19 if number == 3 else 4  # of one step the end itself
        fetches[late] = msgspec.structs.replace(fetches[late], end=fetches[late].end + 0.3)
        steps.append(fetches)
    assert estimate_links(profile_of(*steps)).transmit.rate == pytest.approx(RATE, rel=1e-6)


def test_instant_transfers_show_no_rate():
    instant = [Operation("push", "w", 1.0, 1.0, 1_000_000)]
    slow = transfers("push", [(1.0, [1_000_000])])
    assert estimate_links(profile_of(instant, slow, instant, slow)).receive.rate == pytest.approx(RATE)
    assert estimate_links(profile_of(instant, instant)).receive.rate == pytest.approx(1e12)


def test_recordings_without_bytes_tell_no_rate():
    with pytest.raises(qm.DataError, match="recorded transfers with bytes"):
        estimate_links(profile_of([Operation("fetch", "w", 0.0, 1.0, 0), Operation("compute", "c", 1.0, 2.0)]))


# Other bandwidths


def profile_at(down, up, nominal=None):
    """400 kB are fetched, computed with for half a second, and 200 kB pushed, at so many bytes per second."""
    a, b, c = 4e5 / down, 4e5 / down + 0.5, 4e5 / down + 0.5 + 2e5 / up
    profile = profile_of([
        Operation("fetch", "w", 0.0, a, 400_000),
        Operation("compute", "step", a, b, after=[0]),
        Operation("push", "g", b, c, 200_000, after=[1]),
    ])  # fmt: skip
    step = msgspec.structs.replace(profile.steps[0], fetch=a, compute=0.5, push=c - b)
    return msgspec.structs.replace(profile, steps=[step] * 3, cluster=qm.Cluster(bandwidth=nominal))


@given(nominal=st.none() | st.floats(0.5e6, 20e6), bandwidth=st.floats(0.2e6, 1e8), down=st.floats(0.5e6, 1e6))
def test_host_time_stays_beside_the_link(nominal, bandwidth, down):
    profile, took = profile_at(down, RATE, nominal), []
    for size, rate in ((4e5, down), (2e5, RATE)):
        host = 0.0 if nominal is None else max(size / rate - size / (EFFICIENCY * nominal), 0.0)
        took.append(size / rate if bandwidth == nominal else host + size / (EFFICIENCY * bandwidth))
    run = simulate_operations(profile, workers=1, bandwidth=bandwidth, steps=20, in_phase=True, **FAIR)
    assert (run.breakdown["fetch"], run.breakdown["push"]) == pytest.approx(took)
    assert run.throughput == pytest.approx(1 / (0.5 + sum(took)))
    assert qm.fit(profile).what_if(bandwidth=bandwidth).throughput([1]).at(1) == pytest.approx(run.throughput)


@pytest.mark.parametrize(
    ("hosts", "bandwidth", "loopback"),
    [("10.0.0.1", None, False), ("", None, False), ("localhost:1 127.0.0.1:2", None, True),
     ("localhost:1 10.0.0.1", None, False), ("gpu-1 gpu-1", None, True), ("[fe80::1]:1 [fe80::1]:2", None, True),
     ("gpu-1:2222 gpu-2:2222", None, False), ("localhost:1 localhost:2", 1e9, False)],
)  # fmt: skip
def test_loopback_hosts_have_no_link(hosts, bandwidth, loopback):
    source = qm.Source(framework="by hand", hosts=dict(zip(("worker:0", "ps:0"), hosts.split(), strict=False)))
    profile = msgspec.structs.replace(profile_at(1e8, 1e8, bandwidth), source=source)
    networks = [simulate_operations(profile, workers=1, steps=5, bandwidth=b).settings["network"] for b in (None, 1e8)]
    assert [network == "loopback" for network in networks] == [loopback, False]
