"""The simulation against closed forms, each with a control that must fail."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid
from scipy.stats import t

from queuemodel import scheduling as qs

LINEAR = qs.PowerLawCurve(1.0)


def mg1_fifo_response_time(rate, service_time, variation):
    """M/G/1, first come first served (Pollaczek and Khinchine, 1930)."""
    load = rate * service_time
    return service_time + load * service_time * (1 + variation**2) / (2 * (1 - load))


def mm1_srpt_response_time(rate):
    """M/M/1 with shortest remaining processing time first (Schrage and Miller, 1966), integrated over sizes."""
    x = np.linspace(0.0, 40.0, 200_001)
    f, integral = np.exp(-x), partial(cumulative_trapezoid, x=x, initial=0)
    load = rate * integral(x * f)
    waiting = rate * (integral(x * x * f) + x * x * (1 - integral(f))) / (2 * (1 - load) ** 2)
    return float(integral((waiting + integral(1 / (1 - load))) * f)[-1])


def hesrpt_mean_response_time(sizes, exponent, *, nodes):
    """Least mean of jobs present at time 0 with speed nodes ** exponent (Berg, Vesilo and Harchol-Balter, 2020).

    A unit of work of the k-th largest job costs all jobs (k^q - (k - 1)^q)^(1/q), q = 1 / (1 - p).
    """
    k, q = np.arange(1.0, len(sizes) + 1), 1 / (1 - exponent)
    prices = (k**q - (k - 1) ** q) ** (1 / q)
    return float(np.sort(sizes)[::-1] @ prices / nodes**exponent / len(sizes))


def equi_response_time(rate, speed, nodes):
    """EQUI with divisible nodes and exponential sizes of mean 1: a birth and death chain (Berg et al., 2018)."""
    weight, total, jobs = 1.0, 1.0, 0.0
    for n in range(1, 2000):
        weight *= rate / (n * speed(nodes / n))
        total += weight
        jobs += n * weight
    return jobs / total / rate


def interval(policy, rate, sizes, curve=LINEAR, nodes=1, replications=6, **limits):
    """Mean response time and half-width of its 99.9 % interval, of Poisson arrivals."""
    means = []
    for seed in range(replications):
        rng = np.random.default_rng(seed)
        work = SIZES[sizes[0]](rng, sizes[1])
        times = np.cumsum(rng.exponential(1 / rate, len(work)))
        pairs = enumerate(zip(times, work, strict=True))
        jobs = [qs.ClusterJob(f"{k}", arrival_time=at, steps=steps, curve=curve, **limits) for k, (at, steps) in pairs]
        means.append(qs.schedule(jobs, policy, nodes=nodes, warmup=0.1).mean_response_time)
    return np.mean(means), t.ppf(0.9995, replications - 1) * np.std(means, ddof=1) / math.sqrt(replications)


#: Sizes of mean 1.
SIZES = {
    "exponential": lambda rng, n: rng.exponential(1.0, n),
    "uniform": lambda rng, n: rng.uniform(0.0, 2.0, n) + 1e-12,
    "lognormal": lambda rng, n: rng.lognormal(-math.log(5) / 2, math.log(5) ** 0.5, n),  # variation 2
}
SHARED, SUBLINEAR = qs.EqualShare(divisible=True), qs.PowerLawCurve(0.6)
#: Policy, arrival rate, sizes, how they are run; the truth, and what is not true: other sizes, laws, loads or servers.
LAWS = {
    "Pollaczek and Khinchine": (qs.FIFO(), 0.6, ("uniform", 4000), {}, mg1_fifo_response_time(0.6, 1, 1 / math.sqrt(3)),
                                mg1_fifo_response_time(0.6, 1, 1)),
    "processor sharing is insensitive": (SHARED, 0.5, ("lognormal", 4000), {}, 1 / (1 - 0.5),
                                         mm1_srpt_response_time(0.5)),
    "Schrage": (qs.SRPT(), 0.7, ("exponential", 3000), {"replications": 8}, mm1_srpt_response_time(0.7),
                1 / (1 - 0.7)),
    "birth and death": (SHARED, 2.0, ("exponential", 3000), {"curve": SUBLINEAR, "nodes": 8},
                        equi_response_time(2.0, SUBLINEAR, 8), 1.2 * equi_response_time(2.0, SUBLINEAR, 8)),
}  # fmt: skip


@pytest.mark.parametrize("law", LAWS)
def test_mean_response_time_in_closed_form(law):
    policy, rate, sizes, how, truth, wrong = LAWS[law]
    mean, half = interval(policy, rate, sizes, **how)
    assert mean == pytest.approx(truth, abs=half)
    assert mean != pytest.approx(wrong, abs=half)
    assert half < 0.25 * mean


@pytest.mark.parametrize("exponent", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("nodes", [1, 7])
def test_hesrpt_is_its_closed_form(exponent, nodes):
    sizes = np.random.default_rng(3).lognormal(0, 1.5, 12)
    curve = qs.PowerLawCurve(exponent)
    jobs = [qs.ClusterJob(f"{k}", arrival_time=0, steps=x, curve=curve) for k, x in enumerate(sizes)]
    policies = [qs.HeSRPT(p, divisible=True) for p in (exponent, None, exponent + 0.05)] + [SHARED]
    mean, fitted, *others = (qs.schedule(jobs, policy, nodes=nodes).mean_response_time for policy in policies)
    assert mean == pytest.approx(hesrpt_mean_response_time(sizes, exponent, nodes=nodes), rel=1e-9)
    if nodes > 1:  # it fits the exponent from the curves
        assert fitted == pytest.approx(mean, rel=1e-9)
    assert min(others) > mean * (1 + 1e-6)
