"""What-ifs: told against the profile, in any order; what the data do not tell, or no rule covers, is refused."""

import itertools
import math
from functools import reduce

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs_by_hand import profile, step

import queuemodel as qm
from queuemodel.data import example_profile

CSV = [qm.Throughput(workers=n, steps_per_second=x) for n, x in ((1, 1.0), (2, 1.9), (4, 3.0), (8, 3.3))]


def same(one, other):
    for name in ("steps_per_second", "lower", "upper", "residence_time", "think_time", "bound_lower", "bound_upper"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12, err_msg=name)


def test_bandwidth_replaces_the_links_part_only():
    nominal = 20e6
    model = qm.fit(profile(bandwidth=nominal))
    wire = 2_000_000 / (0.95 * nominal)
    faster = model.what_if(bandwidth=10 * nominal)
    assert faster.demands.fetch == pytest.approx(0.2 - wire + wire / 10)
    assert model.what_if(bandwidth=nominal).demands.fetch == pytest.approx(model.demands.fetch)
    slower = model.what_if(bandwidth=nominal / 10).throughput([8]).steps_per_second
    assert slower < model.throughput([8]).steps_per_second < faster.throughput([8]).steps_per_second


def test_loopback_keeps_the_hosts_cost_when_a_link_is_added():
    model = qm.fit(profile(hosts={"ps:0": "127.0.0.1:1", "worker:0": "localhost:2"})).what_if(bandwidth=125e6)
    assert model.demands.fetch == pytest.approx(0.2 + 2_000_000 / (0.95 * 125e6))


def test_two_even_servers_double_the_capacity():
    model = qm.fit(profile())
    two = model.what_if(shards=[1, 1])
    assert two.parameter_servers == 2
    assert two.throughput([1]).steps_per_second == pytest.approx(model.throughput([1]).steps_per_second)
    assert two.throughput([200]).steps_per_second[0] == pytest.approx(2 / 0.2, rel=1e-2)
    uneven = model.what_if(shards=[3, 1]).throughput([200])
    assert uneven.steps_per_second[0] == pytest.approx(1 / (0.75 * 0.2), rel=1e-3)
    assert uneven.bottleneck == "transmit link 0"


def test_batch_and_accelerator_change_the_computation():
    model = qm.fit(profile([step(overlap=0.15)]))
    assert model.what_if(accelerator_speed=2).demands.worker == pytest.approx(0.35 - 0.25)
    double = model.what_if(batch_size=64)
    assert double.demands.worker == pytest.approx(0.35 + 0.5)
    assert double.throughput([1]).batch_size == 64
    assert model.what_if(accelerator_speed=1e6).demands.worker == 0


@pytest.mark.parametrize(
    "change",
    [
        {"bandwidth": 0}, {"bandwidth": -1.0}, {"bandwidth": math.nan}, {"bandwidth": math.inf}, {"bandwidth": "fast"},
        {"bandwidth": 10},  # Gbit/s were meant
        {"parameter_servers": 0}, {"parameter_servers": 1.5}, {"batch_size": 0}, {"batch_size": 2.5},
        {"accelerator_speed": 0}, {"worker_speeds": [1.0, -1.0]}, {"worker_speeds": 2.0}, {"worker_speeds": []},
        {"shards": [0, 1]}, {"shards": [1] * 1001}, {"worker_speeds": itertools.count(1)},
        {"shards": [1, 1], "parameter_servers": 3},
    ],
)  # fmt: skip
def test_bad_what_ifs_are_one_clear_line(change):
    with pytest.raises(qm.ModelError) as error:
        qm.fit(profile()).what_if(**change)
    assert next(iter(change)) in str(error.value)
    assert "\n" not in str(error.value)


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


def test_a_factor_undone_gives_the_profile_back():
    model = qm.fit(profile([step(overlap=0.15)] * 3))
    for factor in (10.0, 49.0, 0.3):
        back = model.what_if(accelerator_speed=factor).what_if(accelerator_speed=1 / factor).throughput([1, 4])
        same(back, model.throughput([1, 4]))
        assert back.profiled_workers == 1


def test_larger_batches_on_faster_accelerators_are_other_machines_for_the_same_step():
    model = qm.fit(profile())
    changed = model.what_if(batch_size=64, accelerator_speed=2).throughput([1, 4])
    np.testing.assert_allclose(changed.steps_per_second, model.throughput([1, 4]).steps_per_second, rtol=1e-12)
    assert (changed.batch_size, changed.profiled_workers) == (64, 0)


def test_asking_again_replaces():
    model = qm.fit(profile([step()] * 3, bandwidth=20e6))
    for name, first, second in (
        ("bandwidth", 1e9, 1e8), ("batch_size", 64, 16), ("parameter_servers", 4, 2), ("shards", [1, 1, 1], [3, 1]),
        ("worker_speeds", [2.0, 1.0], [0.5, 1.0]),
    ):  # fmt: skip
        changed = model.what_if(**{name: first}).what_if(**{name: second})
        same(changed.throughput([1, 2]), model.what_if(**{name: second}).throughput([1, 2]))
    even = model.what_if(shards=[3, 1]).what_if(parameter_servers=2)
    assert even.shards == pytest.approx(model.what_if(parameter_servers=2).shards)


@pytest.mark.parametrize("servers", [1, 2])
def test_workers_of_speed_one_change_nothing(servers):
    plain = qm.fit(profile(bandwidth=20e6)).what_if(parameter_servers=servers)
    ones = plain.what_if(worker_speeds=[1.0] * 8)
    same(ones.throughput(range(1, 9)), plain.throughput(range(1, 9)))
    assert ones.throughput([2]).method == plain.throughput([2]).method
    with pytest.raises(qm.ModelError, match="at most 8"):
        ones.throughput([9])


def test_workers_of_one_other_speed_are_other_accelerators():
    model = qm.fit(profile()).what_if(parameter_servers=2)
    slow = model.what_if(worker_speeds=[0.5] * 4).throughput([1, 4])
    same(slow, model.what_if(accelerator_speed=0.5).throughput([1, 4]))


def test_a_hundred_different_speeds():
    model = qm.fit(profile()).what_if(worker_speeds=np.linspace(0.5, 1.5, 100))
    curve = model.throughput(range(1, 101))
    assert np.all(curve.bound_lower <= curve.steps_per_second * (1 + 1e-12))
    assert np.all(curve.steps_per_second <= curve.bound_upper * (1 + 1e-12))
    total = curve.residence_time.sum(axis=1) + curve.think_time
    np.testing.assert_allclose(total, curve.workers / curve.steps_per_second, rtol=1e-9)
    assert curve.at(100) == pytest.approx(1 / 0.2, rel=0.01)
    slower = qm.fit(profile()).what_if(worker_speeds=np.linspace(0.49, 1.47, 100)).throughput(range(1, 101))
    assert np.all(slower.steps_per_second[:30] < curve.steps_per_second[:30])


@pytest.mark.parametrize(
    "change",
    [{"bandwidth": 1e9}, {"accelerator_speed": 2.0}, {"batch_size": 64}, {"worker_speeds": [1.0, 0.5]}],
)
def test_throughputs_do_not_tell_what_other_machines_buy(change):
    for model in (qm.fit(CSV), qm.fit(profile([], throughputs=CSV))):
        with pytest.raises(qm.ModelError, match=f"{next(iter(change))} needs a profile with recorded steps"):
            model.what_if(**change)


@pytest.mark.parametrize("change", [*CHANGES[:4], {"worker_speeds": [1.0, 0.5]}, {"shards": [1, 1]}])
def test_a_changed_job_leaves_what_was_measured_behind(change):
    """Measurements, profiled range and origins are the profile's; elsewhere the model's own error counts."""
    measured = [qm.Throughput(workers=n, steps_per_second=x) for n, x in ((1, 1.2), (2, 2.2), (4, 3.6))]
    model = qm.fit(profile(bandwidth=20e6, throughputs=measured))
    changed = model.what_if(**change)
    before, after = model.throughput([1, 2]), changed.throughput([1, 2])
    assert (before.profiled_workers, after.profiled_workers) == (4, 0)
    assert before.measured
    assert not after.measured
    assert "nothing was profiled" in after.caption()
    assert "measured" not in after.to_rows()[0]
    assert np.all(after.upper / after.steps_per_second > 1.1)
    assert before.upper[0] / before.steps_per_second[0] < 1.1
    assert {p.origin for p in changed.parameters if "link demand" in p.name} == {"derived"}


def test_parameters_are_those_of_the_changed_job():
    model = qm.fit(profile(bandwidth=20e6)).what_if(bandwidth=200e6, accelerator_speed=2, batch_size=64)
    values = {p.name: p.value for p in model.parameters}
    assert values["transmit link demand"] == pytest.approx(model.demands.fetch)
    assert values["effective bandwidth down"] == pytest.approx(2_000_000 / model.demands.fetch)
    assert values["worker time"] == pytest.approx(model.demands.worker)
    assert model.job.batch_size == 64


def test_what_was_measured_with_as_many_servers_belongs_to_them():
    points = [qm.Throughput(workers=2, steps_per_second=3.0, parameter_servers=2)]
    model = qm.fit([*CSV, *points])
    one, two = (model.what_if(parameter_servers=n).throughput([1, 2]) for n in (1, 2))
    assert (one.measured[:2], one.profiled_workers) == (((1, 1.0), (2, 1.9)), 8)
    assert (two.measured, two.profiled_workers) == (((2, 3.0),), 2)
    assert model.what_if(parameter_servers=3).throughput([1]).profiled_workers == 0


@pytest.mark.parametrize("bandwidth", [125e6, None])
def test_the_profiled_machines_are_no_change(bandwidth):
    model = qm.fit(profile(bandwidth=bandwidth, batch_size=32))
    same_machines = model.what_if(
        bandwidth=bandwidth, batch_size=32, accelerator_speed=1.0, parameter_servers=1, worker_speeds=[1.0] * 4
    )
    same(same_machines.throughput([1, 4]), model.throughput([1, 4]))
    assert same_machines.throughput([1]).profiled_workers == 1


def dealt(*sizes):
    """A profile of two steps whose operations fetch tensors of these sizes, named in this order."""
    fetches = [qm.Operation("fetch", f"w{i}", 0.0, 0.2, size) for i, size in enumerate(sizes)]
    recorded = step()
    return profile([msgspec.structs.replace(recorded, operations=fetches[::-1])] * 2)


def test_tensors_are_dealt_in_turn():
    model = qm.fit(dealt(300, 100, 200))
    assert model.what_if(parameter_servers=2).shards == pytest.approx((500 / 600, 100 / 600))
    assert model.what_if(parameter_servers=3).shards == pytest.approx((3 / 6, 1 / 6, 2 / 6))
    with pytest.raises(qm.ModelError, match="at most the number of tensors, 3, got 4"):
        model.what_if(parameter_servers=4)


@pytest.mark.parametrize("servers", [2, 5])
def test_tensors_of_unknown_sizes_are_dealt_unevenly(servers):
    shards = qm.fit(profile()).what_if(parameter_servers=servers).shards
    assert sum(shards) == pytest.approx(1)
    assert shards[0] == pytest.approx(servers**-0.8)
    assert shards[1:] == pytest.approx([shards[1]] * (servers - 1))


@pytest.mark.parametrize("known", [True, False])
def test_a_faster_link_hides_less_computation(known):
    """By hand: 0.15 of 0.5 s hidden behind 0.3 s of transfers; where no link is known, it made up all of their time."""
    nominal = 10e6
    model = qm.fit(profile([step(overlap=0.15)], bandwidth=nominal if known else None)).what_if(bandwidth=40e6)
    wire = np.array([2e6, 1e6]) / 0.95
    host = np.array([0.2, 0.1]) - wire / nominal if known else 0.0
    host = np.maximum(host, 0.0)
    fetch, push = host + wire / 40e6
    assert (model.demands.fetch, model.demands.push) == pytest.approx((fetch, push))
    assert model.demands.worker == pytest.approx(0.35 + 0.15 * (1 - (fetch + push) / 0.3))


@pytest.mark.parametrize("name", ["alexnet-60", "resnet50-60"])
def test_a_step_takes_at_least_its_computation_however_fast_the_network(name):
    recorded = example_profile(name)
    model = qm.fit(recorded)
    steps = [1 / model.what_if(bandwidth=b * 125e6).throughput([1]).at(1) for b in (0.1, 1, 10, 1e6)]
    assert all(earlier > later for earlier, later in itertools.pairwise(steps))
    assert steps[-1] == pytest.approx(recorded.values("compute").mean(), rel=0.01)


def test_a_link_that_is_slower_one_way_slows_that_direction():
    """Fetches of 2 MB, pushes of 1 MB: on a link of 20 MB/s both take what their bytes take, beyond the hosts' part."""
    model = qm.fit(profile([step(fetch=0.3, push=0.1)] * 3, bandwidth=20e6))
    slower = model.what_if(bandwidth=10e6)
    added = slower.demands.fetch - model.demands.fetch, slower.demands.push - model.demands.push
    assert added == pytest.approx((2e6 / 0.95 * (1 / 10e6 - 1 / 20e6), 1e6 / 0.95 * (1 / 10e6 - 1 / 20e6)), rel=1e-6)
