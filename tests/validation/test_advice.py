"""Following the recommended measurement is worth more than a random one, on recorded series."""

import numpy as np
import pytest

from queuemodel.data import example_profile, example_throughputs
from validation.measuring import JUDGED, Advice, advise_simulation, cloud_advice, section, width


def compared(found):
    """Mean widths and errors: before, after the recommended run, and after a random one."""
    widths = np.mean([one.compared(width) for one in found], axis=0)
    errors = np.mean([one.compared(one.error) for one in found], axis=0)
    return widths, errors


def test_the_cloud_series_narrow_and_err_less_than_after_a_random_run():
    (before, followed, random), (error_before, error_followed, error_random) = compared(list(cloud_advice(2)))
    assert followed < 0.6 * random < 0.6 * before
    assert error_followed < 0.7 * error_random < 0.7 * error_before


def test_simulations_narrow_and_err_less_than_after_a_random_run():
    found = [
        advise_simulation(example_profile(name), [p for p in example_throughputs(name) if p.workers <= JUDGED])
        for name in ("alexnet-60", "resnet50-60")
    ]
    (before, followed, random), (error_before, error_followed, error_random) = compared(found)
    assert followed < 0.95 * random < 0.95 * before
    assert error_followed < error_random < error_before
    assert "alexnet-60 | 4 workers" in section(found)


def test_bad_advice_is_noticed():
    after = {1: np.array([[2.0], [1.0], [3.0]]), 4: np.array([[1.1], [1.0], [1.2]])}
    bad = Advice("by hand", "job", np.array([1.0]), after[1], after, recommended=1)
    assert bad.compared(width) == pytest.approx((1.0, 1.0, (1.0 + 0.2 / 1.1) / 2))
    assert bad.compared(bad.error) == pytest.approx((1.0, 1.0, 0.55))
