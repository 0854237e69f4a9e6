"""Half-synchronous rules against an event simulation: ``python -m verification.half_synchronous`` prints the table.

The simulation is that of the tests (`tests/strategies/half_events.py`), longer and for more numbers of workers.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from queuemodel.strategies import HalfSynchronous
from queuemodel.training.rules import ClosedNetwork

TESTS = Path(__file__).parent.parent / "tests" / "strategies"

#: Seconds of fetch, push and update, where a worker's own time is 1 s.
SERVERS = {"light": (0.02, 0.02, 0.002), "busy": (0.1, 0.1, 0.01)}
WORKERS, VARIATIONS = (4, 8, 16), (0.1, 0.5, 1.0)

#: Title; what predicts (name and numbers), what simulates, and the results in a round, of n workers.
Case = tuple[str, str, Callable[[int], list[int]], str, Callable[[int, int], int]]
CASES: list[Case] = [
    ("sync-ps", "sync-ps", lambda n: [0], "k-sync", lambda n, _: n),
    ("sync-ps, one backup worker", "sync-ps", lambda n: [1], "backup", lambda n, b: n - b),
    ("sync-ps, n/2, 3n/4, n-1 of them", "sync-ps", lambda n: [n // 2, 3 * n // 4, n - 1], "backup", lambda n, b: n - b),
    ("k-sync, K = n/2", "k-sync", lambda n: [n // 2], "k-sync", lambda n, k: k),
    ("k-batch-sync, K = n/2, n, 2n", "k-batch-sync", lambda n: [n // 2, n, 2 * n], "k-batch-sync", lambda n, k: k),
    ("k-async, K = n/2", "k-async", lambda n: [n // 2], "k-async", lambda n, k: k),
    ("k-async, K = n-1", "k-async", lambda n: [n - 1], "k-async", lambda n, k: k),
    ("bounded-staleness, s = 1 and 4", "bounded-staleness", lambda n: [1, 4], "bounded", lambda n, _: n),
]


def error(name: str, number: int, strategy: str, k: int, n: int, cv: float, D: tuple[float, ...]) -> float:
    """Relative error of the predicted throughput."""
    sys.path.insert(0, str(TESTS))
    from half_events import run

    from queuemodel.traces.result import batch_means

    rng, scv, rounds = np.random.default_rng(1), cv**2, max(400, 12_000 // k)
    durations, _ = run(
        strategy, lambda _: rng.gamma(1 / scv, scv), lambda: D, workers=n, k=k, bound=number, rounds=rounds
    )
    truth = k * batch_means(durations, confidence=0.9)[0]
    rule = HalfSynchronous(name, number, scv, spread=0.0)(ClosedNetwork(), 1)
    return abs(float(rule.solve(np.array(D), np.array(1.0), np.array([n])).X[0]) / truth - 1)


def main() -> None:
    """Print the table."""
    print("| strategy | light: mean | largest | busy: mean | largest |\n|---|---|---|---|---|")
    for title, name, numbers, strategy, k_of in CASES:
        cells = []
        for D in SERVERS.values():
            tasks = [
                delayed(error)(name, number, strategy, k_of(n, number), n, cv, D)
                for n, cv in itertools.product(WORKERS, VARIATIONS)
                for number in numbers(n)
            ]
            errors = 100 * np.array(Parallel(n_jobs=-1)(tasks))
            cells += [f"{errors.mean():.1f}", f"{errors.max():.0f}"]
        print(f"| {title} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
