"""How far off `ApproximateMVA` is without product form: random networks against their Markov chains.

    python docs/scripts/approximation_errors.py [NETWORKS]

Each has 1 to 3 stations with 1 to 3 servers, the first of them first come first served with a squared coefficient of
variation (scv) of 0.05 to 16, 2 to 20 customers of one or two kinds, and think time or none. `solve` answers small ones
by their chain; the last row is of those that it answers approximately.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np

from queuemodel import ModelError
from queuemodel.queueing import ApproximateMVA, JobClass, MarkovChain, Network, Station, solve

warnings.simplefilter("ignore")


def random_network(rng: np.random.Generator) -> tuple[Network, int | None]:
    """A network and its population, None with classes; times and scv are log-uniform."""
    names = ["a", "b"] if rng.random() < 0.5 else []
    stations = []
    for k in range(rng.integers(1, 4)):
        time = {c: float(np.exp(rng.uniform(-1.5, 1.5))) for c in names or ["all"]}
        shared = k > 0 and rng.random() < 0.4
        station = Station(
            f"s{k}",
            service_time=time if names else time["all"],
            servers=1 if rng.random() < 0.7 else int(rng.integers(2, 4)),
            discipline="ps" if shared else "fcfs",
            scv=1.0 if shared else float(np.exp(rng.uniform(np.log(0.05), np.log(16)))),
        )
        stations.append(station)
    think, N = float(rng.choice([0.0, 1.0, 10.0])), int(rng.integers(2, 21))
    counts = rng.multinomial(N, [0.5, 0.5]).tolist()
    classes = [JobClass(c, population=n) for c, n in zip(names, counts, strict=False)]
    return Network(stations, classes=classes, think_time=think), None if names else N


def main(networks: int = 300) -> None:
    errors, approximated, unknown = [], [], 0
    for seed in range(networks):
        network, N = random_network(np.random.default_rng(seed))
        try:
            truth = solve(network, population=N, solver=MarkovChain(most_states=30_000)).throughput
        except ModelError:  # too many states, or a steady state that depends on the start
            unknown += 1
            continue
        errors.append(abs(solve(network, population=N, solver=ApproximateMVA()).throughput / truth - 1))
        approximated.append(not solve(network, population=N).exact)
    every, larger = 100 * np.array(errors), np.array(approximated)
    print(f"{networks} networks, {unknown} without a chain to compare with; error of the throughput in %")
    print(f"{'':14}networks  median  90th percentile  largest")
    for what, some in (("all", every), ("approximated", every[larger])):
        median, most = np.quantile(some, [0.5, 0.9])
        print(f"{what:14}{len(some):8}{median:8.1f}{most:17.1f}{some.max():9.1f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
