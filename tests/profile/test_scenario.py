"""The question about a job: read from text as from numbers, refused by name, and answered by the tables behind it."""

from typing import get_args, get_origin, get_type_hints

import pytest

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.models import SCHEMES
from queuemodel.profile.scenario import SYNONYMS, Changes
from queuemodel.transport import COLLECTIVES


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
