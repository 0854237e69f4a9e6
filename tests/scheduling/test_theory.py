"""The simulation against closed forms, each with a control that must fail."""

import math

import mpmath
import numpy as np
import pytest
import theory
from scipy.stats import t

from queuemodel.errors import ModelError
from queuemodel.scheduling import (
    FIFO,
    SRPT,
    EqualShare,
    GreedyGain,
    HeSRPT,
    Job,
    PowerLawCurve,
    RankPriced,
    Workload,
    simulate,
)
from queuemodel.scheduling.policies.model_based import rank_prices

LINEAR = PowerLawCurve(1.0)


def poisson(rate, sizes, curve, seed, **limits):
    rng = np.random.default_rng(seed)
    work = sizes(rng)
    times = np.cumsum(rng.exponential(1 / rate, len(work)))
    return Workload(
        Job(f"{k}", arrival_time=a, steps=s, curve=curve, **limits)
        for k, (a, s) in enumerate(zip(times.tolist(), work.tolist(), strict=True))
    )


def interval(policy, rate, sizes, curve=LINEAR, nodes=1, replications=6, **limits):
    """Mean response time and half-width of its 99.9 % interval."""
    means = [
        simulate(poisson(rate, sizes, curve, seed, **limits), policy, nodes=nodes, warmup=0.1).mean_response_time
        for seed in range(replications)
    ]
    spread = np.std(means, ddof=1) / math.sqrt(replications)
    return np.mean(means), t.ppf(0.9995, replications - 1) * spread


def exponential(n):
    return lambda rng: rng.exponential(1.0, n)


def uniform(n):
    return lambda rng: rng.uniform(0.0, 2.0, n) + 1e-12


def lognormal(n):
    return lambda rng: rng.lognormal(-math.log(5) / 2, math.sqrt(math.log(5)), n)  # mean 1, variation 2


@pytest.mark.parametrize("servers", [1, 3])
def test_one_node_each_first_come_first_served_is_the_mmk(servers):
    rate = 0.5 * servers
    mean, half = interval(FIFO(), rate, exponential(5000), nodes=servers, most_nodes=1)
    assert mean == pytest.approx(theory.mmk_response_time(rate, 1.0, servers), abs=half)
    assert half < 0.15 * mean
    # Controls: a third more arrivals, and one server more.
    assert mean != pytest.approx(theory.mmk_response_time(1.33 * rate, 1.0, servers), abs=half)
    assert mean != pytest.approx(theory.mmk_response_time(rate, 1.0, servers + 1), abs=half)


def test_fifo_on_one_node_is_pollaczek_khinchine():
    mean, half = interval(FIFO(), 0.6, uniform(4000))
    assert mean == pytest.approx(theory.mg1_fifo_response_time(0.6, 1.0, 1 / math.sqrt(3)), abs=half)
    assert mean != pytest.approx(theory.mg1_fifo_response_time(0.6, 1.0, 1.0), abs=half)  # exponential sizes


@pytest.mark.parametrize("sizes", [uniform(4000), exponential(4000)])
def test_equal_share_of_one_node_is_processor_sharing(sizes):
    mean, half = interval(EqualShare(divisible=True), 0.5, sizes)
    assert mean == pytest.approx(theory.mg1_ps_response_time(0.5, 1.0), abs=half)
    assert mean != pytest.approx(theory.mg1_srpt_response_time(0.5, lambda x: math.exp(-x)), abs=half)


def test_shortest_remaining_time_first_is_schrages():
    mean, half = interval(SRPT(), 0.7, exponential(3000), replications=8)
    assert mean == pytest.approx(theory.mg1_srpt_response_time(0.7, lambda x: math.exp(-x)), abs=half)
    assert mean != pytest.approx(theory.mg1_ps_response_time(0.7, 1.0), abs=half)


def test_shortest_remaining_time_first_with_uniform_sizes():
    truth = theory.mg1_srpt_response_time(0.7, lambda x: 0.5 if x <= 2 else 0.0, largest=2.0)
    mean, half = interval(SRPT(), 0.7, uniform(3000))
    assert mean == pytest.approx(truth, abs=half)


@pytest.mark.parametrize("exponent", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("nodes", [1, 7])
def test_hesrpt_is_its_closed_form(exponent, nodes):
    sizes = np.random.default_rng(3).lognormal(0, 1.5, 12)
    jobs = [Job(f"{k}", arrival_time=0, steps=x, curve=PowerLawCurve(exponent)) for k, x in enumerate(sizes)]
    mean = simulate(jobs, HeSRPT(exponent, divisible=True), nodes=nodes).mean_response_time
    assert mean == pytest.approx(theory.hesrpt_mean_response_time(sizes, exponent, nodes=nodes), rel=1e-9)
    # It fits the exponent from the curves, and no other share does as well.
    fitted = simulate(jobs, HeSRPT(divisible=True), nodes=nodes)
    if nodes > 1:
        assert fitted.mean_response_time == pytest.approx(mean, rel=1e-9)
    assert simulate(jobs, HeSRPT(exponent + 0.05, divisible=True), nodes=nodes).mean_response_time > mean * (1 + 1e-6)
    assert simulate(jobs, EqualShare(divisible=True), nodes=nodes).mean_response_time > mean


def test_rank_prices_in_whole_nodes_come_close_to_hesrpt():
    sizes = np.random.default_rng(5).exponential(1000.0, 20)
    jobs = [Job(f"{k}", arrival_time=0, steps=x, curve=PowerLawCurve(0.5)) for k, x in enumerate(sizes)]
    best = theory.hesrpt_mean_response_time(sizes, 0.5, nodes=1000)
    assert simulate(jobs, RankPriced(0.5), nodes=1000).mean_response_time == pytest.approx(best, rel=2e-3)
    assert simulate(jobs, GreedyGain(0.0), nodes=1000).mean_response_time > 1.05 * best


@pytest.mark.parametrize("exponent", [0.0, 0.3, 0.5, 0.9, 0.999, 1 - 1e-9])
def test_prices_are_right_up_to_linear_speedup(exponent):
    with mpmath.workdps(60):
        q = 1 / (1 - mpmath.mpf(exponent))
        truth = [float((mpmath.mpf(k) ** q - mpmath.mpf(k - 1) ** q) ** (1 / q)) for k in range(1, 60)]
    assert rank_prices(59, exponent) == pytest.approx(truth, rel=1e-12)
    jobs = [Job(f"{k}", arrival_time=0, steps=10.0 + k, curve=PowerLawCurve(0.7)) for k in range(20)]
    assert np.isfinite(simulate(jobs, RankPriced(exponent), nodes=7).end).all()


def test_equal_share_with_exponential_sizes_is_its_chain_and_nobody_is_better():
    curve, nodes, rate = PowerLawCurve(0.6), 8, 2.0
    truth = theory.equi_response_time(rate, 1.0, curve, nodes)
    mean, half = interval(EqualShare(divisible=True), rate, exponential(3000), curve=curve, nodes=nodes)
    assert mean == pytest.approx(truth, abs=half)
    assert mean != pytest.approx(1.2 * truth, abs=half)
    other, other_half = interval(FIFO(fixed=4), rate, exponential(3000), curve=curve, nodes=nodes, replications=4)
    assert other - other_half > truth


def test_processor_sharing_does_not_depend_on_the_law_of_the_sizes_but_fifo_does():
    shared, half = interval(EqualShare(divisible=True), 0.5, lognormal(4000))
    assert shared == pytest.approx(2.0, abs=half)
    assert theory.mg1_fifo_response_time(0.5, 1.0, 2.0) == pytest.approx(3.5)


def test_closed_forms_refuse_what_has_no_steady_state():
    with pytest.raises(ModelError, match="load must be below 2, got 2"):
        theory.mmk_response_time(2.0, 1.0, 2)
    with pytest.raises(ModelError, match="not stable"):
        theory.equi_response_time(9.0, 1.0, PowerLawCurve(1.0), 8)
    assert theory.mmk_response_time(0.5, 1.0, 1) == pytest.approx(2.0)
