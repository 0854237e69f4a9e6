"""From recorded operations to the graph that is simulated, and to servers that hold the tensors."""

import msgspec
import numpy as np
import pytest
from by_hand import profile_of, serial, two_layers

from queuemodel.traces.graph import arrival_order, causes, pack
from queuemodel.traces.kernel.state import COMPUTE, FETCH, PUSH, UPDATE
from queuemodel.traces.policies import shard
from queuemodel.training import Operation


def test_fetches_come_first_as_they_arrived_then_the_rest_by_end():
    assert arrival_order(two_layers()) == [0, 1, 2, 3, 5, 4, 6]
    late = [Operation("compute", "c", 0.0, 0.1), Operation("fetch", "b", 0.0, 0.9), Operation("fetch", "a", 0.0, 0.4)]
    assert arrival_order(late) == [2, 1, 0]


def test_gaps_are_kept_and_processors_shared():
    operations = [
        Operation("fetch", "a", 0.02, 0.3, 10),
        Operation("fetch", "b", 0.01, 0.5, 10),  # both were asked for at .01
        Operation("compute", "first", 0.55, 1.0, after=[0, 1]),  # .05 s after the last of what it needed
        Operation("compute", "second", 1.1, 1.2, after=[1, 1]),  # ready at .5, but the processor fell free at 1.0
        Operation("compute", "beside", 0.8, 1.3, after=[0]),  # none had ended since .3: it ran beside the first
        Operation("push", "g", 1.5, 1.8, 10, after=[3]),
        Operation("update", "u", 2.0, 2.1, after=[5]),
        Operation("update", "v", 2.15, 2.4, after=[5]),  # its server was busy until 2.1; that queues in the simulation
    ]
    found = causes(operations)
    assert [after for after, _ in found] == [[], [], [0, 1], [1, 2], [0], [3], [5], [5]]
    assert [delay for _, delay in found] == pytest.approx([0.01, 0.01, 0.05, 0.1, 0.5, 0.3, 0.2, 0.05])


def test_operations_are_packed_in_order_of_arrival():
    steps = pack(profile_of(serial(update=0.1), two_layers(), pause=0.4), parameter_servers=1)
    assert steps.first.tolist() == [0, 4, 11]
    assert steps.kind[:4].tolist() == [FETCH, COMPUTE, PUSH, UPDATE]
    assert steps.size[:4].tolist() == [200_000, 0, 300_000, 0]
    assert steps.duration[:4] == pytest.approx([0, 0.5, 0, 0.1])
    assert steps.degree.tolist() == [0, 1, 1, 1, 0, 0, 1, 2, 1, 1, 1]
    assert steps.variable.tolist() == [-1, -1, -1, 0] + [-1] * 7
    assert steps.pause == pytest.approx([0.4, 0.4])
    edges = [steps.next[a:b].tolist() for a, b in zip(steps.next_first, steps.next_first[1:], strict=False)]
    # of the second step: forward_second waits for its parameters and the first; then come backward, and both gradients
    assert edges == [[1], [2], [3], [], [3], [2], [3], [4, 5], [6], [], []]


def test_transfers_that_found_their_link_idle_start_late():
    operations = [
        Operation("fetch", "a", 0.02, 0.3, 10),
        Operation("fetch", "b", 0.01, 0.5, 10),  # asked for together
        Operation("fetch", "c", 0.45, 0.6, 10, after=[0]),  # the link was busy
        Operation("compute", "f", 0.6, 1.0, after=[0, 1, 2]),
        Operation("push", "g", 1.1, 1.8, 10, after=[3]),
        Operation("push", "h", 1.2, 2.0, 10, after=[3]),
        Operation("fetch", "d", 2.2, 2.3, 10, after=[5]),  # idle again
        Operation("fetch", "done", 2.4, 2.5, 0, after=[6]),  # carries nothing
    ]
    alike = [pack(profile_of(operations), parameter_servers=1, start_times=times) for times in ((0, 0), (0.003, 0.002))]
    late = alike[1].delay - alike[0].delay
    assert late == pytest.approx([0.003, 0.003, 0.0, 0.003, 0.0, 0.0, 0.002, 0.0])


def test_where_the_record_ends_the_pause_is_the_median_of_the_others():
    profile = profile_of(serial(), serial(), serial(), serial(), pause=0.0)
    assert pack(profile, parameter_servers=1).pause.tolist() == [0.0] * 4
    times = [1.2, 1.3, 1.0, 1.7]
    steps = [msgspec.structs.replace(step, step_time=time) for step, time in zip(profile.steps, times, strict=True)]
    paused = msgspec.structs.replace(profile, steps=steps)
    assert pack(paused, parameter_servers=1).pause == pytest.approx([0.2, 0.3, 0.3, 0.7])


def tensors(sizes):
    """Layers' parameters, used in turn; gradients and updates from the last layer to the first."""
    operations = [Operation("fetch", f"w{i}", 0.0, 1.0, size) for i, size in enumerate(sizes)]
    for i in range(len(sizes)):
        operations.append(Operation("compute", f"f{i}", 1.0, 1.0, after=[i] + ([len(operations) - 1] if i else [])))
    last = len(operations) - 1
    for i in reversed(range(len(sizes))):
        operations.append(Operation("push", f"g{i}", 1.0, 2.0, sizes[i], after=[last]))
        operations.append(Operation("update", f"u{i}", 2.0, 2.0, after=[len(operations) - 1]))
    return operations


@pytest.mark.parametrize(
    ("sharding", "sizes", "home"),
    [
        ("round-robin", [10, 20, 30, 40, 50], [0, 1, 2, 0, 1]),
        ("round-robin", [10, 10, 10, 10, 10], [0, 1, 2, 0, 1]),
        ("greedy", [10, 20, 30, 40, 60], [1, 2, 2, 1, 0]),
        ("greedy", [50, 50, 50, 20, 10], [0, 1, 2, 0, 1]),
    ],
)
def test_a_tensors_parameter_gradient_and_update_are_on_one_server(sharding, sizes, home):
    operations = tensors(sizes)
    (servers,) = shard(profile_of(operations), 3, sharding)
    at = {o.name: int(server) for o, server in zip(operations, servers, strict=True)}
    for i, server in enumerate(home):
        assert [at[f"{kind}{i}"] for kind in "wgu"] == [server] * 3
    assert all(at[f"f{i}"] == 0 for i in range(len(sizes)))


def test_gradients_of_no_parameters_size_are_spread():
    operations = [
        *tensors([10, 20]),
        Operation("push", "x", 1.0, 2.0, 5),
        Operation("push", "y", 1.0, 2.0, 5),
        Operation("update", "z", 2.0, 2.0),
    ]
    (servers,) = shard(profile_of(operations), 2, "round-robin")
    assert servers[-3:].tolist() == [0, 1, 0]
    assert np.bincount(servers[-3:]).tolist() == [2, 1]
