"""How long simulating takes: no longer on slow links, and never longer than one wants to wait."""

import signal
import time
from dataclasses import replace

import numpy as np
import pytest
from by_hand import LINKS, profile_of, serial, two_layers

from queuemodel.data import example_profile
from queuemodel.traces import Links, simulate
from queuemodel.traces.graph import prepare
from queuemodel.traces.kernel import sharing
from queuemodel.traces.kernel.state import Rules, new_state


def seconds(**settings):
    begun = time.process_time()
    simulate(profile_of(two_layers()), workers=4, steps=50, **settings)
    return time.process_time() - begun


def test_slow_links_take_no_more_work():
    simulate(profile_of(two_layers()), workers=4, steps=2)  # compiles
    # 400 weeks of simulated time; 20 ms apart they would be 10 ** 10 looks
    slow = Links(*(replace(link, rate=1.0) for link in (LINKS.transmit, LINKS.receive)))
    assert seconds(links=slow, congestion_control="cubic") < 2.0
    assert seconds(bandwidth=1e3, loaded_trip=1e6) < 2.0
    assert seconds(bandwidth=1e3, congestion_control="cubic", buffer=10.0) < 2.0


def test_what_settles_does_so_however_seldom_one_looks():
    # two connections on a full link end at 1.25 / 2.25 of it: there probing finds nothing more
    graphs, full = prepare(profile_of(serial()), links=LINKS), 1e15  # so many packets wait that there are no accidents
    rules = Rules(np.ones(2), np.inf, False, 0, 0, 0, 0.0, 1.0, 0.012, 0.0, 0.0, 1.0)
    s = new_state(graphs.steps, links=np.full((2, 3), full), starts=np.zeros(2), rules=rules)
    s.serving[0], s.estimate[0, :, 0] = 0, 0.2 * full
    s.chunk_left[0] = 1e24
    s.dirty[0], now, looks, rng = 1, 0.0, 0, np.random.default_rng(1)
    while now < 1e5:
        sharing.reshare(s, rules, now, 0, rng)
        now, looks = s.tick[0], looks + 1
        s.dirty[0] = 2
    assert s.estimate[0].ravel() / full == pytest.approx([1.25 / 2.25] * 2, rel=2e-3)
    assert s.rate[0].ravel() / full == pytest.approx([0.5, 0.5])
    assert looks < 1000


def test_ctrl_c_ends_a_run_at_once():
    simulate(profile_of(serial()), workers=2, steps=2)

    def press(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, press)
    try:
        for workers, profile in ((8, example_profile("alexnet-60")), (1000, profile_of(serial()))):
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            begun = time.process_time()
            with pytest.raises(KeyboardInterrupt):
                simulate(profile, workers=workers, steps=1_000_000)
            assert time.process_time() - begun < 1.5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
