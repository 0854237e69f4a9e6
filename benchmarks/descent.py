"""Training in the vectorized loop beside the same in a plain loop over seeds and workers.

python -m benchmarks.descent
"""

from __future__ import annotations

import time

import numpy as np

from queuemodel.sgd import LocalSGD, LogisticRegression, SynchronousSGD, descend
from queuemodel.sgd.problems import softmax_miss

WORKERS, SEEDS, FEATURES, CLASSES, BATCH, RATE = 16, 8, 1000, 10, 4, 0.05


def make() -> LogisticRegression:
    """A softmax regression of 10,000 parameters."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(2000, FEATURES)).astype(np.float32)
    return LogisticRegression(features, rng.integers(CLASSES, size=2000), BATCH, classes=CLASSES)


def plainly(problem: LogisticRegression, local_steps: int, steps: int) -> None:
    """As one writes it: for each seed, step and worker."""
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        x = [np.zeros((FEATURES, CLASSES), np.float32) for _ in range(WORKERS)]
        for k in range(steps):
            for w in range(WORKERS):
                chosen = rng.integers(len(problem.targets), size=BATCH)
                A = problem.features[chosen]
                x[w] = x[w] - np.float32(RATE) * (A.T @ softmax_miss(A @ x[w], problem.targets[chosen]))
            if (k + 1) % local_steps == 0:
                mean = np.mean(x, axis=0)
                x = [mean.copy() for _ in range(WORKERS)]


def per_step(run: object, steps: int) -> float:
    """Processor seconds of a step, the least of three."""
    found = []
    for _ in range(3):
        begun = time.process_time()
        run()  # type: ignore[operator]
        found.append((time.process_time() - begun) / steps)
    return min(found)


def main() -> None:
    """Print seconds for 5,000 steps, and the ratio."""
    problem = make()
    for strategy, local_steps in ((SynchronousSGD(), 1), (LocalSGD(8), 8)):
        settings = {"workers": WORKERS, "learning_rate": RATE, "seeds": SEEDS}
        ours = per_step(lambda s=strategy, o=settings: descend(problem, s, steps=[100], **o), 100)
        plain = per_step(lambda n=local_steps: plainly(problem, n, 20), 20)
        print(
            f"{type(strategy).__name__}, {WORKERS} workers, {problem.dimension:,} parameters, {SEEDS} seeds, "
            f"5,000 steps: {5000 * ours:.1f} s, a plain loop {5000 * plain:.1f} s, {plain / ours:.1f} times"
        )


if __name__ == "__main__":
    main()
