"""What befalls connections under BBR that share a short buffer: silence until a timeout, a rate taken for policed."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from by_hand import LINKS, RATE, profile_of, serial
from plain_flows import PAYLOAD, STEP, Flows, rules_of

from queuemodel.traces import simulate
from queuemodel.traces.graph import prepare
from queuemodel.traces.kernel.memory import AGAIN, AT_ONCE, FLIGHT, LONE, POLICED, QUANTA, QUANTUM, suffer
from queuemodel.traces.kernel.sharing import reshare
from queuemodel.traces.kernel.state import FLOWS, new_state
from queuemodel.traces.kernel.windows import PACKET, SHORT_TRIP, TIMEOUT
from queuemodel.traces.rules import cluster_rules
from queuemodel.training import Operation
from validation.testbed.recordings import unpacked

TESTBED = Path(__file__).parents[2] / "validation" / "testbed"
BUFFER = 0.05  # seconds: 34.5 packets at `RATE`
PER_PACKETS = 12.0  # accidents of a kind, per second, other connection, and one over the buffer's packets


def cluster(workers: int, *, buffer: float = BUFFER):
    """Rules of BBR without luck, and a state whose workers all fetch from one server."""
    graphs = prepare(profile_of(serial()), links=LINKS)
    network = {"loaded_trip": buffer, "unfairness": 0.0, "window_kept": 0.0}
    rules = cluster_rules(workers=workers, policy="tensorflow", **network)
    state = new_state(graphs.steps, links=np.full((2, 1 + workers), RATE), starts=np.zeros(workers), rules=rules)
    state.serving[0, :, 0] = 0
    state.chunk_left[0] = 1e9
    return rules, state


def accidents(workers: int, *, seconds: float, times: int = 4000, buffer: float = BUFFER):
    """Shares of looks at a flow of so many after which it was silent, and was policed; how long it was silent."""
    rules, state = cluster(workers, buffer=buffer)
    rng, silent, policed, lengths = np.random.default_rng(1), 0, 0, []
    reshare(state, rules, 0.0, 0, rng)
    for _ in range(times):
        state.silent[0, 0, 0] = state.policed[0, 0, 0] = 0.0
        suffer(state, rules, 0.0, seconds, 0, 0, 0, rng)
        policed += state.policed[0, 0, 0] == POLICED
        if state.silent[0, 0, 0] > 0:
            silent += 1
            lengths.append(state.silent[0, 0, 0])
    return silent / times, policed / times, np.array(lengths)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "buffer"), [(2, 0.05), (4, 0.05), (8, 0.05), (4, 0.2), (4, 0.02)])
def test_accidents_come_by_the_others_over_the_packets_that_the_buffer_holds(workers, buffer):
    rate = PER_PACKETS * (workers - 1) / (RATE * buffer / PACKET)
    expected = 1 - math.exp(-1.0)
    for kind in accidents(workers, seconds=1 / rate, buffer=buffer)[:2]:
        assert kind == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 4000))
    for wrong in (0.9, 1.1):  # the test's own power
        off = accidents(workers, seconds=wrong / rate, buffer=buffer, times=20_000)[0]
        assert abs(off - expected) > 4 * math.sqrt(expected * (1 - expected) / 20_000)


POLICED_FLOWS = json.loads((TESTBED / "policed.json").read_text())
#: Over the fair one; more than all of the link is what BBR took a token bucket's first packets for.
POLICED_RATES = {way: [row[0] * row[1] for row in rows if row[1] > 1 > row[0]] for way, rows in POLICED_FLOWS.items()}
MEASURED = [json.loads(line) for line in (TESTBED / "accidents.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("kind", "against"), [("silences", "against_silence"), ("policed", "against_policing")])
def test_measured_accidents_come_as_often_as_simulated(kind, against):
    def expected(rows):
        return sum(PER_PACKETS * row[against] / (row["mbit"] * 125_000 * row["buffer_ms"] / 1e3 / 1514) for row in rows)

    assert sum(len(row[kind]) for row in MEASURED) == pytest.approx(expected(MEASURED), rel=0.25)
    for network in {(row["mbit"], row["buffer_ms"]) for row in MEASURED}:
        rows = [row for row in MEASURED if (row["mbit"], row["buffer_ms"]) == network]
        assert sum(len(row[kind]) for row in rows) == pytest.approx(expected(rows), rel=0.6, abs=6)


def test_measured_silences_are_timeouts():
    lengths = np.concatenate([row["silences"] for row in MEASURED])
    assert np.median(lengths) == pytest.approx(TIMEOUT + 0.012, abs=0.02)
    assert (lengths > 0.4).mean() == pytest.approx(AGAIN, abs=0.03)


@pytest.mark.parametrize("buffer", [0.05, 0.2])
def test_a_flow_that_is_alone_is_silent_as_beside_a_quarter_of_another_and_never_policed(buffer):
    rate = LONE * PER_PACKETS / (RATE * buffer / PACKET)
    expected = 1 - math.exp(-1.0)
    silent, policed, _ = accidents(1, seconds=1 / rate, buffer=buffer)
    assert silent == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 4000))
    assert policed == 0


def late_steps(folder: Path):
    """Untraced steps of one worker: how many were 0.14 to 3 s longer than the median, and how many to expect."""
    job, workload = (json.loads((folder / name).read_text()) for name in ("job.json", "workload.json"))
    times = np.diff(json.loads((folder / "steps_n1_w0.json").read_text()))
    late = times - np.median(times)
    wire = job["bandwidth_mbit"] * 125_000  # bytes per second
    seconds = 2 * job["model_bytes"] / (wire * 1448 / 1514) * len(times)
    packets = wire * workload.get("buffer_ms", 12.0) / 1e3 / 1514
    return np.sum((late > 0.14) & (late < 3.0)), LONE * PER_PACKETS * seconds / packets


def test_one_worker_of_one_server_is_held_up_as_often_as_simulated_under_bbr_and_never_under_control_by_losses():
    found: dict[bool, list] = {True: [], False: []}
    for links in sorted(unpacked(TESTBED / "series").glob("*/links.json")):
        job = json.loads((links.parent / "job.json").read_text())
        if job["parameter_servers"] == 1 and (links.parent / "steps_n1_w0.json").exists():
            runs = json.loads(links.read_text()).values()
            bbr = {name for run in runs for server in run.values() for name in server["tcp"]["algorithm"]} == {"bbr"}
            found[bbr].append(late_steps(links.parent))
    (came, expected), (never, as_bbr) = (np.sum(found[bbr], axis=0) for bbr in (True, False))
    assert came == pytest.approx(expected, abs=2 * math.sqrt(expected))
    assert never == 0 < as_bbr - 2 * math.sqrt(as_bbr)  # as many would have been noticed


def test_a_timeout_doubles_when_what_is_sent_again_is_lost():
    _, _, lengths = accidents(8, seconds=100.0)
    first = TIMEOUT + BUFFER
    doublings = np.log2(lengths / first + 1)  # first (1 + 2 + 4 + ...)
    assert np.allclose(doublings, np.round(doublings))
    share = (doublings > 1.5).mean()
    assert share == pytest.approx(AGAIN, abs=4 * math.sqrt(AGAIN / len(lengths)))
    assert lengths.mean() == pytest.approx(first / (1 - 2 * AGAIN), rel=0.05)


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5])
def test_who_believes_itself_policed_keeps_its_rate_for_48_round_trips_and_then_takes_the_link(rate):
    rules, state = cluster(1, buffer=1e6)  # where silence hardly ever comes
    rng, now = np.random.default_rng(1), 0.0
    state.policed[0, 0, 0], state.estimate[0, 0, 0] = POLICED, rate * RATE
    trip = max(SHORT_TRIP, FLIGHT / (rate * RATE))
    reshare(state, rules, now, 0, rng)
    while state.rate[0, 0, 0] == pytest.approx(rate * RATE):
        now = state.tick[0]
        state.dirty[0] = FLOWS
        reshare(state, rules, now, 0, rng)
    assert now == pytest.approx(POLICED * trip, abs=0.021)  # a look every 20 ms
    assert state.rate[0, 0, 0] == pytest.approx(RATE)


def test_rates_taken_for_policed_are_about_the_fair_one():
    rules, state = cluster(4)
    rng, rates = np.random.default_rng(1), []
    reshare(state, rules, 0.0, 0, rng)
    while len(rates) < 4000:
        state.policed[0, 0, 0] = 0.0
        suffer(state, rules, 0.0, 10.0, 0, 0, 0, rng)
        if state.policed[0, 0, 0] > 0:
            rates.append(4 * state.estimate[0, 0, 0] / RATE)
    median, *ends = np.quantile(np.log(rates), (0.5, 0.1, 0.9))
    measured = {way: np.quantile(np.log(some), (0.5, 0.1, 0.9)) for way, some in POLICED_RATES.items()}
    assert median == pytest.approx(measured["fetch"][0], abs=0.1)
    assert measured["push"][0] < 0 < median
    assert np.diff(ends) == pytest.approx(np.mean([np.diff(some[1:]) for some in measured.values()]), rel=0.15)


def test_who_believes_itself_policed_gives_way_at_a_full_link():
    rules, state = cluster(4, buffer=0.2)
    state.policed[0, 0, 0], state.estimate[0, 0, 0] = POLICED, 0.2 * RATE
    for _ in range(5):
        state.dirty[0] = FLOWS
        reshare(state, rules, 0.0, 0, np.random.default_rng(1))
    offered = state.offered[0, :, 0]
    assert offered[0] == pytest.approx(0.2 * RATE)
    assert state.rate[0, :, 0] == pytest.approx(RATE * offered / offered.sum())
    assert 0.1 * RATE < state.rate[0, 0, 0] < 0.2 * RATE


def test_the_others_have_the_link_of_a_silent_one():
    rules, state = cluster(3)
    state.silent[0, 0, 0] = 1.0
    rng = np.random.default_rng(1)
    reshare(state, rules, 0.0, 0, rng)
    assert state.rate[0, :, 0] == pytest.approx([0.0, RATE / 2, RATE / 2])
    assert state.tick[0] <= 1.0


def two_servers(seconds: float) -> list[Operation]:
    """A parameter from each of two servers, which share the worker's link; hardly anything else."""
    each = round(seconds * RATE / 2)
    return [
        Operation("fetch", "a", 0.0, seconds, each),
        Operation("fetch", "b", 0.0, seconds, each, server=1),
        Operation("compute", "step", seconds, seconds + 0.1, after=[0, 1]),
        Operation("push", "g", seconds + 0.1, seconds + 0.1001, 100, after=[2]),
    ]


def test_several_servers_wait_for_each_others_timeouts_on_one_workers_link():
    profile, buffer = profile_of(two_servers(1.0), servers=2), 0.02
    run = {"workers": 1, "steps": 400, "links": LINKS, "unfairness": 0.0}
    ideal, short = (1 / simulate(profile, loaded_trip=wait, **run).throughput for wait in (0.0, buffer))
    assert ideal == pytest.approx(1.1, rel=1e-3)
    often = 2 * PER_PACKETS / (RATE * buffer / PACKET)  # times a second: one of the two flows falls silent
    silence = (TIMEOUT + buffer) / (1 - 2 * AGAIN)
    assert 1.1 + 0.2 * often * silence < short < 1.1 + often * (silence + POLICED * FLIGHT / RATE)


def test_connections_that_share_forget_what_they_had_where_their_windows_fill_the_buffer():
    flows = Flows(rules_of(window_kept=0.0, buffer=0.012), 60 * PAYLOAD, workers=4)
    for w in range(4):
        flows.start(0, w)
    flows.state.estimate[0, :, 0] = flows.rate * np.array([1.0, 0.6, 0.4, 0.4])
    for _ in range(3):  # a few round trips
        share = flows.go()[0]
    assert share.sum() == pytest.approx(flows.rate * STEP)
    assert share.max() < 1.5 * share.min()


@pytest.mark.parametrize(("others", "buffer"), [(2, 0.03), (3, 0.03), (3, 0.012), (2, 0.05)])
def test_acknowledgements_behind_others_windows_hold_a_connection_to_its_own(others, buffer):
    flows = Flows(rules_of(window_kept=0.0, buffer=buffer), 60 * PAYLOAD, workers=5)
    for w in range(others):
        flows.start(1, w)
    flows.go()
    flows.start(0, 4)
    for _ in range(3):
        got = flows.go()[0, 4] / STEP
    estimates = np.array([flows.rate / others, flows.state.estimate[0, 4, 0]])
    each, own = AT_ONCE + QUANTA * np.maximum(2 * PACKET, QUANTUM * estimates)
    trip = SHORT_TRIP + min(buffer, others * each / flows.rate)
    assert got == pytest.approx(own / trip, rel=0.02)
    assert got < 0.9 * flows.rate
