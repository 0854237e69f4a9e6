"""Small networks of everything that the constructors accept."""

import math

import numpy as np

import queuemodel as qm
from queuemodel import queueing as qn

TIMES, SHARES = [0.05, 0.1, 0.3, 1.0], [0.0, 0.3, 0.5, 1.0]


def random_network(rng, *, most=3):
    """A network and its population: at most ``most`` customers, three stations and three classes."""
    while True:
        names = [f"c{c}" for c in range(rng.integers(0, 4))]
        N = [int(n) for n in rng.multinomial(rng.integers(1, most + 1), [1 / max(1, len(names))] * max(1, len(names)))]
        K = int(rng.integers(1, 4))
        routing, free = _routing(rng, names, K)
        try:
            network = qn.Network(
                [_station(rng, f"s{k}", names, visits=not free) for k in range(K)],
                classes=[qn.JobClass(c, population=n, think_time=_own(rng)) for c, n in zip(names, N, strict=False)],
                think_time=_think(rng), routing=routing, reference=f"s{rng.integers(K)}" if free else None,
            )  # fmt: skip
        except qm.ModelError:  # no unique visit ratios, nothing to do, ...
            continue
        return network, tuple(N) if names else N[0]


def _think(rng):
    return float(rng.choice([0.0, 0.0, 0.7]))


def _own(rng):
    return None if rng.random() < 0.3 else _think(rng)


def _station(rng, name, names, *, visits):
    def by_class(values):
        if names and rng.random() < 0.5:
            return {c: values[rng.integers(len(values))] for c in names}
        return values[rng.integers(len(values))]

    visit = by_class([1.0, 1.0, 0.5, 3.0, 0.0] if rng.random() < 0.3 else [1.0]) if visits else 1.0
    kind = rng.choice(["queue", "queue", "servers", "delay", "rates", "phases"])
    extra = {"discipline": str(rng.choice(["ps", "fcfs", "lifo-pr"]))}
    extra |= {
        "servers": {"servers": int(rng.integers(2, 4))},
        "delay": {"servers": math.inf},
        "rates": {"rates": [float(r) for r in rng.uniform(0.5, 3.0, 4)]},
    }.get(kind, {})
    if kind == "phases":
        shapes = [qn.PhaseType.from_moments(mean=0.2, scv=0.5), qn.PhaseType((0.4, 0.6), ((-3.0, 1.0), (0.5, -9.0)))]
        return qn.Station(name, distribution=by_class(shapes), visit_ratio=visit, **extra)
    times = by_class(TIMES if rng.random() < 0.7 else [0.0, 0.2])
    return qn.Station(name, service_time=times, scv=by_class([1.0, 1.0, 0.5, 3.0]), visit_ratio=visit, **extra)


def _routing(rng, names, K):
    kind = rng.choice(["none", "none", "common", "each", "switch", "alternate"])
    if kind == "none" or (not names and kind != "common"):
        return None, False
    if kind == "common":
        return _rows(rng, K, K), True
    if kind == "each":
        return {c: _rows(rng, K, K) for c in names}, True
    C = len(names)
    if kind == "switch":
        full = np.array(_rows(rng, C * K, C * K)).reshape(C, K, C, K)
    else:  # every class has one station and sends its customers on as the next class
        full, home = np.zeros((C, K, C, K)), rng.integers(0, K, C)
        for c in range(C):
            full[c, home[c], (c + 1) % C, home[(c + 1) % C]] = 1.0
    return {(a, b): full[i, :, j, :] for i, a in enumerate(names) for j, b in enumerate(names)}, True


def _rows(rng, n, m):
    P = rng.random((n, m)) * rng.choice(SHARES, (n, m))
    P[np.arange(n), rng.integers(0, m, n)] += 0.1
    return P / P.sum(axis=1, keepdims=True)
