"""Exact mean-value analysis and bounds of single-class networks: closed forms, then laws, then controls."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import queuemodel as qm

DEMANDS = st.lists(st.floats(1e-3, 10.0), min_size=1, max_size=6)
THINK = st.floats(0.0, 20.0)
POPULATION = st.integers(1, 40)


def network_of(demands, think_time=0.0, delays=()):
    queues = [qm.Station(f"queue {k}", service_time=d) for k, d in enumerate(demands)]
    return qm.Network(
        queues + [qm.Station(f"delay {k}", service_time=d, servers=math.inf) for k, d in enumerate(delays)],
        think_time=think_time,
    )


def machine_repairman(D, Z, population):
    p0 = 1 / sum(math.perm(population, n) * (D / Z) ** n for n in range(population + 1))
    return (1 - p0) / D


@pytest.mark.parametrize("population", [1, 2, 5, 20, 100])
def test_one_queue_with_thinking_is_the_machine_repairman(population):
    D, Z = 0.3, 2.0
    solved = qm.solve(network_of([D], Z), population=population)
    assert solved.throughput == pytest.approx(machine_repairman(D, Z, population), rel=1e-12)


def test_two_percent_wrong_is_noticed():
    solved = qm.solve(network_of([0.3 * 1.02], 2.0), population=20)
    assert solved.throughput != pytest.approx(machine_repairman(0.3, 2.0, 20), rel=1e-3)


@given(stations=st.integers(1, 6), demand=st.floats(1e-3, 10.0), population=POPULATION)
def test_balanced_network_has_its_closed_form(stations, demand, population):
    solved = qm.solve(network_of([demand] * stations), population=population)
    assert solved.throughput == pytest.approx(population / (demand * (population + stations - 1)), rel=1e-12)


@given(demands=DEMANDS, delay=st.floats(0.0, 5.0), think=THINK, population=POPULATION)
def test_delay_station_is_think_time(demands, delay, think, population):
    apart = qm.solve(network_of(demands, think, [delay]), population=population)
    together = qm.solve(network_of(demands, think + delay), population=population)
    assert apart.throughput == pytest.approx(together.throughput, rel=1e-12)
    assert apart.cycle_time == pytest.approx(together.cycle_time, rel=1e-12)


@given(demands=DEMANDS, think=THINK, population=POPULATION)
def test_laws(demands, think, population):
    network = network_of(demands, think)
    solved = qm.solve(network, population=population)
    X = solved.throughput
    assert solved.queue_length.sum() + X * think == pytest.approx(population, rel=1e-12)  # conservation
    assert np.all(solved.utilization <= 1 + 1e-12)
    assert X * solved.cycle_time == pytest.approx(population, rel=1e-12)  # Little
    assert np.all(np.diff(solved.throughputs) >= -1e-12 * X)
    populations = np.arange(1, population + 1)
    for bounds in (qm.bounds(network, populations), qm.bounds(network, populations, kind="balanced-job")):
        assert np.all(bounds.lower <= solved.throughputs * (1 + 1e-9))
        assert np.all(solved.throughputs <= bounds.upper * (1 + 1e-9))


@given(demands=DEMANDS, think=THINK, population=POPULATION, factor=st.floats(1e-3, 1e3))
def test_units_scale_and_stations_permute(demands, think, population, factor):
    plain = qm.solve(network_of(demands, think), population=population)
    scaled = qm.solve(network_of([d * factor for d in reversed(demands)], think * factor), population=population)
    assert scaled.throughput * factor == pytest.approx(plain.throughput, rel=1e-10)
    np.testing.assert_allclose(scaled.queue_length[::-1], plain.queue_length, rtol=1e-9)


@given(demands=DEMANDS, think=THINK, population=st.integers(2, 40))
def test_balanced_job_bounds_are_tighter(demands, think, population):
    network = network_of(demands, think)
    loose, tight = qm.bounds(network, population), qm.bounds(network, population, kind="balanced-job")
    assert tight.lower >= loose.lower * (1 - 1e-12)
    assert tight.upper <= loose.upper * (1 + 1e-12)


def test_symbolic_oracle_agrees():
    sympy = pytest.importorskip("sympy")
    D, Z = [sympy.Rational(3, 10), sympy.Rational(1, 7)], sympy.Rational(2)
    Q = [sympy.Integer(0)] * 2
    for n in range(1, 31):
        R = [d * (1 + q) for d, q in zip(D, Q, strict=True)]
        X = n / (Z + sum(R))
        Q = [X * r for r in R]
    solved = qm.solve(network_of([float(d) for d in D], float(Z)), population=30)
    assert solved.throughput == pytest.approx(float(X), rel=1e-12)


def test_saturation_population_is_where_the_asymptotes_cross():
    network = network_of([0.2, 0.5], 3.0)
    N = qm.saturation_population(network)
    assert pytest.approx((0.2 + 0.5 + 3.0) / 0.5) == N
    assert pytest.approx(1 / 0.5) == N / (0.7 + 3.0)
    assert qm.saturation_population(qm.Network([qm.Station("d", service_time=1.0, servers=math.inf)])) == math.inf


def test_population_of_ten_thousand_keeps_its_digits():
    D, Z = 0.001, 5.0
    solved = qm.solve(network_of([D, D / 2], Z), population=10_000)
    assert solved.throughput == pytest.approx(1 / D, rel=1e-9)
    assert solved.at(1).throughput == pytest.approx(1 / (1.5 * D + Z), rel=1e-12)


def test_solution_prints_and_turns_into_rows():
    solved = qm.solve(network_of([0.2, 0.5], 3.0), population=4)
    assert "queue 1" in repr(solved)
    assert "<table" in solved._repr_html_()
    frame = solved.to_frame()
    assert list(frame["population"]) == [1, 2, 3, 4]
    assert frame["throughput"].iloc[-1] == solved.throughput
    assert solved.bottleneck == "queue 1"
    with pytest.raises(ValueError, match="read-only"):
        solved.throughputs[0] = 1.0


def test_network_json_round_trip(tmp_path):
    network = qm.Network(
        [qm.Station("a", service_time=0.25, visit_ratio=3), qm.Station("d", service_time=1.0, servers=math.inf)],
        think_time=0.5,
        name="example",
    )
    network.save(tmp_path / "n.json")
    assert qm.Network.load(tmp_path / "n.json").to_dict() == network.to_dict()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: qm.Station("a", service_time=-1.0), "'a': service_time must be finite and >= 0 seconds, got -1.0"),
        (lambda: qm.Station("a", service_time=math.nan), "got nan"),
        (lambda: qm.Station("a", service_time=math.inf), "got inf"),
        (lambda: qm.Station("a", service_time=1j), "got 1j"),
        (lambda: qm.Station("a", service_time="1"), "got '1'"),
        (lambda: qm.Station("a", service_time=700_000.0), "microseconds"),
        (lambda: qm.Station("a", service_time=1.0, visit_ratio=-2), "visit_ratio"),
        (lambda: qm.Station("a", service_time=1.0, servers=0), "servers"),
        (lambda: qm.Station("", service_time=1.0), "name"),
        (lambda: qm.Network([]), "at least one station"),
        (lambda: qm.Network(qm.Station("a", service_time=1.0)), "list of Station"),
        (lambda: qm.Network(["a"]), "'a'"),
        (lambda: network_of([0.0, 0.0], 1.0), "zero"),
        (lambda: network_of([1.0], -1.0), "think_time"),
        (lambda: qm.Network([qm.Station("a", service_time=1.0)] * 2), "'a' more than once"),
    ],
)
def test_bad_networks_are_one_clear_line(make, message):
    with pytest.raises(qm.ModelError) as error:
        make()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("population", [0, -3, 2.5, math.nan, math.inf, True, "5", None, 10**12])
def test_bad_populations_are_refused(population):
    with pytest.raises(qm.ModelError, match="population"):
        qm.solve(network_of([1.0]), population=population)
    if not isinstance(population, (str, type(None), bool, int)) or population in (0, -3):
        with pytest.raises(qm.ModelError, match="population"):
            qm.bounds(network_of([1.0]), population)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("{", "truncated"),
        ('{"format": "other", "version": 1, "stations": []}', "format must be"),
        ('{"format": "queuemodel-network", "version": 99, "stations": []}', "newer queuemodel"),
        ('{"format": "queuemodel-network", "version": 1, "stations": [], "extra": 1}', "got 'extra'"),
        ('{"format": "queuemodel-network", "version": 1, "stations": [{"name": "a", "service_time": -1}]}', "got -1"),
        ('{"format": "queuemodel-network", "version": 1, "stations": [{"name": "a", "service_time": "1"}]}', "float"),
        ('{"format": "queuemodel-network", "version": 1, "stations": [{"name": "a"}]}', "service_time"),
    ],
)
def test_bad_network_files_are_one_clear_line(tmp_path, text, message):
    path = tmp_path / "network.json"
    path.write_text(text)
    with pytest.raises(qm.DataError) as error:
        qm.Network.load(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
