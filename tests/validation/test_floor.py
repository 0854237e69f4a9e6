"""What a perfect model would err by: on processes whose spread is known, and on windows that were measured again."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="reading the testbed's traces needs TensorFlow")

from validation.floor import SETTLING, Floor, floor, floor_section, window_error
from validation.series import compare_testbed, read_measured, read_testbed, read_windows, series_folders

CV, STEP = 0.4, 0.5


def renewals(rng, *, seconds, runs=600):
    """Runs of one worker whose steps vary independently of each other."""
    n = int(3 * seconds / (1 - SETTLING) / STEP)
    for _ in range(runs):
        steps = rng.gamma(CV**-2, STEP * CV**2, n)
        yield SimpleNamespace(times=np.cumsum(steps), throughputs=1 / steps)


@pytest.mark.parametrize("seconds", [30.0, 120.0])
def test_windows_of_independent_steps_spread_as_renewals_do(seconds):
    """Cox (1962): the variance of their number is that of a step over its mean, per step (a little less: cut ones)."""
    found = window_error(list(renewals(np.random.default_rng(1), seconds=seconds)), seconds)
    assert found == pytest.approx(CV * (STEP / seconds) ** 0.5, rel=0.08)


def test_a_run_that_ends_before_its_window_is_refused():
    with pytest.raises(ValueError, match="a run lasts"):
        window_error(list(renewals(np.random.default_rng(1), seconds=10, runs=2)), 100.0)


def made_up(rng, sigma, *, windows, series=2000):
    logs = 0.03 * rng.standard_normal((series, windows))
    told = {"window": np.array([sigma]), "sampling": np.array([0.01])}
    return [Floor(f"{i}", np.array([4]), (np.exp(own),), **told) for i, own in enumerate(logs)]


def test_two_windows_of_a_series_tell_what_one_errs_by():
    for sigma, right in ((0.03, True), (0.04, False)):
        pairs = np.array([pair for one in made_up(np.random.default_rng(2), sigma, windows=2) for pair in one.apart()])
        assert (pairs[:, 1].mean() == pytest.approx(pairs[:, 2].mean(), rel=0.05)) == right
    once = made_up(np.random.default_rng(2), 0.03, windows=1)
    assert not once[0].apart()


def test_a_perfect_model_errs_by_the_floor():
    rng = np.random.default_rng(3)
    for windows in (1, 3):
        found = made_up(rng, 0.03, windows=windows)
        off = [np.log(one.measured[0].mean()) + 0.01 * rng.standard_normal() for one in found]
        assert np.abs(off).mean() == pytest.approx(found[0].errors[0], rel=0.05)


def test_series_are_judged_by_the_mean_of_what_was_measured_again():
    (folder,) = (f for f in series_folders() if f.name == "vgg16-60")
    counts, first = read_measured(folder)
    rows = read_windows(folder)
    assert len(rows) >= 2 * len(counts)
    found = compare_testbed(folder, read_testbed(folder), "mva")
    assert len(found.measured) == len(rows)
    assert found.counts.tolist() == counts.tolist()
    two = np.mean([row["steps_per_s"] for row in rows if row["workers"] == 2])
    assert found.errors[1] == pytest.approx(found.curve.at(2) / two - 1)
    assert found.errors[1] != pytest.approx(found.curve.at(2) / first[1] - 1, abs=0.05)  # the first one was an outlier


def test_what_lies_between_ways_of_sharing_links_is_no_noise():
    """By windows and by equal shares these throughputs of four workers lie 30 % apart."""
    (folder,) = (f for f in series_folders() if f.name == "resnet50-60-2ps-cubic-25ms")
    assert floor(folder, read_testbed(folder)).window[2] < 0.04


def test_what_was_measured_again_differs_as_simulated_measurements_do():
    again = [f for f in series_folders() if (f / "again.json").exists()]
    floors = [floor(f, read_testbed(f)) for f in again]
    pairs = np.array([pair for one in floors for pair in one.apart()])
    measured, computed = pairs[:, 1].mean(), pairs[:, 2].mean()
    assert 0.6 < measured / computed < 1.6
    assert floor_section(floors).count("\n| ") == 1 + len(np.unique(pairs[:, 0])) + 1
