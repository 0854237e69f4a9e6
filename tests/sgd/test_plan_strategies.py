"""Which strategy and number of workers, against brute force over everything that was compared."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuemodel import ModelError
from queuemodel.sgd import Compared, Comparison, plan_strategies


def compared(workers, seconds, spread=0.0, **rest):
    rows = tuple(Compared(n, 1.0, 1.0, np.array(s), np.array(s), spread) for n, s in seconds.items())
    return Comparison(rows, workers, workers + 2, **rest)


SECONDS = st.lists(st.sampled_from([np.inf, 1.0, 2.0, 3.0, 5.0, 8.0]), min_size=3, max_size=3)


@given(st.lists(SECONDS, min_size=4, max_size=4), st.sampled_from([0.5, 2.5, 6.0]), st.sampled_from([0.3, 0.5, 0.9]))
def test_no_other_meets_the_goal_better(seconds, deadline, chance):
    table = {(n, name): s for (n, name), s in zip(itertools.product((2, 4), "ab"), seconds, strict=True)}
    comparisons = [compared(n, {name: table[n, name] for name in "ab"}) for n in (2, 4)]
    found = plan_strategies(comparisons, deadline=deadline, price_per_node_hour=3600.0, chance=chance)
    middle = {way: sorted(s)[1] for way, s in table.items() if sorted(s)[1] < np.inf}
    cost = {way: (way[0] + 2) * s for way, s in middle.items()}
    in_time = {way for way in middle if np.mean(np.array(table[way]) <= deadline) > chance}
    fastest, fewest, cheapest, cheapest_in_time = found.choices
    assert fastest.seconds == min(middle.values()) if middle else fastest.strategy is None
    assert fewest.workers == (min(n for n, _ in in_time) if in_time else None)
    assert cheapest.cost == pytest.approx(min(cost.values())) if middle else cheapest.strategy is None
    if in_time:
        assert cheapest_in_time.cost == pytest.approx(min(cost[way] for way in in_time))
        share = np.mean(np.array(table[cheapest_in_time.workers, cheapest_in_time.strategy]) <= deadline)
        assert cheapest_in_time.probability == pytest.approx(share, abs=0.03)
    else:
        assert cheapest_in_time.strategy is None


def test_probabilities_name_their_goal():
    """The cheapest takes longer than the deadline, which the others meet."""
    curve = [compared(n, {"sync": [12.0 + 6 / n]}) for n in (1, 2)]
    found = plan_strategies(curve, deadline=16.0, price_per_node_hour=1.0)
    assert {row["goal"]: row["probability within 16 s"] for row in found._shown_rows()} == {
        "fastest": 1.0, "fewest nodes within 16 s": 1.0, "cheapest": 0.0, "cheapest within 16 s": 1.0,
    }  # fmt: skip
    assert found.to_dict()["deadline"] == 16.0
    assert found.answer().startswith("cheapest within 16 s: sync on 2 workers, 15 s (")
    assert repr(plan_strategies(curve, deadline="16s", price_per_node_hour=1.0)) == repr(found)
    assert "probability of arrival" in plan_strategies(curve)._shown_rows()[0]


@pytest.mark.parametrize(("comparisons", "options", "words"), [
    ([], {}, "needs comparisons in seconds, to one target, got none"),
    ([compared(2, {"a": [1.0]}, relative=True)], {}, "one worker alone"),
    ([compared(2, {"a": [np.nan]})], {}, "no time to a loss is known"),
    ([compared(2, {"a": [1.0]}, target=0.1), compared(4, {"a": [1.0]}, target=0.2)], {}, "to one target"),
    ([compared(2, {"a": [1.0]})], {"deadline": -1}, "deadline"),
])  # fmt: skip
def test_senseless_questions_are_refused(comparisons, options, words):
    with pytest.raises(ModelError, match=words):
        plan_strategies(comparisons, **options)
