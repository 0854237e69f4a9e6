"""The testbed's emulated accelerator: what its streams order, and what they leave to overlap."""

import threading
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="the accelerator takes the place of torch.cpu's streams")

from testbed.rounds import sharded_job  # noqa: E402
from testbed.rounds.accelerator import Engine, Stream  # noqa: E402

LIMIT = 20.0  # seconds for what cannot take long, and never comes if the order is wrong


class Gate:
    """Work that goes on until it is opened; it says when it has begun."""

    def __init__(self):
        self.begun, self.opened = threading.Event(), threading.Event()

    def __call__(self):
        self.begun.set()
        assert self.opened.wait(LIMIT)


def nothing():
    pass


def finish(*works):
    for work in works:
        assert work.over.wait(LIMIT)


@pytest.mark.parametrize(("streams", "engines"), [(1, 2), (2, 1), (2, 2)])
def test_streams_and_engines_order_work(streams, engines):
    streams, engines = [Stream() for _ in range(streams)], [Engine() for _ in range(engines)]
    gate = Gate()
    first = streams[0].issue(engines[0], "first", gate)
    assert gate.begun.wait(LIMIT)
    second = streams[-1].issue(engines[-1], "second", nothing)
    if overlap := len(streams) == len(engines) == 2:
        finish(second)  # while the first goes on
        assert not first.over.is_set()
    else:
        assert not second.start
    gate.opened.set()
    finish(first, second)
    assert first.issued <= first.start <= first.end
    assert (second.start < first.end) == overlap


def test_work_waits_for_an_event():
    compute, talk, before, after, engine = Stream(), Stream(), Gate(), Gate(), Engine()
    early = compute.issue(engine, "early", before)
    event = compute.record_event()
    late = compute.issue(engine, "late", after)
    talk.wait_event(event)
    waiting = talk.issue(Engine(), "waiting", nothing)
    assert before.begun.wait(LIMIT)
    assert not event.query()
    assert not waiting.start
    before.opened.set()
    finish(waiting)
    assert event.query()
    assert early.end <= waiting.start
    assert not late.over.is_set()
    after.opened.set()
    finish(late)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_ring_reduces_and_scatters(monkeypatch, n):
    boxes = [SimpleQueue() for _ in range(n)]
    done = SimpleNamespace(wait=nothing)

    def isend(tensor, *, group, group_dst):
        boxes[group_dst].put((group.rank(), tensor.clone()))
        return done

    def irecv(tensor, *, group, group_src):
        sender, sent = boxes[group.rank()].get(timeout=LIMIT)
        assert sender == group_src
        tensor.copy_(sent)
        return done

    monkeypatch.setattr(sharded_job, "distributed", SimpleNamespace(isend=isend, irecv=irecv))
    sources = torch.arange(4.0 * n * n).reshape(n, 4 * n) ** 2
    targets = torch.empty(n, 4)

    def reduce(own):
        group = SimpleNamespace(size=lambda: n, rank=lambda: own)
        sharded_job.ring_reduce_scatter(targets[own], sources[own], group)

    ranks = [threading.Thread(target=reduce, args=(own,)) for own in range(n)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(LIMIT)
    torch.testing.assert_close(targets.flatten(), sources.sum(dim=0))
