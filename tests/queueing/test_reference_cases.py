"""Every reference case (tests/data/queueing) through the public API, within its tolerance."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from queuemodel import queueing as qn

CASES = json.loads((Path(__file__).parent.parent / "data" / "queueing" / "reference_cases.json").read_text())


def network_of(inputs):
    """With demands D, or service times S or rates and visit ratios V; of classes where N is a list, classes first."""
    servers = inputs.get("servers", 1)
    if isinstance(servers, list):
        servers = [math.inf if m == "inf" else m for m in servers]
    N, Z = inputs["N"], inputs["Z"]
    if "D" in inputs:
        classes = isinstance(N, list) and np.ndim(inputs["D"]) > 1
        D = np.transpose(inputs["D"]) if classes else inputs["D"]
        return qn.Network.from_demands(D, think_time=Z, servers=servers, population=N if classes else None)
    said, stations = ("rates", inputs["rates"]) if "rates" in inputs else ("service_time", inputs["S"]), []
    names = [f"c{c}" for c in range(len(N))] if isinstance(N, list) else []
    times, visits = (np.transpose(v).tolist() if names else v for v in (said[1], inputs["V"]))
    for k, (s, v) in enumerate(zip(times, visits, strict=True)):
        s, v = (dict(zip(names, one, strict=True)) if names else one for one in (s, v))
        m = {} if said[0] == "rates" else {"servers": servers[k]}
        stations.append(qn.Station(f"s{k}", visit_ratio=v, **{said[0]: s}, **m))
    if not names:
        return qn.Network(stations, think_time=Z)
    classes = [qn.JobClass(c, population=n, think_time=z) for c, n, z in zip(names, N, Z, strict=True)]
    return qn.Network(stations, classes=classes)


def solved(case, solver=None):
    """Compare the measures of the case's solution."""
    network, N = network_of(case["inputs"]), case["inputs"]["N"]
    solution = qn.solve(network, population=N, solver=solver)
    classes, tol = bool(network.classes), case["tol"]
    got = {
        "X": solution.class_throughput if classes else solution.throughput,
        "Q": solution.class_queue_length.T if classes else solution.queue_length,
        "R": solution.class_residence_time.T if classes else solution.residence_time,
        "U": solution.class_utilization.T if classes else solution.utilization,
        "U_busy": solution.utilization,
    }
    for name, value in case["expected"].items():
        np.testing.assert_allclose(got[name], value, rtol=tol, atol=tol * 1e-3, err_msg=name)
    assert solution.exact == (solver is None)


def bounded(case):
    inputs = case["inputs"]
    kinds = {"aba": "asymptotic", "bjb": "balanced-job", "gb": "geometric", "pb": "proportional"}
    found = qn.bounds(network_of(inputs), inputs["N"], kind=kinds[case["kind"].removeprefix("bounds_")])
    names = {"X_lower": "lower", "X_upper": "upper", "R_lower": "response_lower", "R_upper": "response_upper"}
    for name, value in case["expected"].items():
        np.testing.assert_allclose(getattr(found, names[name]), value, rtol=case["tol"], err_msg=name)


def phase_type(case):
    inputs = case["inputs"]
    service = qn.PhaseType(inputs["alpha"], inputs["T"])
    assert [service.mean, service.scv] == pytest.approx([inputs["mean"], inputs["scv"]], rel=1e-6)
    network = qn.Network([qn.Station("q", distribution=service, discipline="fcfs")], think_time=inputs["Z"])
    chain = qn.solve(network, population=inputs["N"], solver=qn.MarkovChain())
    got = {"X": chain.throughput, "Q": chain.queue_length, "R": chain.residence_time, "U": chain.utilization}
    for name, value in case["expected"].items():
        np.testing.assert_allclose(got[name], value, rtol=case["tol"])
    approximate = qn.solve(network, population=inputs["N"])
    assert approximate.throughput == pytest.approx(case["expected"]["X"], rel=0.06)  # docs/explanation/model


JUDGES = {
    "closed_fcfs": phase_type, "closed": solved, "bounds": bounded,
    "amva_schweitzer": lambda case: solved(case, qn.ApproximateMVA("bard-schweitzer")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_reference_case_is_met(case):
    next(judge for kind, judge in JUDGES.items() if case["kind"].startswith(kind))(case)
