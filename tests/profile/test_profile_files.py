"""Profiles and CSVs: what is written is read back, what is wrong is one clear line, nothing is lost."""

import codecs
import json
import math

import pytest

import queuemodel as qm
from queuemodel import example_profile, queueing
from queuemodel.base.files import (
    count_in,
    number_in,
    parse_bandwidth,
    parse_duration,
    parse_latency,
    parse_size,
    share_in,
)

STEP = {
    "step_time": 0.8, "fetch": 0.2, "compute": 0.5, "push": 0.1, "update": 0.01,
    "fetched_bytes": 2_000_000, "pushed_bytes": 1_000_000, "overlap": 0.05,
}  # fmt: skip
DOCUMENT = {
    "format": "queuemodel-profile", "version": 1, "source": {"framework": "tensorflow"},
    "cluster": {"workers": 1, "parameter_servers": 1, "bandwidth": None},
    "job": {"batch_size": 32, "parameter_bytes": 2_000_000, "tensors": 8}, "steps": [STEP, STEP],
}  # fmt: skip


def changed(path, value):
    document = json.loads(json.dumps(DOCUMENT))
    *parents, last = path
    place = document
    for key in parents:
        place = place[key]
    place[last] = value
    return document


def test_profile_round_trip(tmp_path):
    operations = [{"kind": "fetch", "name": "w", "start": 0.0, "end": 0.2, "bytes": 2_000_000},
                  {"kind": "compute", "name": "c", "start": 0.2, "end": 0.7, "after": [0]}]  # fmt: skip
    profile = qm.Profile.from_json(json.dumps(changed(("steps", 1, "operations"), operations)))
    assert profile.steps[1].operations[1] == qm.Operation("compute", "c", 0.2, 0.7, after=[0])
    profile.save(tmp_path / "p.json")
    assert qm.Profile.load(tmp_path / "p.json") == profile
    marked = tmp_path / "with a byte order mark.json"
    marked.write_bytes(codecs.BOM_UTF8 + (tmp_path / "p.json").read_bytes())
    assert qm.Profile.load(marked) == profile
    assert profile.values("fetch").tolist() == [0.2, 0.2]
    assert len(profile.to_frame()) == 2
    assert "step_time" in repr(profile)
    assert "<table" in profile._repr_html_()


def test_summary_separates_numbers_of_ranks():
    profile = example_profile("ddp-alexnet-40")
    means = {row["field"]: row["mean"] for row in profile.summary()}
    for ranks in (1, 2):
        own = [one for one in profile.rounds if one.ranks == ranks]
        for name in ("round_time", "computed"):
            mean = sum(getattr(one, name) for one in own) / len(own)
            assert means[f"{name} of {ranks} rank{'s'[: ranks > 1]}"] == pytest.approx(mean)


def operation(**fields):
    return [{"kind": "push", "name": "c", "start": 0, "end": 0.1} | fields]


#: What may be wrong where, and what is said of it.
BAD = {
    "steps.1.step_time": [(700_000.0, "microseconds"), (50_000.0, "microseconds"), (0, "step_time"), (-0.5, "-0.5")],
    "steps.1.fetch": [(-0.1, "fetch must be >= 0")], "steps.1.push": [(5.0, "push must not exceed step_time")],
    "steps.1.compute": [("0.5", "compute")],
    "steps.1.fetched_bytes": [(-1, "fetched_bytes"), (10**400, "fetched_bytes must be at most")],
    "steps.1.pushed_bytes": [(1.5, "pushed_bytes"),
                             (2**63, "pushed_bytes must be at most 1,000,000,000,000,000, got 9223372036854")],
    "steps.1.what": [(1, "unknown field `what`")],
    "steps.1.operations": [
        (operation(end=90), "within 100 times"), (operation(server=1), "server"), (operation(server=-1), "server"),
        (operation(bytes=2**63), "bytes"), (operation(after=[0]), "before it"), (operation(after=[-1]), "before it"),
    ],
    "steps": [([], "at least one step")],
    "job.batch_size": [(0, "batch_size must be a whole number of at least 1, got 0")],
    "job.shard_bytes": [([1, 2], "shard_bytes")], "job.dataset_size": [(0, "dataset_size")],
    "job.parameter_bytes": [(2**64, "parameter_bytes must be at most")],
    "cluster.workers": [(0, "workers"), (10**30, "workers must be at most 10,000")],
    "cluster.parameter_servers": [(5_000_000, "parameter_servers must be at most 1,000")],
    "cluster.bandwidth": [(0, "bandwidth"), (10.0, "10 Gbit/s are 1.25e9")],
    "version": [(2, "a newer queuemodel may read it"), (0, "version")],
    "format": [("queuemodel-network", "a queueing network; queuemodel solve takes it"),
               ("other", "format must be 'queuemodel-profile', got 'other'")],
    "throughputs": [([{"workers": 0, "steps_per_second": 1.0}], "workers"),
                    ([{"workers": 1, "steps_per_second": -1.0}], "steps_per_second")],
    "gradient_norms": [
        ([{"workers": [1.0], "mean": 1.0}], "two workers or more, got 1"),
        ([{"workers": [1.0, -1.0], "mean": 1.0}], "squared norm of a gradient must be finite"),
        ([{"workers": [1.0, 3.0], "mean": 2.1}], "at most the workers' mean, 2.0, got 2.1"),
        ([{"workers": [1.0] * n, "mean": 0.5} for n in (2, 3)], "gradient_norms must all be of as many workers"),
    ],
}  # fmt: skip
WHOLE = json.dumps(DOCUMENT)
DAMAGED = ["", "{", "[]", "null", "\x00\x01", WHOLE[:-40], '{"steps": NaN}', WHOLE.replace('"fetch"', '"push"', 1)]


@pytest.mark.parametrize(("text", "said"), [
    *((json.dumps(changed([int(key) if key.isdigit() else key for key in path.split(".")], value)), said)
      for path, wrong in BAD.items() for value, said in wrong),
    *((text, "") for text in DAMAGED),
    (WHOLE.replace('"step_time": ', '"step_time": 2.0, "step_time": ', 1), "key 'step_time' stands twice"),
])  # fmt: skip
def test_bad_profiles_name_the_field(tmp_path, text, said):
    file = tmp_path / "profile.json"
    file.write_text(text)
    with pytest.raises(qm.DataError) as error:
        qm.Profile.load(file)
    assert str(file) in str(error.value)
    assert said in str(error.value)


def test_noise_scale_of_recorded_gradients():
    norms = [{"workers": [5.0, 5.2], "mean": 3.0}, {"workers": [4.9, 5.1], "mean": 2.9}]
    known = qm.Profile.from_json(json.dumps(changed(("gradient_norms",), norms)))
    assert qm.Profile.from_json(known.to_json()) == known
    expected = qm.noise_scale([one["workers"] for one in norms], [3.0, 2.9], batch_size=known.job.batch_size)
    assert known.noise_scale().value == pytest.approx(expected.value)
    alike = [{"workers": [5.0, 5.0], "mean": 5.0}]
    for unknown in (changed(("gradient_norms",), alike), DOCUMENT):  # the same examples on both; an older profile
        assert qm.Profile.from_json(json.dumps(unknown)).noise_scale() is None


@pytest.mark.parametrize(("make", "message"), [
    (lambda: qm.Step(**(STEP | {"step_time": math.nan})), "step_time"),
    (lambda: qm.Operation("fetch", "w", 0.3, 0.2), "end must not be before its start"),
    (lambda: qm.Operation("push", "w", 0.0, 0.1, bytes=1.0), "bytes must be a whole number"),
    (lambda: qm.Operation("push", "w", 0.0, 0.1, server=1.0), "server must be a whole number"),
    (lambda: qm.Operation("send", "w", 0.0, 0.1), "kind must be one of fetch, compute"),
    (lambda: qm.Step(**STEP, operations=[qm.Operation("push", "x", 0, 0.1, after=["0"])]), "before it"),
    (lambda: qm.Step(**STEP, operations=[qm.Operation("push", "x", 0, 0.1, after=[0])]), "before it"),
])  # fmt: skip
def test_python_values_are_checked(make, message):
    with pytest.raises(qm.DataError, match=message):
        make()


def test_compressed_profiles_are_read(tmp_path):
    profile = qm.Profile.from_json(json.dumps(DOCUMENT))
    profile.save(tmp_path / "p.json.gz")
    packed = (tmp_path / "p.json.gz").read_bytes()
    assert packed[:2] == b"\x1f\x8b"
    assert qm.Profile.load(tmp_path / "p.json.gz") == profile
    for damaged in (packed[:-9], packed[:30], b"\x1f\x8b", b"{}", packed[:20] + b"\xff\xff" + packed[22:]):
        (tmp_path / "p.json.gz").write_bytes(damaged)
        with pytest.raises(qm.DataError, match=r"p\.json\.gz: damaged gzip file"):
            qm.Profile.load(tmp_path / "p.json.gz")


def test_other_suffixes_are_refused(tmp_path):
    profile, network = example_profile("alexnet-60"), queueing.Network([queueing.Station("server", service_time=0.3)])
    for save in (profile.save, network.save, queueing.solve(network, population=1).to_json):
        with pytest.raises(qm.DataError, match=r"x\.csv: the file name must end in one of \.json, \.json\.gz"):
            save(tmp_path / "x.csv")
        save(tmp_path / "without")
    assert [path.name for path in tmp_path.iterdir()] == ["without"]
    with pytest.raises(qm.DataError, match="cannot be read"):
        qm.Profile.load("a\0b")


@pytest.mark.parametrize("use", [qm.Profile.load, qm.read_measurements, example_profile().save])
def test_an_empty_name_is_no_file(use):
    with pytest.raises(qm.DataError, match=r"^'': a file's name must not be empty$"):
        use("")


@pytest.mark.parametrize("strategy", ["sync-ps", "all-reduce"])
def test_rounds_given_as_steps_warn(tmp_path, strategy):
    """Rounds slow down by a few percent where steps of all workers nearly double; asynchronous steps are no rounds."""
    file = tmp_path / "ddp.csv"
    file.write_text("workers,steps_per_second\n2,3.7\n1,4\n")
    points = qm.read_measurements(file)
    with pytest.warns(qm.QueueModelWarning, match="make 0.925 times .* call the column iterations_per_second"):
        qm.predict(points, strategy=strategy, workers=2)
    assert qm.predict(points, strategy="async-ps", workers=2).at(2) > 0  # a warning would be an error
    for text in ("rounds_per_second\n8,4\n16,1\n", "iterations_per_second\n2,1\n1,4\n", "step_time\n2,1\n1,.25\n"):
        file.write_text(f"workers,{text}")  # what counts is said
        assert qm.predict(qm.read_measurements(file), strategy=strategy, workers=2).at(2) > 0
    file.write_text("workers,rounds_per_second\n2,3.7\n1,4\n")
    curve = qm.predict(qm.read_measurements(file), strategy=strategy, workers=[1, 2])
    assert curve.iterations_per_second[1] == pytest.approx(3.7, rel=0.05)
    assert curve.speedup[1] == pytest.approx(2 * 3.7 / 4, rel=0.05)


GOOD = {
    parse_bandwidth: {
        "10Gbit/s": 1.25e9, "1.25 GB/s": 1.25e9, "800Mbps": 1e8, "60 Mbit/s": 7.5e6, 1000: 1000.0,
        **dict.fromkeys(["10gbps", "10 Gbps", "10Gb", "10gb/s", "10 Gbit", "10GbE", "10GBE", "10gige", "10 gigabit/s",
                         "10 Gbits per second", "1_0Gbit/sec", "10000 megabit/s", " 1e1Gb/s "], 1.25e9),
        "10GBps": 1e10, "10 gigabytes/s": 1e10, "1.5 kBytes/second": 1500.0,
    },
    parse_size: {"25 MB": 25e6, "4MiB": 4 * 2**20, 4e6: 4e6, "25 Mbytes": 25e6, "25 megabytes": 25e6, "1e6 byte": 1e6},
    parse_duration: {
        "90min": 5400.0, "2 h": 7200.0, "250ms": 0.25, 1.5: 1.5, "90 Minutes": 5400.0, "2hrs": 7200.0, "3 secs": 3.0,
        "1h30m": 5400.0, "1h 30min": 5400.0, "2m30s": 150.0, "12:00:00": 43200.0, "1 week": 604800.0, "5usec": 5e-6,
    },
}  # fmt: skip
NO_UNITS = {
    parse_bandwidth: ["10 meters", "fast", "-1Gbit/s", "0", "nan", "1e999", "", "1,000Mbit/s"],
    parse_size: ["3 apples", "10Gbit"],
    parse_duration: ["5 fortnights", "-3h", "1:30", "1h30", "1h3x", "1,5h", "0h0m", "4 months"],
}
MEANT = {
    parse_bandwidth: {"25G": "25Gbit/s or 25GB/s", "10 MB": "10Mbit/s or 10MB/s", "10GBPS": "10Gbit/s or 10GB/s"},
    parse_size: {"98mb": "98MB", "98M": "98MB", "1kb": "1kB", "2G": "2GB", "10MB/s": "10MB"},
    parse_duration: {"3m": "3min", "3M": "3min"},
    parse_latency: {"3m": "3ms"},
}
NUMBERS = {
    number_in: {"8": 8, " 1e8 ": 10**8, "100M": 10**8, "100 k": 10**5, "1B": 10**9, "1.1G": 11 * 10**8, "8.0": 8,
                "2.5": 2.5, "1_000": 1000, f"{2**64}": 2**64, "2,5": "2,5", "1,000": "1,000", "5m": "5m", "": ""},
    count_in: {"100,000,000": 10**8, "1,000": 1000, "0,125": "0,125", "1,00": "1,00", "1234,567": "1234,567", "7": 7},
    share_in: {"90%": 0.9, "90 %": 0.9, "0.9": 0.9, "90": 90, "x%": "x%"},
}  # fmt: skip
READINGS = {
    "3": (parse_duration, "3h, 3min or 3s"), " 1.5 ": (parse_duration, "1.5h, 1.5min or 1.5s"),
    "50": (parse_latency, "50us or 50ms"), "25": (parse_size, "25MB or 25B"),
    "10": (parse_bandwidth, "10Gbit/s or 10MB/s"),
}  # fmt: skip


@pytest.mark.parametrize("parse", GOOD)
def test_written_units_are_parsed(parse):
    for text, value in GOOD[parse].items():
        assert parse(text) == pytest.approx(value, rel=1e-12)
    for text in NO_UNITS[parse]:
        with pytest.raises(qm.DataError, match="like"):
            parse(text)
    for text, meant in MEANT[parse].items():
        with pytest.raises(qm.DataError, match=f"{parse.__name__[6:]} {text!r}: unknown unit; write {meant}$"):
            parse(text)
    for text, meant in MEANT[parse_latency].items():
        with pytest.raises(qm.DataError, match=f"unknown unit; write {meant}$"):
            parse_latency(text)
    for large in ("1e308Gbit/s", "1e-320bit/s", 1e300):
        with pytest.raises(qm.DataError, match="must be 1e-15 to"):
            parse_bandwidth(large)


@pytest.mark.parametrize("read", NUMBERS)
def test_numbers_as_people_write_them(read):
    for text, value in NUMBERS[read].items():
        assert (read(text), type(read(text))) == (value, type(value))


@pytest.mark.parametrize("text", READINGS)
def test_missing_units_list_their_readings(text):
    parse, readings = READINGS[text]
    with pytest.raises(qm.DataError, match=f"'{text}' has no unit; write {readings}$"):
        parse(text)
    for reading in readings.replace(" or ", ", ").split(", "):
        assert parse(reading) > 0
