"""Speed and error of the solvers, side by side with their peers in one process where these are installed.

    python benchmarks/solvers.py [--write] [--quick]

Peers: LINE (PyPI line-solver), Ciw (PyPI ciw), and a plain C loop compiled here. ``--write`` puts the tables into
validation/notes/solver-measurements.md and the cost curves into docs/images/solver-cost.png.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import io
import math
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from queuemodel import queueing as qn
from queuemodel.base.drawing import finish_axes, save_figure, styles

DOCS = Path(__file__).parent.parent / "docs"


def seconds(task: Callable[[], object], *, least: float = 0.3, repeats: int = 3) -> float:
    """The best of some rounds, after one that compiles."""
    task()
    best = math.inf
    for _ in range(repeats):
        rounds, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < least / repeats or rounds == 0:
            task()
            rounds += 1
        best = min(best, elapsed / rounds if rounds > 1 else time.perf_counter() - start)
    return best


def what_if() -> float:
    stations = [qn.Station("a", service_time=0.05), qn.Station("b", service_time=0.02)]
    return qn.solve(qn.Network(stations, think_time=1.0), population=100).throughput


def line_object(N: int = 100) -> Callable[[], object] | None:
    """LINE's object API on the same network, its messages held back."""
    try:
        import line_solver as line
    except ImportError:
        return None

    def task() -> object:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = line.Network("m")
            think = line.Delay(model, "Z")
            a = line.Queue(model, "a", line.SchedStrategy.PS)
            b = line.Queue(model, "b", line.SchedStrategy.PS)
            customers = line.ClosedClass(model, "C", N, think, 0)
            think.setService(customers, line.Exp(1.0))
            a.setService(customers, line.Exp(20.0))
            b.setService(customers, line.Exp(50.0))
            model.link(line.Network.serialRouting(think, a, b))
            return line.SolverMVA(model, "exact").getAvgTable()

    return task


def line_function(D: np.ndarray, N: list[int], Z: list[float]) -> Callable[[], object] | None:
    try:
        from line_solver.api.pfqn.mva import pfqn_mva
    except ImportError:
        return None
    return lambda: pfqn_mva(np.array(D, float), np.array(N, float), np.array(Z, float))


def mixed(n: int, servers: int) -> np.ndarray:
    """Throughputs of an open class and a closed one of n customers, made, checked and solved."""
    stations = [
        qn.Station("a", service_time={"open": 0.2, "closed": 0.5}, servers=servers),
        qn.Station("b", service_time={"open": 0.3, "closed": 0.4}),
    ]
    classes = [qn.JobClass("open", arrival_rate=0.5), qn.JobClass("closed", population=n, think_time=1.0)]
    return qn.solve(qn.Network(stations, classes=classes)).class_throughput


def line_mixed(n: int, servers: int) -> Callable[[], object] | None:
    """LINE's function for the same network."""
    try:
        from line_solver.api.pfqn import pfqn_mvamx
        from line_solver.api.pfqn.mvald import pfqn_mvams
    except ImportError:
        return None
    D, N, Z = np.array([[0.2, 0.5], [0.3, 0.4]]), np.array([np.inf, n]), np.array([0.0, 1.0])
    if servers == 1:
        return lambda: pfqn_mvamx(np.array([0.5, 0.0]), D, N, Z, np.ones(2))
    return lambda: pfqn_mvams(np.array([0.5, 0.0]), D, N, Z, np.ones(2), np.array([servers, 1]))


C_LOOP = """
void batch(int M, int K, int N, const double *D, const double *Z, double *X) {
  for (int i = 0; i < M; i++) {
    double Q[16] = {0}, R[16];
    for (int n = 1; n <= N; n++) {
      double total = Z[i];
      for (int k = 0; k < K; k++) { R[k] = D[i * K + k] * (1.0 + Q[k]); total += R[k]; }
      double x = n / total;
      for (int k = 0; k < K; k++) Q[k] = x * R[k];
      X[(long)i * N + n - 1] = x;
    }
  }
}
"""


def c_loop(D: np.ndarray, Z: np.ndarray, N: int) -> Callable[[], object] | None:
    """The same arithmetic in C, -O3 -march=native."""
    if shutil.which("cc") is None:
        return None
    folder = Path(tempfile.mkdtemp())
    (folder / "loop.c").write_text(C_LOOP)
    subprocess.run(
        ["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", str(folder / "loop.so"), str(folder / "loop.c")],
        check=True,
    )
    library = ctypes.CDLL(str(folder / "loop.so"))
    pointer = np.ctypeslib.ndpointer(float)
    library.batch.argtypes = [ctypes.c_int] * 3 + [pointer] * 3
    M, K = D.shape
    return lambda: library.batch(M, K, N, D, Z, np.empty((M, N)))


def ciw_rate() -> float | None:
    """Departures per second of Ciw on three stations and 50 customers."""
    try:
        import ciw
    except ImportError:
        return None
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([0.001, math.inf]), None, None],
        batching_distributions=[ciw.dists.Deterministic(50), ciw.dists.Deterministic(1), ciw.dists.Deterministic(1)],
        service_distributions=[ciw.dists.Exponential(r) for r in (1.0, 2.0, 3.0)],
        routing=[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]],
        number_of_servers=[1, 1, 1],
    )
    simulation = ciw.Simulation(network)
    start = time.perf_counter()
    simulation.simulate_until_max_time(4000.0)
    elapsed = time.perf_counter() - start
    return len(simulation.get_all_records()) / elapsed


def our_rate(departures: int) -> float:
    stations = [qn.Station(str(k), service_time=1 / r, discipline="fcfs") for k, r in enumerate((1.0, 2.0, 3.0))]
    network, judge = qn.Network(stations), qn.Simulation(departures=departures, replications=2)
    judge.run(network, 50)
    start = time.perf_counter()
    result = judge.run(network, 50)
    return result.events / (time.perf_counter() - start)


def speed_rows(quick: bool) -> list[tuple[str, str, str]]:
    """What was measured, ours, and the peers' with their ratios; ``quick``: only to see that all of it runs."""
    rows, timed = [], functools.partial(seconds, least=1e-3, repeats=1) if quick else seconds

    def row(what: str, ours: float, *peers: tuple[str, Callable[[], object] | float | None]) -> None:
        parts = []
        for name, peer in peers:
            if peer is None:
                parts.append(f"{name}: not installed")
                continue
            time_taken = peer if isinstance(peer, float) else timed(peer)
            parts.append(f"{name} {time_taken * 1e3:.4g} ms ({time_taken / ours:.3g} times)")
        rows.append((what, f"{ours * 1e3:.4g} ms", "; ".join(parts)))
        print(" | ".join(rows[-1]), flush=True)

    rng = np.random.default_rng(0)
    D2 = np.array([[0.05], [0.02]])
    row(
        "one what-if, 2 stations, N = 100, made, checked and solved",
        timed(what_if),
        ("LINE's objects", line_object()),
        ("LINE's `pfqn_mva`", line_function(D2, [100], [1.0])),
    )
    M, N = 100 if quick else 10_000, 200
    D, Z = rng.uniform(0.01, 0.1, (M, 2)), rng.uniform(0.5, 2.0, M)
    ours = timed(lambda: qn.solve_batch(D, think_time=Z, population=N)) / M
    single = line_function(D2, [N], [1.0])
    c = c_loop(D, Z, N)
    row(
        f"one of {M:,} what-ifs, all populations 1 to 200",
        ours,
        ("LINE's objects", line_object(N)),
        ("`pfqn_mva`", single),
        ("C loop", None if c is None else timed(c) / M),
    )
    D3 = np.array([[0.05, 0.02, 0.08], [0.03, 0.06, 0.01], [0.04, 0.05, 0.02]])
    for n in (20, 100):
        network = qn.Network.from_demands(D3, population=[n] * 3, think_time=[1.0, 2.0, 0.5])
        peer = [("`pfqn_mva`", line_function(D3, [n] * 3, [1.0, 2.0, 0.5]))] if n == 20 else []
        row(f"3 classes of {n}, 3 queues, exact", timed(lambda network=network: qn.solve(network)), *peer)
    for K in (1, 2):
        network = qn.Network.from_demands(
            rng.uniform(0.001, 0.02, (K, 200)), population=[1] * 200, think_time=rng.uniform(0.5, 2, 200)
        )
        row(
            f"200 different classes of one customer, {K} queue(s), exact",
            timed(lambda network=network: qn.solve(network)),
        )
    for n, servers in ((3, 1), (100, 1), (100, 2)):
        row(
            f"mixed: an open class, and {n} customers of a closed one; 2 queues, the first of {servers} server(s)",
            timed(functools.partial(mixed, n, servers)),
            ("LINE's `pfqn_mvams`", line_mixed(n, servers)),
        )
    network = qn.Network.from_demands([0.05, 0.02], think_time=1.0)
    row("population 100,000, 2 stations", timed(lambda: qn.solve(network, population=100_000)))
    servers = qn.Network.from_demands([0.4, 3.2, 0.2], servers=[4, 32, 1], think_time=2.0)
    row("population 10,000, stations of 4 and 32 servers", timed(lambda: qn.solve(servers, population=10_000)))
    rate, peer = our_rate(4_000 if quick else 400_000), ciw_rate()
    rows.append(
        (
            "simulation, 3 stations, 50 customers",
            f"{rate:.3g} departures/s",
            "Ciw: not installed" if peer is None else f"Ciw {peer:.3g} departures/s ({rate / peer:.3g} times)",
        )
    )
    print(" | ".join(rows[-1]))
    return rows


def error_rows(count: int = 120) -> list[tuple[str, str, float, float, float]]:
    """Relative error of throughputs on random networks against exact answers: median, 95th percentile, worst."""
    rng = np.random.default_rng(7)
    solvers: list[tuple[str, qn.Solver]] = [
        ("Bard-Schweitzer", qn.ApproximateMVA("bard-schweitzer")),
        ("Linearizer", qn.ApproximateMVA("linearizer")),
    ]
    rows = []
    for kind in ("single servers", "several servers"):
        errors: dict[str, list[float]] = {}
        for _ in range(count):
            C, K = rng.integers(1, 4), rng.integers(1, 6)
            servers = rng.integers(1, 9, K) if kind == "several servers" else np.ones(K, int)
            D = 10 ** rng.uniform(-2, 0, (K, C)) * servers[:, None]
            network = qn.Network.from_demands(
                D, population=rng.integers(1, 13, C), think_time=rng.choice([0.0, 1.0, 5.0], C), servers=servers
            )
            exact = qn.solve(network).class_throughput
            for name, solver in solvers:
                got = qn.solve(network, solver=solver).class_throughput
                errors.setdefault(name, []).append(float(np.abs(got / exact - 1).max()))
        rows += [(kind, name, *_spread(e)) for name, e in errors.items()]
    rows += [("FCFS, one class", "approximate MVA", *_spread(fcfs_errors(rng, count // 2)))]
    rows += [("FCFS, times by class", "approximate MVA (Linearizer)", *_spread(fcfs_class_errors(rng, count // 4)))]
    for row in rows:
        print(f"{row[0]} | {row[1]} | {row[2]:.3%} | {row[3]:.3%} | {row[4]:.3%}")
    return rows


def _spread(errors: list[float]) -> tuple[float, float, float]:
    return float(np.median(errors)), float(np.quantile(errors, 0.95)), float(np.max(errors))


def _compare(network: qn.Network, population: int | None) -> float:
    X, truth = (
        qn.solve(network, population=population, solver=solver).class_throughput
        for solver in (qn.ApproximateMVA(), qn.MarkovChain())
    )
    return float(np.abs(X / truth - 1).max())


def fcfs_errors(rng: np.random.Generator, count: int) -> list[float]:
    errors = []
    for _ in range(count):
        K = int(rng.integers(1, 3))
        stations = [
            qn.Station(
                f"s{k}",
                service_time=float(10 ** rng.uniform(-1, 0)),
                discipline="fcfs",
                scv=float(rng.choice([0.25, 0.5, 2, 4])),
            )
            for k in range(K)
        ]
        errors.append(
            _compare(qn.Network(stations, think_time=float(rng.choice([0.0, 1.0]))), int(rng.integers(1, 11)))
        )
    return errors


def fcfs_class_errors(rng: np.random.Generator, count: int) -> list[float]:
    errors = []
    for _ in range(count):
        times = [{c: float(10 ** rng.uniform(-1, 0)) for c in "ab"} for _ in range(2)]
        stations = [qn.Station(f"s{k}", service_time=t, discipline="fcfs") for k, t in enumerate(times)]
        classes = [qn.JobClass(c, population=int(rng.integers(1, 4)), think_time=1.0) for c in "ab"]
        errors.append(_compare(qn.Network(stations, classes=classes), None))
    return errors


def cost_curves(path: Path) -> None:
    """Time against population, stations, classes and batch size."""
    from matplotlib.figure import Figure

    rng = np.random.default_rng(1)
    fast = {"least": 0.05, "repeats": 2}

    def population(n: int) -> float:
        network = qn.Network.from_demands([0.05, 0.02], think_time=1.0)
        return seconds(lambda: qn.solve(network, population=n), **fast)

    def servers(n: int) -> float:
        network = qn.Network.from_demands([0.05, 0.02], think_time=1.0, servers=[8, 1])
        return seconds(lambda: qn.solve(network, population=n), **fast)

    def stations(k: int) -> float:
        network = qn.Network.from_demands(rng.uniform(0.1, 1, k))
        return seconds(lambda: qn.solve(network, population=200), **fast)

    def classes(c: int) -> float:
        network = qn.Network.from_demands(rng.uniform(0.1, 1, (3, c)), population=[4] * c)
        return seconds(lambda: qn.solve(network), **fast)

    def batch(m: int) -> float:
        D = rng.uniform(0.1, 1, (m, 2))
        return seconds(lambda: qn.solve_batch(D, think_time=1.0, population=200), **fast)

    panels = [
        ("population", [10, 100, 1000, 10_000, 100_000], [("single servers", population), ("8 servers", servers)]),
        ("stations (population 200)", [1, 3, 10, 30, 100], [("single class", stations)]),
        ("classes of 4 customers, 3 stations", [1, 2, 3, 4, 5, 6, 7, 8], [("exact", classes)]),
        ("networks in a batch (populations 1 to 200)", [1, 10, 100, 1000, 10_000], [("batch", batch)]),
    ]
    axes = Figure(figsize=(8, 6), layout="constrained").subplots(2, 2)
    for ax, (label, values, lines) in zip(axes.flat, panels, strict=True):
        looks = styles(name for name, _ in lines)
        for name, task in lines:
            ax.plot(values, [task(v) * 1e3 for v in values], label=name, marker="o", markersize=4, **looks[name])
        ax.set(xlabel=label, ylabel="time (ms)", yscale="log", xscale="linear" if "classes" in label else "log")
        finish_axes(ax, legend="best" if len(lines) > 1 else None)
    save_figure(axes[0, 0], path)


def page(speed: list[tuple[str, str, str]], errors: list[tuple[str, str, float, float, float]]) -> str:
    lines = [
        "# Solvers, measured",
        "",
        "Written by `python benchmarks/solvers.py --write`, all in one run on one machine of two shared cores; ratios",
        "matter more than times. [How to choose a solver](solvers.md) says what each is for.",
        "",
        "## Time",
        "",
        "| what | queuemodel | peers (their time over ours) |",
        "|---|---|---|",
        *[f"| {a} | {b} | {c} |" for a, b, c in speed],
        "",
        "![Time against population, stations, classes and batch size](../../docs/images/solver-cost.png)",
        "",
        "## Error of the approximations",
        "",
        "Largest relative error of a class's throughput on random networks, against exact recursions or, where there",
        "is no product form, the Markov chain: one to three classes of up to twelve customers, one to five stations",
        "(fewer and smaller where the Markov chain judges).",
        "",
        "| networks | method | median | 95th percentile | worst |",
        "|---|---|---|---|---|",
        *[f"| {a} | {b} | {m:.2%} | {p:.2%} | {w:.1%} |" for a, b, m, p, w in errors],
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="only to see that all of it runs")
    asked = parser.parse_args()
    speed, errors = speed_rows(asked.quick), error_rows(8 if asked.quick else 120)
    if asked.write:
        (DOCS.parent / "validation" / "notes" / "solver-measurements.md").write_text(page(speed, errors))
        cost_curves(DOCS / "images" / "solver-cost.png")


if __name__ == "__main__":
    main()
