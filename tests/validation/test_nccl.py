"""NCCL's law against measurements of others on 2 to 540 nodes, and rounds of two nodes against four."""

import msgspec
import numpy as np

from queuemodel.models import fit
from queuemodel.transport import NCCL, Ring
from validation.nccl import SMALL, all_reduce_times, aws_rounds, compare_aws, of_two_nodes


def test_nccl_latency_on_many_nodes():
    for by_nodes in all_reduce_times().values():
        links = {law: of_two_nodes(law, *by_nodes[2]) for law in (NCCL(), Ring())}
        for n, (sizes, seconds) in by_nodes.items():
            small, off = sizes < SMALL, {}
            for law, link in links.items():
                off[law] = abs(np.log(law.time(sizes, n, link) / seconds)[small].mean())
            assert n == 2 or off[NCCL()] < np.log(2) < np.log(3) < off[Ring()]


def test_two_nodes_predict_four():
    found = compare_aws()
    assert len(found) == 12
    assert np.mean([c.error for c in found]) < 0.03
    assert np.mean([c.coverage for c in found]) >= 0.9


def test_nccl_bandwidth_falls_with_nodes():
    """Not so over gloo, the control."""
    _, profile, _ = next(aws_rounds())
    for style, falls in (("nccl", True), ("gloo", False)):
        source = msgspec.structs.replace(profile.source, style=style)
        model = fit(msgspec.structs.replace(profile, source=source))
        assert model.link_at(2).bandwidth == model.fitted.bandwidth
        assert (model.link_at(8).bandwidth < 0.95 * model.fitted.bandwidth) == falls
        assert (type(model.collective) is NCCL) == falls
