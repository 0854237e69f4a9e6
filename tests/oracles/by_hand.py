"""Profiles made by hand, whose schedules can be worked out on paper, and random ones."""

from hypothesis import strategies as st

from queuemodel.profile import Bucket, Cluster, Job, Operation, Profile, Round, Source, Step
from queuemodel.simulator import LinkRate, LinkRates

RATE = 1e6  # bytes per second of every link
RATES = (RATE, 0.7e6)  # of links whose directions differ
LINKS = LinkRates(LinkRate(RATE), LinkRate(RATE))
#: No memory, no luck: connections share links equally, so that schedules are exact.
IDEAL = {"links": LINKS, "loaded_trip": 0.0, "unfairness": 0.0}


def profile_of(*steps: list[Operation], pause: float = 0.0, servers: int = 1, hosts=None, **cluster) -> Profile:
    """A profile with these steps' operations, and phases that follow from them."""
    records = [
        Step(
            step_time=max(o.end for o in operations) + pause, operations=operations,
            **{kind: union(operations, kind) for kind in ("fetch", "compute", "push", "update")},
            fetched_bytes=sum(o.bytes for o in operations if o.kind == "fetch"),
            pushed_bytes=sum(o.bytes for o in operations if o.kind == "push"),
        )
        for operations in steps
    ]  # fmt: skip
    fetched = [o for o in steps[0] if o.kind == "fetch"]
    return Profile(
        source=Source(framework="by hand", hosts=hosts or {}),
        cluster=Cluster(parameter_servers=servers, **cluster),
        job=Job(name="by hand", batch_size=1, parameter_bytes=sum(o.bytes for o in fetched), tensors=len(fetched)),
        steps=records,
    )


def union(operations: list[Operation], kind: str) -> float:
    """Seconds in which any operation of this kind is under way."""
    took, until = 0.0, 0.0
    for o in sorted((o for o in operations if o.kind == kind), key=lambda o: o.start):
        took, until = took + max(0.0, o.end - max(o.start, until)), max(until, o.end)
    return took


def serial(fetch=0.2, compute=0.5, push=0.3, update=0.0, *, sizes=None, shares=(1.0,)) -> list[Operation]:
    """A tensor on each server: fetched, computed with, pushed, applied (seconds; bytes as on a link of `RATE`)."""
    a, b, c, n = fetch, fetch + compute, fetch + compute + push, len(shares)
    down, up = sizes or (fetch * RATE, push * RATE)
    return [
        *(Operation("fetch", f"w{i}", 0.0, a, round(down * s), server=i) for i, s in enumerate(shares)),
        Operation("compute", "step", a, b, after=list(range(n))),
        *(Operation("push", f"g{i}", b, c, round(up * s), server=i, after=[n]) for i, s in enumerate(shares)),
        *(Operation("update", f"u{i}", c, c + update, server=i, after=[n + 1 + i]) for i in range(n)),
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
def jobs(draw, most_steps=3, servers=2):
    """Steps of the same layers, of unlike sizes; gradients go back as they are ready; gaps, updates and pauses."""
    layers = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.integers(1_000, 400_000), min_size=layers, max_size=layers, unique=True))
    homes = draw(st.lists(st.integers(0, servers - 1), min_size=layers, max_size=layers))
    seconds = st.floats(0.001, 0.3)
    steps = []
    for _ in range(draw(st.integers(1, most_steps))):
        asked = draw(st.floats(0.0, 0.05))
        at, operations, arrived = asked, [], {}
        for i in draw(st.permutations(range(layers))):
            at += sizes[i] / RATES[0]
            arrived[i] = len(operations)
            operations.append(Operation("fetch", f"w{i}", asked, at, sizes[i], server=homes[i]))
        last = []
        for i in range(layers):
            begun = at + draw(st.sampled_from([0.0, 0.02]))
            at = begun + draw(seconds)
            operations.append(Operation("compute", f"f{i}", begun, at, after=[arrived[i], *last]))
            last = [len(operations) - 1]
        for i in reversed(range(layers)):
            begun, at = at, at + draw(seconds)
            operations.append(Operation("compute", f"b{i}", begun, at, after=last))
            last = [len(operations) - 1]
            begun = at + draw(st.sampled_from([0.0, 0.03]))
            sent = begun + sizes[i] / RATES[1]
            operations.append(Operation("push", f"g{i}", begun, sent, sizes[i], server=homes[i], after=last))
            push = [len(operations) - 1]
            done = sent + draw(seconds) / 3
            operations.append(Operation("update", f"u{i}", sent, done, server=homes[i], after=push))
        steps.append(operations)
    return profile_of(*steps, pause=draw(st.sampled_from([0.0, 0.1])), servers=servers)


def rounds_of(computed, ready, ends, sizes, *, begin=None, tail=0.0) -> list[Round]:
    """Rounds of ranks that compute so long (rounds, ranks): buckets ready (rounds, ranks, buckets), over at `ends`."""
    begin = ready if begin is None else begin
    return [
        Round(rank=rank, ranks=computed.shape[1], number=k, round_time=float(max(ends[k, -1], own.max()) + tail),
              computed=float(own[rank]), buckets=[Bucket(*one) for one in zip(
                  sizes, ready[k, rank].tolist(), begin[k, rank].tolist(), ends[k].tolist(), strict=True)])
        for k, own in enumerate(computed) for rank in range(computed.shape[1])
    ]  # fmt: skip


def job_of(rounds, sizes, *, framework="by hand", batch_size=8, **cluster) -> Profile:
    """A job that reduces buckets of these sizes."""
    job = Job(batch_size=batch_size, parameter_bytes=sum(sizes), tensors=len(sizes))
    return Profile(source=Source(framework=framework), cluster=Cluster(**cluster), job=job, rounds=rounds)
