"""What is estimated from recorded transfers, and from simulated steps."""

import msgspec
import numpy as np
import pytest
from by_hand import RATE, profile_of
from scipy import stats

import queuemodel as qm
from queuemodel.traces import Link, Links, estimate_links
from queuemodel.traces.links import at_bandwidth
from queuemodel.traces.result import batch_means, mser5
from queuemodel.training import Operation


def transfers(kind, starts_and_sizes, *, rate=RATE, server=0):
    """Busy periods of a link: in each, tensors asked for at once arrive one after the other."""
    operations = []
    for start, sizes in starts_and_sizes:
        at = start
        for size in sizes:
            at += size / rate
            operations.append(Operation(kind, f"{kind}{len(operations)}", start, at, size, server))
    return operations


def test_the_rate_is_that_of_the_best_large_periods_and_the_start_what_the_median_took_besides():
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


def test_one_late_packet_costs_no_capacity():
    steps = []
    for number in range(20):
        fetches = transfers("fetch", [(0.0, [100_000] * 10 + [50_000] * 10)])
        late = 19 if number == 3 else 4  # of one step the end itself
        fetches[late] = msgspec.structs.replace(fetches[late], end=fetches[late].end + 0.3)
        steps.append(fetches)
    assert estimate_links(profile_of(*steps)).transmit.rate == pytest.approx(RATE, rel=0.01)


def test_recordings_without_bytes_tell_no_rate():
    with pytest.raises(qm.DataError, match="recorded transfers with bytes"):
        estimate_links(profile_of([Operation("fetch", "w", 0.0, 1.0, 0), Operation("compute", "c", 1.0, 2.0)]))


@pytest.mark.parametrize("nominal", [None, 10 * RATE, 1.0001 * RATE])
def test_links_keep_what_the_profiled_link_does_not_explain(nominal):
    fetches, pushes = transfers("fetch", [(0.0, [950_000])]), transfers("push", [(3.0, [475_000])])
    profile = msgspec.structs.replace(profile_of(fetches + pushes), cluster=qm.Cluster(bandwidth=nominal))
    links = Links(Link(RATE / 0.9), Link(RATE / 0.8))
    changed = at_bandwidth(links, profile, 100 * RATE)
    for size, before, after in ((950_000, links.transmit, changed.transmit), (475_000, links.receive, changed.receive)):
        host = 0.0 if nominal is None else max(size / before.rate - size / 0.95 / nominal, 0.0)
        assert size / after.rate == pytest.approx(host + size / 95e6)


def test_batch_means_by_hand():
    durations = np.array([9.0, 1.0, 3.0, 2.0, 2.0, 4.0, 2.0])  # three batches of two; the first value is left over
    rate, lower, upper = batch_means(durations, confidence=0.8, batches=3)
    half = stats.t.ppf(0.9, 2) * np.std([2.0, 2.0, 3.0], ddof=1) / np.sqrt(3)
    mean = durations.mean()
    assert (rate, lower, upper) == pytest.approx((1 / mean, 1 / (mean + half), 1 / (mean - half)))
    assert batch_means(np.array([2.0]), confidence=0.9) == (0.5, 0.0, np.inf)
    assert batch_means(np.array([1.0, 9.0]), confidence=0.99)[2] == np.inf  # too few to tell
    assert len(batch_means(np.ones(3), confidence=0.9)) == 3


def test_a_transient_is_cut_off_in_fives_and_never_more_than_half():
    level = np.tile([1.0, 1.1, 0.9, 1.0, 1.0], 40)
    for length in (5, 30, 100):
        values = level.copy()
        values[:length] += 3
        assert mser5(values) == length
    assert mser5(level) == 0
    late = level.copy()
    late[-20:] += 3
    assert mser5(late) <= 100
    assert mser5(np.array([9.0] * 5 + [1.0] * 14)) == 0  # three fives tell nothing
    assert mser5(np.array([9.0] * 5 + [1.0] * 15)) == 5
    assert mser5(np.array([9.0] * 15 + [1.0] * 5)) == 0  # a change behind the first half is no transient
