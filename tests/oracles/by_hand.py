"""Profiles made by hand, whose schedules can be worked out on paper, and random ones."""

from hypothesis import strategies as st

from queuemodel.profile import Cluster, Job, Operation, Profile, Source, Step
from queuemodel.simulator import LinkRate, LinkRates

RATE = 1e6  # bytes per second of every link
LINKS = LinkRates(LinkRate(RATE), LinkRate(RATE))
#: No memory, no luck: connections share links equally, so that schedules are exact.
IDEAL = {"links": LINKS, "loaded_trip": 0.0, "unfairness": 0.0}


def profile_of(*steps: list[Operation], pause: float = 0.0, servers: int = 1) -> Profile:
    """A profile with these steps' operations; the phases, which no simulation reads, are left at 0."""
    records = [
        Step(
            step_time=max(o.end for o in operations) + pause, fetch=0.0, compute=0.0, push=0.0, update=0.0,
            fetched_bytes=sum(o.bytes for o in operations if o.kind == "fetch"),
            pushed_bytes=sum(o.bytes for o in operations if o.kind == "push"), operations=operations,
        )
        for operations in steps
    ]  # fmt: skip
    fetched = [o for o in steps[0] if o.kind == "fetch"]
    return Profile(
        source=Source(framework="by hand"),
        cluster=Cluster(parameter_servers=servers),
        job=Job(name="by hand", batch_size=1, parameter_bytes=sum(o.bytes for o in fetched), tensors=len(fetched)),
        steps=records,
    )


def serial(fetch: float = 0.2, compute: float = 0.5, push: float = 0.3, update: float = 0.0) -> list[Operation]:
    """One tensor: fetched, computed with, pushed, applied (seconds, on a link of `RATE`)."""
    a, b, c = fetch, fetch + compute, fetch + compute + push
    return [
        Operation("fetch", "w", 0.0, a, round(fetch * RATE)),
        Operation("compute", "step", a, b, after=[0]),
        Operation("push", "g", b, c, round(push * RATE), after=[1]),
        Operation("update", "sgd", c, c + update, after=[2]),
    ]


def two_layers() -> list[Operation]:
    """The small first layer's parameters arrive after the large second layer's, so that computation waits for both."""
    return [
        Operation("fetch", "second", 0.0, 0.8, 800_000),
        Operation("fetch", "first", 0.0, 1.0, 200_000),
        Operation("compute", "forward_first", 1.0, 1.3, after=[1]),
        Operation("compute", "forward_second", 1.3, 1.7, after=[0, 2]),
        Operation("push", "g_second", 1.7, 2.5, 800_000, after=[3]),
        Operation("compute", "backward_first", 1.7, 2.0, after=[3]),
        Operation("push", "g_first", 2.0, 2.7, 200_000, after=[5]),
    ]


@st.composite
def graphs(draw):
    """A chain of layers with tensors of any size on up to two servers, fetched in any order."""
    layers = draw(st.integers(1, 5))
    sizes = draw(st.lists(st.integers(1, 400_000), min_size=layers, max_size=layers))
    times = draw(st.lists(st.floats(0, 0.2), min_size=layers, max_size=layers))
    homes = draw(st.lists(st.integers(0, 1), min_size=layers, max_size=layers))
    order = draw(st.permutations(range(layers)))
    operations, at = [], 0.0
    for i in order:
        at += sizes[i] / RATE
        operations.append(Operation("fetch", f"w{i}", 0.0, at, sizes[i], server=homes[i]))
    for i in range(layers):
        before = [] if i == 0 else [len(operations) - 1]
        operations.append(Operation("compute", f"f{i}", at, at + times[i], after=[order.index(i), *before]))
        at += times[i]
    last = len(operations) - 1
    for i in reversed(range(layers)):
        at += sizes[i] / RATE
        operations.append(Operation("push", f"g{i}", at - sizes[i] / RATE, at, sizes[i], server=homes[i], after=[last]))
        operations.append(Operation("update", f"u{i}", at, at, server=homes[i], after=[len(operations) - 1]))
    return operations
