"""``queuemodel solve``: classes, sweeps and the other questions about a network, against the library."""

import csv
import io
import json

import numpy as np
import pytest

from queuemodel import queueing as qn

MIXED = qn.Network(
    [qn.Station("cpu", service_time={"jobs": 0.5, "web": 0.2}, servers=2),
     qn.Station("disk", service_time={"jobs": 0.4, "web": 0.3})],
    classes=[qn.JobClass("jobs", population=3, think_time=1.0), qn.JobClass("web", arrival_rate=0.5)], name="mixed",
)  # fmt: skip
SEVERAL = qn.Network(
    [qn.Station("cpu", service_time={"a": 0.2, "b": 0.5})],
    classes=[qn.JobClass(c, population=4, think_time=1.0) for c in "ab"],
)
PLAIN = qn.Network([qn.Station("cpu", service_time=0.3), qn.Station("disk", service_time=0.2)], think_time=2.0)


@pytest.fixture
def solved(run, examples):
    """The rows of a question, and its text."""
    MIXED.save(examples / "mixed.json")
    SEVERAL.save(examples / "several.json")
    PLAIN.save(examples / "plain.json")

    def ask(words):
        code, out, err = run("solve", *words.split(), "--format", "csv")
        assert code == 0, err
        return list(csv.DictReader(io.StringIO(out))), " ".join(run("solve", *words.split())[1].split())

    return ask


def column(rows, name):
    return [float(row[name]) for row in rows]


def test_populations_by_class(solved):
    rows, _ = solved("several.json --population a=1:3,b=2")
    truth = [qn.solve(SEVERAL, population=(n, 2)).class_throughput for n in (1, 2, 3)]
    np.testing.assert_allclose([column(rows, f"throughput[{c}]") for c in "ab"], np.transpose(truth))
    rows, _ = solved("several.json --population a=1:2,b=0,2")
    assert [(row["population[a]"], row["population[b]"]) for row in rows] == [
        ("1", "0"), ("1", "2"), ("2", "0"), ("2", "2"),
    ]  # fmt: skip
    rows, _ = solved("mixed.json --population 1,3")
    truth = [qn.solve(MIXED, population=[n]).class_throughput[0] for n in (1, 3)]
    np.testing.assert_allclose(column(rows, "throughput[jobs]"), truth)


@pytest.mark.parametrize(("parameter", "values", "network"), [
    ("cpu.service_time", (0.1, 0.2, 0.3), lambda v: qn.Network([qn.Station("cpu", service_time=v), PLAIN.stations[1]],
                                                               think_time=2.0)),
    ("think_time", (1.0, 1.5, 2.0), lambda v: qn.Network(PLAIN.stations, think_time=v)),
])  # fmt: skip
def test_a_sweep_of_one_parameter(solved, parameter, values, network):
    rows, _ = solved(f"plain.json --population 4 --sweep {parameter}={values[0]}:{values[-1]}:3")
    assert column(rows, parameter) == pytest.approx(values)
    truth = [qn.solve(network(v), population=4).throughput for v in values]
    assert column(rows, "throughput") == pytest.approx(truth)


def test_sweeps_of_classes(solved):
    rows, _ = solved("mixed.json --sweep web.arrival_rate=0.5,1")
    faster = qn.Network(MIXED.stations, classes=[MIXED.classes[0], qn.JobClass("web", arrival_rate=1.0)])
    truth = [qn.solve(n).class_throughput[0] for n in (MIXED, faster)]
    assert column(rows, "throughput[jobs]") == pytest.approx(truth)
    rows, _ = solved("several.json --sweep cpu.service_time[b]=500ms,50ms")
    truth = qn.Network([qn.Station("cpu", service_time={"a": 0.2, "b": 0.05})], classes=SEVERAL.classes)
    assert column(rows, "throughput")[1] == pytest.approx(qn.solve(truth).throughput)


def test_solvers_side_by_side(solved):
    rows, text = solved("plain.json --population 5 --compare exact,bard-schweitzer,markov")
    solvers = (None, qn.ApproximateMVA("bard-schweitzer"), qn.MarkovChain())
    truth = [qn.solve(PLAIN, population=5, solver=solver) for solver in solvers]
    assert column(rows, "throughput") == pytest.approx([s.throughput for s in truth])
    assert [row["exact"] for row in rows] == ["True", "False", "True"]
    assert [row["expected_error"] for row in rows] == ["0.0", "0.07", "0.0"]
    assert "expected error is 0 where the solver is exact" in text
    rows, text = solved("plain.json --population 5 --solver linearizer")
    assert "(Linearizer, approximate, error to expect 0.5 %)" in text
    _, text = solved("mixed.json --solver simulation")
    assert "approximate, error to expect 0." in text


def test_bounds_slopes_marginals_and_symbols(solved, run):
    rows, text = solved("plain.json --population 2,8 --bounds")
    kinds = ["asymptotic", "balanced-job", "proportional", "geometric"]
    assert [row["bounds"] for row in rows] == [kind for kind in kinds for _ in range(2)]
    truth = [float(qn.bounds(PLAIN, n, kind=kind).upper) for kind in kinds for n in (2, 8)]
    assert column(rows, "throughput_upper") == pytest.approx(truth)
    assert "bounds that hold" in text
    rows, text = solved("plain.json --population 8 --sensitivity")
    assert column(rows, "dX_dD") == pytest.approx(qn.sensitivity(PLAIN, population=8).dX_dD)
    assert "exact" in text
    rows, text = solved("mixed.json --marginals disk")
    assert column(rows, "probability") == pytest.approx(qn.marginal_distribution(MIXED, "disk"))
    assert "exact" in text
    pytest.importorskip("sympy")
    rows, text = solved("plain.json --population 2 --symbolic")
    values = {"D_1": 0.3, "D_2": 0.2, "Z": 2.0}
    assert eval(rows[0]["throughput"], {}, values) == pytest.approx(qn.solve(PLAIN, population=2).throughput)
    assert "D_1: cpu" in text


def test_jmva_files_of_mixed_networks(run, solved, examples):
    qn.write_jmva(MIXED, examples / "mixed.jmva")
    rows, _ = solved("mixed.jmva --population jobs=2")
    assert column(rows, "throughput[jobs]") == pytest.approx(qn.solve(MIXED, population=[2]).class_throughput[:1])
    sweep = '<whatIf className="jobs" type="Number of Customers" values="1;4"/></model>'
    (examples / "sweep.json").write_text((examples / "mixed.jmva").read_text().replace("</model>", sweep))
    rows, _ = solved("sweep.json")
    assert column(rows, "throughput[jobs]") == pytest.approx(
        [qn.solve(MIXED, population=[n]).class_throughput[0] for n in (1, 4)]
    )
    rows, _ = solved("sweep.json --bounds")
    assert [row["population"] for row in rows] == ["1", "4"]


def test_markdown_and_figures(solved, run, examples):
    pytest.importorskip("matplotlib")
    solved("plain.json --population 2")
    out = run("solve", "plain.json", "--population", "2", "--format", "markdown")[1]
    assert "|   population |" in out
    assert "exact MVA, exact" in out
    for words in (
        "plain.json --population 1:5",
        "mixed.json",
        "several.json",
        "plain.json --population 2,4 --sweep think_time=1:2:3",
    ):
        assert run("solve", *words.split(), "--plot", "figure.svg")[0] == 0
        assert (examples / "figure.svg").read_text().startswith("<?xml")
        (examples / "figure.svg").unlink()
    document = json.loads(run("solve", "mixed.json", "--format", "json")[1])
    assert [row["class"] for row in document["classes"]] == ["jobs", "web"]


@pytest.mark.parametrize(("words", "message"), [
    ("several.json --population 3", "classes have populations of their own"),
    ("several.json --population c=3", "--population: class must be one of a, b, got 'c'"),
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
def test_what_solve_refuses(solved, run, words, message):
    code, out, err = run("solve", *words.split())
    assert code in (1, 2)
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
