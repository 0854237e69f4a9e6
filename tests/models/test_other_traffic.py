"""Other traffic on the links: what it leaves carries the job, in every model, and an M/M/1 that others use, too."""

import numpy as np
import pytest

import queuemodel as qm
from queuemodel.models import predict, simulate
from queuemodel.sgd import compare

WAYS = {
    "closed network": ("alexnet-60", {"method": "mva"}),
    "at a barrier": ("alexnet-60", {"method": "mva", "strategy": "sync-ps"}),
    "simulation": ("alexnet-60", {"method": "trace"}),
    "all-reduce": ("ddp-alexnet-40", {}),
    "sharded": ("fsdp-gpt8-60", {}),
}


def rate(way, **changes):
    name, settings = WAYS[way]
    return predict(qm.example_profile(name), workers=[4], **settings, **changes).steps_per_second[0]


@pytest.mark.parametrize("way", WAYS)
def test_a_share_leaves_the_rest(way):
    nominal = qm.example_profile(WAYS[way][0]).cluster.bandwidth
    taken = rate(way, other_traffic="30%")
    assert taken == pytest.approx(rate(way, bandwidth=0.7 * nominal), rel=1e-9)
    assert taken == pytest.approx(rate(way, other_traffic=0.3 * nominal), rel=1e-9)
    assert rate(way, other_traffic=0) == pytest.approx(rate(way), rel=1e-9)
    assert taken < 0.95 * rate(way)  # the control
    doubled = rate(way, other_traffic="30%", bandwidth=2 * nominal)
    assert doubled == pytest.approx(rate(way, bandwidth=1.4 * nominal), rel=1e-9)


@pytest.mark.parametrize("name", ["alexnet-60", "ddp-alexnet-40", "fsdp-gpt8-60"])
def test_simulations_share_the_links(name):
    profile = qm.example_profile(name)
    run = simulate(profile, workers=3, steps=100, seed=2, other_traffic=0.4)
    other = simulate(profile, workers=3, steps=100, seed=2, bandwidth=0.6 * profile.cluster.bandwidth)
    assert run.throughput == pytest.approx(other.throughput, rel=1e-9)


def test_changes_come_in_any_order():
    model = qm.fit(qm.example_profile("ddp-alexnet-40"))
    one = model.what_if(other_traffic="20%").what_if(bandwidth="1Gbit/s")
    other = model.what_if(bandwidth="1Gbit/s", other_traffic="20%")
    np.testing.assert_allclose(one.throughput([2, 8]).lower, other.throughput([2, 8]).lower)
    assert not one.throughput([2]).profiled_workers


def test_compared_strategies_share_the_links():
    """A rate as a share: what sends less than all sends it over what is left of the same link."""
    profile = qm.example_profile("alexnet-60")
    asked = {"workers": 4, "problem": "logistic", "strategies": ["sync", "block-sign"], "seeds": 2}
    nominal = profile.cluster.bandwidth
    ways = [{"other_traffic": 0.3}, {"other_traffic": 0.3 * nominal}, {"bandwidth": 0.7 * nominal}]
    share, rate, less = ([row.steps_per_second for row in compare(profile, **asked, **way).rows] for way in ways)
    assert rate == pytest.approx(share, rel=1e-6)
    assert less == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize(("other", "said"), [
    (-0.1, "other_traffic"), ("40Mbit/s", "must be less than the links'"), ("half", "other_traffic"),
])  # fmt: skip
def test_traffic_that_leaves_nothing_is_refused(other, said):
    with pytest.raises(qm.ModelError, match=said):
        predict(qm.example_profile("ddp-alexnet-40"), other_traffic=other)


def test_missing_bandwidth_is_requested():
    import msgspec

    profile = qm.example_profile("ddp-alexnet-40")
    unknown = msgspec.structs.replace(profile, cluster=msgspec.structs.replace(profile.cluster, bandwidth=None))
    with pytest.raises(qm.ModelError, match="specify bandwidth"):
        predict(unknown, other_traffic="30%")
