"""Profiles as files: what is written is read back, what is wrong is one clear line, nothing is lost."""

import codecs
import io
import json
import math

import pytest

import queuemodel as qm
from queuemodel import example_profile, queueing
from queuemodel.profile import Bucket, Round

STEP = {
    "step_time": 0.8, "fetch": 0.2, "compute": 0.5, "push": 0.1, "update": 0.01,
    "fetched_bytes": 2_000_000, "pushed_bytes": 1_000_000, "overlap": 0.05,
}  # fmt: skip
ROUND = {"rank": 0, "ranks": 2, "number": 1, "round_time": 1.0, "computed": 0.9}
DOCUMENT = {
    "format": "queuemodel-profile", "version": 1, "source": {"framework": "tensorflow"},
    "cluster": {"workers": 1, "parameter_servers": 1, "bandwidth": None},
    "job": {"batch_size": 32, "parameter_bytes": 2_000_000, "tensors": 8}, "steps": [STEP, STEP],
}  # fmt: skip


def changed(path, value):
    """The document as text, with another value at a path like ``steps.1.fetch``."""
    document = json.loads(json.dumps(DOCUMENT))
    place, (*parents, last) = document, [int(key) if key.isdigit() else key for key in path.split(".")]
    for key in parents:
        place = place[key]
    place[last] = value
    return json.dumps(document)


def read(path, value):
    return qm.Profile.from_json(changed(path, value))


def test_profile_round_trip(tmp_path):
    operations = [{"kind": "fetch", "name": "w", "start": 0.0, "end": 0.2, "bytes": 2_000_000},
                  {"kind": "compute", "name": "c", "start": 0.2, "end": 0.7, "after": [0]}]  # fmt: skip
    profile = read("steps.1.operations", operations)
    assert profile.steps[1].operations[1] == qm.Operation("compute", "c", 0.2, 0.7, after=[0])
    for name in ("p.json", "p.json.gz"):
        profile.save(tmp_path / name)
        assert qm.Profile.load(tmp_path / name) == profile
    marked, packed = tmp_path / "with a byte order mark.json", (tmp_path / "p.json.gz").read_bytes()
    marked.write_bytes(codecs.BOM_UTF8 + (tmp_path / "p.json").read_bytes())
    assert qm.Profile.load(marked) == profile
    assert packed[:2] == b"\x1f\x8b"
    for damaged in (packed[:-9], packed[:30], b"\x1f\x8b", b"{}", packed[:20] + b"\xff\xff" + packed[22:]):
        (tmp_path / "p.json.gz").write_bytes(damaged)
        with pytest.raises(qm.DataError, match=r"p\.json\.gz: damaged gzip file"):
            qm.Profile.load(tmp_path / "p.json.gz")
    assert profile.values("fetch").tolist() == [0.2, 0.2]
    assert len(profile.to_frame()) == 2
    assert "step_time" in repr(profile)
    assert "<table" in profile._repr_html_()


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
    *((changed(path, value), said) for path, wrong in BAD.items() for value, said in wrong),
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
    known = read("gradient_norms", norms)
    assert qm.Profile.from_json(known.to_json()) == known
    expected = qm.noise_scale([one["workers"] for one in norms], [3.0, 2.9], batch_size=known.job.batch_size)
    assert known.noise_scale().value == pytest.approx(expected.value)
    assert read("gradient_norms", [{"workers": [5.0, 5.0], "mean": 5.0}]).noise_scale() is None  # the same examples
    assert qm.Profile.from_json(WHOLE).noise_scale() is None  # an older profile


@pytest.mark.parametrize(("make", "message"), [
    (lambda: qm.Step(**(STEP | {"step_time": math.nan})), "step_time"),
    (lambda: qm.Operation("fetch", "w", 0.3, 0.2), "end must not be before its start"),
    (lambda: qm.Operation("push", "w", 0.0, 0.1, bytes=1.0), "bytes must be a whole number"),
    (lambda: qm.Operation("push", "w", 0.0, 0.1, server=1.0), "server must be a whole number"),
    (lambda: qm.Operation("send", "w", 0.0, 0.1), "kind must be one of fetch, compute"),
    (lambda: qm.Step(**STEP, operations=[qm.Operation("push", "x", 0, 0.1, after=["0"])]), "before it"),
    *((lambda change=change: Round(**ROUND | change), said) for change, said in (
        ({"rank": 2}, "rank"), ({"round_time": -1.0}, "round_time"), ({"round_time": 1e6}, "round_time"),
        ({"computed": 1.01}, "within round_time"),
        ({"buckets": [Bucket(1, 0.9, 0.9, 1.0), Bucket(1, 0.1, 0.1, 0.2)]}, "order"))),
    (lambda: qm.Step(**STEP, operations=[qm.Operation("push", "x", 0, 0.1, after=[0])]), "before it"),
])  # fmt: skip
def test_python_values_are_checked(make, message):
    with pytest.raises(qm.DataError, match=message):
        make()


def test_other_suffixes_are_refused(tmp_path):
    profile, network = example_profile("alexnet-60"), queueing.Network([queueing.Station("server", service_time=0.3)])
    for save in (profile.save, network.save, queueing.solve(network, population=1).to_json):
        with pytest.raises(qm.DataError, match=r"x\.csv: the file name must end in one of \.json, \.json\.gz"):
            save(tmp_path / "x.csv")
        save(tmp_path / "without")
    assert [path.name for path in tmp_path.iterdir()] == ["without"]
    with pytest.raises(qm.DataError, match="cannot be read"):
        qm.Profile.load("a\0b")
    for use in (qm.Profile.load, qm.read_measurements, profile.save):
        with pytest.raises(qm.DataError, match=r"^'': a file's name must not be empty$"):
            use("")


@pytest.mark.parametrize("strategy", ["sync-ps", "all-reduce"])
def test_rounds_given_as_steps_warn(strategy):
    """Rounds slow down by a few percent where steps of all workers nearly double; asynchronous steps are no rounds."""

    def predicted(text, **asked):
        return qm.predict(qm.read_measurements(io.StringIO(f"workers,{text}\n")), **({"strategy": strategy} | asked))

    with pytest.warns(qm.QueueModelWarning, match="make 0.925 times .* call the column iterations_per_second"):
        predicted("steps_per_second\n2,3.7\n1,4", workers=2)
    assert predicted("steps_per_second\n2,3.7\n1,4", workers=2, strategy="async-ps").at(2) > 0  # no warning: an error
    for text in ("rounds_per_second\n8,4\n16,1", "iterations_per_second\n2,1\n1,4", "step_time\n2,1\n1,.25"):
        assert predicted(text, workers=2).at(2) > 0  # what counts is said
    curve = predicted("rounds_per_second\n2,3.7\n1,4", workers=[1, 2])
    assert curve.iterations_per_second[1] == pytest.approx(3.7, rel=0.05)
    assert curve.speedup[1] == pytest.approx(2 * 3.7 / 4, rel=0.05)
