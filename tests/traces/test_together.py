"""Connections of one sender that begin together: they end as plain sockets' do, and have no room in a short buffer."""

import json
from pathlib import Path

import numpy as np
import pytest
from plain_flows import PAYLOAD, Flows, rules_of

from queuemodel.traces.contention import WINDOW_KEPT

TOGETHER = Path(__file__).parents[2] / "validation" / "testbed" / "together.jsonl"
RECORDED = {
    (row["congestion_control"], row["buffer_ms"], len(row["took"][0])): row
    for row in map(json.loads, TOGETHER.read_text().splitlines())
}


def ends(tcp, buffer_ms, workers, *, d=0, mbit=60.0, size=3e6, rounds=24):
    """Mean seconds until the first, the second, ... of so many flows has ended that begin at once."""
    flows = Flows(
        rules_of(window_kept=WINDOW_KEPT.get(tcp, 0.0), buffer=buffer_ms / 1e3), mbit * PAYLOAD, workers=workers
    )
    found = np.zeros((rounds, workers))
    for row in found:
        left, begin = np.full(workers, size), flows.now
        for w in range(workers):
            flows.start(d, w)
        while left.any():
            got = np.minimum(flows.go()[d], left)
            for w in np.flatnonzero((left > 0) & (left <= got)):
                flows.stop(d, w)
                row[w] = flows.now - begin
            left -= got
        flows.now += 1.0
    return np.sort(found[1:], axis=1).mean(axis=0)


@pytest.mark.parametrize(
    ("network", "within"),
    [
        (("cubic", 12, 2), 0.05),
        (("cubic", 12, 4), 0.06),
        (("cubic", 25, 8), 0.08),
        (("cubic", 12, 8), 0.06),
        (("reno", 4, 4), 0.06),  # with losses in proportion to windows 0.14
        (("bbr", 12, 2), 0.10),
        (("bbr", 12, 4), 0.06),
        (("bbr", 12, 8), 0.07),
    ],
)
def test_flows_of_one_sender_end_as_plain_ones_did(network, within):
    took = np.mean(RECORDED[network]["took"], axis=0)
    off = np.abs(ends(*network) - took) / took[-1]
    assert off.max() < within


def test_flows_of_many_senders_are_less_alike():
    took = np.mean(RECORDED["cubic", 12, 4]["took"], axis=0)
    fetches, pushes = (ends("cubic", 12, 4, d=d) for d in (0, 1))
    assert took[-1] - took[0] == pytest.approx(fetches[-1] - fetches[0], abs=0.06)
    assert pushes[-1] - pushes[0] > 1.5 * (took[-1] - took[0])
