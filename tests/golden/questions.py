"""The questions whose answers are frozen: asked through public names alone, each under a key that says it in full.

An answer is made of plain values; a refusal is its message. That of a simulation holds ``tolerance``, by which its
numbers may differ, relatively.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import queuemodel as qm
from queuemodel import example_profile, example_throughputs
from queuemodel import transport as collectives
from queuemodel.cli import main
from queuemodel.scheduling import Stream, example_kinds, policy_named
from queuemodel.scheduling import simulate as schedule
from queuemodel.sgd import compare

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # validation/ is beside the package, not in it
from validation.data_parallel import read_ranks  # noqa: E402
from validation.series import read_testbed  # noqa: E402
from validation.testbed.recordings import unpacked  # noqa: E402

Question = Callable[[], Any]

PACKAGED = ("alexnet-60", "resnet50-60", "ddp-alexnet-40")
TESTBED = ROOT / "validation" / "testbed"
RECORDED = {
    f"{place}/{path.parent.name}": path.parent
    for place in ("blind", "series")
    for path in sorted(unpacked(TESTBED / place).glob("*/trace"))
}
RANKS = {f"ranks/{folder.name}": folder for folder in sorted(unpacked(TESTBED / "rounds" / "series").iterdir())}
COUNTS = [1, 2, 4, 8]
FEW = [2, 8]

#: What-ifs, each on its own: of jobs on parameter servers by the closed network, by the simulation, and of ranks.
SERVERS = [
    {"bandwidth": 1.25e9}, {"bandwidth": 5e6}, {"parameter_servers": 2}, {"shards": [0.7, 0.3]}, {"batch_size": 64},
    {"accelerator_speed": 3.0}, {"worker_speeds": [1.0, 0.5, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0]}, {"form": "single"},
]  # fmt: skip
SIMULATED = [
    {"bandwidth": 1.25e9}, {"parameter_servers": 2}, {"accelerator_speed": 3.0},
    {"worker_speeds": [1.0, 0.5, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0]}, {"worker_bandwidth": [7.5e6] * 7 + [2e6]},
    {"policy": "random"}, {"policy": "tac"}, {"parameter_servers": 2, "sharding": "greedy"},
    {"straggler_probability": 0.1, "straggler_slowdown": 3.0},
]  # fmt: skip
ROUNDS = [
    {"bandwidth": 1.25e9}, {"latency": 1e-3}, {"batch_size": 64}, {"accelerator_speed": 3.0}, {"bucket_bytes": 1e6},
    {"accumulation": 4}, {"ranks_per_node": 4, "inside_bandwidth": 1e10},
    {"nodes_per_rack": 4, "oversubscription": 3.0},
    *({"scheme": name} for name in ("horovod", "p3", "bytescheduler", "tf-ring")),
    *({"collective": name} for name in ("ring", "halving-doubling", "recursive-doubling", "double-binary-tree")),
]  # fmt: skip
NETWORKS = [
    {"congestion_control": "unknown"}, {"congestion_control": "cubic", "buffer": 0.025},
    {"congestion_control": "reno", "buffer": 0.012}, {"congestion_control": "bbr", "buffer": 0.04},
]  # fmt: skip
HALF = [
    {"strategy": "sync-ps"}, {"strategy": "sync-ps", "backup_workers": 1},
    {"strategy": "bounded-staleness", "staleness_bound": 2},
    *({"strategy": name, "k": 2} for name in ("k-sync", "k-batch-sync", "k-async", "k-batch-async")),
]  # fmt: skip


@cache
def profile(name: str) -> qm.Profile:
    """A packaged or recorded profile by name."""
    if name in PACKAGED:
        return example_profile(name)
    return read_testbed(RECORDED[name]) if name in RECORDED else read_ranks(RANKS[name])


def plain(value: Any) -> Any:
    """Plain values of a result."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return plain(value.tolist()) if isinstance(value, np.ndarray | np.generic) else value


def curve_answer(curve: qm.ThroughputCurve) -> dict[str, Any]:
    """Of a curve, what follows from a model; the intervals' widths tell how far a simulated one may be off."""
    known = curve.to_dict()
    answer = {
        name: known[name]
        for name in ("workers", "steps_per_second", "lower", "upper", "nodes", "bottleneck", "saturation_workers")
    }
    if "simulation" in curve.method:
        answer["tolerance"] = float(np.min((curve.upper - curve.lower) / curve.steps_per_second)) / 20
    else:
        answer |= {"utilization": curve.utilization[-1:], "bound_upper": curve.bound_upper}
    return plain(answer)


def predicted(data: Any, **asked: Any) -> Any:
    return curve_answer(qm.predict(profile(data) if isinstance(data, str) else data(), **asked))


def ask(kind: str, function: Callable[..., Any], *data: Any, **asked: Any) -> tuple[str, Question]:
    """The key of a question, and the question."""
    said = [kind, *(one for one in data if isinstance(one, str)), *(f"{name}={value}" for name, value in asked.items())]
    return " ".join(said), partial(function, *data, **asked)


def curves() -> Iterator[tuple[str, Question]]:
    one = partial(ask, "predict", predicted)
    for name in ("alexnet-60", "resnet50-60"):
        for asked in ({}, *SERVERS, *NETWORKS):
            yield one(name, workers=COUNTS, method="mva", **asked)
        for asked in HALF:
            yield one(name, workers=[2, 4, 8], method="mva", **asked)
    for asked in ({}, *SIMULATED, *NETWORKS):
        yield one("alexnet-60", workers=FEW, method="trace", **asked)
    for asked in HALF:
        yield one("resnet50-60", workers=FEW, method="trace", **asked)
    for asked in ({}, *ROUNDS, *NETWORKS):
        yield one("ddp-alexnet-40", workers=COUNTS, **asked)
    yield one("alexnet-60", workers=COUNTS, strategy="all-reduce")
    for name in RECORDED:
        yield one(name, workers=COUNTS, method="mva")
    for name in list(RECORDED)[::4]:
        yield one(name, workers=FEW, method="trace")
    for name in RANKS:
        yield one(name, workers=COUNTS)
    for method, points in itertools.product(("mva", "trace"), ([(4, 1.7)], [(2, 1.6), (8, 2.1)])):
        measured = [qm.Throughput(workers=n, steps_per_second=x) for n, x in points]
        key, _ = one("alexnet-60", workers=FEW, method=method, measured=points)
        yield key, partial(predicted, "alexnet-60", workers=FEW, method=method, throughputs=measured)


def throughputs_alone() -> Iterator[tuple[str, Question]]:
    strategies = {"async PS": "async-ps", "sync PS": "sync-ps", "all-reduce": "all-reduce"}
    published = json.loads((ROOT / "validation" / "data" / "published_scaling.json").read_text())["series"]
    chosen = [one for one in published if not one["doubt"] and len(one["points"]) > 2][::4]
    for one in chosen:
        points = [(int(n), float(x)) for n, x in one["points"][:2]]
        ahead = [int(n) for n, _ in one["points"]]
        data = [qm.Throughput(workers=n, steps_per_second=x / points[0][1]) for n, x in points]
        asked = {"workers": ahead, "strategy": strategies[one["class"]]}
        yield f"predict {one['id']} {asked}", partial(predicted, data.copy, **asked)
    cloud = example_throughputs("shakesmall-p100")
    for number in (2, 3, 4, 8):
        yield (
            f"predict the first {number} of shakesmall-p100",
            partial(predicted, cloud[:number].copy, workers=[1, 8, 16]),
        )
    settings: list[dict[str, Any]] = [
        {"parameter_bytes": 1.2e7},
        {"batch_size": 128},
        {"strategy": "sync-ps", "sparse_gradients": True},
        {"strategy": "all-reduce", "ranks_per_node": 4},
        {"strategy": "sync-ps"},
        {"strategy": "all-reduce"},
    ]
    for asked in settings:
        data = [qm.Throughput(workers=n, steps_per_second=x) for n, x in ((4, 4.0), (8, 7.5), (16, 13.0))]
        yield f"predict throughputs of 4, 8, 16 {asked}", partial(predicted, data.copy, workers=[8, 32, 64], **asked)


def placements() -> Iterator[tuple[str, Question]]:
    for path in sorted((ROOT / "validation" / "data" / "pollux").glob("*.csv")):
        data = partial(qm.read_placements, path)
        size = max(one.batch_size for one in data())
        for gpus in (1, 4):
            key = f"predict placements of {path.stem} gpus_per_node={gpus}"
            yield key, partial(predicted, data, workers=[4, 8, 16], gpus_per_node=gpus, batch_size=size)


def planned(name: str, *, model: dict[str, Any], **goals: Any) -> Any:
    curve = qm.predict(profile(name), workers=range(1, 33), **model)
    return plain(qm.plan(curve, **goals).to_dict())


def compared(name: str, **asked: Any) -> Any:
    found = compare(profile(name), **asked).to_dict()
    answer = plain({"nodes": found["nodes"], "rows": {row.pop("strategy"): row for row in found["rows"]}})
    return answer | {"tolerance": 0.02} if name == "alexnet-60" else answer  # rates on servers are simulated


def scheduled(policy: str, **asked: Any) -> Any:
    jobs = Stream(example_kinds(), jobs=60, nodes=16, load=0.7).workload(seed=3)
    done = schedule(jobs, policy_named(policy), nodes=16, **asked)
    return plain({"mean": done.mean_response_time, "end": done.end})


def decisions() -> Iterator[tuple[str, Question]]:
    goals: list[dict[str, Any]] = [
        {"epochs": 5, "deadline": 36000.0}, {"epochs": 5, "price_per_node_hour": 2.0},
        {"epochs": 5, "deadline": 36000.0, "price_per_node_hour": 2.0}, {"min_efficiency": 0.7},
        {"min_marginal_speedup": 0.2}, {"throughput": 1.5},
    ]  # fmt: skip
    for goal in goals:
        yield ask("plan", planned, "alexnet-60", model={"method": "mva"}, **goal)
        yield ask("plan", planned, "ddp-alexnet-40", model={}, **goal)
    for asked in ({}, {"workers": 4}, {"bandwidth": 1.25e9}, {"problem": "logistic", "steps": 100, "seeds": 2}):
        yield ask("compare", compared, "ddp-alexnet-40", **asked)
    yield ask("compare", compared, "alexnet-60", workers=4)
    policies = (
        "fifo sjf backfill las equi srpt hesrpt model greedy greedy:floor=0.7 rank-priced goodput optimus fitness"
    )
    for policy in policies.split():
        yield ask("schedule", scheduled, policy)
    for policy in ("equi", "srpt"):
        yield ask("schedule", scheduled, policy, warmup=0.2)


def simulated(name: str, **asked: Any) -> Any:
    run = qm.simulate(profile(name), seed=1, **asked)
    rates = run.to_dict()
    answer = {name: rates[name] for name in ("throughput", "step_time", "fetch_time", "compute_time", "push_time")}
    return plain(answer | {"tolerance": (rates["upper"] - rates["lower"]) / rates["throughput"] / 2})


def simulations() -> Iterator[tuple[str, Question]]:
    ways = [{}, {"parameter_servers": 2}, {"policy": "random"}, {"congestion_control": "cubic", "buffer": 0.025}, *HALF]
    for asked in ways:
        yield ask("simulate", simulated, "alexnet-60", workers=4, steps=400, **asked)


def random_network(seed: int, *, classes: int = 0, multiserver: bool = False) -> qm.Network:
    rng = np.random.default_rng(seed)
    K = int(rng.integers(2, 5))
    servers = [int(m) for m in rng.integers(1, 4 if multiserver else 2, K)]
    demands = np.round(rng.uniform(0.05, 1.0, (K, classes) if classes else K), 3)
    Z = np.round(rng.uniform(0, 3.0, classes) if classes else rng.uniform(0, 3.0), 3)
    population = rng.integers(1, 6, classes).tolist() if classes else None
    return qm.Network.from_demands(demands, think_time=Z, servers=servers, population=population)


SOLVERS: dict[str, Callable[[], Any]] = {
    "chosen": lambda: None, "exact-mva": qm.ExactMVA, "markov": qm.MarkovChain,
    "approximate": qm.ApproximateMVA,
    **{name: partial(qm.ApproximateMVA, name) for name in ("bard-schweitzer", "linearizer")},
}  # fmt: skip


def solved(solver: str, *, population: int | None = None, **kind: Any) -> Any:
    found = qm.solve(random_network(**kind), population=population, solver=SOLVERS[solver]())
    return plain({"X": found.throughput, "R": found.residence_time, "Q": found.queue_length, "U": found.utilization})


def bounded(kind: str, seed: int) -> Any:
    names = {"balanced": "balanced-job"}
    found = qm.bounds(random_network(seed), 7, kind=names.get(kind, kind))
    return plain([found.lower, found.upper])


def networks() -> Iterator[tuple[str, Question]]:
    for solver in SOLVERS:
        for seed in (1, 2):
            yield ask("solve", solved, solver, population=6, seed=seed)
            yield ask("solve", solved, solver, population=6, seed=seed, multiserver=True)
            yield ask("solve", solved, solver, seed=seed, classes=2)
    for kind, seed in itertools.product(("asymptotic", "balanced", "geometric", "proportional"), (1, 2, 3)):
        yield f"bounds {kind} seed={seed}", partial(bounded, kind, seed)
    for seed in (1, 2, 3):
        yield (
            f"sensitivity seed={seed}",
            lambda seed=seed: plain(qm.sensitivity(random_network(seed), population=6).to_dict()),
        )
        yield f"saturation seed={seed}", lambda seed=seed: plain(qm.saturation_population(random_network(seed)))
        yield (
            f"marginal seed={seed}",
            lambda seed=seed: plain(qm.marginal_distribution(random_network(seed), 0, population=6)),
        )
        yield f"barrier seed={seed}", lambda seed=seed: plain(qm.barrier_time(random_network(seed), population=6))
        yield (
            f"json seed={seed}",
            lambda seed=seed: plain(qm.Network.from_json(random_network(seed).to_json()).to_dict()),
        )
    demands = np.random.default_rng(4).uniform(0.1, 1.0, (5, 3))
    yield "batch", lambda: plain(qm.solve_batch(demands, think_time=1.0, population=8).throughput)


def reduced(name: str, nodes: int) -> Any:
    value = getattr(collectives, name)() if name != "SplitServers" else collectives.SplitServers(2)
    link = collectives.Link(1.25e8, latency=1e-4)
    return plain([value.time(size, nodes, link) for size in (1e3, 1e6, 1e8)])


def reductions() -> Iterator[tuple[str, Question]]:
    names = [
        "Ring",
        "HalvingDoubling",
        "RecursiveDoubling",
        "DoubleBinaryTree",
        "ParameterServers",
        "SplitServers",
        "Hoplite",
    ]
    for name, nodes in itertools.product(names, (2, 8)):
        yield f"all-reduce {name} nodes={nodes}", partial(reduced, name, nodes)


COMMANDS = """
predict alexnet-60.json --method mva --workers 1:8
predict alexnet-60.json --method mva --workers 4 --format json
predict alexnet-60.json --method mva --workers 1,8 --format csv
predict ddp-alexnet-40.json --workers 1:4
predict resnet50-t4-placements.csv --workers 8 --batch-size 40
fit alexnet-60.json
fit ddp-alexnet-40.json
plan alexnet-60.json --method mva --epochs 5 --deadline 10h --price 2
solve parameter-server-network.json --population 1:5
compare ddp-alexnet-40.json --workers 4
schedule-study --policy srpt --jobs 20 --nodes 8 --load 0.5 --replications 2
""".strip().splitlines()

REFUSED = """
predict nowhere.json
predict alexnet-60.json --workers 0
predict alexnet-60.json --workers two
predict alexnet-60.json --bandwith 1Gbit/s
predict alexnet-60.json --bandwidth 5
predict alexnet-60.json --bandwidth -1Gbit/s
predict alexnet-60.json --confidence 2
predict alexnet-60.json --method magic
predict alexnet-60.json --strategy async
predict alexnet-60.json --method trace --batch-size 64
predict alexnet-60.json --strategy k-sync
predict alexnet-60.json --strategy async-ps --k 2
predict alexnet-60.json --collective ring
predict alexnet-60.json --measured four=2
predict alexnet-60.json --buffer 5
predict ddp-alexnet-40.json --strategy async-ps
predict ddp-alexnet-40.json --parameter-servers 2
predict ddp-alexnet-40.json --ranks-per-node 4
predict shakesmall-p100-throughputs.csv --method trace
predict shakesmall-p100-throughputs.csv --strategy k-sync --k 2
predict resnet50-t4-placements.csv --strategy async-ps
plan alexnet-60.json --method mva
plan alexnet-60.json --epochs 5 --deadline 3
plan alexnet-60.json --epochs 5 --deadline soon
solve parameter-server-network.json --population 0
solve alexnet-60.json --population 3
simulate shakesmall-p100-throughputs.csv --workers 2
simulate alexnet-60.json --workers 2 --policy random
compare alexnet-60.json --strategies magic
compare ddp-alexnet-40.json --strategies async-ps
schedule-study --policy magic --jobs 5 --nodes 4 --load 0.5
next-measurement alexnet-60.json --workers 0
import-trace nowhere
frobnicate
""".strip().splitlines()


def printed(words: str) -> Any:
    """The exit status and both streams of a command, in a folder with the packaged examples."""
    out, err = io.StringIO(), io.StringIO()
    status: object = 0
    program, sys.argv = sys.argv, ["queuemodel"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words.split())
        except SystemExit as stop:
            status = stop.code
    sys.argv = program
    return {"status": status, "out": out.getvalue(), "err": err.getvalue()}


def commands() -> Iterator[tuple[str, Question]]:
    for words in (*COMMANDS, *REFUSED):
        yield f"$ queuemodel {words}", partial(printed, words)


def questions() -> dict[str, Question]:
    """Every question by its key."""
    asked = (curves, throughputs_alone, placements, decisions, simulations, networks, reductions, commands)
    found = [one for group in asked for one in group()]
    keys = [key for key, _ in found]
    assert len(set(keys)) == len(keys), {key for key in keys if keys.count(key) > 1}
    return dict(found)
