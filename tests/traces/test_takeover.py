"""Under BBR, what others leave of a full link is taken over at once, but for some; and estimates grow by their law."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_flows import PAYLOAD, Flows, rules_of

from queuemodel.traces.kernel.memory import CYCLE, GAIN, POLICED
from queuemodel.traces.kernel.windows import SHORT_TRIP

RATE = 60 * PAYLOAD
CALM = rules_of(window_kept=0.0, buffer=1e6)  # so long a buffer that nothing is lost


def together(workers):
    """So many flows that fetch, and have done so for half a second."""
    flows = Flows(CALM, RATE, workers=workers)
    for w in range(workers):
        flows.start(0, w)
    for _ in range(50):
        flows.go()
    return flows


@pytest.mark.parametrize("workers", [2, 3, 5, 8])
def test_those_whose_packets_wait_have_the_link_as_soon_as_another_leaves_it(workers):
    flows = together(workers)
    flows.stop(0, 0)
    assert flows.go()[0].sum() == pytest.approx(RATE * 0.01)


def test_who_takes_the_link_for_policed_does_not():
    flows = together(2)
    flows.state.policed[0, 0, 0], flows.state.estimate[0, 0, 0] = POLICED, 0.4 * RATE
    flows.stop(0, 1)
    assert flows.go()[0, 0] == pytest.approx(0.4 * RATE * 0.01)


def test_nor_does_who_is_held_to_its_window_by_acknowledgements_that_wait():
    flows = Flows(rules_of(window_kept=0.0, buffer=0.05), RATE, workers=6)
    for w in range(2, 6):
        flows.start(1, w)
    flows.go()
    for w in range(2):
        flows.start(0, w)
    for _ in range(3):
        flows.go()
    flows.stop(0, 1)
    assert flows.go()[0, 0] < 0.7 * RATE * 0.01


@given(estimate=st.floats(0.02, 0.5), seconds=st.floats(0.002, 0.02))
def test_estimates_grow_as_much_in_one_look_as_in_many(estimate, seconds):
    found = []
    for looks in (1, 20):
        flows = Flows(CALM, RATE, workers=1)
        flows.start(0, 0)
        flows.state.estimate[0, 0, 0] = estimate * RATE
        for _ in range(looks):
            flows.go(seconds / looks)
        flows.go()
        found.append(flows.state.estimate[0, 0, 0] / RATE)
    cycles = seconds / (CYCLE * SHORT_TRIP)
    assert found[0] == pytest.approx(min(1.0, estimate * GAIN**cycles), rel=0.03)
    assert found[0] == pytest.approx(found[1], rel=0.1)
