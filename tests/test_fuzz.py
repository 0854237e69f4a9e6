"""A sample of the damaged files of ``python -m verification.fuzz``, and a control that it notices what is wrong."""

import math
import random

import pytest

from verification.fuzz import FORMATS, one, positive

FILES = {"profile": 100, "csv": 100, "network": 150, "jmva": 150, "workload": 150, "trace": 10}


@pytest.mark.parametrize("kind", FILES)
def test_damaged_files_are_refused_in_one_line_or_read_as_sound_numbers(tmp_path, kind):
    if kind == "trace":
        pytest.importorskip("tensorflow", reason="reading traces needs TensorFlow")
    seeds = FORMATS[kind].seeds()
    outcomes = [one(kind, 1, number, seeds, tmp_path) for number in range(FILES[kind])]
    assert not [text for outcome, text in outcomes if outcome == "wrong"]
    assert sum(outcome == "refused" for outcome, _ in outcomes) > 0.3 * len(outcomes)


@pytest.mark.parametrize("kind", FILES)
def test_the_files_that_are_damaged_are_sound(tmp_path, kind):
    if kind == "trace":
        pytest.importorskip("tensorflow", reason="reading traces needs TensorFlow")
    for name, content in FORMATS[kind].seeds().items():
        (tmp_path / name).write_bytes(content)
        FORMATS[kind].check(tmp_path / name, random.Random(1))


@pytest.mark.parametrize("error", [ValueError("no error of the package"), AssertionError])
def test_what_is_wrong_is_noticed(tmp_path, monkeypatch, error):
    def check(path, rng):
        raise error

    monkeypatch.setitem(FORMATS, "csv", type(FORMATS["csv"])(FORMATS["csv"].seeds, check))
    assert one("csv", 0, 0, FORMATS["csv"].seeds(), tmp_path)[0] == "wrong"
    for value in (math.nan, math.inf, 0.0, -1.0, [1.0, -1.0]):
        with pytest.raises(AssertionError, match="not finite"):
            positive(value)
