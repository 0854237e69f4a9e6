"""Every strategy against a plain loop over workers, each with one example of its own: only quantization is drawn."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from queuemodel import sgd as qd

RNG, N, STEPS = np.random.default_rng(6), 5, 40
A, Y, REG = RNG.normal(size=(N, 6)), RNG.normal(size=N), 0.3
OWN = RNG.permutation(N)
PROBLEM = qd.LeastSquares(A, Y, batch_size=2, regularization=REG, shares=tuple(np.array([k]) for k in OWN))
SLOWNESS = np.array([1.0, 1.3, 2.1, 1.0, 1.0])
CLOCK = qd.Clock(2.0, slowness=(1.0, 1.3, 2.1), transfer=lambda up, down: 0.5 + 0.03 * up + 0.05 * down)


def gradient(i, x):
    a, y = A[OWN[i]], Y[OWN[i]]
    return a * (a @ x - y) + REG * x


def loss(x):
    return np.mean((A @ x - Y) ** 2) / 2 + REG / 2 * (x @ x)


def rate(k):
    return 0.2 / (1 + k / 30)


def received(compressor, v):
    """Of each vector, where nothing is drawn."""
    return compressor.compress(v[None], [])[0]


def synchronous(s, k, now, draw):
    s.v = 0.6 * s.v + np.mean([gradient(i, s.x[0]) for i in range(N)], axis=0)
    s.x = s.x - rate(k) * s.v[0]
    return 192, 192, "all"


def local(s, k, now, draw):
    s.x = s.x - rate(k) * s.g
    if (k + 1) % 3:
        return 0, 0, ""
    s.x[:] = s.x.mean(axis=0)
    return 192, 192, "all"


def adaptive(s, k, now, draw):
    if k == 0:
        s.since, s.decided, s.local, s.first = 0, 0.0, 4, loss(s.x[0])
    if s.since == 0 and now - s.decided >= 25:
        wanted = math.ceil(math.sqrt(rate(0) / rate(k) * loss(s.x[0]) / s.first) * 4)
        s.local, s.decided = wanted if wanted < s.local else math.ceil(s.local / 2), now
    s.x, s.since = s.x - rate(k) * s.g, s.since + 1
    if s.since < s.local:
        return 0, 0, ""
    s.x[:], s.since = s.x.mean(axis=0), 0
    return 192, 192, "all"


def overlapped(s, k, now, draw):
    s.x = s.x - rate(k) * s.g
    if (k + 1) % 2:
        return 0, 0, ""
    s.x = 0.7 * s.x + 0.3 * s.anchor
    s.v = 0.6 * s.v + (s.anchor - s.x.mean(axis=0)) / rate(k)
    s.anchor = s.anchor - rate(k) * s.v[0]
    return 192, 192, "ahead"


def compressed(compressor, local_steps):
    def step(s, k, now, draw):
        s.v = 0.4 * s.v + s.g
        s.moved = s.moved + rate(k) * (0.4 * s.v + s.g)
        s.x = s.anchor - s.moved
        if (k + 1) % local_steps:
            return 0, 0, ""
        sent = received(compressor, s.moved + s.error)
        s.error = s.moved + s.error - sent
        answer = received(compressor, sent.mean(axis=0) + s.more)
        s.more = sent.mean(axis=0) + s.more - answer
        s.anchor, s.moved = s.anchor - answer, 0 * s.moved
        s.x[:] = s.anchor
        return (bits := compressor.bits(6)), bits, "all"

    return step


def quantized(s, k, now, draw):
    if k == 0:
        s.levels, s.first = 2, loss(s.anchor)
    s.moved = s.moved + rate(k) * s.g
    s.x = s.anchor - s.moved
    if (k + 1) % 4:
        return 0, 0, ""
    unit, bits = np.linalg.norm(s.moved, axis=1)[:, None] / s.levels, 6 * math.ceil(math.log2(s.levels + 1)) + 6 + 32
    sent = np.sign(s.moved) * np.floor(np.abs(s.moved) / unit + draw(s.moved.shape)) * unit
    s.anchor, s.moved = s.anchor - sent.mean(axis=0), 0 * s.moved
    s.x[:], s.levels = s.anchor, math.ceil(math.sqrt(s.first / loss(s.anchor)) * 2)
    return bits, 192, "all"


def gossiped(s, k, now, draw):
    s.v = 0.3 * s.v + s.g
    s.x = s.x - rate(k) * (0.3 * s.v + s.g)
    if (k + 1) % 2:
        return 0, 0, ""
    change = s.x - s.known
    speaks = (change**2).sum(axis=1) > 2.0 * rate(k) ** 2
    s.known = s.known + received(SIGN, change) * speaks[:, None]
    around = (np.roll(s.known, 1, axis=0) + np.roll(s.known, -1, axis=0) + s.known) / 3
    s.x = s.x + 0.4 * (around - s.known)
    s.spoken.append(speaks.sum())
    return (bits := speaks.mean() * 2 * (6 + 3 * 32)), bits, "ring"


def ordered(s, k, now, draw):
    news = np.linalg.norm(s.g - s.told, axis=1)
    halt, silent = 0.02 + 0.3 * np.linalg.norm(s.told.sum(axis=0)), list(range(N))
    while silent and len(silent) * max(news[silent]) > halt:
        silent.remove(max(silent, key=lambda i: news[i]))
    speaks = ~np.isin(range(N), silent)
    s.told = np.where(speaks[:, None], s.g, s.told)
    s.x = s.x - rate(k) * s.told.mean(axis=0)
    s.spoken.append(speaks.sum())
    return 192 * speaks.mean(), 192, "all"


SIGN, TOP = qd.BlockSign(3), qd.TopK(0.3)
TOGETHER = {
    "synchronous": (qd.SynchronousSGD(0.6), synchronous), "local": (qd.LocalSGD(3), local),
    "adaptive": (qd.AdaComm(4, 25.0), adaptive), "overlapped": (qd.OverlapLocalSGD(2, 0.3, 0.6), overlapped),
    "top": (qd.DoubleCompression(TOP, 0.4, 1), compressed(TOP, 1)),
    "sign": (qd.DoubleCompression(SIGN, 0.4, 3), compressed(SIGN, 3)),
    "quantized": (qd.AdaQuantFL(4, 2), quantized),
    "gossiped": (qd.SquarmSGD("ring", SIGN, 2, 2.0, 0.4, 0.3), gossiped),
    "ordered": (qd.OrderedGradient(0.02, 0.3), ordered),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_workers_that_meet(name):
    strategy, step = TOGETHER[name]
    asked = {"steps": range(STEPS + 1), "learning_rate": rate, "seeds": [8, 3], "clock": CLOCK}
    done = qd.descend(PROBLEM, strategy, workers=N, **asked)
    kept = dict(zip(("x", "v", "moved", "error", "known", "told"), np.zeros((6, N, 6)), strict=True))
    s = SimpleNamespace(**kept, anchor=np.zeros(6), more=np.zeros(6), spoken=[])
    at, arrival, rng = np.zeros(N), 0.0, np.random.default_rng([3, 0])
    rows, anchored = [(0.0, 0.0, 0.0, loss(s.x[0]))], name in ("top", "sign", "quantized")
    for k in range(STEPS):
        s.g = np.array([gradient(i, x) for i, x in enumerate(s.x)])
        if not strategy.exact:
            rng.random((N, 2))  # which examples
        up, down, waits = step(s, k, at.max(), rng.random)
        at = at + 2.0 * SLOWNESS * (0.5 if strategy.exact else 1.0)  # all examples are half a batch
        takes = 0.5 + 0.03 * up + 0.05 * down
        if waits == "ahead":
            at = np.maximum(at, arrival)
            arrival = at.max() + takes
        elif waits:
            at = (np.maximum(np.maximum(np.roll(at, 1), np.roll(at, -1)), at) if waits == "ring" else at.max()) + takes
            at = np.broadcast_to(at, N)
        model = s.anchor if anchored else s.x.mean(axis=0)
        rows.append((at.max(), rows[-1][1] + up, rows[-1][2] + down, loss(model)))
    found = np.stack([done.times[1], done.up_bits[1], done.down_bits[1], done.losses[1]], axis=1)
    np.testing.assert_allclose(found, rows, rtol=1e-9)
    np.testing.assert_allclose(done.model[1], model, rtol=1e-9)
    assert done.steps.tolist() == list(range(STEPS + 1))
    assert (done.strategy, done.seeds, done.workers, done.staleness.tolist()) == (strategy, (8, 3), N, [0, 0])
    if s.spoken:  # sometimes some, and sometimes others
        assert len({*s.spoken}) > 2


class Even(qd.Clock):
    """Gradients of each worker that all take as long."""

    takes = np.array([1.0, 1.7, 2.3, 3.1, 0.9])

    def durations(self, rng, shape, batches=1.0):
        return np.broadcast_to(self.takes[:, None], shape)


@pytest.mark.parametrize("name", ["async", "k-async", "k-batch-async", "k-sync", "k-batch-sync", "bounded-staleness"])
def test_workers_of_a_server(name):
    k = 1 if name in ("async", "bounded-staleness") else 3
    strategy = qd.ServerSGD(name, k, staleness_bound=2 if name == "bounded-staleness" else 0)
    done = qd.descend(PROBLEM, strategy, workers=N, steps=range(61), learning_rate=rate, seeds=1, clock=Even())
    x, version, stale, collected, waiting = np.zeros(6), 0, 0, [], set()
    copies, read, ends, count, rows = [x] * N, [0] * N, Even.takes.tolist(), [0] * N, [(0.0, loss(x))]
    for step in range(60):
        i = min(range(N), key=lambda i: ends[i])
        now, stale = ends[i], stale + version - read[i]
        collected.append(gradient(i, copies[i]))
        ends[i], count[i] = math.inf, count[i] + 1
        waiting.add(i)
        if full := len(collected) == k:
            x, version, collected = x - rate(step) * np.mean(collected, axis=0), version + 1, []
        if name in ("k-sync", "k-batch-sync"):
            renewed = set(range(N)) if full else set()
        elif name == "bounded-staleness":
            renewed = {j for j in waiting if count[j] - min(count) <= 2}
        else:
            renewed = waiting if full or name != "k-async" else set()
        for j in renewed:
            copies[j], read[j] = x, version
        for j in set(renewed) | (waiting if name == "k-batch-sync" else set()):
            ends[j] = now + Even.takes[j]
            waiting = waiting - {j}
        rows.append((now, loss(x)))
    np.testing.assert_allclose(np.stack([done.times[0], done.losses[0]], axis=1), rows, rtol=1e-9)
    np.testing.assert_allclose(done.model[0], x, rtol=1e-9)
    assert done.staleness[0] == pytest.approx(stale / 60)
    assert done.up_bits[0].tolist() == done.down_bits[0].tolist() == [192 * step for step in range(61)]


def test_runs_report_means_over_seeds():
    steps, times = np.array([0, 10, 20]), np.array([[0.0, 3.0, 5.0], [0.0, 4.0, 9.0]])
    losses, up = np.array([[4.0, 2.0, 3.0], [5.0, 4.0, 1.0]]), np.array([[0.0, 8e6, 2e7], [0.0, 4e6, 6e7]])
    done = qd.Descent(qd.LocalSGD(2), (1, 7), 3, steps, times, losses, up, 3 * up, losses, np.zeros(2))
    assert [*done.to_rows()[2].values()] == pytest.approx([20, 7, 2, 1, 3, 5, 15])
    for reached, seconds, after in ((2.0, [3, 9], [10, 20]), (1.9, [np.inf, 9], [np.inf, 20]), (4.5, [0, 4], [0, 10])):
        assert (done.time_to(reached).tolist(), done.steps_to(reached).tolist()) == (seconds, after)
    assert done._shown_rows() == done.to_rows()
    assert "local_steps=2" in repr(done)
    assert "3 workers, 2 seeds" in repr(done)
