"""What can be said in a network, and every bad input as one clear line that names station and class."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

import queuemodel as qm
from queuemodel import queueing as qn

S, J, N, PH = qn.Station, qn.JobClass, qn.Network, qn.PhaseType
TWO = [J("a", population=2), J("b")]
X = [S("x", service_time=1.0)]
XY = [S("x", service_time=1.0), S("y", service_time=1.0)]
OPEN = N(X, classes=[J("a", arrival_rate=0.5)])
VARIED = N([S("q", service_time=0.5, scv=4.0, discipline="fcfs")], classes=OPEN.classes)
SWITCH = {("a", "b"): [[0, 1], [0, 0]], ("b", "a"): [[0, 0], [1, 0]]}


def one(**station):
    return N([S("cpu", **station)])


STATIONS = [
    ({"service_time": -1.0}, "station 'x': service_time must be finite and >= 0 seconds, got -1.0"),
    ({"service_time": {"a": -1.0}}, "station 'x': service_time[class 'a'] must be finite"),
    ({"service_time": {"a": math.nan}}, "got nan"), ({"service_time": math.inf}, "got inf"),
    ({"service_time": {}}, "must name at least one class"), ({"service_time": {1: 2.0}}, "class names must be texts"),
    ({"service_time": "1"}, "got '1'"), ({"service_time": 1j}, "got 1j"),
    ({"service_time": [1.0, 2.0]}, "station 'x': service_time"), ({}, "station 'x': service_time"),
    ({"service_time": 700_000.0}, "microseconds"), ({"service_time": 1.0, "visit_ratio": -2}, "visit_ratio"),
    ({"service_time": 1.0, "visit_ratio": {"a": math.inf}}, "visit_ratio[class 'a']"),
    *(({"service_time": 1.0, "servers": m}, "servers must be a whole number") for m in (0, 2.5, True, "2", -math.inf)),
    ({"service_time": 1.0, "discipline": "random"}, "discipline must be one of ps, fcfs, lifo-pr"),
    *(({"service_time": 1.0, "discipline": name}, f"did you mean '{meant}'")
      for name, meant in (("fifo", "fcfs"), ("LCFS-PR", "lifo-pr"), ("round robin", "ps"))),
    ({"service_time": 1.0, "scv": -0.1}, "scv"), ({"rates": []}, "rates must be a list of numbers"),
    ({"rates": "fast"}, "rates must be a list of numbers"), ({"rates": ["fast"]}, "rates[0]"),
    ({"rates": [1.0, 0.0]}, "rates[1] must be finite and > 0"), ({"rates": [1.0, math.nan]}, "rates[1]"),
    ({"rates": [1.0], "servers": 2}, "rates replace servers"),
    ({"service_time": 2.0, "distribution": PH.exponential(1.0)}, "give only one of them"),
    ({"distribution": "erlang"}, "must be a PhaseType"),
]  # fmt: skip
NETWORKS = [
    ([], {}, "at least one station"), (X[0], {}, "list of Station"), (["a"], {}, "'a'"),
    (X * 2, {}, "'x' more than once"), (X, {"think_time": -1.0}, "think_time"),
    ([S("x", service_time=0.0)], {"think_time": 1.0}, "zero"),
    ([S("x", service_time={"a": 1.0})], {}, "names class 'a', but the classes are: none"),
    ([S("x", service_time={"q": 1.0})], {"classes": TWO}, "names class 'q', but the classes are: 'a', 'b'"),
    ([S("x", service_time={"a": 1.0})], {"classes": TWO}, "station 'x': class 'b' visits it but has no service_time"),
    ([S("x", service_time=1.0, visit_ratio={"a": 1})], {"classes": TWO}, "class 'b' visits no station"),
    (X, {"classes": [J("a"), J("a")]}, "class names must be unique"),
    ([S("x", service_time={"a": 0.0, "b": 1.0})], {"classes": TWO}, "class 'a' takes no time"),
    (X, {"classes": ["a"]}, "classes must be JobClass"), (X, {"reference": "y"}, "reference must be one of its"),
    (X, {"routing": [[0.5]]}, "row of station 'x' must sum to 1"), (X, {"routing": [[1.0, 0.0]]}, "shape"),
    (X, {"routing": [["a"]]}, "matrix of probabilities"), (X, {"routing": {"a": [[1.0]]}}, "has none"),
    (X, {"classes": TWO, "routing": {"a": [[1.0]]}}, "class 'b' has no matrix"),
    (X, {"classes": TWO, "routing": {("a", "z"): [[1.0]]}}, "pairs of classes"),
    (XY, {"routing": [[0, 1], [0, 0]]}, "never leave"), (XY, {"routing": [[0, 1], [0, 1]]}, "no unique visit ratios"),
    ([S("x", service_time=1.0, visit_ratio=2), XY[1]], {"routing": [[0, 1], [1, 0]]}, "follows from the routing"),
]  # fmt: skip
OTHERS = [
    (lambda: S("", service_time=1.0), "name"), (lambda: S("a\nb", service_time=1.0), "printable"),
    (lambda: S("x" * 201, service_time=1.0), "at most 200"),
    (lambda: PH([0.5, 0.4], [[-1, 0], [0, -1]]), "sum to 1"), (lambda: PH([1.0], [[1.0]]), "negative diagonal"),
    (lambda: PH([0.5, 0.5], [[-1.0, -0.5], [0.0, -1.0]]), "rates >= 0 elsewhere"),
    (lambda: PH([1.0, 0.0], [[-1.0, 1.0], [1.0, -1.0]]), "singular"),
    (lambda: PH([1.0], [[-1.0, 0.0]]), "rows and columns"),
    (lambda: PH.from_moments(mean=1.0, scv=0.0), "scv must be at least"),
    (lambda: J("", population=1), "class: name"), (lambda: J("a", think_time=-1), "class 'a': think_time"),
    *((lambda n=n: J("a", population=n), "class 'a': population must be ") for n in (-1, 2.5, 10**30)),
    (lambda: J("o", arrival_rate=1.0, population=3), "leave out population and think_time"),
    (lambda: J("o", arrival_rate=1.0, think_time=1.0), "leave out population and think_time"),
    (lambda: J("o", arrival_rate=0.0), "arrival_rate must be finite and > 0"),
    (lambda: qn.solve(OPEN, population={"a": 2}), "population of class 'a' must be 0"),
    (lambda: qn.solve(N([S("m", service_time=1.0, servers=9000)], classes=[J("a", arrival_rate=3.0)])), "too many be"),
    (lambda: qn.solve(N([S("m", service_time=0.5), *X], classes=[J("a", arrival_rate=1.5)])),
     "load station 'x' to 1.5 of its capacity, the most of all; arrival rates below 0.6667 times"),
    (lambda: qn.sensitivity(OPEN), "no class is closed"), (lambda: qn.bounds(OPEN, 2), "0 closed classes; one is need"),
    (lambda: qn.saturation_population(OPEN), "no closed class"), (lambda: qn.bounds(N(X, classes=TWO), 2), "classes"),
    (lambda: qn.solve_symbolic(OPEN), "open classes are not supported"),
    (lambda: N(XY, classes=[J("a", arrival_rate=1.0), J("b")], routing=SWITCH), "so all of them must be closed"),
    (lambda: N(XY, classes=OPEN.classes, routing={"a": [[0, 1], [1, 0]]}), "never leave"),
    (lambda: N(XY, classes=OPEN.classes, routing={"a": [[0, 2], [0, 0]]}), "0 to 1"),
    (lambda: qn.solve(N([S("q", service_time=0.5, rates=[1.0, 1.5])], classes=OPEN.classes)),
     "rates has 2 values, but any number of customers can be here; "),
    (lambda: qn.solve(VARIED), "not exponential"),
    (lambda: qn.solve(VARIED, solver=qn.ApproximateMVA()), "no product form"),
    *((lambda network=network: qn.sensitivity(network), message) for network, message in (
        (N([S("a", service_time={"a": 0.2, "b": 0.3}, discipline="fcfs")], classes=TWO), "product form"),
        (N(X), "population"), (N(XY, classes=TWO, routing=SWITCH), "switch"))),
    *((lambda q=q: qn.response_percentile(N([S("q", **q)], think_time=1.0), "q", 0.9, population=3), message)
      for q, message in (
          ({"service_time": 0.5}, "must be first come first served"),
          ({"service_time": 0.5, "rates": [1.0, 1.5, 1.5], "discipline": "fcfs"}, "without rates"),
          ({"service_time": 0.5, "scv": 0.0, "servers": math.inf}, "must be exponential"))),
    (lambda: qn.response_percentile(OPEN, "x", 0.9), "must be first come first served without rates"),
    (lambda: qn.barrier_time(N(X, routing=[[1.0]]), population=2), "classes and routing"),
    (lambda: qn.barrier_time(N.from_demands([1.0] * 3), population=300), "states for 300 customers"),
    (lambda: qn.solve(N.from_demands([1.0] * 5), population=20, solver=qn.MarkovChain(most_states=100)),
     "more than 100 states at population 20; take fewer customers"),
    (lambda: N.from_demands([]), "at least one"), (lambda: N.from_demands([[1.0, 2.0]]), "populations of 2 classes"),
    (lambda: N.from_demands([[1.0, 2.0]], population=[1]), "must be 2 whole numbers"),
    (lambda: N.from_demands([1.0, 2.0], servers=[1, 2, 3]), "servers: must be one number or 2"),
    (lambda: N.from_demands("abc"), "array of numbers"), (lambda: N.from_demands([[[1.0]]]), "shape"),
    (lambda: qn.solve(one(rates=[1.0, 2.0]), population=3), "station 'cpu': rates has 2 values, but 3 customers"),
    (lambda: qn.solve(one(service_time=1.0)), "population is needed"),
    (lambda: qn.solve(one(service_time=1.0), population=[1, 2]), "network without classes"),
    (lambda: qn.solve(N(X, classes=TWO), population=3), "one per class"),
    (lambda: qn.solve(N(X, classes=TWO), population=[1, -1]), "population of class 'b'"),
    (lambda: qn.solve(N(X, classes=TWO), population=[0, 0]), "all classes together"),
    (lambda: qn.solve(N(X, classes=TWO), population={"a": 1}), "'b' is missing"),
    (lambda: qn.solve(N(X, classes=TWO), population={"a": 1, "z": 1}), "class 'z'"),
    (lambda: qn.solve(one(service_time=1.0), population=2, solver=qn.ExactMVA), "solver must be a solver value"),
    (lambda: qn.solve("network", population=2), "must be a Network"),
    (lambda: S("a", 1.0), "write Station(name, service_time=, visit_ratio="),
    (lambda: S("a", service=1.0), "unexpected keyword argument 'service'; write Station(name, service_time="),
    (lambda: J("a", 3), "write JobClass(name, population=, "), (lambda: N(X, TWO), "write Network(stations, classes="),
    (lambda: qn.solve(N(X), 3), "write solve(network, population=, solver=)"),
    (lambda: qn.solve_batch([1.0]), "missing 1 required keyword-only argument: 'population'; write solve_batch("),
    (lambda: qn.marginal_distribution(N(X), "x", 3), "station, population=)"),
    (lambda: qn.sensitivity(N(X), 3), "write sensitivity(network, population=)"),
    (lambda: qn.solve_symbolic(N(X), 3), "write solve_symbolic("), (lambda: PH([1.0]), "write PhaseType(alpha, T)"),
    (lambda: qn.barrier_time(N(X), 3), "write barrier_time("), (lambda: qn.bounds(N(X), 3, "x"), "population, kind=)"),
    (lambda: qn.solve_batch([0.1, -0.1], population=2), "demands[1] must be 0 to 1e9 seconds"),
    (lambda: qn.solve_batch([0.1], population=2.5), "whole numbers"),
    (lambda: qn.solve_batch([0.1], population=0), "whole numbers"),
    (lambda: qn.solve_batch([0.0], population=2, think_time=1.0), "demands of a network are zero"),
    (lambda: qn.solve_batch([[0.1]] * 3, population=[1, 2]), "do not broadcast"),
    (lambda: qn.solve_batch([0.1] * 10, population=[10**7] * 100), "bytes, more than"),
    *(
        (lambda says=says: qn.Simulation(**{says: 0.5 if says != "confidence" else 1}), f"simulation: {says} must be")
        for says in ("seed", "departures", "replications", "confidence", "most_departures")
    ),
    (lambda: qn.solve(one(service_time=0.1, servers=2, discipline="lifo-pr"), population=2, solver=qn.Simulation()),
     "'cpu' is lifo-pr with several servers; use MarkovChain"),
    (lambda: qn.ApproximateMVA("aql"), "method must be one of recursion, bard-schweitzer, linearizer, got"),
    (lambda: qn.MarkovChain(most_states=0), "most_states must be a whole number"),
    (lambda: qn.marginal_distribution(one(service_time=1.0), "disk", population=2), "station must be one of 'cpu'"),
    (lambda: qn.bounds(one(service_time=1.0), 0), "bounds: population"),
    (lambda: qn.marginal_distribution(N(X, classes=[J("a", arrival_rate=1 - 1e-9)]), "x"),
     "so near to saturation it has up to"),
    (lambda: qn.sensitivity(N(X, classes=TWO), population=2), "one per class"),
    *(
        (lambda solver=solver: solver().solve(N(X, classes=TWO), 2), "one per class")
        for solver in (qn.ExactMVA, qn.ApproximateMVA, qn.MarkovChain, qn.Simulation)
    ),
    *(
        (lambda n=n: qn.solve(one(service_time=1.0), population=n), "population must be ")
        for n in (0, -3, 2.5, math.nan, math.inf, True, "5", 10**12)
    ),
]  # fmt: skip
CASES = [
    *((lambda says=says: S("x", **says), message) for says, message in STATIONS),
    *((lambda stations=stations, says=says: N(stations, **says), message) for stations, says, message in NETWORKS),
    *OTHERS,
]


@pytest.mark.parametrize(("make", "message"), CASES, ids=[message for _, message in CASES])
def test_bad_input_is_one_clear_line(make, message):
    with pytest.raises(qm.ModelError) as error:
        make()
    assert message in str(error.value)


def test_inner_type_errors_pass():
    class Solver:
        def solve(self, network, population):
            return None + population

    with pytest.raises(TypeError, match="unsupported operand"):
        qn.solve(N(X), population=2, solver=Solver())


def test_networks_are_values():
    routing = {"a": [[0, 1], [1, 0]], "b": [[0.5, 0.5], [1, 0]]}
    network = N([S("x", service_time={"a": 0.1, "b": 0.2}), S("y", service_time=0.3)], classes=TWO, routing=routing)
    again = pickle.loads(pickle.dumps(network))
    assert again == network
    assert hash(network.stations[0]) == hash(again.stations[0])
    np.testing.assert_allclose(again.visit_ratios, [[1, 1], [1, 0.5]])
    with pytest.raises(ValueError, match="read-only"):
        network.visit_ratios[0, 0] = 2
    drawn = S("x", distribution=PH.exponential(0.3))
    assert replace(replace(drawn, servers=2), servers=1) == drawn


def test_phase_types_have_their_moments():
    for scv in (0.02, 0.3, 0.5, 1.0, 1.5, 9.0):
        shape = qn.PhaseType.from_moments(mean=0.2, scv=scv)
        assert shape.mean == pytest.approx(0.2, rel=1e-10)
        assert shape.scv == pytest.approx(scv, rel=1e-8)


def test_rows_describe_stations_and_classes():
    """Demands are visits times service; a class's row of a solution is by Little's law and the utilization law."""
    V, T = np.array([[2.0, 1.0], [0.5, 3.0], [1.0, 0.0]]), np.array([[0.1, 0.4], [0.7, 0.2], [0.9, 0.0]])
    times, visits = ([dict(zip("ab", row, strict=True)) for row in values.tolist()] for values in (T, V))
    columns = zip(("cpu", "disk", "far"), times, visits, (2, 1, math.inf), strict=True)
    stations = [S(name, service_time=t, visit_ratio=v, servers=m) for name, t, v, m in columns]
    classes = [J("a", population=3, think_time=0.3), J("b", population=2)]
    network = N(stations, classes=classes, think_time=1.5, name="two")
    X, R = (s := qn.solve(network)).class_throughput, s.class_residence_time
    np.testing.assert_allclose(X * (R.sum(axis=0) + np.array([0.3, 1.5])), [3, 2], rtol=1e-12)
    told, solved = network.to_rows(), s.to_rows()
    for i, (k, c) in enumerate(np.ndindex(3, 2)):
        names = {"station": network.names[k], "class": "ab"[c]}
        assert told[i] == names | {"kind": network.stations[k].kind, "visit_ratio": V[k, c], "service_time": T[k, c],
                                   "service_demand": V[k, c] * T[k, c]}  # fmt: skip
        work = X[c] * V[k, c] * T[k, c]
        assert solved[i] == names | {"service_demand": V[k, c] * T[k, c], "residence_time": R[k, c],
                                     "utilization": pytest.approx(work / (2, 1, 1)[k]),
                                     "queue_length": pytest.approx(X[c] * R[k, c])}  # fmt: skip
    assert network.caption() == "two: 3 stations, 2 classes, think time 0.3, 1.5 s"
    assert (s.population, s.class_populations, s.throughput) == (5, (3, 2), pytest.approx(X.sum()))
    assert s.cycle_time == pytest.approx(5 / X.sum())
    assert s.response_time * X.sum() == pytest.approx((X * R).sum())
    assert s.queue_length == pytest.approx((X * R).sum(axis=1))
    assert [row["cycle_time"] for row in s.class_rows()] == pytest.approx([3 / X[0], 2 / X[1]])
