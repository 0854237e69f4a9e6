"""Datagrams on every link of the testbed, against the what-if, from traces before them."""

import json
from pathlib import Path

import pytest

from queuemodel.adapters import read_pytorch
from queuemodel.models import fit
from testbed.recordings import unpacked

SERIES = unpacked(Path(__file__).parents[2] / "validation" / "data" / "testbed" / "changed")
OTHER = SERIES / "ddp-gpt8-40-cubic-30ms-other"


def test_links_shared_with_datagrams_are_predicted():
    traces = [OTHER / "trace_n1", OTHER / "trace_n2"]
    network = {"bandwidth": 40 * 125_000, "congestion_control": "cubic", "buffer": 0.03}
    model = fit(read_pytorch(traces, batch_size=1, **network))
    rows = json.loads((OTHER / "changed.json").read_text())
    assert [(row["change"]["other_traffic"], row["workers"]) for row in rows] == [
        (s, n) for s in (0.3, 0.5) for n in (2, 4)
    ]
    for row in rows:
        n, rate = row["workers"], row["group_steps_per_s"]
        curve = model.throughput([n], **row["change"])
        assert curve.iterations_per_second[0] == pytest.approx(rate, rel=0.025)
        assert curve.lower[0] < n * rate < curve.upper[0]
        assert model.throughput([n]).iterations_per_second[0] > 1.2 * rate  # the control
