"""Every reference case (tests/data/queueing) through the public API, within its tolerance."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import queuemodel as qm

CASES = json.loads((Path(__file__).parent.parent / "data" / "queueing" / "reference_cases.json").read_text())


def of_kind(*kinds):
    return pytest.mark.parametrize(
        "case", [pytest.param(c, id=c["name"]) for c in CASES if any(c["kind"].startswith(k) for k in kinds)]
    )


def single_class(inputs):
    if "rates" in inputs:
        return qm.Network(
            [
                qm.Station(f"s{k}", rates=r, visit_ratio=v)
                for k, (r, v) in enumerate(zip(inputs["rates"], inputs["V"], strict=True))
            ],
            think_time=inputs["Z"],
        )
    if "S" in inputs:
        servers = [math.inf if m == "inf" else m for m in inputs["servers"]]
        return qm.Network(
            [
                qm.Station(f"s{k}", service_time=s, visit_ratio=v, servers=m)
                for k, (s, v, m) in enumerate(zip(inputs["S"], inputs["V"], servers, strict=True))
            ],
            think_time=inputs["Z"],
        )
    return qm.Network.from_demands(inputs["D"], think_time=inputs["Z"], servers=inputs.get("servers", 1))


def multi_class(inputs):
    if "D" in inputs:
        K = len(inputs["D"][0])
        servers = [math.inf if m == "inf" else m for m in inputs.get("servers", [1] * K)]
        return qm.Network.from_demands(
            np.transpose(inputs["D"]), think_time=inputs["Z"], servers=servers, population=inputs["N"]
        )
    names = [f"c{c}" for c in range(len(inputs["N"]))]
    S, V = np.transpose(inputs["S"]), np.transpose(inputs["V"])
    stations = [
        qm.Station(
            f"s{k}",
            service_time=dict(zip(names, S[k].tolist(), strict=True)),
            visit_ratio=dict(zip(names, V[k].tolist(), strict=True)),
            servers=math.inf if m == "inf" else m,
        )
        for k, m in enumerate(inputs["servers"])
    ]
    classes = [
        qm.JobClass(name, population=n, think_time=z)
        for name, n, z in zip(names, inputs["N"], inputs["Z"], strict=True)
    ]
    return qm.Network(stations, classes=classes)


def check(solution, expected, tol, *, classes=False):
    got = {
        "X": solution.class_throughput if classes else solution.throughput,
        "Q": solution.class_queue_length.T if classes else solution.queue_length,
        "R": solution.class_residence_time.T if classes else solution.residence_time,
        "U": solution.class_utilization.T if classes else solution.utilization,
        "U_busy": solution.utilization,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=tol, atol=tol * 1e-3, err_msg=name)


@of_kind("closed_single_class")
def test_single_class(case):
    if case["inputs"]["N"] == 0:
        with pytest.raises(qm.ModelError, match=r"population must be a whole"):  # the answer, 0, is no network at work
            qm.solve(single_class(case["inputs"]), population=0)
        return
    solution = qm.solve(single_class(case["inputs"]), population=case["inputs"]["N"])
    assert solution.exact
    check(solution, case["expected"], case["tol"])


@of_kind("closed_multi_class")
def test_multi_class(case):
    solution = qm.solve(multi_class(case["inputs"]))
    assert solution.exact
    check(solution, case["expected"], case["tol"], classes=True)


@of_kind("amva_schweitzer")
def test_schweitzer(case):
    inputs = case["inputs"]
    if isinstance(inputs["N"], list):
        solution = qm.solve(multi_class(inputs), solver=qm.ApproximateMVA("bard-schweitzer"))
        check(solution, case["expected"], case["tol"], classes=True)
    else:
        solution = qm.solve(single_class(inputs), population=inputs["N"], solver=qm.ApproximateMVA("bard-schweitzer"))
        check(solution, case["expected"], case["tol"])
    assert not solution.exact


@of_kind("bounds")
def test_bounds(case):
    kind = {
        "bounds_aba": "asymptotic",
        "bounds_bjb": "balanced-job",
        "bounds_gb": "geometric",
        "bounds_pb": "proportional",
    }[case["kind"]]
    bounds = qm.bounds(single_class(case["inputs"]), case["inputs"]["N"], kind=kind)
    got = {
        "X_lower": bounds.lower,
        "X_upper": bounds.upper,
        "R_lower": bounds.response_lower,
        "R_upper": bounds.response_upper,
    }
    for name, value in case["expected"].items():
        assert float(got[name]) == pytest.approx(value, rel=case["tol"]), name


@of_kind("normalizing_constant", "log_normalizing_constant")
def test_normalizing_constants(case):
    X = qm.solve(single_class(case["inputs"]), population=case["inputs"]["N"], solver=qm.Convolution()).throughputs
    log = np.append(0.0, -np.log(X).cumsum())  # X(n) = G(n-1) / G(n)
    if "G" in case["expected"]:
        np.testing.assert_allclose(np.exp(log), case["expected"]["G"], rtol=case["tol"])
    else:
        assert log[-1] == pytest.approx(case["expected"]["lG"], rel=case["tol"])


@of_kind("marginal_distribution")
def test_marginals(case):
    inputs = case["inputs"]
    p = qm.marginal_distribution(single_class(inputs), inputs["station"], population=inputs["N"])
    np.testing.assert_allclose(p, case["expected"]["p"], rtol=1e-9, atol=case["tol"])


@of_kind("sensitivity")
def test_sensitivities(case):
    slopes = qm.sensitivity(single_class(case["inputs"]), population=case["inputs"]["N"])
    np.testing.assert_allclose(slopes.dX_dD, case["expected"]["dX_dD"], rtol=case["tol"])
    assert slopes.dX_dZ == pytest.approx(case["expected"]["dX_dZ"], rel=case["tol"])


@of_kind("visits")
def test_visits(case):
    P = case["inputs"]["P"]
    stations = [qm.Station(f"s{k}", service_time=1.0) for k in range(len(P))]
    network = qm.Network(stations, routing=P, reference=f"s{case['inputs']['ref']}")
    np.testing.assert_allclose(network.visit_ratios, case["expected"]["V"], rtol=case["tol"])


@of_kind("closed_fcfs_nonexponential")
def test_phase_type_service_first_come_first_served(case):
    inputs = case["inputs"]
    service = qm.PhaseType(inputs["alpha"], inputs["T"])
    assert service.mean == pytest.approx(inputs["mean"], rel=1e-6)
    assert service.scv == pytest.approx(inputs["scv"], rel=1e-6)
    network = qm.Network([qm.Station("q", distribution=service, discipline="fcfs")], think_time=inputs["Z"])
    solution = qm.solve(network, population=inputs["N"], solver=qm.MarkovChain())
    check(solution, case["expected"], case["tol"])
    approximate = qm.solve(network, population=inputs["N"])
    assert not approximate.exact
    assert approximate.throughput == pytest.approx(case["expected"]["X"], rel=0.06)  # docs/explanation/solvers


@of_kind("curve_single_class")
def test_whole_curve(case):
    solution = qm.solve(single_class(case["inputs"]), population=case["inputs"]["N"][-1])
    np.testing.assert_allclose(solution.throughputs, case["expected"]["X"], rtol=case["tol"])
    assert np.all(np.diff(solution.throughputs) >= 0)
    assert np.all(solution.throughputs <= 1 / max(case["inputs"]["D"]))


@of_kind("invalid_input")
def test_invalid_input(case):
    messages = {
        "invalid_empty": "at least one station", "invalid_all_zero": "all service demands are zero",
        "invalid_neg_N": "population must be a whole", "invalid_nan_demand": "array of numbers",
        "invalid_neg_demand": "got -0.05", "invalid_frac_servers": "servers must be a whole number",
    }  # fmt: skip
    with pytest.raises(qm.ModelError) as error:
        qm.solve(single_class(case["inputs"]), population=case["inputs"]["N"])
    assert messages[case["name"]] in str(error.value)


def test_no_kind_is_left_out():
    tested = (
        "closed_single_class", "closed_multi_class", "amva_schweitzer", "bounds", "normalizing_constant",
        "log_normalizing_constant", "marginal_distribution", "sensitivity", "visits", "closed_fcfs_nonexponential",
        "curve_single_class", "invalid_input",
    )  # fmt: skip
    assert all(case["kind"].startswith(tested) for case in CASES)
    assert len(CASES) == 76
