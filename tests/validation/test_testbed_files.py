"""The testbed's workload files and recorded series: read and checked without a network."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from validation.series import folder_of_trace
from validation.testbed.probe import connections
from validation.testbed.recordings import pack, unpacked
from validation.testbed.workload import TestbedError, read_workload

TESTBED = Path(__file__).parents[2] / "validation" / "testbed"
ROUNDS = sorted(unpacked(TESTBED / "rounds" / "series").iterdir())
SERIES = sorted(
    (path.parent for place in ("series", "blind") for path in unpacked(TESTBED / place).glob("*/links.json")),
    key=lambda folder: folder.name,
)


@pytest.mark.parametrize("file", sorted(TESTBED.glob("workloads/*.json")), ids=lambda file: file.stem)
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
    ],
    "learn-tiny": [
        ({"learn": {"examples": 10}}, "batch_size"), ({"mode": "async"}, "learn needs mode"),
        ({"layers": [LAYER]}, "perceptron"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("good", "change", "word"), [(name, *bad) for name, own in BAD.items() for bad in own])
def test_a_workload_that_cannot_be_is_refused_in_one_line(tmp_path, good, change, word):
    file, known = tmp_path / "bad.json", json.loads((TESTBED / "workloads" / f"{good}.json").read_text())
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
def test_every_recorded_series_of_rounds_is_whole(folder):
    workload = read_workload(folder / "workload.json")
    assert json.loads((folder / "job.json").read_text()) == workload.job()
    rows = json.loads((folder / "measured.json").read_text())
    assert [row["workers"] for row in rows] == [1, 2, 3, 4, 6, 8]
    for row in rows:
        n, rates = row["workers"], [workload.bandwidth_mbit, workload.slow_link_mbit or workload.bandwidth_mbit]
        least = max(workload.compute_s, 2 * (n - 1) / n * workload.model_bytes / (min(rates) * 125_000) if n > 1 else 0)
        assert 0 < row["group_steps_per_s"] < 1.02 / least  # no ring is faster than the slowest link lets it be
        assert len(row["round_s"]) == row["steps"]
        assert row["group_steps_per_s"] == pytest.approx(row["steps"] / sum(row["round_s"]), rel=1e-3)
    assert [len(list(folder.glob(f"trace_n{n}/rank*"))) for n in (1, 2)] == [1, 2]


def test_packing_keeps_every_file_and_depends_on_nothing_else(tmp_path):
    (source,) = (folder for folder in ROUNDS if folder.name == "mirrored-alexnet-60")
    for name in ("a", "b"):
        shutil.copytree(source, tmp_path / name / "series", copy_function=shutil.copyfile)
        pack(tmp_path / name / "series")
    first, second = (tmp_path / name / "series.tar.xz" for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    again = unpacked(tmp_path / "a") / "series"
    files = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()]
    assert files == [path.relative_to(again) for path in sorted(again.rglob("*")) if path.is_file()]
    assert all((source / file).read_bytes() == (again / file).read_bytes() for file in files)


def test_what_ss_says_is_read():
    text = (
        "ESTAB 0 574396 [::ffff:10.77.0.10]:2222 [::ffff:10.77.0.101]:56788\n"
        "\t bbr wscale:10,10 rto:224 rtt:20.131/3.304 cwnd:26 bytes_sent:386 bytes_retrans:208 unacked:3 minrtt:0.01\n"
    )
    (row,) = connections(text).values()
    assert row["algorithm"] == "bbr"
    assert (row["unsent"], row["rtt_ms"], row["minrtt_ms"], row["cwnd"]) == (574396, 20.131, 0.01, 26)
    assert (row["bytes_sent"], row["bytes_retrans"], row["bytes_received"]) == (386, 208, 0)
