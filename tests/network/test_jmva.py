"""JMT's files: as JMT writes them, refused where they are not understood, and what is written comes back the same."""

import math
import random
import re

import numpy as np
import pytest

import queuemodel as qm

S, J, N = qm.Station, qm.JobClass, qm.Network


def test_networks_come_back_with_the_same_answers(tmp_path):
    two = [J("a", population=2, think_time=1.0), J("b", population=1)]
    stations = [
        S("cpu", service_time={"a": 0.25, "b": 0.5}, servers=2),
        S("disk", service_time=0.1, rates=[1, 1.5, 1.8], visit_ratio={"a": 1.0, "b": 3.0}),
        S("stack", service_time=0.2, discipline="lifo-pr", scv=3.0),
        S("line", service_time=0.1, discipline="fcfs"),
    ]
    network = N(stations, classes=two, think_time=0.5)
    qm.write_jmva(network, tmp_path / "m.jmva")
    again = qm.read_jmva(tmp_path / "m.jmva")
    assert again.names == ["cpu", "disk", "stack", "line", "think time"]
    np.testing.assert_allclose(qm.solve(again).class_throughput, qm.solve(network).class_throughput, rtol=1e-12)
    plain = N(
        [S("cpu", service_time=0.25, visit_ratio=2), S("out", service_time=1.0, servers=math.inf)], think_time=1.0
    )
    qm.write_jmva(plain, tmp_path / "p.jmva", population=7)
    assert qm.solve(qm.read_jmva(tmp_path / "p.jmva")).throughput == pytest.approx(
        qm.solve(plain, population=7).throughput, rel=1e-12
    )


LOAD_DEPENDENT = """<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<model xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:noNamespaceSchemaLocation="JMTmodel.xsd">
  <parameters>
    <classes number="1"><closedclass name="C" population="5" priority="0"/></classes>
    <stations number="2">
      <listation name="LI" servers="1">
        <servicetimes><servicetime customerclass="C">1.5</servicetime></servicetimes>
        <visits><visit customerclass="C">1.0</visit></visits>
      </listation>
      <ldstation name="LD" servers="1">
        <servicetimes><servicetimes customerclass="C">1.0;1.5;1.9;2.6;3.1</servicetimes></servicetimes>
        <visits><visit customerclass="C">1.0</visit></visits>
      </ldstation>
    </stations>
  </parameters>
</model>
"""


@pytest.mark.parametrize("table", ["1.0;1.5;1.9;2.6;3.1", "1.0,1.5,1.9,2.6,3.1", "0.0;1.0;1.5;1.9;2.6;3.1"])
def test_load_dependent_tables_as_jmt_nests_them(tmp_path, table):
    path = tmp_path / "ld.jmva"
    path.write_text(LOAD_DEPENDENT.replace("1.0;1.5;1.9;2.6;3.1", table))
    G = [sum(1.5 ** (n - i) * math.prod([1.0, 1.5, 1.9, 2.6, 3.1][:i]) for i in range(n + 1)) for n in (4, 5)]
    network = qm.read_jmva(path)
    assert qm.solve(network).throughput == pytest.approx(G[0] / G[1], rel=1e-12)
    assert qm.solve(network).throughput == pytest.approx(0.4036, abs=5e-5)
    qm.write_jmva(network, tmp_path / "again.jmva")
    assert "<servicetimes customerclass=" in (tmp_path / "again.jmva").read_text()
    assert qm.solve(qm.read_jmva(tmp_path / "again.jmva")).throughput == pytest.approx(G[0] / G[1], rel=1e-12)


def test_one_time_at_a_table_of_several_servers_is_several_servers(tmp_path):
    path = tmp_path / "servers.jmva"
    table = '<servicetimes customerclass="C">1.0;1.5;1.9;2.6;3.1</servicetimes>'
    one = LOAD_DEPENDENT.replace(table, '<servicetime customerclass="C">1.0</servicetime>')
    path.write_text(one.replace('name="LD" servers="1"', 'name="LD" servers="2"'))
    same = N([S("LI", service_time=1.5), S("LD", service_time=1.0, servers=2)])
    assert qm.solve(qm.read_jmva(path)).throughput == pytest.approx(qm.solve(same, population=5).throughput)


JMT_FILE = """<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<model xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:noNamespaceSchemaLocation="JMTmodel.xsd">
  <parameters>
    <classes number="2">
      <closedclass name="A" population="3"/><closedclass name="B" population="2"/>
    </classes>
    <stations number="3">
      <listation name="CPU" servers="1">
        <servicetimes><servicetime customerclass="A">0.01</servicetime><servicetime customerclass="B">0.05</servicetime></servicetimes>
        <visits><visit customerclass="A">1.0</visit><visit customerclass="B">1.0</visit></visits>
      </listation>
      <listation name="Disk 1" servers="1">
        <servicetimes><servicetime customerclass="A">0.09</servicetime><servicetime customerclass="B">0.09</servicetime></servicetimes>
        <visits><visit customerclass="A">0.45</visit><visit customerclass="B">0.0</visit></visits>
      </listation>
      <ldstation name="Disk 2" servers="1">
        <servicetimes><servicetime customerclass="A">0.1;0.05;0.05</servicetime><servicetime customerclass="B">0.1;0.05;0.05</servicetime></servicetimes>
        <visits><visit customerclass="A">0.5</visit><visit customerclass="B">0.5</visit></visits>
      </ldstation>
    </stations>
    <ReferenceStation number="2"><Class name="A" refStation="CPU"/><Class name="B" refStation="CPU"/></ReferenceStation>
  </parameters>
  <algParams><algType maxSamples="10000" name="MVA" tolerance="1.0E-7"/></algParams>
</model>
"""  # noqa: E501


def test_a_file_as_jmt_writes_it(tmp_path):
    path = tmp_path / "jmt.jmva"
    path.write_text(JMT_FILE)
    network = qm.read_jmva(path)
    same = qm.Network.from_demands(
        [[0.01, 0.05], [0.0405, 0], [0.05, 0.05]], servers=[1, 1, 2], population=[3, 2]
    )  # a rate that doubles with the second customer is two servers
    np.testing.assert_allclose(qm.solve(network).class_throughput, qm.solve(same).class_throughput, rtol=1e-12)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<model", "<other", "mismatched tag"),
        ('population="3"', 'population="-3"', "class 'A': population must be a whole"),
        ('population="3"', 'population="2.5"', "whole number"),
        ('population="3"', 'population="many"', "must be a number"),
        ('<closedclass name="A" population="3"/>', '<openclass name="A" rate="1"/>', "open classes"),
        (">0.01<", ">nan<", "station 'CPU': servicetime must be a number"),
        (">0.01<", ">-1<", "station 'CPU'"),
        ('"CPU" servers="1"', '"CPU" servers="0"', "servers"),
        ("listation", "mystery", "not known"),
        ("<visits><visit", "<reward>1</reward><visits><visit", "<reward> is not known"),
        ('servicetime customerclass="A">0.01', 'servicetime customerclass="A" unit="ms">0.01', "attribute 'unit'"),
        ('<servicetime customerclass="A">0.01</servicetime>', "", "class 'A' has no servicetime here"),
        ('<visit customerclass="A">1.0</visit>', "", "class 'A' has no visit here"),
        ('<visit customerclass="A">1.0</visit>', '<visit customerclass="B">1.0</visit>', "two entries in <visits>"),
        ('<servicetime customerclass="A">0.01</servicetime>', '<time customerclass="A">1</time>', "<time> is not"),
        (">0.01<", ">0.01;0.02<", "must be one number, got 2"),
        (">0.01<", "><", "must be a number"),
        ('name="A" population="3"', 'name="A" population="3" priority="1"', "different priority"),
        ('name="A" population="3"', 'name="A" population="3" weight="2"', "attribute 'weight'"),
        ("<ReferenceStation", "<ReferenceStations", "mismatched tag"),
        ("</classes>", "</classes><routing/>", "<routing> is not known"),
        ('<visit customerclass="A">0.5<', '<visit customerclass="Q">0.5<', "class 'Q'"),
        (
            "0.1;0.05;0.05</servicetime></servicetimes>",
            "0.1;0.01</servicetime></servicetimes>",
            "slow down differently",
        ),
    ],
)
def test_bad_jmva_files_are_one_clear_line(tmp_path, old, new, message):
    path = tmp_path / "bad.jmva"
    assert old in JMT_FILE
    path.write_text(JMT_FILE.replace(old, new))
    with pytest.raises(qm.DataError) as error:
        qm.read_jmva(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("stations", "why"),
    [
        ([S("q", service_time={"a": 0.1, "b": 1.0}, discipline="fcfs")], "differ by class"),
        ([S("q", service_time=0.1, scv=2.0, discipline="fcfs")], "not exponential"),
        ([S("q", service_time={"a": 0.1, "b": 1.0}, discipline="lifo-pr", servers=2)], "differ by class"),
    ],
)
def test_what_has_no_product_form_is_not_written_as_if_it_had(tmp_path, stations, why):
    network = N(stations, classes=[J("a"), J("b")], think_time=0.1)
    with pytest.raises(qm.ModelError, match=why):
        qm.write_jmva(network, tmp_path / "m.jmva")
    assert not (tmp_path / "m.jmva").exists()


def test_a_population_is_needed_and_switching_is_refused(tmp_path):
    with pytest.raises(qm.ModelError, match="needs population"):
        qm.write_jmva(N([S("q", service_time=0.1)]), tmp_path / "m.jmva")
    P = [[0.5]]
    switching = N([S("q", service_time=0.1)], classes=[J("a"), J("b")], routing={(c, d): P for c in "ab" for d in "ab"})
    with pytest.raises(qm.ModelError, match="switch"):
        qm.write_jmva(switching, tmp_path / "m.jmva")


TOKENS = [
    "", "0", "-1", "nan", "inf", "1e308", "1e-320", "2.5", "9" * 20, "9" * 400, "1;2;3", "1;;2", ";", "1,2", "A", "Q",
    "listation", "ldstation", "delaystation", "servicetime", "servicetimes", "visit", "closedclass", "population",
    "thinktime", "&amp;", "1_000", "\u0663", "0x1",
]  # fmt: skip


def damaged(rng):
    """A file with texts, attributes, names or whole elements exchanged, doubled or gone; now and then cut off."""
    text = rng.choice([JMT_FILE, LOAD_DEPENDENT])
    for _ in range(rng.choice([1, 1, 2, 4])):
        if rng.random() < 0.65:
            places, token = r">([^<>\n]+)<|\"([^\"]*)\"", rng.choice(TOKENS)
        else:
            places, token = r"(<(?:visit|servicetime|closedclass)\b[^<>]*(?:/>|>[^<>]*</\w+>))", None
        found = list(re.finditer(places, text))
        if found:
            group = rng.choice(found)
            start, end = group.span(group.lastindex)
            text = text[:start] + (rng.choice(["", 2 * text[start:end]]) if token is None else token) + text[end:]
    return text[: rng.randrange(len(text))] if rng.random() < 0.05 else text


def test_damaged_files_give_one_line_or_a_number(tmp_path):
    rng, path, refused = random.Random(3), tmp_path / "damaged.jmva", []
    for _ in range(400):
        path.write_text(damaged(rng))
        try:
            solution = qm.solve(qm.read_jmva(path))
        except qm.QueueModelError as error:
            refused.append(str(error))
        else:
            assert np.isfinite(solution.class_throughput).all()
            assert np.isfinite(solution.class_queue_length).all()
            assert solution.throughput > 0
    assert 200 < len(refused) < 400
    assert all(line.startswith(str(path)) and "\n" not in line for line in refused)
