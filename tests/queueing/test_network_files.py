"""Networks in JSON and in JMT's files: they come back with the same answers, and what is damaged is one clear line.

Files with damage drawn at random are those of ``tests/test_fuzz.py``.
"""

import copy
import json
import math

import numpy as np
import pytest

import queuemodel as qm
from queuemodel import queueing as qn

S, J, N = qn.Station, qn.JobClass, qn.Network
CLASSES = [J("a", population=2, think_time=1.0), J("b", population=1)]
SWITCH = {("a", "a"): [[0, 0.5], [0.5, 0]], ("a", "b"): [[0, 0.5], [0.5, 0]], ("b", "a"): [[0, 1], [1, 0]]}
NETWORKS = {
    "plain": N([S("cpu", service_time=0.25, visit_ratio=2), S("out", service_time=1, servers=math.inf)], think_time=1),
    "rich": N(
        [
            S("cpu", service_time={"a": 0.25, "b": 0.5}, servers=2),
            S("disk", service_time=0.1, rates=[1, 1.5, 1.8], visit_ratio={"a": 1.0, "b": 3.0}),
            S("stack", service_time=0.2, discipline="lifo-pr", scv=3.0),
            S("line", service_time=0.1, discipline="fcfs"),
        ],
        classes=CLASSES, think_time=0.5, name="rich",
    ),
    "routed": N([S("x", service_time=0.2), S("y", service_time=0.3)], routing=[[0.1, 0.9], [1, 0]], reference="y"),
    "phases": N(
        [S("x", distribution={"a": qn.PhaseType.from_moments(mean=0.1, scv=0.5), "b": qn.PhaseType.exponential(0.2)})],
        classes=CLASSES,
    ),
    "switching": N(
        [S("cpu", service_time={"a": 0.25, "b": 0.5}), S("disk", service_time=0.1)], classes=CLASSES, routing=SWITCH
    ),
    "mixed": N(
        [S("cpu", service_time={"a": 0.2, "b": 0.5}, servers=2), S("disk", service_time={"a": 0.3, "b": 0.4})],
        classes=[J("a", arrival_rate=0.5), J("b", population=3)],
    ),
}  # fmt: skip
RICH = NETWORKS["rich"].to_dict()
UNITS = """{"format": "queuemodel-network", "version": 2, "think_time": "1s", "classes": [
  {"name": "a", "think_time": "250 ms"}, {"name": "b", "arrival_rate": "30/min"}, {"name": "c"}],
  "stations": [{"name": "q", "service_time": {"a": "5ms", "b": 0.2, "c": "20us"}},
  {"name": "r", "service_time": "5ms", "rates": [1, 2, "..."]}]}"""


def solved(network):
    return qn.solve(network, population=None if network.classes else 3)


@pytest.mark.parametrize("kind", NETWORKS)
def test_json_comes_back_as_it_was(tmp_path, kind):
    network = NETWORKS[kind]
    network.save(tmp_path / "n.json")
    again = N.load(tmp_path / "n.json")
    assert again == network
    assert again != NETWORKS["routed" if kind == "plain" else "plain"]
    document = json.loads((tmp_path / "n.json").read_text())
    assert document == network.to_dict()
    assert document["version"] == (1 if kind == "plain" else 2)
    np.testing.assert_array_equal(solved(again).class_queue_length, solved(network).class_queue_length)
    if kind == "rich":
        np.testing.assert_allclose(again.service_demand, [[0.25, 0.5], [0.1, 0.3], [0.2, 0.2], [0.1, 0.1]])
        assert again.think_times.tolist() == [1.0, 0.5]
        assert [s.kind for s in again.stations] == ["ps, 2 servers", "ps, load-dependent", "lifo-pr", "fcfs"]


def damaged(change):
    document = copy.deepcopy(RICH)
    change(document)
    return json.dumps(document)


DAMAGED = [
    ('<?xml version="1.0"?><model/>', "(read_jmva reads .jmva), got b'<?xml"),
    ("a,b\n1,2\n", "a JSON object"), ("[1]", "nothing in it that is known"),
    (json.dumps({"format": "queuemodel-profile", "version": 1}), "a profile; queuemodel predict takes it"),
    ("", "empty"), ("{", "nothing in it that is known"), ('{"format"', "truncated"),
    (damaged(lambda d: d.update(format="other")), "format must be"),
    (damaged(lambda d: d.update(version=99)), "newer queuemodel"),
    (damaged(lambda d: d.pop("stations")), "missing required field `stations`"),
    (damaged(lambda d: d["stations"][1].update(visits=2.0)), "got 'visits'; did you mean 'visit_ratio'"),
    (damaged(lambda d: d["stations"][0].update(service=2.0)), "got 'service'; did you mean 'service_time'"),
    (damaged(lambda d: d["classes"][1].update(populaton=2)), "classes[1]: a key must be one of name, population"),
    (damaged(lambda d: d.update(think=1.0)), "did you mean 'think_time'"),
    (damaged(lambda d: d["stations"][2].update(service_time="1")),
     "station 'stack': service_time: duration '1' has no unit"),
    (damaged(lambda d: d["classes"][0].update(scv=2.0)), "think times have no scv"),
    (damaged(lambda d: d["classes"][0].update(arrival_rate=2.0)), "leave out population and think_time"),
    (damaged(lambda d: d["classes"][1].update(rate=2.0)), "did you mean 'arrival_rate'"),
    (damaged(lambda d: d["classes"][1].update(priority=2)), "different priority have no product form"),
    (damaged(lambda d: d["stations"][2].update(service_time=-1)), "station 'stack': service_time must be"),
    (damaged(lambda d: d["stations"][2].pop("service_time")), "station 'stack': service_time"),
    (damaged(lambda d: d.update(routing=[{"from": "a", "matrix": []}])), "both its classes, 'from' and 'to'"),
    (damaged(lambda d: d.update(routing=[{"from": "a", "to": "a", "matrix": [[1.0]]}] * 2)), "is given twice"),
    (damaged(lambda d: d["stations"][0].update(distribution={"alpha": [1], "T": "x"})), "station 'cpu': distribution"),
    (UNITS.replace("30/min", "30/fortnight"), "class 'b': arrival_rate: duration '1fortnight': unknown unit"),
    (json.dumps(RICH).replace('"name": "rich"', '"name": "rich", "name": "poor"'), "name"),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["plain", "rich", "routed", "mixed"])
def test_jmva_round_trip_keeps_answers(tmp_path, kind):
    network = NETWORKS[kind]
    qn.write_jmva(network, tmp_path / "m.jmva", population=None if network.classes else 3)
    again = qn.read_jmva(tmp_path / "m.jmva")
    assert ('<openclass name="a" rate="0.5"' in (tmp_path / "m.jmva").read_text()) == (kind == "mixed")
    assert again.names == [*network.names, *(["think time"] if network.think_times.any() else [])]
    s, before = qn.solve(again), solved(network)
    np.testing.assert_allclose(s.class_throughput, before.class_throughput, rtol=1e-12)
    K = len(network.stations)
    np.testing.assert_allclose(s.class_queue_length[:K], before.class_queue_length, rtol=1e-12)


def test_durations_and_rates_have_units():
    network = N.from_json(UNITS)
    np.testing.assert_allclose(network.class_service_times, [[0.005, 0.2, 20e-6], [0.005] * 3])
    np.testing.assert_allclose(network.think_times, [0.25, 0.0, 1.0])
    assert network.arrival_rates.tolist() == [0.0, 0.5, 0.0]
    assert network.stations[1].rates == (1.0, 2.0, ...)


def by_class(groups, times, visits):
    """The service times and visits of classes A and B."""
    (a, b), (v, w), one = times, visits, "servicetime" if groups == "listation" else "servicetimes"
    return (
        f'<servicetimes><{one} customerclass="A">{a}</{one}><{one} customerclass="B">{b}</{one}></servicetimes>'
        f'<visits><visit customerclass="A">{v}</visit><visit customerclass="B">{w}</visit></visits></{groups}>'
    )


JMT_FILE = f"""<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<model xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:noNamespaceSchemaLocation="JMTmodel.xsd"><parameters>
  <classes number="2">
    <closedclass name="A" population="3"/><closedclass name="B" population="2" thinktime="0.25"/></classes>
  <stations number="3">
    <listation name="CPU" servers="1">{by_class("listation", (0.01, 0.05), (1.0, 1.0))}
    <listation name="Disk 1" servers="1">{by_class("listation", (0.09, 0.09), (0.45, 0.0))}
    <ldstation name="Disk 2" servers="1">{by_class("ldstation", ("0.1;0.05;0.05",) * 2, (0.5, 0.5))}</stations>
  <ReferenceStation number="2"><Class name="A" refStation="CPU"/><Class name="B" refStation="CPU"/></ReferenceStation>
</parameters><algParams><algType maxSamples="10000" name="MVA" tolerance="1.0E-7"/></algParams></model>
"""
DEMANDS = [[0.01, 0.05], [0.0405, 0], [0.05, 0.05]]
WHAT_IF = '<whatIf className="A" type="Customer Numbers" values="1;2;5"/>'


def test_what_if_of_populations(tmp_path):
    (path := tmp_path / "jmt.jmva").write_text(JMT_FILE.replace("</model>", f"{WHAT_IF}</model>"))
    said = r"populations \[\(1, 2\), \(2, 2\), \(5, 2\)\]; read_jmva_sweep gives them"
    with pytest.warns(qm.QueueModelWarning, match=said):
        network = qn.read_jmva(path)
    again, sweep = qn.read_jmva_sweep(path)
    assert again == network
    assert sweep == [(1, 2), (2, 2), (5, 2)]
    (path := tmp_path / "plain.jmva").write_text(JMT_FILE)
    assert qn.read_jmva_sweep(path) == (qn.read_jmva(path), [])


@pytest.mark.parametrize("table", ["0.1;0.05;0.05", "0.1,0.05,0.05", "0.0;0.1;0.05;0.05", "0.1;0.05;0.05;0.05;0.05"])
def test_a_file_as_jmt_writes_it(tmp_path, table):
    """A rate that doubles with the second customer is two servers; tables may begin with nobody there."""
    (tmp_path / "jmt.jmva").write_text(JMT_FILE.replace("0.1;0.05;0.05", table))
    same = N.from_demands(DEMANDS, servers=[1, 1, 2], population=[3, 2], think_time=[0.0, 0.25])
    s, truth = qn.solve(qn.read_jmva(tmp_path / "jmt.jmva")), qn.solve(same)
    np.testing.assert_allclose(s.class_throughput, truth.class_throughput, rtol=1e-12)
    np.testing.assert_allclose(s.class_queue_length, truth.class_queue_length, rtol=1e-10, atol=1e-14)


JMVA = [
    ("<model", "<other", "mismatched tag"),
    (JMT_FILE, "<archive><sim/></archive>", "expected, got <archive>; JMT exports a simulation model (.jsimg) to JMVA"),
    ('population="3"', 'population="-3"', "class 'A': population must be a whole"),
    ('population="3"', 'population="2.5"', "whole number"), ('population="3"', 'population="many"', "must be a number"),
    ('<closedclass name="A" population="3"/>', '<openclass name="A" rate="-1"/>', "arrival_rate must be finite"),
    ('<closedclass name="A" population="3"/>', '<openclass name="A" population="3"/>', "attribute 'population'"),
    (">0.01<", ">nan<", "station 'CPU': servicetime must be a number"), (">0.01<", ">-1<", "station 'CPU'"),
    ('"CPU" servers="1"', '"CPU" servers="0"', "servers"), ("listation", "mystery", "not known"),
    ("<visits><visit", "<reward>1</reward><visits><visit", "<reward> is not known"),
    ('servicetime customerclass="A">0.01', 'servicetime customerclass="A" unit="ms">0.01', "attribute 'unit'"),
    ('<servicetime customerclass="A">0.01</servicetime>', "", "class 'A' has no servicetime here"),
    ('<visit customerclass="A">1.0</visit>', "", "class 'A' has no visit here"),
    ('<visit customerclass="A">1.0</visit>', '<visit customerclass="B">1.0</visit>', "two entries in <visits>"),
    ('<servicetime customerclass="A">0.01</servicetime>', '<time customerclass="A">1</time>', "<time> is not"),
    (">0.01<", ">0.01;0.02<", "must be one number, got 2"), (">0.01<", "><", "must be a number"),
    ('name="A" population="3"', 'name="A" population="3" priority="1"', "different priority"),
    ('name="A" population="3"', 'name="A" population="3" weight="2"', "attribute 'weight'"),
    ("</classes>", "</classes><routing/>", "<routing> is not known"),
    ("</classes>", "</classes><classes/>", "<classes> is there twice"),
    ('<visit customerclass="A">0.5<', '<visit customerclass="Q">0.5<', "class 'Q'"),
    ('"B">0.1;0.05;0.05', '"B">0.1;0.01', "slow down differently"),
    ("<?xml", "<!DOCTYPE x><?xml", "document types and entities are not allowed"),
    ('"A" refStation="CPU"', '"A" refStation="GPU"', "refStation must be one of CPU, Disk 1, Disk 2, got 'GPU'"),
    ('"A" refStation="CPU"', '"Q" refStation="CPU"', "<ReferenceStation>: name must be one of A, B, got 'Q'"),
    ('"A" refStation="CPU"', '"A"', "got None"), ('"A" refStation="CPU"', '"A" x="1"', "attribute 'x' is not known"),
    ("</model>", '<whatIf type="Service Times" className="A" stationName="CPU" values="1;2"/></model>',
     "must change the 'Customer Numbers' of one class, got 'Service Times' of 'A'; take it out"),
    ("</model>", '<whatIf type="Number of Customers" values="1;2"/></model>',
     "of one class, got 'Number of Customers' of None"),
    ("</model>", f'{WHAT_IF.replace("5", "2.5")}</model>', "class 'A': population must be a whole number"),
    ("</model>", f'{WHAT_IF.replace("1;2;5", "")}</model>', "values of <whatIf> must be a number"),
    ("</model>", f'{WHAT_IF}{WHAT_IF}</model>', "<whatIf> is there twice"),
]  # fmt: skip
FILES = [
    *((N.load, text, message) for text, message in DAMAGED),
    *((qn.read_jmva, JMT_FILE.replace(old, new), message) for old, new, message in JMVA),
]


@pytest.mark.parametrize(("read", "text", "message"), FILES, ids=[message for *_, message in FILES])
def test_damaged_files_are_one_line(tmp_path, read, text, message):
    assert text != JMT_FILE
    (path := tmp_path / "bad").write_text(text)
    with pytest.raises(qm.DataError) as error:
        read(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


@pytest.mark.parametrize(("network", "why"), [
    (N([S("q", service_time={"a": 0.1, "b": 1.0}, discipline="fcfs")], classes=CLASSES), "differ by class"),
    (N([S("q", service_time=0.1, scv=2.0, discipline="fcfs")], classes=CLASSES), "not exponential"),
    (N([S("q", service_time=0.1)]), "needs population"), (NETWORKS["switching"], "switch"),
])  # fmt: skip
def test_inexpressible_networks_are_not_written(tmp_path, network, why):
    with pytest.raises(qm.ModelError, match=why):
        qn.write_jmva(network, tmp_path / "m.jmva")
    assert not (tmp_path / "m.jmva").exists()
