"""What-ifs: known relative to the profile, in any order; what the data do not say, or no rule covers, is refused."""

import itertools
import math
from functools import reduce

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel import example_profile
from tests.oracles.jobs_by_hand import profile, step

CSV = [qm.Measurement(workers=n, steps_per_second=x) for n, x in ((1, 1.0), (2, 1.9), (4, 3.0), (8, 3.3))]
LOOPBACK = {"ps:0": "127.0.0.1:1", "worker:0": "localhost:2"}
LINK, SHAPED = 20e6, 10e6  # bytes per second; 0.95 of them carry tensors


def same(one, other):
    for name in ("steps_per_second", "lower", "upper", "residence_time", "think_time", "bound_lower", "bound_upper"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12, err_msg=name)


def wire(size, bandwidth):
    return size / (0.95 * bandwidth)


def dealt(*sizes):
    """Steps whose operations fetch tensors of these sizes, named in this order."""
    fetches = [qm.Operation("fetch", f"w{i}", 0.0, 0.2, size) for i, size in enumerate(sizes)]
    return {"steps": [msgspec.structs.replace(step(), operations=[*fetches[1:], fetches[0]])] * 2}


HIDDEN = {"steps": [step(overlap=0.15)] * 3}  # 0.66 s: 0.35 of 0.5 s of computation is not hidden
#: Fetches of 2 MB in 0.2 s and pushes of 1 MB in 0.1 s after LINK's part, on a link of 40 MB/s instead of SHAPED's.
HOST = 0.2 - min(0.2, wire(2e6, SHAPED)), max(0.0, 0.1 - wire(1e6, SHAPED))
FAST = HOST[0] + wire(2e6, 40e6), HOST[1] + wire(1e6, 40e6)
ONLY = wire(2e6, 40e6), wire(1e6, 40e6)

#: A job, a change, and what follows: seconds of one worker's step, and of the busiest station's part of it.
LAWS = {
    "ten times the bandwidth": ({"bandwidth": LINK}, {"bandwidth": 10 * LINK},
                                0.81 - 0.9 * wire(3e6, LINK), 0.2 - 0.9 * wire(2e6, LINK)),
    "only fetches have bytes": (
        {"bandwidth": LINK, "steps": [msgspec.structs.replace(step(), pushed_bytes=0)] * 3}, {"bandwidth": 10 * LINK},
        0.81 - 0.9 * wire(2e6, LINK), 0.2 - 0.9 * wire(2e6, LINK)),
    "half the bandwidth, slower one way": (
        {"steps": [step(fetch=0.3, push=0.1)] * 3, "bandwidth": LINK}, {"bandwidth": LINK / 2},
        0.91 + wire(3e6, LINK), 0.3 + wire(2e6, LINK)),
    "a link after loopback": ({"hosts": LOOPBACK}, {"bandwidth": 50e6},
                              0.81 + wire(3e6, 50e6), 0.2 + wire(2e6, 50e6)),
    "a faster link hides less": (HIDDEN | {"bandwidth": SHAPED}, {"bandwidth": 40e6},
                                 sum(FAST) + 0.01 + 0.35 + 0.15 * (1 - sum(FAST) / 0.3), FAST[0]),
    "an unknown link was all of it": (HIDDEN, {"bandwidth": 40e6},
                                      sum(ONLY) + 0.01 + 0.35 + 0.15 * (1 - sum(ONLY) / 0.3), ONLY[0]),
    "even shards": ({}, {"shards": [1, 1]}, 0.81, 0.2 / 2),
    "uneven shards": ({}, {"shards": [3, 1]}, 0.81, 0.2 * 0.75),
    "tensors of unknown sizes": ({}, {"parameter_servers": 5}, 0.81, 0.2 * 5**-0.8),
    "tensors dealt in turn to two": (dealt(300, 100, 200), {"parameter_servers": 2}, 0.81, 0.2 * 5 / 6),
    "tensors dealt in turn to three": (dealt(300, 100, 200), {"parameter_servers": 3}, 0.81, 0.2 * 3 / 6),
    "faster accelerators": (HIDDEN, {"accelerator_speed": 2}, 0.66 - 0.25, 0.2),
    "accelerators without end": (HIDDEN, {"accelerator_speed": 1e6}, 0.31, 0.2),
    "larger batches": (HIDDEN, {"batch_size": 64}, 0.66 + 0.5, 0.2),
    "larger batches on faster accelerators": (HIDDEN, {"batch_size": 64, "accelerator_speed": 4}, 0.66 - 0.25, 0.2),
    "slower workers": (HIDDEN, {"worker_speeds": [0.5] * 300}, 0.66 + 0.5, 0.2),
}  # fmt: skip


@pytest.mark.parametrize("law", LAWS)
def test_changes_scale_their_demands(law):
    recorded, change, alone, busiest = LAWS[law]
    model = qm.fit(profile(**recorded))
    plain, curve = model.throughput([1, 300]), model.what_if(**change).throughput([1, 300])
    assert curve.at(1) == pytest.approx(1 / alone, rel=1e-4)
    assert curve.at(300) == pytest.approx(1 / busiest, rel=0.01)
    moved = np.abs(np.log(curve.steps_per_second / plain.steps_per_second))
    assert moved.max() > 0.1, "a model that ignores the change would pass"
    assert curve.batch_size == change.get("batch_size", 32)
    assert curve.parameter_servers == change.get("parameter_servers", len(change.get("shards", [1])))


def test_each_server_has_its_stations():
    curve = qm.fit(profile()).what_if(shards=[3, 1]).throughput([1, 2])
    seconds = {"transmit link": 0.2, "receive link": 0.1, "server update": 0.01}
    expected = {f"{name} {k}": D * share for name, D in seconds.items() for k, share in ((0, 0.75), (1, 0.25))}
    assert dict(zip(curve.stations, curve.utilization[0] / curve.at(1), strict=True)) == pytest.approx(expected)


BAD = {
    "bandwidth": [0, -1.0, math.nan, math.inf, "fast", 10],  # 10: Gbit/s were meant
    "parameter_servers": [0, 1.5], "batch_size": [0, 2.5], "accelerator_speed": [0],
    "worker_speeds": [[1.0, -1.0], 2.0, [], itertools.count(1)], "shards": [[0, 1], [1] * 1001],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_bad_changes_are_one_line(name, value):
    with pytest.raises(qm.ModelError, match=name):
        qm.fit(profile()).what_if(**{name: value})


def test_contradictory_servers_and_shards():
    with pytest.raises(qm.ModelError, match="shards"):
        qm.fit(profile()).what_if(shards=[1, 1], parameter_servers=3)
    with pytest.raises(qm.ModelError, match="at most the number of tensors, 3, got 4"):
        qm.fit(profile(**dealt(300, 100, 200))).what_if(parameter_servers=4)


CHANGES = [
    {"accelerator_speed": 10.0}, {"accelerator_speed": 0.1}, {"bandwidth": 1e9}, {"batch_size": 64},
    {"worker_speeds": [1.0, 0.5, 2.0, 1.0]},
]  # fmt: skip


@settings(max_examples=40)
@given(chosen=st.lists(st.sampled_from(CHANGES), min_size=2, max_size=5, unique_by=id), data=st.data())
def test_the_order_does_not_matter(chosen, data):
    def after(changes):
        model = qm.fit(profile([step(overlap=0.15)] * 3, bandwidth=20e6))
        return reduce(lambda changed, change: changed.what_if(**change), changes, model).throughput([1, 2, 4])

    same(after(chosen), after(data.draw(st.permutations(chosen))))


def test_asking_again_replaces():
    model = qm.fit(profile([step()] * 3, bandwidth=20e6))
    for name, first, second in (
        ("bandwidth", 1e9, 1e8), ("batch_size", 64, 16), ("parameter_servers", 4, 2), ("shards", [1, 1, 1], [3, 1]),
        ("worker_speeds", [2.0, 1.0], [0.5, 1.0]),
    ):  # fmt: skip
        changed = model.what_if(**{name: first}).what_if(**{name: second})
        same(changed.throughput([1, 2]), model.what_if(**{name: second}).throughput([1, 2]))
    even, plain = (one.what_if(parameter_servers=2) for one in (model.what_if(shards=[3, 1]), model))
    same(even.throughput([1, 9]), plain.throughput([1, 9]))


@pytest.mark.parametrize("servers", [1, 2])
def test_equal_speeds_are_accelerator_speeds(servers):
    for model, speed in ((qm.fit(profile(bandwidth=20e6)), 1.0), (qm.fit(profile()), 0.5)):
        plain = model.what_if(parameter_servers=servers)
        alike = plain.what_if(worker_speeds=[speed] * 8)
        if speed != 1.0:
            plain = plain.what_if(accelerator_speed=speed)
        same(alike.throughput(range(1, 9)), plain.throughput(range(1, 9)))
        assert alike.throughput([2]).method == plain.throughput([2]).method
        with pytest.raises(qm.ModelError, match="at most 8"):
            alike.throughput([9])


@pytest.mark.parametrize("change", [*CHANGES[:4], {"worker_speeds": [1.0, 0.5]}, {"shards": [1, 1]}])
def test_changed_job_drops_measurements(change):
    """Measurements, profiled range and origins are the profile's; elsewhere the model's own error counts."""
    measured = [qm.Measurement(workers=n, steps_per_second=x) for n, x in ((1, 1.2), (2, 2.2), (4, 3.6))]
    model = qm.fit(profile(bandwidth=20e6, throughputs=measured))
    changed = model.what_if(**change)
    before, after = model.throughput([1, 2]), changed.throughput([1, 2])
    assert (before.profiled_workers, after.profiled_workers) == (4, 0)
    assert before.measured
    assert not after.measured
    assert "not measured" in after.caption()
    assert "measured" not in after.to_rows()[0]
    assert np.all(after.upper / after.steps_per_second > 1.1)
    assert before.upper[0] / before.steps_per_second[0] < 1.1
    assert {p.origin for p in changed.parameters if "link demand" in p.name} == {"derived"}


def test_parameters_follow_the_changes():
    model = qm.fit(profile(bandwidth=LINK)).what_if(bandwidth=10 * LINK, accelerator_speed=2, batch_size=64)
    values, fetch = {p.name: p.value for p in model.parameters}, 0.2 - 0.9 * wire(2e6, LINK)
    assert values["transmit link demand"] == pytest.approx(fetch)
    assert values["effective bandwidth down"] == pytest.approx(2_000_000 / fetch)
    assert values["worker time"] == pytest.approx(0.5)


def test_measurements_belong_to_their_servers():
    model = qm.fit([*CSV, qm.Measurement(workers=2, steps_per_second=3.0, parameter_servers=2)])
    one, two = (model.what_if(parameter_servers=n).throughput([1, 2]) for n in (1, 2))
    assert (one.measured[:2], one.profiled_workers) == (((1, 1.0), (2, 1.9)), 8)
    assert (two.measured, two.profiled_workers) == (((2, 3.0),), 2)
    assert model.what_if(parameter_servers=3).throughput([1]).profiled_workers == 0


@pytest.mark.parametrize("bandwidth", [125e6, None])
def test_undone_changes_are_no_change(bandwidth):
    model = qm.fit(profile(HIDDEN["steps"], bandwidth=bandwidth))
    own = {"bandwidth": bandwidth, "batch_size": 32, "accelerator_speed": 1.0, "parameter_servers": 1}
    for back in (
        model.what_if(**own, worker_speeds=[1.0] * 4),
        *(model.what_if(accelerator_speed=f).what_if(accelerator_speed=1 / f) for f in (49.0, 0.3)),
    ):
        same(back.throughput([1, 4]), model.throughput([1, 4]))
        assert back.throughput([1]).profiled_workers == 1


@pytest.mark.parametrize("name", ["alexnet-60", "resnet50-60"])
def test_computation_bounds_the_step(name):
    recorded = example_profile(name)
    model = qm.fit(recorded)
    steps = [1 / model.what_if(bandwidth=b * 125e6).throughput([1]).at(1) for b in (0.1, 1, 10, 1e6)]
    assert all(earlier > later for earlier, later in itertools.pairwise(steps))
    assert steps[-1] == pytest.approx(recorded.values("compute").mean(), rel=0.01)
