"""The question about a job: its texts and refusals; what-ifs in any order; other traffic; sliders that ask the same."""

import itertools
import sys
from functools import reduce
from typing import get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel import example_profile, example_throughputs
from queuemodel.models import SCHEMES
from queuemodel.profile.scenario import SYNONYMS, Changes
from queuemodel.sgd import compare
from queuemodel.transport import COLLECTIVES
from tests.oracles.jobs_by_hand import profile, step

RANKS = example_profile("ddp-alexnet-40")
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
ONE_WAY = {"steps": [msgspec.structs.replace(step(), pushed_bytes=0)] * 3, "bandwidth": LINK}
SLOW_FETCH = {"steps": [step(fetch=0.3, push=0.1)] * 3, "bandwidth": LINK}
#: Fetches of 2 MB in 0.2 s and pushes of 1 MB in 0.1 s, on a link of 40 MB/s: after what SHAPED's leaves, or nothing.
ONLY = wire(2e6, 40e6), wire(1e6, 40e6)
FAST = 0.2 - min(0.2, wire(2e6, SHAPED)) + ONLY[0], max(0.0, 0.1 - wire(1e6, SHAPED)) + ONLY[1]
LESS_FAST, LESS_ONLY = (sum(one) + 0.01 + 0.35 + 0.15 * (1 - sum(one) / 0.3) for one in (FAST, ONLY))  # hidden less
SAVED = 0.9 * wire(1e6, LINK)  # of a megabyte on a link that is ten times as fast

#: A job, a change, and what follows: seconds of one worker's step, and of the busiest station's part of it.
LAWS = {
    "ten times the bandwidth": ({"bandwidth": LINK}, {"bandwidth": 10 * LINK}, 0.81 - 3 * SAVED, 0.2 - 2 * SAVED),
    "only fetches have bytes": (ONE_WAY, {"bandwidth": 10 * LINK}, 0.81 - 2 * SAVED, 0.2 - 2 * SAVED),
    "half the bandwidth": (SLOW_FETCH, {"bandwidth": LINK / 2}, 0.91 + wire(3e6, LINK), 0.3 + wire(2e6, LINK)),
    "after loopback": ({"hosts": LOOPBACK}, {"bandwidth": 50e6}, 0.81 + wire(3e6, 50e6), 0.2 + wire(2e6, 50e6)),
    "a faster link hides less": (HIDDEN | {"bandwidth": SHAPED}, {"bandwidth": 40e6}, LESS_FAST, FAST[0]),
    "an unknown link was all of it": (HIDDEN, {"bandwidth": 40e6}, LESS_ONLY, ONLY[0]),
    "even shards": ({}, {"shards": [1, 1]}, 0.81, 0.2 / 2), "uneven": ({}, {"shards": [3, 1]}, 0.81, 0.2 * 0.75),
    "tensors of unknown sizes": ({}, {"parameter_servers": 5}, 0.81, 0.2 * 5**-0.8),
    "tensors dealt to two": (dealt(300, 100, 200), {"parameter_servers": 2}, 0.81, 0.2 * 5 / 6),
    "tensors dealt to three": (dealt(300, 100, 200), {"parameter_servers": 3}, 0.81, 0.2 * 3 / 6),
    "faster accelerators": (HIDDEN, {"accelerator_speed": 2}, 0.66 - 0.25, 0.2),
    "accelerators without end": (HIDDEN, {"accelerator_speed": 1e6}, 0.31, 0.2),
    "larger batches": (HIDDEN, {"batch_size": 64}, 0.66 + 0.5, 0.2),
    "larger and faster": (HIDDEN, {"batch_size": 64, "accelerator_speed": 4}, 0.66 - 0.25, 0.2),
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


BAD = {
    "bandwidth": ["fast", 10],  # Gbit/s were meant
    "batch_size": [0, 2.5], "worker_speeds": [2.0, [], itertools.count(1)], "shards": [[0, 1], [1] * 1001],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_bad_changes_are_one_line(name, value):
    with pytest.raises(qm.ModelError, match=name):
        qm.fit(profile()).what_if(**{name: value})


CHANGES = [
    {"accelerator_speed": 10.0}, {"accelerator_speed": 0.1}, {"bandwidth": 1e9}, {"batch_size": 64},
    {"worker_speeds": [1.0, 0.5, 2.0, 1.0]}, {"other_traffic": "20%"},
]  # fmt: skip


@settings(max_examples=40)
@given(chosen=st.lists(st.sampled_from(CHANGES), min_size=2, max_size=5, unique_by=id), data=st.data())
def test_the_order_does_not_matter(chosen, data):
    def after(changes):
        model = qm.fit(profile([step(overlap=0.15)] * 3, bandwidth=20e6))
        return reduce(lambda changed, change: changed.what_if(**change), changes, model).throughput([1, 2, 4])

    same(after(chosen), after(data.draw(st.permutations(chosen))))


@pytest.mark.parametrize(("first", "second"), [
    ({"bandwidth": 1e9}, {"bandwidth": 1e8}), ({"batch_size": 64}, {"batch_size": 16}),
    ({"parameter_servers": 4}, {"parameter_servers": 2}), ({"shards": [1, 1, 1]}, {"shards": [3, 1]}),
    ({"worker_speeds": [2.0, 1.0]}, {"worker_speeds": [0.5, 1.0]}), ({"shards": [3, 1]}, {"parameter_servers": 2}),
])  # fmt: skip
def test_asking_again_replaces(first, second):
    model = qm.fit(profile([step()] * 3, bandwidth=20e6))
    same(model.what_if(**first).what_if(**second).throughput([1, 2]), model.what_if(**second).throughput([1, 2]))


@pytest.mark.parametrize("change", [*CHANGES[:4], {"worker_speeds": [1.0, 0.5]}, {"shards": [1, 1]}])
def test_changed_job_drops_measurements(change):
    """Measurements, profiled range and origins are the profile's; elsewhere the model's own error counts."""
    measured = [qm.Measurement(workers=n, steps_per_second=x) for n, x in ((1, 1.2), (2, 2.2), (4, 3.6))]
    model = qm.fit(profile(bandwidth=20e6, throughputs=measured))
    changed = model.what_if(**change)
    before, after = model.throughput([1, 2]), changed.throughput([1, 2])
    assert (before.profiled_workers, after.profiled_workers) == (4, 0)
    assert (len(before.measured), after.measured) == (3, ())
    assert np.all(after.upper / after.steps_per_second > 1.1)
    assert before.upper[0] / before.steps_per_second[0] < 1.1
    assert {p.origin for p in changed.parameters if "link demand" in p.name} == {"derived"}


def test_measurements_belong_to_their_servers():
    points = [qm.Measurement(workers=n, steps_per_second=x) for n, x in ((1, 1.0), (2, 1.9), (4, 3.0), (8, 3.3))]
    model = qm.fit([*points, qm.Measurement(workers=2, steps_per_second=3.0, parameter_servers=2)])
    one, two, three = (model.what_if(parameter_servers=n).throughput([1, 2]) for n in (1, 2, 3))
    assert (one.measured[:2], one.profiled_workers) == (((1, 1.0), (2, 1.9)), 8)
    assert (two.measured, two.profiled_workers, three.profiled_workers) == (((2, 3.0),), 2, 0)


@pytest.mark.parametrize(("name", "changes"), [
    ("alexnet-60", {"other_traffic": "0"}), ("fsdp-gpt8-60", {"other_traffic": "0MB/s"}),
    ("ddp-alexnet-40", {"other_traffic": "0%"}), ("ddp-alexnet-40", {"nodes_per_rack": 4, "oversubscription": 1.0}),
])  # fmt: skip
def test_neutral_changes_keep_the_interval(name, changes):
    asked = {"workers": [1, 2, 8], "method": "mva" if name == "alexnet-60" else "auto"}
    plain, same_links, others = (
        qm.predict(example_profile(name), **asked, **one) for one in ({}, changes, {"other_traffic": "1%"})
    )
    same(plain, same_links)
    assert (plain.profiled_workers, others.profiled_workers) == (same_links.profiled_workers, 0)
    assert np.all(others.upper / others.lower > plain.upper / plain.lower)


@pytest.mark.parametrize("name", ["ddp-alexnet-40", "fsdp-gpt8-60"])
def test_known_latency_narrows_the_interval(name):
    """The recorded rounds keep their time, whichever latency they leave open; another network does not."""
    model, N = qm.fit(example_profile(name)), [1, 2, 8, 64]
    plain, assumed, longer, other = (model.throughput(N, latency=a) for a in (None, "100us", "400us", "10ms"))
    widths = [np.log(one.upper / one.lower) for one in (plain, assumed, other)]
    assert assumed.steps_per_second == pytest.approx(plain.steps_per_second, rel=1e-3)
    assert np.all(widths[1] <= widths[0] * (1 + 1e-9))
    assert widths[1][-1] < 0.97 * widths[0][-1]
    assert longer.steps_per_second[:2] == pytest.approx(plain.steps_per_second[:2], rel=2e-4)
    assert longer.steps_per_second[-1] < 0.98 * plain.steps_per_second[-1]
    assert other.steps_per_second[1] < 0.99 * plain.steps_per_second[1]
    assert (plain.profiled_workers, longer.profiled_workers, other.profiled_workers) == (2, 2, 0)
    assert widths[2][0] > widths[0][0]


# Other traffic on the links: what it leaves carries the job, in every model

WAYS = {
    "closed network": ("alexnet-60", {"method": "mva"}), "all-reduce": ("ddp-alexnet-40", {}),
    "at a barrier": ("alexnet-60", {"method": "mva", "strategy": "sync-ps"}), "sharded": ("fsdp-gpt8-60", {}),
    "simulation": ("alexnet-60", {"method": "trace"}),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_share_leaves_the_rest(way):
    recorded, settings = example_profile(WAYS[way][0]), WAYS[way][1]
    nominal = recorded.cluster.bandwidth

    def rate(**changes):
        return qm.predict(recorded, workers=[4], **settings, **changes).at(4)

    assert rate(other_traffic="30%") == pytest.approx(rate(bandwidth=0.7 * nominal), rel=1e-9)
    assert rate(other_traffic="30%") == pytest.approx(rate(other_traffic=0.3 * nominal), rel=1e-9)
    assert rate(other_traffic="30%") < 0.95 * rate(other_traffic=0) == pytest.approx(0.95 * rate(), rel=1e-9)
    doubled = rate(other_traffic="30%", bandwidth=2 * nominal)
    assert doubled == pytest.approx(rate(bandwidth=1.4 * nominal), rel=1e-9)
    run, other = (
        qm.simulate(recorded, workers=3, steps=100, seed=2, **told).throughput
        for told in ({"other_traffic": 0.4}, {"bandwidth": 0.6 * nominal})
    )
    assert run == pytest.approx(other, rel=1e-9)


def test_compared_strategies_share_the_links():
    """A rate as a share: what sends less than all sends it over what is left of the same link."""
    recorded = example_profile("alexnet-60")
    asked = {"workers": 4, "strategies": ["sync", "block-sign"], "steps": 60, "seeds": 1, "learning_rates": [0.1]}
    nominal = recorded.cluster.bandwidth
    ways = [{"other_traffic": 0.3}, {"other_traffic": 0.3 * nominal}, {"bandwidth": 0.7 * nominal}]
    share, rate, less = ([row.steps_per_second for row in compare(recorded, **asked, **way).rows] for way in ways)
    assert rate == pytest.approx(share, rel=1e-6)
    assert less == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize(("other", "nominal", "said"), [
    (-0.1, 5e6, "other_traffic"), ("100%", 5e6, "is a share below 100 %"), (1.5, 5e6, "or must be at least"),
    ("40Mbit/s", 5e6, "must be less than the links'"), ("half", 5e6, "other_traffic"),
    ("30%", None, "specify bandwidth"),
])  # fmt: skip
def test_traffic_that_leaves_nothing_is_refused(other, nominal, said):
    cluster = msgspec.structs.replace(RANKS.cluster, bandwidth=nominal)
    with pytest.raises(qm.ModelError, match=said):
        qm.predict(msgspec.structs.replace(RANKS, cluster=cluster), other_traffic=other)


# Sliders ask the model what a user would ask it, and a notebook keeps the last answer


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("ipywidgets")
    return qm.fit(example_profile("alexnet-60"))


def test_a_slider_is_a_what_if(model):
    explorer, asked = model.explore(workers=8), {}
    assert explorer.curve.to_json() == model.throughput(range(1, 9)).to_json()
    asked["bandwidth"] = explorer.controls["bandwidth"].options[9][1]
    explorer.controls["bandwidth"].value, explorer.controls["workers"].value = asked["bandwidth"], 5
    for servers in (1, 2, 4):
        explorer.controls["parameter_servers"].value = asked["parameter_servers"] = servers
        assert explorer.curve.to_json() == model.what_if(**asked).throughput(range(1, 6)).to_json()
        if servers == 2:
            explorer.keep.click()
    (kept,) = explorer.kept.values()
    assert kept == model.what_if(**asked | {"parameter_servers": 2}).throughput(range(1, 6))
    with pytest.raises(qm.ModelError, match="explore: workers"):
        model.explore(workers=0)


def test_refused_change_keeps_the_answer(model):
    explorer = model.what_if(worker_speeds=[1, 1, 2]).explore(workers=3)
    last = explorer.curve.to_json()
    explorer.controls["workers"].value = 4
    assert "workers must be at most 3" in explorer.message
    assert explorer.curve.to_json() == last
    explorer.controls["workers"].value = 2
    assert explorer.message == "as given"


def test_sliders_are_the_answered_changes(model):
    of_table, of_rounds = (qm.fit(data).explore(workers=8) for data in (example_throughputs("alexnet-60"), RANKS))
    assert set(of_table.controls) == {"workers", "parameter_servers"}
    changes = {"workers", "latency", "accelerator_speed", "bandwidth", "batch_size", "accumulation"}
    assert set(of_rounds.controls) == changes
    of_rounds.controls["latency"].value = 1e-3
    assert of_rounds.curve.to_json() == qm.predict(RANKS, workers=range(1, 9), latency=1e-3).to_json()


def test_goals_give_the_plan(model):
    explorer = model.explore(workers=8)
    assert explorer.plan is None
    explorer.goals["price_per_node_hour"].value, explorer.goals["deadline"].value = 1.5, "6h"
    asked = {"epochs": 1.0, "deadline": "6h", "price_per_node_hour": 1.5}
    assert explorer.plan.answer() == qm.plan(explorer.curve, **asked).answer()
    explorer.goals["deadline"].value = "soon"
    assert "deadline" in explorer.message


def test_missing_widgets_name_their_installation(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(qm.MissingDependencyError, match="pip install ipywidgets"):
        model.explore()


# Read from text as from numbers, refused by name, and answered by the tables behind it


@pytest.mark.parametrize(("text", "number"), [
    ({"bandwidth": "10Gbit/s"}, {"bandwidth": 1.25e9}), ({"buffer": "12ms"}, {"buffer": 0.012}),
    ({"buffer": "0"}, {"buffer": 0.0}), ({"bucket_bytes": "25MB"}, {"bucket_bytes": 25e6}), ({"k": "3"}, {"k": 3}),
    ({"accelerator_speed": "2.5"}, {"accelerator_speed": 2.5}), ({"shards": ["3", 1]}, {"shards": [0.75, 0.25]}),
    ({"worker_bandwidth": ["8Mbit/s", 2e6]}, {"worker_bandwidth": [1e6, 2e6]}),
])  # fmt: skip
def test_text_values_have_units(text, number):
    assert qm.Scenario(**text) == qm.Scenario(**number) != qm.Scenario()


def test_a_scenario_asks_what_keywords_ask():
    profile, asked = example_profile("alexnet-60"), {"bandwidth": "100Mbit/s", "parameter_servers": 2}
    curves = [
        qm.predict(profile, qm.Scenario(**asked), workers=[4], method="mva"),
        qm.predict(profile, workers=[4], method="mva", **asked),
        qm.fit(profile, **asked).throughput([4]),
        qm.fit(profile).what_if(bandwidth=12.5e6).what_if(parameter_servers=2).throughput([4]),
    ]
    assert [curve.at(4) for curve in curves] == pytest.approx([curves[0].at(4)] * 4)
    assert curves[0].at(4) > 1.02 * qm.predict(profile, workers=[4], method="mva").at(4)


def test_names_of_schemes_and_collectives():
    rounds = qm.fit(example_profile("ddp-alexnet-40"))
    for field, table, wrong in (("scheme", SCHEMES, "dpp"), ("collective", COLLECTIVES, "rings")):
        for name, value in table.items():
            one, other = (rounds.what_if(**{field: asked}).throughput([8]).at(8) for asked in (name, value))
            assert one == pytest.approx(other)
        with pytest.raises(qm.ModelError, match=f"must be one of {', '.join(table)}, got '{wrong}'; did you mean"):
            qm.Scenario(**{field: wrong})


@pytest.mark.parametrize(("make", "message"), [
    (lambda: qm.predict(example_profile(), bandwith=1e9), "bandwith is not a field of Scenario; .* 'bandwidth'"),
    (lambda: qm.predict(example_profile(), worker=[8]), "worker is not a field of Scenario; did you mean 'workers'"),
    (lambda: qm.fit(example_profile(), workers=[8]), "workers is not a field of Scenario, nor known here"),
    (lambda: qm.Scenario(strategy="fsdp2"), "did you mean 'fsdp'"),
    (lambda: qm.Scenario(strategy="horovod"), "did you mean 'all-reduce'"),
    (lambda: qm.simulate(example_profile(), workers=2, strategy="k-sync"), "'k-sync' needs k; give it"),
    (lambda: example_profile("alexnet"), "example 'alexnet' must be one of .*; did you mean 'alexnet-60'"),
    (lambda: qm.example_throughputs("alexnet"), "example 'alexnet' must be one of .*; did you mean 'alexnet-60'"),
    (lambda: qm.predict(example_profile(), method="mva", workers=[2], confidence=90), "got 90; write 0.9 for 90 %"),
    (lambda: qm.fit(example_profile("ddp-alexnet-40"), parameter_servers=1), "applies to training on parameter serv"),
])  # fmt: skip
def test_unknown_names_suggest_known_ones(make, message):
    with pytest.raises((qm.ModelError, qm.DataError), match=message):
        make()


def test_keywords_match_scenario_fields():
    """Each takes what its field holds, or a text with a unit."""
    keywords, held = (get_type_hints(one) for one in (Changes, qm.Scenario))
    assert keywords.keys() == held.keys() | SYNONYMS.keys()
    for name, type_held in held.items():
        wider = {float, *get_args(type_held)} if float in get_args(type_held) else {*get_args(type_held)}
        assert {kind for kind in wider if get_origin(kind) is not tuple} <= {*get_args(keywords[name])}, name
    assert qm.Scenario().updated(ranks_per_node=8) == qm.Scenario(gpus_per_node=8)
