"""Under BBR, estimates grow by their law."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_flows import PAYLOAD, Flows, rules_of

from queuemodel.traces.kernel.memory import CYCLE, GAIN
from queuemodel.traces.kernel.windows import SHORT_TRIP

RATE = 60 * PAYLOAD
CALM = rules_of(window_kept=0.0, buffer=1e6)  # so long a buffer that nothing is lost


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
