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


def transfers(kind, starts_and_sizes, *, start_time=0.0, tensor_time=0.0, rate=RATE, server=0):
    """Busy periods of a link: in each, tensors asked for at once arrive one after the other."""
    operations = []
    for start, sizes in starts_and_sizes:
        at = start + start_time
        for size in sizes:
            at += tensor_time + size / rate
            operations.append(Operation(kind, f"{kind}{len(operations)}", start, at, size, server))
    return operations


def test_start_tensor_time_and_rate_are_recovered_exactly_without_scatter():
    periods = [(0.0, [300_000, 50_000, 700_000]), (5.0, [20_000, 400_000, 90_000, 10_000])]
    truth = {"start_time": 0.004, "tensor_time": 0.003}
    steps = [transfers("fetch", periods, **truth) + transfers("push", [(20.0, [500_000])], rate=2 * RATE)] * 3
    links = estimate_links(profile_of(*steps))
    assert links.transmit.rate == pytest.approx(RATE, rel=1e-6)
    assert links.transmit.tensor_time == pytest.approx(0.003, rel=1e-6)
    assert links.transmit.start_time == pytest.approx(0.004, rel=1e-6)
    assert links.transmit.rate_error == pytest.approx(0, abs=1)
    assert links.transmit.transfers == 21
    assert links.receive.rate == pytest.approx(2 * RATE)  # of one size: all of the time is the bytes'
    assert (links.receive.tensor_time, links.receive.start_time) == (0, 0)


def test_one_late_packet_costs_no_capacity():
    steps = []
    for _ in range(4):
        fetches = transfers("fetch", [(0.0, [100_000] * 10 + [50_000] * 10)])
        late = fetches[4]
        fetches[4] = msgspec.structs.replace(late, end=late.end + 0.3)
        steps.append(fetches)
    assert estimate_links(profile_of(*steps)).transmit.rate == pytest.approx(RATE, rel=0.01)


def test_all_bytes_are_there_when_a_busy_period_ends_however_late_some_of_them_were():
    rng = np.random.default_rng(0)
    steps = []
    for _ in range(6):
        *others, last = transfers("fetch", [(0.0, rng.integers(20_000, 200_000, 12).tolist())])
        late = np.where(rng.random(11) < 0.3, rng.uniform(0, 0.4, 11), 0.0)
        ends = [min(o.end + seconds, last.end) for o, seconds in zip(others, late, strict=True)]
        steps.append([*(msgspec.structs.replace(o, end=e) for o, e in zip(others, ends, strict=True)), last])
    assert estimate_links(profile_of(*steps)).transmit.rate == pytest.approx(RATE, rel=0.01)


def test_the_standard_error_is_the_jackknifes():
    rates = [0.9e6, 1e6, 1.1e6]
    steps = [transfers("fetch", [(0.0, [500_000])], rate=rate) for rate in rates]
    link = estimate_links(profile_of(*steps)).transmit
    without = [np.mean([1 / r for j, r in enumerate(rates) if j != i]) for i in range(3)]
    error = np.sqrt(2 / 3 * np.sum((without - np.mean(without)) ** 2))  # of the time per byte
    assert 1 / link.rate == pytest.approx(np.mean([1 / r for r in rates]), rel=0.02)
    assert link.rate_error == pytest.approx(error * link.rate**2, rel=0.3)
    assert np.isnan(estimate_links(profile_of(steps[0])).transmit.rate_error)
    unasked = estimate_links(profile_of(*steps), errors=False).transmit
    assert (unasked.rate, unasked.start_time) == (link.rate, link.start_time)
    assert np.isnan(unasked.rate_error)


def test_with_several_servers_the_best_periods_tell():
    # ten periods at .7 to 1 MB/s, a small one that is faster than the link, and one direction alone
    steps = [
        transfers("fetch", [(0.0, [400_000] * 2)], rate=rate) + transfers("fetch", [(9.0, [100])], rate=9e6, server=1)
        for rate in np.linspace(0.7e6, 1e6, 10)
    ]
    links = estimate_links(profile_of(*steps, servers=2))
    assert links.transmit.rate == pytest.approx(np.quantile(np.linspace(0.7e6, 1e6, 10), 0.9))
    assert links.receive == links.transmit
    assert links.transmit.rate_error == pytest.approx(np.std(np.linspace(0.7e6, 1e6, 10)))
    assert (links.transmit.transfers, links.transmit.tensor_time) == (30, 0)


def test_recordings_without_bytes_tell_no_rate():
    with pytest.raises(qm.DataError, match="recorded transfers with bytes"):
        estimate_links(profile_of([Operation("fetch", "w", 0.0, 1.0, 0), Operation("compute", "c", 1.0, 2.0)]))


@pytest.mark.parametrize(
    ("nominal", "rate", "tensor_time"),
    [
        (None, 95 * RATE, 0.0),  # all was the link's
        (10 * RATE, 1 / (0.9 / RATE), 0.1),  # 9.5 MB/s explain .1 s of the tensor's 1.0 s; 10 ns a byte are left of it
        (1.0001 * RATE, 95 * RATE, 0.0),  # the link explains it all
    ],
)
def test_links_keep_what_the_profiled_link_does_not_explain(nominal, rate, tensor_time):
    profile = profile_of(transfers("fetch", [(0.0, [950_000])]))
    profile = msgspec.structs.replace(profile, cluster=qm.Cluster(bandwidth=nominal))
    link = Link(RATE / 0.9, tensor_time)
    changed = at_bandwidth(Links(link, link), profile, 100 * RATE).transmit
    seconds = tensor_time + 950_000 / link.rate
    host = 0.0 if nominal is None else max(seconds - 1e6 / nominal, 0.0)
    assert changed.tensor_time + 950_000 / changed.rate == pytest.approx(host + 0.01)
    assert changed.tensor_time == pytest.approx(tensor_time)
    if nominal is None or nominal < 2 * RATE:
        assert changed.rate == pytest.approx(rate)


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
