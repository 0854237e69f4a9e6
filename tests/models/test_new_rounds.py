"""What the package has not: a rewriting of rounds, and a collective, each a value made here."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from queuemodel import example_profile, predict
from queuemodel.models import Buckets, fit

RANKS = example_profile("ddp-alexnet-40")


def halved(fitted):
    """Rounds whose gradients are compressed to half of their bytes."""
    sizes, moments = fitted.gradients
    return replace(fitted, bucket_bytes=fitted.bucket_bytes / 2, gradients=(sizes / 2, moments))


def test_rewritten_rounds_reach_every_answer():
    model = fit(RANKS)
    rewritten = replace(model, fitted=halved(model.fitted))
    curve = rewritten.throughput([1, 2, 4, 8])
    np.testing.assert_allclose(curve.steps_per_second, [2.181, 3.897, 5.912, 10.537], atol=5e-4)
    same = model.what_if(gradient_precision="half").throughput([1, 2, 4, 8])
    np.testing.assert_allclose(curve.steps_per_second, same.steps_per_second)
    several = {"accumulation": 2, "bandwidth": 1e7, "scheme": "p3"}
    one, other = (rewritten.what_if(**several), model.what_if(gradient_precision="half", **several))
    np.testing.assert_allclose(one.throughput([4]).steps_per_second, other.throughput([4]).steps_per_second)


@dataclass(frozen=True)
class Compressed(Buckets):
    """Buckets that are compressed to half of their bytes after they are closed."""

    def units(self, sizes):
        return Buckets.units(self, sizes) / 2


def test_own_scheme_reaches_predict():
    plain, half = (predict(RANKS, workers=[2, 8], scheme=one) for one in (Buckets(), Compressed()))
    faster = predict(RANKS, workers=[2, 8], scheme=Buckets(), bandwidth=2 * RANKS.cluster.bandwidth, latency=0.0)
    assert np.all(plain.steps_per_second < half.steps_per_second)
    np.testing.assert_allclose(half.steps_per_second, faster.steps_per_second, rtol=0.05)  # but for what is no link's


@dataclass(frozen=True)
class OneToAll:
    """The first rank receives all data, adds, and sends the sum to each."""

    def time(self, message_bytes, nodes, link):
        return 2 * (nodes - 1) * (link.latency + message_bytes / link.bandwidth)

    def traffic(self, nodes):
        others = np.arange(1, nodes)
        up = np.column_stack([others, 0 * others, np.ones(nodes - 1)])
        return [up, up[:, [1, 0, 2]]] if nodes > 1 else []


@pytest.mark.parametrize("racks", [{}, {"nodes_per_rack": 2, "oversubscription": 4.0}], ids=str)
def test_own_collective_reaches_predict(racks):
    """Where the network is all, among eight: 14 whole messages; of two to a rack six of seven come over its link."""
    curve = predict(RANKS, workers=[2, 8], collective=OneToAll(), bandwidth=1e3, latency=0.0, **racks)
    size, bandwidth = sum(fit(RANKS).fitted.bucket_bytes), curve.model.link_at(curve.model.fitted.ranks).bandwidth
    slower = 6 * 4.0 / 2 / 7 if racks else 1.0
    assert 1 / curve.iterations_per_second[-1] == pytest.approx(14 * size / bandwidth * slower, rel=0.01)
    assert "OneToAll" in curve.method
