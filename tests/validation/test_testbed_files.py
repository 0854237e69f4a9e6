"""The testbed without a network: its workload files, recorded series, and queues on a clock of the test's."""

import json
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from testbed.queues import arrive, empty_links, leave, no_packets
from testbed.recordings import unpacked
from testbed.workload import TestbedError, read_workload
from validation.series import folder_of_trace

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "validation" / "data" / "testbed"
PLACES = [unpacked(RECORDED / place) for place in ("data_parallel", "changed", "sharded")]
ROUNDS = sorted((path.parent for place in PLACES for path in place.glob("*/measured.json")), key=lambda one: one.name)
ROUNDS = [folder for folder in ROUNDS if not (folder / "links.json").exists()]
SERVERS = [*(unpacked(RECORDED / place) for place in ("parameter_servers", "held_out")), PLACES[1]]
SERIES = sorted((path.parent for place in SERVERS for path in place.glob("*/links.json")), key=lambda one: one.name)


@pytest.mark.parametrize("file", sorted(ROOT.glob("testbed/workloads/*.json")), ids=lambda file: file.stem)
def test_every_workload_file_can_be_read(file):
    workload = read_workload(file)
    assert workload.name == file.stem
    assert {server for layer in workload.servers() for server in layer} == set(range(workload.parameter_servers))


LAYER = {"name": "one", "tensor_bytes": [4], "forward_s": 0, "backward_s": 0}
BAD = {
    "tiny": [
        ({"cv": 2}, "cv"), ({"mode": "later"}, "mode"), ({"sevrers": 2}, "sevrers"), ({"layers": 3}, "not a workload"),
        ({"mode": "k-sync", "awaited": 1.5}, "awaited"), ({"awaited": 0.5}, "awaited needs mode"),
        ({"mode": "bounded-staleness", "staleness_bound": -1}, "staleness_bound"),
        ({"staleness_bound": 1}, "staleness_bound needs mode"), ({"queue": "red"}, "queue must be"),
        ({"accumulation": 2}, "accumulation, .* need mode"), ({"changes": [{"cv": 0.2}]}, "changes need"),
    ],
    "ddp-tiny": [
        ({"changes": [{"speed": 2}]}, "speed"), ({"changes": [{"accelerator": 0}]}, "accelerator must be"),
        ({"other_traffic_hosts": ["node1"]}, "hosts such as"),
        ({"shards": 2}, "shards, .* need mode 'fsdp'"), ({"precision": "double"}, "precision must be"),
    ],
    "fsdp-tiny": [
        ({"ranks_per_node": 0}, "ranks_per_node"), ({"shards": -1}, "shards"), ({"input_buffers": 0}, "input_buffers"),
    ],
    "learn-tiny": [
        ({"accumulation": 2}, "without learn"),
        ({"learn": {"examples": 10}}, "batch_size"), ({"mode": "async"}, "learn needs mode"),
        ({"layers": [LAYER]}, "perceptron"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("good", "change", "word"), [(name, *bad) for name, own in BAD.items() for bad in own])
def test_impossible_workloads_are_refused(tmp_path, good, change, word):
    file, known = tmp_path / "bad.json", json.loads((ROOT / "testbed" / "workloads" / f"{good}.json").read_text())
    file.write_text(json.dumps(known | change))
    with pytest.raises(TestbedError, match=word) as caught:
        read_workload(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("folder", SERIES, ids=lambda folder: folder.name)
def test_every_recorded_series_is_whole(folder):
    workload = read_workload(folder / "workload.json")
    assert json.loads((folder / "job.json").read_text()) == workload.job()
    for row in json.loads((folder / "measured.json").read_text()):
        times = [json.loads(path.read_text()) for path in folder.glob(f"steps_n{row['workers']}_w*.json")]
        assert len(times) == row["workers"]
        assert all(earlier < later for ts in times for earlier, later in pairwise(ts))
        # no server can send its parameters more often than its link allows, headers left out
        shares = [0] * workload.parameter_servers
        for layer, servers in zip(workload.layers, workload.servers(), strict=True):
            for size, server in zip(layer.tensor_bytes, servers, strict=True):
                shares[server] += size
        assert 0 < row["steps_per_s"] < workload.bandwidth_mbit * 125_000 / max(shares)
    traced = folder if (folder / "trace").exists() else folder_of_trace(folder)
    assert len(list(traced.glob("trace/step_*.pb"))) == 12


@pytest.mark.parametrize("folder", ROUNDS, ids=lambda folder: folder.name)
def test_rank_series_are_whole(folder):
    workload = read_workload(folder / "workload.json")
    assert json.loads((folder / "job.json").read_text()) == workload.job()
    rows = json.loads((folder / "measured.json").read_text())
    for row in rows:
        assert row["group_steps_per_s"] == pytest.approx(row["steps"] / sum(row["round_s"]), rel=1e-3)
        assert row["group_steps_per_s"] < 1.03 / workload.compute_s  # but for chance
    for traces in folder.glob("trace_n*"):
        ranks = int(traces.name.removeprefix("trace_n"))
        assert ranks in [row["workers"] for row in rows]
        assert len(list(traces.iterdir())) == ranks
    if (folder / "changed.json").exists():
        rows = json.loads((folder / "changed.json").read_text())
        assert [(row["change"], row["workers"]) for row in rows] == [(c, n) for c in workload.changes for n in (2, 4)]


# What a link, a policer and a plain queue let pass

RATE, BURST, SIZE = 1.514e6, 15_140.0, 1514  # bytes: a packet takes a millisecond, ten pass at once


class Link:
    """One link; packets are sent to it in the name of flows, and it is asked for what leaves."""

    def __init__(self, *, most=np.inf, slots=4096):
        links, flows = empty_links(np.array([RATE]), np.array([BURST]), np.array([most]))
        self.counters, self.flows, self.packets = links[0], flows[0], no_packets(slots)
        self.port = {}

    def send(self, now, flow):
        free = self.packets.free
        free[-1] -= 1
        slot = int(free[free[-1]])
        self.packets.length[slot] = SIZE
        self.packets.data[slot, 12:24] = np.frombuffer(struct.pack(">4B4BHH", *[10] * 8, flow, 2222), np.uint8)
        arrive(slot, now, self.counters, self.flows, self.packets)

    def take(self, now):
        """The flows of all packets that leave until now, each at its time."""
        found = []
        while True:
            slot, wait = leave(now, self.counters, self.flows, self.packets)
            if slot < 0:
                return found, wait
            found.append(int.from_bytes(self.packets.data[slot, 20:22].tobytes(), "big"))
            free = self.packets.free
            free[free[-1]] = slot
            free[-1] += 1

    def empty(self, now):
        """What leaves, and when, while nothing more comes."""
        left = []
        while True:
            flows, wait = self.take(now)
            left += [(now, flow) for flow in flows]
            if not np.isfinite(wait):
                return left
            now += wait + 1e-9


def test_link_rate_after_its_bucket():
    link = Link()
    for _ in range(60):
        link.send(1.0, flow=7)
    times = [now - 1 for now, _ in link.empty(1.0)]
    assert times == pytest.approx([max(0, 1e-3 * (i - 9)) for i in range(60)], abs=1e-5)


def test_policer_passes_bucket_and_rate():
    link, passed = Link(most=0.0), 0
    for step in range(2000):  # twice the rate
        link.send(0.0005 * step, flow=1)
        flows, wait = link.take(0.0005 * step)
        passed += len(flows)
        assert wait == np.inf
    assert passed == pytest.approx(10 + 1000, abs=1)
    assert link.counters["drops"] == 2000 - passed


def test_plain_queue_drops_the_tail():
    link = Link(most=20 * SIZE)
    for i in range(60):
        link.send(0.0, flow=i)
    assert [flow for _, flow in link.empty(0.0)] == list(range(30))  # ten at once, and twenty that waited
    assert link.counters["drops"] == 30
    for step in range(1000):  # as long as it is not full it drops nothing, however long packets wait
        link.send(1 + 0.001 * step, flow=1)
        if step > 15:
            link.take(1 + 0.001 * step)
    assert link.counters["drops"] == 30
