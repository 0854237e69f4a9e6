"""A faster network cannot make a step shorter than its computation."""

import itertools

import numpy as np
import pytest

import queuemodel as qm
from queuemodel.data import example_profile


@pytest.mark.parametrize("name", ["alexnet-60", "resnet50-60"])
def test_a_step_takes_at_least_its_computation(name):
    profile = example_profile(name)
    compute = profile.values("compute").mean()
    model = qm.fit(profile)
    steps = [1 / model.what_if(bandwidth=b * 125e6).throughput([1]).at(1) for b in (0.1, 1, 10, 1e6)]
    assert all(earlier > later for earlier, later in itertools.pairwise(steps))
    assert steps[-1] == pytest.approx(compute, rel=0.01)


@pytest.mark.parametrize("name", ["alexnet-60", "resnet50-60"])
def test_the_profiled_bandwidth_changes_little(name):
    profile = example_profile(name)
    model = qm.fit(profile)
    same = model.what_if(bandwidth=profile.cluster.bandwidth).throughput([1, 4])
    np.testing.assert_allclose(same.steps_per_second, model.throughput([1, 4]).steps_per_second, rtol=0.02)
