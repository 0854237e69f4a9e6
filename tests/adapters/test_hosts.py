"""What this machine says of its network, and what it does not."""

import json

import pytest

from queuemodel import Cluster
from queuemodel.adapters.live import machine
from queuemodel.adapters.live.machine import recorded_network, shaped_buffer


@pytest.mark.parametrize(("said", "known"), [("cubic\n", "cubic"), ("bbr\n", "bbr"), ("vegas\n", None), (None, None)])
def test_congestion_control_is_what_the_machine_says(tmp_path, monkeypatch, said, known):
    monkeypatch.setattr(machine, "shaped_buffer", lambda: None)
    path = tmp_path / "tcp_congestion_control"
    if said is not None:
        path.write_text(said)
    cluster = Cluster(**recorded_network(path))
    assert cluster.congestion_control == (known or "unknown")
    assert cluster.origins == ({"congestion_control": "recorded"} if known else {})


BUCKET = {
    "kind": "tbf",
    "handle": "1:",
    "dev": "eth0",
    "root": True,
    "options": {"rate": 7500000, "burst": 16380, "lat": 12000},
}
FAIR = {"kind": "fq_codel", "handle": "10:", "dev": "eth0", "parent": "1:1", "options": {"target": 4999}}
QUEUE = {"kind": "pfifo_fast", "dev": "eth1", "root": True, "options": {"bands": 3}}


@pytest.mark.parametrize(
    ("said", "buffer"),
    [
        (json.dumps([QUEUE, BUCKET]), 0.012),  # as `tc -j qdisc show` of iproute2 6.1 says it
        (json.dumps([BUCKET, FAIR]), 0.0),
        (json.dumps([BUCKET, FAIR | {"parent": "8001:1", "dev": "eth1"}]), 0.012),  # not behind the bucket
        (json.dumps([QUEUE, FAIR]), None),  # nothing limits the rate here
        (json.dumps([QUEUE]), None),
        (json.dumps([BUCKET, BUCKET]), None),
        (json.dumps([BUCKET | {"options": {}}]), None),
        (json.dumps([BUCKET | {"options": {"lat": 0}}]), None),
        ("no JSON", None),
        ("", None),
    ],
)
def test_a_token_bucket_says_its_buffer(tmp_path, said, buffer):
    path = tmp_path / "qdisc.json"
    path.write_text(said)
    assert shaped_buffer(("cat", str(path))) == buffer


def test_no_tc_says_nothing():
    assert shaped_buffer(("no-such-program-here",)) is None


def test_the_buffer_is_recorded_with_its_origin(tmp_path, monkeypatch):
    path = tmp_path / "tcp_congestion_control"
    path.write_text("cubic\n")
    monkeypatch.setattr(machine, "shaped_buffer", lambda: 0.025)
    cluster = Cluster(**recorded_network(path))
    assert cluster.buffer == 0.025
    assert cluster.origins == {"congestion_control": "recorded", "buffer": "recorded"}
