"""Frozen answers: what moves one says so in its commit, and writes them anew by ``python tests/golden/answers.py``."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from answers import ANSWERS, BITS, EXACT, NEARLY, among_examples, answer, differences, last_bits
from questions import questions

pytestmark = pytest.mark.slow
QUESTIONS = questions()
WANTED = json.loads(ANSWERS.read_text())
WRITTEN_ON = WANTED.pop(BITS)


@pytest.fixture(scope="module", autouse=True)
def _examples():
    with among_examples():
        yield


@pytest.fixture(scope="module")
def same_processor():
    return last_bits() == WRITTEN_ON


@pytest.mark.parametrize("key", QUESTIONS)
def test_the_answer_is_what_it_was(key, same_processor):
    wanted = WANTED[key]
    if not same_processor and isinstance(wanted, dict) and "tolerance" in wanted:
        pytest.skip("simulated with other last bits")
    got = json.loads(json.dumps(answer(QUESTIONS[key])))
    assert not list(differences(wanted, got, EXACT if same_processor else NEARLY))


def test_every_answer_has_its_question():
    assert WANTED.keys() == QUESTIONS.keys()


def test_a_difference_is_noticed():
    curve = {"steps_per_second": [1.0, 2.0], "tolerance": 0.01}
    assert not list(differences(curve, {"steps_per_second": [1.0, 2.01]}))
    assert list(differences(curve, {"steps_per_second": [1.0, 2.04]}))
    assert list(differences({"X": 1.0}, {"X": 1.0 + 1e-8}))
    assert list(differences("1.23 steps/s", "1.25 steps/s"))
    assert list(differences("one", "other"))
