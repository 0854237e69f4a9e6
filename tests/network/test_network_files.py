"""Network files: round trips, and ten thousand malformed ones without a traceback or a wrong number."""

import copy
import json
import math
import random

import numpy as np
import pytest

import queuemodel as qm

PLAIN = {
    "format": "queuemodel-network",
    "version": 1,
    "name": "plain",
    "think_time": 1.0,
    "stations": [
        {"name": "cpu", "service_time": 0.25, "visit_ratio": 2, "servers": 1},
        {"name": "out", "service_time": 1.0, "servers": "inf"},
    ],
}
RICH = {
    "format": "queuemodel-network",
    "version": 2,
    "name": "rich",
    "think_time": 0.5,
    "classes": [{"name": "a", "population": 2, "think_time": 1.0}, {"name": "b", "population": 1}],
    "stations": [
        {"name": "cpu", "service_time": {"a": 0.25, "b": 0.5}, "servers": 2},
        {"name": "disk", "service_time": 0.1, "rates": [1, 1.5, 1.8], "visit_ratio": {"a": 1.0, "b": 3.0}},
        {"name": "stack", "service_time": 0.2, "discipline": "lifo-pr", "scv": 3.0},
    ],
}
ROUTED = {
    "format": "queuemodel-network",
    "version": 2,
    "stations": [{"name": "cpu", "service_time": 0.2}, {"name": "disk", "service_time": 0.3}],
    "routing": [{"matrix": [[0.1, 0.9], [1.0, 0.0]]}],
    "reference": "cpu",
}
TASKS = {
    "format": "queuemodel-network",
    "version": 2,
    "think_time": 0.3,
    "stations": [
        {"name": "line", "service_time": 0.2, "discipline": "fcfs", "scv": 0.5},
        {
            "name": "fcfs",
            "discipline": "fcfs",
            "distribution": {"alpha": [1.0, 0.0], "T": [[-40.0, 40.0], [0.0, -40.0]]},
        },
    ],
}
SWITCHING = {
    "format": "queuemodel-network",
    "version": 2,
    "classes": [{"name": "a", "population": 2}, {"name": "b", "population": 0}],
    "stations": [{"name": "cpu", "service_time": {"a": 0.25, "b": 0.5}}, {"name": "disk", "service_time": 0.1}],
    "routing": [
        {"from": "a", "to": "a", "matrix": [[0, 0.5], [0.5, 0]]},
        {"from": "a", "to": "b", "matrix": [[0, 0.5], [0.5, 0]]},
        {"from": "b", "to": "a", "matrix": [[0, 1], [1, 0]]},
    ],
}
DOCUMENTS = [PLAIN, RICH, ROUTED, TASKS, SWITCHING]
GARBAGE = [
    None, True, False, -1, 0, 1, 2.5, -0.0, 1e308, -1e308, 1e-320, 10**30, 10**400, float("nan"), float("inf"), "", "x",
    "inf", "a", "b", "cpu", "ps", "fcfs", "\u0000", "\n", "\ud800", [], {}, [1], [[1]], [None], {"a": 1}, {"zzz": 1},
    {"a": -1}, {"": 1}, [1e308, 1e308], [[0.5, 0.6], [1, 0]], [[0, 0], [0, 0]], {"alpha": [1], "T": [[-1]]}, 3, 1000,
]  # fmt: skip


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.get("name", "more"))
def test_files_come_back_as_they_were(tmp_path, document):
    network = qm.Network.from_json(json.dumps(document))
    network.save(tmp_path / "n.json")
    again = qm.Network.load(tmp_path / "n.json")
    assert again == network
    assert again.to_dict() == network.to_dict()
    assert repr(network)
    assert "<table" in network._repr_html_()


def test_plain_networks_are_still_written_as_version_1():
    assert qm.Network.from_json(json.dumps(PLAIN)).to_dict()["version"] == 1
    assert qm.Network.from_json(json.dumps(RICH)).to_dict()["version"] == 2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d["stations"][1].update(visits=2.0), r"stations\[1\]: .*got 'visits'; did you mean 'visit_ratio'"),
        (
            lambda d: d["stations"][0].update(service=2.0),
            r"stations\[0\]: .*got 'service'; did you mean 'service_time'",
        ),
        (lambda d: d["classes"][1].update(populaton=2), r"classes\[1\]: .*got 'populaton'; did you mean 'population'"),
        (lambda d: d.update(think=1.0), "network JSON: a key must be one of format, .*; did you mean 'think_time'"),
    ],
)
def test_a_key_that_is_not_known_is_refused_with_the_one_that_was_meant(damage, message):
    document = copy.deepcopy(RICH)
    damage(document)
    with pytest.raises(qm.DataError, match=message) as error:
        qm.Network.from_json(json.dumps(document))
    assert "\n" not in str(error.value)


def places(value, path=()):
    """Every place in a document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def damaged(rng):
    document = copy.deepcopy(rng.choice(DOCUMENTS))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        path = rng.choice(list(places(document))[1:] or [()])
        parent = document
        try:
            for key in path[:-1]:
                parent = parent[key]
            action = rng.random()
            if action < 0.6:
                parent[path[-1]] = copy.deepcopy(rng.choice(GARBAGE))
            elif action < 0.75:
                del parent[path[-1]]
            elif action < 0.85 and isinstance(parent, dict):
                parent[rng.choice(["extra", "servers", "rates", "scv", "discipline", "population"])] = rng.choice(
                    GARBAGE
                )
            elif isinstance(parent, list):
                parent.append(copy.deepcopy(rng.choice([*GARBAGE, parent[0] if parent else 1])))
        except (KeyError, IndexError, TypeError):
            continue
    try:
        text = json.dumps(document)
    except ValueError:  # integers of thousands of digits
        text = "1" * 5000
    if rng.random() < 0.1:
        cut = rng.randrange(len(text))
        text = text[:cut] + rng.choice(["", "}", "\u00e9", "\\", '"', "null"]) + text[cut + rng.randrange(3) :]
    return text


def test_ten_thousand_malformed_files_give_one_clear_line_or_a_right_answer(tmp_path):
    rng = random.Random(2024)
    path = tmp_path / "network.json"
    refused = solved = 0
    for i in range(10_000):
        text = damaged(rng)
        try:
            if i % 100 == 0:
                path.write_text(text, encoding="utf-8", errors="surrogatepass")
                network = qm.Network.load(path)
            else:
                network = qm.Network.from_json(text.encode("utf-8", "surrogatepass"))
        except qm.DataError as error:
            message = str(error)
            assert "\n" not in message
            assert message.startswith((str(path), "network JSON")), text
            refused += 1
            continue
        if network.classes and (network.populations.sum() > 50 or len(network.stations) > 5):
            continue
        try:
            solution = qm.solve(network, population=None if network.classes else 3)
        except qm.ModelError as error:
            assert "\n" not in str(error)  # noqa: PT017
            refused += 1
            continue
        solved += 1
        assert_sound(network, solution, text)
    assert refused > 5000
    assert solved > 500


def assert_sound(network, solution, text):
    X, Q = solution.class_throughput, solution.class_queue_length
    assert np.all(np.isfinite(Q)), text
    assert np.all(Q >= 0), text
    assert np.all(np.isfinite(X)), text
    assert np.all(X >= 0), text
    think = sum(X[chain[0]] * _think(network, chain) for chain in network.chains)
    assert Q.sum() + think == pytest.approx(solution.population, rel=1e-6), text


def _think(network, chain):
    if len(chain) == 1:
        return network.think_times[chain[0]]
    at = 0 if network.reference is None else network.names.index(network.reference)
    return sum(network.visit_ratios[at, c] * network.think_times[c] for c in chain)


def test_a_rate_function_cannot_be_saved_but_its_values_can(tmp_path):
    network = qm.Network([qm.Station("ld", rates=lambda n: math.sqrt(n))])
    with pytest.raises(qm.ModelError, match=r"station 'ld': rates is a function"):
        network.save(tmp_path / "n.json")
    assert not (tmp_path / "n.json").exists()
