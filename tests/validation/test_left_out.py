"""Fits of throughputs alone, judged on sources that their prior was not learnt from."""

import tomllib
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

from validation.growth import KINDS, by_form, coverage, fit_of, judge, learn, leave_source_out, series
from validation.published import clusters, full_nodes, published
from validation.published import testbed as our_testbed

TOLD = tomllib.loads((resources.files("queuemodel.models") / "growth.toml").read_text())


def error(found):
    return np.mean([one.error for one in found])


def test_the_packaged_prior_is_what_the_series_teach():
    for kind in KINDS:
        prior = learn(kind)
        assert TOLD["shares"][kind]["value"] == pytest.approx(prior.shares, abs=2e-3)
        assert TOLD["growth"]["value"][kind] == prior.growth
        assert sum(prior.shares.values()) == pytest.approx(1.0, abs=1e-3)


#: Series, how they are told, number of series, largest mean error, and how it compares with the best of two laws.
JUDGED = {
    "clusters": (clusters(), False, 42, 0.10, 0.9),
    "all-reduce": ([job for job in published() if job.kind == "all-reduce"], False, 106, 0.10, 1.0),
    "all-reduce, told": ([job for job in published() if job.kind == "all-reduce"], True, 106, 0.07, 0.7),
    "one T4 per node": (full_nodes(1), False, 50, 0.14, 1.05),
    "sync-ps": (series("sync-ps"), False, 33, 0.185, 0.85),
    "sparse gradients, told": (series("sparse gradients"), True, 11, 0.23, 0.5),
    "async-ps": (series("async-ps"), False, 15, 0.13, 0.65),
    "testbed": (our_testbed(), False, 18, 0.19, 0.25),
    "testbed, told": (our_testbed(), True, 18, 0.11, 0.15),
}


@pytest.mark.parametrize("name", JUDGED)
def test_two_measurements_of_an_unseen_source(name):
    jobs, told, count, most, against = JUDGED[name]
    found = leave_source_out(jobs, told=told)
    assert len(found) == count
    assert error(found) < most
    assert error(found) < against * min(error(by_form(form, found)) for form in ("ring", "log n"))
    assert coverage(found) > 0.85
    higher = [replace(one, predicted=1.25 * one.predicted) for one in found]
    assert error(higher) > most, "a quarter too much would go unnoticed"


def test_a_wrong_prior_would_be_noticed():
    jobs = [job for job in published() if job.kind == "all-reduce" and len(job.nodes) > 2]
    wrong = replace(learn("all-reduce"), shares={"1": 1.0})
    found = [judge(job, fit_of(job, prior=wrong), 2) for job in jobs]
    assert error(found) > 1.15 * error(leave_source_out(jobs))
    assert coverage(found) < 0.85
