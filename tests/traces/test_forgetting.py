"""Under BBR, ten round trips that tell no rate are as many as an estimate is remembered for."""

import numpy as np
import pytest
from by_hand import LINKS, RATE, profile_of
from plain_flows import Flows, rules_of

from queuemodel.compiled import ready
from queuemodel.traces.kernel.memory import GAIN, POLICED, REMEMBERED, forget
from queuemodel.traces.kernel.state import new_state
from queuemodel.traces.prepare import prepare
from queuemodel.training import Operation

RULES = rules_of(window_kept=0.0, buffer=0.05)
SMALL, LARGE = 1e4, 1e6  # bytes: less than any window, and more


def estimate(*, messages=REMEMBERED, others=3, d=1, policed=0.0):
    """What a worker's estimate of the link is when it begins with more than its window, over the link."""
    flows = Flows(RULES, RATE, workers=5)
    for w in range(1, 1 + others):
        flows.start(d, w)
    for _ in range(2):
        flows.go()
    state = flows.state
    state.policed[d, 0, 0] = policed
    for size in [SMALL] * messages + [LARGE]:
        state.backlog[d, 0, 0] = size
        forget(state, d, 0, 0)
    assert state.untold[d, 0, 0] == 0
    return state.estimate[d, 0, 0] / RATE


@pytest.mark.parametrize("d", [0, 1])
@pytest.mark.parametrize("others", [2, 3, 4])
def test_ten_small_messages_make_a_connection_forget(d, others):
    assert estimate(d=d, others=others) == pytest.approx(GAIN / (others + 1))


def test_nine_do_not():
    assert estimate(messages=REMEMBERED - 1) == pytest.approx(1.0)


def test_nor_do_ten_where_no_packets_wait():
    assert estimate(others=0) == pytest.approx(1.0)
    assert estimate(others=1, d=1) == pytest.approx(1.0)  # one other that pushes is held back at its own link
    assert estimate(others=1, d=0) == pytest.approx(GAIN / 2)


def test_who_takes_the_link_for_policed_keeps_its_rate():
    assert estimate(policed=POLICED) == pytest.approx(1.0)


@pytest.mark.parametrize("ordered", [False, True])
def test_the_server_is_told_of_each_layer_on_the_way_that_gradients_go(ordered):
    layers = 7
    fetches = [
        Operation("fetch", f"w{i}", 0.02 * i, 0.02 * i + 0.01, round(SMALL), after=[i - 1] if ordered and i else [])
        for i in range(layers)
    ]
    compute = Operation("compute", "step", 0.02 * layers, 0.02 * layers + 0.1, after=list(range(layers)))
    push = Operation("push", "g", compute.end, compute.end + 1.0, round(LARGE), after=[layers])
    steps = prepare(profile_of([*fetches, compute, push]), links=LINKS).steps
    state = new_state(steps, links=np.full((2, 2), RATE), starts=np.zeros(1), rules=RULES)
    run, rng = ready("queuemodel.traces.kernel.loop", "run"), np.random.default_rng(1)
    while state.serving[1, 0, 0] < 0:
        told = state.untold.copy()
        run(steps, state, RULES, rng, 1, 1)
    assert told[1, 0, 0] == (layers - 1 if ordered else 0)
    assert told[0, 0, 0] == (layers if ordered else 0)  # all at once are more than a window
