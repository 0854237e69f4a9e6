"""The questions whose answers are frozen: asked through public names alone, each under a key that says it in full.

An answer is made of numbers and names; captions, notes and messages are left out, so that rewording moves nothing. A
simulation's holds ``tolerance``, by which its numbers may differ, relatively. Options are asked in pairs: each value of
one with each of every other at least once.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import queuemodel as qm
from queuemodel import example_profile, example_throughputs, models, scheduling
from queuemodel import models as strategies
from queuemodel import queueing as qn
from queuemodel import sgd as descent
from queuemodel import transport as collectives
from queuemodel.adapters import pytorch, tensorflow
from queuemodel.cli import main
from queuemodel.sgd import compare, plan_strategies
from tests.oracles.pairs import pairwise
from tests.oracles.recorded import DATA

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # validation/ is beside the package, not in it
from testbed.recordings import unpacked  # noqa: E402
from validation.data_parallel import read_ranks  # noqa: E402
from validation.pollux import read_pollux  # noqa: E402
from validation.series import read_testbed  # noqa: E402

Question = Callable[[], Any]

PACKAGED = ("alexnet-60", "resnet50-60", "ddp-alexnet-40")
TESTBED = ROOT / "validation" / "data" / "testbed"
RECORDED = {
    f"{key}/{path.parent.name}": path.parent
    for key, place in (("blind", "held_out"), ("series", "parameter_servers"))
    for path in sorted(unpacked(TESTBED / place).glob("*/trace"))
}
RANKS = {f"ranks/{folder.name}": folder for folder in sorted(unpacked(TESTBED / "data_parallel").iterdir())}
COUNTS = [1, 2, 4, 8]
#: Profiles in which nothing is like anything else: sizes, directions, servers, tensors, ranks, steps.
INVENTED = json.loads(Path(__file__).with_name("invented.json").read_text())
#: Commands, those that are refused, the files that they read, policies of scheduling, and options' values.
TOLD = json.loads(Path(__file__).with_name("asked.json").read_text())
#: Numbers are kept to so many digits; of longer lists of numbers a weighted sum is.
DIGITS, LONGEST = 12, 3
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@cache
def profile(name: str) -> qm.Profile:
    """A packaged, recorded or invented profile by name."""
    if name in INVENTED:
        return qm.Profile.from_json(json.dumps(INVENTED[name]))
    if name in PACKAGED:
        return example_profile(name)
    return read_testbed(RECORDED[name]) if name in RECORDED else read_ranks(RANKS[name])


def plain(value: Any) -> Any:
    """Plain values of a result: of a long list of numbers its shape, and a sum in which each counts differently."""
    if callable(getattr(value, "to_dict", None)):
        return plain(value.to_dict()) | {"rows": digest(str(value.to_rows()))}
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, str):
        return value if " " not in value else "words"
    if not isinstance(value, list | tuple):
        return value
    if len(value) > LONGEST and all(isinstance(one, dict) for one in value):
        return plain({name: [one.get(name) for one in value] for name in dict.fromkeys(itertools.chain(*value))})
    try:
        numbers = np.array(value, dtype=float)
    except (TypeError, ValueError):
        return [plain(one) for one in value]
    if numbers.size <= LONGEST or any(isinstance(one, str) for one in value):
        return [plain(one) for one in value]
    weights = 1.0 + np.arange(numbers.size) * 0.618 % 1.0
    total = float(weights @ np.nan_to_num(numbers.ravel(), nan=-1.0, posinf=-2.0))
    return {"x".join(map(str, numbers.shape)): float(f"{total:.{DIGITS}g}")}


def whole(value: Any, names: str) -> dict[str, Any]:
    """Plain values of a result and of its attributes, those that it has."""
    return plain(value) | {name: plain(getattr(value, name)) for name in names.split() if hasattr(value, name)}


def digest(text: str) -> Any:
    """Of a text its numbers; of a table with a caption those of the table."""
    table = re.split(r"^-+(?: +-+)+ *$", text, maxsplit=1, flags=re.MULTILINE)[-1]
    return plain([0.0] * LONGEST + [float(number) for number in NUMBER.findall(table)])


#: What a curve saves to be read again, and its answer says elsewhere.
ONLY_SAVED = ("format version steps_per_round workers_per_node stations assumption synchronous "
              "iterations_per_second_low iterations_per_second_high sequence_length remarks")  # fmt: skip


def curve_answer(curve: qm.ThroughputCurve) -> dict[str, Any]:
    """All that a curve has and its model; the intervals' widths tell how far a simulated one may be off."""
    answer = whole(curve, "think_time bound_lower bound_upper single marginal_speedup measured dataset_size model")
    for name in (*ONLY_SAVED.split(), *(("base_workers",) if curve.base_workers == 1 else ())):
        answer.pop(name, None)
    if "simulation" in curve.method or "table" in curve.method:  # whose draws differ with the last bits
        answer["tolerance"] = float(np.min((curve.upper - curve.lower) / curve.steps_per_second)) / 20
    return answer


def predicted(data: Any, *, measured: Any = (), **asked: Any) -> Any:
    besides = [qm.Measurement(workers=n, steps_per_second=x) for n, x in measured]
    return curve_answer(qm.predict(profile(data) if isinstance(data, str) else data(), throughputs=besides, **asked))


def simulated(name: str, **asked: Any) -> Any:
    """All of a run that is too short for differences of the last bit to grow."""
    run = qm.simulate(profile(name), **asked)
    names = "utilization breakdown staleness times throughputs log log_times log_results waited"
    return whole(run, names) | {"trace": digest(run.chrome_trace())}


def ask(kind: str, function: Callable[..., Any], /, *data: Any, **asked: Any) -> tuple[str, Question]:
    """The key of a question, and the question."""
    said = [kind, *(one for one in data if isinstance(one, str)), *(f"{name}={value}" for name, value in asked.items())]
    return " ".join(said), partial(function, *data, **asked)


MEASURED = [[(4, 1.6)], [(2, 1.25), (8, 2.1)]]
#: Strategies, networks, goals, clusters; values of all models' options, of the closed network's, of simulated
#: operations', of rounds', and of throughputs' alone.
WAITING, NETWORKS, GOALS, CLUSTERS, COMMON, CLOSED, SIMULATED, ROUNDS, ALONE = (TOLD["options"][name] for name in (
    "waiting", "networks", "goals", "clusters", "common", "closed", "simulated", "rounds", "alone"))  # fmt: skip
CLOSED, SIMULATED, ROUNDS = (COMMON | options for options in (CLOSED, SIMULATED, ROUNDS))
ROUNDS["collective"] += sorted({*collectives.COLLECTIVES} - {"nccl"})  # that is below


def alone(*, points: int, **asked: Any) -> Any:
    known = [(4, 4.0), (8, 7.5), (16, 13.0)][:points]
    of = {name: asked.pop(name) for name in ("parameter_servers", "bandwidth", "standard_error") if name in asked}
    data = [qm.Measurement(workers=n, steps_per_second=x, **of) for n, x in known]
    return predicted(data.copy, **asked)


def curves() -> Iterator[tuple[str, Question]]:
    one = partial(ask, "predict", predicted)
    for seed, name in enumerate(("alexnet-60", "resnet50-60", "invented", "invented-2ps")):
        for asked in pairwise(seed, **CLOSED):
            yield one(name, method="mva", **asked)
    for seed, name in enumerate(("ddp-alexnet-40", "rounds")):
        for asked in pairwise(seed, **ROUNDS):
            yield one(name, **asked)
    links = {"workers": 4, "worker_bandwidth": [7.5e6, 2e6, 5e6, 7e6]}
    short = {"workers": [{"workers": 3}, links], "steps": [6, 15], "trace_steps": [None, 3]}
    for seed, name in enumerate(("alexnet-60", "invented", "invented-2ps")):
        for asked in pairwise(seed, **SIMULATED, **short):
            yield ask("simulate", simulated, name, **asked)
    for seed, name in enumerate(("ddp-alexnet-40", "rounds")):
        for asked in pairwise(seed, **(ROUNDS | short | {"workers": [4, 6], "trace_steps": [None]})):
            yield ask("simulate", simulated, name, **asked)
    for seed, name in enumerate(("alexnet-60", "invented-2ps")):
        for asked in itertools.islice(pairwise(seed, **SIMULATED, workers=[[2], links | {"workers": [4]}]), 10):
            yield one(name, method="trace", **asked)
    for name, points in itertools.product(("alexnet-60", "invented-2ps"), MEASURED):
        yield one(name, workers=[3], measured=points, method="trace", strategy="sync-ps")
        more = {"training": CLOSED["training"][:3], "bandwidth": [None, 2e7], "congestion_control": [None, "bbr"]}
        for asked in pairwise(1, **more):
            yield one(name, workers=[3, 7], measured=points, method="mva", **asked)
    for name in RECORDED:
        yield one(name, workers=COUNTS, method="mva")
    for name in list(RECORDED)[::4]:
        yield one(name, workers=[2, 8], method="trace")
    for name in RANKS:
        yield one(name, workers=COUNTS)


def throughputs_alone() -> Iterator[tuple[str, Question]]:
    strategies = {"async PS": "async-ps", "sync PS": "sync-ps", "all-reduce": "all-reduce"}
    published = json.loads((ROOT / "validation" / "data" / "published_scaling.json").read_text())["series"]
    for one in [one for one in published if not one["doubt"] and len(one["points"]) > 2][::4]:
        points = [(int(n), float(x)) for n, x in one["points"][:2]]
        data = [qm.Measurement(workers=n, steps_per_second=x / points[0][1]) for n, x in points]
        asked = {"workers": [int(n) for n, _ in one["points"]], "strategy": strategies[one["class"]]}
        yield f"predict {one['id']} {asked}", partial(predicted, data.copy, **asked)
    cloud = example_throughputs("shakesmall-p100")
    for number in (2, 3, 4, 8):
        key = f"predict the first {number} of shakesmall-p100"
        yield key, partial(predicted, cloud[:number].copy, workers=[1, 8, 16])
    for asked in pairwise(1, **ALONE):
        yield ask("predict throughputs", alone, **asked)


def placements() -> Iterator[tuple[str, Question]]:
    @cache
    def fitted(path: Path) -> models.ScalingModel:
        return qm.fit(qm.read_measurements(path))

    def placed(path: Path, *, workers: list[int], **asked: Any) -> Any:
        return curve_answer(fitted(path).throughput(workers, **asked))

    for path in sorted((ROOT / "validation" / "data" / "pollux").glob("*.csv")):
        data = partial(qm.read_measurements, path)
        sizes = sorted({one.batch_size for one in data()})
        yield f"predict placements of {path.stem}", partial(predicted, data, workers=[4, 8, 16], batch_size=sizes[-1])
        options = {"gpus_per_node": [1, 4, None], "batch_size": [sizes[-1], sizes[0] + 1, sizes[0] - 1]}
        for asked in pairwise(1, **options, seed=[None, 4], confidence=[None, 0.8], workers=[[4, 8, 16], [3, 5]]):
            yield ask(f"placements of {path.stem}", placed, path, **asked)


@cache
def curve(name: str) -> qm.ThroughputCurve:
    return qm.predict(profile(name), workers=range(1, 25), method="auto" if "ddp" in name else "mva")


def page(name: str) -> Any:
    """Apart from the rows, which tests hold against Python: their last digit is the processor's."""
    text = curve(name).report(profile=profile(name))
    data = json.loads(re.findall('id="data">(.*?)</script>', text, re.DOTALL)[0])
    for cell in data["grid"]["cells"]:
        del cell["rows"]
    return digest(json.dumps(data))


def invented_jobs() -> scheduling.Workload:
    """Jobs of all kinds: tables, power laws, stages, batch sizes to choose; some end early, some were predicted."""
    rng, table = np.random.default_rng(1), scheduling.TableCurve({1: 2.0, 2: 3.6, 4: 6.1, 7: 8.0})
    law = scheduling.PowerLawCurve(0.8, speed=1.5)
    slow = scheduling.TableCurve({1: 1.1, 2: 2.1, 4: 3.9, 7: 6.0})
    sizes = scheduling.BatchSizes({32: table, 64: slow}, [(4000, 200.0), (9000, 900.0)], predicted={32: law, 64: slow})
    curves = [table, law, scheduling.StagedCurve([(0.3, table), (0.7, law)]), slow]
    jobs = []
    for i in range(14):
        more = {"batch_sizes": sizes} if i % 5 == 3 else {"predicted": law} if i % 5 == 1 else {}
        chosen = table if i % 5 == 3 else curves[i % 4]
        jobs.append(scheduling.ClusterJob(
            f"j{i}", arrival_time=700.0 * i, steps=float(rng.uniform(2000, 30000)), curve=chosen, kind=f"k{i % 3}",
            least_nodes=1 + (i % 4 == 2), most_nodes=4 + i % 4, requested_nodes=2 + i % 3,
            end_probability=0.3 * (i % 3 == 1), **more,
        ))  # fmt: skip
    return scheduling.Workload(jobs, "invented")


WORKLOADS: dict[str, Callable[[], scheduling.Workload]] = {
    "invented": invented_jobs,
    "wrong": lambda: invented_jobs().with_prediction_error(level=0.3, scaling=0.1, seed=2),
    "examples": lambda: scheduling.Stream(scheduling.example_kinds(), jobs=40, nodes=16, load=0.7).workload(seed=3),
    "bursts": lambda: scheduling.Stream(
        scheduling.measured_kinds(), jobs=20, nodes=16, load=0.9, arrivals="bursty").workload(seed=3),
}  # fmt: skip


def scheduled(policy: str, *, jobs: str, cluster: dict[str, Any], **asked: Any) -> Any:
    machines = scheduling.Nodes(16, **cluster)
    named = scheduling.policy_named(policy)
    done = scheduling.schedule(WORKLOADS[jobs](), named, nodes=machines, history=True, **asked)
    return whole(done, "start end attained_service useful_service best_time shared_time restarts failures early "
                       "history slowdown fairness efficiency utilization makespan events")  # fmt: skip


def compared(name: str, **asked: Any) -> Any:
    found = compare(profile(name), **asked)
    planned = plan_strategies(found, deadline=200.0, price_per_node_hour=3.0, chance=0.6)
    return plain(found) | {"plan": plain(planned), "tolerance": 0.02 * ("ddp" not in name)}


def studied() -> Any:
    stream = scheduling.Stream(scheduling.example_kinds(), jobs=12, nodes=8)
    study = scheduling.sweep(stream, [scheduling.SRPT(), scheduling.FIFO()], loads=[0.4, 0.8], replications=3)
    return plain(study) | {"relative": plain(study.relative("mean_slowdown", to="FIFO()"))}


def decisions() -> Iterator[tuple[str, Question]]:
    for name in ("alexnet-60", "ddp-alexnet-40", "invented-2ps"):
        for goals in pairwise(1, **GOALS):
            yield ask("plan", lambda name, **goals: plain(qm.plan(curve(name), **goals)), name, **goals)
        yield f"next {name}", lambda name=name: plain(qm.next_measurement(curve(name)))
        yield f"page {name}", partial(page, name)
        yield f"profile {name}", lambda name=name: [plain(profile(name).summary()), digest(profile(name).to_json())]
    more = {"bandwidth": 2e7, "price_per_node_hour": 2.0, "confidence": 0.7, "problem": "perceptron"}
    for asked in ({"workers": 4}, {"problem": "logistic", "seeds": 2, "steps": 100}, {"steps": 150} | more):
        yield ask("compare", compared, "ddp-alexnet-40", **({"steps": 300, "seeds": 3} | asked))
    yield ask("compare", compared, "alexnet-60", workers=4, steps=200, seeds=3)
    options = {"policy": TOLD["policies"], "jobs": list(WORKLOADS), "cluster": [{"cluster": one} for one in CLUSTERS]}
    for asked in pairwise(2, **options, warmup=[None, 0.2], seed=[None, 5]):
        yield ask("schedule", scheduled, **asked)
    yield "study", studied


def settled(name: str, **asked: Any) -> Any:
    run = qm.simulate(profile(name), seed=1, **asked)
    rates = run.to_dict()
    answer = {name: rates[name] for name in ("throughput", "step_time", "fetch_time", "compute_time", "push_time")}
    return plain(answer | {"tolerance": (rates["upper"] - rates["lower"]) / rates["throughput"] / 2})


def simulations() -> Iterator[tuple[str, Question]]:
    for asked in ({}, {"parameter_servers": 2}, {"transfer_order": "random"}, *NETWORKS[2:], *WAITING):
        yield ask("simulate", settled, "alexnet-60", workers=4, steps=400, **asked)


def network(seed: int, *, classes: int = 0, kind: str = "", routing: str = "") -> qn.Network:
    """A random network whose stations are of several kinds, of customers who are unlike each other."""
    rng = np.random.default_rng(seed)
    names = [f"c{c}" for c in range(classes)]

    def each(low: float, high: float, same: bool = False) -> Any:
        values = np.round(rng.uniform(low, high, max(classes, 1)), 3).tolist()
        return dict(zip(names, values, strict=True)) if classes and not same else values[0]

    kinds: list[dict[str, Any]] = [
        {}, {"servers": 2}, {"rates": np.minimum(1 + 0.7 * np.arange(12), 3.0).tolist()}, {"servers": math.inf},
    ]  # fmt: skip
    if kind == "fcfs":
        kinds = [{"discipline": "fcfs", "scv": 2.5}, {"discipline": "lifo-pr", "scv": 0.4}, {}]
    if kind == "phases":
        kinds = [{"discipline": "fcfs", "distribution": qn.PhaseType((0.3, 0.7), ((-2.0, 0.5), (0.4, -5.0)))},
                 {"distribution": qn.PhaseType.from_moments(mean=0.4, scv=3.0)},
                 {"servers": 2, "discipline": "fcfs"}]  # fmt: skip
    stations = [
        qn.Station(f"s{k}", **({} if "distribution" in one else {"service_time": each(0.1, 0.9, kind == "fcfs")}),
                   **({} if routing else {"visit_ratio": each(0.5, 2.0)}), **one)
        for k, one in enumerate(kinds[: len(kinds) if kind else 2 + seed % 2] if kind != "plain" else [{}] * 3)
    ]  # fmt: skip
    K = len(stations)
    who = [qn.JobClass(name, population=1 + (c + seed) % 3, think_time=0.4 + c) for c, name in enumerate(names)]
    P = rng.dirichlet(np.ones(K), K)
    among: Any = P if routing == "one" or not classes else {name: rng.dirichlet(np.ones(K), K) for name in names}
    if routing == "switching" and classes:
        both = rng.dirichlet(np.ones(classes * K), classes * K)
        among = {(a, b): both[i * K : (i + 1) * K, j * K : (j + 1) * K]
                 for (i, a), (j, b) in itertools.product(enumerate(names), repeat=2)}  # fmt: skip
    told = {"routing": among, "reference": "s1"} if routing else {}
    return qn.Network(stations, classes=who, think_time=0.0 if classes else 0.7, name="random", **told)


def through(path: str, write: Callable[[str], Any], read: Callable[[str], Any]) -> Any:
    write(path)
    return [digest(Path(path).read_text()), plain(read(path))]


def solution(network: qn.Network, N: Any, solver: Any = None) -> Any:
    found = qn.solve(network, population=N, solver=solver)
    names = ("class_throughput class_residence_time class_queue_length class_utilization throughputs residence_times "
             "bottleneck cycle_time response_time queue_length utilization")  # fmt: skip
    return whole(found, names) | {"classes": plain(found.class_rows())}


ASKED: dict[str, Callable[[qn.Network, Any], Any]] = {
    "solve": solution, "exact": lambda one, N: solution(one, N, qn.ExactMVA()),
    "markov": lambda one, N: solution(one, N, qn.MarkovChain()),
    **{name: lambda one, N, name=name: solution(one, N, qn.ApproximateMVA(name))
       for name in ("recursion", "bard-schweitzer", "linearizer")},
    "simulate": lambda one, N: solution(one, N, qn.Simulation(departures=1000, replications=2)),
    "simulation": lambda one, N: plain(qn.Simulation(seed=2, departures=1200, replications=3).run(one, population=N)),
    **{kind: lambda one, N, kind=kind: plain(qn.bounds(one, np.arange(1, N or 7), kind=kind))
       for kind in ("asymptotic", "balanced-job", "geometric", "proportional", "magic")},
    "sensitivity": lambda one, N: plain(qn.sensitivity(one, population=N)),
    "saturation": lambda one, N: plain(qn.saturation_population(one)),
    "marginal": lambda one, N: [plain(qn.marginal_distribution(one, k, population=N)) for k in ("s0", 1)],
    "barrier": lambda one, N: plain(qn.barrier_time(one, population=N)),
    "staleness": lambda one, N: plain(strategies.staleness(one, population=N)),
    "network": lambda one, N: [plain(one), plain(one.class_service_demand), plain(one.class_visit_ratios)],
    "json": lambda one, N: through("n.json", one.save, lambda path: qn.Network.from_json(Path(path).read_text())),
    "jmva": lambda one, N: through("n.jmva", lambda path: qn.write_jmva(one, path, population=N), qn.read_jmva),
}  # fmt: skip


def networks() -> Iterator[tuple[str, Question]]:
    kinds = {
        "classes": [0, 2, 3], "kind": ["plain", "", "mixed", "fcfs", "phases"], "routing": ["", "one", "switching"],
    }  # fmt: skip
    for kind in pairwise(3, **kinds, seed=[1, 2]):
        for name, asked in ASKED.items():
            if not (name.startswith("simul") and kind["classes"] == 3):
                N = None if kind["classes"] else 5
                yield f"{name} {kind}", lambda asked=asked, kind=kind, N=N: asked(network(**kind), N)
    demands = np.random.default_rng(4).uniform(0.1, 1.0, (5, 3))
    for curves in (True, False):
        told = {"think_time": [0.5, 1.0, 0.0, 2.0, 0.3], "population": 8 if curves else [8, 3, 5, 1, 9]}
        yield f"batch {curves}", lambda told=told, c=curves: plain(qn.solve_batch(demands, **told, curves=c))
    formula = qn.solve_symbolic(network(1, kind="plain"), population=3).throughput
    values = {symbol: 0.3 + 0.1 * i for i, symbol in enumerate(sorted(formula.free_symbols, key=str))}
    yield "symbolic", lambda: plain(float(formula.subs(values)))
    width = {"cycle": 2.0, "demand": 0.3, "width": 0.2}
    yield "knee", lambda: [plain(qn.knee_throughput(np.arange(1, 12), **width)),
                           plain(qn.knee_width(np.array([0.1, 0.4, 1])))]  # fmt: skip


LINK = collectives.Link(1.25e8, latency=1e-4, reduction_time=3e-10)
INSIDE = collectives.Link(2e9, latency=1e-5)
ALGORITHMS = [
    collectives.Ring(), collectives.HalvingDoubling(), collectives.RecursiveDoubling(), collectives.DoubleBinaryTree(),
    collectives.DoubleBinaryTree(blocks=5), collectives.ParameterServers(3), collectives.SplitServers(2),
    collectives.Hoplite(), collectives.Hierarchical(4, INSIDE), collectives.Hierarchical(2, INSIDE, cards=2),
    collectives.Hierarchical(2, INSIDE, collectives.HalvingDoubling()), collectives.InRacks(collectives.Ring(), 2, 3.0),
    collectives.InRacks(collectives.DoubleBinaryTree(), 4, 2.0),
    *(collectives.MultiTree(one) for one in (collectives.complete(8), collectives.mesh(2, 4), collectives.ring(8))),
    collectives.MultiTree(collectives.torus(3, 4)), collectives.NCCL(),
]  # fmt: skip
SENT = [descent.Identity(), descent.TopK(0.2), descent.RandomK(0.3), descent.RandomK(0.3, unbiased=True),
        descent.QSGD(3), descent.BlockSign(2)]  # fmt: skip
WAYS = [
    descent.SynchronousSGD(), descent.SynchronousSGD(0.6), descent.LocalSGD(3), descent.OverlapLocalSGD(2, 0.5, 0.4),
    descent.AdaComm(4, 5.0), descent.AdaQuantFL(2), descent.OrderedGradient(0.01), descent.OrderedGradient(0.0, 0.5),
    *(descent.DoubleCompression(one, momentum=0.3, local_steps=2) for one in SENT),
    *(descent.SquarmSGD(graph, one, local_steps=2, trigger=0.4, mixing=0.7, momentum=0.2)
      for graph, one in zip(("ring", "complete", "torus"), SENT, strict=False)),
    *(descent.ServerSGD(name, k=2) for name in ("k-sync", "k-batch-sync", "k-async", "k-batch-async")),
    descent.ServerSGD(), descent.ServerSGD("bounded-staleness", staleness_bound=2),
]  # fmt: skip


def reduced(value: Any, nodes: int) -> Any:
    times = [value.time(size, nodes, LINK) for size in (1e3, 1e6, 1e8)]
    return plain([*times, value.traffic(nodes)])


def descended(kind: str, way: descent.Strategy, **clock: Any) -> Any:
    problem = descent.make_problem(kind, examples=60, features=5, batch_size=3, seed=2)
    problem = descent.split(problem, 4, concentration=0.5, seed=1)
    transfer = {"transfer": lambda up, down: 0.2 + up / 4e3 + down / 9e3}
    run = descent.descend(problem, way, workers=4, steps=range(0, 25, 6), learning_rate=lambda n: 0.2 / (1 + n / 20),
                          seeds=[3, 8], clock=descent.Clock(**clock, **transfer))  # fmt: skip
    ties = {"tolerance": 0.01} if kind == "perceptron" and "TopK" in str(way) else {}  # of which the last bits decide
    return whole(run, "times losses up_bits down_bits model staleness") | {"to": plain(run.time_to(0.5))} | ties


def learning() -> Iterator[tuple[str, Question]]:
    for value, nodes in itertools.product(ALGORITHMS, (2, 5, 8, 12)):
        yield f"all-reduce {value} nodes={nodes}", partial(reduced, value, nodes)
    clocks: list[dict[str, Any]] = [{}, {"step": 0.5, "cv": 0.3, "slowness": (1.0, 0.5, 1.2, 0.9)},
                                    {"straggler_probability": 0.3, "straggler_slowdown": 4.0, "cv": 0.1}]  # fmt: skip
    for asked in pairwise(4, kind=list(descent.PROBLEM_KINDS), way=WAYS, clock=[{"clock": one} for one in clocks]):
        clock = asked.pop("clock")
        yield ask("descend", descended, **asked, **clock)
    measured = [(32, [20000, 23000]), (128, [30000, 29000, 33000]), (512, [61000])]
    for scale in (None, 90.0):
        law = partial(qm.fit_convergence, measured, noise_scale=scale)
        yield f"convergence {scale}", lambda law=law: [
            plain(law()), *(plain(ask([64, 300, 2000])) for ask in (law().steps, law().examples)),
            plain(law().interval([64, 300], 0.7)), plain(law().critical_interval(0.8))]  # fmt: skip
    noise = [[2.0, 3.0, 2.5], [1.0, 4.0, 2.2], [3.0, 2.1, 2.9]]
    yield "noise", lambda: plain(qm.noise_scale(noise, [1.1, 1.4, 1.2], batch_size=16).interval(0.8))


MLP = {"batch_size": 32, "parameter_bytes": 788992, "bandwidth": 1e8}


def written() -> None:
    for name, text in TOLD["files"].items():
        Path(name).write_text(text)


def imported(read: Callable[..., qm.Profile], *paths: str, **told: Any) -> Any:
    folders = [DATA / path for path in paths]
    found = read(folders[0] if read is tensorflow.read_tensorflow else folders, **({"batch_size": 8} | told))
    return [plain(found.summary()), digest(found.to_json())]


def workload(read: Callable[..., Any], *names: str, **asked: Any) -> Any:
    written()
    with zipfile.ZipFile(ROOT / "tests" / "data" / "workloads.zip") as archive:
        for name in archive.namelist():
            if any(name.startswith(one) for one in names):
                archive.extract(name)
    jobs = list(read(*names, **asked))[:150]
    speeds = [[one.curve(n) for n in range(one.least_nodes, (one.most_nodes or 4) + 1)] for one in jobs]
    fields = ("arrival_time", "steps", "least_nodes", "requested", "end_probability", "most_nodes")
    return [len(jobs), digest(str(speeds)), *(plain([getattr(one, name) for one in jobs]) for name in fields)]


def printed(words: str) -> Any:
    """The exit status and both streams of a command, in a folder with the packaged examples."""
    written()
    out, err = io.StringIO(), io.StringIO()
    status: object = 0
    program, sys.argv = sys.argv, ["queuemodel"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words.split())
        except SystemExit as stop:
            status = stop.code
    sys.argv = program
    return {"status": status, "out": digest(out.getvalue())}


def instances(name: str, **asked: Any) -> Any:
    written()
    return plain(qm.plan_instances(profile(name), qm.read_instances("machines.csv"), workers=range(1, 12), **asked))


def files() -> Iterator[tuple[str, Question]]:
    for one in ("alexnet-60", "resnet50-60"):
        yield f"import {one}", partial(imported, tensorflow.read_tensorflow, f"{one}/trace", bandwidth=7.5e6, workers=1)
    for one in ("xplane-1ps", "xplane-2ps", "xplane-slow-input", "layer-order"):
        yield f"import {one}", partial(imported, tensorflow.read_tensorflow, one, **(MLP if "x" in one else {}))
    for one in ("ddp/ddp-alexnet-40", "ddp/ddp-resnet50-60"):
        folders = [f"{one}/{path.name}" for path in sorted((DATA / one).glob("trace*"))]
        yield f"import {one}", partial(imported, pytorch.read_pytorch, *folders, bandwidth=5e6)
    for one in ("tiny", "slow-input", "late-input", "mlp"):
        folders = [f"mirrored/{one}/{path.name}" for path in sorted((DATA / "mirrored" / one).glob("trace*"))]
        yield f"import {one}", partial(imported, tensorflow.read_mirrored, *folders, parameter_bytes=3196840)
    reads: dict[str, tuple[Any, ...]] = {
        "jobs": (scheduling.read_workload, "jobs.csv"), "batches": (scheduling.read_workload, "batches.csv"),
        "gavel": (lambda *paths: scheduling.read_job_trace(paths[0], "gavel", paths[1]),
                  "gavel/physical_cluster/small_test.trace", "gavel/simulation_throughputs.json"),
        "elasticflow": (lambda *paths: scheduling.read_job_trace(paths[0], "elasticflow", paths[1]),
                        "elasticflow/philly_103959.csv", "elasticflow/throughputs_A100"),
        "pollux": (read_pollux, "pollux/workloads/workload-6.csv", "pollux/traces"),
        "philly": (partial(scheduling.read_jobs, layout="philly"), "philly.csv"),
    }  # fmt: skip
    for name, (read, *paths) in reads.items():
        yield f"workload {name}", partial(workload, read, *paths)
    for name, asked in itertools.product(
        ("alexnet-60", "ddp-alexnet-40"), ({"epochs": 3, "deadline": 9e4}, {"throughput": 90.0})
    ):
        yield ask("instances", instances, name, **asked, **({"dataset_size": 30000} if "epochs" in asked else {}))
    for words in (*TOLD["commands"], *TOLD["refused"]):
        yield f"$ queuemodel {words}", partial(printed, words)


def questions() -> dict[str, Question]:
    """Every question by its key."""
    asked = (curves, throughputs_alone, placements, decisions, simulations, networks, learning, files)
    found = [one for group in asked for one in group()]
    keys = [key for key, _ in found]
    assert len(set(keys)) == len(keys), {key for key in keys if keys.count(key) > 1}
    return dict(found)
