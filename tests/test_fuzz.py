"""A sample of the damaged files of ``python -m verification.fuzz``, and a control that it notices what is wrong."""

import math

import pytest

from verification.fuzz import FORMATS, check_seeds, one, positive

FILES = {"profile": 100, "csv": 100, "placements": 60, "instances": 100, "network": 150, "jmva": 150, "workload": 150,
         "trace": 10, "ranks": 12}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_damaged_files_are_refused_or_sound(tmp_path, kind):
    if kind in ("trace", "ranks"):
        pytest.importorskip("tensorflow", reason="reading traces needs TensorFlow")
    seeds = FORMATS[kind].seeds()
    check_seeds(kind, seeds, tmp_path)
    outcomes = [one(kind, 1, number, seeds, tmp_path) for number in range(FILES[kind])]
    assert not [text for outcome, text in outcomes if outcome == "wrong"]
    assert sum(outcome == "refused" for outcome, _ in outcomes) > 0.3 * len(outcomes)


@pytest.mark.parametrize("error", [ValueError("no error of the package"), AssertionError])
def test_what_is_wrong_is_noticed(tmp_path, monkeypatch, error):
    def check(path, thorough):
        raise error

    monkeypatch.setitem(FORMATS, "csv", type(FORMATS["csv"])(FORMATS["csv"].seeds, check))
    assert one("csv", 0, 0, FORMATS["csv"].seeds(), tmp_path)[0] == "wrong"
    for value in (math.nan, math.inf, 0.0, -1.0, [1.0, -1.0]):
        with pytest.raises(AssertionError, match="not finite"):
            positive(value)
