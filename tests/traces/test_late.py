"""What came late in one worker's trace."""

import numpy as np
import pytest
from by_hand import RATE, profile_of
from hypothesis import given, settings
from hypothesis import strategies as st

from queuemodel.traces import late_arrivals
from queuemodel.training import Operation


def fetch_from_two(late: float, seconds: float = 0.4) -> list[Operation]:
    each = round(RATE * seconds / 2)
    return [
        Operation("fetch", "a", 0.0, seconds / 2, each),
        Operation("fetch", "b", 0.0, seconds + late, each, server=1),
        Operation("compute", "step", seconds + late, seconds + late + 0.1, after=[0, 1]),
    ]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.0, 0.2, 0.7]), min_size=20, max_size=30))
def test_lateness_is_what_exceeds_the_bytes(late):
    late = [0.0, 0.0, 0.0, *late]
    found = late_arrivals(profile_of(*map(fetch_from_two, late), servers=2))
    np.testing.assert_allclose(found, late, atol=1e-6)


def test_one_servers_transfers_may_come_late_too():
    def step(late):
        first, last = 0.004 + 0.3 + 0.003, 0.004 + 0.5 + 0.006  # start, bytes, seconds per tensor
        return [
            Operation("fetch", "a", 0.0, first, 300_000),
            Operation("fetch", "b", 0.0, last + late, 200_000),
            Operation("fetch", "c", 2.0, 2.007 + 0.4, 400_000, after=[1]),
        ]

    late = [0.0, 0.0, 0.3, 0.0, 0.0, 0.0, 0.2, 0.0, 0.0]
    found = late_arrivals(profile_of(*map(step, late)))
    np.testing.assert_allclose(found[::2], late, atol=1e-3)
    np.testing.assert_allclose(found[1::2], 0.0, atol=1e-3)


def test_small_periods_do_not_tell():
    steps = [fetch_from_two(0.0)] * 9
    small = [
        *fetch_from_two(0.0),
        Operation("fetch", "c", 2.0, 3.0, 10, server=0, after=[2]),
        Operation("fetch", "d", 2.0, 3.0, 10, server=1, after=[2]),
    ]
    assert late_arrivals(profile_of(*steps, small, servers=2)) == pytest.approx(np.zeros(10), abs=1e-6)
