"""Datagrams on links of the testbed, all or one node's, against the what-if, from traces before them."""

import numpy as np

from validation.other_traffic import compare_other_traffic


def test_other_traffic_is_predicted():
    found = compare_other_traffic()
    assert {one.method for one in found} == {"trace", "mva", "all-reduce"}
    for one in found:
        bound = {"trace": 0.06, "mva": 0.08, "all-reduce": 0.025}[one.method]
        assert np.abs(one.errors).max() < bound, one.name
        assert one.inside.all(), one.name
        without = {"trace": 1.35, "mva": 1.35, "all-reduce": 1.1}[one.method]
        assert (without * one.measured > one.curve.upper).all(), one.name  # the control: as if there were none
