"""What a perfect model would err by: on processes whose spread is known, and on windows that were measured again."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="reading the testbed's traces needs TensorFlow")

from validation.noise_floor import SETTLING, noise_floor, noise_floor_section, window_error
from validation.series import compare_testbed, read_measured, read_testbed, read_windows, series_folders

CV, STEP = 0.4, 0.5
FOLDERS = {folder.name: folder for folder in series_folders()}


def renewals(rng, *, seconds, runs=600):
    """Runs of one worker whose steps vary independently of each other."""
    n = int(3 * seconds / (1 - SETTLING) / STEP)
    for _ in range(runs):
        steps = rng.gamma(CV**-2, STEP * CV**2, n)
        yield SimpleNamespace(times=np.cumsum(steps), throughputs=1 / steps)


@pytest.mark.parametrize("seconds", [30.0, 120.0])
def test_windows_spread_as_renewals(seconds):
    """Cox (1962): the variance of their number is that of a step over its mean, per step (a little less: cut ones)."""
    found = window_error(list(renewals(np.random.default_rng(1), seconds=seconds)), seconds)
    assert found == pytest.approx(CV * (STEP / seconds) ** 0.5, rel=0.08)
    with pytest.raises(ValueError, match="a run lasts"):
        window_error(list(renewals(np.random.default_rng(1), seconds=seconds / 10, runs=2)), seconds)


def test_series_are_judged_by_mean_windows():
    folder = FOLDERS["vgg16-60"]
    (counts, first), rows = read_measured(folder), read_windows(folder)
    found = compare_testbed(folder, read_testbed(folder), "mva")
    assert len(found.measured) == len(rows) >= 2 * len(counts)
    two = np.mean([row["steps_per_s"] for row in rows if row["workers"] == 2])
    assert found.errors[1] == pytest.approx(found.curve.at(2) / two - 1)
    assert found.errors[1] != pytest.approx(found.curve.at(2) / first[1] - 1, abs=0.05)  # the first one was an outlier


def test_repeated_windows_differ_as_simulated():
    floors = [noise_floor(f, read_testbed(f)) for f in FOLDERS.values() if (f / "again.json").exists()]
    pairs = np.array([pair for one in floors for pair in one.apart()])
    assert 0.6 < pairs[:, 1].mean() / pairs[:, 2].mean() < 1.6
    assert noise_floor_section(floors).count("\n| ") == 1 + len(np.unique(pairs[:, 0])) + 1
    # what lies between ways of sharing links, 30 % here, is no noise
    several = FOLDERS["resnet50-60-2ps-cubic-25ms"]
    assert noise_floor(several, read_testbed(several)).window[2] < 0.04
