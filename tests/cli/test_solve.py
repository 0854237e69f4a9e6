"""``queuemodel solve``: classes, sweeps and the other questions about a network, against the library."""

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from queuemodel import queueing as qn
from tests.oracles.refusals import refused

CPU, DISK = qn.Station("cpu", service_time=0.3), qn.Station("disk", service_time=0.2)
REPAIR = qn.Station("repair", service_time=5.0, scv=0.0, discipline="fcfs")
NETWORKS = {
    "plain": qn.Network([CPU, DISK], think_time=2.0, name="both"),
    "mixed": qn.Network(
        [qn.Station("cpu", service_time={"jobs": 0.5, "web": 0.2}, servers=2),
         qn.Station("disk", service_time={"jobs": 0.4, "web": 0.3})],
        classes=[qn.JobClass("jobs", population=3, think_time=1.0), qn.JobClass("web", arrival_rate=0.5)]),
    "several": qn.Network([qn.Station("cpu", service_time={"a": 0.2, "b": 0.5})],
                          classes=[qn.JobClass(c, population=4, think_time=1.0) for c in "ab"]),
    "one": qn.Network([qn.Station("server", service_time={"users": 0.25})],
                      classes=[qn.JobClass("users", population=10, think_time=1.0)]),
    "same": qn.Network([qn.Station("server", service_time=0.25)], think_time=1.0),
    "constant": qn.Network([REPAIR], think_time=10.0),
    "crowd": qn.Network([REPAIR], think_time=10.0, classes=[qn.JobClass(name, population=20) for name in "ab"]),
    "varied": qn.Network([qn.Station("q", service_time=5.0, scv=4.0, discipline="fcfs")], think_time=10.0),
    "queue": qn.Network([qn.Station("server", service_time=0.2, discipline="fcfs")], think_time=1.0),
    "delay": qn.Network([qn.Station("delay", service_time=0.3, servers=float("inf"))]),
}  # fmt: skip
PLAIN, MIXED, SEVERAL = (NETWORKS[name] for name in ("plain", "mixed", "several"))


@pytest.fixture(autouse=True)
def files(examples):
    for name, network in NETWORKS.items():
        network.save(f"{name}.json")


@pytest.fixture
def solved(run):
    """The rows of a question, and its text."""

    def ask(words):
        code, out, err = run("solve", *words.split(), "--format", "csv")
        assert code == 0, err
        return list(csv.DictReader(io.StringIO(out))), " ".join(run("solve", *words.split())[1].split())

    return ask


def throughput(network, N=None, at=0, **options):
    return qn.solve(network, population=N, **options).class_throughput[at]


def test_solutions_over_populations(run, told):
    document, N = told("solve plain.json --population 1,2,5,20"), np.array([1, 2, 5, 20])
    truth = [qn.solve(PLAIN, population=n) for n in N.tolist()]
    X = np.array([one.throughput for one in truth])
    for name, values in {
        "population": N, "throughput": X, "cycle_time": N / X, "bound_upper": np.minimum(N / 2.5, 1 / 0.3),
        "bound_lower": N / (2.0 + 0.5 * N), "utilization[disk]": 0.2 * X,
        **{f"{name}[{station.name}]": [solution.to_rows()[k][name] for solution in truth]
           for k, station in enumerate(PLAIN.stations) for name in ("utilization", "queue_length", "residence_time")},
    }.items():  # fmt: skip
        assert document.pop(name) == pytest.approx(values), name
    assert document.pop("saturation_population") == pytest.approx(2.5 / 0.3)
    assert document == {"name": "both", "solver": truth[0].solver, "bottleneck": "cpu", "exact": True,
                        "expected_error": 0.0}  # fmt: skip
    assert told("solve delay.json --population 2")["saturation_population"] is None
    text = run("solve", "plain.json", "--population", "1:3")[1]
    assert [line.split()[0] for line in text.splitlines()[-3:]] == list("123")


@pytest.mark.parametrize(("words", "exact", "said"), [
    ("constant.json --population 3", False, "approximate"), ("crowd.json", False, "approximate"),
    ("varied.json --population 1,3", True, "Markov chain, 7 states, exact"),
    ("parameter-server-network.json --population 3", True, "exact MVA, exact"),
    ("plain.json --population 5 --solver linearizer", False, "(Linearizer, approximate, error to expect 0.5 %)"),
    ("mixed.json --solver simulation", False, "approximate, error to expect 0."),
])  # fmt: skip
def test_every_format_states_exactness(solved, told, words, exact, said):
    rows, text = solved(words)
    assert said in text
    assert {row["exact"] for row in rows} == {str(exact)}
    assert list(rows[0])[-2:] == ["solver", "exact"]
    assert told(f"solve {words}")["exact"] is exact


def test_one_class_is_solved_as_none(told):
    one, same = (told(f"solve {name}.json --population 1,2,5") for name in ("one", "same"))
    assert one["throughput"] == pytest.approx([0.8, 1 / 0.65, 3.2037], rel=1e-4)
    assert one.keys() == same.keys()
    for name in one.keys() - {"solver"}:
        assert one[name] == (same[name] if isinstance(same[name], str | bool) else pytest.approx(same[name])), name
    assert told("solve one.json")["throughput"] == pytest.approx(3.9788, rel=1e-4)


def test_largest_population_has_its_asymptote(told):
    many, (busiest, *others) = 10**6, (0.12, 0.10, 0.04)  # seconds; workers: 0.6
    found = told(f"solve parameter-server-network.json --population {many}")
    assert (found["population"], found["throughput"]) == ([many], pytest.approx([1 / busiest]))
    for name, demand in zip(("receive link", "server update"), others, strict=True):  # open queues at that rate
        assert found[f"residence_time[{name}]"] == pytest.approx([demand / (1 - demand / busiest)])
    assert found["cycle_time"] == pytest.approx([many * busiest])


def swept(station=CPU, Z=2.0):
    return qn.Network([station, DISK], think_time=Z)


def bounds(kinds):
    return [float(qn.bounds(PLAIN, n, kind=kind).upper) for kind in kinds for n in (2, 8)]


@pytest.mark.parametrize(("words", "name", "truth"), [
    ("several.json --population a=1:3,b=2", "throughput[a]", [throughput(SEVERAL, (n, 2)) for n in (1, 2, 3)]),
    ("several.json --population a=1:2,b=0,2", "throughput[b]",
     [throughput(SEVERAL, (n, m), at=1) for n in (1, 2) for m in (0, 2)]),
    ("mixed.json --population 1,3", "throughput[jobs]", [throughput(MIXED, [n]) for n in (1, 3)]),
    ("plain.json --population 4 --sweep cpu.service_time=0.1:0.3:3", "throughput",
     [throughput(swept(qn.Station("cpu", service_time=v)), 4) for v in (0.1, 0.2, 0.3)]),
    ("plain.json --population 4 --sweep think_time=1:2:3", "throughput",
     [throughput(swept(Z=v), 4) for v in (1.0, 1.5, 2.0)]),
    ("mixed.json --sweep web.arrival_rate=0.5,1", "throughput[jobs]",
     [throughput(replace(MIXED, classes=[MIXED.classes[0], qn.JobClass("web", arrival_rate=v)])) for v in (0.5, 1.0)]),
    ("several.json --population b=1 --sweep a.population=0,2", "throughput[b]",
     [throughput(SEVERAL, (n, 1), at=1) for n in (0, 2)]),
    ("mixed.json --sweep web.arrival_rate=30/min,1", "throughput[jobs]",
     [throughput(replace(MIXED, classes=[MIXED.classes[0], qn.JobClass("web", arrival_rate=v)])) for v in (0.5, 1.0)]),
    ("plain.json --population 4 --sweep cpu.servers=2,inf", "throughput",
     [throughput(swept(qn.Station("cpu", service_time=0.3, servers=m)), 4) for m in (2, math.inf)]),
    ("several.json --sweep cpu.service_time[b]=500ms,50ms", "throughput[b]",
     [throughput(replace(SEVERAL, stations=[qn.Station("cpu", service_time={"a": 0.2, "b": v})]), at=1)
      for v in (0.5, 0.05)]),
    ("plain.json --population 5 --compare exact,bard-schweitzer,markov", "throughput",
     [throughput(PLAIN, 5, solver=one) for one in (None, qn.ApproximateMVA("bard-schweitzer"), qn.MarkovChain())]),
    ("plain.json --population 5 --compare exact,bard-schweitzer,markov", "expected_error", [0.0, 0.07, 0.0]),
    ("plain.json --population 2,8 --bounds", "throughput_upper",
     bounds(["asymptotic", "balanced-job", "proportional", "geometric"])),
    ("plain.json --population 8 --sensitivity", "dX_dD", qn.sensitivity(PLAIN, population=8).dX_dD),
    ("mixed.json --marginals disk", "probability", qn.marginal_distribution(MIXED, "disk")),
    ("mixed.jmva --population jobs=2", "throughput[jobs]", [throughput(MIXED, [2])]),
    ("sweep.json", "throughput[jobs]", [throughput(MIXED, [n]) for n in (1, 4)]),
    ("sweep.json --bounds", "population", [1, 4]),
])  # fmt: skip
def test_rows_are_those_of_the_library(solved, words, name, truth):
    qn.write_jmva(MIXED, "mixed.jmva")
    sweep = '<whatIf className="jobs" type="Number of Customers" values="1;4"/></model>'
    Path("sweep.json").write_text(Path("mixed.jmva").read_text().replace("</model>", sweep))
    rows, text = solved(words)
    assert [float(row[name]) for row in rows] == pytest.approx(truth)
    assert ("exact" in text) == ("--bounds" not in words)
    assert ("bounds that hold" in text) == ("--bounds" in words)


def test_symbols_are_named(solved):
    pytest.importorskip("sympy")
    rows, text = solved("plain.json --population 2 --symbolic")
    values = {"D_1": 0.3, "D_2": 0.2, "Z": 2.0}
    assert eval(rows[0]["throughput"], {}, values) == pytest.approx(throughput(PLAIN, 2))
    assert "D_1: cpu" in text


def test_markdown_and_figures(run, told, examples):
    pytest.importorskip("matplotlib")
    out = run("solve", "plain.json", "--population", "2", "--format", "markdown")[1]
    assert "|   population |" in out
    assert "exact MVA, exact" in out
    for words in ("plain.json --population 1:5", "mixed.json", "several.json",
                  "plain.json --population 2,4 --sweep think_time=1:2:3"):  # fmt: skip
        assert run("solve", *words.split(), "--plot", "figure.svg")[0] == 0
        assert (examples / "figure.svg").read_text().startswith("<?xml")
        (examples / "figure.svg").unlink()
    assert [row["class"] for row in told("solve mixed.json")["classes"]] == ["jobs", "web"]


@pytest.mark.parametrize(("words", "message"), [
    ("several.json --population 3", "classes have populations of their own"),
    ("several.json --population c=3", "--population: class must be one of a, b, got 'c'"),
    ("several.json --population a=3,a=4", "names a class twice"),
    ("several.json --population a=3 --sweep a.population=1,2", "customers of a are specified by --population"),
    ("plain.json --population 2,3 --marginals cpu", "--marginals is at one population, got 2"),
    ("plain.json --population 2 --compare exact --solver markov", "different questions"),
    ("mixed.json --population web=3", "class must be one of jobs, got 'web'"),
    ("mixed.json --sweep web.arrival_rate=9", "open classes load station 'disk' to 2.7 of its capacity"),
    ("plain.json --population 2 --sweep gpu.service_time=1", "station or class must be one of cpu, disk, got 'gpu'"),
    ("plain.json --population 2 --sweep cpu.speed=1", "field of cpu must be one of service_time"),
    ("plain.json --population 2 --sweep cpu.service_time=1:2", "is not like 0.01:0.1:10"),
    ("plain.json --population 2 --sweep cpu.service_time", "is not like cpu.service_time=0.01:0.1:10"),
    ("plain.json --population 2 --bounds --sensitivity", "--bounds and --sensitivity are different questions"),
    ("plain.json --population 2 --bounds --plot f.svg", "--plot: draws solutions and sweeps, not --bounds"),
    ("plain.json --population 2 --solver mva", "is not one of auto, exact"),
    ("plain.json --population 2 --compare exact,mva", "--compare must be one of auto, exact"),
    ("plain.json --population 90 --symbolic", "terms, more than 500; use solve"),
    ("plain.json --population 2 --marginals gpu", "station must be one of 'cpu', 'disk'"),
    ("plain.json", "--population is needed"),
])  # fmt: skip
def test_what_solve_refuses(run, words, message):
    refused(run("solve", *words.split()), message)


def test_percentiles_in_closed_form_or_simulated(told):
    exact, simulated = (told(f"solve queue.json --population 4 --percentiles {s}")["rows"] for s in ("server", "cycle"))
    assert [row["share"] for row in exact] == [0.5, 0.9, 0.95, 0.99]
    for closed, row in zip(exact, simulated, strict=True):
        assert row["seconds"] == pytest.approx(closed["seconds"], rel=0.03)
        assert row["lower"] <= row["seconds"] <= row["upper"]


def test_saturation_of_classes_at_their_populations(told):
    for name in ("several", "mixed", "one"):
        assert told(f"solve {name}.json")["saturation_population"] == pytest.approx(
            qn.saturation_population(NETWORKS[name])
        )
    assert "saturation_population" not in told("solve several.json --sweep cpu.servers=1,2")
